"""An answer read by meaning: envelope, then choice, then content.

Guarantees: `decode` and `check_response` raise nothing but a `PromptKitError`, whatever they are given. Pure.

Sources: OpenAI's chat completions reference; for what else servers send, their own documentation
(OpenRouter, Azure, vLLM, llama.cpp, Mistral, DeepSeek, Groq).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from attrs import evolve

from promptkit._fields import Json, describe
from promptkit._types import GenerateRequest, GenerateResponse, Usage
from promptkit._wire._content import REASONING, Content, read_message, read_usage, why_no_text
from promptkit._wire._exchange import Exchange, clean, complete, malformed, server_name
from promptkit._wire._facts import filter_reasons, is_error_body, read_error
from promptkit._wire._failure import provider_failure
from promptkit._wire._stream import assemble, looks_like_stream, parse_json, without_comments
from promptkit.errors import ContentFilteredError, GenerationError, ProviderError, RefusalError

_FINISH_ALIASES: Final = {
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "content-filter": "content_filter",
    "content_filtered": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "prohibited_content": "content_filter",
    "blocklist": "content_filter",
    "sensitive": "content_filter",
}
_BROKEN_OFF: Final = frozenset(
    {"abort", "aborted", "cancelled", "canceled", "timeout", "network_error", "insufficient_system_resource"}
)
"""Finish reasons of vLLM, SGLang, DeepSeek and Zhipu for an answer that the server itself gave up half-way."""
_WITHOUT_TEXT: Final = frozenset({"length", "content_filter", "error", "refusal"})
"""Finish reasons that say why there is no text, better than its absence does."""
_LONGEST_REASON: Final = 40
_OK: Final = int(HTTPStatus.OK)


def decode(
    status: int, headers: Mapping[str, str], body: bytes, *, request: GenerateRequest, url: str, now: float
) -> GenerateResponse:
    """Return what the server answered, or raise what its answer means.

    The body is taken for UTF-8 JSON whatever the headers say; a byte order mark, white space and comment lines
    before it, and an event stream instead of it, are read too. Raises `ProviderError` or one of its kinds for
    an error status and for an error inside a success; `ContentFilteredError` when a filter refused the prompt or
    withheld the answer; `MalformedResponseError` for anything else that is no chat completion. ``is_retryable``
    is set on each. An answer that is whole is returned, whatever is in it: `check_response` judges that.

    ``finish_reason`` is the server's word, with other servers' words for ``length`` and ``content_filter``
    put as these. ``url`` is what was called; ``now`` is wall time, seconds since the epoch.
    """
    if status == _OK:
        try:
            envelope = parse_json(body.decode())
        except (ValueError, RecursionError):
            pass  # the careful way says what is wrong with it, if anything is
        else:
            if type(envelope) is dict and envelope.get("error") is None and envelope.get("choices"):
                return _read_envelope(envelope, Exchange(request, status, headers, url, now))
    return _decode_carefully(body, Exchange(request, status, headers, url, now))


def _decode_carefully(body: bytes, exchange: Exchange) -> GenerateResponse:
    request, status = exchange.request, exchange.status
    try:
        text = body.removeprefix(b"\xef\xbb\xbf").decode(errors="strict" if exchange.is_success else "replace")
    except UnicodeDecodeError as exc:
        what = f"the body has invalid UTF-8 at byte offset {exc.start}"
        raise malformed(request, what, status=status, is_retryable=True) from exc
    text = without_comments(text)
    if not text:
        if exchange.is_success:
            what = f"empty body ({'nothing but white space or comments' if body else 'not one byte'})"
            raise malformed(request, what, status=status, is_retryable=True)
        raise provider_failure(exchange, read_error(None), None)
    try:
        envelope = parse_json(text)
    except (ValueError, RecursionError) as exc:
        if not looks_like_stream(text):
            raise _not_json(text, exchange, exc) from exc
        envelope = _read_stream(text, exchange)
    if isinstance(envelope, list) and envelope and isinstance(envelope[0], dict):
        envelope = envelope[0]
    if not exchange.is_success or is_error_body(envelope):
        return _read_failure(envelope, exchange)
    return _read_envelope(envelope, exchange)


def _not_json(text: str, exchange: Exchange, exc: Exception) -> GenerationError:
    request, status = exchange.request, exchange.status
    media_type = exchange.content_type()
    excerpt = clean(_page_excerpt(text), request, 200)
    if not exchange.is_success:
        return provider_failure(exchange, read_error(f"{excerpt} [{media_type}]"), None)
    if text.startswith("<"):
        what = f"the body is a page ({media_type}), not JSON: {excerpt!r}; is the endpoint (base_url) right?"
        return malformed(request, what, status=status, is_retryable=False)
    why = "nested too deeply" if isinstance(exc, RecursionError) else clean(str(exc), request, 100)
    # What begins like JSON may quote the prompt; where it breaks is more use than how it begins.
    begins = "" if text[0] in '{["' else f"; it begins {excerpt!r}; is the endpoint (base_url) right?"
    return malformed(request, f"the body ({media_type}) is not JSON: {why}{begins}", status=status, is_retryable=True)


_TITLE: Final = re.compile(r"<title[^>]{0,200}>([^<]{0,2000})</title", re.IGNORECASE)
_MARKUP: Final = re.compile(
    r"<(?:script|style)\b.{0,4000}?</(?:script|style)>|<[^>]{0,500}>", re.IGNORECASE | re.DOTALL
)


def _page_excerpt(text: str) -> str:
    """Return what a person would read first of a body that is not JSON: a page's title, or its beginning."""
    title = _TITLE.search(text[:20_000])
    words = title.group(1).split() if title else []
    return " ".join(words or _MARKUP.sub(" ", text[:4000]).split())[:200]


