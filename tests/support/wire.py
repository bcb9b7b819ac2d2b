"""Requests and answers for the tests of the wire format."""

from __future__ import annotations

import json
from typing import Any

from promptkit._fields import Secret
from promptkit._types import GenerateRequest, GenerateResponse, Message
from promptkit._wire import check_response, decode

KEY = "sk-planted-9f8e7d6c5b4a3210"
VARIABLE = "WIRE_TEST_KEY"
URL = "https://models.example/v1/chat/completions?api-version=7"
NOW = 1_767_225_500.0
"""100 seconds before 2026-01-01T00:00:00Z."""
COUNTS = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def make_request(**changes: Any) -> GenerateRequest:
    """Return a request to backend ``b1`` for model ``m1`` on profile ``fast``, with `KEY` as its credential."""
    values: dict[str, Any] = {
        "messages": (Message("user", "Say hi."),),
        "endpoint": "https://models.example/v1",
        "model": "m1",
        "backend_id": "b1",
        "profile": "fast",
        "credential": Secret(KEY),
        "credential_variable": VARIABLE,
    }
    return GenerateRequest(**{**values, **changes})


def completion(content: Any = "hi", *, finish: Any = "stop", usage: Any = COUNTS, **message: Any) -> dict[str, Any]:
    """Return a chat completion with one choice."""
    return {
        "id": "c1",
        "object": "chat.completion",
        "model": "m1",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
        ],
        "usage": usage,
    }


def read(
    body: Any = b"", *, status: int = 200, headers: dict[str, str] | None = None, request: GenerateRequest | None = None
) -> GenerateResponse:
    """Decode and check an answer; ``body`` is bytes, a text, or a value to be sent as JSON."""
    request = request or make_request()
    if not isinstance(body, (bytes, str)):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode()
    headers = {"Content-Type": "application/json"} if headers is None else headers
    return check_response(decode(status, headers, body, request=request, url=URL, now=NOW), request)
