"""The built-in client against a loopback server: what leaves, what comes back, and what never shows."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from promptkit import _openai
from promptkit._cancel import CancelToken
from promptkit._fields import FrozenDict, Secret
from promptkit._openai import OpenAIClient, bearer, build_headers, is_offline, offline
from promptkit._ports import LLMClient
from promptkit._types import GenerateRequest, GenerateResponse, Usage
from promptkit.errors import (
    ConfigError,
    CredentialError,
    DeadlineExceededError,
    GenerationError,
    InvalidRequestError,
    MalformedResponseError,
    PromptKitError,
    ProviderError,
    RateLimitedError,
    RunCancelledError,
    TransportError,
    TransportTimeoutError,
)
from support.clock import FakeClock
from support.server import Server, bomb, completion, events, hang, raw, redirect, reply, trickle, unused_port
from support.threads import Worker
from support.wire import KEY, VARIABLE, make_request

Action = Callable[..., bool]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIClient]:
    """A client that takes nothing from the environment."""
    monkeypatch.delenv("PROMPTKIT_OFFLINE", raising=False)
    client = OpenAIClient(proxies={})
    yield client
    client.close()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that answers with a completion until it is told otherwise."""
    with Server(reply()) as server:
        yield server


def request_to(server: Server, **changes: Any) -> GenerateRequest:
    """Return a request to ``server``."""
    return make_request(**{"endpoint": f"{server.url}/v1", **changes})


def ask(client: OpenAIClient, server: Server, cancel: CancelToken | None = None, **changes: Any) -> GenerateResponse:
    """Send one attempt."""
    return client.generate(request_to(server, **changes), cancel or CancelToken())


# ---------------------------------------------------------------------------------------------- what leaves


def test_the_client_is_an_llm_client(client: OpenAIClient) -> None:
    """It has what the core asks of a client."""
    assert isinstance(client, LLMClient)


def test_one_attempt_is_one_post(client: OpenAIClient, server: Server) -> None:
    """The address, the headers and the body are those of a chat completions call."""
    response = ask(client, server, temperature=0)
    assert (response.text, response.finish_reason) == ("hi", "stop")
    assert response.usage == Usage(prompt_tokens=5, completion_tokens=2, total_tokens=7)
    (sent,) = server.requests
    assert (sent.method, sent.target) == ("POST", "/v1/chat/completions")
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.headers["content-type"] == "application/json"
    assert sent.headers["user-agent"].startswith("promptkit/")
    assert sent.json == {
        "stream": False,
        "model": "m1",
        "messages": [{"role": "user", "content": "Say hi."}],
        "temperature": 0,
    }


def test_without_a_credential_nothing_claims_one(client: OpenAIClient, server: Server) -> None:
    """A local server needs no key."""
    ask(client, server, credential=None)
    assert "authorization" not in server.requests[0].headers


def test_a_connection_is_used_again(client: OpenAIClient, server: Server) -> None:
    """Calls in a row share one connection."""
    for _ in range(3):
        ask(client, server)
    assert server.connections == 1


def test_the_authors_headers_replace_ours_in_any_case() -> None:
    """A gateway may want its own scheme, type or name."""
    headers = build_headers(make_request(headers={"authorization": "Basic x", "CONTENT-TYPE": "a/b", "X-Title": "t"}))
    assert headers == {"Accept": "application/json", "authorization": "Basic x", "CONTENT-TYPE": "a/b", "X-Title": "t"}


def test_the_authors_other_headers_leave_the_credential_alone() -> None:
    """A title does not cost the key."""
    headers = build_headers(make_request(headers={"X-Title": "t"}))
    assert (headers["X-Title"], headers["Authorization"]) == ("t", f"Bearer {KEY}")
    assert "Authorization" not in build_headers(make_request(headers={"X-Title": "t"}, credential=None))


def test_a_header_with_a_line_break_is_refused_without_its_value(client: OpenAIClient, server: Server) -> None:
    """Nothing can be smuggled into the request, and the message shows no value."""
    with pytest.raises(ConfigError, match="X-Title") as caught:
        ask(client, server, headers=FrozenDict({"X-Title": "SECRET\r\nHost: elsewhere"}))
    assert "SECRET" not in str(caught.value)
    assert server.requests == []


