"""How values, names and places are shown in issues: short, on one line, without control characters. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from promptkit._fields import Json

MAX_EXCERPT: Final = 80
"""Most characters of a text that are quoted."""

_MAX_NAME: Final = 60
_MAX_LISTED: Final = 12
_MAX_LIST: Final = 240
_MAX_BITS: Final = 250
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*|[^\x00-\x20\"']{1,60}")

Path = tuple[str | int, ...]
"""A place in a value: names of properties and indexes of items."""


def pointer_of(path: Path) -> str:
    """Return a path as a JSON Pointer."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def excerpt(value: Json, limit: int = MAX_EXCERPT) -> str:
    """Return the kind of a value and, for a scalar, the value itself on one short line."""
    if isinstance(value, str):
        return f"string {quoted(value, limit)}"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"boolean {str(value).lower()}"
    if isinstance(value, int):
        # A number can be larger than Python is willing to write out.
        return f"integer {value}" if value.bit_length() < _MAX_BITS else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return f"number {value!r}"
    if isinstance(value, Mapping):
        return f"object with {listed(map(shown_name, value))}" if value else "an empty object"
    if isinstance(value, (list, tuple)):
        return f"array of {len(value)}" if value else "an empty array"
    return f"a value of the Python type {type(value).__name__}"


def quoted(text: str, limit: int = MAX_EXCERPT) -> str:
    """Return a text in quotation marks, in part when it is long, with nothing in it that is not printable."""
    shown = json.dumps(text[:limit], ensure_ascii=False)
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in shown)
    return shown if len(text) <= limit else f'{shown[:-1]}…"'


def cut(text: str, limit: int) -> str:
    """Return at most ``limit`` characters of a text."""
    return text if len(text) <= limit else text[:limit] + "…"


def shown_name(name: object) -> str:
    """Return the name of a property, in quotation marks unless it is a plain one."""
    text = str(name)
    return text if _PLAIN_NAME.fullmatch(text) and len(text) <= _MAX_NAME else quoted(text, _MAX_NAME)


def listed(parts: Iterable[str]) -> str:
    """Return parts with commas between them, the first few when they are many."""
    parts = list(parts)
    shown: list[str] = []
    length = 0
    for part in parts[:_MAX_LISTED]:
        length += len(part)
        if shown and length > _MAX_LIST:
            break
        shown.append(part)
    left = len(parts) - len(shown)
    return ", ".join(shown) + (f" and {left} more" if left else "")


def as_json(value: Json) -> str:
    """Return a value of a schema as JSON, in part when it is long."""
    if isinstance(value, str):
        return quoted(value, _MAX_NAME)
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return excerpt(value)
    return cut(text, _MAX_NAME)


def subject(path: Path) -> str:
    """Return what a sentence about the value at ``path`` begins with."""
    if not path:
        return "the value"
    indexes = ""
    for part in reversed(path):
        if isinstance(part, int):
            indexes = f"[{part}]{indexes}"
        else:
            return f"{shown_name(part)}{indexes}"
    return f"item {indexes[1:-1]}" if len(path) == 1 else f"item {indexes}"


def inside(path: Path) -> str:
    """Return what a sentence says about where something is missing or too much."""
    return f" in {subject(path)}" if path else ""
