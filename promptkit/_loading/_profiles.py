"""Profile files: which server and model, with which numbers.

Guarantees: a profile that loads names a backend or an endpoint, holds no credential and no capacity, and
every number in it is within its range.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from promptkit._canonical import sha256_of_bytes
from promptkit._definitions import ProfileDefinition
from promptkit._fields import names_a_secret
from promptkit._loading import _yaml
from promptkit._loading._execution import COMMON_KEYS, MISNAMED, read_execution, read_headers
from promptkit._loading._shape import Item, Report, Section
from promptkit._loading._store import DefinitionStore
from promptkit._loading._text import quote
from promptkit._types import STRUCTURED_OUTPUTS, Problem
from promptkit._wire import target_url
from promptkit.errors import ConfigError

PROFILE_KEYS: Final = (
    "backend",
    "endpoint",
    "api_key_env",
    *COMMON_KEYS,
    "headers",
    "max_tokens_field",
    "structured_output",
    "proxy",
)

_LITERAL_KEY: Final = (
    "a credential does not belong in a file; name the environment variable that has it with api_key_env"
)
_MISPLACED: Final[dict[str, str]] = {
    **MISNAMED,
    **dict.fromkeys(
        ("api_key", "apikey", "key", "token", "secret", "password", "authorization", "bearer"), _LITERAL_KEY
    ),
    "base_url": "write endpoint",
    "api_base": "write endpoint",
    "url": "write endpoint",
    "provider": "write backend, or the server's own field in extra_body",
    "execution": "in a profile these values stand at the top level",
    "output": "output belongs in a prompt",
    "messages": "messages belong in a prompt",
    "inputs": "inputs belong in a prompt",
    "strict": "strict belongs in a prompt's output",
    "session_field": "session_field belongs to the Backend in code",
}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ProfileStore:
    """The profile files below a root. Safe for any number of threads."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._store: DefinitionStore[ProfileDefinition] = DefinitionStore(root, kind="profile", parse=parse_profile)

    def load(self, name: str) -> ProfileDefinition:
        """Return the profile called ``name``; see `DefinitionStore.load`."""
        return self._store.load(name)

    def names(self) -> list[str]:
        """Return the names of all profiles, sorted."""
        return self._store.names()


def parse_profile(data: bytes, path: str, name: str) -> ProfileDefinition:
    """Return what a profile file says. Raises `DocumentError` with every problem."""
    problems: list[Problem] = []
    document = _yaml.load(data, path, problems=problems)
    report = Report(path, problems)
    misplaced = {**{key: _LITERAL_KEY for key in document.root.entries if names_a_secret(key)}, **_MISPLACED}
    top = Section(report, Item("", document.root), PROFILE_KEYS, misplaced=misplaced, document=document)
    endpoint = _endpoint(report, top)
    headers = read_headers(report, top)
    definition = ProfileDefinition(
        name=name,
        path=path,
        hash=sha256_of_bytes(data),
        backend=top.string("backend"),
        api_key_env=_api_key_env(report, top),
        execution=read_execution(report, top, endpoint=endpoint, headers=headers),
        max_tokens_field=top.choice("max_tokens_field", ("max_tokens", "max_completion_tokens")) or "max_tokens",
        structured_output=top.choice("structured_output", STRUCTURED_OUTPUTS),
        proxy=top.choice("proxy", ("none",)),
        backend_place=top.place_of("backend"),
    )
    if top.is_usable and "backend" not in top.entries and "endpoint" not in top.entries:
        report.tell(top.place, "a profile needs a backend (its id) or an endpoint (an address), or both")
    report.raise_if_any()
    return definition


def _endpoint(report: Report, top: Section) -> str | None:
    value = top.string("endpoint")
    if value is None:
        return None
    try:
        target_url(value)
    except ConfigError as error:
        report.tell(top.place_of("endpoint"), f"endpoint: {error}")
        return None
    for name, _value in parse_qsl(urlsplit(value.strip()).query, keep_blank_values=True):
        if names_a_secret(name):
            report.tell(
                top.place_of("endpoint"), f"endpoint: the parameter {quote(name)} is made for a key: {_LITERAL_KEY}"
            )
            return None
    return value


def _api_key_env(report: Report, top: Section) -> str | None:
    item = top.item("api_key_env")
    if item is None:
        return None
    value: Any = item.node.value
    if isinstance(value, str) and value and not _VARIABLE.fullmatch(value):
        # What stands here may be the key itself: it is not shown.
        report.tell(
            item.node.place,
            "api_key_env takes the name of an environment variable (letters, digits and _), never the key itself",
        )
        return None
    return top.string("api_key_env")