def test_a_credential_function_is_called_once_an_attempt(client: OpenAIClient, server: Server) -> None:
    """A rotating key is asked for at each attempt, and not again for the error's text."""
    keys = iter(["key-one-0123456789abcdef", "key-two-0123456789abcdef"])
    secret = Secret(lambda: next(keys))
    server.play(reply(), reply(status=401, json={"error": {"message": "bad key key-two-0123456789abcdef"}}))
    ask(client, server, credential=secret)
    with pytest.raises(ProviderError) as caught:
        ask(client, server, credential=secret)
    assert [sent.headers["authorization"][7:14] for sent in server.requests] == ["key-one", "key-two"]
    assert "key-two" not in str(caught.value)


# ------------------------------------------------------------------------------------------------- the key


@pytest.mark.parametrize("around", ["", "\r\n", " ", "\t", "\xa0"])
def test_w80_white_space_around_a_key_is_dropped(around: str) -> None:
    """A key read from a file or a shell has a line end often enough."""
    assert bearer(f"{around}sk-test-123{around}", "API_KEY") == "Bearer sk-test-123"


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ("sk-SECRET\r\nX: y", "line break"),
        ("sk-SECRET\nSECRET", "line break"),
        ("sk-SECRET\u2028SECRET", "line break"),
        ("sk SECRET", "space"),
        ("sk-SECRET\tSECRET", "space"),
        ("sk-SECRET\x00", "control character"),
        ("sk-SECRET\x7f", "control character"),
        ("\u201csk-SECRET\u201d", "Latin-1"),
        ("\ufeffsk-SECRET", "Latin-1"),
        ("Bearer sk-SECRET", "the word Bearer"),
        ("'sk-SECRET'", "quotes around it"),
        ('"sk-SECRET"', "quotes around it"),
        ('"', "quotes around it"),
        ("", "blank"),
        (" \r\n", "blank"),
    ],
)
def test_w80_a_key_that_no_header_can_carry(
    client: OpenAIClient, server: Server, caplog: pytest.LogCaptureFixture, key: str, fault: str
) -> None:
    """The variable and the kind of character are named; the key is in no message, traceback or log; nothing leaves."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(CredentialError, match=fault) as caught:
        ask(client, server, credential=Secret(key))
    assert VARIABLE in str(caught.value)
    assert caught.value.variable == VARIABLE
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "SECRET" not in shown
    assert server.requests == []


def test_w80_a_key_given_in_code_is_named_by_its_place() -> None:
    """Without a variable it is the Backend's argument."""
    with pytest.raises(CredentialError, match="the api_key of the Backend"):
        bearer("a b", None)


