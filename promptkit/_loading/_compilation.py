"""Schemas of the core language, compiled by ``fastjsonschema`` with everything excluded that it gets wrong.

Guarantees: the compiled check accepts exactly what the core schema accepts, changes nothing in the value, and
opens nothing. What reaches generated code are names made here, numbers that have been looked at, and strings
through ``fastjsonschema``'s own quoting of property names and enum values; never a pattern, a format, a
description or any other keyword of the author's.

What is kept from it, and how:

* references: every definition has a name of its own in small letters and digits (its function names fold case
  and punctuation, so that two of the author's could share one function), and no address is left to resolve;
* deep nesting, which becomes Python code that does not compile: inner schemas move to definitions of their own;
* ``pattern`` and ``format``: its own expressions are replaced by functions given as custom formats;
* ``multipleOf``, counted ``contains``, integers without a fraction and the length of property names: functions
  written here take the place of the functions that it generates for definitions left empty. That they are there
  by the expected name is looked at after compiling, so that a version which names them otherwise is refused;
* ``const`` (not compiled without detailed messages): an enum of one value;
* required properties that the same schema forbids (which it refuses as an error): checked apart.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from decimal import Context, Decimal
from functools import partial
from itertools import count
from typing import Any, Final, NoReturn

import fastjsonschema
from attrs import frozen

from promptkit._fields import Json, thaw
from promptkit._loading._core import Core, Node
from promptkit._loading._formats import FORMATS
from promptkit._loading._patterns import Pattern

MAX_STEPS: Final = 100_000
"""Most evaluations of definitions that refer to themselves in one check: less than a second."""
_STEPS: Final = "steps"
_MAX_COMPARED: Final = 8
_MAX_BITS: Final = 1024
_EXACT: Final = Context(prec=1300)
"""Enough digits for the quotient of any two doubles and integers of `_MAX_BITS`: it has 633 before the point."""
_MAX_BLOCKS: Final = 6
"""Deepest nesting of loops and tries in one generated function; Python's compiler takes twenty."""
_MAX_INLINED: Final = 10
"""Deepest nesting of schemas in one generated function; Python takes a hundred levels of indentation."""
_DIALECT: Final = "http://json-schema.org/draft-07/schema#"
_BLOCKS: Final = frozenset(
    {
        "anyOf", "oneOf", "not", "if", "then", "else", "propertyNames",
        "items", "additionalItems", "patternProperties", "additionalProperties",
    }
)  # fmt: skip
_APPLICATORS: Final = _BLOCKS | {"allOf", "properties", "dependencies"}

Function = Callable[..., Any]
_Maker = Callable[[Mapping[str, Any]], Function]


class CompilationFaultError(ValueError):
    """A schema cannot be compiled; ``str()`` says why."""


class ValueFaultError(Exception):
    """A value cannot be checked; ``str()`` says why. Neither valid nor invalid: it ends the check."""


class _Refusal(dict):  # type: ignore[type-arg]
    """Handlers for addresses: every scheme has one, and it opens nothing."""

    def __contains__(self, key: object) -> bool:
        return True

    def __getitem__(self, key: object) -> Callable[[str], NoReturn]:
        def refuse(uri: str) -> NoReturn:
            raise CompilationFaultError(f"a reference was left that resolves to {uri[:80]!r}")

        return refuse


@frozen(eq=False)
class Check:
    """A compiled schema. Safe for any number of threads."""

    _function: Function
    _formats: dict[str, Any]
    _is_counted: bool

    def fault(self, value: Json) -> str | None:
        """Return what is wrong with ``value`` in a few words, None when the schema accepts it.

        Raises `ValueFaultError` where that cannot be told.
        """
        # The formats are handed from function to function, so they can carry the steps of this one check.
        formats = {**self._formats, _STEPS: count(1)} if self._is_counted else self._formats
        try:
            self._function(value, formats)
        except fastjsonschema.JsonSchemaValueException as error:
            return error.message
        except RecursionError as error:
            raise ValueFaultError("nested too deeply to be checked") from error
        except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
            raise ValueFaultError("not JSON data that can be checked, such as a number that is not finite") from error
        return None


