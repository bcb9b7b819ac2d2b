"""The field cases of the wire format, by id, and the siblings each of them stands for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from promptkit._types import Usage
from promptkit.errors import (
    AuthenticationError,
    ContentFilteredError,
    ContextLengthError,
    GenerationError,
    MalformedResponseError,
    OverloadedError,
    ProviderError,
    QuotaExhaustedError,
    RateLimitedError,
    RefusalError,
)
from support.wire import COUNTS, KEY, VARIABLE, completion, make_request, read

RETRY, NO_RETRY = "retry", "give up"


def error(message: Any, **more: Any) -> dict[str, Any]:
    """Return an error body of the common shape."""
    return {"error": {"message": message, **more}}


def stream(*chunks: str) -> str:
    """Return an event stream of ``chunks``."""
    return "".join(f"data: {chunk}\n\n" for chunk in chunks)


def chunk(content: str | None = None, **choice: Any) -> str:
    """Return one chunk of a stream."""
    delta = {} if content is None else {"content": content}
    return json.dumps({"id": "c1", "choices": [{"index": 0, "delta": delta, **choice}]})


# ------------------------------------------------------------------------------------------ answers with a value

VALUES: list[Any] = [
    pytest.param(completion("ok", reasoning="because"), "ok", id="W08-reasoning"),
    pytest.param(completion("ok", reasoning_content="because"), "ok", id="W08-reasoning_content"),
    pytest.param(completion("ok", reasoning_details=[{"text": "because"}]), "ok", id="W08-reasoning_details"),
    pytest.param(completion("ok", thinking="because"), "ok", id="W08-thinking"),
    pytest.param(
        completion([{"type": "thinking", "thinking": "because"}, {"type": "text", "text": "ok"}]), "ok", id="W08-part"
    ),
    pytest.param(
        completion([{"type": "thinking", "thinking": [{"type": "text", "text": "because"}]}, "ok"]), "ok", id="W08-list"
    ),
]


@pytest.mark.parametrize(("body", "text"), VALUES)
def test_w08_thoughts_are_kept_apart_from_the_text(body: dict[str, Any], text: str) -> None:
    """Every spelling of reasoning ends in one field, and none of it in the text."""
    response = read(body)
    assert (response.text, response.reasoning) == (text, "because")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(completion([{"type": "text", "text": "he"}, {"type": "text", "text": "y"}]), "hey", id="text"),
        pytest.param(completion([{"type": "output_text", "text": "hey"}]), "hey", id="output_text"),
        pytest.param(completion(["he", {"text": "y"}]), "hey", id="strings"),
        pytest.param(completion({"type": "text", "text": "hey"}), "hey", id="lone part"),
        pytest.param(completion([{"type": "audio_ref"}, {"type": "text", "text": "hey"}]), "hey", id="one known"),
    ],
)
def test_w10_text_parts_are_joined(body: dict[str, Any], text: str) -> None:
    """Content that is a list of parts gives the text of its text parts."""
    assert read(body).text == text


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param(None, None, id="W18-null"),
        pytest.param({}, None, id="W18-empty"),
        pytest.param([], None, id="W18-list"),
        pytest.param("none", None, id="W18-string"),
        pytest.param({"prompt_tokens": None}, None, id="W18-all null"),
        pytest.param(
            {**COUNTS, "prompt_tokens_details": None, "completion_tokens_details": {"reasoning_tokens": None}},
            Usage(**COUNTS),
            id="W20",
        ),
        pytest.param({**COUNTS, "prompt_tokens_details": [7]}, Usage(**COUNTS), id="W20-list"),
        pytest.param(
            {
                "prompt_tokens": 100,
                "completion_tokens": 50,
                "total_tokens": 150,
                "prompt_tokens_details": {"cached_tokens": 90},
                "completion_tokens_details": {"reasoning_tokens": 40},
            },
            Usage(prompt_tokens=100, completion_tokens=50, total_tokens=150, cached_tokens=90, reasoning_tokens=40),
            id="W22",
        ),
        pytest.param(
            {"input_tokens": 9, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 0}},
            Usage(prompt_tokens=9, completion_tokens=1, total_tokens=10, cached_tokens=0),
            id="W22-other names",
        ),
        pytest.param(
            {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4},
            Usage(prompt_tokens=9, cached_tokens=4),
            id="W22-cache hits",
        ),
        pytest.param(
            {"prompt_tokens": 9, "prompt_tokens_details": {"audio_tokens": 0}, "prompt_cache_hit_tokens": 4},
            Usage(prompt_tokens=9, cached_tokens=4),
            id="W22-cache hits beside details",
        ),
        pytest.param(
            {"input_tokens": 9, "cache_read_input_tokens": 4}, Usage(prompt_tokens=9, cached_tokens=4), id="W22-read"
        ),
        pytest.param(
            {"completion_tokens": 9, "cached_tokens": 0, "reasoning_tokens": 4},
            Usage(completion_tokens=9, cached_tokens=0, reasoning_tokens=4),
            id="W22-flat",
        ),
        pytest.param(
            {"prompt_tokens": 23, "completion_tokens": 4, "total_tokens": 0},
            Usage(prompt_tokens=23, completion_tokens=4, total_tokens=0),
            id="W24-as sent",
        ),
        pytest.param(
            {"prompt_tokens": 23, "completion_tokens": 4},
            Usage(prompt_tokens=23, completion_tokens=4, total_tokens=27),
            id="W24-derived",
        ),
        pytest.param({"completion_tokens": 4}, Usage(completion_tokens=4), id="W24-not derivable"),
        pytest.param(
            {"prompt_tokens": 5.0, "completion_tokens": 2.5, "total_tokens": -7},
            Usage(prompt_tokens=5),
            id="W24-strange numbers",
        ),
        pytest.param(
            {"prompt_tokens": "5", "completion_tokens": True, "total_tokens": 7},
            Usage(total_tokens=7),
            id="W24-strange types",
        ),
        pytest.param({**COUNTS, "cost": 0.00125}, Usage(**COUNTS, cost=0.00125), id="cost"),
        pytest.param({**COUNTS, "cost": 0}, Usage(**COUNTS, cost=0.0), id="no cost"),
        pytest.param({**COUNTS, "cost": -1}, Usage(**COUNTS), id="negative cost"),
        pytest.param({**COUNTS, "cost": 10**400}, Usage(**COUNTS), id="absurd cost"),
        pytest.param({**COUNTS, "cost": "0.1"}, Usage(**COUNTS), id="cost in words"),
    ],
)
def test_usage_keeps_presence(usage: Any, expected: Usage | None) -> None:
    """A number that was not reported, or is none, stays None; subsets are not added; an absent total is derived."""
    response = read(completion(usage=usage))
    assert response.text == "hi"
    assert response.usage == expected


def test_w19_usage_absent() -> None:
    """An answer without the key succeeds with an unknown usage."""
    body = completion()
    del body["usage"]
    assert read(body).usage is None


def test_w69_usage_of_the_attempt_is_exposed() -> None:
    """A server that cut the prompt's start says so only in its counts, so these are there."""
    assert read(completion(usage={"prompt_tokens": 2050, "completion_tokens": 8})).usage == Usage(
        prompt_tokens=2050, completion_tokens=8, total_tokens=2058
    )


