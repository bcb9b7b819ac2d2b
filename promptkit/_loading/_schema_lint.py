"""What is wrong with how a JSON Schema is written, keyword by keyword.

Guarantees: pure; every keyword of a schema is known, of the right shape, and of the schema's own dialect, or
a fault names it with what would be right. Nothing is ignored silently: a keyword is checked, or it is an
annotation of the standard, or it begins with ``x-``.

Source beside the standard: OpenAPI 3.0, for the keywords that are its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from promptkit._fields import Json, closest, describe, is_number
from promptkit._loading._dialects import DIALECTS, DRAFT_04, LATEST, Dialect, Shape

TYPES: Final = ("null", "boolean", "object", "array", "number", "string", "integer")

MAX_DEPTH: Final = 100
"""Deepest nesting of mappings and lists in one schema document."""
MAX_NODES: Final = 50_000
"""Most values in one schema document."""
MAX_BITS: Final = 1024
"""Largest integer in a schema: what a double reaches to."""

_MAX_SHOWN: Final = 60
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

Faults = Iterator[tuple[tuple[str, ...], str]]
"""What is wrong below some value: (path to it, message)."""

_INSTEAD: Final = {
    "discriminator": "it is OpenAPI's; use oneOf whose branches have a const in one property",
    "example": "it is OpenAPI's; use examples with a list",
    "xml": "it is OpenAPI's and has no meaning here; begin the name with x- to keep it as a note",
    "externalDocs": "it is OpenAPI's and has no meaning here; begin the name with x- to keep it as a note",
    "divisibleBy": "use multipleOf",
    "disallow": "use not",
    "extends": "use allOf",
    "optional": "leave the name out of the parent's required list",
    "min": "use minimum, minLength or minItems",
    "max": "use maximum, maxLength or maxItems",
    "length": "use minLength and maxLength, or minItems and maxItems",
    "regex": "use pattern",
    "values": "use enum",
    "choices": "use enum",
    "options": "use enum",
    "fields": "use properties",
    "additional_properties": "use additionalProperties",
    "nullable": 'it is OpenAPI\'s; use type: ["string", "null"], or anyOf with {"type": "null"}',
}
_TYPE_NAMES: Final = {
    "str": "string",
    "text": "string",
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "decimal": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "set": "array",
    "dict": "object",
    "map": "object",
    "mapping": "object",
    "none": "null",
    "nil": "null",
    "nullable": "null",
    "date": "string, with format: date",
    "datetime": "string, with format: date-time",
    "enum": "string, with enum",
}


def faults(schema: Json, dialect: Dialect) -> Faults:
    """Yield what is wrong with one schema, its subschemas left aside: (path from the schema, message)."""
    if isinstance(schema, bool):
        if dialect is DRAFT_04:
            yield (), "a schema must be a mapping in draft-04, not a boolean"
        return
    if not isinstance(schema, Mapping):
        yield (), f"a schema must be a mapping or a boolean, not {describe(schema)}"
        return
    for keyword, value in schema.items():
        shape = dialect.keywords.get(keyword)
        if shape is not None:
            if shape in _CHECKS:
                for path, message in _CHECKS[shape](keyword, shape, value, dialect):
                    yield (keyword, *path), message
        elif not keyword.startswith("x-"):
            yield (keyword,), _unknown(keyword, schema, dialect)
    if "$recursiveRef" in dialect.keywords and schema.get("$recursiveRef", "#") != "#":
        yield ("$recursiveRef",), '$recursiveRef must be "#"'
    if dialect is DRAFT_04:
        for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if flag in schema and bound not in schema:
                yield (flag,), f"{flag} needs {bound} beside it in draft-04"


def _unknown(keyword: str, schema: Mapping[str, Json], dialect: Dialect) -> str:
    if keyword == "nullable" and isinstance(schema.get("type"), str):
        return f"unknown keyword nullable: it is OpenAPI's and would be ignored; use type: [{schema['type']}, null]"
    text = f"unknown keyword {_short(keyword)}"
    if keyword in _INSTEAD:
        return f"{text}: {_INSTEAD[keyword]}"
    others = [other.name for other in DIALECTS if keyword in other.keywords]
    if others:
        return f"{text}: it is one of {', '.join(others)}, and this schema is {dialect}{_replacement(keyword, dialect)}"
    known = {name.lower(): name for name in dialect.keywords}
    near = closest(keyword.lower(), known, cutoff=0.7)
    if near is not None:
        return f"{text}, did you mean {known[near]}?"
    return f"{text}: it would be ignored; begin the name with x- to keep it as a note"


_REPLACEMENTS: Final = {
    "prefixItems": "a list under items",
    "$defs": "definitions",
    "$anchor": "an $id that begins with #, or a JSON Pointer in the $ref",
    "dependentRequired": "dependencies",
    "dependentSchemas": "dependencies",
    "dependencies": "dependentRequired or dependentSchemas",
    "additionalItems": "prefixItems, with items for the rest",
    "id": "$id",
    "$id": "id",
    "const": "enum with one value",
    "$recursiveRef": "$dynamicRef",
    "$recursiveAnchor": "$dynamicAnchor",
    "$dynamicRef": "$ref, or $recursiveRef in 2019-09",
    "$dynamicAnchor": "$recursiveAnchor in 2019-09",
}


def _replacement(keyword: str, dialect: Dialect) -> str:
    text = f"; change $schema to {LATEST.uri}" if keyword in LATEST.keywords else ""
    if keyword in _REPLACEMENTS:
        text = f"{text}, or use {_REPLACEMENTS[keyword]}" if text else f"; use {_REPLACEMENTS[keyword]}"
    return text if dialect is not LATEST or keyword not in LATEST.keywords else ""


def _wrong(keyword: str, shape: Shape, value: Json) -> str:
    return f"{keyword} must be {shape.value}, not {describe(value)}"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def _as_mapping(keyword: str, shape: Shape, value: Json, dialect: Dialect) -> Faults:
    if not isinstance(value, Mapping):
        yield (), _wrong(keyword, shape, value)
        return
    for name, item in value.items():
        if shape is Shape.NAMES_MAP or (shape is Shape.DEPENDENCIES and isinstance(item, (list, tuple))):
            if fault := _names_fault(item, may_be_empty=dialect is not DRAFT_04):
                yield (name,), f"{keyword} of {_short(name)} must be a list of different names{fault}"
        elif shape is Shape.VOCABULARY and not isinstance(item, bool):
            yield (name,), f"{keyword} must be {shape.value}, not to {describe(item)}"


def _as_schemas(keyword: str, shape: Shape, value: Json, _: Dialect) -> Faults:
    if not isinstance(value, (list, tuple)) or not value:
        yield (), _wrong(keyword, shape, value) if value != [] else f"{keyword} must be {shape.value}"


def _as_schema(keyword: str, shape: Shape, value: Json, _: Dialect) -> Faults:
    if isinstance(value, (list, tuple)) and keyword == "items":
        yield (), _wrong(keyword, shape, value) + "; in 2020-12 a list of schemas belongs under prefixItems"


def _as_names(keyword: str, shape: Shape, value: Json, dialect: Dialect) -> Faults:
    if isinstance(value, bool):
        hint = "list the names of required properties beside properties, in the object that has them"
        yield (), f"{_wrong(keyword, shape, value)}: {hint}"
    elif fault := _names_fault(value, may_be_empty=dialect is not DRAFT_04):
        yield (), f"{keyword} must be {shape.value}{fault}"


def _as_values(keyword: str, shape: Shape, value: Json, _: Dialect) -> Faults:
    if not isinstance(value, (list, tuple)):
        yield (), _wrong(keyword, shape, value)
    elif not value:
        yield (), f"{keyword} must be {shape.value}: with an empty list nothing would be valid"


def _as_list(keyword: str, shape: Shape, value: Json, _: Dialect) -> Faults:
    if not isinstance(value, (list, tuple)):
        yield (), _wrong(keyword, shape, value)


def _as_number(keyword: str, shape: Shape, value: Json, _: Dialect) -> Faults:
    if not is_number(value):
        hint = "; leave the quotation marks out" if isinstance(value, str) else ""
        yield (), _wrong(keyword, shape, value) + hint
    elif (shape is Shape.COUNT and (value < 0 or value != int(value))) or (shape is Shape.POSITIVE and value <= 0):
        yield (), f"{keyword} must be {shape.value}"


def _as_flag(keyword: str, shape: Shape, value: Json, _: Dialect) -> Faults:
    if isinstance(value, bool):
        return
    hint = "; leave the quotation marks out" if isinstance(value, str) else ""
    if keyword.startswith("exclusive") and is_number(value):
        bound = keyword.removeprefix("exclusive").lower()
        hint = f": in draft-04 it is a flag beside {bound}; as a number it is of draft-06 and later"
    yield (), _wrong(keyword, shape, value) + hint


def _as_anchor(keyword: str, shape: Shape, value: Json, _: Dialect) -> Faults:
    if not isinstance(value, str) or not _is_anchor(value):
        yield (), f"{keyword} must be {shape.value}"


def _as_text(keyword: str, shape: Shape, value: Json, _: Dialect) -> Faults:
    if not isinstance(value, str):
        yield (), _wrong(keyword, shape, value)


def _as_type(_: str, __: Shape, value: Json, ___: Dialect) -> Faults:
    yield from _type_faults(value)


_CHECKS: Final[Mapping[Shape, Callable[[str, Shape, Json, Dialect], Faults]]] = MappingProxyType(
    {
        Shape.SCHEMA: _as_schema,
        Shape.SCHEMAS: _as_schemas,
        Shape.SCHEMA_MAP: _as_mapping,
        Shape.PATTERN_MAP: _as_mapping,
        Shape.DEPENDENCIES: _as_mapping,
        Shape.NAMES_MAP: _as_mapping,
        Shape.VOCABULARY: _as_mapping,
        Shape.NAMES: _as_names,
        Shape.TYPE: _as_type,
        Shape.VALUES: _as_values,
        Shape.LIST: _as_list,
        Shape.COUNT: _as_number,
        Shape.NUMBER: _as_number,
        Shape.POSITIVE: _as_number,
        Shape.FLAG: _as_flag,
        Shape.ANCHOR: _as_anchor,
        Shape.TEXT: _as_text,
        Shape.PATTERN: _as_text,
        Shape.REFERENCE: _as_text,
    }
)
"""What looks at a keyword's value, as far as that is not a schema, which is looked at by itself."""


