"""A schema as it is sent to a server: the author's own words in one document, and whether it is fit for strict mode.

Guarantees: pure; a schema without references to other files is sent as it was written, but for the name of its
Python class, which is addressed to promptkit alone. With such references, the files that are reached are put under
``$defs`` (``definitions`` up to draft-07) and the references point there; nothing else is changed. What could not be
sent without a change of meaning is refused.

The rules of strict mode are OpenAI's (platform.openai.com/docs/guides/structured-outputs, "Supported schemas"):
every object closed, every property required, the root an object, a short list of keywords, and limits on size.
Being too careful costs a schema the strict mode only, so what the list does not name counts as unsupported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from promptkit._fields import CLASS_KEY, Json, freeze, thaw
from promptkit._loading._addresses import ROOT, pointer_of
from promptkit._loading._dialects import MAP_SHAPES, SCHEMA_SHAPES, Dialect, Shape
from promptkit._loading._references import Registry, Schema, SchemaFaultError

MAX_OBSTACLES: Final = 20

_SUPPORTED: Final = frozenset(
    {
        "$schema",
        "$ref",
        "$defs",
        "definitions",
        "title",
        "description",
        "type",
        "enum",
        "const",
        "anyOf",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minItems",
        "maxItems",
    }
)
_STRICT_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)
_MAX_NESTING: Final = 10
_MAX_PROPERTIES: Final = 5_000
_MAX_VALUES: Final = 1_000


def bundle(registry: Registry, root: Schema) -> Json:
    """Return the whole of ``root`` as one frozen document. Raises `SchemaFaultError`."""
    if len(registry.documents) == 1 and not root.path:
        return freeze(_unnamed(root.value))
    if root.path:
        # A part of a file: an empty document around it that refers to the part.
        outer: dict[str, Json] = {"$schema": root.document.value["$schema"]} if _declares(root) else {}
        names = _names_of(registry, None, {})
        outer["$ref"] = f"#/{_container(root)}/{names[root.document.uri]}{_fragment(root.path)}"
        inlined = {names[uri]: _inlined(registry, uri, root, names, None) for uri in registry.documents}
        return freeze({**outer, _container(root): inlined})
    container = _container(root)
    existing = root.value.get(container, {})
    names = _names_of(registry, root.document.uri, existing)
    made = _inlined(registry, root.document.uri, root, names, root.document.uri)
    added = {name: _inlined(registry, uri, root, names, root.document.uri) for uri, name in names.items()}
    made[container] = {**made.get(container, {}), **added}
    return freeze(_unnamed(made))


def _unnamed(value: Json) -> Json:
    """Return a schema without the name of its class."""
    if not isinstance(value, Mapping) or CLASS_KEY not in value:
        return value
    return {key: part for key, part in value.items() if key != CLASS_KEY}


def _declares(root: Schema) -> bool:
    return isinstance(root.document.value, Mapping) and "$schema" in root.document.value


def _container(root: Schema) -> str:
    return "definitions" if root.dialect.is_ref_alone else "$defs"


def _names_of(registry: Registry, root_uri: str | None, existing: Mapping[str, Json]) -> dict[str, str]:
    names: dict[str, str] = {}
    for uri in registry.documents:
        if uri == root_uri:
            continue
        stem = uri.removeprefix(ROOT).rpartition("/")[2].partition(".")[0] or "schema"
        name, number = stem, 1
        while name in existing or name in names.values():
            number += 1
            name = f"{stem}_{number}"
        names[uri] = name
    return names


def _inlined(registry: Registry, uri: str, root: Schema, names: Mapping[str, str], root_uri: str | None) -> Any:
    """Return a document's content with its references made to fit the one document that is sent."""
    document = registry.documents[uri]
    is_root = uri == root_uri
    made = thaw(document.value)
    for schema in registry.schemas():
        if schema.document is not document or not isinstance(schema.value, Mapping):
            continue
        place = _at(made, schema.path)
        if not isinstance(place, dict):
            continue
        if schema.dialect is not root.dialect:
            raise SchemaFaultError(
                schema, "$schema", f"a part of {schema.dialect} cannot be sent inside a schema of {root.dialect}"
            )
        if not is_root:
            _strip(schema, place)
        if "$ref" not in schema.value:
            continue
        target = registry.target(schema, "$ref")
        if is_root and target.document is document:
            continue
        if is_root and schema.base != registry.child(root).base:
            raise SchemaFaultError(
                schema, "$ref", "a schema with an $id of its own cannot refer to a file; remove the $id"
            )
        home = "" if target.document.uri == root_uri else f"/{_container(root)}/{names[target.document.uri]}"
        place["$ref"] = f"#{home}{_fragment(target.path)}"
    return made