W25 = (
    'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"he"}}]}\n\n'
    'data:{"choices":[{"index":0,"delta":{"content":"y"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(W25, id="W25"),
        pytest.param(W25.replace("\n", "\r\n"), id="W25-crlf"),
        pytest.param(W25.replace("\n", "\r"), id="W25-cr"),
        pytest.param("\ufeff" + W25, id="W25-bom"),
        pytest.param(": PROCESSING\n\n" + W25.replace("\n\n", "\n\n: still there\n\n"), id="W25-comments"),
        pytest.param(W25.replace("\n\n", "\n"), id="W25-no blank lines"),
        pytest.param("event: message\nid: 7\nretry: 10\n" + W25, id="W25-other fields"),
        pytest.param(W25.replace("data: [DONE]\n\n", ""), id="W25-no closing mark"),
        pytest.param(W25.rstrip("\n"), id="W25-no last line end"),
        pytest.param(stream(chunk("hey"), "[DONE]"), id="W25-no finish reason"),
        pytest.param(stream(json.dumps(completion("hey"))), id="W25-whole answer in one event"),
        pytest.param(stream(f"[{chunk('hey', finish_reason='stop')}]"), id="W25-list"),
        pytest.param(
            'data: {"choices":\ndata: [{"delta":{"content":"hey"},"finish_reason":"stop"}]}\n\n', id="W25-two lines"
        ),
        pytest.param(
            stream(chunk("hey", finish_reason="stop"), '{"choices":[{"index":1,"delta":{"content":"x"}}]}'),
            id="W25-two choices",
        ),
        pytest.param(
            stream('{"choices":null,"id":null}', '{"choices":[7]}', chunk("hey"), chunk(finish_reason="stop")),
            id="W25-odd chunks",
        ),
    ],
)
def test_w25_a_stream_nobody_asked_for_is_assembled(body: str) -> None:
    """The pieces of an event stream make the answer they would have been."""
    assert read(body, headers={"Content-Type": "text/event-stream"}).text == "hey"


def test_w25_a_stream_keeps_thoughts_usage_and_names() -> None:
    """Everything a whole answer has is read out of the chunks."""
    body = stream(
        json.dumps({"id": "c9", "model": "m1-b", "choices": [{"index": 0, "delta": {"reasoning": "be"}}]}),
        json.dumps(
            {"choices": [{"index": 0, "delta": {"reasoning": "cause", "content": [{"type": "text", "text": "o"}]}}]}
        ),
        json.dumps(
            {"choices": [{"index": 0, "delta": {"content": [{"type": "text", "text": "k"}]}, "finish_reason": "stop"}]}
        ),
        json.dumps({"choices": [], "usage": COUNTS}),
        "[DONE]",
    )
    response = read(body)
    assert (response.text, response.reasoning, response.usage) == ("ok", "because", Usage(**COUNTS))
    assert (response.request_id, response.model) == ("c9", "m1-b")


PLAIN = json.dumps(completion())


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(": PROCESSING\n\n: PROCESSING\n\n" + PLAIN, id="W26"),
        pytest.param(": PROCESSING\r\n\r\n" + PLAIN, id="W26-crlf"),
        pytest.param(":\n" + PLAIN, id="W26-empty comment"),
        pytest.param("\n\n   \n\n" + PLAIN, id="W27"),
        pytest.param("\ufeff" + PLAIN, id="W27-bom"),
        pytest.param("\ufeff\n : x\n" + PLAIN + "\n\n", id="W27-all of it"),
        pytest.param(f"[{PLAIN}]", id="W44-in a list"),
    ],
)
def test_padding_before_the_body_is_skipped(body: str) -> None:
    """Keep-alive white space, comments and a byte order mark do no harm."""
    assert read(body).text == "hi"


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "text/plain; charset=iso-8859-1", "application/octet-stream", "text/html", "", None],
)
def test_w30_the_body_is_utf8_whatever_the_headers_say(content_type: str | None) -> None:
    """A wrong or missing content type or charset changes nothing."""
    headers = {} if content_type is None else {"content-type": content_type}
    body = json.dumps(completion("café 😀"), ensure_ascii=False)
    assert read(body, headers=headers).text == "café 😀"


