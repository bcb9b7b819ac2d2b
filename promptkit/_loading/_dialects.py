"""The versions of JSON Schema: which keywords each has, and what their values must be.

Sources: the specifications and meta-schemas of draft-04, draft-06, draft-07, 2019-09 and 2020-12 at
json-schema.org. ``$comment`` is taken in every version: it means nothing in any.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen

from promptkit._fields import describe


class Shape(Enum):
    """What a keyword's value must be."""

    SCHEMA = "a schema"
    SCHEMA_OR_FLAG = "a schema or a boolean"
    """Draft-04, where a boolean is a schema in two places only."""
    SCHEMAS = "a list of schemas that is not empty"
    SCHEMA_OR_SCHEMAS = "a schema or a list of schemas"
    SCHEMA_MAP = "a mapping of names to schemas"
    PATTERN_MAP = "a mapping of patterns to schemas"
    DEPENDENCIES = "a mapping of names to schemas or lists of names"
    NAMES_MAP = "a mapping of names to lists of names"
    NAMES = "a list of different names"
    TYPE = "a type name or a list of different type names"
    VALUES = "a list of values that is not empty"
    COUNT = "an integer that is not negative"
    NUMBER = "a number"
    POSITIVE = "a number above 0"
    FLAG = "true or false"
    TEXT = "a string"
    PATTERN = "a string with a regular expression"
    REFERENCE = "a string with a reference"
    ANCHOR = "a name of letters, digits, - _ and ."
    LIST = "a list"
    ANYTHING = "anything"
    VOCABULARY = "a mapping of URIs to booleans"


_ANNOTATIONS_04: Final = {
    "$schema": Shape.TEXT,
    "$comment": Shape.TEXT,
    "title": Shape.TEXT,
    "description": Shape.TEXT,
    "default": Shape.ANYTHING,
}
_DRAFT_04: Final = {
    **_ANNOTATIONS_04,
    "id": Shape.REFERENCE,
    "$ref": Shape.REFERENCE,
    "definitions": Shape.SCHEMA_MAP,
    "type": Shape.TYPE,
    "enum": Shape.VALUES,
    "allOf": Shape.SCHEMAS,
    "anyOf": Shape.SCHEMAS,
    "oneOf": Shape.SCHEMAS,
    "not": Shape.SCHEMA,
    "minLength": Shape.COUNT,
    "maxLength": Shape.COUNT,
    "pattern": Shape.PATTERN,
    "format": Shape.TEXT,
    "minimum": Shape.NUMBER,
    "maximum": Shape.NUMBER,
    "exclusiveMinimum": Shape.FLAG,
    "exclusiveMaximum": Shape.FLAG,
    "multipleOf": Shape.POSITIVE,
    "minItems": Shape.COUNT,
    "maxItems": Shape.COUNT,
    "uniqueItems": Shape.FLAG,
    "items": Shape.SCHEMA_OR_SCHEMAS,
    "additionalItems": Shape.SCHEMA_OR_FLAG,
    "minProperties": Shape.COUNT,
    "maxProperties": Shape.COUNT,
    "required": Shape.NAMES,
    "properties": Shape.SCHEMA_MAP,
    "patternProperties": Shape.PATTERN_MAP,
    "additionalProperties": Shape.SCHEMA_OR_FLAG,
    "dependencies": Shape.DEPENDENCIES,
}
_DRAFT_06: Final = {
    **{name: shape for name, shape in _DRAFT_04.items() if name != "id"},
    "$id": Shape.REFERENCE,
    "examples": Shape.LIST,
    "const": Shape.ANYTHING,
    "contains": Shape.SCHEMA,
    "propertyNames": Shape.SCHEMA,
    "exclusiveMinimum": Shape.NUMBER,
    "exclusiveMaximum": Shape.NUMBER,
    "additionalItems": Shape.SCHEMA,
    "additionalProperties": Shape.SCHEMA,
}
_DRAFT_07: Final = {
    **_DRAFT_06,
    "if": Shape.SCHEMA,
    "then": Shape.SCHEMA,
    "else": Shape.SCHEMA,
    "readOnly": Shape.FLAG,
    "writeOnly": Shape.FLAG,
    "contentEncoding": Shape.TEXT,
    "contentMediaType": Shape.TEXT,
}
_DRAFT_2019: Final = {
    **{name: shape for name, shape in _DRAFT_07.items() if name != "dependencies"},
    "$defs": Shape.SCHEMA_MAP,
    "$anchor": Shape.ANCHOR,
    "$recursiveRef": Shape.REFERENCE,
    "$recursiveAnchor": Shape.FLAG,
    "$vocabulary": Shape.VOCABULARY,
    "deprecated": Shape.FLAG,
    "dependentRequired": Shape.NAMES_MAP,
    "dependentSchemas": Shape.SCHEMA_MAP,
    "minContains": Shape.COUNT,
    "maxContains": Shape.COUNT,
    "unevaluatedItems": Shape.SCHEMA,
    "unevaluatedProperties": Shape.SCHEMA,
    "contentSchema": Shape.SCHEMA,
}
_DRAFT_2020: Final = {
    **{
        name: shape
        for name, shape in _DRAFT_2019.items()
        if name not in ("additionalItems", "$recursiveRef", "$recursiveAnchor")
    },
    "items": Shape.SCHEMA,
    "prefixItems": Shape.SCHEMAS,
    "$dynamicRef": Shape.REFERENCE,
    "$dynamicAnchor": Shape.ANCHOR,
}


