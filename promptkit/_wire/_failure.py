"""The error that fits an error answer, and whether the same request may succeed later.

Guarantees: `provider_failure` returns for any facts; what it shows of the server's words is cleaned. Pure.

Sources: RFC 9110 for the statuses; for names and words, the error references of the servers named in `_facts`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from promptkit._fields import Json
from promptkit._types import GenerateRequest, Usage
from promptkit._wire._exchange import Exchange, clean, complete, model_note, server_name
from promptkit._wire._facts import ErrorFacts
from promptkit._wire._hints import retry_hint
from promptkit.errors import (
    AuthenticationError,
    ContentFilteredError,
    ContextLengthError,
    GenerationError,
    OverloadedError,
    ProviderError,
    QuotaExhaustedError,
    RateLimitedError,
)

_OVERLOADED: Final = frozenset({502, 503, 504, 529})
_RETRIED: Final = frozenset({408, 409, 425, 500})
"""Beside 429 and `_OVERLOADED`; design: these may succeed when sent again, and nothing else."""
_REFUSED: Final = frozenset({401, 403})
_NOT_ABOUT_CONTEXT: Final = _OVERLOADED | _REFUSED | {404, 429}
"""Statuses whose words may speak of a context length in passing."""

_ABOUT_THE_BODY: Final = frozenset({400, 422})

_FILTER_NAMES: Final = frozenset(
    {
        "content_filter",
        "content_filtered",
        "content_policy_violation",
        "responsibleaipolicyviolation",
        "moderation_blocked",
        "content_moderation",
        "data_inspection_failed",
        "prohibited_content",
    }
)
_QUOTA_NAMES: Final = frozenset(
    {
        "insufficient_quota",
        "insufficient_credits",
        "insufficient_balance",
        "insufficient_funds",
        "payment_required",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "exceeded_current_quota_error",
        "insufficient_user_quota",
        "arrearage",
    }
)
_CONTEXT_NAMES: Final = frozenset(
    {"context_length_exceeded", "context_window_exceeded", "exceed_context_size_error", "prompt_too_long"}
)
_AUTH_NAMES: Final = frozenset(
    {"invalid_api_key", "api_key_invalid", "authentication_error", "invalid_authentication_error", "unauthenticated"}
)
_STATUS_OF_NAME: Final = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "rate_limit_reached_error": 429,
    "rate_limited": 429,
    "rate_limit": 429,
    "ratelimited": 429,
    "too_many_requests": 429,
    "toomanyrequests": 429,
    "resource_exhausted": 429,
    "throttlingexception": 429,
    "unauthorized": 401,
    "permission_denied": 403,
    "permission_error": 403,
    "forbidden": 403,
    "model_not_found": 404,
    "not_found": 404,
    "not_found_error": 404,
    "unknown_url": 404,
    "invalid_request_error": 400,
    "invalid_argument": 400,
    "bad_request": 400,
    "badrequesterror": 400,
    "timeout": 408,
    "request_timeout": 408,
    "request_too_large": 413,
    "server_error": 500,
    "internal": 500,
    "internal_error": 500,
    "internal_server_error": 500,
    "internalservererror": 500,
    "bad_gateway": 502,
    "unavailable": 503,
    "service_unavailable": 503,
    "serviceunavailable": 503,
    "service_unavailable_error": 503,
    "overloaded": 529,
    "overloaded_error": 529,
    "engine_overloaded": 529,
    "engine_overloaded_error": 529,
    "server_overloaded": 529,
    "gateway_timeout": 504,
    "deadline_exceeded": 504,
}

_QUOTA_WORDS: Final = re.compile(
    r"insufficient (?:credit|balance|quota|fund)|credit balance is too low|out of credits?\b|requires more credits"
    r"|out of call volume quota|reached your specified api usage limit",
    re.IGNORECASE,
)
_FILTER_WORDS: Final = re.compile(
    r"content exists risk|flagged as potentially violating|violat\w* .{0,60}usage polic", re.IGNORECASE
)
"""For servers that have no code of their own for it; a server's error status says that it may pass, and is believed."""
_CONTEXT_WORDS: Final = re.compile(
    r"context[ _-]?(?:length|window|size|limit)|(?:prompt|input)(?: tokens?)? (?:is |are )?too (?:long|large)"
    r"|maximum (?:sequence|prompt|input|model) length|max_model_len|input length|prompt length"
    r"|\b(?:inputs?|prompt)\b.{0,60}\btokens?\b|\b(?:number of|too many|input) tokens\b|\btoken count\b",
    re.IGNORECASE,
)
_EXCEEDED_WORDS: Final = re.compile(
    r"exceed|too (?:long|large|many)|maximum|greater|larger|longer|more than|less than|reduce|overflow|at most|<="
    r"|should be \[",
    re.IGNORECASE,
)
_PER_TIME_WORDS: Final = re.compile(r"\bper[ -](?:second|minute|hour|day|month)\b|\b[RT]P[SMHD]\b", re.IGNORECASE)
_AUTH_WORDS: Final = re.compile(
    r"(?:invalid|incorrect) api[ _-]?key|api key (?:is )?(?:not valid|invalid|expired)", re.IGNORECASE
)
_RATE_WORDS: Final = re.compile(r"rate.?limit|too many requests", re.IGNORECASE)
_TRANSIENT_WORDS: Final = re.compile(r"overload|temporarily|unavailable|timed? ?out|try again", re.IGNORECASE)
_LIMIT: Final = re.compile(r"\blimit:?\s*(\d[\d,]{0,14})", re.IGNORECASE)
_REQUESTED: Final = re.compile(r"\brequested:?\s*~?(\d[\d,]{0,14})", re.IGNORECASE)
_UNSUPPORTED_WORDS: Final = re.compile(
    r"unsupported|not support|unknown|unrecogni[sz]ed|unexpected|not (?:allowed|permitted)|instead|extra inputs"
    r"|cannot find field|deprecated|cannot (?:both )?be",
    re.IGNORECASE,
)
_CONTRACT_WORDS: Final = re.compile(
    r"response_?format|json_?schema|json_?object|guided_|grammar|invalid schema", re.IGNORECASE
)
_MODEL_NAMES: Final = frozenset({"model_decommissioned", "model_not_found", "invalid_model"})
_MODEL_WORDS: Final = re.compile(
    r"\bmodel\b.{0,80}\b(?:not (?:exist|found|loaded|available|a valid)|decommissioned|retired)"
    r"|no models? (?:is |are )?loaded|(?:invalid|unknown|unsupported|no such) model\b|not a valid model"
    r"|does not exist.{0,40}\bmodel\b",
    re.IGNORECASE,
)
_ADDRESS_WORDS: Final = re.compile(
    r"unexpected endpoint|(?:unknown|invalid) (?:request )?(?:url|path|route|endpoint)|no route|UnknownOperation",
    re.IGNORECASE,
)
_TOO_LARGE_WORDS: Final = re.compile(r"too large|too high|maximum|at most|exceed|less than or equal|<=", re.IGNORECASE)
_SAMPLING: Final = ("temperature", "top_p", "seed", "stop", "presence_penalty", "frequency_penalty")


