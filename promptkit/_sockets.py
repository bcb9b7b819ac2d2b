"""Sockets whose every wait is bounded by one exchange, and that another thread can wake.

An `Exchange` is one request and its answer. What this module guarantees of it:

* Nothing blocks past its end, or its token's: before each receive and send the socket's timeout is set to
  what is left, so a peer that trickles cannot stretch it. Looking up a name and connecting are bounded too.
* `Exchange.interrupt`, from any thread or signal handler, ends a wait that is under way at once. It takes no
  lock. Closing a socket does not wake a thread that is blocked in it; shutting it down does, and each
  connection keeps a duplicate of its socket for that, which stays valid while TLS takes the original over.
* An interrupt that comes late never touches a connection that has gone on to serve another exchange: what
  would be woken lies in a list of at most one waker, and whoever pops it (one C call) owns it. Only an owner
  who got it back with `Exchange.disarm` may keep the connection.

No thread stands by and there is no timer. A name that is not a literal address is looked up in a thread of
its own, because ``getaddrinfo`` cannot be interrupted; it ends with the look-up, and is left to itself when
the exchange is over first.

A token that polls bounds each wait to its interval and is asked in between.
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
from typing import TYPE_CHECKING, Any, Final, Literal

from promptkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit._cancel import CancelToken

Phase = Literal["connect", "send", "first byte", "body"]

CONNECT_SLICE_S: Final = 0.05
"""A connecting socket that is shut down wakes its thread at once on Linux; elsewhere it looks this often."""

KEEPALIVE_S: Final = 60
"""Probe a silent peer this often: a long generation sends nothing, and routers forget silent connections."""


class Stopped(Exception):  # noqa: N818 – control flow inside the transport: it says stop, not what went wrong
    """The exchange is over: cancelled, or out of time. `Exchange` knows which."""


class Exchange:
    """One request and its answer: when it must end, who may end it, and where its time goes.

    ``connect_s`` bounds the connect phase alone, ``timeout_s`` the whole. Used by one thread; `interrupt` alone may
    be called from others. ``end`` is when the present phase must end, on ``time.monotonic()``; ``is_connect_bound``
    says that the limit of the connect phase is what ends it; ``timings`` has the seconds of the phases gone by;
    ``has_ended_stream`` says that the peer has closed since the present phase began.
    """

    __slots__ = (
        "_cancel",
        "_connect_s",
        "_is_token_bound",
        "_poll_s",
        "_since",
        "_wakers",
        "_whole_end",
        "end",
        "has_ended_stream",
        "is_connect_bound",
        "is_interrupted",
        "phase",
        "timings",
    )

    def __init__(self, cancel: CancelToken, *, timeout_s: float, connect_s: float) -> None:
        remaining = cancel.remaining()  # asked before the time is taken, so that end is never too early
        now = time.monotonic()
        self._cancel = cancel
        self._poll_s = cancel.poll_interval_s
        self._is_token_bound = remaining is not None and remaining <= timeout_s
        self._whole_end = now + (timeout_s if remaining is None else min(timeout_s, remaining))
        self._connect_s = connect_s
        self._wakers: list[Callable[[], object]] = []
        self.is_interrupted = False
        self.timings: dict[str, float] = {}
        self._begin("connect", now)

    @property
    def is_over(self) -> bool:
        """True when the exchange has been cancelled or its time is up."""
        try:
            self.wait_s()
        except Stopped:
            return True
        return False

    def enter(self, phase: Phase) -> None:
        """Begin ``phase``; the time since the last change is the previous phase's."""
        now = time.monotonic()
        self.timings[self.phase] = self.timings.get(self.phase, 0.0) + now - self._since
        self._begin(phase, now)

    def _begin(self, phase: Phase, now: float) -> None:
        self.phase: Phase = phase
        self._since = now
        self.has_ended_stream = False
        self.is_connect_bound = phase == "connect" and now + self._connect_s < self._whole_end
        self.end = now + self._connect_s if self.is_connect_bound else self._whole_end

    def wait_s(self) -> float:
        """Return how long the next operation may block, in seconds; raise `Stopped` when it may not."""
        if self.is_interrupted or (self._poll_s is not None and self._cancel.cancelled):
            raise Stopped
        now = time.monotonic()
        left = self.end - now
        if left <= 0:
            # A token may run on another clock than the system's, which alone bounds what a socket waits.
            left = (self._cancel.remaining() or 0.0) if self._is_token_bound and not self.is_connect_bound else 0.0
            if left <= 0:
                raise Stopped
            self.end = self._whole_end = now + left
        return left if self._poll_s is None else min(left, self._poll_s)

    def note_received(self, count: int) -> None:
        """Take note that ``count`` bytes came, or that the stream has ended (0)."""
        if not count:
            self.has_ended_stream = True
        elif self.phase == "first byte":
            self.enter("body")

    # ------------------------------------------------------------------------------------ interruption

    def interrupt(self) -> None:
        """End the exchange and wake its thread. Any thread, any signal handler; never blocks."""
        self.is_interrupted = True
        with contextlib.suppress(IndexError):
            self._wakers.pop()()

    def arm(self, wake: Callable[[], object]) -> None:
        """Have ``wake`` called by an interrupt, once, until `disarm`. Raise `Stopped` if one has come already."""
        self._wakers.append(wake)
        if self.is_interrupted:
            raise Stopped

    def disarm(self) -> bool:
        """Take the waker back; False when an interrupt has it, and what it wakes must not be used again."""
        try:
            self._wakers.pop()
        except IndexError:
            return False
        return True


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
