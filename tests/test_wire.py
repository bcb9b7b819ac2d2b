"""What is sent, what an answer is worth, and that nothing an answer holds breaks the client or shows the key."""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any

import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st

from promptkit._fields import FrozenDict, Secret, freeze
from promptkit._types import GenerateResponse, Image, Message, Usage
from promptkit._wire import check_response, decode, encode, encode_bytes
from promptkit._wire._exchange import clean
from promptkit.errors import (
    ConfigError,
    ContentFilteredError,
    GenerationError,
    InvalidRequestError,
    MalformedResponseError,
    PromptKitError,
    ProviderError,
    RefusalError,
)
from support.wire import COUNTS, KEY, NOW, URL, completion, make_request, read

SCHEMA = freeze({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
PNG = b"\x89PNG\r\n\x1a\n"


# -------------------------------------------------------------------------------------------- what is sent


def test_every_value_is_sent_under_its_name() -> None:
    """Zero, an empty list and an empty string are values."""
    body = encode(
        make_request(
            temperature=0,
            top_p=0.0,
            max_tokens=5,
            seed=0,
            stop=(),
            presence_penalty=0.0,
            frequency_penalty=-1,
            session_id="s1",
            session_field="session_id",
        )
    )
    assert body == {
        "stream": False,
        "model": "m1",
        "messages": [{"role": "user", "content": "Say hi."}],
        "temperature": 0,
        "top_p": 0.0,
        "max_tokens": 5,
        "seed": 0,
        "stop": [],
        "presence_penalty": 0.0,
        "frequency_penalty": -1,
        "session_id": "s1",
    }


def test_a_server_with_one_model_needs_no_name() -> None:
    """Without a model none is sent."""
    assert "model" not in encode(make_request(model=None))


def test_the_token_limit_goes_under_the_name_the_profile_gives() -> None:
    """Newer models know the limit by another name only."""
    body = encode(make_request(max_tokens=5, max_tokens_field="max_completion_tokens"))
    assert body["max_completion_tokens"] == 5
    assert "max_tokens" not in body


@pytest.mark.parametrize("session", [{"session_id": "s1"}, {"session_field": "session_id"}])
def test_a_session_needs_an_id_and_a_field(session: dict[str, str]) -> None:
    """Either alone sends nothing."""
    assert encode(make_request(**session)) == encode(make_request())


def test_images_go_as_data_uris_after_the_text() -> None:
    """A message with images has parts; one without has a plain string."""
    image = Image("image/png", PNG, "sha256:0")
    body = encode(make_request(messages=(Message("system", "Look."), Message("user", "What?", images=(image, image)))))
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(PNG).decode()}}
    assert body["messages"] == [
        {"role": "system", "content": "Look."},
        {"role": "user", "content": [{"type": "text", "text": "What?"}, part, part]},
    ]


def test_images_without_a_text_go_alone() -> None:
    """Some servers refuse an empty text part."""
    body = encode(make_request(messages=(Message("user", "", images=(Image("image/png", PNG, "sha256:0"),)),)))
    assert [part["type"] for part in body["messages"][0]["content"]] == ["image_url"]


@pytest.mark.parametrize("mode", ["json_schema", "json_object", "prompt"])
def test_text_has_no_contract(mode: str) -> None:
    """Plain text is asked for by asking for nothing."""
    assert encode(make_request(structured_output=mode)) == encode(make_request())


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_schema_travels_as_the_author_wrote_it(is_strict: bool) -> None:  # noqa: FBT001  # by pytest, by name
    """The response format has the schema itself, and strict only when it is wanted."""
    request = make_request(output_format="json_schema", output_schema=SCHEMA, is_strict=is_strict)
    wanted = {"name": "output", "schema": SCHEMA} | ({"strict": True} if is_strict else {})
    assert encode(request)["response_format"] == {"type": "json_schema", "json_schema": wanted}