def provider_failure(
    exchange: Exchange, facts: ErrorFacts, body: Json, *, usage: Usage | None = None, text: str | None = None
) -> GenerationError:
    """Return the error that fits an error answer, ready to be raised.

    The HTTP status leads; in a success status it is the body's own code, by number or name. Names and words
    then single out what no repetition can cure: an empty account, a prompt too long for the context, a
    request above the per-minute limit.
    """
    request = exchange.request
    status = exchange.status if exchange.status >= HTTPStatus.BAD_REQUEST else _claimed_status(facts)
    message = facts.message
    if _is_filtered(facts, status, message):
        said = clean(message, request)
        reasons = f" [{clean(', '.join(facts.reasons), request)}]" if facts.reasons else ""
        code = clean(facts.code or "content_filter", request, 80)
        return complete(
            ContentFilteredError(
                f"{server_name(request)} answered {exchange.status}{model_note(request)}: {code}{reasons}: {said}"
            ),
            request,
            usage=usage,
            text=text,
        )
    hint = retry_hint(exchange.headers, body, exchange.now)
    kind, is_retryable, advice = _judge(exchange, facts, status, message)
    said = clean(message, request) or _status_phrase(status)
    request_id = exchange.request_id(body, body.get("error") if isinstance(body, Mapping) else None)
    details = [f"model {request.model!r}"] if request.model is not None else []
    if facts.provider:
        details.append(f"provider {clean(facts.provider, request, 80)}")
    if request_id is not None:
        details.append(f"request id {request_id}")
    if hint is not None:
        details.append(f"the server asks to wait {hint:g} s")
    error = kind(
        _sentence(exchange, facts, said, details, advice),
        status=exchange.status,
        code=None if facts.code is None else clean(facts.code, request, 80),
        provider_message=said,
        retry_after_s=hint,
        request_id=request_id,
        is_retryable=is_retryable,
    )
    return complete(error, request, usage=usage, text=text)


