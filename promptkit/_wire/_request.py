"""A request as the body and the address of a chat-completions call.

Guarantees: what is not set is not sent; the author's messages and schema are sent as they are, never
rewritten; nothing of the request is changed. Pure.

Sources: OpenAI's chat completions reference; RFC 3986 for addresses.
"""

from __future__ import annotations

import base64
import json
import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

from promptkit._fields import Json
from promptkit._types import GenerateRequest, Message
from promptkit.errors import ConfigError, InvalidRequestError

_COMPLETIONS: Final = "/chat/completions"
_OTHER_CALL: Final = re.compile(
    r"((?<!/chat)/completions|/responses|/embeddings|/messages|/api/chat|/api/generate)/*\Z"
)
_PLACEHOLDER: Final = re.compile(r"[{}<>]")
_BLANK_OR_CONTROL: Final = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029]")


@lru_cache(maxsize=256)
def target_url(endpoint: str) -> str:
    """Return the address that requests for ``endpoint`` go to: ``/chat/completions`` below it.

    White space around it and slashes at its end are dropped; a query string stays (Azure's ``api-version``);
    an endpoint that is the full address already is taken as it is. Nothing else is added: servers differ in
    whether and which version stands in their path. Raises `ConfigError` for anything but an http or https
    URL with a host, for the address of another call of the API, for a user name or password in it, and for a
    fragment.
    """
    text = endpoint.strip()
    example = "it must be like https://host/v1"
    if not text or _BLANK_OR_CONTROL.search(text):
        raise ConfigError(f"an endpoint is blank, or has white space or a control character inside; {example}")
    try:
        parts = urlsplit(text)
        host, _port = parts.hostname, parts.port
    except ValueError as exc:
        raise ConfigError(f"an endpoint is not a URL ({exc}); {example}") from exc
    if _PLACEHOLDER.search(text):
        raise ConfigError(f"an endpoint has a placeholder in it, which nothing fills in; {example}")
    if parts.scheme not in {"http", "https"} or not host:
        raise ConfigError(f"endpoint {text.partition('?')[0]!r} has no http:// or https:// with a host; {example}")
    if "@" in parts.netloc:
        raise ConfigError(f"the endpoint on host {host!r} has a user name or password in it: use api_key_env instead")
    if not host.isascii():
        raise ConfigError(f"endpoint host {host!r} is not ASCII: write it in its xn-- form")
    if parts.fragment or text.endswith("#"):
        raise ConfigError(f"the endpoint on host {host!r} has a fragment (#…), which a server never sees: leave it out")
    if other := _OTHER_CALL.search(parts.path):
        raise ConfigError(
            f"the endpoint on host {host!r} ends in {other[1]}, the address of another call: end it before that, where "
            f"{_COMPLETIONS} follows"
        )
    path = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~")
    query = quote(parts.query, safe="/%:@!$&'()*+,;=~?")
    if not path.endswith(_COMPLETIONS):
        path += _COMPLETIONS
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


# --------------------------------------------------------------------------------------------- the request

_encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode
_OURS: Final = ("messages", "stream")
_JSON_ONLY: Final = "Answer with one JSON value and nothing else: no explanation before or after it, no code fence."
_UNFIT_FOR_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


