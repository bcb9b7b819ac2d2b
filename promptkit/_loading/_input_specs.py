"""The ``inputs`` section of a prompt file: what may be given, of which type, with which default.

Guarantees: an input's name can be used in a template and hides nothing there; its default and its choices
are of its type and within its bounds. A schema that refines it is not looked into.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from promptkit._definitions import INPUT_TYPES, InputSpec
from promptkit._fields import Json, describe, is_integer, is_number
from promptkit._loading._shape import Item, Range, Report, Section, as_schema, is_given, schema_positions, shown
from promptkit._loading._text import MAX_SHOWN
from promptkit._loading._yaml import Node

INPUT_KEYS: Final = ("type", "required", "default", "choices", "max_chars", "max_bytes", "schema", "description")
LIMIT: Final = Range(at_least=1, is_integer=True)

_ELSEWHERE: Final = {
    **dict.fromkeys(("text", "str", "date", "datetime"), "string"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    **dict.fromkeys(("list", "tuple"), "array"),
    **dict.fromkeys(("dict", "map", "mapping", "json"), "object"),
    **dict.fromkeys(("history", "chat", "conversation"), "messages"),
    **dict.fromkeys(("path", "document", "artifact"), "file"),
}
"""What other tools call a type, and what it is called here."""

RESERVED_NAMES: Final = frozenset(
    # Jinja's constants and the words that join or end an expression; then names that templates are given.
    "true false none True False None and or not in is if else elif "  # noqa: SIM905 - one line each, to be compared
    "self super loop caller varargs kwargs range dict namespace lipsum cycler joiner".split()
)

_WITH_CHARS: Final = ("string", "file")
_WITH_BYTES: Final = ("file", "image")
_WITH_CHOICES: Final = ("string", "integer", "number")
_WITH_SCHEMA: Final = tuple(kind for kind in INPUT_TYPES if kind not in {"file", "image"})
_WITHOUT_DEFAULT: Final = ("file", "image", "messages")
_MISPLACED: Final[dict[str, str]] = {
    "optional": "write required: false",
    "enum": "write choices",
    "values": "write choices",
    "options": "write choices",
    "max_length": "write max_chars",
    "maxlength": "write max_chars",
    "max_size": "write max_bytes",
    "items": "write schema: {items: …}",
    "properties": "write schema: {properties: …}",
    "pattern": "write schema: {pattern: …}",
    "minimum": "write schema: {minimum: …}",
    "maximum": "write schema: {maximum: …}",
}


def read_inputs(report: Report, top: Section) -> dict[str, InputSpec]:
    """Return the declared inputs by name, in file order."""
    item = top.item("inputs")
    if item is None or top.mapping("inputs") is None:
        return {}
    specs: dict[str, InputSpec] = {}
    for name, node in item.node.entries.items():
        if fault := _name_fault(name):
            report.tell(item.node.keys[name], f"{name[:60]!r} cannot be the name of an input: {fault}")
        elif (spec := _input(report, name, Item(f"inputs.{name}", node))) is not None:
            specs[name] = spec
    return specs


def _name_fault(name: str) -> str | None:
    if not name.isidentifier():
        return "a name has letters, digits and _ in it, and does not begin with a digit"
    if unicodedata.normalize("NFKC", name) != name:
        # Jinja makes Python names of them, and Python takes all forms of a name for the same.
        return "it is not in Unicode's normal form NFKC; type it anew"
    if name in RESERVED_NAMES:
        return "templates use this name themselves"
    return None


def _input(report: Report, name: str, item: Item) -> InputSpec | None:
    if isinstance(item.node.value, str) and item.node.value in INPUT_TYPES:
        report.tell(item.node.place, f"{item.label}: expected a mapping; write {{type: {item.node.value}}}")
        return None
    section = Section(report, item, INPUT_KEYS, misplaced=_MISPLACED)
    if not section.is_usable:
        return None
    if section.item("type") is None:
        report.tell(section.place, f"{section.label('type')} is missing: one of {', '.join(INPUT_TYPES)}")
    kind = section.choice("type", INPUT_TYPES, elsewhere=_ELSEWHERE)
    required = section.boolean("required")
    description = section.string("description")
    if kind is None:
        return None
    reader = _Values(report, section, kind)
    choices = reader.choices()
    has_default, default = reader.default(choices)
    if has_default and required:
        report.tell(section.keys["required"], f"{section.label('required')}: an input with a default is never required")
    return InputSpec(
        name=name,
        type=kind,
        is_required=required is not False and not has_default,
        has_default=has_default,
        default=default,
        choices=choices,
        max_chars=reader.limit("max_chars", _WITH_CHARS),
        max_bytes=reader.limit("max_bytes", _WITH_BYTES),
        schema=reader.schema(),
        description=description,
        place=section.place,
        schema_place=section.place_of("schema"),
        schema_positions=schema_positions(section.item("schema")),
    )


class _Values:
    """Reads the keys whose values depend on the input's type."""

    def __init__(self, report: Report, section: Section, kind: str) -> None:
        self._report = report
        self._section = section
        self._kind = kind

    def limit(self, key: str, kinds: tuple[str, ...]) -> Any:
        """Return a limit that inputs of some types can have."""
        if self._is_for(key, kinds):
            return self._section.number(key, LIMIT)
        return None

    def choices(self) -> tuple[Json, ...] | None:
        """Return the values that are allowed."""
        if not self._is_for("choices", _WITH_CHOICES):
            return None
        items = self._section.list("choices", f"values of type {self._kind}")
        if items is None:
            return None
        if not items:
            self._report.tell(self._section.place_of("choices"), f"{self._section.label('choices')} is empty")
        values: dict[Json, None] = {}
        for item in items:
            if not self._fits(item):
                continue
            if item.node.value in values:
                self._report.tell(item.node.place, f"{item.label}: {shown(item.node)} stands twice")
            values[item.node.value] = None
        return tuple(values)

    def default(self, choices: tuple[Json, ...] | None) -> tuple[bool, Json]:
        """Return whether there is a default, and which."""
        item = self._section.item("default")
        if item is None:
            return False, None
        if self._kind in _WITHOUT_DEFAULT:
            told = f"an input of type {self._kind} has no default; write required: false to make it optional"
            self._report.tell(self._section.keys["default"], f"{item.label}: {told}")
            return False, None
        if item.node.is_empty:
            told = f"{item.label} is empty: give it a value, or write required: false to make the input optional"
            self._report.tell(item.node.place, told)
            return True, None
        value = item.node.value
        if self._fits(item):
            if choices and value not in choices:
                self._report.tell(item.node.place, f"{item.label}: {shown(item.node)} is not one of the choices")
            most = self._section.entries.get("max_chars")
            if isinstance(value, str) and most is not None and is_integer(most.value) and len(value) > most.value:
                told = f"{item.label} is longer than max_chars: {len(value)} characters, {most.value} allowed"
                self._report.tell(item.node.place, told)
        return True, value

    def schema(self) -> Json:
        """Return the schema in place, or its file's name."""
        item = self._section.item("schema")
        if item is None or not self._is_for("schema", _WITH_SCHEMA):
            return None
        return as_schema(self._report, item)

    def _is_for(self, key: str, kinds: tuple[str, ...]) -> bool:
        if key not in self._section.entries:
            return False
        if self._kind in kinds:
            return True
        told = f"only inputs of type {', '.join(kinds)} have it, this one is of type {self._kind}"
        self._report.tell(self._section.keys[key], f"{self._section.label(key)}: {told}")
        return False

    def _fits(self, item: Item) -> bool:
        if not is_given(self._report, item):
            return False
        if fits_type(item.node.value, self._kind):
            return True
        self._report.tell(
            item.node.place, f"{item.label}: expected {_A[self._kind]}, got {_got(item.node, self._kind)}"
        )
        return False


_A: Final = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def fits_type(value: Json, kind: str) -> bool:
    """True when a value from a file is of an input's type; bool is no number and 1.0 no integer."""
    if kind == "string":
        return isinstance(value, str)
    if kind == "integer":
        return is_integer(value)
    if kind == "number":
        return is_number(value)
    if kind == "boolean":
        return isinstance(value, bool)
    return isinstance(value, list if kind == "array" else Mapping)


def _got(node: Node, kind: str) -> str:
    if kind == "string" and isinstance(node.value, (bool, int, float)):
        return f'{describe(node.value)}: quote {node.raw[:MAX_SHOWN]} as "{node.raw[:MAX_SHOWN]}"'
    return shown(node)
