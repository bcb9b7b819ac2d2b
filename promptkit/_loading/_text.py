"""Bytes as text (UTF-8 and nothing else, with the place of what is not), and text in messages.

Guarantees: strict decoding, the same on every machine; a byte order mark is dropped; UTF-16 and UTF-32 are
refused by name; no message shows any of the text.
"""

from __future__ import annotations

from typing import Final

MAX_SHOWN: Final = 40
"""Most characters of a value that a message shows."""


_OTHER_MARKS: Final = (
    (b"\xff\xfe\x00\x00", "UTF-32"),  # before UTF-16, whose mark it begins with
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


class TextFaultError(Exception):
    """Bytes are not the text they should be. ``offset`` counts bytes from 0; ``line``, ``column`` from 1."""

    def __init__(self, message: str, offset: int, line: int, column: int) -> None:
        super().__init__(message)
        self.offset = offset
        self.line = line
        self.column = column


def decode_text(data: bytes) -> str:
    """Return UTF-8 bytes as text, a byte order mark dropped. Raises `TextFaultError`; never shows the content."""
    for mark, encoding in _OTHER_MARKS:
        if data.startswith(mark):
            raise TextFaultError(f"not UTF-8: the file is {encoding}; save it as UTF-8", 0, 1, 1)
    if _is_bare_utf16(data):
        raise TextFaultError(
            "not UTF-8: the file looks like UTF-16 without a byte order mark; save it as UTF-8", 0, 1, 1
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The offset counts from what follows a byte order mark.
        start = error.start + (3 if data.startswith(b"\xef\xbb\xbf") else 0)
        line, column = line_and_column(data[:start].decode("utf-8-sig"))
        message = f"not UTF-8: byte 0x{data[start]:02X} at offset {start}; save the file as UTF-8"
        raise TextFaultError(message, start, line, column) from error


def _is_bare_utf16(data: bytes) -> bool:
    """Tell UTF-16 without a mark by its zeros: every other byte of mostly ASCII text is one."""
    head = data[:64]
    return len(head) > 1 and len(data) % 2 == 0 and (not any(head[0::2]) or not any(head[1::2])) and any(head)


def line_and_column(before: str) -> tuple[int, int]:
    """Return the 1-based line and column of the character that follows the text ``before``."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def quote(text: str, limit: int = MAX_SHOWN) -> str:
    """Return ``text`` in double quotes on one line, shortened to ``limit`` characters."""
    shown = text if len(text) <= limit else text[: limit - 1] + "…"
    return '"' + "".join(character if character.isprintable() else "?" for character in shown) + '"'