@pytest.mark.parametrize(
    ("name", "sent"), [("invoice/extract v2", "invoice_extract_v2"), ("é" * 80, "_" * 64), ("", "output")]
)
def test_a_schema_name_is_made_of_what_servers_accept(name: str, sent: str) -> None:
    """Letters, digits, underscore and dash, 64 at most."""
    body = encode(make_request(output_format="json_schema", output_schema=SCHEMA, output_schema_name=name))
    assert body["response_format"]["json_schema"]["name"] == sent


@pytest.mark.parametrize("mode", ["json_schema", "json_object"])
def test_json_without_a_schema_is_a_json_object(mode: str) -> None:
    """There is no schema to send, so the server is asked for JSON alone."""
    for output_format in ("json", "json_schema"):
        body = encode(make_request(output_format=output_format, structured_output=mode))
        assert body["response_format"] == {"type": "json_object"}
        assert body["messages"] == encode(make_request())["messages"]


@pytest.mark.parametrize("mode", ["json_object", "prompt"])
def test_a_schema_that_the_server_does_not_take_is_told_to_the_model(mode: str) -> None:
    """It stands in a system message of its own when there is none."""
    body = encode(make_request(output_format="json_schema", output_schema=SCHEMA, structured_output=mode))
    assert body.get("response_format") == ({"type": "json_object"} if mode == "json_object" else None)
    system, user = body["messages"]
    assert system["role"] == "system"
    assert json.loads(system["content"].partition("\n")[2]) == SCHEMA
    assert user == {"role": "user", "content": "Say hi."}


@pytest.mark.parametrize(
    ("first", "start"), [("You are terse.", "You are terse.\n\nAnswer with one JSON"), ("", "Answer with one JSON")]
)
def test_a_leading_system_message_is_extended(first: str, start: str) -> None:
    """Many chat templates allow one system message only; the request itself is left as it was."""
    messages = (Message("system", first), Message("user", "Go."))
    request = make_request(messages=messages, output_format="json", structured_output="prompt")
    body = encode(request)
    assert body["messages"][0]["content"].startswith(start)
    assert len(body["messages"]) == 2
    assert request.messages == messages


def test_a_leading_system_message_with_an_image_gets_another_part() -> None:
    """Parts are added to parts."""
    messages = (Message("system", "Look.", images=(Image("image/png", PNG, "sha256:0"),)),)
    body = encode(make_request(messages=messages, output_format="json", structured_output="prompt"))
    assert [part["type"] for part in body["messages"][0]["content"]] == ["text", "image_url", "text"]


def test_extra_body_comes_last_and_replaces_whole_keys() -> None:
    """An author's own keys win over ours, each as a whole."""
    body = encode(make_request(temperature=1, extra_body=freeze({"temperature": 0.5, "provider": {"order": ["a"]}})))
    assert (body["temperature"], body["provider"]) == (0.5, {"order": ["a"]})


@pytest.mark.parametrize("key", ["messages", "stream"])
def test_extra_body_cannot_replace_what_the_client_depends_on(key: str) -> None:
    """Messages come from the prompt, and a stream could not be read in time."""
    with pytest.raises(ConfigError, match=f"extra_body must not set '{key}'"):
        encode(make_request(extra_body=FrozenDict({key: []})))


def test_the_body_is_utf8_without_escapes_or_spaces() -> None:
    """Text costs the bytes it has."""
    body = encode_bytes(make_request(messages=(Message("user", "café 😀"),)))
    assert "café 😀".encode() in body
    assert b": " not in body
    assert json.loads(body)["messages"][0]["content"] == "café 😀"


def test_half_a_surrogate_pair_cannot_be_sent() -> None:
    """The error says where such a thing comes from, and does not show it."""
    with pytest.raises(InvalidRequestError, match="surrogate pair") as caught:
        encode_bytes(make_request(messages=(Message("user", "broken \ud83d emoji"),)))
    assert "emoji" not in str(caught.value).replace("broken emoji", "")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", {1, 2}, object()])
