"""What comes back from a server: the whole answer, or the error that says why there is none.

Guarantees: an answer is read and unpacked within its limit, and never held at more than twice that; the status of
an answer that is itself an error survives a body that cannot be read; no message holds what may be secret in an
address (user, password, query) or anything of the request.

Whatever an error says was learnt here or from the standard library; nothing in this module blocks on its own, for
it reads from sockets that are bounded (`promptkit._sockets`).
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import zlib
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from attrs import frozen

from promptkit._proxies import Proxy, label
from promptkit.errors import MalformedResponseError, ProviderError, TransportError, TransportTimeoutError

if TYPE_CHECKING:
    from promptkit._exchange import Exchange

_PIECE_BYTES: Final = 65536
_SHOWN_CHARACTERS: Final = 200
_IS_IT_TLS: Final = "does the server speak https on this port?"
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_PROXY_STATUSES_WORTH_A_RETRY: Final = frozenset({408, 429, 502, 503, 504})

DOING: Final = {
    "connect": "connecting",
    "send": "sending the request",
    "first byte": "waiting for the first byte",
    "body": "reading the answer",
}
"""What an exchange is doing in each phase, for messages."""

_tunnel_status: Final = re.compile(r"Tunnel connection failed: (\d+)").match


class Headers(Mapping[str, str]):
    """An answer's headers, looked up without regard to case; values of a repeated name are joined by a comma."""

    __slots__ = ("_values",)

    def __init__(self, fields: Iterable[tuple[str, str]]) -> None:
        values: dict[str, str] = {}
        for name, value in fields:
            key = name.lower()
            values[key] = f"{values[key]}, {value}" if key in values else value
        self._values = values

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@frozen
class Answer:
    """An HTTP answer, read to its end.

    ``headers`` is looked up without regard to case. ``body`` has been unpacked (gzip, deflate). ``timings`` has
    the seconds spent per phase: ``connect``, ``send``, ``first byte``, ``body``. ``via`` is the proxy's
    ``host:port``, None when there was none.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    timings: Mapping[str, float]
    via: str | None


@frozen
class Place:
    """Where a request goes, as errors name it."""

    url: str
    host: str
    port: int
    proxy: Proxy | None

    def __str__(self) -> str:
        server = label(self.host, self.port)
        return f"{server} via proxy {self.proxy.label}" if self.proxy is not None else server

    @property
    def cure(self) -> str:
        """What helps when a proxy stands in the way, as the end of a message."""
        if self.proxy is None:
            return ""
        return f"; if it needs no proxy, add {self.host} to NO_PROXY, or set proxy: none in the profile"


def shown(url: str, *, base: str = "") -> str:
    """Return an address, resolved against ``base``, without what may be secret in it: user, password, query."""
    try:
        parts = urlsplit(urljoin(base, url))
    except ValueError:
        return "an address that cannot be read"
    path, server = parts.path, parts.netloc.rpartition("@")[2]
    address = f"{parts.scheme}://{server}{path}" if server else path.rpartition("@")[2]
    return address[:_SHOWN_CHARACTERS]


class TooLargeError(Exception):
    """The answer is larger than its limit."""


# ------------------------------------------------------------------------------------------------ reading


def check_head(response: http.client.HTTPResponse, place: Place, exchange: Exchange) -> None:
    """Refuse an answer that its head already rules out."""
    if exchange.has_ended_stream:
        raise http.client.IncompleteRead(b"")
    location = response.headers.get("location")
    if response.status in _REDIRECTS and location is not None:
        there = shown(location, base=place.url)
        redirected = ProviderError(
            f"{place} redirects to {there} (HTTP {response.status}), which is not followed, since the key would go "
            "along; if that is the right address, make it the endpoint",
            status=response.status,
        )
        redirected.phase = "answer"
        raise redirected
    transfer = response.headers.get("transfer-encoding")
    if transfer is not None and not response.chunked and transfer.lower() != "identity":
        raise MalformedResponseError(f"{place} answered with transfer-encoding {transfer[:40]}, which nobody asked for")
    if response.status < HTTPStatus.OK:
        raise MalformedResponseError(f"{place} answered with the interim status HTTP {response.status} alone")


def read_body(response: http.client.HTTPResponse, max_bytes: int) -> tuple[bytes, bool]:
    """Return the body as it travelled, and whether it came whole, which it must unless the status is an error's.

    Raises `TooLargeError`, OSError, ValueError or ``http.client.HTTPException``.
    """
    try:
        return _read_whole(response, max_bytes), True
    except (OSError, ValueError, http.client.HTTPException, TooLargeError) as error:
        if response.status < HTTPStatus.BAD_REQUEST:
            raise
        return error.partial if isinstance(error, http.client.IncompleteRead) else b"", False


def _read_whole(response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    if response.length is not None:
        if response.length > max_bytes:
            raise TooLargeError
        return response.read()
    body = bytearray()
    while piece := response.read(_PIECE_BYTES):
        body += piece
        if len(body) > max_bytes:
            raise TooLargeError
    return bytes(body)


def unpack(body: bytes, status: int, headers: Headers, place: Place, max_bytes: int) -> bytes:
    """Undo the content encodings, the last one first. A body that cannot be is an error, or empty under one's status.

    Raises `MalformedResponseError`.
    """
    named = headers.get("content-encoding", "")
    if not named or not body:
        return body
    try:
        for encoding in reversed(named.lower().split(",")):
            body = _unpack_one(body, encoding.strip(), max_bytes)
    except (TooLargeError, LookupError, zlib.error) as error:
        if status >= HTTPStatus.BAD_REQUEST:
            return b""
        if isinstance(error, TooLargeError):
            raise too_large(place, max_bytes) from error
        if isinstance(error, LookupError):
            raise MalformedResponseError(
                f"{place} answered with content-encoding {named[:40]}, which it was not offered; promptkit accepts "
                "gzip and deflate"
            ) from error
        raise MalformedResponseError(
            f"{place} answered with content-encoding {named[:40]}, but the body is not that: {error}",
            is_retryable=True,
        ) from error
    return body


def _unpack_one(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Undo one encoding; LookupError for one that is not known, ``zlib.error`` for a body that is not in it."""
    if encoding in {"", "identity"}:
        return body
    if encoding in {"gzip", "x-gzip"}:
        window = zlib.MAX_WBITS | 16
    elif encoding == "deflate":
        # With the header of RFC 1950, as RFC 9110 asks, or without, as some servers have always sent it.
        has_header = body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:2]) % 31 == 0
        window = zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS
    else:
        raise LookupError(encoding)
    unpacked = bytearray()
    while True:
        unpacker = zlib.decompressobj(window)
        unpacked += unpacker.decompress(body, max_bytes - len(unpacked) + 1)
        if len(unpacked) > max_bytes:
            raise TooLargeError
        if not unpacker.eof:
            raise zlib.error("it ends too early")
        body = unpacker.unused_data
        if encoding == "deflate" or not body.startswith(b"\x1f\x8b"):  # a gzip body may have several members
            return bytes(unpacked)


