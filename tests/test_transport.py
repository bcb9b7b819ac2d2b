"""The transport: answers, connections kept and replaced, what is refused before and after sending."""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from urllib3.exceptions import HTTPError

from promptkit import _connections
from promptkit._answers import read_body
from promptkit._cancel import CancelToken
from promptkit._transport import Transport
from promptkit.errors import (
    ConfigError,
    DeadlineExceededError,
    MalformedResponseError,
    ProviderError,
    RunCancelledError,
    TransportError,
    TransportTimeoutError,
)
from support.http import late_in, post, time_out_in
from support.server import (
    Gate,
    Server,
    bomb,
    completion,
    disconnect,
    flood,
    hang,
    raw,
    redirect,
    reply,
    reset,
    trickle,
    truncate,
    unused_port,
)
from support.threads import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BODY = json.dumps(completion("hi")).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.fixture
def transport() -> Iterator[Transport]:
    """A transport that takes no proxy from the environment."""
    transport = Transport(pool_size=4, proxies={})
    yield transport
    transport.close()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that answers with a completion until it is told otherwise."""
    with Server(reply()) as server:
        yield server


# --------------------------------------------------------------------------------------------- the exchange


def test_a_request_arrives_as_it_was_given(transport: Transport, server: Server) -> None:
    """Path, query, headers and body are the caller's; what HTTP needs besides is added."""
    post(transport, f"{server.url}/v1/chat/completions?api-version=2024-10-21", body=b"[1]", headers={"X-A": "é"})
    request = server.requests[0]
    assert (request.method, request.target) == ("POST", "/v1/chat/completions?api-version=2024-10-21")
    assert request.body == b"[1]"
    assert request.headers["x-a"] == "é"
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    assert request.headers["content-length"] == "3"
    assert request.headers["accept-encoding"] == "gzip, deflate"
    assert request.headers["user-agent"].startswith("promptkit/")


def test_the_callers_headers_win(transport: Transport, server: Server) -> None:
    """A header that the transport would add is sent once, as the caller gave it."""
    post(transport, server.url, headers={"user-agent": "mine", "accept-encoding": "identity"})
    assert server.requests[0].headers["user-agent"] == "mine"
    assert server.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("encoding", [None, "gzip", "deflate", "raw-deflate"])
def test_an_answer_is_read_whole(transport: Transport, server: Server, framing: str, encoding: str | None) -> None:
    """However the body is framed and packed, it comes back as it was, and so does the next one."""
    server.play(reply(json=completion("hi"), framing=framing, encoding=encoding, headers={"X-Request-Id": "r1"}))
    for _ in range(2):
        answer = post(transport, server.url)
        assert (answer.status, answer.headers["x-request-id"]) == (200, "r1")
        assert json.loads(answer.body) == completion("hi")
        assert answer.via is None
    assert server.connections == (2 if framing == "close" else 1)


@pytest.mark.parametrize("status", [201, 204, 300, 304, 400, 401, 429, 500, 503, 529])
def test_any_status_is_an_answer(transport: Transport, server: Server, status: int) -> None:
    """What a status means is not the transport's to say."""
    server.play(reply(b"" if status in {204, 304} else b"{}", status=status, headers={"Retry-After": "1.5"}))
    answer = post(transport, server.url)
    assert (answer.status, answer.headers["RETRY-AFTER"]) == (status, "1.5")


def test_timings_say_where_the_time_went(transport: Transport, server: Server) -> None:
    """Each phase has its seconds, on a new connection and on a kept one."""
    for _ in range(2):
        timings = post(transport, server.url).timings
        assert list(timings) == ["connect", "send", "first byte", "body"]
        assert all(seconds >= 0 for seconds in timings.values())


def test_headers_sent_twice_are_joined(transport: Transport, server: Server) -> None:
    """A repeated name keeps all its values, in order."""
    server.play(reply(headers=[("X-A", "1"), ("x-a", "2")]))
    headers = post(transport, server.url).headers
    assert headers["X-a"] == "1, 2"
    assert "X-A" in headers
    assert headers.get("x-b") is None
    assert len(headers) == len(list(headers))


