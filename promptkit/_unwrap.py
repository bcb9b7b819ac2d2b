"""The one clean-up of an answer that is not JSON as it stands: known wrappings come off, nothing is guessed.

Guarantees: the value returned stands in the answer character for character, between wrappings that models and
servers are known to leave around it; no bracket is closed, nothing is taken out of a value, and where two
readings are possible there is none. Every position reported counts in the answer as it came.

In this order, each at most where it belongs: white space and a byte order mark; reasoning blocks at the start;
Harmony channels, of which the final one counts; a code fence around the whole; prose around exactly one object
or list. Work is linear in the length of the answer.
"""

from __future__ import annotations

import re
from typing import Final

from promptkit._fields import Json
from promptkit._strict_json import NotJsonError, UnsafeJsonError, parse_json
from promptkit._types import Issue

# Reasoning marks that models write (Qwen, DeepSeek; Seed; Magistral; Kimi; Command), opening to closing.
_TAGS: Final = {
    **{f"<{name}>": f"</{name}>" for name in ("think", "thinking", "thought", "reasoning", "seed:think")},
    "[think]": "[/think]",
    "\u25c1think\u25b7": "\u25c1/think\u25b7",
    "<|start_thinking|>": "<|end_thinking|>",
}
_CLOSINGS: Final = {mark: re.compile(re.escape(closing), re.IGNORECASE) for mark, closing in _TAGS.items()}
_CLOSING: Final = re.compile("|".join(map(re.escape, _TAGS.values())), re.IGNORECASE)
_OPENING: Final = re.compile("|".join(map(re.escape, _TAGS)), re.IGNORECASE)
# Harmony (the response format of gpt-oss): <|start|>ROLE<|channel|>NAME ...<|message|>CONTENT<|end|>.
_HARMONY: Final = re.compile(r"<\|(?:start|channel|message)\|>")
_FINAL: Final = re.compile(r"<\|channel\|>\s*final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>")
_HARMONY_END: Final = re.compile(r"<\|(?:end|return)\|>\s*\Z")

_FENCE: Final = re.compile(r"(`{3,}|~{3,})[ \t]*[\w+.-]*[ \t]*(?:\r?\n)?")
_BRACKET: Final = re.compile(r"[][{}]")
_STRING_OR_BRACKET: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[][{}]', re.DOTALL)
_CLOSES: Final = {"}": "{", "]": "["}
# A bracketed aside of prose: words only, nothing that JSON could have been meant by.
_ASIDE: Final = re.compile(r"[\[{][^][{}\"'\u2018-\u201f:,]*[\]}]")
# What may be a reference or a placeholder of the prose as well as a value.
_MARK: Final = re.compile(r"[\[{]\s*\d*\s*[\]}]")
_MEMBER_NAME: Final = re.compile(r'"\s*:\s*\Z')

_BLANKS: Final = "".join(chr(code) for code in range(0x3001) if chr(code).isspace()) + "\u200b\ufeff"
_BLANK: Final = re.compile(f"[{re.escape(_BLANKS)}]*+")
_BEGINNINGS: Final = ("{", "[", '"', "`", "~")

MAX_GROUPS: Final = 100
"""How many bracketed groups are looked at before the answer counts as unreadable."""


def has_open_reasoning(text: str) -> bool:
    """Say whether ``text`` starts with a reasoning block that is never closed: what follows is no answer."""
    try:
        _skip_reasoning(text, *_strip(text, 0, len(text)))
    except UnsafeJsonError:
        return True
    return False


def parse_wrapped(text: str) -> Json:
    """Return the one JSON value inside the known wrappings of ``text``.

    Raises `UnsafeJsonError` or `NotJsonError`; the position of the latter counts in ``text``.
    """
    start, end = _strip(text, 0, len(text))
    start, end = _final_channel(text, _skip_reasoning(text, start, end), end)
    start, end = _skip_fence(text, start, end)
    if start == end:
        raise UnsafeJsonError(Issue("", "json", "no answer: the output is empty", "one JSON value"))
    try:
        return _parse(text, start, end)
    except NotJsonError as exc:
        return _value_in_prose(text, start, end, exc)


def _parse(text: str, start: int, end: int) -> Json:
    try:
        return parse_json(text[start:end])
    except NotJsonError as exc:
        raise NotJsonError(exc.reason, exc.position + start) from exc


