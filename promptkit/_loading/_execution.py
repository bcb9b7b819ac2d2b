"""The execution values that prompt and profile files share: their names, ranges and how they are read.

Guarantees: what is read here, `ExecutionOverride` takes; absent stays absent, and 0, "" and [] are values.
"""

from __future__ import annotations

import re
from typing import Any, Final

from promptkit._fields import Json, freeze_headers, names_a_secret
from promptkit._loading._shape import Item, Range, Report, Section, as_list, as_string, is_given
from promptkit._types import ExecutionOverride, RetryPolicy
from promptkit.errors import ConfigError

NUMBERS: Final[dict[str, Range]] = {
    "temperature": Range(at_least=0),
    "top_p": Range(at_least=0, at_most=1),
    "max_tokens": Range(at_least=1, is_integer=True),
    "seed": Range(is_integer=True),
    "presence_penalty": Range(),
    "frequency_penalty": Range(),
    "timeout_s": Range(above=0, at_most=86400),
}
RETRY_NUMBERS: Final[dict[str, Range]] = {
    "budget": Range(at_least=0, at_most=100, is_integer=True),
    "base_delay_s": Range(at_least=0, at_most=3600),
    "max_delay_s": Range(at_least=0, at_most=3600),
    "max_retry_after_s": Range(at_least=0, at_most=86400),
}
COMMON_KEYS: Final = ("model", *NUMBERS, "stop", "retry", "extra_body")
"""Keys of a prompt's ``execution``; a profile has these and more."""

CAPACITY: Final = "belongs to the Backend in code; files never set capacity"
MISNAMED: Final[dict[str, str]] = {
    "concurrency_limit": f"concurrency_limit {CAPACITY}",
    "queue_capacity": f"queue_capacity {CAPACITY}",
    "timeout": "write timeout_s, in seconds",
    "timeout_ms": "write timeout_s, in seconds",
    "retries": "write retry: {budget: …}",
    "max_retries": "write retry: {budget: …}",
    "budget": "budget belongs in retry",
    "base_delay_s": "base_delay_s belongs in retry",
    "max_delay_s": "max_delay_s belongs in retry",
    "max_retry_after_s": "max_retry_after_s belongs in retry",
    "max_completion_tokens": "write max_tokens; a profile's max_tokens_field chooses the name that is sent",
    "stop_sequences": "write stop",
    "temp": "write temperature",
    "max_new_tokens": "write max_tokens",
    "max_length": "write max_tokens",
    "stream": "answers are never streamed",
}

CLIENT_FIELDS: Final = ("messages", "stream")
"""Fields of the request body that ``extra_body`` cannot replace."""
_CREDENTIAL_HEADERS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "x-auth"})
_NO_CREDENTIAL: Final = frozenset({"idempotency-key", "x-idempotency-key"})
_CREDENTIAL_FIELDS: Final = frozenset(
    {"api_key", "apikey", "x_api_key", "access_token", "auth_token", "authorization", "password", "secret", "bearer"}
)
_CREDENTIAL_VALUE: Final = re.compile(r"(?:bearer|basic)\s+\S|sk-[\w-]{8,}", re.IGNORECASE)
_CLIENT_HEADERS: Final = frozenset({"content-length", "content-type", "transfer-encoding", "connection", "host"})


def read_execution(report: Report, section: Section, **more: Any) -> ExecutionOverride:
    """Return the values that ``section`` gives under `COMMON_KEYS`, and ``more`` ones."""
    values: dict[str, Any] = {name: section.number(name, bounds) for name, bounds in NUMBERS.items()}
    values["model"] = section.string("model")
    values["stop"] = _stop(report, section.item("stop"))
    values["extra_body"] = _extra_body(report, section)
    if retry := section.section("retry", RETRY_NUMBERS):
        values["retry"] = RetryPolicy(**{name: retry.number(name, bounds) for name, bounds in RETRY_NUMBERS.items()})
    return ExecutionOverride(**values, **more)


def read_headers(report: Report, section: Section) -> dict[str, str] | None:
    """Return the ``headers`` of a profile: names and values that HTTP can carry, and no credential."""
    item = section.item("headers")
    if item is None or section.mapping("headers") is None:
        return None
    headers: dict[str, str] = {}
    for name, node in item.node.entries.items():
        place = item.node.keys[name]
        if _is_credential(name.lower(), node.value):
            report.tell(
                place,
                f"{item.label}: a credential does not belong in a file; name its environment variable with "
                f"api_key_env, or give the header {name} to the Backend in code",
            )
        elif name.lower() in _CLIENT_HEADERS:
            report.tell(place, f"{item.label}: the header {name} is set by the client")
        elif (value := as_string(report, Item(f"{item.label}.{name[:60]}", node), may_be_blank=True)) is not None:
            try:
                headers.update(freeze_headers({name: value}, item.label))
            except ConfigError as error:
                report.tell(place, str(error))
    return headers


def _is_credential(name: str, value: Json) -> bool:
    if name in _CREDENTIAL_HEADERS or (names_a_secret(name) and name not in _NO_CREDENTIAL):
        return True
    return isinstance(value, str) and _CREDENTIAL_VALUE.match(value) is not None


def _tell_credentials(report: Report, item: Item) -> None:
    """Tell of every field of the request body, however deep, that is made for a key."""
    left = [item]
    while left:
        here = left.pop()
        left += [Item(f"{here.label}[{number}]", child) for number, child in enumerate(here.node.items)]
        for key, child in here.node.entries.items():
            label = f"{here.label}.{key[:60]}"
            if key.lower().replace("-", "_") in _CREDENTIAL_FIELDS:
                report.tell(
                    here.node.keys[key],
                    f"{label}: a credential does not belong in a file; name its environment variable with api_key_env",
                )
            else:
                left.append(Item(label, child))


def _extra_body(report: Report, section: Section) -> Json:
    body = section.mapping("extra_body")
    item = section.item("extra_body")
    if body is None or item is None:
        return None
    for key in CLIENT_FIELDS:
        if key in body:
            report.tell(item.node.keys[key], f"{item.label}: the field {key} is set by the client")
    _tell_credentials(report, item)
    return body


def _stop(report: Report, item: Item | None) -> str | tuple[str, ...] | None:
    if item is None or not is_given(report, item):
        return None
    if item.node.style != "sequence":
        return as_string(report, item, may_be_blank=True)
    texts = [as_string(report, entry, may_be_blank=True) for entry in as_list(report, item, "strings") or ()]
    return tuple(text for text in texts if text is not None)
