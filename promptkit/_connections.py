"""Connections of requests and urllib3 whose sockets are bounded, and the idle ones of each server.

urllib3's pools make the connections, tunnels and TLS; requests' adapter knows the ways through proxies, and is imported
when there is one: with all that it brings it is a tenth of what promptkit takes in memory. What is idle lies here, in a
deque per server, and not in urllib3's queue: its ``append`` and ``pop`` need no lock, which a forked child could find
held.

This module alone imports requests and urllib3.
"""

from __future__ import annotations

import collections
import functools
import ssl
import time
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, LocationParseError
from urllib3.util import parse_url

from promptkit._sockets import BoundedSocket, Line, connect, look_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from requests.adapters import HTTPAdapter

    from promptkit._exchange import Exchange
    from promptkit._proxies import Proxy

IDLE_S: Final = 55.0
"""Seconds after which an idle connection is not used again: load balancers commonly forget them at 60."""

_PIECE_BYTES: Final = 65536
_SOCKS_PORT: Final = 1080


@frozen
class Address:
    """A server's address, taken apart. ``netloc`` is ``host:port`` as written, without a user."""

    scheme: str
    host: str
    port: int
    netloc: str
    target: str
    has_user: bool


class _Bounded:
    """What makes a urllib3 connection bounded and interruptible: its sockets are ours."""

    exchange: Exchange
    line: Line  # from the moment it is connected; an exchange armed to this connection says that it is
    is_reused = False
    idle_since = 0.0

    _dns_host: str
    _pieces: list[bytes] | None = None
    port: int

    def _new_conn(self) -> BoundedSocket:
        sock = connect(self._dns_host.strip("[]"), self.port, self.exchange)
        self.line = sock.line
        return sock

    def send(self, data: Any) -> None:
        """Hold a request's head back until its body is there too."""
        if self._pieces is None:
            super().send(data)  # type: ignore[misc]  # the next class is urllib3's connection
        else:
            self._pieces.append(data)

    def transmit(self, target: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a POST: in one piece if it is small, so that no peer's delayed acknowledgement comes between."""
        self._pieces = []
        try:
            self.request("POST", target, body=body, headers=headers)  # type: ignore[attr-defined]  # likewise
            pieces = self._pieces
        finally:
            self._pieces = None
        if len(body) <= _PIECE_BYTES:
            pieces = [b"".join(pieces)]
        for piece in pieces:
            self.send(piece)


class _PlainConnection(_Bounded, HTTPConnection):
    pass


class _SecureConnection(_Bounded, HTTPSConnection):
    pass


class _Socks(_Bounded):
    """The same through a SOCKS proxy: PySocks talks to it, over a bounded socket that is connected already."""

    def __init__(self, _socks_options: Mapping[str, Any], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._socks_options = _socks_options

    def _new_conn(self) -> BoundedSocket:
        options, host = self._socks_options, self._dns_host.strip("[]")
        if not options["rdns"]:
            host = look_up(host, self.port, self.exchange)[0][4][0]
        sock = connect(options["proxy_host"].strip("[]"), options["proxy_port"] or _SOCKS_PORT, self.exchange)
        self.line = sock.line
        negotiating = _socks_socket()(sock.family, sock.type, sock.proto, fileno=sock.detach())
        try:
            negotiating.line = self.line
            negotiating.set_proxy(
                options["socks_version"],
                options["proxy_host"],
                options["proxy_port"],
                options["rdns"],
                options["username"],
                options["password"],
            )
            negotiating.connect((host, self.port))
            sock = BoundedSocket(sock.family, sock.type, sock.proto, fileno=negotiating.detach())
        finally:
            negotiating.close()
        sock.line = self.line
        return sock


@functools.cache
def _socks_socket() -> Any:
    """Return PySocks' socket, bounded; the package is optional and is imported when a proxy asks for it."""
    import socks  # type: ignore[import-untyped]  # noqa: PLC0415

    class Connected(BoundedSocket):
        def connect(self, address: Any) -> None:
            """Stay connected to the proxy."""

    class NegotiatingSocket(socks.socksocket, Connected):  # type: ignore[misc]
        pass

    return NegotiatingSocket


class _SocksPlainConnection(_Socks, HTTPConnection):
    pass


class _SocksSecureConnection(_Socks, HTTPSConnection):
    pass


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class _SocksPlainPool(HTTPConnectionPool):
    ConnectionCls = _SocksPlainConnection


class _SocksSecurePool(HTTPSConnectionPool):
    ConnectionCls = _SocksSecureConnection


Connection = _PlainConnection | _SecureConnection | _SocksPlainConnection | _SocksSecureConnection
_POOLS: Final = {"http": _PlainPool, "https": _SecurePool}
_SOCKS_POOLS: Final = {"http": _SocksPlainPool, "https": _SocksSecurePool}


class Ways:
    """The ways to servers, direct and through proxies: what makes the pools that make connections.

    At most ``limit`` are kept. Of one thread at a time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._direct = PoolManager(limit, maxsize=1)
        self._direct.pool_classes_by_scheme = _POOLS
        self._adapter: HTTPAdapter | None = None

    def pool_for(self, url: str, proxy: Proxy | None, context: ssl.SSLContext | None) -> HTTPConnectionPool:
        """Return the pool that makes connections to ``url``; ``context`` may be None when there is no TLS."""
        manager = self._direct if proxy is None else self._through(proxy, context)
        pool: HTTPConnectionPool = manager.connection_from_url(url, pool_kwargs={"ssl_context": context})
        return pool

    def _through(self, proxy: Proxy, context: ssl.SSLContext | None) -> PoolManager:
        if self._adapter is None:
            from requests.adapters import HTTPAdapter  # noqa: PLC0415

            self._adapter = HTTPAdapter(pool_connections=self._limit, pool_maxsize=1)
        if proxy.is_socks:
            manager: PoolManager = self._adapter.proxy_manager_for(proxy.url)
            manager.pool_classes_by_scheme = _SOCKS_POOLS
        else:
            manager = self._adapter.proxy_manager_for(proxy.url, proxy_ssl_context=context)
            manager.pool_classes_by_scheme = _POOLS
        return manager


def usual_authorities() -> str:
    """Return the file of authorities that requests trusts."""
    from certifi import where  # noqa: PLC0415 – for servers behind TLS alone

    return where()


class Origin:
    """The connections to one server by one way, and those of them that are idle. Any number of threads."""

    __slots__ = ("_idle", "_is_retired", "_is_tunnelled", "_pool", "headers")

    def __init__(self, pool: HTTPConnectionPool, *, is_tunnelled: bool) -> None:
        self._pool = pool
        self._is_tunnelled = is_tunnelled
        self._is_retired = False
        self._idle: collections.deque[Connection] = collections.deque()
        self.headers: Mapping[str, str] = {} if is_tunnelled else dict(pool.proxy_headers)

    def open(self, exchange: Exchange) -> Connection:
        """Return a new connection, connected and ready, with ``exchange`` armed to it.

        Raises OSError, UnicodeError, ``http.client.HTTPException`` or `Stopped`.
        """
        connection: Any = self._pool._new_conn()  # noqa: SLF001 – what a pool's own methods call; this is its pool
        connection.exchange = exchange
        try:
            if self._is_tunnelled:
                self._pool._prepare_proxy(connection)  # noqa: SLF001 – likewise; it connects
            else:
                connection.connect()
        except BaseException as error:
            close(connection, is_ours=exchange.disarm())
            if isinstance(error, HTTPError):
                raise OSError(str(error)) from error
            raise
        ready: Connection = connection
        return ready

    def take(self) -> Connection | None:
        """Return the connection that was used last, unless it is too old or the server has closed it."""
        oldest = time.monotonic() - IDLE_S
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.idle_since >= oldest and connection.is_connected:
                return connection
            close(connection)

    def give(self, connection: Connection, limit: int) -> None:
        """Keep a connection whose exchange is disarmed, as the last of at most ``limit``."""
        connection.is_reused = True
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        while len(self._idle) > limit:
            self._close_oldest()
        if self._is_retired:
            self.retire()

    def retire(self) -> None:
        """Close what is idle, now and from now on."""
        self._is_retired = True
        while self._close_oldest():
            pass

    def forget(self) -> None:
        """Let go of the idle connections without shutting them down: they are a parent process's too."""
        while self._idle:
            connection = self._idle.pop()
            connection.line.handle.close()
            connection.close()

    def _close_oldest(self) -> bool:
        try:
            close(self._idle.popleft())
        except IndexError:
            return False
        return True


def close(connection: Connection, *, is_ours: bool = True) -> None:
    """Close a connection for good; an interrupt that has its waker shuts it down itself."""
    if is_ours:
        connection.line.kill()
    connection.close()


def parse_address(url: str) -> Address | None:
    """Take a URL apart, with its path and query as they go into a request; None when it is not one of HTTP."""
    try:
        parts = parse_url(url)
    except LocationParseError:
        return None
    if parts.scheme not in {"http", "https"} or not parts.host or not parts.netloc:
        return None
    return Address(
        scheme=parts.scheme,
        host=parts.host.strip("[]"),
        port=parts.port or (443 if parts.scheme == "https" else 80),
        netloc=parts.netloc,
        target=parts.request_uri,
        has_user=parts.auth is not None,
    )