def _is_anchor(value: str) -> bool:
    return (
        value.isascii()
        and value[:1] not in "0123456789-."
        and bool(value)
        and all(character.isalnum() or character in "-_." for character in value)
    )


def _names_fault(value: Json, *, may_be_empty: bool) -> str | None:
    if not isinstance(value, (list, tuple)):
        return f", not {describe(value)}"
    for item in value:
        if not isinstance(item, str):
            return f", and {describe(item)} is among them"
    if len(set(value)) != len(value):
        twice = next(item for index, item in enumerate(value) if item in value[:index])
        return f": {_short(twice)} is there twice"
    return None if value or may_be_empty else ", and one at least in draft-04"


def _type_faults(value: Json) -> Faults:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)):
        yield (
            (),
            f"type must be {Shape.TYPE.value}, not {describe(value)}" + ('; quote it: "null"' if value is None else ""),
        )
        return
    if not names:
        yield (), "type must not be an empty list: nothing would be valid"
    for index, name in enumerate(names):
        path = () if isinstance(value, str) else (str(index),)
        if not isinstance(name, str):
            yield (
                path,
                f"a type must be the name of one, not {describe(name)}"
                + ('; quote it: "null"' if name is None else "; for alternatives use anyOf" if name else ""),
            )
        elif name not in TYPES:
            yield path, f"unknown type {_short(name)}{_type_hint(name)}"
    if len({name for name in names if isinstance(name, str)}) < len(names) and all(isinstance(n, str) for n in names):
        yield (), "type has a name twice"