def compile_core(core: Core) -> Check:
    """Return the check for a translated schema. Raises `CompilationFaultError`. Takes milliseconds; pure."""
    builder = _Builder(core)
    schema = builder.document()
    try:
        function = fastjsonschema.compile(
            schema, handlers=_Refusal(), formats=builder.formats, use_default=False, detailed_exceptions=False
        )
    except (fastjsonschema.JsonSchemaDefinitionException, SyntaxError, RecursionError, MemoryError) as error:
        raise CompilationFaultError(f"it is too deeply nested or too large to be compiled ({error})"[:200]) from error
    function = function.func if isinstance(function, partial) else function
    names = function.__globals__
    for name, maker in builder.natives.items():
        generated = _function_name(name)
        if generated not in names:
            raise CompilationFaultError(
                f"fastjsonschema {fastjsonschema.VERSION} names its functions otherwise than expected; use 2.22.3"
            )
        names[generated] = maker(names)
    return Check(function, builder.formats, bool(core.counted))


def _function_name(definition: str) -> str:
    return f"validate___definitions_{definition}"


class _Builder:
    """Core language to what `fastjsonschema.compile` is given."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.formats: dict[str, Callable[[str], bool]] = {}
        self.natives: dict[str, _Maker] = {}
        self.definitions: dict[str, Json] = {}
        self._waiting: list[tuple[str, Node]] = []
        self._patterns: dict[Pattern, str] = {}

    def document(self) -> dict[str, Json]:
        name = self.core.root["$ref"]
        root = self.definition(name, self.core.definitions[name])
        while self._waiting:
            name, node = self._waiting.pop()
            self.definitions[name] = self.definition(name, node)
        schema = root if isinstance(root, dict) else {"allOf": [root]}
        return {"$schema": _DIALECT, **schema, "definitions": self.definitions}

    def definition(self, name: str, node: Node) -> Json:
        made = self.node(node, 0, 0)
        return {"allOf": [self.native(_step), made]} if name in self.core.counted else made

    def reference(self, name: str, node: Node) -> dict[str, Json]:
        if name not in self.definitions:
            self.definitions[name] = True
            self._waiting.append((name, node))
        return {"$ref": f"#/definitions/{name}"}

    def native(self, maker: _Maker, *, body: Json = True) -> dict[str, Json]:
        """Return a reference to a definition whose function is replaced; ``body`` is what it must not lose."""
        name = f"n{len(self.natives)}"
        self.natives[name] = maker
        self.definitions[name] = body
        return {"$ref": f"#/definitions/{name}"}

    def apart(self, node: Node) -> str:
        """Return the name of a definition made for an inner schema."""
        name = f"i{len(self.definitions)}"
        self.reference(name, node)
        return name

    def node(self, node: Node, depth: int, blocks: int) -> Json:
        if isinstance(node, bool):
            return node
        if "$ref" in node:
            return self.reference(node["$ref"], self.core.definitions[node["$ref"]])
        if depth > _MAX_INLINED or blocks > _MAX_BLOCKS:
            return {"$ref": f"#/definitions/{self.apart(node)}"}
        made: dict[str, Json] = {}
        extra: list[Json] = []
        for keyword, value in node.items():
            if keyword in _APPLICATORS:
                made[keyword] = self.applied(keyword, value, (depth + 1, blocks + (keyword in _BLOCKS)))
            else:
                self.asserted(keyword, value, made, extra)
        limit = min((pattern.max_length for pattern in node.get("patternProperties", ())), default=sys.maxsize)
        if limit < sys.maxsize:
            # In allOf, which is held against the value before patternProperties is.
            extra.append(self.native(lambda _: _short_names(limit)))
        if "contains" in node:
            self.counted(node, made, extra)
        if made.get("additionalProperties") is False and set(made.get("required", ())) - set(
            made.get("properties", ())
        ):
            extra.append({"required": made.pop("required")})
        if extra:
            made["allOf"] = [*made.get("allOf", ()), *extra]
        return made

    def applied(self, keyword: str, value: Any, level: tuple[int, int]) -> Json:
        """Return the value of a keyword that holds schemas."""
        if isinstance(value, list):
            return [self.node(item, *level) for item in value]
        match keyword:
            case "properties":
                return {name: self.node(item, *level) for name, item in value.items()}
            case "dependencies":
                return {
                    name: item if isinstance(item, list) else self.node(item, *level) for name, item in value.items()
                }
            case "patternProperties":
                below: dict[str, Json] = {}
                for pattern, item in value.items():
                    text, node = pattern.regex.pattern, self.node(item, *level)
                    below[text] = {"allOf": [below[text], node]} if text in below else node
                return below
            case _:
                return self.node(value, *level)

    def asserted(self, keyword: str, value: Any, made: dict[str, Json], extra: list[Json]) -> None:
        """Add a keyword that holds no schemas to ``made``, or what stands for it to ``extra``."""
        match keyword:
            case "type":
                self.types(value, made, extra)
            case "const":
                extra.append({"enum": [thaw(value)]})
            case "enum" if len(value) > _MAX_COMPARED and all(isinstance(item, str) for item in value):
                # One look into a set instead of a comparison with each.
                name = f"e{len(self.formats)}"
                self.formats[name] = frozenset(value).__contains__
                extra.append({"type": "string", "format": name})
            case "enum":
                made[keyword] = thaw(value)
            case "pattern":
                extra.append({"format": self.pattern(value)})
            case "format":
                made["format"] = f"f{value}"
                self.formats[f"f{value}"] = FORMATS[value]
            case "multipleOf":
                extra.append(self.native(lambda _: _multiple(value)))
            case "minContains" | "maxContains" | "contains" | "label":
                pass
            case _:
                made[keyword] = value

    def counted(self, node: dict[str, Node], made: dict[str, Json], extra: list[Json]) -> None:
        name = self.apart(node["contains"])
        if node["minContains"] == 1 and node["maxContains"] is None:
            made["contains"] = {"$ref": f"#/definitions/{name}"}
        else:
            maker = _counting(name, node["minContains"], node["maxContains"])
            extra.append(self.native(maker, body={"$ref": f"#/definitions/{name}"}))

    def pattern(self, pattern: Pattern) -> str:
        name = self._patterns.get(pattern)
        if name is None:
            name = self._patterns[pattern] = f"p{len(self._patterns)}"
            self.formats[name] = _bounded(pattern)
        return name

    def types(self, value: list[str], made: dict[str, Json], extra: list[Json]) -> None:
        if "int" not in value:
            made["type"] = value
            return
        others = [name for name in value if name != "int"]
        whole = self.native(lambda _: _whole)
        extra.append({"anyOf": [whole, {"type": others}]} if others else whole)


# -------------------------------------------------------------------------------- functions put in by hand


def _fail(message: str) -> NoReturn:
    raise fastjsonschema.JsonSchemaValueException(message)


def _bounded(pattern: Pattern) -> Callable[[str], bool]:
    search, limit = pattern.regex.search, pattern.max_length
    if limit == sys.maxsize:
        return search  # type: ignore[return-value]  # a match is true

    def match(text: str) -> bool:
        if len(text) > limit:
            raise too_long(pattern)
        return search(text) is not None

    return match


def too_long(pattern: Pattern) -> ValueFaultError:
    """Return the error for a text that a pattern would take too long on."""
    return ValueFaultError(
        f"a text longer than {pattern.max_length} characters is not matched against the pattern {pattern.source[:60]}"
    )


def _step(_: Mapping[str, Any]) -> Function:
    def check(_: object, custom_formats: Mapping[str, Iterator[int]], *__: object) -> None:
        if next(custom_formats[_STEPS]) > MAX_STEPS:
            raise ValueFaultError("the schema's references multiply over it and would take too long")

    return check


def _short_names(limit: int) -> Function:
    def check(data: Json, *_: object) -> None:
        if isinstance(data, dict) and any(len(name) > limit for name in data):
            raise ValueFaultError(f"a property name longer than {limit} characters is not matched against a pattern")

    return check


def _whole(data: Json, *_: object) -> None:
    if not isinstance(data, int) or isinstance(data, bool):
        _fail("must be integer")


def is_multiple(value: float, factor: float) -> bool:
    """Tell exactly whether a number is a multiple of another, both taken as the decimals that they are written as."""
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    if not isinstance(value, int) and not math.isfinite(value):
        raise ValueFaultError("a number that is not finite cannot be checked against multipleOf")
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        from fractions import Fraction  # noqa: PLC0415 – for integers of hundreds of digits alone

        return (value / Fraction(Decimal(repr(factor)))).denominator == 1
    return not _EXACT.remainder(Decimal(repr(value)), Decimal(repr(factor)))


def _multiple(factor: float) -> Function:
    def check(data: object, *_: object) -> None:
        if isinstance(data, (int, float)) and not isinstance(data, bool) and not is_multiple(data, factor):
            _fail("must be a multiple")

    return check


def _counting(name: str, low: int, high: int | None) -> _Maker:
    generated = _function_name(name)

    def make(names: Mapping[str, Any]) -> Function:
        def check(data: Json, custom_formats: Any = None, *_: object) -> None:
            if not isinstance(data, (list, tuple)):
                return
            function = names[generated]
            found = 0
            for item in data:
                try:
                    function(item, custom_formats)
                except fastjsonschema.JsonSchemaValueException:
                    continue
                found += 1
                if high is not None and found > high:
                    break
            if found < low or (high is not None and found > high):
                _fail("contains another number of items")

        return check

    return make