def _skip_blank(text: str, start: int, end: int) -> int:
    return _BLANK.match(text, start, end).end()  # type: ignore[union-attr]  # it matches nothing as well


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span without white space and byte order marks at its ends."""
    start = _skip_blank(text, start, end)
    return start, start + len(text[start:end].rstrip(_BLANKS))


def _skip_reasoning(text: str, start: int, end: int) -> int:
    """Return where the text behind the reasoning blocks at its start begins.

    Some chat templates write the opening mark into the prompt, so that the answer has the closing one alone:
    then the answer begins behind it. It is not looked for in a text that begins as JSON or a fence does.
    """
    while True:
        if opening := _OPENING.match(text, start, end):
            closing = _CLOSINGS[opening.group().lower()].search(text, opening.end(), end)
            if closing is None:
                raise UnsafeJsonError(
                    Issue("", "json", f"no answer: reasoning not finished ({opening.group()} is never closed)")
                )
        else:
            closing = None if text.startswith(_BEGINNINGS, start, end) else _CLOSING.search(text, start, end)
            if closing is None or _OPENING.search(text, start, closing.start()):
                return start
        start = _skip_blank(text, closing.end(), end)


def _final_channel(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span of the final channel's content, or the whole where there are no channels."""
    if text.startswith(_BEGINNINGS, start, end):
        return start, end
    header = _FINAL.search(text, start, end)
    if header is None:
        if _HARMONY.match(text, start, end):
            raise UnsafeJsonError(
                Issue("", "json", "no answer: there are channel marks, and none is of the final channel")
            )
        return start, end
    if ending := _HARMONY_END.search(text, header.end(), end):
        end = ending.start()
    return _strip(text, header.end(), end)


def _skip_fence(text: str, start: int, end: int) -> tuple[int, int]:
    """Return what a code fence around the whole span holds: from the first opening to the last closing fence."""
    opening = _FENCE.match(text, start, end)
    if opening is None:
        return start, end
    fence = opening.group(1)
    if end - len(fence) < opening.end() or not text.endswith(fence, start, end):
        return start, end
    return _strip(text, opening.end(), end - len(fence))


def _value_in_prose(text: str, start: int, end: int, error: NotJsonError) -> Json:
    """Return the one object or list in a span that is not JSON itself, as ``error`` says."""
    groups = _groups(text, start, end)
    if not groups:
        raise error
    value: Json = None
    found: list[tuple[int, int]] = []
    unsafe: UnsafeJsonError | None = None
    for group in groups:
        try:
            value = _parse(text, *group)
        except UnsafeJsonError as exc:
            unsafe = exc
        except NotJsonError:
            if _ASIDE.fullmatch(text, *group):
                continue
            raise  # it may have been meant as the answer, so nothing beside it is
        found.append(group)
        if len(found) > 1:
            raise UnsafeJsonError(Issue("", "json", "more than one JSON value in the answer", "one JSON value alone"))
    if not found:
        raise error
    if unsafe is not None:
        raise unsafe
    first, last = found[0]
    around = (text[start:first], text[last:end])
    if (
        _MARK.fullmatch(text, first, last)
        or _MEMBER_NAME.search(around[0])
        or any(mark.search(part) for mark in (_OPENING, _CLOSING, _HARMONY) for part in around)
    ):
        raise UnsafeJsonError(
            Issue("", "json", "text around JSON that leaves its meaning open", "one JSON value alone")
        )
    return value


def _groups(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of the outermost bracketed groups.

    Where brackets do not pair up, or there are too many groups, all from the first bracket on is one group.
    """
    groups: list[tuple[int, int]] = []
    while bracket := _BRACKET.search(text, start, end):
        first = start = bracket.start()
        everything = [(groups[0][0] if groups else first, end)]
        open_brackets: list[str] = []
        while True:
            token = _STRING_OR_BRACKET.search(text, start, end)
            if token is None:
                return everything
            start, mark = token.end(), token.group()
            if mark in ("{", "["):
                open_brackets.append(mark)
            elif mark in _CLOSES:
                if not open_brackets or open_brackets.pop() != _CLOSES[mark]:
                    return everything
                if not open_brackets:
                    break
        groups.append((first, start))
        if len(groups) > MAX_GROUPS:
            return everything
    return groups
