"""What servers other than OpenAI's say when they fail, in their own shapes and words, and what each of them means."""

from __future__ import annotations

from typing import Any

import pytest

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
)
from support.wire import completion, make_request, read


def said(body: Any, status: int = 400, **request: Any) -> GenerationError:
    """Return the error that an answer ends in."""
    with pytest.raises(GenerationError) as caught:
        read(body, status=status, request=make_request(**request))
    return caught.value


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        pytest.param(403, {"Message": "User x may not"}, AuthenticationError, "User x may not", id="AWS, capitalised"),
        pytest.param(
            429,
            {"__type": "com.amazon.coral.service#ThrottlingException", "message": "wait"},
            RateLimitedError,
            "(ThrottlingException): wait",
            id="AWS, its type",
        ),
        pytest.param(400, {"__type": "odd#", "message": "m"}, ProviderError, "(odd#): m", id="AWS, no type"),
        pytest.param(503, {"error_code": 18, "error_msg": "too busy"}, OverloadedError, "(18): too busy", id="Baidu"),
        pytest.param(
            400, {"base_resp": {"status_code": 1004, "status_msg": "login"}}, ProviderError, "login", id="MiniMax"
        ),
        pytest.param(
            200,
            {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}},
            QuotaExhaustedError,
            "insufficient balance",
            id="MiniMax, 200",
        ),
        pytest.param(400, {"fault": {"faultstring": "No such app"}}, ProviderError, "No such app", id="Apigee"),
        pytest.param(400, {"status": "error", "data": {"message": "why"}}, ProviderError, "why", id="in data"),
        pytest.param(
            400,
            {"errors": {"model": ["is bad", "is old"], "n": "is 0", "odd": [7]}},
            ProviderError,
            "model: is bad, is old: n: is 0",
            id="by field",
        ),
        pytest.param(200, {"message": "Forbidden"}, ProviderError, "Forbidden", id="a message alone, 200"),
        pytest.param(
            400,
            [{"error": {"message": "no", "details": ["x", {"reason": "API_KEY_INVALID"}]}}],
            AuthenticationError,
            "no",
            id="Google's reason",
        ),
        pytest.param(
            400,
            {
                "error": {
                    "code": "content_filter",
                    "message": "filtered",
                    "inner_error": {"content_filter_results": {"jailbreak": {"filtered": True, "detected": True}}},
                }
            },
            ContentFilteredError,
            "[jailbreak]",
            id="Azure, inner_error",
        ),
    ],
)
def test_gateways_put_their_words_into_fields_of_their_own(
    status: int, body: Any, kind: type[GenerationError], words: str
) -> None:
    """The server's sentence is found wherever a gateway keeps it, and its field names count in any case."""
    error = said(body, status)
    assert type(error) is kind
    assert words in str(error)


@pytest.mark.parametrize(
    "echo",
    [
        "[{'type': 'missing', 'msg': 'Field required', 'input': {'content': 'SECRET'}}]",
        "[{'msg': 'Field required', 'input': 'SECRET', 'ctx': {'error': 1}}, {'msg': 'b', 'input': 'SECRET'}]",
        'Field required [type=missing, input_value={"content": "SECRET"}, input_type=dict]',
        "Field required, input_value='SECRET",
    ],
)
def test_the_callers_own_value_is_cut_out_of_a_validators_text(echo: str) -> None:
    """A server that passes on what Pydantic says would have the prompt in the message."""
    message = str(said({"error": {"message": echo}}))
    assert "Field required" in message
    assert "SECRET" not in message


@pytest.mark.parametrize(
    "words",
    [
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 `max_new_tokens`",
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "Input length 5000 exceeds maximum allowed length 4096",
        "The number of tokens 9000 exceeds the limit 8192",
        "Range of input length should be [1, 30720]",
        "Prompt length (5000) exceeds max_model_len (4096)",
        "`inputs` must have less than 1024 tokens. Given: 2000",
    ],
)
def test_a_prompt_too_long_is_told_in_many_ways(words: str) -> None:
    """The sentences of servers that have no code for it."""
    assert type(said({"error": {"message": words, "type": "invalid_request_error"}})) is ContextLengthError