def _is_filtered(facts: ErrorFacts, status: int, message: str) -> bool:
    if facts.names & _FILTER_NAMES or (status == HTTPStatus.FORBIDDEN and facts.reasons):
        return True
    return status in _ABOUT_THE_BODY and _FILTER_WORDS.search(message) is not None


def _claimed_status(facts: ErrorFacts) -> int:
    """Return the status that an error in a success answer stands for, 0 when it does not say."""
    if facts.number is not None and facts.number >= HTTPStatus.BAD_REQUEST:
        return facts.number
    for name in sorted(facts.names):
        if name in _STATUS_OF_NAME:
            return _STATUS_OF_NAME[name]
    if _RATE_WORDS.search(facts.message):
        return 429
    return 503 if _TRANSIENT_WORDS.search(facts.message) else 0


def _judge(
    exchange: Exchange, facts: ErrorFacts, status: int, message: str
) -> tuple[type[ProviderError], bool, str | None]:
    """Return the class, whether the same request may succeed later, and what the reader could do."""
    request = exchange.request
    profile = f"profile {request.profile!r}" if request.profile is not None else "the profile"
    if status == HTTPStatus.PAYMENT_REQUIRED or facts.names & _QUOTA_NAMES or _QUOTA_WORDS.search(message):
        cure = "top up the account or check its billing"
        if "max_tokens" in message:
            cure += f", or set max_tokens in {profile} to what it can pay for"
        return QuotaExhaustedError, False, cure
    if _is_context(facts, status, message):
        advice = "shorten the prompt, lower max_tokens, or choose a model with a larger context"
        return ContextLengthError, False, advice
    limit, requested = _LIMIT.search(message), _REQUESTED.search(message)
    if limit and requested and _integer(requested) > _integer(limit):
        excess = f"one request asks for more ({_integer(requested)}) than the limit allows ({_integer(limit)})"
        return ProviderError, False, f"{excess}: send a shorter prompt or lower max_tokens in {profile}"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return RateLimitedError, True, None
    if status in _REFUSED or facts.names & _AUTH_NAMES or _AUTH_WORDS.search(message):
        return AuthenticationError, False, _credential_advice(request, status)
    if status in _OVERLOADED:
        return OverloadedError, True, None
    if status in _RETRIED:
        return ProviderError, True, None
    return ProviderError, False, _advice(exchange, facts, status, message, profile)


