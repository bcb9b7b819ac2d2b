r"""Canonical JSON and the hashes made of it: the same meaning gives the same bytes, on any machine.

The form, so that another program can recompute it: UTF-8 without a byte order mark; object keys sorted by
Unicode code point; no white space; strings escaped as RFC 8259 requires and no further (``"``, ``\``, and
the control characters below U+0020, as ``\b \t \n \f \r`` or ``\u00xx`` in lower case); integers in
decimal, exact at any size; other numbers as the shortest text that reads back as the same double, in
Python's ``repr`` spelling (``0.1``, ``1.0``, ``1e+16``); ``1`` and ``1.0`` differ. NaN and infinities have no form.
Half of a surrogate pair, which UTF-8 has no bytes for, is escaped as ``\udxxx`` in lower case, as in ECMAScript's
well-formed ``JSON.stringify``.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

from promptkit._fields import Json

_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), check_circular=False
).encode


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def escape_surrogates(text: str) -> str:
    r"""Return JSON text with every half of a surrogate pair escaped as ``\udxxx``, so that it can be encoded.

    In JSON such a character can stand inside a string only, where its escape means the same.
    """
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def utf8(text: str) -> bytes:
    """Return ``text`` as UTF-8; half of a surrogate pair becomes the three bytes that its number would have."""
    return text.encode("utf-8", "surrogatepass")


def canonical_json(value: Json) -> bytes:
    """Return the canonical form of a JSON value, UTF-8 encoded."""
    text = _encode(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return escape_surrogates(text).encode()


def sha256_of_bytes(data: bytes) -> str:
    """Return ``sha256:`` and the hexadecimal digest of ``data``."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def sha256_of(value: Json) -> str:
    """Return ``sha256:`` and the digest of the canonical form of a JSON value."""
    return sha256_of_bytes(canonical_json(value))