def test_a_large_body_is_sent_whole(transport: Transport, server: Server) -> None:
    """A body larger than any socket buffer arrives complete."""
    body = bytes(range(256)) * 40_000
    post(transport, server.url, body=body)
    assert server.requests[0].body == body


def test_an_answer_that_comes_before_the_body_is_read_is_the_answer(
    transport: Transport, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that refuses a large body, answers and closes breaks the sending; its answer is heard."""
    transmit = _connections._Bounded.transmit

    def break_at_the_end(connection: Any, *arguments: Any) -> None:
        transmit(connection, *arguments)
        raise BrokenPipeError

    monkeypatch.setattr(_connections._Bounded, "transmit", break_at_the_end)
    server.play(reply(status=413))
    assert post(transport, server.url).status == 413


def test_a_send_that_a_cancel_has_broken_is_no_early_answer(
    transport: Transport, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read after it, and the phase is the one in which it was cancelled."""
    token = CancelToken()

    def break_off(*_: object) -> None:
        token.cancel()
        raise BrokenPipeError

    monkeypatch.setattr(_connections._Bounded, "transmit", break_off)
    with pytest.raises(RunCancelledError) as caught:
        post(transport, server.url, cancel=token)
    assert caught.value.phase == "send"


def test_c03_a_slow_first_byte_is_no_connect_timeout() -> None:
    """C03: a healthy server that thinks for longer than a connect may take gets all of timeout_s."""
    with Server(reply(delay_s=0.7)) as server:
        transport = Transport(pool_size=1, proxies={}, connect_s=0.5)
        assert post(transport, server.url).status == 200
        transport.close()


def test_a_bracketed_ipv6_address_is_reached(transport: Transport) -> None:
    """An IPv6 literal is an address, not a name to look up."""
    with Server(reply(), host="::1") as server:
        assert post(transport, f"http://[::1]:{server.port}/v1").status == 200


def test_a_name_is_looked_up(transport: Transport, server: Server) -> None:
    """A host that is not a literal address goes through the resolver."""
    assert post(transport, f"http://localhost:{server.port}/v1").status == 200


# ------------------------------------------------------------------------------------- connections, kept


def test_a_connection_is_used_again(transport: Transport, server: Server) -> None:
    """Calls one after the other share a connection, whatever the path."""
    for path in ("/a", "/b", "/a"):
        post(transport, server.url + path)
    assert server.connections == 1


@pytest.mark.parametrize("idle", [0, 2])
def test_only_so_many_connections_are_kept(server: Server, idle: int) -> None:
    """Beyond pool_size a connection is closed after use."""
    transport = Transport(pool_size=idle, proxies={})
    gate = Gate()
    server.play(reply(gate=gate))
    workers = [Worker(post, transport, server.url) for _ in range(4)]
    gate.wait_arrived(4)
    gate.open()
    for worker in workers:
        worker.result()
    server.wait_for(lambda seen: len(seen.open) == idle)
    transport.close()


def test_c07_as_many_connections_as_threads(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """C07: 32 threads have 32 connections, use them again, and nothing is said about a full pool."""
    caplog.set_level(logging.DEBUG)
    transport = Transport(pool_size=32, proxies={})
    for _ in range(2):
        gate = Gate()
        server.play(reply(gate=gate))
        workers = [Worker(post, transport, server.url) for _ in range(32)]
        gate.wait_arrived(32)
        gate.open()
        for worker in workers:
            assert worker.result().status == 200
    assert server.connections == 32
    assert "pool is full" not in caplog.text
    transport.close()


def test_c08_a_connection_closed_while_idle_is_replaced(transport: Transport, server: Server) -> None:
    """C08: the server has closed the idle connection; the next call gets its answer on a new one."""
    post(transport, server.url)
    server.close_idle()
    server.wait_for(lambda seen: not seen.open)
    assert post(transport, server.url).status == 200
    assert len(server.requests) == 2


@pytest.mark.parametrize("fault", [disconnect(), reset()], ids=["closed", "reset"])
def test_c08_a_kept_connection_that_breaks_at_the_request_is_replaced(
    transport: Transport, server: Server, fault: Any
) -> None:
    """C08: the server closes at the moment it is asked again; one silent resend gets the answer."""
    server.play(reply(), fault, reply(b"[2]"))
    post(transport, server.url)
    assert post(transport, server.url).body == b"[2]"
    assert [request.connection for request in server.requests] == [1, 1, 2]


def test_a_resend_happens_once(transport: Transport, server: Server) -> None:
    """When the new connection breaks too, that is an error."""
    server.play(reply(), disconnect())
    post(transport, server.url)
    with pytest.raises(TransportError, match="closed the connection without answering") as caught:
        post(transport, server.url)
    assert len(server.requests) == 3
    assert caught.value.is_retryable
    assert caught.value.phase == "first byte"


def test_a_new_connection_that_breaks_is_not_replaced(transport: Transport, server: Server) -> None:
    """Only a kept connection can be stale."""
    server.play(disconnect())
    with pytest.raises(TransportError):
        post(transport, server.url)
    assert len(server.requests) == 1


def test_a_kept_connection_that_breaks_within_the_answer_is_not_replaced(transport: Transport, server: Server) -> None:
    """Once a byte of the answer has come, the request has been served: it is not sent again."""
    server.play(reply(), truncate())
    post(transport, server.url)
    with pytest.raises(TransportError, match="cut short"):
        post(transport, server.url)
    assert len(server.requests) == 2


def test_a_connection_that_has_been_idle_for_long_is_not_used(
    transport: Transport, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Load balancers forget idle connections without saying so."""
    post(transport, server.url)
    monkeypatch.setattr(_connections, "IDLE_S", -1.0)
    post(transport, server.url)
    assert server.connections == 2


def test_a_closed_transport_keeps_nothing(transport: Transport, server: Server) -> None:
    """Closing ends the idle connections; a run under way may still send, on a connection of its own."""
    post(transport, server.url)
    transport.close()
    server.wait_for(lambda seen: not seen.open)
    assert post(transport, server.url).status == 200
    assert post(transport, server.url + "/other").status == 200
    assert post(transport, f"http://localhost:{server.port}").status == 200
    server.wait_for(lambda seen: not seen.open)
    assert server.connections == 4


def test_a_transport_that_is_dropped_closes_its_connections(server: Server) -> None:
    """An engine that nobody closed leaves no socket behind."""
    transport = Transport(pool_size=1, proxies={})
    post(transport, server.url)
    del transport
    server.wait_for(lambda seen: not seen.open)


def test_after_a_fork_everything_is_new(transport: Transport, server: Server) -> None:
    """What the child of a fork does first: the parent's connections are let go of, and its lock is not relied on."""
    post(transport, server.url)
    transport._lock.acquire()
    transport.after_fork()
    assert post(transport, server.url).status == 200
    assert server.connections == 2


def test_addresses_made_up_as_they_go_are_forgotten(
    transport: Transport, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered per address is bounded, and nothing stays open when it is dropped."""
    monkeypatch.setattr("promptkit._transport._MAX_ROUTES", 3)
    for number in range(7):
        post(transport, f"{server.url}/{number}")
    assert server.connections == 3
    server.wait_for(lambda seen: len(seen.open) == 1)


def test_c29_cookies_are_not_kept(transport: Transport, server: Server) -> None:
    """C29: what a load balancer sets in one answer is in no later request, from any thread."""
    server.play(reply(headers={"Set-Cookie": "lb=node-7; Path=/"}))
    assert "set-cookie" in post(transport, server.url).headers
    workers = [Worker(post, transport, server.url) for _ in range(20)]
    for worker in workers:
        worker.result()
    assert not any("cookie" in request.headers for request in server.requests)


def test_w82_netrc_is_not_read(
    transport: Transport, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W82: an entry for the host in .netrc does not replace the key."""
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login u password p\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))
    post(transport, server.url, headers={"Authorization": "Bearer key-1"})
    assert server.requests[0].headers["authorization"] == "Bearer key-1"


def test_threads_do_not_mix_answers_up(transport: Transport, server: Server) -> None:
    """Many calls at once on shared connections: each has its own answer."""
    for number in range(8):
        server.route(f"/{number}", reply(str(number)))

    def ask(number: int) -> None:
        for _ in range(20):
            assert post(transport, f"{server.url}/{number}").body == str(number).encode()

    for worker in [Worker(ask, number) for number in range(8)]:
        worker.result()


# ----------------------------------------------------------------------------------- the answer, refused


@pytest.mark.parametrize(
    ("action", "names"),
    [
        (truncate(BODY, keep=20), ["20 bytes", f"{len(BODY) - 20} more"]),
        (truncate(BODY, keep=0), ["0 bytes", f"{len(BODY)} more"]),
        (truncate(BODY, framing="chunked"), ["connection broke"]),
        (raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), ["connection broke"]),
        (reset(HEAD + b"Content-Length: 50\r\n\r\nabc"), ["connection broke"]),
        (raw(HEAD), ["connection broke"]),
        (raw(b"HTTP/1.1 200 OK\r\nConte"), ["connection broke"]),
        (raw(b"HTTP/1.1 2"), ["connection broke"]),
    ],
    ids=["length", "length-0", "chunk", "last-chunk", "reset", "head-end", "head", "status-line"],
)
def test_an_answer_cut_short_may_be_asked_for_again(
    transport: Transport, server: Server, action: Any, names: list[str]
) -> None:
    """Wherever the answer breaks off, the error says so and how far it came."""
    server.play(action)
    with pytest.raises(TransportError) as caught:
        post(transport, server.url)
    assert caught.value.is_retryable
    assert caught.value.phase == "body"
    for name in [f"127.0.0.1:{server.port}", "cut short", *names]:
        assert name in str(caught.value)


@pytest.mark.parametrize("action", [disconnect(), reset()], ids=["closed", "reset"])
def test_no_answer_at_all_may_be_asked_for_again(transport: Transport, server: Server, action: Any) -> None:
    """A connection closed without a byte is a failure before a response."""
    server.play(action)
    with pytest.raises(TransportError, match=f"127.0.0.1:{server.port} closed the connection without") as caught:
        post(transport, server.url)
    assert caught.value.is_retryable
    assert caught.value.phase == "first byte"


@pytest.mark.parametrize(
    "answer",
    [
        b"\x15\x03\x03\x00\x02\x02\x46 not http\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(200)) + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: " + b"y" * 70_000 + b"\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=["garbage", "status", "many-headers", "long-header", "negative-chunk", "interim", "switching", "transfer"],
)
def test_what_is_not_http_is_malformed(transport: Transport, server: Server, answer: bytes) -> None:
    """An answer that breaks the protocol is named as such, and its connection is not kept."""
    server.play(raw(answer, is_kept=True))
    with pytest.raises(MalformedResponseError, match=f"127.0.0.1:{server.port}") as caught:
        post(transport, server.url)
    assert not caught.value.is_retryable
    assert len(str(caught.value)) < 300
    server.play(reply())
    assert post(transport, server.url).status == 200
    assert server.connections == 2


def test_w33_a_body_that_is_not_packed_as_it_says(transport: Transport, server: Server) -> None:
    """W33: plain JSON under Content-Encoding: gzip is malformed, and worth another try."""
    server.play(reply(BODY, headers={"Content-Encoding": "gzip"}))
    with pytest.raises(MalformedResponseError, match="content-encoding gzip") as caught:
        post(transport, server.url)
    assert caught.value.is_retryable


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "gzip, br"])
def test_w34_an_encoding_that_was_not_offered_is_named(transport: Transport, server: Server, encoding: str) -> None:
    """W34: brotli and its like are named; another try would bring the same."""
    server.play(reply(b"\x0b\x02\x80{}\x03", headers={"Content-Encoding": encoding}))
    with pytest.raises(MalformedResponseError, match=f"content-encoding {encoding}") as caught:
        post(transport, server.url)
    assert not caught.value.is_retryable


