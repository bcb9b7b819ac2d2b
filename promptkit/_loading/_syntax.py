"""What a YAML syntax error means for the author of the file: where to look and what to write instead.

Guarantees: pure; any text and any complaint of the parser gets an answer, and no answer shows more of the
file than a word of the parser's does.
"""

from __future__ import annotations

import re
from typing import Final

from promptkit._definitions import Place

_WITHOUT_BLANK: Final = re.compile(r" *(?:- +)*\w+:[^\s/]")
"""A key whose colon has no blank after it (and no // either, as in an address)."""
_BLOCK_HEADER: Final = re.compile(r".*[:\-] +([|>])[-+0-9]*\s*(#.*)?$")


_AT_CONTEXT: Final[tuple[tuple[str, str], ...]] = (
    ("found unexpected end of stream", "the quote that opens here is never closed"),
    (
        "could not find expected ':'",
        'expected "key: value" on this line (is the colon, or the blank after it or after a -, missing?)',
    ),
)
_AT_PROBLEM: Final[tuple[tuple[str, str], ...]] = (
    (
        "mapping values are not allowed",
        'a second ": " in one value, or a key that is indented wrongly; quote text that contains ": "',
    ),
    (
        "sequence entries are not allowed",
        'a list item ("- ") must begin on a line of its own; quote text that begins with "- "',
    ),
    ("found character '\\t'", "a tab cannot stand here; use spaces, or put the text in quotes or a | block"),
    ("found character '", "text that begins with this character must be quoted"),
    ("mapping keys are not allowed", 'text that begins with "? " must be quoted'),
    ("found unknown escape character", "in double quotes \\ begins an escape; write \\\\, or use single quotes"),
    ("expected escape sequence", "in double quotes \\ begins an escape; write \\\\, or use single quotes"),
    ("expected '<document start>'", "something follows the end of what this file says; check indentation and quotes"),
    ("expected <block end>", "this line does not line up with the mapping or list {context}; check its indentation"),
    ("expected ',' or", "the bracket {context} is not closed before this"),
    ("expected a comment or a line break", "a text after | or > begins on the next line, indented; or leave the | out"),
)


def explain_syntax(lines: list[str], problem: str, place: Place, context: Place | None) -> tuple[Place, str]:
    """Return where an author should look and what to do about the parser's complaint."""
    line = lines[place.line - 1]
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    if "\t" in indent and place.column <= len(indent) + 1:
        return place, "a tab is used for indentation; use spaces"
    if message := _dedented_block(lines, place.line):
        return place, message
    begun_at = place if context is None else context
    if problem.startswith("could not find expected ':'") and (message := _text_outside(lines, begun_at.line)):
        return begun_at, message
    if problem.startswith("mapping values are not allowed") and _WITHOUT_BLANK.match(_line_above(lines, place.line)):
        return place, "the line above has no blank after its colon, so it is no key; write key: value"
    if context is not None:
        for start, message in _AT_CONTEXT:
            if problem.startswith(start):
                return context, message
    if problem.startswith("expected <block end>") and place.column > len(indent) + 1:
        return place, "something follows a value that has ended; quote the whole value (' inside '…' is written '')"
    begun = "" if context is None else f"that begins on line {context.line}, column {context.column}"
    for start, message in _AT_PROBLEM:
        if problem.startswith(start):
            return place, message.format(context=begun)
    return place, f"not valid YAML: {problem[:200]}"


def _line_above(lines: list[str], number: int) -> str:
    """Return the nearest line above that has something on it."""
    return next((line for line in reversed(lines[: number - 1]) if line.strip()), "")


def _text_outside(lines: list[str], number: int) -> str | None:
    """Explain a line that follows a block's header and is not indented, so that the block has no text."""
    header = _BLOCK_HEADER.match(_line_above(lines, number))
    return header and f"the text after {header[1]} must be indented further than its key on the line above"


def _dedented_block(lines: list[str], number: int) -> str | None:
    """Explain a line that is indented less than the first line of the block text it is meant to belong to."""
    line = lines[number - 1]
    indent = len(line) - len(line.lstrip(" "))
    if not line.strip():
        return None
    for above in range(number - 2, -1, -1):
        text = lines[above]
        if not text.strip() or len(text) - len(text.lstrip(" ")) > indent:
            continue
        header = _BLOCK_HEADER.match(text)
        first = next((n for n in range(above + 1, number - 1) if lines[n].strip()), None)
        if header is None or first is None:
            return None
        base = _key_indent(text)
        if indent <= base:
            return None
        return (
            f"indentation of block text: this line is indented less than the text's first line (line {first + 1}); "
            f"indent it as far, or use {header[1]}{indent - base} instead of {header[1]} on line {above + 1}"
        )
    return None


def _key_indent(line: str) -> int:
    """Return how far the key, or the list item, that a block text belongs to is indented."""
    dashes = re.match(r" *(- +)*", line)
    key = len(dashes.group()) if dashes else 0
    if re.match(r"[|>]", line[key:]) and dashes:
        return line.rfind("-", 0, key)
    return key