@pytest.mark.parametrize(
    "words",
    [
        "body.max_tokens: Input should be less than or equal to 8192",
        "max_tokens is too large: 99999. This model supports at most 16384 completion tokens",
        "Prompt must contain the word 'json' to use 'response_format'",
        "You exceed the number of tokens per minute",
    ],
)
def test_words_about_tokens_are_not_always_about_the_context(words: str) -> None:
    """A number out of its range, or a rate, is not cured by a shorter prompt."""
    assert type(said({"error": {"message": words}})) is ProviderError


def test_the_limit_of_a_model_is_told_as_a_limit() -> None:
    """More tokens asked for than the model can write: the setting to lower is named."""
    error = said({"error": {"message": "max_tokens: 99999 > 8192, which is the maximum"}}, max_tokens=99999)
    assert str(error).endswith("lower max_tokens in profile 'fast' (or in the prompt's execution)")


@pytest.mark.parametrize("words", ["Content Exists Risk", "your prompt was flagged as potentially violating our rules"])
@pytest.mark.parametrize(("status", "kind"), [(400, ContentFilteredError), (503, OverloadedError)])
def test_a_filter_without_a_code_is_known_by_its_words(words: str, status: int, kind: type[GenerationError]) -> None:
    """A refusal of the prompt is none of the request's form; a status that may pass is believed."""
    assert type(said({"error": {"message": words}}, status)) is kind


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (403, "Out of call volume quota. Quota will be replenished in 13:23:18."),
        (400, "You have reached your specified API usage limits."),
    ],
)
def test_a_spent_allowance_is_an_empty_account(status: int, words: str) -> None:
    """It is neither about the key nor about the request."""
    assert type(said({"message": words}, status)) is QuotaExhaustedError


@pytest.mark.parametrize(
    "error",
    [
        {"message": "Model Not Exist", "code": "invalid_request_error"},
        {"message": "foo/bar is not a valid model ID", "code": 400},
        {"message": "Invalid model: x"},
        {"message": "gone", "code": "model_decommissioned"},
        {"message": "No models loaded. Please load a model."},
    ],
)
def test_a_model_that_is_not_there_is_named(error: dict[str, Any]) -> None:
    """Many servers answer 400 for it, not 404."""
    assert str(said({"error": error})).endswith("check the model 'm1' in profile 'fast' (or in the prompt's execution)")


def test_without_a_model_the_profile_is_named() -> None:
    """A server with one model may still ask for its name."""
    assert "check which model is asked for in profile 'fast'" in str(said({"error": "Model not found"}, model=None))


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (405, {"detail": "Method Not Allowed"}),
        (200, {"error": "Unexpected endpoint or method. (POST /chat/completions)"}),
        (400, {"message": "Unknown request URL"}),
    ],
)
def test_a_wrong_address_is_told_beside_404(status: int, body: dict[str, Any]) -> None:
    """What was called is shown, without its query."""
    message = str(said(body, status))
    assert "called https://models.example/v1/chat/completions; check the endpoint (base_url)" in message


def test_an_answer_of_another_api_names_its_fields() -> None:
    """Ollama's own API, Anthropic's, and others answer 200 in another shape."""
    error = said({"model": "m", "message": {"content": "SECRET"}, "done": True}, 200)
    assert type(error) is MalformedResponseError
    assert "has the fields model, message, done; is the endpoint (base_url) right?" in str(error)
    assert "SECRET" not in str(error)


@pytest.mark.parametrize("finish", ["abort", "cancelled", "insufficient_system_resource"])
def test_an_answer_that_the_server_broke_off_is_none(finish: str) -> None:
    """Half a text is not passed off as an answer; the same request may well succeed."""
    error = said(completion("half a te", finish=finish), 200)
    assert type(error) is MalformedResponseError
    assert error.is_retryable
    assert error.text == "half a te"
    assert repr(finish) in str(error)


def test_googles_filter_names_its_reason_in_the_finish_reason() -> None:
    """``content_filter: PROHIBITED_CONTENT`` is a filter like any other."""
    assert type(said(completion(None, finish="content_filter: PROHIBITED_CONTENT"), 200)) is ContentFilteredError