def _read_stream(text: str, exchange: Exchange) -> dict[str, Json]:
    try:
        envelope, is_whole = assemble(text)
    except ValueError as exc:
        what = f"an event stream (text/event-stream) nobody asked for, and {clean(str(exc), exchange.request, 150)}"
        raise malformed(exchange.request, what, status=exchange.status, is_retryable=True) from exc
    if not is_whole and exchange.is_success:
        what = "an event stream (text/event-stream) that breaks off: no finish_reason and no [DONE]"
        usage = read_usage(envelope.get("usage"))
        raise malformed(exchange.request, what, status=exchange.status, is_retryable=True, usage=usage)
    return envelope


def _read_failure(body: Json, exchange: Exchange) -> GenerateResponse:
    """Raise what an error body means, unless it carries the model's own output that the server found invalid."""
    facts = read_error(body)
    usage, text = None, None
    if isinstance(body, dict):
        usage = read_usage(body.get("usage"))
        choice = _choose(body.get("choices"))
        message = choice.get("message") if choice is not None else None
        text = read_message(message).text if isinstance(message, dict) else None
    if "json_validate_failed" in facts.names and facts.failed_generation is not None:
        said = clean(facts.message, exchange.request)
        return GenerateResponse(
            text=facts.failed_generation,
            # Groq reports an output cut at the limit in this way too.
            finish_reason="length" if "max completion tokens" in said.lower() else None,
            usage=usage,
            rejection=f"json_validate_failed: {said}",
            request_id=exchange.request_id(body),
        )
    raise provider_failure(exchange, facts, body, usage=usage, text=text)


def _read_envelope(envelope: Json, exchange: Exchange) -> GenerateResponse:
    if not isinstance(envelope, dict):
        what = f"the body is {describe(envelope)} and not a chat completion object"
        raise malformed(exchange.request, what, status=exchange.status, is_retryable=True)
    usage = read_usage(envelope.get("usage"))
    choice = _choose(envelope.get("choices"))
    if choice is None:
        what = f"no answer in it: choices is {_state_of_choices(envelope)}"
        if envelope and "choices" not in envelope:
            fields = clean(", ".join(list(envelope)[:8]), exchange.request, 200)
            what = f"{what}, and it has the fields {fields}; is the endpoint (base_url) right?"
        raise malformed(exchange.request, what, status=exchange.status, is_retryable=True, usage=usage)
    if choice.get("error"):
        return _read_failure({**envelope, "error": choice["error"]}, exchange)
    finish = choice.get("finish_reason")
    if finish != "stop":
        finish = _read_finish(finish, exchange.request)
    message = choice.get("message")
    reasoning = refusal = None
    if finish == "stop" and isinstance(message, dict) and _has_text_alone(message):
        text: str | None = message["content"]
    else:
        read = _read_message(choice, finish, usage, exchange)
        text, reasoning, refusal = read.text, read.reasoning, read.refusal
    model = envelope.get("model")
    return GenerateResponse(
        text=text,
        finish_reason=finish,
        usage=usage,
        model=exchange.name(model) if model and isinstance(model, str) else None,
        reasoning=reasoning,
        refusal=refusal,
        request_id=exchange.request_id(envelope),
    )


def _state_of_choices(envelope: dict[str, Json]) -> str:
    choices = envelope.get("choices")
    if isinstance(choices, list):
        return f"a list of {describe(choices[0])}" if choices else "empty"
    return describe(choices) if "choices" in envelope else "missing"


def _has_text_alone(message: dict[str, Json]) -> bool:
    """True for the rule: a text, and nothing said beside it."""
    get = message.get
    return isinstance(get("content"), str) and not (get("refusal") or not get("content") or any(map(get, REASONING)))


def _read_message(choice: dict[str, Json], finish: str | None, usage: Usage | None, exchange: Exchange) -> Content:
    """Read a choice's message; raise when a filter withheld it, or when what is there is no text."""
    request, status = exchange.request, exchange.status
    message = choice.get("message")
    if not isinstance(message, dict):
        message = choice.get("delta")  # a lone chunk of a stream, as an object
    if not isinstance(message, dict):
        if finish not in _WITHOUT_TEXT:
            what = f"the choice's message is {describe(choice['message']) if 'message' in choice else 'missing'}"
            raise malformed(request, what, status=status, is_retryable=True, usage=usage)
        message = {}
    read = read_message(message)
    if finish == "content_filter":
        reasons = filter_reasons(choice.get("content_filter_results"))
        raise _filtered(request, reasons, usage=usage, text=read.text)
    if not read.text and read.refusal is None and finish not in _WITHOUT_TEXT:
        why = why_no_text(message, read, request)
        if why is not None:
            raise malformed(request, why, status=status, is_retryable=False, usage=usage)
    return read