def _advice(exchange: Exchange, facts: ErrorFacts, status: int, message: str, profile: str) -> str | None:
    """Say what to change after an error that will be the same next time, as far as it can be known."""
    request = exchange.request
    called = f"called {_shown_url(exchange.url)}; check the endpoint (base_url)"
    if status == HTTPStatus.NOT_FOUND:
        return called + (f" and the model {request.model!r}" if request.model is not None else "")
    if status == HTTPStatus.METHOD_NOT_ALLOWED or _ADDRESS_WORDS.search(message):
        return called
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return "the request is too large for the server: send less text or smaller images"
    if exchange.is_redirect:
        return _redirect_advice(exchange)
    if (advice := _parameter_advice(request, facts, message, profile)) is not None:
        return advice
    if facts.names & _MODEL_NAMES or _MODEL_WORDS.search(message):
        named = f"the model {request.model!r}" if request.model is not None else "which model is asked for"
        return f"check {named} in {profile} (or in the prompt's execution)"
    return None


def _integer(match: re.Match[str]) -> int:
    return int(match.group(1).replace(",", ""))


def _is_context(facts: ErrorFacts, status: int, message: str) -> bool:
    if facts.names & _CONTEXT_NAMES:
        return True
    if status in _NOT_ABOUT_CONTEXT:
        return False
    if _PER_TIME_WORDS.search(message):  # of a rate, then
        return False
    return bool(_CONTEXT_WORDS.search(message) and _EXCEEDED_WORDS.search(message))


def _credential_advice(request: GenerateRequest, status: int) -> str:
    if request.credential is None:
        return "no credential was sent: set api_key_env in the profile or on the Backend"
    source = request.credential_variable
    key = f"the key in {source}" if source else "the key that the Backend was given"
    if status == HTTPStatus.FORBIDDEN:
        return f"check what {key} may do: its models, its plan, its region"
    return f"check {key}"


def _redirect_advice(exchange: Exchange) -> str:
    target = exchange.header("location")
    where = f" to {clean(_shown_url(target), exchange.request, 200)}" if target else ""
    return f"redirected{where}; redirects are not followed: put the final address into the endpoint"


def _parameter_advice(request: GenerateRequest, facts: ErrorFacts, message: str, profile: str) -> str | None:
    """Say which setting of ours a complaint about a parameter is about."""
    param = (facts.param or "").partition(".")[0]
    is_unsupported = _UNSUPPORTED_WORDS.search(message) is not None

    def is_about(name: str) -> bool:
        return param == name or re.search(rf"\b{re.escape(name)}\b", message) is not None

    ours = request.max_tokens_field
    if is_unsupported and is_about(ours) and ours in {"max_tokens", "max_completion_tokens"}:
        other = "max_completion_tokens" if ours == "max_tokens" else "max_tokens"
        return f"set max_tokens_field: {other} in {profile}"
    if request.max_tokens is not None and is_about(ours) and _TOO_LARGE_WORDS.search(message):
        return f"lower max_tokens in {profile} (or in the prompt's execution)"
    if request.output_format != "text" and (is_about("response_format") or _CONTRACT_WORDS.search(message)):
        wanted = "json_object or prompt" if request.structured_output == "json_schema" else "prompt"
        strict = ", or leave out strict in the prompt's output" if request.is_strict else ""
        return f"set structured_output: {wanted} in {profile} or on the Backend{strict}"
    for name in (*_SAMPLING, *request.extra_body, request.session_field):
        if name is not None and is_unsupported and is_about(name):
            place = "extra_body of " if name in request.extra_body else ""
            if name == request.session_field:
                return f"{name} is the session_field of the Backend: leave that out"
            return f"leave {name} out of {place}{profile} (and out of the prompt's execution)"
    return None


def _shown_url(url: str) -> str:
    """Return ``url`` without its query, which may hold a key."""
    return url.partition("?")[0].partition("#")[0]


def _status_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


def _sentence(exchange: Exchange, facts: ErrorFacts, said: str, details: list[str], advice: str | None) -> str:
    code = clean(facts.code or "", exchange.request, 80)
    coded = f" ({code})" if code and code != str(exchange.status) else ""
    if exchange.is_success:
        coded = f" with an error inside{coded}"
    in_brackets = f" [{', '.join(details)}]" if details else ""
    what_to_do = f"; {advice}" if advice else ""
    return f"{server_name(exchange.request)} answered {exchange.status}{coded}: {said}{in_brackets}{what_to_do}"
