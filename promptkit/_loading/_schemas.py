"""JSON Schemas from files and from prompt files, compiled once and never silently wrong.

Guarantees:

* A schema that loads is judged as its dialect's standard says, keyword by keyword; one that cannot be is refused
  with `DocumentError`, every problem with its place and JSON Pointer. See docs/reference/json-schema.md.
* Nothing outside the schema root is opened, and nothing over the network.
* A compiled schema is immutable and shared by all threads; equal schemas share one compiled check, which is
  made once even when many threads meet it first. A file that has changed is read again.

What guards what: ``_lock`` guards the two tables, and is held for look-ups only. Each entry of the table of
checks has a lock of its own, held while the check is made, so that others wait for that one schema alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar
from urllib.parse import quote, unquote

from attrs import evolve, field, frozen

from promptkit._canonical import sha256_of
from promptkit._definitions import NOWHERE, Place
from promptkit._fields import FrozenDict, Json, describe, freeze, nearest
from promptkit._loading import _yaml
from promptkit._loading._addresses import ROOT, ReferenceFaultError, refuse_address
from promptkit._loading._bundling import bundle, strict_obstacles
from promptkit._loading._cache import FileCache
from promptkit._loading._compilation import Check, CompilationFaultError, ValueFaultError, compile_core
from promptkit._loading._core import Core
from promptkit._loading._dialects import LATEST, dialect_of
from promptkit._loading._files import FileMissingError, FileRefusedError, Root, name_fault
from promptkit._loading._references import MAX_FAULTS, Document, Registry, Schema, SchemaFaultError
from promptkit._loading._schema_files import parse_schema_file
from promptkit._loading._schema_issues import explain
from promptkit._loading._schema_lint import data_fault
from promptkit._loading._translation import check_patterns, translate_schema
from promptkit._types import Issue, Problem
from promptkit.errors import DocumentError

_MAX_CHECKS: Final = 1024
_MAX_WARM: Final = 1024
_SUFFIXES: Final = (".json", ".yaml", ".yml")


@frozen(eq=False)
class CompiledSchema:
    """A schema that is ready to judge values. Safe for any number of threads.

    ``source`` is the schema as its author wrote it, ``wire_schema`` the same as one self-contained document
    (files that it refers to are under ``$defs``), and ``hash`` that of the latter. ``strict_obstacles`` says
    what keeps it from the strict mode of servers, () when nothing does. ``notes`` are remarks for its author:
    what has no effect, or is not checked.
    """

    source: Json
    wire_schema: Json = field(repr=False)
    hash: str
    strict_obstacles: tuple[str, ...] = field(repr=False)
    notes: tuple[Problem, ...] = field(repr=False)
    _core: Core = field(repr=False)
    _check: Check = field(repr=False)

    def validate(self, value: Json) -> tuple[Issue, ...]:
        """Return what is wrong with ``value``, () when it is valid; at most twenty issues. Never raises, never blocks.

        ``value`` is JSON data: None, bool, int, float, str, lists or tuples, and dicts with string keys. It is
        not changed, and defaults are not filled in.
        """
        try:
            fault = self._check.fault(value)
        except ValueFaultError as error:
            return (Issue("", "limit", f"the value cannot be checked: {error}"),)
        return explain(self._core, value, fault) if fault is not None else ()


@frozen(eq=False)
class _Warm:
    """What an earlier load found, and the files it depended on as they were."""

    source: Json
    files: tuple[tuple[str, Document], ...]
    compiled: CompiledSchema


class SchemaStore:
    """The schemas under one root, and those in place that may refer to them. Safe for any number of threads."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Root(root, kind="schema")
        self._files: FileCache[Document] = FileCache(self._root, self._parse_file, max_bytes=_yaml.MAX_BYTES)
        self._lock = threading.Lock()
        self._warm: dict[int | str, _Warm] = {}
        self._checks: _Once[tuple[Core, Check]] = _Once(_MAX_CHECKS)

    def load(
        self, schema: Json, *, path: str = "", place: Place = NOWHERE, positions: Mapping[str, Place] | None = None
    ) -> CompiledSchema:
        """Return a schema ready for use.

        ``schema`` is a mapping or a boolean, or the name of a file under the root (JSON or YAML), optionally
        with a fragment (``common.json#/$defs/address``). ``path``, ``place`` and ``positions`` (by JSON Pointer
        into the schema) say where it stands, for messages. Reads files; a schema that is unchanged since it was
        last loaded costs one ``stat`` for each file that it depends on. Raises `DocumentError`.
        """
        if not isinstance(schema, (str, Mapping, bool)):
            told = f"expected a schema: a mapping, a boolean or the name of a file, not {describe(schema)}"
            raise DocumentError([Problem(path, place.line, place.column, told)])
        key = schema if isinstance(schema, str) else id(schema) if isinstance(schema, FrozenDict) else None
        warm = self._warm.get(key) if key is not None else None
        if warm is not None and (warm.source is schema or isinstance(schema, str)) and self._is_current(warm):
            return warm.compiled
        opened: dict[str, Document] = {}
        registry = Registry(lambda uri: self._open(uri, opened))
        try:
            if isinstance(schema, str):
                root = registry.resolve(_outside(path, place), _address(schema))
            else:
                root = registry.add(_in_place(schema, path, place, positions))
        except ReferenceFaultError as error:
            raise DocumentError([Problem(path, place.line, place.column, str(error))]) from error
        compiled = self._compiled(registry, root)
        if key is not None:
            files = tuple(opened.items())
            with self._lock:
                while len(self._warm) >= _MAX_WARM:
                    del self._warm[next(iter(self._warm))]
                self._warm[key] = _Warm(schema, files, compiled)
        return compiled

    def shown(self, name: str) -> str:
        """Return a schema file's name as messages show it."""
        return self._root.shown(name)

    def names(self) -> list[str]:
        """Return the names of all schema files under the root, sorted; the files themselves are not read."""
        return sorted(self._root.walk(_SUFFIXES))

    def _is_current(self, warm: _Warm) -> bool:
        try:
            return all(self._files.get(name) is document for name, document in warm.files)
        except (DocumentError, FileRefusedError):
            return False

    def _compiled(self, registry: Registry, root: Schema) -> CompiledSchema:
        registry.link()
        check_patterns(registry)
        if registry.problems:
            problems = sorted(registry.problems, key=lambda problem: (problem.path, problem.line, problem.column))
            raise DocumentError(problems[:MAX_FAULTS])
        root = registry.child(root)
        try:
            wire = bundle(registry, root)
            # The addresses and dialects count too: they decide what the same words mean.
            content = [root.document.uri, list(root.path)] + [
                [uri, document.dialect.name, document.is_format_checked, document.value]
                for uri, document in registry.documents.items()
            ]
            core, check = self._checks.get(sha256_of(content), lambda: _made(registry, root))
        except SchemaFaultError as error:
            raise DocumentError([error.problem]) from error
        except CompilationFaultError as error:
            raise DocumentError([root.document.problem(root.path, str(error))]) from error
        except RecursionError as error:
            told = "too deeply nested for the stack that is left"
            raise DocumentError([root.document.problem(root.path, told)]) from error
        return CompiledSchema(
            source=freeze(root.value),
            wire_schema=wire,
            hash=sha256_of(wire),
            strict_obstacles=strict_obstacles(wire, root.dialect),
            # The check is shared with equal schemas elsewhere, its remarks are about the place of this one.
            notes=tuple(registry.documents[uri].problem(path, message) for uri, path, message in core.notes),
            core=core,
            check=check,
        )

    # ----------------------------------------------------------------------------------------- documents

    def _open(self, uri: str, opened: dict[str, Document]) -> Document:
        if not uri.startswith(ROOT) or uri.startswith(ROOT + "/") or uri == ROOT:
            raise refuse_address(uri)
        name = unquote(uri.removeprefix(ROOT))
        if fault := name_fault(name):
            raise ReferenceFaultError(f"{name[:80]!r} cannot be a file under the schema root: {fault}")
        try:
            document = opened[name] = self._files.get(name)
        except FileMissingError as error:
            raise ReferenceFaultError(f"{error}{nearest(name, self._root.walk(_SUFFIXES))}") from error
        except FileRefusedError as error:
            raise ReferenceFaultError(f"{self._root.shown(name)[:200]}: {error}") from error
        return document

    def _parse_file(self, data: bytes, name: str) -> Document:
        shown = self._root.shown(name)
        value, positions = parse_schema_file(data, name, shown)
        return _document(value, shown, ROOT + quote(name), positions.get("", NOWHERE), positions)