def test_what_json_cannot_carry_is_a_configuration_error(value: Any) -> None:
    """A library's own TypeError or ValueError does not escape."""
    with pytest.raises(ConfigError, match="extra_body"):
        encode_bytes(make_request(extra_body=FrozenDict({"x": value})))


def test_a_bottomless_extra_body_is_a_configuration_error() -> None:
    """Nor does a RecursionError."""
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ConfigError, match="extra_body"):
        encode_bytes(make_request(extra_body=FrozenDict({"x": value})))
    while value:  # taken apart by hand: a destructor would go as deep
        value = value.pop()


# ------------------------------------------------------------------------------------ what an answer is worth


def test_a_good_answer_is_returned_as_it_is() -> None:
    """Nothing is copied."""
    response = GenerateResponse(text="hi", finish_reason="stop", usage=Usage(total_tokens=3))
    assert check_response(response, make_request()) is response


@pytest.mark.parametrize("response", [None, "hi", {"text": "hi"}, 7])
def test_a_client_must_return_a_response(response: object) -> None:
    """Anything else is malformed, and asking an injected client again would not help."""
    with pytest.raises(MalformedResponseError, match="not a GenerateResponse") as caught:
        check_response(response, make_request())
    assert not caught.value.is_retryable
    assert (caught.value.backend, caught.value.model, caught.value.phase) == ("b1", "m1", "answer")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", b"hi"),
        ("finish_reason", 7),
        ("refusal", True),
        ("usage", {"total_tokens": 3}),
        ("model", 7),
        ("reasoning", ["x"]),
        ("request_id", 7),
    ],
)
def test_a_response_must_have_the_right_types(name: str, value: Any) -> None:
    """The field is named, its value is not shown."""
    response = GenerateResponse(**{"text": "hi", "finish_reason": "stop", name: value})
    with pytest.raises(MalformedResponseError, match=f"whose {name} is"):
        check_response(response, make_request())


@pytest.mark.parametrize(
    ("response", "kind", "is_retryable"),
    [
        (GenerateResponse(text="part", finish_reason="content_filter"), ContentFilteredError, False),
        (GenerateResponse(text="part", finish_reason="Safety"), ContentFilteredError, False),
        (GenerateResponse(text="part", finish_reason="error"), ProviderError, False),
        (GenerateResponse(text="part", finish_reason="refusal"), RefusalError, False),
        (GenerateResponse(text="part", refusal="part"), RefusalError, False),
        (GenerateResponse(text=None, finish_reason="stop"), MalformedResponseError, True),
        (GenerateResponse(text=""), MalformedResponseError, True),
        (GenerateResponse(text=" \n", finish_reason="stop"), MalformedResponseError, True),
        (GenerateResponse(text="", rejection="json_validate_failed: no"), MalformedResponseError, True),
    ],
)
def test_an_answer_that_is_none(response: GenerateResponse, kind: type[GenerationError], *, is_retryable: bool) -> None:
    """Filtered, failed, refused and empty answers are errors of their own, with what they cost and what they said."""
    usage = Usage(prompt_tokens=5)
    with pytest.raises(GenerationError) as caught:
        check_response(evolve(response, usage=usage), make_request())
    error = caught.value
    assert type(error) is kind
    assert error.is_retryable is is_retryable
    assert (error.attempt_usage, error.text) == (usage, response.text)
    assert (error.backend, error.model, error.phase) == ("b1", "m1", "answer")


def test_a_cut_answer_without_text_has_an_empty_one() -> None:
    """What a cut answer means is decided by its contract, which needs a text."""
    response = check_response(GenerateResponse(text=None, finish_reason="length"), make_request())
    assert (response.text, response.finish_reason) == ("", "length")


