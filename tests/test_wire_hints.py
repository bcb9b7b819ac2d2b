"""How long a server asks to wait, read out of headers and bodies; the field cases by id."""

from __future__ import annotations

from typing import Any

import pytest

from promptkit._wire import retry_hint
from promptkit.errors import RateLimitedError
from support.wire import read


@pytest.mark.parametrize(
    "value", ["30,120", "soon", "-5", "nan", "inf", "1e9", "", "0x10", "99999999999999999999", "90000"]
)
def test_w57_an_unusable_retry_after_is_no_hint(value: str) -> None:
    """A list, a word, a negative, an infinity or an absurd number leaves the wait to the client."""
    assert retry_hint({"Retry-After": value}, None, 0.0) is None


NEW_YEAR = 1_767_225_600.0


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        pytest.param({"Retry-After": "1.5"}, None, 1.5, id="W55"),
        pytest.param({"retry-after": " 20 "}, None, 20.0, id="W55-whole"),
        pytest.param({"retry-after": "0"}, None, 0.0, id="W55-zero"),
        pytest.param({"Retry-After": "Thu, 01 Jan 2026 00:00:30 GMT"}, None, 40.0, id="W56-date"),
        pytest.param({"Retry-After": "Wed, 31 Dec 2025 00:00:00 GMT"}, None, 0.0, id="W56-past"),
        pytest.param({"Retry-After": "Thu, 01 Jan 2026 00:00:30 -0000"}, None, 40.0, id="W56-no zone"),
        pytest.param({"Retry-After": "Thu, 01 Jan 2027 00:00:00 GMT"}, None, None, id="W56-absurd"),
        pytest.param(
            {"Retry-After": "Thu, 01 Jan 2026 05:00:07 GMT", "Date": "Thu, 01 Jan 2026 05:00:00 GMT"},
            None,
            7.0,
            id="W56-clocks differ",
        ),
        pytest.param({"retry-after-ms": "750"}, None, 0.75, id="W59-ms"),
        pytest.param({"retry-after-ms": "750", "retry-after": "9"}, None, 0.75, id="W59-ms first"),
        pytest.param({"retry-after-ms": "x", "retry-after": "9"}, None, 9.0, id="W59-ms unusable"),
        pytest.param(
            {"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"}, None, 360.0, id="W59-go"
        ),
        pytest.param(
            {"X-RateLimit-Reset-Tokens": "1h2m3.5s", "X-RateLimit-Remaining-Tokens": "0"}, None, 3723.5, id="W59-long"
        ),
        pytest.param(
            {"x-ratelimit-reset-tokens": "250ms", "x-ratelimit-remaining-tokens": "0"}, None, 0.25, id="W59-short"
        ),
        pytest.param(
            {
                "x-ratelimit-reset-requests": "6m0s",
                "x-ratelimit-remaining-requests": "3",
                "x-ratelimit-reset-tokens": "2s",
                "x-ratelimit-remaining-tokens": "0",
            },
            None,
            2.0,
            id="W59-the exhausted one",
        ),
        pytest.param(
            {
                "x-ratelimit-reset-requests": "9s",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-tokens": "2s",
                "x-ratelimit-remaining-tokens": "0",
            },
            None,
            9.0,
            id="W59-both exhausted",
        ),
        pytest.param(
            {"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "3"},
            None,
            None,
            id="W59-none exhausted",
        ),
        pytest.param(
            {"x-ratelimit-reset-requests": "6m", "x-ratelimit-reset-tokens": "2s"}, None, 2.0, id="W59-nothing said"
        ),
        pytest.param({"x-ratelimit-reset": "30", "x-ratelimit-remaining": "x"}, None, 30.0, id="W59-seconds"),
        pytest.param(
            {"ratelimit-reset": "30", "ratelimit-remaining": "0", "ratelimit-limit": "9"}, None, 30.0, id="W59-draft"
        ),
        pytest.param({"x-ratelimit-reset": "1767225620"}, None, 30.0, id="W59-epoch s"),
        pytest.param({"x-ratelimit-reset": "1767225600000"}, None, 10.0, id="W59-epoch ms"),
        pytest.param({"x-ratelimit-reset": "1700000000"}, None, 0.0, id="W59-epoch past"),
        pytest.param({"x-ratelimit-reset": "900000000"}, None, None, id="W59-absurd"),
        pytest.param({"x-ratelimit-reset": "6 minutes"}, None, None, id="W59-words"),
        pytest.param(
            {
                "anthropic-ratelimit-requests-reset": "2026-01-01T00:00:05Z",
                "anthropic-ratelimit-requests-remaining": "0",
            },
            None,
            15.0,
            id="W59-iso",
        ),
        pytest.param({"x-ratelimit-reset": "2026-01-01T00:00:05"}, None, 15.0, id="W59-iso without zone"),
        pytest.param(
            {}, {"error": {"metadata": {"headers": {"X-RateLimit-Reset": 1767225600000}}}}, 10.0, id="W59-body"
        ),
        pytest.param(
            {}, {"error": {"metadata": {"headers": {"X-RateLimit-Reset": "1767225600000"}}}}, 10.0, id="W59-body text"
        ),
        pytest.param({}, {"error": {"metadata": {"headers": {"X-RateLimit-Reset": -4}}}}, None, id="W59-body negative"),
        pytest.param({}, {"error": {"metadata": {"headers": {"X-RateLimit-Reset": [1]}}}}, None, id="W59-body list"),
        pytest.param({}, {"error": {"metadata": {"headers": []}}}, None, id="W59-body no headers"),
        pytest.param({}, {"metadata": {"headers": {"Retry-After": 3}}}, 3.0, id="W59-flat body"),
        pytest.param(
            {"retry-after": "2"}, {"error": {"metadata": {"headers": {"retry-after": 60}}}}, 2.0, id="W59-header wins"
        ),
        pytest.param({"retry-after": "2", "x-ratelimit-reset": "50"}, None, 2.0, id="W59-explicit wins"),
        pytest.param({"retry-after": "soon", "x-ratelimit-reset": "50"}, None, 50.0, id="W59-explicit unusable"),
        pytest.param(
            {}, {"error": {"details": [7, {"@type": "Help"}, {"retryDelay": "34.5s"}]}}, 34.5, id="retryDelay"
        ),
        pytest.param({}, {"error": {"details": [{"retryDelay": 34}]}}, None, id="retryDelay number"),
        pytest.param({}, {"error": {"details": "none"}}, None, id="no details"),
        pytest.param({}, {"error": "slow"}, None, id="string"),
        pytest.param({}, [1], None, id="list"),
    ],
)
def test_w59_a_hint_is_read_wherever_it_stands(headers: dict[str, str], body: Any, expected: float | None) -> None:
    """Milliseconds, seconds, dates, durations and instants are told apart by their shape."""
    assert retry_hint(headers, body, NEW_YEAR - 10) == (None if expected is None else pytest.approx(expected))


def test_w59_the_hint_is_on_the_error() -> None:
    """The error carries the hint as a number."""
    with pytest.raises(RateLimitedError) as caught:
        read({}, status=429, headers={"retry-after-ms": "750"})
    assert caught.value.retry_after_s == 0.75
