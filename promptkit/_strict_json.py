"""One JSON value out of a text, by RFC 8259 and nothing looser, frozen as it is built.

Guarantees: `parse_json` returns what ``json.loads`` would, made of `FrozenDict` and `FrozenList`, or raises
`NotJsonError` (the text is not one JSON value) or `UnsafeJsonError` (it is, but says something that cannot be
kept or relied on: a repeated key, NaN, a number beyond a double, half a surrogate pair, nesting beyond
`MAX_DEPTH`). Nothing else escapes for any text; work and memory are linear in its length.

What is assumed, because it keeps a valid answer cheap: the parser of the standard library calls its hooks for
every object and every number with a fraction or an exponent, so that those are judged while they are built;
everything that costs more (places of the flaws, nesting) is only looked for when a count says it may matter.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, Final

from promptkit._fields import FrozenDict, FrozenList, Json
from promptkit._types import Issue

MAX_DEPTH: Final = 100
"""How many lists and objects may stand inside each other: far above real answers, far below what recursion allows."""
MAX_CHARS: Final = 16 * 1024 * 1024
"""The longest text that is read, in characters; the built-in client bounds a whole response by as many bytes."""
MAX_ISSUES: Final = 20
"""How many flaws of one text are listed."""

_WHITE_SPACE: Final = " \t\n\r"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_NO_MARKS: Final = dict.fromkeys(code for code in range(128) if chr(code) not in '"[]{}')
_STEP: Final = {"[": 1, "{": 1, "]": -1, "}": -1}


class NotJsonError(Exception):
    """The text is not one JSON value: ``reason``, and the 0-based ``position`` of the first wrong character."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


class UnsafeJsonError(Exception):
    """The text is JSON with content that must not be used: ``issues``, at least one."""

    def __init__(self, *issues: Issue) -> None:
        super().__init__(str(issues[0]))
        self.issues = issues


class _FlawError(Exception):
    """Raised inside the parser by a hook; which flaw, and where, is found out by `_find_flaws`."""


def parse_json(text: str) -> Json:
    """Return the one JSON value that ``text`` is, with white space around it allowed, deeply immutable."""
    if len(text) > MAX_CHARS:
        raise UnsafeJsonError(Issue("", "json", f"longer than {MAX_CHARS:,} characters", "a shorter answer"))
    body = text.strip(_WHITE_SPACE)
    lists = body.count("[")
    if lists + body.count("{") > MAX_DEPTH and body[0] in "[{" and _is_too_deep(body):
        raise UnsafeJsonError(_TOO_DEEP)
    try:
        value, end = (_STRICT if lists else _STRICT_WITHOUT_LISTS).raw_decode(body)
        if type(value) is list:
            value = _frozen_list(value)
    except json.JSONDecodeError as exc:
        raise _not_json(exc, _blanks_before(text)) from exc
    except RecursionError as exc:  # the caller itself stands close to the limit
        raise UnsafeJsonError(_TOO_DEEP) from exc
    except (ValueError, _FlawError) as exc:  # ValueError: an integer of more digits than Python converts
        raise UnsafeJsonError(*_find_flaws(body)) from exc
    if end != len(body):
        raise NotJsonError("text after the JSON value", _blanks_before(text) + end + _blanks_before(body[end:]))
    if _may_hold_surrogates(body) and (issues := _find_flaws(body)):
        raise UnsafeJsonError(*issues)
    return value


def escape_pointer(key: str) -> str:
    """Return ``key`` as one reference token of a JSON Pointer (RFC 6901), always encodable."""
    return without_surrogates(key).replace("~", "~0").replace("/", "~1")