@frozen(eq=False)
class Dialect:
    """One version of JSON Schema."""

    name: str
    uri: str
    keywords: Mapping[str, Shape]
    id_keyword: str = "$id"
    is_ref_alone: bool = False
    """True where everything beside a ``$ref`` is ignored, as the standard says up to draft-07."""

    def __str__(self) -> str:
        return self.name


DRAFT_04: Final = Dialect(
    "draft-04", "http://json-schema.org/draft-04/schema", MappingProxyType(_DRAFT_04), "id", is_ref_alone=True
)
DRAFT_06: Final = Dialect(
    "draft-06", "http://json-schema.org/draft-06/schema", MappingProxyType(_DRAFT_06), is_ref_alone=True
)
DRAFT_07: Final = Dialect(
    "draft-07", "http://json-schema.org/draft-07/schema", MappingProxyType(_DRAFT_07), is_ref_alone=True
)
DRAFT_2019: Final = Dialect("2019-09", "https://json-schema.org/draft/2019-09/schema", MappingProxyType(_DRAFT_2019))
LATEST: Final = Dialect("2020-12", "https://json-schema.org/draft/2020-12/schema", MappingProxyType(_DRAFT_2020))
"""What a schema without ``$schema`` is written in."""

DIALECTS: Final = (DRAFT_04, DRAFT_06, DRAFT_07, DRAFT_2019, LATEST)

SCHEMA_SHAPES: Final = frozenset({Shape.SCHEMA, Shape.SCHEMA_OR_FLAG, Shape.SCHEMA_OR_SCHEMAS, Shape.SCHEMAS})
MAP_SHAPES: Final = frozenset({Shape.SCHEMA_MAP, Shape.PATTERN_MAP, Shape.DEPENDENCIES})


def dialect_of(uri: object) -> Dialect | str:
    """Return the dialect that a ``$schema`` names, or what is wrong with it."""
    if not isinstance(uri, str):
        return f"$schema must be a string, not {describe(uri)}"
    try:
        wanted = urlsplit(uri)
    except ValueError:
        wanted = urlsplit("")
    for dialect in DIALECTS:
        known = urlsplit(dialect.uri)
        if (wanted.netloc, wanted.path) == (known.netloc, known.path) and not wanted.fragment:
            return dialect
    return (
        f"$schema {uri[:80]} is no dialect that is known here; known are "
        + ", ".join(dialect.uri + ("#" if dialect.is_ref_alone else "") for dialect in DIALECTS)
        + "; without $schema it is 2020-12"
    )