@pytest.mark.parametrize("status", [200, 201])
def test_w77_the_choice_with_index_0_is_taken(status: int) -> None:
    """Of several choices it is the index that counts, not the place."""
    body = completion("second")
    body["choices"] = [{**body["choices"][0], "index": 1}, completion("first")["choices"][0]]
    assert read(body, status=status).text == "first"


def test_w77_without_an_index_the_first_is_taken() -> None:
    """Choices that have no index are in order."""
    body = completion("first")
    body["choices"] = [{"message": {"content": "first"}}, {"message": {"content": "second"}}]
    assert read(body).text == "first"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(completion('{"items":[{"n":1},{"n":2', finish="length"), '{"items":[{"n":1},{"n":2', id="W48"),
        pytest.param(completion('{"a":1}', finish="length"), '{"a":1}', id="W49"),
        pytest.param(completion('<think>like {"a": 1} and', finish="length"), '<think>like {"a": 1} and', id="W15"),
        pytest.param(completion(None, finish="length", reasoning="because"), "", id="W15-thoughts only"),
        pytest.param(completion("", finish="MAX_TOKENS"), "", id="W48-another word"),
        pytest.param(completion("{", finish="model_length"), "{", id="W48-a third word"),
    ],
)
def test_an_answer_cut_at_the_limit_is_passed_on(body: dict[str, Any], text: str) -> None:
    """What a cut answer is worth depends on its contract, so it goes on with its finish reason."""
    response = read(body)
    assert (response.text, response.finish_reason) == (text, "length")


@pytest.mark.parametrize("text", ['{"x":"a <think>b</think> c"}', "<|channel|>final<|message|>{}"])
def test_w16_w17_the_text_is_not_edited(text: str) -> None:
    """Tags and markers in the text are left to those who know its contract."""
    assert read(completion(text)).text == text


def test_w76_output_that_the_server_found_invalid_is_the_models_output() -> None:
    """A 400 that carries the failed text becomes a response that can be repaired."""
    body = error(
        "Failed to generate JSON. See failed_generation.",
        type="invalid_request_error",
        code="json_validate_failed",
        failed_generation='{"a": 1,,',
    )
    response = read(body, status=400)
    assert response.text == '{"a": 1,,'
    assert response.rejection == "json_validate_failed: Failed to generate JSON. See failed_generation."


def test_w76_output_that_was_cut_is_told_from_invalid_output() -> None:
    """The same code stands for an answer that met its limit; a repair would meet it too."""
    body = error(
        "Failed to validate JSON: max completion tokens reached before generating a valid document",
        code="json_validate_failed",
        failed_generation='{"a":',
    )
    assert read(body, status=400).finish_reason == "length"


@pytest.mark.parametrize("finish", [None, "stop", "STOP", "eos", 7, ""])
def test_any_other_finish_reason_is_no_obstacle(finish: Any) -> None:
    """A missing, unknown or strange finish reason does not spoil an answer that is there."""
    response = read(completion(finish=finish))
    assert response.text == "hi"
    assert response.finish_reason == (finish.lower() or None if isinstance(finish, str) else None)


@pytest.mark.parametrize("nothing", [None, "", {}, [], False, {"message": None, "code": None}])
def test_an_error_key_without_an_error_is_no_error(nothing: Any) -> None:
    """Some servers always send the key."""
    assert read({**completion(), "error": nothing}).text == "hi"


# ------------------------------------------------------------------------------------------ answers with an error


class Case:
    """What an answer must end in."""

    def __init__(self, kind: type[GenerationError], verdict: str, *words: str, **answer: Any) -> None:
        self.kind, self.is_retryable, self.words, self.answer = kind, verdict == RETRY, words, answer


def case(name: str, kind: type[GenerationError], verdict: str, *words: str, **answer: Any) -> Any:
    """Return a parameter: ``name``, the error's class, `RETRY` or `NO_RETRY`, words of its message; then the answer."""
    return pytest.param(Case(kind, verdict, *words, **answer), id=name)


W61 = "Request too large for m1 on tokens per min (TPM): Limit 8000, Requested 20449."
NULLS = {"id": None, "choices": None, "created": None, "model": None, "usage": None, "user_id": "u1"}
FILTERED = {"violence": {"filtered": True, "severity": "medium"}, "hate": {"filtered": False, "severity": "safe"}}
HTML = "<html><head><title>502 Bad Gateway</title></head><body>" + "x" * 40 + "</body></html>"
SCHEMA_COMPLAINT = (
    "Invalid schema for response_format 'r': 'additionalProperties' is required to be supplied and to be false."
)
JSON_FORMAT = make_request(output_format="json_schema", output_schema={"type": "object"})

