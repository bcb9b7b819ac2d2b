"""Which subschema a ``$ref`` means: identifiers, anchors and JSON Pointers, inside documents under one root.

Guarantees: nothing is opened here; a reference reaches a place in a known document, or a file that the given
opener finds under its root, or it is refused with the address it resolves to. Every schema of every document
is looked at once, so that a fault is found wherever it stands. What stands under ``const``, ``enum``,
``default`` and ``examples`` is data: a ``$ref`` or ``$id`` there means nothing.

A registry belongs to one load in one thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from attrs import evolve, field, frozen

from promptkit._definitions import NOWHERE, Place
from promptkit._fields import FrozenDict, Json
from promptkit._loading._addresses import ReferenceFaultError, pointer_of, resolve, split
from promptkit._loading._dialects import MAP_SHAPES, SCHEMA_SHAPES, Dialect, Shape, dialect_of
from promptkit._loading._schema_lint import faults
from promptkit._types import Problem

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
MAX_FAULTS: Final = 50
"""Most problems told of one schema."""

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


@frozen(eq=False)
class Document:
    """One schema document: a file, or what stands in a prompt file.

    ``name`` is shown in messages. ``positions`` gives the place of a value by its JSON Pointer, as far as it
    is known; ``place`` is that of the whole. ``value`` is frozen, and `data_fault` has found none in it.
    """

    name: str
    uri: str
    value: Json
    dialect: Dialect
    is_format_checked: bool
    place: Place = NOWHERE
    positions: Mapping[str, Place] = field(factory=FrozenDict)

    def problem(self, path: tuple[str, ...], message: str) -> Problem:
        """Return ``message`` with the pointer and the nearest known place of what it is about."""
        place = self.place
        for end in range(len(path), -1, -1):
            found = self.positions.get(pointer_of(path[:end]))
            if found is not None:
                place = found
                break
        return Problem(self.name, place.line, place.column, f"#{pointer_of(path)}: {message}")


@frozen(eq=False)
class Schema:
    """A schema in its document. ``base`` is the address that its references are relative to."""

    value: Json
    document: Document
    path: tuple[str, ...]
    base: str
    dialect: Dialect
    is_format_checked: bool

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """What tells this schema from every other of its registry."""
        return self.document.uri, self.path

    def below(self, value: Json, *path: str) -> Schema:
        """Return what stands at ``path`` in it, read as a schema that has no address of its own."""
        return Schema(value, self.document, (*self.path, *path), self.base, self.dialect, self.is_format_checked)

    def problem(self, keyword: str, message: str) -> Problem:
        """Return what is wrong with one of its keywords."""
        return self.document.problem((*self.path, keyword), message)


class SchemaFaultError(ValueError):
    """A keyword of a schema keeps it from being used; ``problem`` says where and why."""

    def __init__(self, schema: Schema, keyword: str, message: str) -> None:
        super().__init__(message)
        self.problem = schema.problem(keyword, message)


class Registry:
    """The documents of one load and the schemas in them.

    ``open_document`` gets an address without fragment and returns the document there, or raises
    `ReferenceFaultError`. ``problems`` collects what is wrong with the schemas that have been looked at.
    """

    def __init__(self, open_document: Callable[[str], Document]) -> None:
        self._open_document = open_document
        self.documents: dict[str, Document] = {}
        self.problems: list[Problem] = []
        self._schemas: dict[tuple[str, tuple[str, ...]], Schema] = {}
        self._resources: dict[str, Schema] = {}
        self._anchors: dict[tuple[str, str], Schema] = {}
        self._dynamic: dict[str, dict[str, Schema]] = {}
        self._targets: dict[tuple[tuple[str, tuple[str, ...]], str], Schema] = {}

    def add(self, document: Document) -> Schema:
        """Take a document in, look at every schema in it, and return the whole as a schema."""
        self.documents[document.uri] = document
        root = Schema(document.value, document, (), document.uri, document.dialect, document.is_format_checked)
        self._resources.setdefault(document.uri, root)
        self._scan(root)
        return self._schemas[root.key]

    def child(self, schema: Schema, *path: str) -> Schema:
        """Return the schema at ``path`` below another that has been looked at."""
        return self._schemas[schema.document.uri, (*schema.path, *path)]

    def dynamic_anchors(self, resource: str) -> Mapping[str, Schema]:
        """Return the schemas of a resource that a dynamic reference may land on, by name.

        The name of one with ``$recursiveAnchor`` is ``""``.
        """
        return self._dynamic.get(resource, {})

    def link(self) -> None:
        """Resolve every reference of every schema, opening documents as they are met, and note those that fail."""
        done = 0
        while done < len(self._schemas) and len(self.problems) < MAX_FAULTS:
            schemas = list(self._schemas.values())[done:]
            done += len(schemas)
            for schema in schemas:
                for keyword in REFERENCES:
                    if not isinstance(schema.value, Mapping) or keyword not in schema.dialect.keywords:
                        continue
                    reference = schema.value.get(keyword)
                    if not isinstance(reference, str):
                        continue
                    try:
                        self._targets[schema.key, keyword] = self.resolve(schema, reference)
                    except ReferenceFaultError as error:
                        self.problems.append(schema.problem(keyword, str(error)))

    def schemas(self) -> Iterator[Schema]:
        """Yield every schema that has been looked at."""
        yield from self._schemas.values()

    def target(self, schema: Schema, keyword: str) -> Schema:
        """Return what a reference means, once all have been linked."""
        found = self._targets[schema.key, keyword]
        return self._schemas[found.key]

    def resolve(self, schema: Schema, reference: str) -> Schema:
        """Return the schema that a reference in ``schema`` means. Raises `ReferenceFaultError`."""
        resource, fragment = split(resolve(schema.base, reference))
        root = self._resources.get(resource)
        if root is None:
            root = self.add(self._open_document(resource))
            self._resources.setdefault(resource, root)
        if not fragment:
            return root
        if fragment.startswith("/"):
            return self._at(root, fragment, reference)
        anchor = self._anchors.get((root.base, fragment))
        if anchor is None:
            raise ReferenceFaultError(f"the reference {reference[:120]} names no anchor of {_shown(resource, root)}")
        return anchor

    def _at(self, root: Schema, pointer: str, reference: str) -> Schema:
        value, path, nearest = root.value, root.path, root
        for token in pointer[1:].split("/"):
            part = token.replace("~1", "/").replace("~0", "~")
            if isinstance(value, Mapping) and part in value:
                value = value[part]
            elif isinstance(value, (list, tuple)) and _INDEX.fullmatch(part) and int(part) < len(value):
                value = value[int(part)]
            else:
                known = f"; known here are {', '.join(list(value)[:10])}" if isinstance(value, Mapping) else ""
                told = f"{root.document.name} has nothing at {pointer_of((*path, part))}{known[:200]}"
                raise ReferenceFaultError(f"the reference {reference[:120]} leads nowhere: {told}")
            path = (*path, part)
            nearest = self._schemas.get((root.document.uri, path), nearest)
        if nearest.path != path:
            self._scan(nearest.below(value, *path[len(nearest.path) :]))
        return self._schemas[root.document.uri, path]

    def _scan(self, top: Schema) -> None:
        stack = [top]
        while stack:
            schema = self._entered(stack.pop())
            if schema.key in self._schemas:
                continue
            self._schemas[schema.key] = schema
            if len(self.problems) < MAX_FAULTS:
                for path, message in faults(schema.value, schema.dialect):
                    self.problems.append(schema.document.problem((*schema.path, *path), message))
            if isinstance(schema.value, Mapping):
                stack.extend(self._children(schema))

    @staticmethod
    def _children(schema: Schema) -> Iterator[Schema]:
        for keyword, value in schema.value.items():
            shape = schema.dialect.keywords.get(keyword)
            is_list = isinstance(value, (list, tuple))
            if shape in MAP_SHAPES and isinstance(value, Mapping):
                for name, item in value.items():
                    if not (shape is Shape.DEPENDENCIES and isinstance(item, (list, tuple))):
                        yield schema.below(item, keyword, name)
            elif shape in (Shape.SCHEMAS, Shape.SCHEMA_OR_SCHEMAS) and is_list:
                for index, item in enumerate(value):
                    yield schema.below(item, keyword, str(index))
            elif shape is Shape.SCHEMA_OR_FLAG and isinstance(value, bool):
                yield schema.below({} if value else {"not": {}}, keyword)
            elif shape in SCHEMA_SHAPES and shape is not Shape.SCHEMAS and not (is_list and keyword == "items"):
                yield schema.below(value, keyword)

    def _entered(self, schema: Schema) -> Schema:
        """Return the schema with the address and dialect that its own identifier gives it, its names noted."""
        value, dialect = schema.value, schema.dialect
        if not isinstance(value, Mapping):
            return schema
        is_checked = schema.is_format_checked
        identifier = value.get(dialect.id_keyword)
        is_hidden = dialect.is_ref_alone and isinstance(value.get("$ref"), str)
        base = schema.base
        if isinstance(identifier, str) and not is_hidden:
            if schema.path and "$schema" in value and not dialect.is_ref_alone:
                found = dialect_of(value["$schema"])
                if isinstance(found, str):
                    self.problems.append(schema.problem("$schema", found))
                else:
                    dialect, is_checked = found, found.is_ref_alone
            try:
                base = self._named(schema, identifier)
            except ReferenceFaultError as error:
                self.problems.append(schema.problem(dialect.id_keyword, str(error)))
        elif schema.path and "$schema" in value and dialect_of(value["$schema"]) is not dialect:
            self.problems.append(schema.problem("$schema", "$schema belongs to the top of a document"))
        schema = evolve(schema, base=base, dialect=dialect, is_format_checked=is_checked)
        if isinstance(identifier, str) and not is_hidden:
            self._note_resource(schema, identifier)
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = value.get(keyword)
            if keyword in dialect.keywords and isinstance(name, str):
                self._note_anchor(schema, name, keyword)
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault(base, {})[name] = schema
        if "$recursiveAnchor" in dialect.keywords and value.get("$recursiveAnchor") is True:
            self._dynamic.setdefault(base, {})[""] = schema
        return schema

    def _named(self, schema: Schema, identifier: str) -> str:
        """Return the base address that an identifier makes."""
        head, fragment = split(resolve(schema.base, identifier))
        if fragment and not schema.dialect.is_ref_alone:
            raise ReferenceFaultError(f"{schema.dialect.id_keyword} must have no fragment; use $anchor for a name")
        return head

    def _note_resource(self, schema: Schema, identifier: str) -> None:
        fragment = split(identifier)[1]
        if not identifier.startswith("#"):
            known = self._resources.get(schema.base)
            if known is None or known.key == schema.key:
                self._resources[schema.base] = schema
            else:
                self._twice(schema, schema.dialect.id_keyword, schema.base)
        if not schema.path:
            self._resources[schema.document.uri] = schema
        if fragment and schema.dialect.is_ref_alone:
            self._note_anchor(schema, fragment, schema.dialect.id_keyword)

    def _note_anchor(self, schema: Schema, name: str, keyword: str) -> None:
        known = self._anchors.setdefault((schema.base, name), schema)
        if known.key != schema.key:
            self._twice(schema, keyword, name)

    def _twice(self, schema: Schema, keyword: str, name: str) -> None:
        self.problems.append(schema.problem(keyword, f"{keyword} {name[:80]} is there twice; a name means one schema"))


def _shown(resource: str, root: Schema) -> str:
    return root.document.name if resource == root.document.uri else resource[:120]