def _made(registry: Registry, root: Schema) -> tuple[Core, Check]:
    core = translate_schema(registry, root)
    return core, compile_core(core)


def _document(value: Json, name: str, uri: str, place: Place, positions: Mapping[str, Place]) -> Document:
    """Return a document in the dialect that it declares; 2020-12 with formats checked when it declares none."""
    dialect, is_checked = LATEST, True
    if isinstance(value, Mapping) and "$schema" in value:
        found = dialect_of(value["$schema"])
        if isinstance(found, str):
            where = positions.get("/$schema", place)
            raise DocumentError([Problem(name, where.line, where.column, f"#/$schema: {found}")])
        dialect, is_checked = found, found.is_ref_alone
    if not isinstance(value, (Mapping, bool)):
        told = f"#: expected a schema, which is a mapping or a boolean, not {describe(value)}"
        raise DocumentError([Problem(name, place.line, place.column, told)])
    document = Document(name, uri, value, dialect, is_checked, place, positions)
    if fault := data_fault(value):
        raise DocumentError([document.problem(*fault)])
    return evolve(document, value=freeze(value))


def _in_place(value: Json, path: str, place: Place, positions: Mapping[str, Place] | None) -> Document:
    return _document(value, path, ROOT, place, positions or {})


def _address(name: str) -> str:
    """Return a file's name, with its fragment, as a reference from the root."""
    file, mark, fragment = name.partition("#")
    return f"{ROOT}{quote(file)}{mark}{fragment}"


def _outside(path: str, place: Place) -> Schema:
    """Return where a file's name stands, as the schema that refers to it."""
    document = Document(path, ROOT, True, LATEST, True, place)  # noqa: FBT003 - the schema that says nothing
    return Schema(True, document, (), ROOT, LATEST, True)  # noqa: FBT003 - likewise


# ------------------------------------------------------------------------------------------------- once

_MadeT = TypeVar("_MadeT")


class _Slot(Generic[_MadeT]):
    __slots__ = ("lock", "made")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: _MadeT | None = None


class _Once(Generic[_MadeT]):
    """Things by key, each made by one thread while others that want the same wait; a failure is not kept."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._slots: dict[str, _Slot[_MadeT]] = {}

    def get(self, key: str, make: Callable[[], _MadeT]) -> _MadeT:
        with self._lock:
            slot = self._slots.get(key)
            if slot is None:
                while len(self._slots) >= self._capacity:
                    del self._slots[next(iter(self._slots))]
                slot = self._slots[key] = _Slot()
        with slot.lock:
            if slot.made is None:
                slot.made = make()
            return slot.made