def test_w35_a_small_body_that_unpacks_to_much(transport: Transport, server: Server) -> None:
    """W35: 48 KB that inflate to 50 MB stop at the limit."""
    server.play(bomb())
    with pytest.raises(MalformedResponseError, match="larger than the limit of 1048576 bytes") as caught:
        post(transport, server.url)
    assert not caught.value.is_retryable


@pytest.mark.parametrize(
    "action",
    [reply(b" " * 1001), reply(b" " * 1001, framing="chunked"), reply(b" " * 1001, framing="close"), flood()],
    ids=["length", "chunked", "close", "endless"],
)
def test_an_answer_past_the_limit_is_refused(transport: Transport, server: Server, action: Any) -> None:
    """The limit holds for every framing, and for a body without end."""
    server.play(action)
    with pytest.raises(MalformedResponseError, match="response is larger than the limit of 1000 bytes"):
        post(transport, server.url, max_bytes=1000)


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("encoding", [None, "gzip", "deflate"])
def test_an_answer_of_exactly_the_limit_is_read(
    transport: Transport, server: Server, framing: str, encoding: str | None
) -> None:
    """The limit is what may come, not one less."""
    server.play(reply(b" " * 1000, framing=framing, encoding=encoding))
    assert len(post(transport, server.url, max_bytes=1000).body) == 1000


