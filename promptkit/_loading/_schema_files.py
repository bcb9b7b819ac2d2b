"""A schema file's content, with the place of everything in it: strict JSON for ``.json``, strict YAML otherwise.

Guarantees: pure; the only exception is `DocumentError`. JSON is what RFC 8259 says: no duplicate names, no NaN
and no infinities, no comments. Places within a JSON file are those that the YAML reader finds, JSON being YAML
in all but corners; where it finds none, problems are told without a line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NoReturn

from promptkit._definitions import Place
from promptkit._fields import Json
from promptkit._loading import _yaml
from promptkit._loading._text import TextFaultError, decode_text
from promptkit._types import Problem
from promptkit.errors import DocumentError


def parse_schema_file(data: bytes, name: str, shown: str) -> tuple[Json, Mapping[str, Place]]:
    """Return what the file ``name`` says and the places in it by JSON Pointer. Raises `DocumentError`."""
    if not name.endswith(".json"):
        document = _yaml.load(data, shown)
        if document.is_empty:
            raise DocumentError([Problem(shown, 0, 0, "the file is empty; expected a schema")])
        return document.value, document.root.positions()
    try:
        value = json.loads(decode_text(data), object_pairs_hook=_unique, parse_constant=_no_constant)
    except TextFaultError as error:
        raise DocumentError([Problem(shown, error.line, error.column, str(error))]) from error
    except json.JSONDecodeError as error:
        raise DocumentError([Problem(shown, error.lineno, error.colno, f"not JSON: {error.msg}")]) from error
    except RecursionError as error:
        raise DocumentError([Problem(shown, 0, 0, "too deeply nested to be read")]) from error
    except ValueError as error:
        _positions(data, shown, is_strict=True)
        raise DocumentError([Problem(shown, 0, 0, f"not JSON: {error}"[:200])]) from error
    return value, _positions(data, shown)


def _positions(data: bytes, shown: str, *, is_strict: bool = False) -> Mapping[str, Place]:
    """Return the places that the YAML reader finds in JSON; with ``is_strict`` its complaint is raised."""
    try:
        return _yaml.load(data, shown).root.positions()
    except DocumentError:
        if is_strict:
            raise
        return {}


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the name {twice[:60]!r} is there twice in one object")
    return made


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")