def test_another_word_for_a_cut_answer_is_put_as_ours() -> None:
    """An injected client may pass its server's word on."""
    response = check_response(GenerateResponse(text="par", finish_reason="max_tokens"), make_request())
    assert (response.text, response.finish_reason) == ("par", "length")


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [
        ("https://user:pass@models.example:8443/v1?key=SECRET", "'models.example:8443'"),
        ("http://127.0.0.1/v1", "'127.0.0.1'"),
        ("http://[::1", "'(unreadable)'"),
        ("nonsense", "'(unreadable)'"),
    ],
)
def test_an_endpoint_without_a_backend_is_named_by_its_host(endpoint: str, shown: str) -> None:
    """Neither a password nor a query of the endpoint is shown."""
    with pytest.raises(MalformedResponseError) as caught:
        check_response(None, make_request(backend_id=None, endpoint=endpoint, model=None))
    assert str(caught.value) == f"endpoint {shown}: the client returned null and not a GenerateResponse"


# ---------------------------------------------------------------------------------------------- what is kept


def test_the_answer_carries_what_the_server_called_it() -> None:
    """A header names the call before the body does."""
    assert read(completion(), headers={"X-Request-ID": "req-7"}).request_id == "req-7"
    assert read(completion(), headers={"X-Request-ID": ""}).request_id == "c1"
    assert read({**completion(), "id": None}).request_id is None
    assert read({**completion(), "id": 7}).request_id is None


@pytest.mark.parametrize(("model", "kept"), [("vendor/m1:free", "vendor/m1:free"), (None, None), (7, None), ("", None)])
def test_the_answers_model_is_kept(model: Any, kept: str | None) -> None:
    """A router may have chosen another model than was asked for."""
    assert read({**completion(), "model": model}).model == kept


def test_names_from_the_server_can_be_written_down() -> None:
    """Control characters, line breaks and half surrogate pairs do not get into events and results."""
    body = {
        **completion(reasoning="be\ud800cause", finish="odd\nword"),
        "id": "a\x00b",
        "model": "m\udfff 1" + "x" * 200,
    }
    response = read(body)
    for text in (response.request_id, response.model, response.finish_reason, response.reasoning):
        assert text is not None
        assert text.encode()
        assert "\n" not in text
        assert len(text) <= 100


def test_an_error_survives_a_pickle() -> None:
    """All attributes are there on the other side."""
    with pytest.raises(ProviderError) as caught:
        read({"error": {"message": "slow", "code": "x1"}, "usage": COUNTS}, status=429, headers={"retry-after": "3"})
    again = pickle.loads(pickle.dumps(caught.value))
    assert vars(again) == vars(caught.value)
    assert (again.status, again.code, again.retry_after_s) == (429, "x1", 3.0)
    assert again.provider_message == "slow"
    assert again.attempt_usage == Usage(**COUNTS)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": "x1", "type": "t"}, "x1"),
        ({"code": None, "type": "overloaded_error"}, "overloaded_error"),
        ({"code": 1305}, "1305"),
        ({"type": None}, None),
    ],
)
def test_the_servers_code_is_kept_as_text(error: dict[str, Any], code: str | None) -> None:
    """Where a server has only a type, that is its code."""
    with pytest.raises(ProviderError) as caught:
        read({"error": {"message": "no", **error}}, status=503)
    assert caught.value.code == code


def test_a_long_message_is_cut() -> None:
    """A server that echoes the whole prompt does not get it into the log."""
    with pytest.raises(ProviderError) as caught:
        read({"error": {"message": "word " * 100_000}}, status=400)
    assert len(caught.value.provider_message or "") == 300
    assert len(str(caught.value)) < 500


# ------------------------------------------------------------------------------------------------ the key


