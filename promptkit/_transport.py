"""HTTP for the built-in client: one POST and its whole answer, bounded in time and size, cancellable anywhere.

What `Transport.post` guarantees, plain and under TLS, directly and through a proxy:

* It ends by ``timeout_s`` and by the token's deadline, whatever the server does, and within milliseconds of a
  cancel from another thread (`promptkit._sockets` says how).
* A connection is kept only when its answer has been read to the end and nobody has interrupted it.
* A kept connection that breaks before a byte of the answer is replaced once, without a word: the server had
  closed it while it was idle.
* Redirects are not followed, cookies are not kept, ``.netrc`` is not read; certificates are always verified.
* No error holds a header's value, the body, a query, or a proxy's password.

It is a requests adapter in what it builds: pools, proxy managers and connections are those of requests and
urllib3. What a ``requests.Session`` does per call – merging, cookies, proxy discovery, a response object – and
urllib3's pool and response are left out: they cost four times what the rest of the exchange does.

Threads: any number. Idle connections lie in deques, whose ``append`` and ``pop`` are atomic; ``_lock`` guards
the building of routes alone. A forked child starts without connections and with a lock of its own.
"""

from __future__ import annotations

import collections
import http.client
import importlib.metadata
import os
import re
import socket
import ssl
import threading
import time
import weakref
import zlib
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

from attrs import frozen
from requests.adapters import DEFAULT_CA_BUNDLE_PATH, HTTPAdapter
from requests.structures import CaseInsensitiveDict
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, LocationParseError
from urllib3.util import parse_url