ERRORS: list[Any] = [
    case(
        "W02",
        RateLimitedError,
        RETRY,
        "429",
        "ProvY",
        "Too Many Requests",
        "Provider returned error",
        body={
            **NULLS,
            **error(
                "Provider returned error", code=429, metadata={"raw": "Too Many Requests", "provider_name": "ProvY"}
            ),
        },
    ),
    case("W03", OverloadedError, RETRY, "502", "flagged", body=error("This content was flagged for risk", code=502)),
    case("W04", MalformedResponseError, RETRY, "choices", "empty", body={**completion(), "choices": []}),
    case("W04-null", MalformedResponseError, RETRY, "choices", "null", body=NULLS),
    case("W04-absent", MalformedResponseError, RETRY, "choices", "missing", body={"id": "c1"}),
    case("W04-object", MalformedResponseError, RETRY, "choices", "a mapping", body={"choices": {"0": 1}}),
    case("W04-string", MalformedResponseError, RETRY, "choices", "a string", body={"choices": "hi"}),
    case("W04-items", MalformedResponseError, RETRY, "choices", "a list of a string", body={"choices": ["hi"]}),
    case("W04-nulls", MalformedResponseError, RETRY, "choices", "a list of null", body={"choices": [None, None]}),
    case("W04-message", MalformedResponseError, RETRY, "message", "missing", body={"choices": [{"index": 0}]}),
    case("W04-null message", MalformedResponseError, RETRY, "message", "null", body={"choices": [{"message": None}]}),
    case("W05", MalformedResponseError, RETRY, "empty body", "200", "b1", body=""),
    case("W05-white space", MalformedResponseError, RETRY, "empty body", "200", "b1", body=" \n\n "),
    case("W05-comments", MalformedResponseError, RETRY, "empty body", "200", "b1", body=": PROCESSING\n\n: PROCESSING"),
    case("W05-204", MalformedResponseError, RETRY, "empty body", "204", body="", status=204),
    case("W05-503", OverloadedError, RETRY, "503", "Service Unavailable", body="", status=503),
    case("W05-null text", MalformedResponseError, RETRY, "empty output", "stop", body=completion(None)),
    case("W05-empty text", MalformedResponseError, RETRY, "empty output", "stop", body=completion("")),
    case("W05-blank text", MalformedResponseError, RETRY, "empty output", "blank", body=completion(" \n")),
    case("W05-no content", MalformedResponseError, RETRY, "empty output", body={"choices": [{"message": {}}]}),
    case("W05-no parts", MalformedResponseError, RETRY, "empty output", body=completion([])),
    case(
        "W05-thoughts only",
        MalformedResponseError,
        RETRY,
        "empty output",
        "reasoning",
        body=completion("", reasoning="so"),
    ),
    case(
        "W05-failed text empty",
        MalformedResponseError,
        RETRY,
        "json_validate_failed",
        status=400,
        body=error("no JSON", code="json_validate_failed", failed_generation=""),
    ),
    case(
        "W10",
        MalformedResponseError,
        NO_RETRY,
        "content",
        "part type audio_ref",
        body=completion([{"type": "audio_ref", "id": "a1"}]),
    ),
    case(
        "W10-text no text",
        MalformedResponseError,
        NO_RETRY,
        "part type text",
        body=completion([{"type": "text", "text": 7}]),
    ),
    case("W10-odd type", MalformedResponseError, NO_RETRY, "part type a list", body=completion([{"type": ["text"]}])),
    case("W10-numbers", MalformedResponseError, NO_RETRY, "part type an integer", body=completion([7])),
    case("W10-object", MalformedResponseError, NO_RETRY, "a mapping", body=completion({"a": 1})),
    case("W10-number", MalformedResponseError, NO_RETRY, "an integer", body=completion(7)),
    case(
        "W12",
        MalformedResponseError,
        NO_RETRY,
        "tool_calls",
        "no text content",
        body=completion(None, finish="tool_calls", tool_calls=[{"id": "t1"}]),
    ),
    case(
        "W12-empty text",
        MalformedResponseError,
        NO_RETRY,
        "tool_calls",
        body=completion("", finish="tool_calls", tool_calls=[{"id": "t1"}]),
    ),
    case(
        "W12-old",
        MalformedResponseError,
        NO_RETRY,
        "function_call",
        body=completion(None, finish="function_call", function_call={"name": "f"}),
    ),
    case(
        "W12-old stream",
        MalformedResponseError,
        NO_RETRY,
        "function_call",
        body=stream('{"choices":[{"delta":{"function_call":{"name":"f"},"content":null},"finish_reason":"stop"}]}'),
    ),
    case(
        "W12-stream",
        MalformedResponseError,
        NO_RETRY,
        "tool_calls",
        body=stream('{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"t1"}]},"finish_reason":"tool_calls"}]}'),
    ),
    case("W25-broken off", MalformedResponseError, RETRY, "text/event-stream", "breaks off", body=stream(chunk("he"))),
    case(
        "W25-bad chunk",
        MalformedResponseError,
        RETRY,
        "text/event-stream",
        "event 2",
        body=stream(chunk("he"), '{"choices":['),
    ),
    case("W25-no object", MalformedResponseError, RETRY, "text/event-stream", "event 1", body=stream("7")),
    case("W25-NaN", MalformedResponseError, RETRY, "text/event-stream", "event 1", body=stream('{"choices":[NaN]}')),
    case(
        "W25-error inside",
        OverloadedError,
        RETRY,
        "502",
        "upstream",
        body=stream(chunk("he"), json.dumps(error("upstream died", code=502))),
    ),
    case(
        "W25-error event",
        RateLimitedError,
        RETRY,
        "slow down",
        body='event: error\ndata: {"message":"slow down","code":429}\n\n',
    ),
    case("W25-error in words", OverloadedError, RETRY, "overloaded", body="event: error\ndata: model overloaded\n\n"),
    case(
        "W25-bare error",
        RateLimitedError,
        RETRY,
        "slow",
        body=stream(chunk("he")) + '{"error":{"message":"slow","code":429}}\n',
    ),
    case(
        "W25-error status",
        OverloadedError,
        RETRY,
        "503",
        "busy",
        status=503,
        body=stream('{"error":{"message":"busy"}}'),
    ),
    case(
        "W28-end", OverloadedError, RETRY, "504", "timed out", body="\n" * 6 + json.dumps(error("timed out", code=504))
    ),
    case(
        "W31",
        MalformedResponseError,
        RETRY,
        "invalid UTF-8",
        "byte offset 38",
        body=b'{"choices":[{"message":{"content":"caf\xe9"},"finish_reason":"stop"}]}',
    ),
    case(
        "W31-utf16",
        MalformedResponseError,
        RETRY,
        "invalid UTF-8",
        "byte offset 0",
        body=json.dumps(completion()).encode("utf-16"),
    ),
    case("W31-error", OverloadedError, RETRY, "502", "caf", status=502, body=b'{"error":"caf\xe9"}'),
    case(
        "W37",
        OverloadedError,
        RETRY,
        "502",
        "text/html",
        "502 Bad Gateway",
        status=502,
        body=HTML,
        headers={"Content-Type": "text/html"},
    ),
    case(
        "W37-no title",
        OverloadedError,
        RETRY,
        "503",
        "Please wait a moment",
        status=503,
        body="<html><style>a{}</style>\n<h1>Please wait</h1>\n a moment</html>",
    ),
    case(
        "W37-plain",
        OverloadedError,
        RETRY,
        "504",
        "text/plain",
        "upstream timeout",
        status=504,
        body="upstream timeout",
        headers={"CONTENT-TYPE": "text/plain; charset=x"},
    ),
    case(
        "W37-success",
        MalformedResponseError,
        NO_RETRY,
        "200",
        "text/html",
        "Log in",
        "base_url",
        body="<!DOCTYPE html><title>Log in</title>",
        headers={"Content-Type": "text/html"},
    ),
    case("W37-broken JSON", OverloadedError, RETRY, "502", status=502, body='{"error": {"message": '),
    case(
        "W39",
        ProviderError,
        NO_RETRY,
        "400",
        "'response_format.type' must be 'json_schema' or 'text'",
        "structured_output",
        status=400,
        body={"error": "'response_format.type' must be 'json_schema' or 'text'"},
        request=JSON_FORMAT,
    ),
    case(
        "W39-both",
        ProviderError,
        NO_RETRY,
        "Bad Request",
        "roles must alternate",
        status=400,
        body={"error": "Bad Request", "message": "roles must alternate"},
    ),
    case(
        "W40",
        ProviderError,
        NO_RETRY,
        "422",
        "body.messages.0.role",
        "Field required",
        status=422,
        body={
            "detail": [
                {
                    "loc": ["body", "messages", 0, "role"],
                    "msg": "Field required",
                    "type": "missing",
                    "input": "SECRET INPUT",
                }
            ]
        },
    ),
    case(
        "W41",
        ProviderError,
        NO_RETRY,
        "404",
        "m9",
        "base_url",
        "'m1'",
        status=404,
        body={"detail": "Could not find model m9"},
    ),
    case(
        "W41-object",
        ProviderError,
        NO_RETRY,
        "404",
        "m9",
        status=404,
        body={"detail": {"error": {"message": "no model m9"}}},
    ),
    case(
        "W42",
        ProviderError,
        NO_RETRY,
        "400",
        "max_tokens must be at least 1",
        status=400,
        body={
            "object": "error",
            "message": "max_tokens must be at least 1, got 0.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    case(
        "W42-success",
        ProviderError,
        NO_RETRY,
        "400",
        "bad role",
        body={"object": "error", "message": "bad role", "code": 400},
    ),
    case("W42-success, no object", OverloadedError, RETRY, "503", "busy", body={"message": "busy", "code": 503}),
    case(
        "W44",
        ProviderError,
        NO_RETRY,
        "400",
        "seed",
        "INVALID_ARGUMENT",
        "fast",
        status=400,
        body=[error('Unknown name "seed": Cannot find field.', code=400, status="INVALID_ARGUMENT")],
    ),
    case(
        "W44-success",
        RateLimitedError,
        RETRY,
        "quota",
        "RESOURCE_EXHAUSTED",
        body=[error("quota", code=429, status="RESOURCE_EXHAUSTED")],
    ),
    case(
        "W45",
        ProviderError,
        NO_RETRY,
        "ProvZ",
        "additionalProperties",
        "structured_output",
        status=400,
        request=JSON_FORMAT,
        body=error(
            "Provider returned error",
            code=400,
            metadata={"raw": json.dumps(error(SCHEMA_COMPLAINT)), "provider_name": "ProvZ"},
        ),
    ),
    case(
        "W45-object",
        ProviderError,
        NO_RETRY,
        "ProvZ",
        "bad schema",
        status=400,
        body=error(
            "Provider returned error", code=400, metadata={"raw": error("bad schema"), "provider_name": "ProvZ"}
        ),
    ),
    case(
        "W45-empty wallet inside",
        QuotaExhaustedError,
        NO_RETRY,
        "insufficient_quota",
        status=429,
        body=error(
            "Provider returned error",
            code=429,
            metadata={"raw": json.dumps(error("insufficient_quota: pay", code="insufficient_quota"))},
        ),
    ),
    case("W47-int", RateLimitedError, RETRY, "429", body=error("x", code=429)),
    case("W47-float", RateLimitedError, RETRY, "429", body=error("x", code=429.0)),
    case("W47-string", RateLimitedError, RETRY, "429", body=error("x", code="429")),
    case("W47-name", RateLimitedError, RETRY, "rate_limit_exceeded", body=error("x", code="rate_limit_exceeded")),
    case("W47-type", RateLimitedError, RETRY, body=error("x", type="rate_limit_error")),
    case("W47-words", RateLimitedError, RETRY, "Rate limit", body={"error": "Rate limit reached"}),
    case("W47-odd code", ProviderError, NO_RETRY, "x", body=error("x", code=True, type=["a"])),
    case("W47-unknown", ProviderError, NO_RETRY, "x", "E1234", body=error("x", code="E1234")),
    case("W47-success code", ProviderError, NO_RETRY, "x", body=error("x", code=200)),
    case("W47-server", ProviderError, RETRY, "x", body=error("x", code="internal_server_error")),
    case("W47-auth", AuthenticationError, NO_RETRY, "x", body=error("x", code=401)),
    case("W47-not found", ProviderError, NO_RETRY, "x", "base_url", body=error("x", code="model_not_found")),
    case(
        "W47-in the choice",
        OverloadedError,
        RETRY,
        "502",
        "lost",
        body={
            "choices": [
                {
                    "index": 0,
                    "message": {"content": "he"},
                    "finish_reason": "error",
                    "error": {"code": 502, "message": "lost"},
                }
            ]
        },
    ),
    case("W51-error", ProviderError, NO_RETRY, "finish_reason 'error'", body=completion("he", finish="error")),
    case("W52", ContentFilteredError, NO_RETRY, "content_filter", body=completion("", finish="content_filter")),
    case(
        "W52-partial",
        ContentFilteredError,
        NO_RETRY,
        "content_filter",
        body=completion("Well", finish="content_filter"),
    ),
    case("W52-another word", ContentFilteredError, NO_RETRY, "content_filter", body=completion("", finish="SAFETY")),
    case(
        "W52-no message",
        ContentFilteredError,
        NO_RETRY,
        "violence medium",
        body={"choices": [{"finish_reason": "content_filter", "content_filter_results": FILTERED}]},
    ),
    case(
        "W53",
        ContentFilteredError,
        NO_RETRY,
        "content_filter",
        "violence medium",
        status=400,
        body=error(
            "The response was filtered.",
            type=None,
            param="prompt",
            code="content_filter",
            status=400,
            innererror={"code": "ResponsibleAIPolicyViolation", "content_filter_result": FILTERED},
        ),
    ),
    case(
        "W53-inner only",
        ContentFilteredError,
        NO_RETRY,
        "filtered",
        status=400,
        body=error("filtered", innererror={"code": "ResponsibleAIPolicyViolation"}),
    ),
    case(
        "W53-odd results",
        ContentFilteredError,
        NO_RETRY,
        "filtered",
        status=400,
        body=error(
            "filtered",
            code="content_filter",
            innererror={"content_filter_result": [1]},
            content_filter_results={"hate": True},
        ),
    ),
    case(
        "W53-moderation",
        ContentFilteredError,
        NO_RETRY,
        "self-harm",
        status=403,
        body=error("flagged", code=403, metadata={"reasons": ["self-harm", 7], "flagged_input": "SECRET INPUT"}),
    ),
    case(
        "W55",
        RateLimitedError,
        RETRY,
        "429",
        "slow down",
        "1.5 s",
        status=429,
        headers={"Retry-After": "1.5"},
        body=error("slow down"),
    ),
    case(
        "W58",
        RateLimitedError,
        RETRY,
        "429",
        "3600 s",
        status=429,
        headers={"Retry-After": "3600"},
        body=error("slow down"),
    ),
    case(
        "W60",
        QuotaExhaustedError,
        NO_RETRY,
        "insufficient_quota",
        "billing",
        status=429,
        body=error(
            "You exceeded your current quota, please check your plan and billing details.",
            type="insufficient_quota",
            param=None,
            code="insufficient_quota",
        ),
    ),
    case(
        "W60-words",
        QuotaExhaustedError,
        NO_RETRY,
        "balance",
        status=400,
        body=error("Your credit balance is too low to access the API"),
    ),
    case(
        "W60-renewed",
        RateLimitedError,
        RETRY,
        "quota",
        status=429,
        body=error("You exceeded your current quota", status="RESOURCE_EXHAUSTED", details=[{"retryDelay": "30s"}]),
    ),
    case(
        "W61",
        ProviderError,
        NO_RETRY,
        "8000",
        "20449",
        "max_tokens",
        status=429,
        body=error(W61, type="tokens", code="rate_limit_exceeded"),
    ),
    case("W61-413", ProviderError, NO_RETRY, "8000", "20449", status=413, body=error(W61)),
    case(
        "W61-commas",
        ProviderError,
        NO_RETRY,
        "20,449",
        status=429,
        body=error(W61.replace("8000", "8,000").replace("20449", "20,449")),
    ),
    case(
        "W61-fits",
        RateLimitedError,
        RETRY,
        "7000",
        status=429,
        body=error("TPM: Limit 8000, Used 5000, Requested 7000."),
    ),
    case("W61-413 without numbers", ProviderError, NO_RETRY, "413", "too large", status=413, body=""),
    case(
        "W62",
        RateLimitedError,
        RETRY,
        "per-day",
        status=429,
        body=error("Rate limit exceeded: free-models-per-day", code=429),
    ),
    case(
        "W63",
        QuotaExhaustedError,
        NO_RETRY,
        "402",
        "65536",
        "30104",
        "set max_tokens",
        "fast",
        status=402,
        body=error(
            "This request requires more credits, or fewer max_tokens. "
            "You requested up to 65536 tokens, but can only afford 30104.",
            code=402,
            metadata={"provider_name": None},
        ),
    ),
    case("W63-bare", QuotaExhaustedError, NO_RETRY, "402", "billing", status=402, body=""),
    case(
        "W64",
        AuthenticationError,
        NO_RETRY,
        "401",
        "b1",
        VARIABLE,
        status=401,
        body=error("No auth credentials found", code=401),
    ),
    case(
        "W64-string",
        AuthenticationError,
        NO_RETRY,
        "401",
        "b1",
        VARIABLE,
        "Unauthorized",
        status=401,
        body={"error": "Unauthorized"},
    ),
    case(
        "W64-empty",
        AuthenticationError,
        NO_RETRY,
        "401",
        "b1",
        VARIABLE,
        status=401,
        body="",
        headers={"WWW-Authenticate": "Bearer"},
    ),
    case("W64-403", AuthenticationError, NO_RETRY, "403", "b1", VARIABLE, status=403, body=error("Forbidden")),
    case(
        "W64-no key",
        AuthenticationError,
        NO_RETRY,
        "401",
        "no credential",
        status=401,
        body="",
        request=make_request(credential=None),
    ),
    case(
        "W64-given key",
        AuthenticationError,
        NO_RETRY,
        "401",
        "Backend",
        status=401,
        body="",
        request=make_request(credential_variable=None),
    ),
    case(
        "W64-400",
        AuthenticationError,
        NO_RETRY,
        "400",
        "API key not valid",
        status=400,
        body=error("API key not valid. Please pass a valid API key.", code=400),
    ),
    case(
        "W66",
        ContextLengthError,
        NO_RETRY,
        "maximum context length",
        "shorten",
        status=400,
        body=error(
            "This model's maximum context length is 4096 tokens, however you requested 5000.",
            code="context_length_exceeded",
        ),
    ),
    case(
        "W66-words",
        ContextLengthError,
        NO_RETRY,
        "too long",
        status=400,
        body=error("prompt is too long: 210000 tokens > 200000 maximum"),
    ),
    case(
        "W66-500",
        ContextLengthError,
        NO_RETRY,
        "context size",
        status=500,
        body=error("the request exceeds the available context size", type="exceed_context_size_error"),
    ),
    case(
        "W66-413",
        ContextLengthError,
        NO_RETRY,
        "context window",
        status=413,
        body=error("input exceeds the context window"),
    ),
    case("W66-200", ContextLengthError, NO_RETRY, "context", body=error("maximum context length exceeded", code=400)),
    case(
        "W72",
        ProviderError,
        NO_RETRY,
        "404",
        "https://models.example/v1/chat/completions",
        "base_url",
        status=404,
        body=error("Unknown request URL: POST /chat/completions", type="invalid_request_error", code="unknown_url"),
    ),
    case(
        "W73",
        ProviderError,
        NO_RETRY,
        "404",
        "m9",
        status=404,
        body=error('model "m9" not found, try pulling it first', type="api_error"),
    ),
    case(
        "W73-route",
        ProviderError,
        NO_RETRY,
        "404",
        "https://models.example/v1/chat/completions",
        "page not found",
        status=404,
        body="404 page not found",
        headers={"Content-Type": "text/plain"},
    ),
    case(
        "W73-no model",
        ProviderError,
        NO_RETRY,
        "404",
        "endpoint",
        status=404,
        body="",
        request=make_request(model=None, backend_id=None),
    ),
    case(
        "W74",
        ProviderError,
        NO_RETRY,
        "max_tokens",
        "fast",
        "max_tokens_field: max_completion_tokens",
        status=400,
        body=error(
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            type="invalid_request_error",
            param="max_tokens",
            code="unsupported_parameter",
        ),
    ),
    case(
        "W74-back",
        ProviderError,
        NO_RETRY,
        "max_tokens_field: max_tokens",
        status=400,
        body=error("Unrecognized request argument supplied: max_completion_tokens"),
        request=make_request(max_tokens_field="max_completion_tokens"),
    ),
    case(
        "W75-temperature",
        ProviderError,
        NO_RETRY,
        "temperature",
        "fast",
        "leave",
        status=400,
        body=error("Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1)"),
    ),
    case(
        "W75-seed",
        ProviderError,
        NO_RETRY,
        "leave seed out",
        "fast",
        status=400,
        body=error('Unknown name "seed": Cannot find field.'),
    ),
    case(
        "W75-format",
        ProviderError,
        NO_RETRY,
        "structured_output",
        "fast",
        status=400,
        request=JSON_FORMAT,
        body=error("'response_format.type' must be 'json_schema' or 'text'"),
    ),
    case(
        "S30",
        ProviderError,
        NO_RETRY,
        "schema contains features not supported by the grammar backend",
        "structured_output: json_object or prompt",
        "fast",
        status=400,
        request=make_request(output_format="json_schema", output_schema={"patternProperties": {"^x": {}}}),
        body=error("schema contains features not supported by the grammar backend"),
    ),
    case(
        "W75-strict",
        ProviderError,
        NO_RETRY,
        "structured_output",
        "strict",
        status=400,
        body=error(SCHEMA_COMPLAINT),
        request=make_request(output_format="json_schema", output_schema={}, is_strict=True),
    ),
    case(
        "W75-object mode",
        ProviderError,
        NO_RETRY,
        "structured_output: prompt",
        status=400,
        body=error("response_format is not supported"),
        request=make_request(output_format="json", structured_output="json_object"),
    ),
    case(
        "W75-param", ProviderError, NO_RETRY, "leave top_p out", status=400, body=error("not supported", param="top_p")
    ),
    case(
        "W75-extra",
        ProviderError,
        NO_RETRY,
        "leave top_k out of extra_body",
        status=400,
        body=error("Unknown field: top_k"),
        request=make_request(extra_body={"top_k": 4}),
    ),
    case(
        "W75-session",
        ProviderError,
        NO_RETRY,
        "session_field",
        status=400,
        body=error("Extra inputs are not permitted", param="session_id"),
        request=make_request(session_field="session_id"),
    ),
    case(
        "W75-no profile",
        ProviderError,
        NO_RETRY,
        "leave seed out of the profile",
        status=422,
        body=error("unexpected: seed"),
        request=make_request(profile=None),
    ),
    case(
        "W78",
        ProviderError,
        NO_RETRY,
        "302",
        "https://elsewhere.example/v1",
        "redirect",
        status=302,
        body="",
        headers={"Location": "https://elsewhere.example/v1?token=SECRET"},
    ),
    case("W78-nowhere", ProviderError, NO_RETRY, "307", "redirect", status=307, body=""),
    case("W46-reason", ProviderError, NO_RETRY, "out of range", status=400, body={"error": {"reason": "out of range"}}),
    case(
        "W46-no words",
        ProviderError,
        NO_RETRY,
        "400: no message, only the fields hint, value",
        status=400,
        body={"error": {"code": 400, "hint": 7, "value": ["SECRET INPUT"]}},
    ),
    case("W46-code alone", ProviderError, NO_RETRY, "400: Bad Request", status=400, body={"error": {"code": 400}}),
    case("W46-nothing", ProviderError, NO_RETRY, "400: Bad Request", status=400, body={}),
    case("W46-a number", ProviderError, NO_RETRY, "400: Bad Request", status=400, body=7),
    case("W46-null", ProviderError, NO_RETRY, "400: Bad Request", status=400, body={"error": None}),
    case("W46-list", ProviderError, NO_RETRY, "bad: worse", status=400, body={"errors": ["bad", {"message": "worse"}]}),
    case(
        "W39-deep",
        ProviderError,
        NO_RETRY,
        "400",
        "only the fields message",
        status=400,
        body={"error": {"message": {"message": {"message": {"message": {"message": {"message": "lost"}}}}}}},
    ),
    case(
        "W45-said twice",
        ProviderError,
        NO_RETRY,
        "400: bad schema [",
        status=400,
        body=error("bad schema", metadata={"raw": "bad schema"}),
    ),
    case("status-408", ProviderError, RETRY, "408", status=408, body=""),
    case("status-409", ProviderError, RETRY, "409", status=409, body=""),
    case("status-425", ProviderError, RETRY, "425", status=425, body=""),
    case("status-500", ProviderError, RETRY, "500", status=500, body=error("oops")),
    case("status-501", ProviderError, NO_RETRY, "501", status=501, body=""),
    case("status-504", OverloadedError, RETRY, "504", status=504, body=""),
    case("status-529", OverloadedError, RETRY, "529", "no reason given", status=529, body=""),
    case("status-418", ProviderError, NO_RETRY, "418", "kettle", status=418, body=error({"message": ["no", "kettle"]})),
    case("refusal", RefusalError, NO_RETRY, "refused", body=completion(None, refusal="I cannot help with that.")),
    case(
        "refusal-part",
        RefusalError,
        NO_RETRY,
        "refused",
        body=completion([{"type": "refusal", "refusal": "I cannot help with that."}]),
    ),
    case(
        "refusal-finish",
        RefusalError,
        NO_RETRY,
        "refused",
        body=completion("I cannot help with that.", finish="refusal"),
    ),
    case(
        "not JSON",
        MalformedResponseError,
        RETRY,
        "not JSON",
        "text/plain",
        "begins 'OK'",
        body="OK",
        headers={"Content-Type": "text/plain"},
    ),
    case("cut JSON", MalformedResponseError, RETRY, "not JSON", body=json.dumps(completion())[:-9]),
    case("two values", MalformedResponseError, RETRY, "not JSON", "Extra data", body=PLAIN + PLAIN),
    case("NaN", MalformedResponseError, RETRY, "NaN is not JSON", body='{"choices":[],"x":NaN}'),
    case("nested", MalformedResponseError, RETRY, "nested too deeply", body="[" * 200_000),
    case("a string", MalformedResponseError, RETRY, "a string", body='"hi"'),
    case("a number", MalformedResponseError, RETRY, "an integer", body="7"),
    case("an empty list", MalformedResponseError, RETRY, "a list", body="[]"),
]


@pytest.mark.parametrize("case", ERRORS)
def test_an_answer_that_is_an_error(case: Case) -> None:
    """The class, the retry verdict and the words of the message are right, and nothing secret is in it."""
    with pytest.raises(GenerationError) as caught:
        read(**case.answer)
    error = caught.value
    assert type(error) is case.kind
    assert error.is_retryable is case.is_retryable
    message = str(error)
    for word in case.words:
        assert word in message
    assert "SECRET" not in message
    assert KEY not in message
    assert "\n" not in message
    request = case.answer.get("request") or make_request()
    assert (error.backend, error.model, error.phase) == (request.backend_id, request.model, "answer")


def test_w04_usage_of_a_failed_attempt_is_kept() -> None:
    """What an answer without choices cost is on its error, to be added up."""
    with pytest.raises(MalformedResponseError) as caught:
        read({**completion(), "choices": []})
    assert caught.value.attempt_usage == Usage(**COUNTS)


def test_w48_the_text_before_an_error_is_kept() -> None:
    """An error that comes after a part of the text has that part, and the usage."""
    with pytest.raises(OverloadedError) as caught:
        read({**completion("he"), **error("lost", code=502)})
    assert (caught.value.text, caught.value.attempt_usage) == ("he", Usage(**COUNTS))
