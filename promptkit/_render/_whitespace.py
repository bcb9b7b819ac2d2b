"""One rule for white space: a line that holds nothing but tags or comments leaves no trace in the output.

All other newlines and blanks stay as written, so ``{% if x %}a{% endif %}`` at the end of a line keeps that line's
newline, and a list of ``{% for %}`` lines leaves no gaps. ``{{ … }}`` and ``{% include %}`` print, so their lines are
kept, and so are those of tags with a mark of their own (``{%-``, ``-%}``, ``+%}``). Jinja's own ``trim_blocks`` and
``lstrip_blocks`` are off: together they would glue the text after an inline ``{% endif %}`` to the next line.

The newline of such a line is moved into its last tag, so that lines keep their numbers in errors.
"""

from __future__ import annotations

import re
from typing import Final

_STRING: Final = r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
_TOKEN: Final = re.compile(
    rf"""(?P<comment>\{{\#.*?\#\}})
       | (?P<block>\{{%(?:{_STRING}|[^"'])*?%\}})
       | (?P<print>\{{\{{(?:{_STRING}|[^"'])*?\}}\}})""",
    re.DOTALL | re.VERBOSE,
)
_START: Final = re.compile(r"\{[{%#]")
_RAW: Final = re.compile(r"\{%[-+]?\s*raw\s*-?%\}")
_ENDRAW: Final = re.compile(r"\{%[-+]?\s*endraw\s*[-+]?%\}")
_PRINTING: Final = re.compile(r"\{\{|\{%\s*include\b|\{.[-+]|.*[-+].\}\Z", re.DOTALL)
"""Tokens whose line stays: those that print, and those whose own marks say what happens to the white space."""
_NEWLINE: Final = re.compile(r"\r\n|\r|\n")


def without_tag_lines(source: str) -> str:
    """Return ``source`` such that lines of tags alone print nothing; every tag stays on its line.

    A source whose tags are broken is returned as it is: the parser says what is wrong with it.
    """
    pieces = _pieces(source)
    if pieces is None:
        return source
    out: list[str] = []
    line: list[tuple[str, bool]] = []
    for text, is_token in pieces:
        start = 0
        for newline in () if is_token else _NEWLINE.finditer(text):
            line.append((text[start : newline.start()], False))
            out += _line(line, newline.group())
            line = []
            start = newline.end()
        line.append((text[start:], is_token))
    return "".join([*out, *_line(line, "")])


def _line(line: list[tuple[str, bool]], newline: str) -> list[str]:
    """Return one line as it is, or, when it is made of tags alone, the tags with the newline inside the last."""
    tags = [text for text, is_token in line if is_token]
    is_blank = all(is_token or not text or text.isspace() for text, is_token in line)
    if not tags or not is_blank or any(map(_PRINTING.match, tags)):
        return [*(text for text, _ in line), newline]
    last = tags[-1]
    return [*tags[:-1], last[:-2], newline, last[-2:]]


def _pieces(source: str) -> list[tuple[str, bool]] | None:
    """Split into text and tokens (True); None when a token has no end. The text of a raw block is text."""
    pieces: list[tuple[str, bool]] = []
    position = 0
    while start := _START.search(source, position):
        token = _TOKEN.match(source, start.start())
        if token is None:
            return None
        pieces += [(source[position : start.start()], False), (token.group(), True)]
        position = token.end()
        if _RAW.fullmatch(token.group()):
            end = _ENDRAW.search(source, position)
            if end is None:
                return None
            pieces += [(source[position : end.start()], False), (end.group(), True)]
            position = end.end()
    pieces.append((source[position:], False))
    return pieces
