"""An answer that came as an event stream nobody asked for, put together into the plain answer it stands for.

Guarantees: the result has the shape of a chat completion that was not streamed, so that one reader serves
both; a stream that broke off is told from a whole one; bad data is a ValueError that names the event. Pure.

Sources: the HTML standard, section 9.2 (event streams); OpenAI's reference of chat completion chunks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from attrs import define, field

from promptkit._fields import Json
from promptkit._wire._facts import is_error_body

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_COMMENTS: Final = re.compile(r"(?:\s*:[^\r\n]*)+")
_FIELD: Final = re.compile(r"(?:data|event|id|retry):")
_DONE: Final = "[DONE]"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


parse_json: Final = json.JSONDecoder(parse_constant=_refuse_constant).decode
"""Strict JSON text to value, white space around it allowed: ValueError (NaN and infinities too), RecursionError."""


def without_comments(text: str) -> str:
    """Return ``text`` without white space around it and comment lines (``: PROCESSING``) before it."""
    text = text.strip()
    comments = _COMMENTS.match(text)
    return text[comments.end() :].lstrip() if comments else text


def looks_like_stream(text: str) -> bool:
    """True when ``text`` begins with a field of an event stream."""
    return _FIELD.match(text) is not None


def assemble(text: str) -> tuple[dict[str, Json], bool]:
    """Return the chat completion that a stream's chunks add up to, and whether the stream came to its end.

    An error met on the way is under ``error``, beside what had come before it. A stream is whole when it has
    a finish reason, the ``[DONE]`` mark, or an error.
    """
    envelope: dict[str, Json] = {}
    choices: dict[Json, _Choice] = {}
    is_whole = False
    for chunk in _chunks(text):
        if chunk is _DONE:
            is_whole = True
            break
        if is_error_body(chunk):
            envelope["error"] = chunk.get("error") or chunk
            is_whole = True
            break
        for name in ("id", "model", "usage"):
            if chunk.get(name) is not None:
                envelope[name] = chunk[name]
        listed = chunk.get("choices")
        for choice in listed if isinstance(listed, list) else ():
            if isinstance(choice, dict):
                index = choice.get("index")
                choices.setdefault(index if isinstance(index, int) else 0, _Choice()).add(choice)
    envelope["choices"] = [choice.merged(index) for index, choice in sorted(choices.items())]
    return envelope, is_whole or any(choice.beside.get("finish_reason") for choice in choices.values())


def _chunks(text: str) -> Iterator[Any]:
    """Yield each event's JSON object, and `_DONE` for the closing mark."""
    for number, (name, lines) in enumerate(_events(text), 1):
        joined = "\n".join(lines).strip()
        # By the standard the lines of one event are one text; servers that forget the blank line between two
        # events mean one text a line.
        whole = _json_or(joined, None)
        values: list[Any]
        if name == "error":
            values = [{"error": joined if whole is None else whole}]
        elif whole is not None:
            values = [whole]
        else:
            values = [_DONE if line.strip() == _DONE else _json_or(line, None) for line in lines]
        for value in values:
            chunk = value[0] if isinstance(value, list) and value else value
            if chunk is not _DONE and not isinstance(chunk, dict):
                raise ValueError(f"its event {number} is not a JSON object")
            yield chunk


def _events(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each event's name and lines of data; comments and other fields are skipped."""
    name, lines = "", list[str]()
    for line in (*_LINE_END.split(text), ""):
        if not line:
            if lines:
                yield name, lines
            name, lines = "", []
        elif line.startswith("{"):  # an error written into the stream as it is
            lines.append(line)
        else:
            field_name, _, value = line.partition(":")
            if field_name == "data" and value.strip():
                lines.append(value)
            elif field_name == "event":
                name = value.strip()


def _json_or(text: str, default: Json) -> Json:
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return default


@define
class _Choice:
    """The chunks of one choice, added up."""

    pieces: dict[str, list[str]] = field(factory=dict)
    """Message fields that come as pieces of text."""
    message: dict[str, Json] = field(factory=dict)
    """Other message fields: lists are joined, of anything else the last value counts."""
    beside: dict[str, Json] = field(factory=dict)
    """Fields beside the message: the last value that was not null."""

    def add(self, choice: dict[str, Json]) -> None:
        """Add one chunk's part of this choice."""
        message = choice.get("delta") or choice.get("message")
        for name, value in message.items() if isinstance(message, dict) else ():
            if isinstance(value, str):
                self.pieces.setdefault(name, []).append(value)
            elif isinstance(value, list):
                held = self.message.get(name)
                if isinstance(held, list):
                    held.extend(value)
                else:
                    self.message[name] = list(value)
            elif value is not None:
                self.message[name] = value
        for name, value in choice.items():
            if name not in {"delta", "message", "index"} and value is not None:
                self.beside[name] = value

    def merged(self, index: Json) -> dict[str, Json]:
        """Return the choice as an answer that was not streamed has it."""
        texts = {name: "".join(pieces) for name, pieces in self.pieces.items()}
        return {**self.beside, "index": index, "message": {**texts, **self.message}}
