"""What errors say, for every way an exchange can fail; the rest of reading is tested through the transport."""

from __future__ import annotations

import http.client
import pickle
import socket
import ssl

import pytest

from promptkit._answers import Headers, Place, answer_error, connect_error, shown
from promptkit._cancel import CancelToken
from promptkit._exchange import Exchange
from promptkit._proxies import Proxy
from promptkit.errors import TransportError

DIRECT = Place(url="https://h.example/v1", host="h.example", port=443, proxy=None)
PROXIED = Place(
    url="http://127.0.0.1:8000/v1",
    host="127.0.0.1",
    port=8000,
    proxy=Proxy.parse("http://user:secret@proxy:3128", "HTTP_PROXY"),
)


def certificate_error() -> ssl.SSLCertVerificationError:
    """Return what OpenSSL says of a certificate whose authority is unknown."""
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    error.verify_message = "unable to get local issuer certificate"
    return error


@pytest.mark.parametrize(
    ("error", "is_retryable", "names"),
    [
        (ConnectionRefusedError(111, "Connection refused"), True, ["Connection refused"]),
        (socket.gaierror(socket.EAI_AGAIN, "x"), True, ["temporary failure", "name"]),
        (socket.gaierror(socket.EAI_NONAME, "x"), True, ["name is not known"]),
        (UnicodeError("label too long"), False, ["label too long"]),
        (certificate_error(), False, ["certificate verify failed", "unable to get local issuer", "ca_bundle"]),
        (ssl.SSLEOFError(8, "EOF"), True, ["closed during the TLS handshake"]),
        (ssl.SSLZeroReturnError(6, "zero"), True, ["closed during the TLS handshake"]),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), False, ["https"]),
        (ConnectionResetError(104, "Connection reset by peer"), True, ["reset by peer"]),
        (OSError("Tunnel connection failed: 407 Proxy Authentication Required"), False, ["407"]),
        (OSError("Tunnel connection failed: 403 Forbidden"), False, ["403"]),
        (OSError("Tunnel connection failed: 503 Service Unavailable"), True, ["503"]),
        (OSError(), True, ["OSError"]),
        (http.client.BadStatusLine("x"), True, ["x"]),
        (http.client.RemoteDisconnected("closed"), True, ["closed"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
@pytest.mark.parametrize("place", [DIRECT, PROXIED], ids=["direct", "proxied"])
def test_a_connection_that_could_not_be_made(
    place: Place, error: Exception, names: list[str], *, is_retryable: bool
) -> None:
    """The error names host and port, the proxy without its password, the reason, and the cure where there is one."""
    translated = connect_error(error, place)
    assert isinstance(translated, TransportError)
    assert translated.is_retryable is is_retryable
    assert translated.phase == "connect"
    for name in [*names, f"{place.host}:{place.port}", *(["via proxy proxy:3128", "NO_PROXY"] if place.proxy else [])]:
        assert name in str(translated)
    assert "secret" not in str(translated)
    assert "verify=" not in str(translated)
    assert str(pickle.loads(pickle.dumps(translated))) == str(translated)


def test_a_tls_connection_broken_off_by_an_alert() -> None:
    """What the server says of our certificate comes after the handshake (TLS 1.3); asking again cannot help."""
    error = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required")
    exchange = Exchange(CancelToken(), timeout_s=5, connect_s=5)
    exchange.enter("first byte")
    translated = answer_error(error, DIRECT, exchange)
    assert "h.example:443 broke the TLS connection off" in str(translated)
    assert "certificate required" in str(translated)
    assert not translated.is_retryable
    exchange.enter("body")
    assert answer_error(ssl.SSLEOFError(8, "EOF"), DIRECT, exchange).is_retryable


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://user:pass@h:1/p?q=1#f", "https://h:1/p"),
        ("/path?q", "/path"),
        ("user:pass@h/v1", "h/v1"),
        ("//user:pass@", ""),
        ("http://[::1", "an address that cannot be read"),
        ("https://h/" + "x" * 500, "https://h/" + "x" * 190),
    ],
)
def test_addresses_are_shown_without_what_may_be_secret(url: str, expected: str) -> None:
    """User, password, query and fragment are left out, and the length is bounded."""
    assert shown(url) == expected


def test_headers_are_a_mapping() -> None:
    """Looked up in any case; equal to nothing but what a mapping is."""
    headers = Headers([("X-A", "1"), ("x-B", "2"), ("X-a", "3")])
    assert dict(headers) == {"x-a": "1, 3", "x-b": "2"}
    assert headers["X-A"] == "1, 3"
    with pytest.raises(KeyError):
        headers["x-c"]
