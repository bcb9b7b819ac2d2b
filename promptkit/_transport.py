"""HTTP for the built-in client: one POST and its whole answer, bounded in time and size, cancellable anywhere.

What `Transport.post` guarantees, plain and under TLS, directly and through a proxy:

* It ends by ``timeout_s`` and by the token's deadline, whatever the server does, and within milliseconds of a
  cancel from another thread (`promptkit._exchange` and `promptkit._sockets` say how).
* A connection is kept only when its answer has been read to the end and nobody has interrupted it.
* A kept connection that breaks before a byte of the answer is replaced once, without a word: the server had
  closed it while it was idle.
* Redirects are not followed, cookies are not kept, ``.netrc`` is not read; certificates are always verified.
* No error holds a header's value, the body, a query, or a proxy's password.

Pools, proxy managers and connections are those of urllib3 and of a requests adapter. What a ``requests.Session`` does
per call – merging, cookies, proxy discovery, a response object – and urllib3's pool and response are left out: they
cost four times what the rest of the exchange does.

Threads: any number. Idle connections lie in deques, whose ``append`` and ``pop`` are atomic; ``_lock`` guards
the building of routes alone. A forked child starts without connections and with a lock of its own.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
import threading
import weakref
from typing import TYPE_CHECKING, Final

from attrs import frozen

from promptkit._answers import (
    DOING,
    Answer,
    Headers,
    Place,
    TooLargeError,
    answer_error,
    check_head,
    connect_error,
    read_body,
    shown,
    timed_out,
    too_large,
    unpack,
)
from promptkit._connections import Connection, Origin, Ways, close, parse_address, usual_authorities
from promptkit._exchange import Exchange, Stopped
from promptkit._proxies import Proxies, trusted_authorities
from promptkit._sockets import check_patching, client_context
from promptkit._version import __version__
from promptkit.errors import ConfigError, RunCancelledError, TransportTimeoutError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit._cancel import CancelToken

CONNECT_S: Final = 30.0
"""Seconds for connecting alone: look-up, TCP, the proxy's tunnel and TLS. An attempt's ``timeout_s`` has to
allow for long generations, and is no measure of how long a server may be unreachable."""

_MAX_ROUTES: Final = 512
_OWN_HEADERS: Final = frozenset({"content-length", "transfer-encoding"})

_header_name: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch  # RFC 9110, section 5.6.2
_header_value: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*").fullmatch  # and 5.5


@frozen
class _Route:
    """Where one URL leads: the connections, the request's target, and the names to show."""

    origin: Origin
    target: str
    place: Place


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
        self._authorities = trusted_authorities(ca_bundle)
        self._context: ssl.SSLContext | None = None
        if ca_bundle is not None:  # what a caller names is checked now, what the machine names when it is needed
            self._context = self._tls_context()
        self._headers = {
            "Accept-Encoding": "gzip, deflate",
            "User-Agent": f"promptkit/{__version__}",
        }
        self._is_closed = False
        self._routes: dict[tuple[str, bool], _Route] = {}
        self._origins: dict[tuple[object, ...], Origin] = {}
        self._lock = threading.Lock()
        self._ways = Ways(_MAX_ROUTES)
        weakref.finalize(self, _retire, self._origins)
        _transports.add(self)

    def close(self) -> None:
        """Close the idle connections. Exchanges under way finish; a later `post` works and keeps nothing."""
        self._is_closed = True
        _retire(self._origins)

    def after_fork(self) -> None:
        """Begin anew in a forked child: its copies are closed, which the parent's connections do not feel."""
        self._lock = threading.Lock()
        self._ways = Ways(_MAX_ROUTES)
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
        try:
            cancel.watch(exchange, Exchange.interrupt)
            return self._exchange(route, exchange, body, sent, max_bytes)
        except Stopped as stop:
            raise self._why_stopped(route.place, exchange, cancel, timeout_s) from stop.__cause__
        finally:
            cancel.unwatch(exchange)

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
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            if exchange.is_over:
                raise Stopped from error
            raise connect_error(error, route.place) from error
        return self._talk(connection, route, body, headers, max_bytes)

    def _talk(
        self, connection: Connection, route: _Route, body: bytes, headers: Mapping[str, str], max_bytes: int
    ) -> Answer:
        """Send the request and read the answer; keep the connection if all went well."""
        exchange = connection.exchange
        response: http.client.HTTPResponse | None = None
        is_kept = False
        try:
            if connection.is_reused:
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
            check_head(response, route.place, exchange)
            data, is_whole = read_body(response, max_bytes)
            is_kept = is_whole and not response.will_close
        except TooLargeError as error:
            raise too_large(route.place, max_bytes) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            if exchange.is_over:
                raise Stopped from error
            if connection.is_reused and exchange.phase in {"send", "first byte"}:
                raise _StaleError from error
            raise answer_error(error, route.place, exchange) from error
        finally:
            if response is not None:
                response.close()
            is_ours = exchange.disarm()
            if is_kept and is_ours:
                route.origin.give(connection, self._pool_size)
            else:
                close(connection, is_ours=is_ours)
        if not is_ours:
            raise Stopped
        exchange.charge()
        fields = Headers(response.headers.items())
        return Answer(
            status=response.status,
            headers=fields,
            body=unpack(data, response.status, fields, route.place, max_bytes),
            timings=exchange.timings,
            via=route.place.proxy.label if route.place.proxy is not None else None,
        )

    def _why_stopped(
        self, place: Place, exchange: Exchange, cancel: CancelToken, timeout_s: float
    ) -> RunCancelledError | TransportTimeoutError:
        """Return what ended the exchange: the token's error, or that the attempt's own time is up."""
        exchange.charge()
        try:
            cancel.raise_if_cancelled(DOING[exchange.phase])
        except RunCancelledError as error:
            error.phase = exchange.phase
            return error
        return timed_out(place, exchange, timeout_s=timeout_s, connect_s=self._connect_s)

    # ------------------------------------------------------------------------------------------- preparing

    def _check_headers(self, headers: Mapping[str, str], origin: Origin) -> dict[str, str]:
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
        """Work out where ``url`` leads, once per URL."""
        address = parse_address(url)
        if address is None:
            raise ConfigError(f"{shown(url)!r} is not an address to send to; it begins with http:// or https://")
        if address.has_user:
            raise ConfigError(f"the address {shown(url)!r} holds a user name or a password; give the key as api_key")
        proxy = self._proxies.select(address.scheme, address.host, address.port) if use_proxy else None
        is_forwarded = proxy is not None and address.scheme == "http" and not proxy.is_socks
        is_tunnelled = proxy is not None and address.scheme == "https" and not proxy.is_socks
        key = ("forward", proxy) if is_forwarded else (address.scheme, address.host, address.port, proxy)
        context = self._tls_context() if "https" in {address.scheme, proxy and proxy.scheme} else None
        with self._lock:
            if len(self._routes) >= _MAX_ROUTES:  # somebody makes addresses up as they go
                self._routes.clear()
                _retire(self._origins)
                self._origins.clear()
            origin = self._origins.get(key)
            if origin is None:
                pool = self._ways.pool_for(url, proxy, context)
                origin = self._origins[key] = Origin(pool, is_tunnelled=is_tunnelled)
                if self._is_closed:
                    origin.retire()
            route = self._routes[url, use_proxy] = _Route(
                origin=origin,
                target=f"{address.scheme}://{address.netloc}{address.target}" if is_forwarded else address.target,
                place=Place(url=url, host=address.host, port=address.port, proxy=proxy),
            )
        return route

    def _tls_context(self) -> ssl.SSLContext:
        """Return the TLS settings. They are made once, and not for plain HTTP: 18 ms and 1.6 MB."""
        if self._context is None:
            bundle, setting = self._authorities
            path = usual_authorities() if bundle is None else bundle
            try:
                self._context = client_context(path)
            except OSError as error:
                raise ConfigError(
                    f"{setting or 'the certifi package'} names {path!r}, which holds no certificate that can be read"
                ) from error
        return self._context


def _retire(origins: dict[tuple[object, ...], Origin]) -> None:
    for origin in list(origins.values()):
        origin.retire()


_transports: Final[weakref.WeakSet[Transport]] = weakref.WeakSet()


def _forget_all() -> None:  # pragma: no cover – runs in forked children alone
    for transport in list(_transports):
        transport.after_fork()


if hasattr(os, "register_at_fork"):  # pragma: no branch – Windows does not fork
    os.register_at_fork(after_in_child=_forget_all)