def _fragment(path: tuple[str, ...]) -> str:
    return pointer_of(path).replace("%", "%25")


def _strip(schema: Schema, place: dict[str, Json]) -> None:
    """Take out of an inlined schema what gives it an address, its references being pointers now, and its class."""
    for keyword in ("$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$recursiveAnchor"):
        if keyword in place and keyword in schema.dialect.keywords:
            raise SchemaFaultError(
                schema, keyword, f"{keyword} in a file that another refers to cannot be sent; use $ref"
            )
    for keyword in (schema.dialect.id_keyword, "$schema", "$anchor", CLASS_KEY):
        place.pop(keyword, None)


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


# ------------------------------------------------------------------------------------------- strict mode


def strict_obstacles(wire: Json, dialect: Dialect) -> tuple[str, ...]:
    """Return what keeps a schema, as it is sent, from strict mode: at most `MAX_OBSTACLES` texts, () when fit."""
    found: list[str] = []
    for pointer, message in _obstacles(wire, dialect):
        found.append(f"#{pointer}: {message}")
        if len(found) == MAX_OBSTACLES:
            break
    return tuple(found)


def _obstacles(wire: Json, dialect: Dialect) -> Iterator[tuple[str, str]]:
    if not isinstance(wire, Mapping) or wire.get("type") != "object":
        yield "", "the root must have type: object"
    if isinstance(wire, bool):
        return
    properties = values = 0
    stack: list[tuple[Json, tuple[str, ...], int]] = [(wire, (), 0)]
    while stack:
        schema, path, nesting = stack.pop()
        yield from ((pointer_of(path), message) for message in _own_obstacles(schema))
        if isinstance(schema, bool):
            continue
        is_object = "properties" in schema or _has_type(schema, "object")
        if nesting > _MAX_NESTING:
            yield pointer_of(path), f"objects are nested deeper than {_MAX_NESTING} levels"
            return
        properties += len(schema.get("properties", ()))
        values += len(schema.get("enum", ()))
        below = list(_subschemas(schema, dialect))
        stack.extend(
            (item, (*path, *part), nesting + (is_object and part[0] == "properties")) for part, item in reversed(below)
        )
    if properties > _MAX_PROPERTIES:
        yield "", f"there are {properties} properties, more than {_MAX_PROPERTIES}"
    if values > _MAX_VALUES:
        yield "", f"there are {values} enum values, more than {_MAX_VALUES}"


def _own_obstacles(schema: Json) -> Iterator[str]:
    if isinstance(schema, bool):
        yield "a boolean schema is not supported"
        return
    unsupported = [name for name in schema if name not in _SUPPORTED]
    if unsupported:
        yield f"{', '.join(unsupported)} {'is' if len(unsupported) == 1 else 'are'} not supported"
    if "properties" in schema or _has_type(schema, "object"):
        if schema.get("additionalProperties") is not False:
            yield "additionalProperties is not false"
        required = schema.get("required", ())
        missing = [name for name in schema.get("properties", ()) if name not in required]
        if missing:
            yield f"{', '.join(missing[:10])} {'is' if len(missing) == 1 else 'are'} not required"
    if "format" in schema and schema["format"] not in _STRICT_FORMATS:
        yield f"format {schema['format'][:40]} is not supported"


def _has_type(schema: Mapping[str, Json], name: str) -> bool:
    kind = schema.get("type")
    return kind == name or (isinstance(kind, (list, tuple)) and name in kind)


def _subschemas(schema: Mapping[str, Json], dialect: Dialect) -> Iterator[tuple[tuple[str, ...], Json]]:
    for keyword, value in schema.items():
        shape = dialect.keywords.get(keyword)
        if shape in MAP_SHAPES:
            for name, item in value.items():
                if not (shape is Shape.DEPENDENCIES and isinstance(item, (list, tuple))):
                    yield (keyword, name), item
        elif shape in SCHEMA_SHAPES and isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                yield (keyword, str(index)), item
        elif shape in SCHEMA_SHAPES and not (keyword == "additionalProperties" and value is False):
            yield (keyword,), value