@pytest.mark.parametrize(
    "said",
    [
        f"Incorrect API key provided: {KEY}.",
        f"Incorrect API key provided: {KEY[:8]}*********{KEY[-4:]}.",
        f"Authorization was 'Bearer {KEY}'",
        f"Authorization was 'Bearer {KEY[:20]}",
        f"key={KEY[:5]}...{KEY[-4:]}",
        f"key={KEY[:5]}…{KEY[-4:]}",
        "key ending in *3210",
        "another key: sk-proj-0123456789abcdef, gsk_0123456789, AIzaSyD-0123456789",
        f"\n{KEY}\t{KEY}\n",
        "x" * 2390 + KEY,
    ],
)
@pytest.mark.parametrize("status", [200, 400, 401, 429, 500])
def test_w64_a_key_that_the_server_echoes_is_not_shown(said: str, status: int) -> None:
    """Whole, cut, masked or one of somebody else's: it does not get into the error or its attributes."""
    body = {"error": {"message": said, "code": said[:70], "metadata": {"provider_name": said[:70]}}, "id": said[:70]}
    with pytest.raises(ProviderError) as caught:
        read(body, status=status)
    shown = f"{caught.value}{vars(caught.value)}"
    for piece in (KEY, KEY[:8], KEY[-4:], "0123456789"):
        assert piece not in shown


def test_headers_that_hold_a_secret_are_not_shown() -> None:
    """A key may travel in a header of its own, as Azure's does."""
    request = make_request(
        credential=None,
        headers={"api-key": "0123456789abcdef", "Authorization": "Basic dXNlcjpwYXNz", "X-Title": "billing"},
    )
    said = clean("0123456789abcdef and dXNlcjpwYXNz and Basic dXNlcjpwYXNz for billing", request)
    assert said == "*** and *** and Basic *** for billing"


def test_a_credential_function_is_not_called_for_a_message() -> None:
    """What is not held cannot be shown, and asking for it could fail."""

    def give() -> str:
        raise AssertionError("called")

    assert clean("sure", make_request(credential=Secret(give))) == "sure"


@pytest.mark.parametrize("said", ["Basic authentication is required", "Bearer token missing", "use task-based keys"])
def test_words_about_credentials_are_shown(said: str) -> None:
    """Only what looks like a credential goes, not the talk of one."""
    assert clean(said, make_request()) == said


def test_a_credential_in_the_servers_name_for_the_call_is_not_shown() -> None:
    """Names take a shorter way than sentences, and are as safe."""
    for name in (KEY, f"req-{KEY}", "sk-0123456789", f"req {KEY}"):
        shown = read(completion(), headers={"X-Request-Id": name}).request_id
        assert shown is not None
        assert "***" in shown
    assert (
        read(completion(), headers={"X-Request-Id": "r-1"}, request=make_request(credential=None)).request_id == "r-1"
    )


@pytest.mark.parametrize("key", ["abc", "", "x" * 4])
def test_a_short_credential_does_not_blank_every_message(key: str) -> None:
    """Local servers are given made-up keys."""
    assert clean("abcdefg: prompt too long", make_request(credential=Secret(key))) == "abcdefg: prompt too long"


# ------------------------------------------------------------------------------------------ whatever comes

PLANTED = "sk-planted-key-abcdef0123456789"
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        [
            PLANTED,
            f"Bearer {PLANTED}",
            "\ud800",
            "429",
            "rate_limit_exceeded",
            "content_filter",
            "insufficient_quota",
            "json_validate_failed",
            "length",
            "error",
            "stop",
            "text",
            10**400,
            502,
            429,
        ]
    )
)
KEYS = st.sampled_from(
    [
        "choices",
        "message",
        "content",
        "error",
        "code",
        "type",
        "status",
        "param",
        "metadata",
        "raw",
        "headers",
        "provider_name",
        "usage",
        "prompt_tokens",
        "completion_tokens",
        "prompt_tokens_details",
        "cost",
        "finish_reason",
        "index",
        "delta",
        "refusal",
        "reasoning",
        "reasoning_details",
        "tool_calls",
        "text",
        "detail",
        "loc",
        "msg",
        "errors",
        "innererror",
        "content_filter_result",
        "failed_generation",
        "details",
        "retryDelay",
        "id",
        "model",
        "X-RateLimit-Reset",
        "object",
        "reasons",
    ]
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)
NEAR_ANSWERS = st.builds(
    lambda top, choice, message: {**top, "choices": [{"message": message, **choice}]},
    st.dictionaries(KEYS, JSON, max_size=3),
    st.dictionaries(KEYS, JSON, max_size=3),
    st.dictionaries(KEYS, JSON, max_size=4),
)
NEAR_ERRORS = st.builds(lambda error: {"error": error}, st.dictionaries(KEYS, JSON, max_size=6))


