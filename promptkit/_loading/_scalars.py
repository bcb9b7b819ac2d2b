"""Plain scalars: what an unquoted word of a YAML file means.

Guarantees: the core schema of YAML 1.2 (1.2.2, section 10.3.2), read into JSON values: only ``true`` and
``false`` are booleans, dates and ``1_000`` are strings. What two versions of YAML read differently (leading
zeros), and what JSON cannot hold (infinities, NaN), is a fault. Work is linear in the text.
"""

from __future__ import annotations

import math
import re
from typing import Final

from promptkit._fields import MAX_BITS, Json
from promptkit._loading._text import MAX_SHOWN, quote

MAX_DIGITS: Final = 300
"""Longest integer, in characters: Python's own bound for reading one, and quadratic work, are far above."""

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_BASED: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LEADING_ZERO: Final = re.compile(r"[-+]?0[0-9]+")


def resolve(raw: str) -> tuple[Json, str | None]:
    """Return what a plain scalar means, or what is wrong with it."""
    if raw in _NULL:
        return None, None
    if raw in _BOOLEANS:
        return _BOOLEANS[raw], None
    if raw[0] not in "+-.0123456789":
        return raw, None
    if _LEADING_ZERO.fullmatch(raw):
        return None, (
            f"{raw[:MAX_SHOWN]} has a leading zero, which is read in different ways: write the number without it, "
            "or quote it if it is a string"
        )
    if _NOT_FINITE.fullmatch(raw):
        return None, f"{raw} is not a number that JSON has; quote it if it is a string"
    if _INTEGER.fullmatch(raw):
        return _integer(raw, 10)
    if _BASED.fullmatch(raw):
        return _integer(raw, 0)
    if _FLOAT.fullmatch(raw):
        number = float(raw)
        return (number, None) if math.isfinite(number) else (None, f"{quote(raw)} is too large for a number")
    return raw, None


def _integer(raw: str, base: int) -> tuple[Json, str | None]:
    if len(raw) <= MAX_DIGITS and (number := int(raw, base)).bit_length() <= MAX_BITS:
        return number, None
    return None, f"an integer of {len(raw)} digits is too large for a number; quote it if it is a string"