def _choose(choices: Json) -> dict[str, Json] | None:
    """Return the choice with index 0, or the first one when none says so; None when there is none."""
    if not isinstance(choices, list) or not choices:
        return None
    choice = choices[0]
    if len(choices) > 1:
        choice = next((item for item in choices if isinstance(item, dict) and item.get("index") == 0), choice)
    return choice if isinstance(choice, dict) else None


def _read_finish(value: Json, request: GenerateRequest) -> str | None:
    """Return a finish reason in lower case, in OpenAI's word where there is one; None when there is none."""
    if not isinstance(value, str) or not value:
        return None
    value = clean(value, request, _LONGEST_REASON).lower()
    if value.startswith("content_filter:"):  # Google's "content_filter: PROHIBITED_CONTENT"
        return "content_filter"
    return _FINISH_ALIASES.get(value, value)


# ------------------------------------------------------------------------------------- what an answer is worth


def check_response(response: object, request: GenerateRequest) -> GenerateResponse:
    """Return ``response`` when there is something in it to validate; raise what it means otherwise.

    For every client, the built-in and an injected one: `MalformedResponseError` for None, for anything that is
    not a `GenerateResponse` of the right types, and for an answer without text (worth another try: servers have such
    moments); `ContentFilteredError`, `RefusalError` (``text`` is the refusal) and, for a ``finish_reason`` of
    ``error``, `ProviderError`, none of them worth one. An answer cut at the token limit passes, its text ``""`` if
    none came: what it means depends on the contract.
    """
    if (
        type(response) is GenerateResponse
        and response.finish_reason == "stop"
        and type(response.text) is str
        and response.text
        and not response.text.isspace()
        and response.refusal is None
        and (response.usage is None or type(response.usage) is Usage)
        and (response.model is None or type(response.model) is str)
        and (response.reasoning is None or type(response.reasoning) is str)
        and response.rejection is None
        and (response.request_id is None or type(response.request_id) is str)
    ):
        return response  # the rule; what follows says what else it is
    if not isinstance(response, GenerateResponse):
        what = f"the client returned {describe(response)} and not a GenerateResponse"
        raise malformed(request, what, is_retryable=False)
    text, finish = response.text, response.finish_reason
    usage = response.usage if isinstance(response.usage, Usage) else None
    for name, value, kinds in (
        ("text", text, (str, type(None))),
        ("finish_reason", finish, (str, type(None))),
        ("refusal", response.refusal, (str, type(None))),
        ("model", response.model, (str, type(None))),
        ("reasoning", response.reasoning, (str, type(None))),
        ("request_id", response.request_id, (str, type(None))),
        ("rejection", response.rejection, (str, type(None))),
        ("usage", response.usage, (Usage, type(None))),
    ):
        if not isinstance(value, kinds):
            what = f"the client returned a GenerateResponse whose {name} is {describe(value)}"
            raise malformed(request, what, is_retryable=False, usage=usage)
    if finish is not None and finish != "stop":
        finish = _read_finish(finish, request)
        if finish == "content_filter":
            raise _filtered(request, [], usage=usage, text=text)
        if finish == "error":
            message = f"{server_name(request)}: the generation ended with finish_reason 'error' and no reason given"
            raise complete(ProviderError(message, request_id=response.request_id), request, usage=usage, text=text)
        if finish in _BROKEN_OFF:
            what = f"the answer was broken off by the server (finish_reason {finish!r})"
            raise malformed(request, what, is_retryable=True, usage=usage, text=text)
    if finish == "refusal" or (response.refusal is not None and response.refusal.strip()):
        message = f"{server_name(request)}: the model refused to answer; what it said is in the error's text"
        raise complete(RefusalError(message), request, usage=usage, text=response.refusal or text)
    if not text or text.isspace():
        if finish == "length":
            return evolve(response, text=text or "", finish_reason=finish)
        raise _empty(response, finish, request)
    return response if finish == response.finish_reason else evolve(response, finish_reason=finish)


def _filtered(
    request: GenerateRequest, reasons: list[str], *, usage: Usage | None, text: str | None
) -> ContentFilteredError:
    because = f" ({clean(', '.join(reasons), request)})" if reasons else ""
    message = f"{server_name(request)}: the answer was withheld by a filter: finish_reason content_filter{because}"
    return complete(ContentFilteredError(message), request, usage=usage, text=text)


def _empty(response: GenerateResponse, finish: str | None, request: GenerateRequest) -> GenerationError:
    what = "empty output: the model wrote no text" if not response.text else "empty output: the text is blank"
    details = [f"finish_reason {finish!r}" if finish else "no finish_reason"]
    if response.reasoning:
        details.append("reasoning came, but no answer after it")
    if response.rejection:
        details.append(clean(response.rejection, request))
    what = f"{what} ({', '.join(details)})"
    return malformed(request, what, is_retryable=True, usage=response.usage, text=response.text)
