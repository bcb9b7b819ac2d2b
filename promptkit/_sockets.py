"""Sockets whose every wait is bounded by the exchange that they serve, and that another thread can wake.

Before each receive and send the socket's timeout is set to what is left, so a peer that trickles cannot stretch it;
looking up a name, connecting and the TLS handshake are bounded too. Closing a socket does not wake a thread that is
blocked in it; shutting it down does, and each connection keeps a duplicate of its socket for that, which stays valid
while TLS takes the original over.

No thread stands by. A name that is not a literal address is looked up in a thread of its own, because
``getaddrinfo`` cannot be interrupted; it ends with the look-up, and is left to itself when the exchange is over
first.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import math
import os
import select
import socket
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from promptkit.errors import ConfigError

if TYPE_CHECKING:
    from promptkit._exchange import Exchange

CONNECT_SLICE_S: Final = 0.05
"""A connecting socket that is shut down wakes its thread at once on Linux; elsewhere it looks this often."""

KEEPALIVE_S: Final = 60
"""Probe a silent peer this often: a long generation sends nothing, and routers forget silent connections."""


class Line:
    """The state of one connection that its sockets, plain and TLS, share: whose turn it is, and its handle."""

    __slots__ = ("exchange", "handle")

    def __init__(self, exchange: Exchange, handle: socket.socket) -> None:
        self.exchange = exchange
        self.handle = handle

    def attach(self, exchange: Exchange) -> None:
        """Let ``exchange`` use the connection, and be interrupted in it."""
        self.exchange = exchange
        exchange.arm(self.kill)

    def kill(self) -> None:
        """Shut the connection down, which wakes whoever is blocked in it, and close the handle."""
        with contextlib.suppress(OSError):
            self.handle.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self.handle.close()


class BoundedSocket(socket.socket):
    """A TCP socket that waits as long as its exchange allows, and no longer."""

    line: Line

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """Receive, bounded."""
        exchange = self.line.exchange
        while True:
            self.settimeout(exchange.wait_s())
            try:
                data = super().recv(bufsize, flags)
            except TimeoutError:
                continue
            exchange.note_received(len(data))
            return data

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Receive into a buffer, bounded."""
        exchange = self.line.exchange
        while True:
            self.settimeout(exchange.wait_s())
            try:
                count = super().recv_into(buffer, nbytes, flags)
            except TimeoutError:
                continue
            exchange.note_received(count)
            return count

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send all of ``data``, bounded; a peer that does not read ends it too."""
        exchange = self.line.exchange
        with memoryview(data) as view, view.cast("B") as rest:
            sent = 0
            while sent < len(rest):
                self.settimeout(exchange.wait_s())
                with contextlib.suppress(TimeoutError):
                    sent += super().send(rest[sent:], flags)


class BoundedTLSSocket(ssl.SSLSocket):
    """The same under TLS. An operation that ran into a slice's end goes on where it was when called again."""

    line: Line

    def read(self, len: int | None = 1024, buffer: Any = None) -> Any:  # noqa: A002 – the standard library's name
        """Receive, into ``buffer`` when there is one, bounded; `recv` and `recv_into` come here."""
        exchange = self.line.exchange
        while True:
            self.settimeout(exchange.wait_s())
            try:
                got: Any = super().read(len, buffer)  # type: ignore[arg-type]  # typeshed leaves out None
            except TimeoutError:
                continue
            exchange.note_received(got if buffer is not None else int(got != b""))
            return got

    def send(self, data: Any, flags: int = 0) -> int:
        """Send a part of ``data``, bounded; `sendall` comes here."""
        while True:
            self.settimeout(self.line.exchange.wait_s())
            with contextlib.suppress(TimeoutError):
                return super().send(data, flags)

    def do_handshake(self, block: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 – the standard library's signature
        """Shake hands, bounded."""
        while True:
            self.settimeout(self.line.exchange.wait_s())
            with contextlib.suppress(TimeoutError):
                return super().do_handshake()


class ClientContext(ssl.SSLContext):
    """A verifying client's TLS settings whose sockets are bounded: certificates and names are always checked."""

    sslsocket_class = BoundedTLSSocket

    def wrap_socket(self, sock: socket.socket, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Put TLS over a bounded socket and shake hands."""
        # The handshake waits until the new socket knows its line.
        tls = super().wrap_socket(sock, *args, **{**options, "do_handshake_on_connect": False})
        try:
            tls.line = sock.line  # type: ignore[attr-defined]  # this context is used for bounded sockets alone
            tls.do_handshake()
        except BaseException:
            tls.close()
            raise
        return tls


def client_context(ca_bundle: str) -> ClientContext:
    """Return the TLS settings that trust the authorities in ``ca_bundle``, a PEM file or a folder of them.

    Raises OSError (`ssl.SSLError` is one) when it cannot be read.
    """
    context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    if Path(ca_bundle).is_dir():
        context.load_verify_locations(capath=ca_bundle)
    else:
        context.load_verify_locations(cafile=ca_bundle)
    return context


def check_patching() -> None:
    """Raise `ConfigError` when gevent or eventlet has replaced the sockets since promptkit was imported.

    Ours would go on blocking the whole process, and its hub with it.
    """
    if socket.socket is BoundedSocket.__base__:
        return
    for name, asks in (("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")):
        module = sys.modules.get(name)
        if module is not None and getattr(module, asks)("socket"):
            raise ConfigError(
                f"monkey patching came too late: {name.partition('.')[0]} has replaced the sockets after promptkit was "
                "imported; patch first, before any other import"
            )


# ---------------------------------------------------------------------------------------------- connecting


def connect(host: str, port: int, exchange: Exchange) -> BoundedSocket:
    """Return a socket connected to ``host:port``, with ``exchange`` armed to it.

    Addresses are tried in the resolver's order, and share the time that is left. Raises what the look-up or
    the last address raised (OSError; UnicodeError for a name that cannot be one), or `Stopped`.
    """
    addresses = look_up(host, port, exchange)
    failure = OSError(errno.EADDRNOTAVAIL, "the name has no address")
    for index, address in enumerate(addresses):
        now = time.monotonic()
        untried = len(addresses) - index
        share_end = now + (exchange.end - now) / untried if untried > 1 else math.inf
        try:
            return _connect_one(address, exchange, share_end)
        except OSError as error:
            failure = error
    raise failure


def _connect_one(address: tuple[Any, ...], exchange: Exchange, end: float) -> BoundedSocket:
    """Connect to one address until ``end``; ``exchange`` stays armed only if that went well."""
    family, kind, protocol, _, place = address
    sock = BoundedSocket(family, kind, protocol)
    is_connected = False
    try:
        sock.line = Line(exchange, sock.dup())
        try:
            exchange.arm(sock.line.kill)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_KEEPIDLE"):  # pragma: no branch – macOS has another name for it
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
            sock.settimeout(0)
            code = sock.connect_ex(place)
            if code in {errno.EINPROGRESS, errno.EWOULDBLOCK}:
                while not _wait_writable(sock, min(exchange.wait_s(), CONNECT_SLICE_S)):
                    if time.monotonic() > end:
                        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
                exchange.wait_s()  # an interrupt wakes the wait as a connection does
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            is_connected = True
        finally:
            if not is_connected and exchange.disarm():
                sock.line.kill()
    finally:
        if not is_connected:
            sock.close()
    return sock


def _wait_writable(sock: socket.socket, seconds: float) -> bool:
    if hasattr(select, "poll"):  # pragma: no branch – Windows has none; select alone stops at 1024 descriptors
        poller = select.poll()
        poller.register(sock, select.POLLOUT)
        return bool(poller.poll(seconds * 1000))
    return any(select.select([], [sock], [sock], seconds))  # pragma: no cover


def look_up(host: str, port: int, exchange: Exchange) -> list[tuple[Any, ...]]:
    """Return the addresses of ``host``, as ``socket.getaddrinfo`` does; bounded and interruptible by ``exchange``."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return _look_up_apart(host, port, exchange)
    return socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)


def _look_up_apart(host: str, port: int, exchange: Exchange) -> list[tuple[Any, ...]]:
    """Look a name up in a thread of its own, and wait for it as long as the exchange allows."""
    found: list[list[tuple[Any, ...]] | Exception] = []
    gate = threading.Lock()  # a bare lock: an Event cannot be set by a signal handler that interrupts its waiter
    gate.acquire()

    def open_gate() -> None:
        with contextlib.suppress(RuntimeError):  # open already
            gate.release()

    def look_up() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM))
        except Exception as error:  # noqa: BLE001 – raised again in the caller's thread
            found.append(error)
        open_gate()

    try:
        exchange.arm(open_gate)
        try:
            threading.Thread(target=look_up, name="promptkit-lookup", daemon=True).start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, "no thread could be started to look the name up") from error
        while not found:
            gate.acquire(timeout=exchange.wait_s())
    finally:
        exchange.disarm()
    exchange.wait_s()
    result = found[0]
    if isinstance(result, Exception):
        raise result
    return result