from promptkit._proxies import Proxies, Proxy, trusted_authorities
from promptkit._sockets import BoundedSocket, Exchange, Line, Stopped, check_patching, client_context, connect
from promptkit.errors import (
    ConfigError,
    MalformedResponseError,
    ProviderError,
    RunCancelledError,
    TransportError,
    TransportTimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit._cancel import CancelToken

CONNECT_S: Final = 30.0
"""Seconds for connecting alone: look-up, TCP, the proxy's tunnel and TLS. An attempt's ``timeout_s`` has to
allow for long generations, and is no measure of how long a server may be unreachable."""

IDLE_S: Final = 55.0
"""Seconds after which an idle connection is not used again: load balancers commonly forget them at 60."""

_MAX_ROUTES: Final = 512
_PIECE_BYTES: Final = 65536
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_OWN_HEADERS: Final = frozenset({"content-length", "transfer-encoding"})
_PROXY_STATUSES_WORTH_A_RETRY: Final = frozenset({408, 429, 502, 503, 504})

_header_name: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch  # RFC 9110, section 5.6.2
_header_value: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*").fullmatch  # and 5.5
_tunnel_status: Final = re.compile(r"Tunnel connection failed: (\d+)").match

_DOING: Final = {
    "connect": "connecting",
    "send": "sending the request",
    "first byte": "waiting for the first byte",
    "body": "reading the answer",
}


@frozen
class Answer:
    """An HTTP answer, read to its end.

    ``headers`` is looked up without regard to case; a name sent twice has its values joined by a comma.
    ``body`` has been unpacked (gzip, deflate). ``timings`` has the seconds spent per phase: ``connect``,
    ``send``, ``first byte``, ``body``. ``via`` is the proxy's ``host:port``, None when there was none.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    timings: Mapping[str, float]
    via: str | None


# --------------------------------------------------------------------------------------------- connections


class _Bounded:
    """What makes a urllib3 connection bounded and interruptible: its sockets are ours."""

    exchange: Exchange
    line: Line | None = None
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


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


_Connection = _PlainConnection | _SecureConnection
_POOLS: Final = {"http": _PlainPool, "https": _SecurePool}


class _Adapter(HTTPAdapter):
    """The requests adapter whose connections are bounded. Its pools make connections; routes keep them."""

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:  # noqa: FBT001, FBT002 – its signature
        super().init_poolmanager(connections, maxsize, block, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def pool_for(self, url: str, proxy: Proxy | None, context: ssl.SSLContext | None) -> _PlainPool | _SecurePool:
        """Return the pool that makes connections to ``url``; ``context`` may be None when there is no TLS."""
        manager = self.poolmanager
        if proxy is not None:
            manager = self.proxy_manager_for(proxy.url, proxy_ssl_context=context)
            manager.pool_classes_by_scheme = _POOLS
        pool: _PlainPool | _SecurePool = manager.connection_from_url(url, pool_kwargs={"ssl_context": context})
        return pool


class _Origin:
    """The connections to one server by one way, and those of them that are idle."""

    __slots__ = ("_idle", "_is_tunnelled", "_pool", "headers")

    def __init__(self, pool: _PlainPool | _SecurePool, *, is_tunnelled: bool) -> None:
        self._pool = pool
        self._is_tunnelled = is_tunnelled
        self._idle: collections.deque[_Connection] = collections.deque()
        self.headers = {} if is_tunnelled else dict(pool.proxy_headers)

    def open(self, exchange: Exchange) -> _Connection:
        """Return a new connection, connected and ready, with ``exchange`` armed to it."""
        connection: Any = self._pool._new_conn()  # noqa: SLF001 – what a pool's own methods call; this is its pool
        connection.exchange = exchange
        try:
            if self._is_tunnelled:
                self._pool._prepare_proxy(connection)  # noqa: SLF001 – likewise; it connects
            else:
                connection.connect()
        except BaseException:
            _close(connection, is_ours=exchange.disarm())
            raise
        ready: _Connection = connection
        return ready

    def take(self) -> _Connection | None:
        """Return the connection that was used last, unless it is too old or the server has closed it."""
        oldest = time.monotonic() - IDLE_S
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.idle_since >= oldest and connection.is_connected:
                return connection
            _close(connection)

    def give(self, connection: _Connection, limit: int) -> None:
        """Keep a connection whose exchange is disarmed, if there is room for it."""
        connection.is_reused = True
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        while len(self._idle) > limit:
            self.drop_oldest()

    def forget(self) -> None:
        """Let go of the idle connections without shutting them down: they are a parent process's too."""
        while self._idle:
            connection = self._idle.pop()
            if connection.line is not None:
                connection.line.handle.close()
            connection.close()

    def drop_oldest(self) -> bool:
        """Close the connection that has been idle longest; False when there is none."""
        try:
            _close(self._idle.popleft())
        except IndexError:
            return False
        return True


def _close(connection: _Connection, *, is_ours: bool = True) -> None:
    """Close a connection for good; an interrupt that has its waker shuts it down itself."""
    if is_ours and connection.line is not None:
        connection.line.kill()
    connection.close()


@frozen
class _Route:
    """Where one URL leads: the connections, the request's target, and the names to show."""

    origin: _Origin
    target: str
    url: str
    host: str
    label: str
    proxy: Proxy | None

    @property
    def place(self) -> str:
        return f"{self.label} via proxy {self.proxy.label}" if self.proxy else self.label


# ------------------------------------------------------------------------------------------ the transport


class _StaleError(Exception):
    """A kept connection broke before a byte of the answer came."""


class Transport:
    """Sends one POST at a time for each calling thread; any number of threads.

    ``pool_size`` bounds the idle connections kept per server; more may be in use. ``proxies`` replaces the
    environment's (see `Proxies`; an empty mapping means none), ``ca_bundle`` is a PEM file or a folder of
    authorities to trust instead of the usual ones. Raises `ConfigError` for settings that cannot work.
    """

    def __init__(
        self,
        *,
        pool_size: int,
        proxies: Mapping[str, str] | None = None,
        ca_bundle: str | None = None,
        connect_s: float = CONNECT_S,
    ) -> None:
        check_patching()
        self._pool_size = pool_size
        self._connect_s = connect_s
        self._proxies = Proxies(proxies)
        bundle, setting = trusted_authorities(ca_bundle)
        self._context: ssl.SSLContext | None = None
        if bundle is not None:
            try:
                self._context = client_context(bundle)
            except OSError as error:
                raise ConfigError(f"{setting} names {bundle!r}, which holds no certificate that can be read") from error
        self._headers = {
            "Accept-Encoding": "gzip, deflate",
            "User-Agent": f"promptkit/{_version()}",
        }
        self._is_closed = False
        self._routes: dict[tuple[str, bool], _Route] = {}
        self._origins: dict[tuple[object, ...], _Origin] = {}
        self._lock = threading.Lock()
        self._adapter = _Adapter(pool_connections=_MAX_ROUTES, pool_maxsize=1)
        weakref.finalize(self, _drop_idle, self._origins)
        _transports.add(self)

    def close(self) -> None:
        """Close the idle connections. Exchanges under way finish; a later `post` works and keeps nothing."""
        self._is_closed = True
        _drop_idle(self._origins)

    def after_fork(self) -> None:
        """Begin anew in a forked child: its copies are closed, which the parent's connections do not feel."""
        self._lock = threading.Lock()
        self._adapter = _Adapter(pool_connections=_MAX_ROUTES, pool_maxsize=1)
        self._routes.clear()
        for origin in self._origins.values():
            origin.forget()
        self._origins.clear()

    # ------------------------------------------------------------------------------------------ exchanging

    def post(
        self,
        url: str,
        *,
        body: bytes,
        headers: Mapping[str, str],
        timeout_s: float,
        cancel: CancelToken,
        max_bytes: int,
        use_proxy: bool,
    ) -> Answer:
        """Send ``body`` to ``url`` and return the answer, whatever its status. Blocks; see the module.

        ``timeout_s`` bounds the whole exchange, as ``cancel`` does. ``max_bytes`` bounds the answer as it
        travels and when it has been unpacked. ``use_proxy`` False goes directly.

        Raises `RunCancelledError` or `DeadlineExceededError` when ``cancel`` ended it and
        `TransportTimeoutError` when ``timeout_s`` did (``phase`` says where), `TransportError` when the server
        was not reached or the answer did not come whole, `MalformedResponseError` when it cannot be unpacked,
        is too large or is not HTTP, `ProviderError` for a redirect, and `ConfigError` for a URL or a header
        that cannot be sent.
        """
        check_patching()
        route = self._routes.get((url, use_proxy)) or self._find_route(url, use_proxy=use_proxy)
        sent = self._check_headers(headers, route.origin)
        exchange = Exchange(cancel, timeout_s=timeout_s, connect_s=self._connect_s)
        registration = cancel.on_cancel(exchange.interrupt)
        try:
            return self._exchange(route, exchange, body, sent, max_bytes)
        except Stopped as stop:
            raise self._why_stopped(route, exchange, cancel, timeout_s) from stop.__cause__
        finally:
            registration.remove()

    def _exchange(
        self, route: _Route, exchange: Exchange, body: bytes, headers: Mapping[str, str], max_bytes: int
    ) -> Answer:
        connection = route.origin.take()
        if connection is not None:
            connection.exchange = exchange
            try:
                return self._talk(connection, route, body, headers, max_bytes)
            except _StaleError:
                exchange.enter("connect")
        try:
            connection = route.origin.open(exchange)
        except (OSError, UnicodeError, http.client.HTTPException, HTTPError) as error:
            if exchange.is_over:
                raise Stopped from error
            raise _connect_error(error, route) from error
        return self._talk(connection, route, body, headers, max_bytes)

    def _talk(
        self, connection: _Connection, route: _Route, body: bytes, headers: Mapping[str, str], max_bytes: int
    ) -> Answer:
        """Send the request and read the answer; keep the connection if all went well."""
        exchange = connection.exchange
        response: http.client.HTTPResponse | None = None
        is_kept = False
        try:
            if connection.is_reused and connection.line is not None:
                connection.line.attach(exchange)
            exchange.enter("send")
            try:
                connection.transmit(route.target, body, headers)
            except ConnectionError:
                if exchange.is_interrupted:
                    raise
                # A server may have answered, and said why, before it had read it all.
            exchange.enter("first byte")
            # The standard library's response: urllib3's would parse the headers again, and wrap the body.
            response = http.client.HTTPConnection.getresponse(connection)
            _check_head(response, route, exchange)
            data, is_whole = _read_body(response, max_bytes)
            is_kept = is_whole and not response.will_close
        except _TooLargeError as error:
            raise _too_large(route, max_bytes) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            if exchange.is_over:
                raise Stopped from error
            if connection.is_reused and exchange.phase in {"send", "first byte"}:
                raise _StaleError from error
            raise _answer_error(error, route, exchange) from error
        finally:
            if response is not None:
                response.close()
            is_ours = exchange.disarm()
            if is_kept and is_ours:
                self._keep(connection, route)
            else:
                _close(connection, is_ours=is_ours)
        if not is_ours:
            raise Stopped
        exchange.enter("body")
        return Answer(
            status=response.status,
            headers=_fold(response.headers),
            body=_unpack(data, response, route, max_bytes),
            timings=exchange.timings,
            via=route.proxy.label if route.proxy is not None else None,
        )

    def _keep(self, connection: _Connection, route: _Route) -> None:
        route.origin.give(connection, self._pool_size)
        if self._is_closed:
            _drop_idle(self._origins)

    def _why_stopped(
        self, route: _Route, exchange: Exchange, cancel: CancelToken, timeout_s: float
    ) -> RunCancelledError | TransportTimeoutError:
        """Return what ended the exchange: the token's error, or that the attempt's own time is up."""
        exchange.enter(exchange.phase)
        try:
            cancel.raise_if_cancelled()
        except RunCancelledError as error:
            error.phase = exchange.phase
            return error
        is_connecting = exchange.phase == "connect"
        limit = f"within {self._connect_s:g} s" if exchange.is_connect_bound else f"within timeout_s = {timeout_s:g} s"
        spent = ", ".join(f"{phase} {seconds:.3g} s" for phase, seconds in exchange.timings.items())
        return TransportTimeoutError(
            f"{route.place}: no connection {limit}{_cure(route)}"
            if is_connecting
            else f"{route.place}: no whole answer {limit}; it ended while {_DOING[exchange.phase]} ({spent})",
            phase=exchange.phase,
            is_retryable=is_connecting,
        )

    # ------------------------------------------------------------------------------------------- preparing

    def _check_headers(self, headers: Mapping[str, str], origin: _Origin) -> dict[str, str]:
        """Return the headers to send. Values are never shown, the key among them least of all."""
        sent: dict[str, str] = {}
        for name, value in headers.items():
            if not _header_name(name) or name.lower() in _OWN_HEADERS:
                raise ConfigError(f"the header name {name!r} cannot be sent")
            if not _header_value(value):
                raise ConfigError(
                    f"the value of the header {name!r} holds a line break, a control character, or one outside "
                    "Latin-1, and cannot be sent"
                )
            sent[name] = value
        given = {name.lower() for name in sent}
        ours = {**self._headers, **origin.headers}
        return {**{name: value for name, value in ours.items() if name.lower() not in given}, **sent}

    def _find_route(self, url: str, *, use_proxy: bool) -> _Route:
        try:
            parts = parse_url(url)
        except LocationParseError:
            parts = None
        if parts is None or parts.scheme not in {"http", "https"} or not parts.host:
            raise ConfigError(f"{_shown(url)!r} is not an address to send to; it begins with http:// or https://")
        if parts.auth:
            raise ConfigError(f"the address {_shown(url)!r} holds a user name or a password; give the key as api_key")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = parts.host.strip("[]")
        proxy = self._proxies.select(parts.scheme, host, port) if use_proxy else None
        has_tls = parts.scheme == "https" or (proxy is not None and proxy.scheme == "https")
        is_forwarded = proxy is not None and parts.scheme == "http"
        with self._lock:
            key = ("forward", proxy) if is_forwarded else (parts.scheme, host, port, proxy)
            origin = self._origins.get(key)
            if origin is None:
                pool = self._adapter.pool_for(url, proxy, self._tls_context() if has_tls else None)
                origin = _Origin(pool, is_tunnelled=proxy is not None and not is_forwarded)
                _make_room(self._origins)
                self._origins[key] = origin
            route = _Route(
                origin=origin,
                target=f"{parts.scheme}://{parts.netloc}{parts.request_uri}" if is_forwarded else parts.request_uri,
                url=url,
                host=host,
                label=f"{parts.host}:{port}",
                proxy=proxy,
            )
            _make_room(self._routes)
            self._routes[url, use_proxy] = route
        return route

    def _tls_context(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = client_context(DEFAULT_CA_BUNDLE_PATH)
        return self._context


def _drop_idle(origins: Mapping[tuple[object, ...], _Origin]) -> None:
    for origin in list(origins.values()):
        while origin.drop_oldest():
            pass


_transports: Final[weakref.WeakSet[Transport]] = weakref.WeakSet()


def _forget_all() -> None:
    for transport in list(_transports):
        transport.after_fork()


if hasattr(os, "register_at_fork"):  # pragma: no branch – Windows does not fork
    os.register_at_fork(after_in_child=_forget_all)


def _make_room(table: dict[Any, Any]) -> None:
    while len(table) >= _MAX_ROUTES:
        table.pop(next(iter(table)))


def _version() -> str:
    try:
        return importlib.metadata.version("promptkit")
    except importlib.metadata.PackageNotFoundError:
        return "0"


def _shown(url: str) -> str:
    """Return an address without what may be secret in it: user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "?"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.netloc else parts.path


# ---------------------------------------------------------------------------------------------- reading


class _TooLargeError(Exception):
    """The answer is larger than its limit."""


def _check_head(response: http.client.HTTPResponse, route: _Route, exchange: Exchange) -> None:
    """Refuse an answer that its head already rules out."""
    if exchange.has_ended_stream:
        raise http.client.IncompleteRead(b"")
    location = response.headers.get("location")
    if response.status in _REDIRECTS and location is not None:
        there = _shown(urljoin(route.url, location))
        raise ProviderError(
            f"{route.place} redirects to {there} (HTTP {response.status}), which is not followed, since the key would "
            "go along; if that is the right address, make it the endpoint",
            status=response.status,
        )
    if response.status < http.HTTPStatus.OK:
        raise MalformedResponseError(f"{route.place} answered with the interim status HTTP {response.status} alone")


def _read_body(response: http.client.HTTPResponse, max_bytes: int) -> tuple[bytes, bool]:
    """Return the body as it travelled, and whether it came whole; an error's status is worth more than its body."""
    is_error = response.status >= http.HTTPStatus.BAD_REQUEST
    try:
        if response.length is not None:
            if response.length > max_bytes:
                raise _TooLargeError
            return response.read(), True
        pieces = bytearray()
        while piece := response.read(_PIECE_BYTES):
            pieces += piece
            if len(pieces) > max_bytes:
                raise _TooLargeError
        return bytes(pieces), True
    except http.client.IncompleteRead as error:
        if is_error:
            return error.partial, False
        raise
    except (OSError, ValueError, http.client.HTTPException, _TooLargeError):
        if is_error:
            return b"", False
        raise


def _fold(headers: http.client.HTTPMessage) -> CaseInsensitiveDict[str]:
    folded: CaseInsensitiveDict[str] = CaseInsensitiveDict()
    for name, value in headers.items():
        folded[name] = f"{folded[name]}, {value}" if name in folded else value
    return folded


def _unpack(data: bytes, response: http.client.HTTPResponse, route: _Route, max_bytes: int) -> bytes:
    """Undo the content encodings, the last one first, within ``max_bytes``."""
    named = ", ".join(response.headers.get_all("content-encoding", ()))
    if not named or not data:
        return data
    try:
        for encoding in reversed(named.lower().split(",")):
            data = _unpack_one(data, encoding.strip(), max_bytes)
    except (_TooLargeError, LookupError, zlib.error) as error:
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            return b""
        if isinstance(error, _TooLargeError):
            raise _too_large(route, max_bytes) from error
        if isinstance(error, LookupError):
            raise MalformedResponseError(
                f"{route.place} answered with content-encoding {named[:40]!r}, which it was not offered; "
                "promptkit accepts gzip and deflate"
            ) from error
        raise MalformedResponseError(
            f"{route.place} answered with content-encoding {named[:40]!r}, but the body is not that: {error}",
            is_retryable=True,
        ) from error
    return data


def _unpack_one(data: bytes, encoding: str, max_bytes: int) -> bytes:
    """Undo one encoding; `LookupError` for one that is not known, ``zlib.error`` for data that is not in it."""
    if encoding in {"", "identity"}:
        return data
    if encoding in {"gzip", "x-gzip"}:
        window = zlib.MAX_WBITS | 16
    elif encoding == "deflate":
        # With the zlib header of RFC 9110, or without, as some servers send it (RFC 1950, section 2.2).
        has_header = data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2]) % 31 == 0
        window = zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS
    else:
        raise LookupError(encoding)
    unpacked = bytearray()
    while True:
        unpacker = zlib.decompressobj(window)
        unpacked += unpacker.decompress(data, max_bytes - len(unpacked) + 1)
        if len(unpacked) > max_bytes:
            raise _TooLargeError
        if not unpacker.eof:
            raise zlib.error("it ends too early")
        data = unpacker.unused_data
        if encoding == "deflate" or not data.startswith(b"\x1f\x8b"):  # a gzip body may have several members
            return bytes(unpacked)


