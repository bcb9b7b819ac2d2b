r"""Canonical JSON and the hashes made of it: the same meaning gives the same bytes, on any machine.

The form, so that another program can recompute it: UTF-8 without a byte order mark; object keys sorted by
Unicode code point; no white space; strings escaped as RFC 8259 requires and no further (``"``, ``\``, and
the control characters below U+0020, as ``\b \t \n \f \r`` or ``\u00xx`` in lower case); integers in
decimal, exact at any size; other numbers as the shortest text that reads back as the same double, in
Python's ``repr`` spelling (``0.1``, ``1.0``, ``1e+16``); ``1`` and ``1.0`` differ. NaN and infinities have no form.
"""

from __future__ import annotations

import hashlib
import json

from promptkit._fields import Json

_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), check_circular=False
).encode


def canonical_json(value: Json) -> bytes:
    """Return the canonical form of a JSON value, UTF-8 encoded."""
    return _encode(value).encode()


def sha256_of_bytes(data: bytes) -> str:
    """Return ``sha256:`` and the hexadecimal digest of ``data``."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def sha256_of(value: Json) -> str:
    """Return ``sha256:`` and the digest of the canonical form of a JSON value."""
    return sha256_of_bytes(_encode(value).encode())