def test_w82_netrc_does_not_replace_the_key(
    client: OpenAIClient, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What leaves is the profile's key, whatever lies in the home directory."""
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login u password p\ndefault login u password p\n", encoding="utf-8")
    netrc.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    ask(client, server)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


# ------------------------------------------------------------------------------------------- what comes back


@pytest.mark.parametrize(
    ("action", "text"),
    [
        pytest.param(events(completion("hey")), "hey", id="W25"),
        pytest.param(
            events({"choices": [{"delta": {"content": "he"}}]}, {"choices": [{"delta": {"content": "y"}}]}),
            "hey",
            id="W25-chunks",
        ),
        pytest.param(reply(": PROCESSING\n\n" + json.dumps(completion())), "hi", id="W26"),
        pytest.param(reply("\n\n   \n\n" + json.dumps(completion())), "hi", id="W27"),
        pytest.param(trickle(padding=5, every_s=0.0), "hi", id="W27-trickled"),
        pytest.param(reply(json=completion("café 😀"), headers={"Content-Type": "text/plain"}), "café 😀", id="W30"),
        pytest.param(
            reply(json=completion("café 😀"), headers={"Content-Type": "text/plain; charset=latin-1"}),
            "café 😀",
            id="W30-charset",
        ),
        pytest.param(reply(json=completion("café"), encoding="gzip"), "café", id="W33-gzip"),
        pytest.param(reply(json=completion("café"), encoding="deflate"), "café", id="W33-deflate"),
        pytest.param(reply(framing="chunked"), "hi", id="chunked"),
        pytest.param(reply(framing="close"), "hi", id="no length"),
    ],
)
def test_an_answer_is_read_however_it_is_wrapped(
    client: OpenAIClient, server: Server, action: Action, text: str
) -> None:
    """Streams, padding, codings, framings and wrong content types over a real connection."""
    server.play(action)
    assert ask(client, server).text == text


@pytest.mark.parametrize(
    ("action", "kind", "is_retryable", "words"),
    [
        pytest.param(reply(b""), MalformedResponseError, True, ["empty body", "200", "b1"], id="W05"),
        pytest.param(
            trickle(json={"error": {"code": 504, "message": "timed out"}}, padding=3, every_s=0.0),
            ProviderError,
            True,
            ["504", "timed out"],
            id="W28",
        ),
        pytest.param(
            reply(b'{"choices":[{"message":{"content":"caf\xe9"}}]}'),
            MalformedResponseError,
            True,
            ["UTF-8", "offset 38"],
            id="W31",
        ),
        pytest.param(
            reply(headers={"Content-Encoding": "gzip"}), MalformedResponseError, True, ["content-encoding"], id="W33"
        ),
        pytest.param(
            reply(b"\x0b\x02\x80hi\x03", headers={"Content-Encoding": "br"}),
            MalformedResponseError,
            False,
            ["content-encoding br"],
            id="W34",
        ),
        pytest.param(bomb(20_000_000), MalformedResponseError, False, ["larger than the limit"], id="W35"),
        pytest.param(
            reply("<title>502 Bad Gateway</title>", status=502, headers={"Content-Type": "text/html"}),
            ProviderError,
            True,
            ["502", "text/html", "Bad Gateway"],
            id="W37",
        ),
        pytest.param(
            reply(json={"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "1.5"}),
            RateLimitedError,
            True,
            ["429", "1.5 s"],
            id="W55",
        ),
        pytest.param(
            reply("404 page not found", status=404), ProviderError, False, ["404", "/v1/chat/completions"], id="W73"
        ),
        pytest.param(
            redirect("https://elsewhere.example/v1?token=SECRET"),
            ProviderError,
            False,
            ["elsewhere.example", "redirect"],
            id="W78",
        ),
        pytest.param(raw(b"garbage\r\n\r\n"), MalformedResponseError, False, ["HTTP"], id="garbage"),
    ],
)
def test_an_answer_that_is_an_error(
    client: OpenAIClient,
    server: Server,
    action: Action,
    kind: type[GenerationError],
    words: list[str],
    *,
    is_retryable: bool,
) -> None:
    """Class, verdict and words are right over a real connection, and the error knows its attempt."""
    server.play(action)
    with pytest.raises(kind) as caught:
        ask(client, server)
    error = caught.value
    assert error.is_retryable is is_retryable
    for word in words:
        assert word in str(error)
    assert KEY not in f"{error} {vars(error)}"
    assert "SECRET" not in str(error)
    assert (error.backend, error.model) == ("b1", "m1")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "action",
    [
        redirect(f"http://elsewhere.example/{KEY}"),
        reply(headers={"Content-Encoding": KEY}),
        raw(KEY.encode() + b"\r\n\r\n"),
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + KEY.encode() + b"\r\n"),
    ],
)
def test_a_key_that_the_server_sends_back_is_in_no_traceback(
    client: OpenAIClient, server: Server, action: Action
) -> None:
    """Wherever in the exchange it comes: in an address, a header, for a status line or for a length."""
    server.play(action)
    with pytest.raises(GenerationError) as caught:
        ask(client, server)
    assert KEY not in "".join(traceback.format_exception(caught.value))
    pickle.loads(pickle.dumps(caught.value))


def test_the_largest_answer_can_be_set(server: Server) -> None:
    """A smaller limit than the usual one holds."""
    client = OpenAIClient(proxies={}, max_response_bytes=100)
    server.play(reply(json=completion("x" * 200)))
    with pytest.raises(MalformedResponseError, match="limit of 100 bytes"):
        ask(client, server)
    client.close()


def test_a_date_is_compared_with_the_clients_clock(server: Server) -> None:
    """A Retry-After date becomes seconds from now."""
    clock = FakeClock(wall=1_767_225_500.0)
    client = OpenAIClient(proxies={}, clock=clock)
    server.play(reply(b"", status=503, headers={"Retry-After": "Thu, 01 Jan 2026 00:00:00 GMT"}))
    with pytest.raises(ProviderError) as caught:
        ask(client, server)
    assert caught.value.retry_after_s == 100.0
    client.close()


def test_the_deadline_of_the_run_ends_it(client: OpenAIClient, server: Server) -> None:
    """W28 with a short deadline: trickled padding does not stretch it."""
    server.play(trickle(json={"error": {"code": 504, "message": "timed out"}}, every_s=0.005))
    with pytest.raises(DeadlineExceededError):
        ask(client, server, CancelToken(timeout=0.1))


def test_the_attempts_own_time_ends_it(client: OpenAIClient, server: Server) -> None:
    """``timeout_s`` bounds the whole attempt, and the error knows whose it was."""
    server.play(hang())
    with pytest.raises(TransportTimeoutError, match=r"timeout_s = 0\.1 s") as caught:
        ask(client, server, timeout_s=0.1)
    assert (caught.value.backend, caught.value.model) == ("b1", "m1")


def test_a_cancel_from_another_thread_ends_it(client: OpenAIClient, server: Server) -> None:
    """The blocked call returns with the canceller's reason."""
    server.play(hang())
    token = CancelToken()
    worker = Worker(ask, client, server, token)
    server.wait_for(lambda played: len(played.requests) == 1)
    token.cancel("the user left")
    with pytest.raises(RunCancelledError, match="the user left"):
        worker.result()


def test_nobody_listening_is_a_transport_error(client: OpenAIClient) -> None:
    """The error names where it failed and whose attempt it was."""
    with pytest.raises(TransportError) as caught:
        client.generate(make_request(endpoint=f"http://127.0.0.1:{unused_port()}/v1"), CancelToken())
    assert (caught.value.phase, caught.value.backend, caught.value.is_retryable) == ("connect", "b1", True)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"endpoint": "localhost/v1"}, ConfigError),
        ({"extra_body": FrozenDict({"stream": True})}, ConfigError),
        ({"extra_body": FrozenDict({"x": "\ud800"})}, InvalidRequestError),
    ],
)
def test_a_request_that_cannot_be_made_is_refused_before_anything_is_sent(
    client: OpenAIClient, server: Server, changes: dict[str, Any], kind: type[PromptKitError]
) -> None:
    """These are no generation errors: no attempt was made."""
    with pytest.raises(kind):
        ask(client, server, **changes)
    assert server.requests == []