def _as_json(value: Any) -> bytes:
    return json.dumps(value).encode(errors="surrogatepass")


def _as_stream(values: list[Any]) -> bytes:
    return b"".join(b"data: " + _as_json(value) + b"\n\n" for value in values)


BODIES = (
    st.binary(max_size=60)
    | st.text(max_size=60).map(lambda text: text.encode(errors="surrogatepass"))
    | st.builds(_as_json, JSON | NEAR_ANSWERS | NEAR_ERRORS)
    | st.builds(_as_stream, st.lists(JSON | NEAR_ANSWERS | NEAR_ERRORS, max_size=4))
    | st.builds(lambda text: f"<title>{text}{PLANTED}</title>".encode(errors="replace"), st.text(max_size=20))
)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "content-type",
            "Content-Encoding",
            "Retry-After",
            "retry-after-ms",
            "x-ratelimit-reset",
            "X-RateLimit-Remaining-Tokens",
            "x-ratelimit-reset-tokens",
            "Date",
            "X-Request-Id",
            "location",
        ]
    ),
    st.text(max_size=20)
    | st.sampled_from([PLANTED, "gzip", "br", "text/html", "6m0s", "1767225600000", "Thu, 01 Jan 2026 00:00:30 GMT"]),
    max_size=4,
)


@given(
    st.sampled_from([0, 100, 200, 201, 204, 302, 400, 401, 402, 403, 404, 413, 422, 429, 500, 502, 529, 600, 999]),
    HEADERS,
    BODIES,
    st.sampled_from(["text", "json", "json_schema"]),
)
@example(200, {}, b'{"choices": [{"message": {"content": [{"type": {}}]}}]}', "text")
@example(200, {}, b'{"usage": {"cost": 1' + b"0" * 400 + b'}, "choices": [{"message": {"content": "x"}}]}', "text")
@example(200, {}, b"[" * 100_000, "text")
@example(429, {"Retry-After": "Thu, 01 Jan 10000 00:00:00 GMT"}, b"", "text")
@example(429, {"x-ratelimit-reset": "0001-01-01T00:00:00"}, b"", "text")
def test_whatever_comes_is_a_response_or_one_of_our_errors(
    status: int, headers: dict[str, str], body: bytes, output_format: str
) -> None:
    """No exception of Python or a library escapes, the key is not shown, and a retry verdict is there."""
    request = make_request(credential=Secret(PLANTED), output_format=output_format)
    error: PromptKitError | None = None
    try:
        response = check_response(decode(status, headers, body, request=request, url=URL, now=NOW), request)
    except PromptKitError as caught:
        error = caught
    if error is not None:
        assert isinstance(error, GenerationError)
        assert isinstance(error.is_retryable, bool)
        shown = {name: value for name, value in vars(error).items() if name != "text"}
        assert PLANTED not in f"{error} {shown}"
        assert error.retry_after_s is None or 0 <= error.retry_after_s <= 86_400
        assert str(error).isprintable()
        pickle.loads(pickle.dumps(error))
    else:
        assert isinstance(response.text, str)
        assert PLANTED not in f"{response.request_id} {response.model} {response.finish_reason} {response.rejection}"


def test_a_key_in_the_address_is_not_shown() -> None:
    """Some servers take it there and echo the address; it is in no repr either."""
    request = make_request(endpoint="https://h/v1?api-version=7&key=SECRET-in-the-address")
    with pytest.raises(GenerationError) as caught:
        read({"error": "no such route: /v1?key=SECRET-in-the-address"}, status=404, request=request)
    assert "SECRET" not in f"{caught.value} {request!r}"
    assert "api-version=***" in repr(request)
