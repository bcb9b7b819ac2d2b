"""How long a server asks its client to wait, read out of an answer's headers and error body.

Guarantees: the result is None or a finite number of seconds from 0 to `MAX_HINT_S`; whatever cannot be
read with certainty (a list, a word, a negative or absurd number) counts as no hint. Pure.

Sources: RFC 9110 section 10.2.3 (``Retry-After``), ``retry-after-ms`` and ``x-ratelimit-*`` as documented by
OpenAI, ``anthropic-ratelimit-*``, OpenRouter's ``error.metadata.headers``, Google's ``RetryInfo``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from promptkit._fields import Json, is_number

MAX_HINT_S: Final = 86_400.0
"""A longer wait than a day is no advice to one run, and most often another unit or a mistake."""

_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,15})?", re.ASCII)
_DURATION: Final = re.compile(r"(?:\d{1,15}(?:\.\d{1,15})?(?:ms|us|µs|ns|h|m|s|d))+", re.ASCII)
_DURATION_PART: Final = re.compile(r"([\d.]+)(ms|us|µs|ns|h|m|s|d)")
_UNIT_S: Final = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_LIMIT_WORDS: Final = frozenset({"x", "ratelimit", "rate", "limit", "anthropic"})

# A number that counts seconds or milliseconds from 1970, told by its size: 1e9 s is 2001 and 1e11 s is 5138.
_EPOCH_S: Final = 1e9
_EPOCH_MS: Final = 1e11
_LARGEST: Final = 1e15


def retry_hint(headers: Mapping[str, str], error_body: Json, now: float) -> float | None:
    """Return the seconds the server asks to wait, or None when it gives no usable advice.

    ``retry-after-ms`` and ``Retry-After`` (seconds, whole or not, or an HTTP date) come first. Then the
    ``*ratelimit*-reset*`` headers: of the dimensions (requests, tokens …) that are used up, the longest; when
    no dimension says what remains of it, the shortest. They may stand in ``error.metadata.headers`` of the
    body too. Last comes ``retryDelay`` in the body's ``error.details``.

    ``headers`` may spell its names in any case. ``now`` is wall time, seconds since the epoch; where the
    answer has a ``Date``, dates are compared with that instead, so that a wrong clock on this side does no harm.
    """
    error = error_body.get("error", error_body) if isinstance(error_body, Mapping) else None
    metadata = error.get("metadata") if isinstance(error, Mapping) else None
    inner = metadata.get("headers") if isinstance(metadata, Mapping) else None
    for source in (headers, inner):
        if isinstance(source, Mapping):
            hint = _of_headers({str(name).lower(): value for name, value in source.items()}, now)
            if hint is not None:
                return hint
    details = error.get("details") if isinstance(error, Mapping) else None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, Mapping) and "retryDelay" in detail:
            return _bounded(_duration(str(detail["retryDelay"]).strip()))
    return None


def _of_headers(headers: Mapping[str, object], now: float) -> float | None:
    milliseconds = _plain(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    stated = headers.get("retry-after")
    if stated is not None:
        seconds = _plain(stated)
        if seconds is None:
            seconds = _until(_http_date(stated), _http_date(headers.get("date")), now)
        hint = _bounded(seconds)
        if hint is not None:
            return hint
    return _of_limits(headers, now)


def _of_limits(headers: Mapping[str, object], now: float) -> float | None:
    resets: dict[str, float] = {}
    remaining: dict[str, float] = {}
    for name, value in headers.items():
        words = name.split("-")
        if "ratelimit" not in words and "limit" not in words:
            continue
        dimension = "-".join(word for word in words if word not in _LIMIT_WORDS and word not in {"reset", "remaining"})
        if "reset" in words:
            wait = _bounded(_reset(value, now))
            if wait is not None:
                resets[dimension] = wait
        elif "remaining" in words:
            left = _plain(value)
            if left is not None:
                remaining[dimension] = left
    used_up = [wait for dimension, wait in resets.items() if remaining.get(dimension) == 0]
    if used_up:
        return max(used_up)
    return min((wait for dimension, wait in resets.items() if dimension not in remaining), default=None)


def _reset(value: object, now: float) -> float | None:
    number = _plain(value)
    if number is not None:
        if number >= _EPOCH_MS:
            return max(number / 1000 - now, 0.0)
        return max(number - now, 0.0) if number >= _EPOCH_S else number
    text = str(value).strip()
    seconds = _duration(text)
    if seconds is not None:
        return seconds
    return _until(_iso_date(text) or _http_date(text), None, now)


def _plain(value: object) -> float | None:
    """Read a number of at most fifteen digits; signs, exponents and names of numbers are not."""
    if is_number(value):
        return float(value) if 0 <= value <= _LARGEST else None  # type: ignore[operator,arg-type]  # is_number says so
    if not isinstance(value, str) or not _NUMBER.fullmatch(value.strip()):
        return None
    return float(value)


def _duration(text: str) -> float | None:
    """Read a duration as Go writes it: ``6m0s``, ``1.5s``, ``250ms``."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNIT_S[unit] for number, unit in _DURATION_PART.findall(text))


def _http_date(value: object) -> datetime | None:
    try:
        date = parsedate_to_datetime(str(value))
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def _iso_date(text: str) -> datetime | None:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def _until(date: datetime | None, server_now: datetime | None, now: float) -> float | None:
    if date is None:
        return None
    return max(date.timestamp() - (server_now.timestamp() if server_now is not None else now), 0.0)


def _bounded(seconds: float | None) -> float | None:
    return seconds if seconds is not None and seconds <= MAX_HINT_S else None