# ------------------------------------------------------------------------------------------------ errors


def _cure(route: _Route) -> str:
    if route.proxy is None:
        return ""
    return (
        f"; if it should be reached without the proxy, add {route.host} to NO_PROXY, or set proxy: none in the profile"
    )


def _too_large(route: _Route, max_bytes: int) -> MalformedResponseError:
    return MalformedResponseError(f"{route.place}: the response is larger than the limit of {max_bytes} bytes")


def _connect_error(error: Exception, route: _Route) -> TransportError:
    """Return the error for a connection that could not be made."""
    is_retryable = True
    if isinstance(error, ssl.SSLCertVerificationError):
        is_retryable = False
        reason = (
            f"certificate verify failed: {error.verify_message}; if a private authority has signed the certificate, "
            "name its file with ca_bundle, or in REQUESTS_CA_BUNDLE"
        )
    elif isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        reason = "the connection was closed during the TLS handshake"
    elif isinstance(error, ssl.SSLError):
        is_retryable = False
        reason = f"no TLS connection ({error.reason or error}); does the server speak https on this port?"
    elif isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
        reason = "temporary failure in looking up its name"
    elif isinstance(error, socket.gaierror):
        reason = "its name is not known"
    elif isinstance(error, OSError):
        tunnel = _tunnel_status(str(error))
        is_retryable = tunnel is None or int(tunnel[1]) in _PROXY_STATUSES_WORTH_A_RETRY
        reason = f"the proxy answered {error}" if tunnel else error.strerror or str(error) or type(error).__name__
    else:
        is_retryable = isinstance(error, http.client.HTTPException)
        reason = f"{error}" or type(error).__name__
    return TransportError(
        f"{route.place}: no connection: {reason}{_cure(route)}", phase="connect", is_retryable=is_retryable
    )


def _answer_error(error: Exception, route: _Route, exchange: Exchange) -> TransportError | MalformedResponseError:
    """Return the error for an exchange that broke after the connection was made."""
    if exchange.phase != "body":
        return TransportError(
            f"{route.place} closed the connection without answering", phase=exchange.phase, is_retryable=True
        )
    if isinstance(error, http.client.IncompleteRead):
        missing = f", {error.expected} more were promised" if error.expected else ""
        reason = f"{len(error.partial)} bytes of the body came{missing}"
    elif isinstance(error, OSError) or exchange.has_ended_stream:
        reason = "the connection broke"
    else:
        return MalformedResponseError(
            f"{route.place} did not answer in HTTP ({type(error).__name__}: {str(error)[:60]!r})"
        )
    return TransportError(f"{route.place}: the answer was cut short: {reason}", phase="body", is_retryable=True)