def test_proxy_none_goes_directly(server: Server) -> None:
    """A profile may leave the proxies of the environment aside."""
    client = OpenAIClient(proxies={"http": f"http://127.0.0.1:{unused_port()}"})
    with pytest.raises(TransportError):
        ask(client, server)
    assert ask(client, server, proxy="none").text == "hi"
    client.close()


def test_closing_twice_does_nothing(client: OpenAIClient, server: Server) -> None:
    """Idle connections are closed once."""
    ask(client, server)
    client.close()
    client.close()


# -------------------------------------------------------------------------------------------------- offline


@pytest.mark.parametrize("value", ["1", "true", " YES ", "on"])
def test_offline_in_the_environment_sends_nothing(
    client: OpenAIClient, server: Server, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """The variable is asked at each call, and the error says why nothing was sent."""
    monkeypatch.setenv("PROMPTKIT_OFFLINE", value)
    with pytest.raises(TransportError, match="offline: nothing was sent") as caught:
        ask(client, server)
    assert (caught.value.phase, caught.value.backend, caught.value.is_retryable) == ("connect", "b1", False)
    monkeypatch.setenv("PROMPTKIT_OFFLINE", "0")
    assert ask(client, server).text == "hi"
    assert len(server.requests) == 1


def test_offline_blocks_nest(client: OpenAIClient, server: Server) -> None:
    """The outermost block ends it, an exception included."""
    with offline():
        with pytest.raises(ZeroDivisionError), offline():
            raise ZeroDivisionError
        assert is_offline()
        with pytest.raises(TransportError, match="offline"):
            ask(client, server)
    assert not is_offline()
    assert ask(client, server).text == "hi"
    assert not _openai._OFFLINE_BLOCKS