def encode(request: GenerateRequest) -> dict[str, Json]:
    """Return the body of the chat-completions call.

    A number that is None is left out, and ``stream`` is false in so many words. A message without images has
    a plain string as its content; one with images has a text part, if there is text, and the images as data URIs.

    How the output contract travels:

    ========================  ==========================================  ==================================
    ``structured_output``     ``json_schema`` contract                    ``json`` contract
    ========================  ==========================================  ==================================
    ``json_schema``           ``response_format`` with the schema         ``response_format: json_object``
    ``json_object``           ``response_format: json_object``, and the   ``response_format: json_object``
                              schema in the system message
    ``prompt``                the schema in the system message            one sentence in the system message
    ========================  ==========================================  ==================================

    "In the system message" means: at the end of the first message after a blank line if that is a system message
    (many chat templates allow only one), or else as a system message of its own in front. The schema itself
    is sent as the author wrote it, in every mode; ``strict`` is sent only when ``request.is_strict``.

    ``extra_body`` is laid over the result last, one top-level key replacing another whole; ``messages`` and
    ``stream`` cannot be replaced, which is a `ConfigError`.
    """
    body: dict[str, Json] = {"stream": False}
    if request.model is not None:
        body["model"] = request.model
    body["messages"] = messages = [_encode_message(message) for message in request.messages]
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.top_p is not None:
        body["top_p"] = request.top_p
    if request.max_tokens is not None:
        body[request.max_tokens_field] = request.max_tokens
    if request.seed is not None:
        body["seed"] = request.seed
    if request.stop is not None:
        body["stop"] = list(request.stop)
    if request.presence_penalty is not None:
        body["presence_penalty"] = request.presence_penalty
    if request.frequency_penalty is not None:
        body["frequency_penalty"] = request.frequency_penalty
    if request.output_format != "text":
        _encode_contract(request, body, messages)
    if request.session_field is not None and request.session_id is not None:
        body[request.session_field] = request.session_id
    if request.extra_body:
        for key in _OURS:
            if key in request.extra_body:
                raise ConfigError(f"extra_body must not set {key!r}, which the client sets itself")
        body.update(request.extra_body)
    return body


def encode_bytes(request: GenerateRequest) -> bytes:
    """Return `encode`'s body as UTF-8 JSON.

    Raises `ConfigError` when ``extra_body`` holds what JSON cannot carry, and `InvalidRequestError` when a
    text has half of a surrogate pair in it, which UTF-8 cannot carry.
    """
    try:
        return _encode_json(encode(request)).encode()
    except UnicodeEncodeError as exc:
        raise InvalidRequestError(
            "a message has half of a surrogate pair in it (a broken emoji, or bytes decoded with surrogateescape): "
            "UTF-8 cannot carry it; decode the input with errors='replace'"
        ) from exc
    except (TypeError, ValueError, RecursionError) as exc:
        raise ConfigError(
            "extra_body or the output schema holds something that JSON cannot carry: only null, booleans, finite "
            "numbers, strings, and lists and mappings of these"
        ) from exc


def _encode_message(message: Message) -> dict[str, Json]:
    if not message.images:
        return {"role": message.role, "content": message.content}
    parts: list[Json] = [{"type": "text", "text": message.content}] if message.content else []
    for image in message.images:
        if image.data is None:
            raise InvalidRequestError("an image that was read back from a form without its bytes cannot be sent")
        uri = f"data:{image.media_type};base64,{base64.b64encode(image.data).decode('ascii')}"
        parts.append({"type": "image_url", "image_url": {"url": uri}})
    return {"role": message.role, "content": parts}


def _encode_contract(request: GenerateRequest, body: dict[str, Json], messages: list[dict[str, Json]]) -> None:
    has_schema = request.output_format == "json_schema" and request.output_schema is not None
    mode = request.structured_output
    if mode == "json_schema" and has_schema:
        name = _UNFIT_FOR_NAME.sub("_", request.output_schema_name)[:64] or "output"
        contract: dict[str, Json] = {"name": name, "schema": request.output_schema}
        if request.is_strict:
            contract["strict"] = True
        body["response_format"] = {"type": "json_schema", "json_schema": contract}
        return
    if mode != "prompt":
        body["response_format"] = {"type": "json_object"}
    if has_schema:
        _tell(messages, f"{_JSON_ONLY} It must satisfy this JSON Schema:\n{_encode_json(request.output_schema)}")
    elif mode == "prompt":
        _tell(messages, _JSON_ONLY)


def _tell(messages: list[dict[str, Json]], text: str) -> None:
    """Put ``text`` into the system message; the encoded messages are ours to change."""
    if not messages or messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": text})
        return
    first = messages[0]
    if isinstance(first["content"], str):
        first["content"] = f"{first['content']}\n\n{text}" if first["content"] else text
    else:
        first["content"].append({"type": "text", "text": text})