@pytest.mark.parametrize(
    ("action", "body"),
    [
        (truncate(b"not the whole truth", keep=7, status=502), b"not the"),
        (truncate(b"not the whole truth", keep=7, status=502, framing="chunked"), b""),
        (reply(b"x" * 2_000_000, status=502), b""),
        (reply(b"x", status=502, headers={"Content-Encoding": "gzip"}), b""),
        (reply(b"x", status=502, headers={"Content-Encoding": "br"}), b""),
        (reset(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 50\r\n\r\nabc"), b""),
    ],
    ids=["cut", "cut-chunk", "too-large", "not-gzip", "brotli", "reset"],
)
def test_an_errors_status_survives_its_body(transport: Transport, server: Server, action: Any, body: bytes) -> None:
    """A 502 whose page cannot be read is still a 502."""
    server.play(action)
    answer = post(transport, server.url)
    assert answer.status == 502
    assert answer.body in {body, b""}
    server.play(reply())
    assert post(transport, server.url).status == 200


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_refused_with_its_address(transport: Transport, server: Server, status: int) -> None:
    """The address is named without user, password and query; nothing is sent there."""
    server.play(redirect("https://user:pass@elsewhere.example/v2/chat?token=t0ken#f", status=status))
    with pytest.raises(ProviderError, match=r"to https://elsewhere\.example/v2/chat \(HTTP") as caught:
        post(transport, f"{server.url}/v1/chat/completions")
    assert caught.value.status == status
    assert not caught.value.is_retryable
    assert "pass" not in str(caught.value)
    assert "t0ken" not in str(caught.value)
    assert len(server.requests) == 1


def test_a_relative_redirect_is_resolved(transport: Transport, server: Server) -> None:
    """The reader sees the whole address."""
    server.play(redirect("/v2/"))
    with pytest.raises(ProviderError, match=f"http://127.0.0.1:{server.port}/v2/ "):
        post(transport, f"{server.url}/v1")


def test_a_redirect_that_cannot_be_read_is_refused_too(transport: Transport, server: Server) -> None:
    """An address that is none does not get in the way of the error."""
    server.play(redirect("http://[::1/"))
    with pytest.raises(ProviderError, match="redirects to") as caught:
        post(transport, server.url)
    assert (caught.value.status, caught.value.phase) == (307, "answer")


# ----------------------------------------------------------------------------------- the request, refused


@pytest.mark.parametrize(
    "value", ["Bearer sk-secret\r\n", "Bearer sk-secret\nX-Evil: 1", "sk-secret\x00", "sk-secret→"]
)
def test_a_header_that_cannot_be_sent_is_refused_without_being_shown(
    transport: Transport, server: Server, value: str
) -> None:
    """A key with a line break is named by its header; no part of it is in the error or in its chain."""
    with pytest.raises(ConfigError, match="Authorization") as caught:
        post(transport, server.url, headers={"Authorization": value})
    error: BaseException | None = caught.value
    while error is not None:
        assert "secret" not in f"{error!r} {error.args}"
        error = error.__cause__ or error.__context__
    assert not server.requests


@pytest.mark.parametrize("name", ["X Y", "", "X:", "X\r\nY", "é", "Content-Length", "transfer-encoding"])
def test_a_header_name_that_cannot_be_sent_is_refused(transport: Transport, server: Server, name: str) -> None:
    """Names must be tokens, and the framing is the transport's own."""
    with pytest.raises(ConfigError, match="header name"):
        post(transport, server.url, headers={name: "x"})


@pytest.mark.parametrize(
    "url",
    [
        "user:t0ken@h/v1",
        "",
        "/v1",
        "h/v1",
        "ftp://h/v1",
        "http://",
        "http:///v1",
        "http://h:99999/v1",
        "http://a b/",
        "file:///etc/passwd",
        "http://[::1/v1?key=t0ken",
    ],
)
def test_what_is_no_address_is_refused(transport: Transport, url: str) -> None:
    """Only HTTP addresses with a host are sent to, and a query is not shown."""
    with pytest.raises(ConfigError, match="http:// or https://") as caught:
        post(transport, url)
    assert "t0ken" not in str(caught.value)


def test_an_address_with_a_password_is_refused(transport: Transport) -> None:
    """Credentials do not belong into an address, and are not shown."""
    with pytest.raises(ConfigError, match="api_key") as caught:
        post(transport, "http://user:passw0rd@127.0.0.1/v1")
    assert "passw0rd" not in str(caught.value)


# ------------------------------------------------------------------------------------- nobody answers


def test_a_refused_connection_may_be_tried_again(transport: Transport) -> None:
    """Nobody listens: the error names host and port."""
    port = unused_port()
    with pytest.raises(TransportError, match=f"127.0.0.1:{port}: no connection: Connection refused") as caught:
        post(transport, f"http://127.0.0.1:{port}/v1")
    assert caught.value.is_retryable
    assert caught.value.phase == "connect"


def test_c02_a_server_that_never_answers(transport: Transport, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """C02: the attempt ends at its timeout and says how long that was; the answer may be under way, so no retry."""
    server.play(hang())
    time_out_in(monkeypatch, "first byte")
    with pytest.raises(TransportTimeoutError, match=r"timeout_s = 20 s; .* waiting for the first byte") as caught:
        post(transport, server.url)
    assert caught.value.phase == "first byte"
    assert not caught.value.is_retryable
    assert isinstance(caught.value, TimeoutError)


def test_c21_a_cancel_reaches_the_server(transport: Transport, server: Server) -> None:
    """C21: the caller has gone, so the connection is closed and the server can stop."""
    server.play(hang())
    token = CancelToken()
    worker = Worker(post, transport, server.url, cancel=token)
    server.wait_for(lambda seen: seen.in_flight == 1)
    token.cancel("the client has gone")
    with pytest.raises(RunCancelledError, match="the client has gone") as caught:
        worker.result()
    assert caught.value.phase in {"send", "first byte"}
    server.wait_for(lambda seen: seen.departures == 1)


def test_a_token_that_is_over_sends_nothing(transport: Transport, server: Server) -> None:
    """Cancelled before the call, or without time: not a byte leaves, on no connection."""
    cancelled = CancelToken()
    cancelled.cancel()
    with pytest.raises(RunCancelledError):
        post(transport, server.url, cancel=cancelled)
    post(transport, server.url)
    for token in (cancelled, CancelToken(timeout=0)):
        with pytest.raises(RunCancelledError):
            post(transport, server.url, cancel=token)
    assert len(server.requests) == 1


def test_a_late_cancel_does_not_touch_the_next_call(transport: Transport, server: Server) -> None:
    """A token cancelled after its answer has come leaves the connection, now another's, alone."""
    first = CancelToken()
    post(transport, server.url, cancel=first)
    gate = Gate()
    server.play(reply(gate=gate))
    worker = Worker(post, transport, server.url)
    gate.wait_arrived()
    first.cancel()
    gate.open()
    assert worker.result().status == 200
    assert server.connections == 1


def test_a_cancel_at_the_last_moment_wins(
    transport: Transport, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer has been read, but its connection has just been shut down: cancelled, and not kept."""
    token = CancelToken()

    def read_and_cancel(*arguments: Any) -> Any:
        body = read_body(*arguments)
        token.cancel()
        return body

    monkeypatch.setattr("promptkit._transport.read_body", read_and_cancel)
    with pytest.raises(RunCancelledError):
        post(transport, server.url, cancel=token)
    assert post(transport, server.url).status == 200
    assert server.connections == 2


def test_no_registration_is_left_behind(transport: Transport, server: Server) -> None:
    """A token that outlives many calls holds none of them."""
    token = CancelToken()
    for action in (reply(), disconnect(), hang()):
        server.play(action)
        with contextlib.suppress(TransportError):
            post(transport, server.url, cancel=token, timeout_s=0.1)
    assert not token._watchers


def test_w28_blanks_that_keep_the_connection_alive_do_not_stretch_the_deadline(
    transport: Transport, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W28: newlines trickle in, each well within any read timeout; the deadline ends it all the same."""
    server.play(trickle())
    with pytest.raises(DeadlineExceededError, match="reading the answer") as caught:
        post(transport, server.url, cancel=late_in(monkeypatch, "body"))
    assert caught.value.phase == "body"


def test_w28_with_more_time_the_answer_comes(transport: Transport, server: Server) -> None:
    """W28: the padding is part of the body, and what follows it too."""
    server.play(trickle(json={"error": {"code": 504}}, padding=5, every_s=0.001))
    assert json.loads(post(transport, server.url).body) == {"error": {"code": 504}}


def test_what_urllib3_raises_is_translated(
    transport: Transport, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No exception of a library comes out, whatever made it."""

    def refuse(_: object) -> None:
        raise HTTPError("no such thing")

    monkeypatch.setattr(_connections._PlainConnection, "connect", refuse)
    with pytest.raises(TransportError, match="no connection: no such thing"):
        post(transport, server.url)


# --------------------------------------------------------------------------------------------- settings


def test_a_ca_bundle_must_exist(tmp_path: Path) -> None:
    """A wrong path is found when the engine is built, not at its first call."""
    with pytest.raises(ConfigError, match=r"ca_bundle names .*which does not exist"):
        Transport(pool_size=1, ca_bundle=str(tmp_path / "none.pem"))


def test_a_ca_bundle_must_hold_certificates(tmp_path: Path) -> None:
    """A file that is no PEM is found then, too."""
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match=r"ca_bundle names .* no certificate that can be read"):
        Transport(pool_size=1, ca_bundle=str(tmp_path / "ca.pem"))


def test_what_the_environment_names_is_read_for_tls_alone(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine's bundle that is broken is an error of the first server behind TLS; plain HTTP goes on without it."""
    bundle = tmp_path / "ca.pem"
    bundle.write_text("no certificate")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    transport = Transport(pool_size=1, proxies={})
    assert post(transport, server.url).status == 200
    with pytest.raises(ConfigError, match=r"^REQUESTS_CA_BUNDLE names .* no certificate that can be read"):
        post(transport, "https://127.0.0.1:9/v1")
    transport.close()


def test_no_encoding_may_be_named(transport: Transport, server: Server) -> None:
    """``identity`` means as it is, alone or in a list."""
    body = gzip.compress(b"[1]")
    server.play(reply(b"[1]", headers={"Content-Encoding": "Identity"}))
    assert post(transport, server.url).body == b"[1]"
    server.play(reply(body, headers={"Content-Encoding": "X-GZIP, identity"}))
    assert post(transport, server.url).body == b"[1]"


def test_gzip_in_several_members_is_read(transport: Transport, server: Server) -> None:
    """A gzip body may be made of members, and end in padding."""
    body = gzip.compress(b"[1,") + gzip.compress(b"2]") + b"\0\0"
    server.play(reply(body, headers={"Content-Encoding": "gzip"}))
    assert post(transport, server.url).body == b"[1,2]"
