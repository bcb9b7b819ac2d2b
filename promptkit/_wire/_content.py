"""The parts of an answer: what was written, what was thought, what was refused, and what it cost.

Guarantees: every function takes any JSON value and returns; what is not of a known shape counts as absent. Pure.

Sources: the references of OpenAI, OpenRouter, DeepSeek, Mistral and vLLM on messages and usage.
"""

from __future__ import annotations

from typing import Final

from attrs import define, field

from promptkit._fields import MAX_NUMBER, Json, describe, is_number
from promptkit._types import GenerateRequest, Usage
from promptkit._wire._exchange import clean

REASONING: Final = ("reasoning_content", "reasoning", "reasoning_details", "thinking")
"""Fields of a message that servers put thoughts into."""


@define
class Content:
    text: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    strange: list[str] = field(factory=list)
    """Part types, or kinds of value, that hold no text we know of."""


def read_message(message: dict[str, Json]) -> Content:
    """Return what a choice's message holds, in whichever of the known fields and parts it stands."""
    read = _read_content(message.get("content"))
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal.strip():
        read.refusal = _sound(refusal)
    for name in REASONING:
        thoughts = _read_thoughts(message.get(name))
        if thoughts is not None:
            read.reasoning = thoughts
            break
    return read


def _read_content(content: Json) -> Content:
    if isinstance(content, str):
        return Content(text=content)
    read = Content()
    if content is None:
        return read
    if isinstance(content, dict) and "type" in content:
        content = [content]
    if not isinstance(content, list):
        read.strange.append(describe(content))
        return read
    texts: list[str] = []
    refusals: list[str] = []
    thoughts: list[str] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            read.strange.append(describe(part))
            continue
        kind = part.get("type", "text")
        if kind in ("text", "output_text") and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "refusal" and isinstance(part.get("refusal"), str):
            refusals.append(part["refusal"])
        elif kind in ("reasoning", "thinking"):
            thoughts.append(_read_thoughts(part.get("thinking") or part.get("text")) or "")
        else:
            read.strange.append(kind[:80] if isinstance(kind, str) else describe(kind))
    read.text = "".join(texts) if texts else None
    read.refusal = _sound("".join(refusals)) or None
    read.reasoning = _sound("".join(thoughts)) or None
    return read


def _read_thoughts(value: Json) -> str | None:
    """Read thoughts: a string, or a list of parts that have a ``text`` or a ``summary``."""
    if isinstance(value, str):
        return _sound(value) or None
    if not isinstance(value, list):
        return None
    texts = [
        text
        for part in value
        if isinstance(part, dict) and isinstance(text := part.get("text") or part.get("summary"), str)
    ]
    return _sound("".join(texts)) or None


def _sound(text: str) -> str:
    """Return ``text`` with ``?`` for every half of a surrogate pair: nobody validates it, but it will be written."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def why_no_text(message: dict[str, Json], read: Content, request: GenerateRequest) -> str | None:
    """Return what stands where the text should be; None when nothing does."""
    if message.get("tool_calls") or message.get("function_call"):
        field_name = "tool_calls" if message.get("tool_calls") else "function_call"
        return f"no text content: the model answered with {field_name}, and no tools are offered by promptkit"
    if read.strange:
        types = clean(", ".join(sorted(set(read.strange))), request, 100)
        return f"no text content: the message's content has only part type {types}"
    return None


def read_usage(value: Json) -> Usage | None:
    """Return the numbers of a ``usage`` object that are numbers; None when there is none.

    A count is a whole number from 0 (``7.0`` counts as one); anything else, a string included, is as good
    as absent. A ``total_tokens`` that is absent is the sum of the prompt's and the completion's, where both are
    there; one that was sent is kept, even if it is not that sum. Cached and reasoning tokens are parts of those
    and never added.
    """
    if not isinstance(value, dict) or not value:
        return None
    prompt = _count(value, "prompt_tokens", "input_tokens")
    completion = _count(value, "completion_tokens", "output_tokens")
    total = _count(value, "total_tokens")
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    prompt_details = value.get("prompt_tokens_details") or value.get("input_tokens_details")
    completion_details = value.get("completion_tokens_details") or value.get("output_tokens_details")
    cached = _count(prompt_details, "cached_tokens")
    if cached is None:
        cached = _count(value, "prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens")
    reasoning = _count(completion_details, "reasoning_tokens")
    if reasoning is None:
        reasoning = _count(value, "reasoning_tokens")
    usage = Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=total,
        cached_tokens=cached,
        reasoning_tokens=reasoning,
        cost=_cost(value.get("cost")),
    )
    return usage if usage != _NOTHING_REPORTED else None


_NOTHING_REPORTED: Final = Usage()
_MAX_COST: Final = 1e15


def _cost(value: Json) -> float | None:
    return float(value) if is_number(value) and 0 <= value <= _MAX_COST else None


def _count(holder: Json, *names: str) -> int | None:
    if not isinstance(holder, dict):
        return None
    for name in names:
        value = holder.get(name)
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is int and 0 <= value <= MAX_NUMBER:
            return value
    return None
