"""The JSON Schema of a class, and what in a value does not fit it.

Guarantees: `json_schema_of` describes exactly what `mismatches` lets through, in the 2020-12 dialect: every field
by its type, nothing coerced, no other properties. A type that JSON cannot carry is a `ConfigError` that names
the field. Classes are attrs classes, dataclasses and TypedDicts; `class_named` alone imports anything.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, NewType, Union

import attrs

from promptkit._fields import CLASS_KEY, Json, describe
from promptkit.errors import ConfigError

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SCALARS: Final[Mapping[Any, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    None: "null",
    types.NoneType: "null",
}
_LISTS: Final = (list, collections.abc.Sequence, collections.abc.MutableSequence)
_SETS: Final = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
_MAPPINGS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_MAX_SHOWN: Final = 40
_MAX_LISTED: Final = 20


def class_named(reference: str) -> type:
    """Return the class that ``module:Class`` names; its module is imported. `ConfigError` when there is none."""
    module_name, _, name = reference.partition(":")
    if not module_name or not name:
        raise ConfigError(f"a class is named as module:Class, not {reference!r}")
    try:
        found: object = importlib.import_module(module_name)
    except Exception as exc:  # the module is somebody else's code and may fail in any way
        raise ConfigError(f"{reference!r}: importing {module_name!r} failed with {type(exc).__name__}: {exc}") from exc
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise ConfigError(f"{reference!r}: module {module_name!r} has no class {name!r}")
    return found


# -------------------------------------------------------------------------------------------- class to schema


@dataclasses.dataclass(frozen=True)
class FieldType:
    """One field of a class as its JSON has it."""

    type: Any
    is_required: bool
    description: str | None


def json_schema_of(cls: type) -> dict[str, Json]:
    """Return the JSON Schema (2020-12) of an attrs class, a dataclass or a TypedDict, ready to be written.

    Fields with a default are optional, all others required; descriptions come from the class docstring, from
    ``metadata["description"]`` of a field and from ``Annotated[..., "text"]``. Raises `ConfigError` for anything
    else than such a class, and for a field whose type has no JSON form (the field is named).
    """
    if fields_of(cls) is None:
        raise ConfigError(f"{_name(cls)} is neither an attrs class nor a dataclass nor a TypedDict")
    writer = _Writer(cls)
    schema = {
        "$schema": _DIALECT,
        CLASS_KEY: f"{cls.__module__}:{cls.__qualname__}",
        "title": cls.__name__,
        **writer.record(cls),
    }
    if writer.definitions:
        schema["$defs"] = writer.definitions
    return schema


class _Writer:
    """Writes one schema; classes met on the way become definitions, ``root`` is the document itself."""

    def __init__(self, root: type | None = None) -> None:
        self.definitions: dict[str, Json] = {}
        self._references: dict[type | None, str] = {root: "#"}

    def record(self, cls: type) -> dict[str, Json]:
        """Return the schema of a class of fields."""
        declared = fields_of(cls) or {}
        doc = cls.__dict__.get("__doc__")
        schema: dict[str, Json] = {"type": "object"}
        if isinstance(doc, str) and not doc.startswith(f"{cls.__name__}("):  # dataclasses write that one themselves
            schema["description"] = inspect.cleandoc(doc)
        schema["properties"] = {}
        for name, declaration in declared.items():
            part = self.node(declaration.type, f"{cls.__name__}.{name}")
            if declaration.description is not None:
                part = {**part, "description": declaration.description}
            schema["properties"][name] = part
        schema["required"] = [name for name, declaration in declared.items() if declaration.is_required]
        schema["additionalProperties"] = False
        return schema

    def node(self, kind: Any, where: str) -> dict[str, Json]:
        """Return the schema of any type; ``where`` names the field for a message."""
        if kind is Any or kind is object:
            return {}
        if isinstance(kind, collections.abc.Hashable) and kind in _SCALARS:
            return {"type": _SCALARS[kind]}
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return {"enum": [_scalar(member.value, where) for member in kind]}
        if isinstance(kind, type) and fields_of(kind) is not None:
            return {"$ref": self._reference(kind)}
        if isinstance(kind, NewType):
            return self.node(kind.__supertype__, where)
        if type(kind).__name__ == "TypeAliasType":  # ``type X = ...``, new in Python 3.12
            return self.node(kind.__value__, where)
        origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
        if origin is typing.Annotated:
            inner = self.node(arguments[0], where)
            text = next((note for note in arguments[1:] if isinstance(note, str)), None)
            return inner if text is None else {**inner, "description": text}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.node(argument, where) for argument in arguments]}
        if origin is Literal:
            return {"enum": [_scalar(argument, where) for argument in arguments]}
        return self._container(origin, arguments, where, kind)

    def _container(self, origin: Any, arguments: tuple[Any, ...], where: str, kind: Any) -> dict[str, Json]:
        if origin in _LISTS or (origin is tuple and (kind is tuple or arguments[-1:] == (...,))):
            return {"type": "array", **self._items(arguments[:1], where)}
        if origin is tuple:
            parts = [self.node(argument, where) for argument in arguments]
            return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}
        if origin in _SETS:
            return {"type": "array", **self._items(arguments[:1], where), "uniqueItems": True}
        if origin in _MAPPINGS:
            if arguments and arguments[0] is not str:
                raise ConfigError(f"{where}: the keys of a mapping must be str, not {_name(arguments[0])}")
            return {"type": "object", **({"additionalProperties": self.node(arguments[1], where)} if arguments else {})}
        raise ConfigError(
            f"{where}: {_name(kind)} has no JSON form; use str, int, float, bool, None, Literal, an Enum, a list, a "
            "tuple, a dict with str keys, or another class of fields"
        )

    def _items(self, arguments: tuple[Any, ...], where: str) -> dict[str, Json]:
        return {"items": self.node(arguments[0], where)} if arguments else {}

    def _reference(self, cls: type) -> str:
        if cls not in self._references:
            name = cls.__name__
            while name in self.definitions:
                name += "_"
            self._references[cls] = f"#/$defs/{name}"
            self.definitions[name] = None  # the name is taken while its own fields are written
            self.definitions[name] = self.record(cls)
        return self._references[cls]


def fields_of(cls: Any) -> dict[str, FieldType] | None:
    """Return the fields of a class by their names in JSON, or None for any other class."""
    if not isinstance(cls, type):
        return None
    if attrs.has(cls):
        hints = _hints(cls)
        return {
            a.name: FieldType(hints[a.name], a.default is attrs.NOTHING, a.metadata.get("description"))
            for a in attrs.fields(cls)
            if a.init and _is_typed(cls, a.name, hints)
        }
    if dataclasses.is_dataclass(cls):
        hints = _hints(cls)
        return {
            f.name: FieldType(
                hints[f.name],
                f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
                f.metadata.get("description"),
            )
            for f in dataclasses.fields(cls)
            if f.init
        }
    if typing.is_typeddict(cls):
        required: frozenset[str] = getattr(cls, "__required_keys__", frozenset())
        return {name: _key(hint, is_required=name in required) for name, hint in _hints(cls).items()}
    return None


def _is_typed(cls: type, name: str, hints: Mapping[str, Any]) -> bool:
    if name not in hints:
        raise ConfigError(f"{cls.__name__}.{name} has no type annotation")
    return True


def _key(hint: Any, *, is_required: bool) -> FieldType:
    """Return a TypedDict's key; its own ``Required`` and ``NotRequired`` count, also where they were text at first."""
    while (qualifier := getattr(typing.get_origin(hint), "_name", None)) in ("Required", "NotRequired", "ReadOnly"):
        is_required = is_required if qualifier == "ReadOnly" else qualifier == "Required"
        hint = typing.get_args(hint)[0]
    return FieldType(hint, is_required, None)