def _type_hint(name: str) -> str:
    if name == "any":
        return "; leave type out to allow anything"
    if "|" in name or "," in name:
        return "; write several types as a list"
    known = _TYPE_NAMES.get(name.lower()) or closest(name.lower(), TYPES)
    return f", did you mean {known}?" if known else f"; known are {', '.join(TYPES)}"


# ------------------------------------------------------------------------------------------------ plain data


def data_fault(value: Json) -> tuple[tuple[str, ...], str] | None:
    """Say what in a document is no plain JSON, or too large or deep, before anything walks it by recursion."""
    found = 0
    stack: list[tuple[Json, tuple[str, ...]]] = [(value, ())]
    while stack:
        item, path = stack.pop()
        found += 1
        if len(path) > MAX_DEPTH:
            return path[:3], f"too deeply nested: more than {MAX_DEPTH} levels; move parts to $defs and refer to them"
        if found > MAX_NODES:
            return (), f"too large: more than {MAX_NODES} values"
        if isinstance(item, Mapping):
            for name, below in item.items():
                if not isinstance(name, str):
                    return path, f"a key must be a string, not {describe(name)}; quote it"
                if _SURROGATE.search(name):
                    return path, "a key has half of a surrogate pair, which is no character"
                stack.append((below, (*path, name)))
        elif isinstance(item, (list, tuple)):
            stack.extend((below, (*path, str(index))) for index, below in enumerate(item))
        elif fault := _scalar_fault(item):
            return path, fault
    return None


def _scalar_fault(value: Json) -> str | None:
    if isinstance(value, str):
        return "a text has half of a surrogate pair, which is no character" if _SURROGATE.search(value) else None
    if isinstance(value, (bool, int)) or value is None:
        return f"a number of more than {MAX_BITS} bits" if value is not None and value.bit_length() > MAX_BITS else None
    if isinstance(value, float):
        return None if math.isfinite(value) else "a number that is not finite is no JSON value"
    shown = f" {value}" if hasattr(value, "isoformat") else ""
    return f"the value{shown} is {describe(value)}, which is no JSON value; quote it"