def without_surrogates(text: str) -> str:
    """Return ``text`` with U+FFFD for every half of a surrogate pair, so that it can be encoded and logged."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


# ------------------------------------------------------------------------------------------ the quick parse


def _frozen_list(items: list[Any]) -> FrozenList[Any]:
    if list in map(type, items):
        items = [_frozen_list(item) if type(item) is list else item for item in items]
    return FrozenList(items)


def _object_without_lists(pairs: list[tuple[str, Any]]) -> FrozenDict[str, Any]:
    made = FrozenDict(pairs)
    if len(made) != len(pairs):
        raise _FlawError
    return made


_set_item = dict.__setitem__  # FrozenDict refuses to be changed; in `_object` it is still being made


def _object(pairs: list[tuple[str, Any]]) -> FrozenDict[str, Any]:
    made = FrozenDict(pairs)
    if len(made) != len(pairs):
        raise _FlawError
    for key, value in pairs:
        if type(value) is list:
            _set_item(made, key, FrozenList(value) if list not in map(type, value) else _frozen_list(value))
    return made


def _float(digits: str) -> float:
    number = float(digits)
    if number - number:  # NaN, and so true, for an infinity alone
        raise _FlawError
    return number


def _constant(name: str) -> float:
    raise _FlawError(name)


_STRICT: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)
_STRICT_WITHOUT_LISTS: Final = json.JSONDecoder(
    object_pairs_hook=_object_without_lists, parse_float=_float, parse_constant=_constant
)

_TOO_DEEP: Final = Issue(
    "", "json", f"nested too deeply: more than {MAX_DEPTH} lists and objects inside each other", "a flatter value"
)


def _is_too_deep(text: str) -> bool:
    """Say whether `MAX_DEPTH` is passed before the parser would find a mistake, without recursion.

    Backslashes are only allowed in strings, so that escaped ones and then escaped quotes can go by plain
    replacement; every second part between the quotes that are left is then outside of strings.
    """
    marks = text.replace("\\\\", "").replace('\\"', "").translate(_NO_MARKS)
    depths = itertools.accumulate(map(_STEP.get, "".join(marks.split('"')[::2]), itertools.repeat(0)))
    return max(depths, default=0) > MAX_DEPTH


def _blanks_before(text: str) -> int:
    return len(text) - len(text.lstrip(_WHITE_SPACE))


def _may_hold_surrogates(text: str) -> bool:
    """Say whether a character of ``text`` may be half a surrogate pair, as it stands or by an escape."""
    if "\\" in text and ("\\ud" in text or "\\uD" in text):
        return True
    return not text.isascii() and _SURROGATE.search(text) is not None


def _not_json(error: json.JSONDecodeError, offset: int) -> NotJsonError:
    reason, position = error.msg.removesuffix(" at"), error.pos
    # Python 3.13 points at a comma too many and older versions behind it; both mean the same.
    comma = position if error.doc[position : position + 1] == "," else len(error.doc[:position].rstrip()) - 1
    closing = error.doc[comma + 1 :].lstrip(_WHITE_SPACE)[:1]
    if error.doc[comma : comma + 1] == "," and closing and closing in "]}":
        reason, position = f"a comma before {closing!r}", error.doc.index(closing, comma)
    return NotJsonError(reason[0].lower() + reason[1:], position + offset)


# ------------------------------------------------------------------------------------- places of the flaws


class _Bad:
    """Stands in the tree for a value that is refused."""

    __slots__ = ("expected", "message")

    def __init__(self, message: str, expected: str) -> None:
        self.message = message
        self.expected = expected


class _Pairs:
    """Stands in the tree for an object, its repeated keys kept."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def _tolerant_float(digits: str) -> float | _Bad:
    number = float(digits)
    return _Bad("not finite: beyond the range of a double", "a smaller number") if number - number else number


def _tolerant_int(digits: str) -> int | _Bad:
    try:
        return int(digits)
    except ValueError:
        return _Bad(f"an integer of {len(digits):,} digits, more than can be converted", "a smaller integer")


def _tolerant_constant(name: str) -> _Bad:
    return _Bad(f"{name} is not JSON and not finite", "a finite number or null")


_TOLERANT: Final = json.JSONDecoder(
    object_pairs_hook=_Pairs,
    parse_float=_tolerant_float,
    parse_int=_tolerant_int,
    parse_constant=_tolerant_constant,
)


def _find_flaws(text: str) -> list[Issue]:
    """Return what is wrong in a text that parses, in document order, at most `MAX_ISSUES`."""
    value, _ = _TOLERANT.raw_decode(text)
    issues: list[Issue] = []
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting and len(issues) < MAX_ISSUES:
        pointer, item = waiting.pop()
        if isinstance(item, _Bad):
            issues.append(Issue(pointer, "json", item.message, item.expected))
        elif isinstance(item, str) and _SURROGATE.search(item):
            issues.append(Issue(pointer, "json", "holds a lone surrogate: half a pair of \\u escapes", _PAIR))
        elif isinstance(item, list):
            waiting += [(f"{pointer}/{index}", part) for index, part in reversed(list(enumerate(item)))]
        elif isinstance(item, _Pairs):
            issues += _flaws_of_keys(pointer, item.pairs)
            waiting += [(f"{pointer}/{escape_pointer(key)}", part) for key, part in reversed(item.pairs)]
    return issues[:MAX_ISSUES]


_PAIR: Final = "the whole character, or both halves"


def _flaws_of_keys(pointer: str, pairs: list[tuple[str, Any]]) -> list[Issue]:
    issues = []
    seen: set[str] = set()
    repeated: set[str] = set()
    for key, _ in pairs:
        if key in seen and key not in repeated:
            repeated.add(key)
            shown = without_surrogates(key[:80])
            issues.append(Issue(pointer, "json", f"duplicate key {shown!r}", "every key once"))
        if key not in seen and _SURROGATE.search(key):
            issues.append(Issue(pointer, "json", "a key holds a lone surrogate: half a pair of \\u escapes", _PAIR))
        seen.add(key)
    return issues