def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as exc:
        raise ConfigError(f"the annotations of {cls.__name__} cannot be resolved: {exc}") from exc


def _scalar(value: object, where: str) -> Json:
    if value is None or type(value) in (str, int, bool, float):
        return value
    if isinstance(value, enum.Enum):
        return _scalar(value.value, where)
    raise ConfigError(f"{where}: a choice must be a string, a number, a boolean or None, not {describe(value)}")


def _name(kind: object) -> str:
    return getattr(kind, "__qualname__", None) or str(kind)


# ------------------------------------------------------------------------------------------- data and a class


def mismatches(value: Json, schema: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Return ``(pointer, message)`` for all in ``value`` that a schema made by `json_schema_of` does not allow."""
    return list(_mismatches(value, schema, schema, ""))


def _mismatches(value: Json, schema: Json, root: Mapping[str, Json], pointer: str) -> Iterator[tuple[str, str]]:
    schema = _resolved(schema, root)
    if "anyOf" in schema:
        if not any(fits(value, alternative, root) for alternative in schema["anyOf"]):
            yield from _closest(value, schema["anyOf"], root, pointer)
    elif "enum" in schema:
        if not any(is_same(value, choice) for choice in schema["enum"]):
            yield pointer, f"must be one of {_shown(schema['enum'])}, got {_kind(value)}"
    elif "type" in schema and not _is_of_type(value, schema["type"]):
        yield pointer, f"must be {schema['type']}, got {_kind(value)}"
    elif isinstance(value, list):
        yield from _item_mismatches(value, schema, root, pointer)
    elif isinstance(value, dict):
        yield from _property_mismatches(value, schema, root, pointer)


def fits(value: Json, schema: Json, root: Mapping[str, Json]) -> bool:
    """Say whether nothing in ``value`` is against ``schema``, a part of ``root``."""
    return next(_mismatches(value, schema, root, ""), None) is None


def _closest(
    value: Json, alternatives: list[Json], root: Mapping[str, Json], pointer: str
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the one alternative of the value's own type, or that there is none."""
    same = [a for a in alternatives if _is_of_type(value, _resolved(a, root).get("type", ""))]
    if len(same) == 1:
        yield from _mismatches(value, same[0], root, pointer)
    else:
        yield pointer, f"must be {' or '.join(_kinds(alternatives, root))}, got {_kind(value)}"


def _item_mismatches(
    value: list[Json], schema: Json, root: Mapping[str, Json], pointer: str
) -> Iterator[tuple[str, str]]:
    parts = schema.get("prefixItems")
    if parts is not None and len(parts) != len(value):
        yield pointer, f"must have {len(parts)} items, got {len(value)}"
    elif parts is not None:
        for index, (part, item) in enumerate(zip(parts, value, strict=True)):
            yield from _mismatches(item, part, root, f"{pointer}/{index}")
    else:
        for index, item in enumerate(value):
            yield from _mismatches(item, schema.get("items", {}), root, f"{pointer}/{index}")
    if schema.get("uniqueItems") and any(isinstance(item, (dict, list)) for item in value):
        yield pointer, "is a set, whose items cannot be lists or objects"


def _property_mismatches(
    value: dict[str, Json], schema: Json, root: Mapping[str, Json], pointer: str
) -> Iterator[tuple[str, str]]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield pointer, f"lacks {name!r}"
    for name, item in value.items():
        inside = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
        part = properties.get(name, schema.get("additionalProperties", {}))
        if part is False:
            yield pointer, f"has {name[:_MAX_SHOWN]!r}, which is no field"
        else:
            yield from _mismatches(item, part, root, inside)


def is_same(value: Json, choice: Json) -> bool:
    """Say whether two JSON values are equal as JSON Schema means it: 1 and 1.0 are, 1 and true are not."""
    return isinstance(value, bool) is isinstance(choice, bool) and bool(value == choice)


def _is_of_type(value: Json, kind: str) -> bool:
    if kind == "number":
        return _kind(value) in ("integer", "number")
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return _kind(value) == kind


def _kind(value: Json) -> str:
    """Return the JSON type of a value."""
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else _SCALARS.get(type(value), type(value).__name__)


def type_test(kind: Any) -> Callable[[Json], bool]:
    """Return a function that says whether a value fits a type. `ConfigError` for a type without a JSON form."""
    writer = _Writer()
    schema = writer.node(kind, _name(kind))
    root = {"$defs": writer.definitions}
    return lambda value: fits(value, schema, root)


def _resolved(schema: Json, root: Mapping[str, Json]) -> Json:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    return root if reference == "#" else root["$defs"][reference.removeprefix("#/$defs/")]


def _kinds(alternatives: list[Json], root: Mapping[str, Json]) -> list[str]:
    resolved = (_resolved(alternative, root) for alternative in alternatives)
    return [a.get("title") or (_shown(a["enum"]) if "enum" in a else str(a.get("type", "anything"))) for a in resolved]


def _shown(choices: list[Json]) -> str:
    more = ", ..." if len(choices) > _MAX_LISTED else ""
    return ", ".join(repr(choice)[:_MAX_SHOWN] for choice in choices[:_MAX_LISTED]) + more