# ------------------------------------------------------------------------------------------------- errors


def too_large(place: Place, max_bytes: int) -> MalformedResponseError:
    """Return the error for an answer past its limit."""
    return MalformedResponseError(f"{place}: the response is larger than the limit of {max_bytes} bytes")


def timed_out(place: Place, exchange: Exchange, *, timeout_s: float, connect_s: float) -> TransportTimeoutError:
    """Return the error for an attempt whose own time is up."""
    limit = f"within {connect_s:g} s" if exchange.is_connect_bound else f"within timeout_s = {timeout_s:g} s"
    if exchange.phase == "connect":
        return TransportTimeoutError(f"{place}: no connection {limit}{place.cure}", phase="connect", is_retryable=True)
    spent = ", ".join(f"{phase} {seconds:.3f} s" for phase, seconds in exchange.timings.items())
    return TransportTimeoutError(
        f"{place}: no whole answer {limit}; it ended while {DOING[exchange.phase]} ({spent})", phase=exchange.phase
    )


def connect_error(error: Exception, place: Place) -> TransportError:
    """Return the error for a connection that could not be made."""
    is_retryable = True
    if isinstance(error, ssl.SSLCertVerificationError):
        is_retryable = False
        reason = (
            f"certificate verify failed: {error.verify_message}; if a private authority has signed the certificate, "
            "name its file with ca_bundle, or in REQUESTS_CA_BUNDLE"
        )
    elif isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        reason = f"the connection was closed during the TLS handshake; {_IS_IT_TLS}"
    elif isinstance(error, ssl.SSLError):
        is_retryable = False
        reason = f"{getattr(error, 'reason', None) or error}; {_IS_IT_TLS}"
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
    return TransportError(f"{place}: no connection: {reason}{place.cure}", phase="connect", is_retryable=is_retryable)


def answer_error(error: Exception, place: Place, exchange: Exchange) -> TransportError | MalformedResponseError:
    """Return the error for an exchange that broke after the connection was made."""
    if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return TransportError(
            f"{place} broke the TLS connection off: {getattr(error, 'reason', None) or error}", phase=exchange.phase
        )
    if exchange.phase != "body":
        return TransportError(
            f"{place} closed the connection without answering", phase=exchange.phase, is_retryable=True
        )
    if isinstance(error, http.client.IncompleteRead) and error.expected is not None:
        reason = f"{len(error.partial)} bytes of the body came, {error.expected} more were promised"
    elif isinstance(error, (OSError, http.client.IncompleteRead)) or exchange.has_ended_stream:
        reason = "the connection broke"
    else:
        return MalformedResponseError(f"{place} did not answer in HTTP ({type(error).__name__}: {str(error)[:60]!r})")
    return TransportError(f"{place}: the answer was cut short: {reason}", phase="body", is_retryable=True)
