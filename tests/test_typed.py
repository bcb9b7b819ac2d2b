from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NewType, NotRequired, Optional, Required, TypedDict, TypeVar, Union

import attrs
import cattrs
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._class_schemas import class_named, json_schema_of
from promptkit._fields import FrozenDict, Json, freeze
from promptkit._loading._schemas import SchemaStore
from promptkit._results import PreparedRun, RunResult
from promptkit._schema_drift import differences, drift
from promptkit._typed import _converter, structure
from promptkit._types import ExecutionOverride, Problem, Usage
from promptkit.errors import ConfigError

Money = NewType("Money", float)
T = TypeVar("T")


class Currency(enum.Enum):
    """Which money."""

    EURO = "EUR"
    DOLLAR = "USD"


@attrs.frozen
class Line:
    """One line of an invoice."""

    text: str = attrs.field(metadata={"description": "What was bought."})
    price: Money
    tags: list[str] = attrs.field(factory=list)


class Address(TypedDict, total=False):
    """Where somebody lives."""

    city: Required[str]
    code: Annotated[str, "The postal code."]


class Person(TypedDict):
    """Who pays."""

    name: str
    address: NotRequired[Address]


@dataclasses.dataclass
class Invoice:
    """An invoice."""

    number: int
    currency: Currency
    lines: list[Line]
    is_paid: bool = False
    kind: Literal["bill", "credit", 3] = "bill"
    payer: Person | None = None
    place: tuple[float, float] = (0.0, 0.0)
    notes: Mapping[str, int | str | None] = dataclasses.field(default_factory=dict)
    corrects: Optional[Invoice] = None  # noqa: UP045  # the older spelling is read too
    extra: Any = None


DATA = {
    "number": 7,
    "currency": "EUR",
    "lines": [{"text": "tea", "price": 3, "tags": ["hot"]}],
    "payer": {"name": "Ada", "address": {"city": "Ghent"}},
    "place": [51.05, 3],
    "notes": {"a": 1, "b": "x", "c": None},
    "corrects": {"number": 6, "currency": "USD", "lines": []},
    "extra": {"anything": [1]},
}


def with_value(pointer: str, value: Json) -> dict[str, Json]:
    """Return `DATA` with one value replaced."""

    def replaced(part: Json, tokens: list[str]) -> Json:
        if not tokens:
            return value
        key = int(tokens[0]) if isinstance(part, list) else tokens[0]
        copy = part.copy()
        copy[key] = replaced(part[key] if not isinstance(part, dict) or key in part else None, tokens[1:])
        return copy

    result: dict[str, Json] = replaced(DATA, pointer.split("/")[1:])
    return result


# --------------------------------------------------------------------------------------------------- structure


def test_data_becomes_objects_of_the_class() -> None:
    """Nested classes, enums, tuples, unions and defaults, from frozen data as a result has it."""
    invoice = structure(freeze(DATA), Invoice)
    assert invoice == Invoice(
        number=7,
        currency=Currency.EURO,
        lines=[Line("tea", Money(3.0), ["hot"])],
        payer={"name": "Ada", "address": {"city": "Ghent"}},
        place=(51.05, 3.0),
        notes={"a": 1, "b": "x", "c": None},
        corrects=Invoice(6, Currency.DOLLAR, []),
        extra=FrozenDict({"anything": [1]}),
    )
    assert type(invoice.lines) is list
    assert type(invoice.lines[0].price) is float


def test_an_attrs_class_and_a_typed_dict_are_taken_at_the_top() -> None:
    """The three kinds of classes are equals."""
    assert structure({"text": "a", "price": 1.5}, Line) == Line("a", Money(1.5))
    assert structure({"name": "Ada"}, Person) == {"name": "Ada"}


def test_a_result_gives_its_data_as_an_object() -> None:
    """`RunResult.structure` is the public door."""
    prepared = PreparedRun(
        prompt="p",
        profile="f",
        backend=None,
        endpoint="http://127.0.0.1",
        model=None,
        messages=(),
        session_id=None,
        execution=ExecutionOverride(),
        output_format="json",
        definition_hash="",
        inputs_hash="",
        rendered_hash="",
        duration_s=0.0,
    )
    result = RunResult(data=freeze({"text": "a", "price": 2}), text="", prepared=prepared, usage=Usage(), attempts=())
    assert result.structure(Line) == Line("a", Money(2.0))


def test_an_integer_may_be_spelled_as_a_number() -> None:
    """JSON Schema counts 7.0 as an integer, so that a field of type int takes it; it becomes an int."""
    number = structure(with_value("/number", 7.0), Invoice).number
    assert (number, type(number)) == (7, int)


@pytest.mark.parametrize(
    ("pointer", "value", "words"),
    [
        ("/number", "7", "/number: must be integer, got string"),
        ("/number", 7.5, "/number: must be integer, got number"),
        ("/number", True, "/number: must be integer, got boolean"),
        ("/number", None, "/number: must be integer, got null"),
        ("/is_paid", 1, "/is_paid: must be boolean, got integer"),
        ("/is_paid", "false", "/is_paid: must be boolean, got string"),
        ("/currency", "eur", "/currency: must be one of 'EUR', 'USD', got string"),
        ("/kind", "other", "/kind: must be one of 'bill', 'credit', 3, got string"),
        ("/kind", True, "/kind: must be one of"),
        ("/lines", {}, "/lines: must be array, got object"),
        ("/lines", "tea", "/lines: must be array, got string"),
        ("/lines/0/tags", "hot", "/lines/0/tags: must be array, got string"),
        ("/lines/0/tags", [1], "/lines/0/tags/0: must be string, got integer"),
        ("/lines/0/price", "3", "/lines/0/price: must be number, got string"),
        ("/lines/0", {"text": "a"}, "/lines/0: lacks 'price'"),
        ("/payer", 3, "/payer: must be object or null, got integer"),
        ("/payer/address", {"city": "x", "street": "y"}, "/payer/address: has 'street', which is no field"),
        ("/payer/address", {"code": "x"}, "/payer/address: lacks 'city'"),
        ("/place", [1], "/place: must have 2 items, got 1"),
        ("/place", [1, "x"], "/place/1: must be number, got string"),
        ("/notes/a~b", [], "/notes/a~0b: must be integer or string or null, got array"),
        ("/other", 1, "(root): has 'other', which is no field"),
        ("", [], "(root): must be object, got array"),
        ("/number", object, "/number: must be integer, got type"),
    ],
)
def test_nothing_is_made_to_fit(pointer: str, value: Json, words: str) -> None:
    """What cattrs alone would coerce or drop is an error that names the place."""
    data = with_value(pointer, value)
    with pytest.raises(ConfigError, match="does not fit Invoice") as caught:
        structure(data, Invoice)
    assert words in str(caught.value)


def test_all_that_does_not_fit_is_told_within_bounds() -> None:
    """The first five places, and how many more there are."""
    with pytest.raises(ConfigError, match="; and 3 more") as caught:
        structure({str(number): 1 for number in range(6)}, Line)
    assert "lacks 'text'; (root): lacks 'price'; (root): has '0'" in str(caught.value)


def test_what_the_class_itself_refuses_is_told_with_its_place() -> None:
    """A validator's error is translated, with a pointer to the object that it refused."""

    @attrs.frozen
    class Item:
        count: int = attrs.field(validator=attrs.validators.ge(1))

    @attrs.frozen
    class Box:
        items: list[Item]

    class_globals = {"Item": Item}
    Box.__annotations__["items"] = list[Item]
    attrs.resolve_types(Box, globalns=class_globals)
    with pytest.raises(ConfigError, match=r"/items/1.*'count' must be >= 1") as caught:
        structure({"items": [{"count": 2}, {"count": 0}]}, Box)
    assert caught.value.__cause__ is not None


def test_a_constructor_that_fails_is_translated() -> None:
    """So is an error that comes without a place."""

    @dataclasses.dataclass
    class Odd:
        def __post_init__(self) -> None:
            raise RuntimeError("no")

    with pytest.raises(ConfigError, match=r"does not fit .*Odd: \(root\): RuntimeError: no"):
        structure({}, Odd)


def test_a_converter_of_ones_own_decides_alone() -> None:
    """For types that JSON does not have, such as dates."""

    @attrs.frozen
    class Visit:
        day: dt.date

    converter = cattrs.Converter()
    converter.register_structure_hook(dt.date, lambda text, _: dt.date.fromisoformat(text))
    Visit.__annotations__["day"] = dt.date
    attrs.resolve_types(Visit)
    assert structure({"day": "2026-11-30"}, Visit, converter=converter) == Visit(dt.date(2026, 11, 30))
    with pytest.raises(ConfigError, match="/day: ValueError"):
        structure({"day": "tomorrow"}, Visit, converter=converter)


def test_without_cattrs_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core does not need it; the message says what to install."""
    monkeypatch.setitem(sys.modules, "cattrs", None)
    _converter.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install promptkit\[typed\]"):
        structure({"name": "Ada"}, Person)
    _converter.cache_clear()


# ------------------------------------------------------------------------------------------------------ schema


def test_the_schema_says_what_the_class_says() -> None:
    """Types, requiredness, descriptions from docstrings, metadata and Annotated, and nothing beside the fields."""
    schema = json_schema_of(Invoice)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["x-python-class"].endswith(":Invoice")
    assert (schema["title"], schema["description"]) == ("Invoice", "An invoice.")
    assert schema["required"] == ["number", "currency", "lines"]
    assert schema["additionalProperties"] is False
    assert schema["properties"] == {
        "number": {"type": "integer"},
        "currency": {"enum": ["EUR", "USD"]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
        "is_paid": {"type": "boolean"},
        "kind": {"enum": ["bill", "credit", 3]},
        "payer": {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}]},
        "place": {
            "type": "array",
            "prefixItems": [{"type": "number"}, {"type": "number"}],
            "items": False,
            "minItems": 2,
        },
        "notes": {
            "type": "object",
            "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
        },
        "corrects": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        "extra": {},
    }
    assert schema["$defs"]["Line"] == {
        "type": "object",
        "description": "One line of an invoice.",
        "properties": {
            "text": {"type": "string", "description": "What was bought."},
            "price": {"type": "number"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["text", "price"],
        "additionalProperties": False,
    }
    assert schema["$defs"]["Address"]["required"] == ["city"]
    assert schema["$defs"]["Address"]["properties"]["code"]["description"] == "The postal code."
    assert schema["$defs"]["Person"]["required"] == ["name"]


def test_the_schema_is_one_and_judges_as_structure_does() -> None:
    """An independent validator finds the schema in order and agrees about the data."""
    schema = json_schema_of(Invoice)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert jsonschema.Draft202012Validator(schema).is_valid(DATA)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from([1.0, 0.5, "a", "EUR"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "name", "city"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(value=VALUES, pointer=st.sampled_from([f"/{name}" for name in DATA] + ["/lines/0/price", "/payer/address", ""]))
def test_structure_takes_what_the_schema_takes(value: Json, pointer: str) -> None:
    """Any data satisfies the schema of the class exactly when an object can be made of it."""
    data = with_value(pointer, value)
    is_valid = jsonschema.Draft202012Validator(json_schema_of(Invoice)).is_valid(data)
    if is_valid:
        assert isinstance(structure(data, Invoice), Invoice)
    else:
        with pytest.raises(ConfigError):
            structure(data, Invoice)


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, {"type": "string"}),
        (type(None), {"type": "null"}),
        (object, {}),
        (list, {"type": "array"}),
        (dict, {"type": "object"}),
        (tuple, {"type": "array"}),
        (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (tuple[()], {"type": "array", "prefixItems": [], "items": False, "minItems": 0}),
        (frozenset[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (dict[str, Any], {"type": "object", "additionalProperties": {}}),
        (Union[int, None], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP007  # the older spelling
        (Literal[Currency.EURO, None], {"enum": ["EUR", None]}),  # noqa: PYI061  # on purpose
        (Annotated[int, 3], {"type": "integer"}),
        (enum.IntEnum("Level", ["LOW", "HIGH"]), {"enum": [1, 2]}),
    ],
)
def test_every_type_that_json_carries_has_a_schema(kind: Any, schema: Json) -> None:
    """Containers with and without their items, unions, choices."""
    made = attrs.make_class("Made", {"field": attrs.field(type=kind)})
    assert json_schema_of(made)["properties"]["field"] == schema


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement is new in Python 3.12")
def test_a_type_alias_stands_for_its_type() -> None:
    """``type Count = int`` is an int."""
    namespace: dict[str, Any] = {}
    exec("type Count = int", namespace)  # a syntax that Python 3.11 cannot read
    made = attrs.make_class("Made", {"field": attrs.field(type=namespace["Count"])})
    assert json_schema_of(made)["properties"]["field"] == {"type": "integer"}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (bytes, "Made.field: bytes has no JSON form"),
        (dt.date, "Made.field: date has no JSON form"),
        (complex, "complex has no JSON form"),
        (list[bytes], "Made.field: bytes"),
        (dict[int, str], "keys of a mapping must be str, not int"),
        (Literal[b"x"], "a choice must be a string"),
        (enum.Enum("Odd", {"A": (1, 2)}), "a choice must be a string"),
        (T, "has no JSON form"),
        (type("Sub", (str,), {}), "has no JSON form"),
    ],
)
def test_a_type_that_json_does_not_carry_is_refused_by_its_field(kind: Any, words: str) -> None:
    """Nothing is written that a result could not satisfy."""
    made = attrs.make_class("Made", {"field": attrs.field(type=kind)})
    with pytest.raises(ConfigError, match=r"Made\.field") as caught:
        json_schema_of(made)
    assert words in str(caught.value)


def test_a_class_without_fields_to_read_is_refused() -> None:
    """Not a class of fields, a field without annotation, an annotation that cannot be resolved."""
    with pytest.raises(ConfigError, match="int is neither an attrs class nor a dataclass"):
        json_schema_of(int)
    with pytest.raises(ConfigError, match="neither"):
        json_schema_of(list[int])  # type: ignore[arg-type]  # what a caller may do all the same
    with pytest.raises(ConfigError, match=r"Bare\.x has no type annotation"):
        json_schema_of(attrs.make_class("Bare", ["x"]))

    @dataclasses.dataclass
    class Lost:
        x: Nowhere  # type: ignore[name-defined]  # noqa: F821  # the point

    with pytest.raises(ConfigError, match=r"annotations of Lost cannot be resolved.*Nowhere"):
        json_schema_of(Lost)


def test_fields_that_no_constructor_takes_are_left_out() -> None:
    """They cannot be filled from data."""

    @attrs.frozen
    class Half:
        a: int
        b: int = attrs.field(init=False, default=3)

    @dataclasses.dataclass
    class Other:
        a: int
        b: int = dataclasses.field(init=False, default=3)

    assert list(json_schema_of(Half)["properties"]) == list(json_schema_of(Other)["properties"]) == ["a"]
    assert "description" not in json_schema_of(Other)


def test_two_classes_of_one_name_are_kept_apart() -> None:
    """Their definitions get different names."""
    first = attrs.make_class("Part", {"a": attrs.field(type=int)})
    second = attrs.make_class("Part", {"b": attrs.field(type=int)})
    whole = attrs.make_class("Whole", {"x": attrs.field(type=first), "y": attrs.field(type=second)})
    schema = json_schema_of(whole)
    assert [schema["properties"][name]["$ref"] for name in "xy"] == ["#/$defs/Part", "#/$defs/Part_"]
    assert list(schema["$defs"]["Part_"]["properties"]) == ["b"]


def test_a_set_takes_no_lists() -> None:
    """Its items must be hashable; that is told before it fails."""
    made = attrs.make_class("Made", {"field": attrs.field(type=set)})
    assert structure({"field": ["a"]}, made).field == {"a"}
    with pytest.raises(ConfigError, match="/field: is a set"):
        structure({"field": [["a"]]}, made)


# ------------------------------------------------------------------------------------------------ naming a class


def test_a_class_is_found_by_its_name() -> None:
    """``module:Class``, nested classes included."""
    assert class_named("promptkit._types:Issue").__name__ == "Issue"
    assert class_named("collections:OrderedDict") is __import__("collections").OrderedDict


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("Invoice", "named as module:Class"),
        (":Invoice", "named as module:Class"),
        ("no.such.module:Invoice", "ModuleNotFoundError"),
        ("..x:Invoice", "TypeError"),
        ("json:Nothing", "has no class 'Nothing'"),
        ("json:dumps", "has no class 'dumps'"),
        ("json:JSONDecoder.no.such", "has no class"),
    ],
)
def test_a_name_that_leads_to_no_class_is_told(reference: str, words: str) -> None:
    """Whatever goes wrong on the way is one kind of error."""
    with pytest.raises(ConfigError) as caught:
        class_named(reference)
    assert words in str(caught.value)
    assert repr(reference) in str(caught.value)


# ------------------------------------------------------------------------------------------------------- drift


@pytest.mark.parametrize("cls", [Invoice, Line, Person, Address])
def test_a_schema_made_of_a_class_has_not_drifted(cls: type) -> None:
    """Nor has its frozen copy."""
    assert differences(json_schema_of(cls), cls) == []
    assert differences(freeze(json_schema_of(cls)), cls) == []


@dataclasses.dataclass
class Small:
    """A class to drift from."""

    n: int
    level: Literal["low", "high"] = "low"
    ratio: float | None = None
    tags: list[str] = dataclasses.field(default_factory=list)
    pair: tuple[int, str] | None = None
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    unique: frozenset[str] = frozenset()
    inner: list[Small] = dataclasses.field(default_factory=list)


def small(**changes: Json) -> dict[str, Json]:
    """Return the schema of `Small` with properties replaced; None leaves one out."""
    schema = json_schema_of(Small)
    properties = {**schema["properties"], **changes}
    return {**schema, "properties": {name: part for name, part in properties.items() if part is not None}}


@pytest.mark.parametrize(
    "changes",
    [
        {"n": {"type": "integer", "minimum": 0, "description": "x"}},
        {"n": {"const": 3}},
        {"n": {"enum": [1, 2.0]}},
        {"n": {"allOf": [{"type": "integer"}, {"minimum": 0}]}},
        {"n": {"allOf": [{"type": "integer"}, True]}},
        {"n": {"allOf": [{"type": "string"}, False]}},
        {"n": {"$ref": "#/$defs/count~1n"}},
        {"n": False},
        {"level": {"const": "low"}},
        {"level": {"type": "string", "enum": ["high"]}},
        {"ratio": {"type": ["number", "null"]}},
        {"ratio": {"type": "integer"}},
        {"ratio": {"oneOf": [{"type": "null"}, {"type": "number", "maximum": 1}]}},
        {"ratio": {"type": "number", "anyOf": [{"minimum": 1}, {"maximum": 0}]}},
        {"tags": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 3}},
        {"tags": {"type": "array", "prefixItems": [{"const": "a"}], "items": {"type": "string"}}},
        {"tags": {"type": "array", "items": [{"const": "a"}], "additionalItems": {"type": "string"}}},
        {"pair": {"type": "array", "items": [{"const": 1}, {"type": "string"}], "minItems": 2, "maxItems": 2}},
        {"counts": {"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": False}},
        {"counts": {"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}},
        {"inner": {"type": "array", "items": {"$ref": "#"}, "maxItems": 1}},
        {"inner": {"type": "array", "items": False}},
    ],
    ids=str,
)
def test_a_narrower_schema_has_not_drifted(changes: dict[str, Json]) -> None:
    """What only forbids more still fits the class, in any spelling of it."""
    assert differences({**small(**changes), "$defs": {"count/n": {"type": "integer"}}}, Small) == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"n": None}, "(root): Small has the field 'n', which is not in the schema"),
        ({"other": {"type": "string"}}, "(root): the schema has 'other', which is no field of Small"),
        ({"n": {"type": "string"}}, "/n: the schema allows string, Small takes integer"),
        ({"n": {"type": "number"}}, "/n: the schema allows number, Small takes integer"),
        ({"n": {"type": ["integer", "null"]}}, "/n: the schema allows null, Small takes integer"),
        ({"n": {}}, "/n: the schema allows any type, Small takes integer"),
        ({"n": True}, "/n: the schema allows any type, Small takes integer"),
        ({"n": {"minimum": 3}}, "/n: the schema allows any type, Small takes integer"),
        ({"n": {"$ref": "#/$defs/none"}}, "/n: the schema allows any type, Small takes integer"),
        ({"n": {"$ref": "other.json"}}, "/n: the schema allows any type, Small takes integer"),
        ({"n": {"$ref": "#/properties/n"}}, "/n: the schema allows any type, Small takes integer"),
        ({"n": {"enum": [1, "x", True]}}, "/n: the schema allows 'x', Small takes integer"),
        ({"level": {"type": "string"}}, "/level: the schema allows string, Small takes one of low, high"),
        ({"level": {"enum": ["low", "mid"]}}, "/level: the schema allows 'mid', Small takes one of low, high"),
        ({"ratio": {"type": ["number", "string"]}}, "/ratio: the schema allows string, Small takes null or number"),
        ({"tags": {"type": "array"}}, "/tags/*: the schema allows any type, Small takes string"),
        ({"tags": {"type": "array", "items": {"type": "integer"}}}, "/tags/*: the schema allows integer"),
        (
            {"pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]}},
            "/pair: Small takes exactly 2",
        ),
        (
            {"pair": {"type": "array", "prefixItems": [{"type": "integer"}, {}], "items": False, "minItems": 2}},
            "/pair/1: the schema allows any type",
        ),
        ({"counts": {"type": "object"}}, "/counts/*: the schema allows any type"),
        (
            {"counts": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}},
            "/counts/a: the schema allows string",
        ),
        ({"unique": {"type": "array", "items": {"type": "string"}}}, "/unique: Small has a set"),
        ({"inner": {"type": "array", "items": {"type": "object"}}}, "/inner/*: Small has the field 'n'"),
    ],
    ids=str,
)
def test_what_the_class_does_not_hold_is_a_difference(changes: dict[str, Json], line: str) -> None:
    """Each place is named, as a pointer into the data, with both sides."""
    assert any(found.startswith(line) for found in differences(small(**changes), Small))


def test_requiredness_and_other_properties_are_compared() -> None:
    """A field without default must be required, and other properties must be ruled out."""
    loose = {**small(), "required": []}
    assert differences(loose, Small)[0] == "(root): Small needs 'n', which the schema does not require"
    del loose["additionalProperties"]
    assert any("add additionalProperties: false" in line for line in differences(loose, Small))
    assert differences({**small(), "required": ["n", "level"]}, Small) == []


def test_a_schema_in_parts_is_compared_as_a_whole() -> None:
    """``allOf`` may give some of the properties, and some of the required ones, in each part."""
    schema = json_schema_of(Line)
    text = {"properties": {"text": schema["properties"].pop("text"), "old": False}, "required": ["text"]}
    schema["required"].remove("text")
    assert differences({**schema, "allOf": [text]}, Line) == []
    assert differences(schema, Line) == ["(root): Line has the field 'text', which is not in the schema"]


def test_an_alternative_of_the_class_is_found() -> None:
    """Of several classes in a union the one that fits is compared."""
    made = attrs.make_class("Made", {"field": attrs.field(type=Union[Line, Person])})  # noqa: UP007  # as a value
    schema = json_schema_of(made)
    assert differences(schema, made) == []
    schema["properties"]["field"] = {"$ref": "#/$defs/Person"}
    assert differences(schema, made) == []
    schema["$defs"]["Person"]["required"] = []
    assert differences(schema, made) == ["/field: Made needs 'name', which the schema does not require"]
    assert structure({"field": {"name": "Ada"}}, made).field == {"name": "Ada"}
    assert structure({"field": {"text": "a", "price": 1}}, made).field == Line("a", Money(1.0))


def test_a_reference_that_leads_to_itself_ends() -> None:
    """It allows anything."""
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert differences(schema, Line) == ["(root): the schema allows any type, Line takes object"]


def test_a_schema_is_compared_with_the_class_that_it_names() -> None:
    """In step, drifted, naming no class, or naming none that there is."""
    problem = json_schema_of(Problem)
    assert drift(problem, problem) == []
    loose = {**problem, "required": []}
    assert len(drift(loose, loose)) == len(problem["required"])
    for unnamed in ({"type": "object"}, True):
        assert drift(unnamed, unnamed) == []
    for name, words in (("json:Nothing", "no class 'Nothing'"), (3, "module:Class"), ("json:JSONDecoder", "neither")):
        (line,) = drift({"x-python-class": name}, {})
        assert words in line


def test_the_name_of_the_class_stays_here(tmp_path: Path) -> None:
    """It is for `check`; a server is not told of it, and it does not stand in the way of strict mode."""
    strict = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    named = {"x-python-class": "shop:Part", **strict}
    (tmp_path / "part.json").write_text(json.dumps(named))
    (tmp_path / "whole.json").write_text(
        json.dumps({**named, "properties": {"a": {"$ref": "part.json"}}, "x-python-class": "shop:Whole"})
    )
    store = SchemaStore(tmp_path)
    part, whole = store.load(named), store.load("whole.json")
    assert (part.source["x-python-class"], whole.source["x-python-class"]) == ("shop:Part", "shop:Whole")
    assert part.wire_schema == strict
    assert "x-python-class" not in json.dumps(whole.wire_schema)
    assert part.strict_obstacles == whole.strict_obstacles == ()


def test_a_generic_class_is_refused() -> None:
    """Its type variables have no form of their own."""

    @attrs.frozen
    class Box(Generic[T]):
        item: T

    with pytest.raises(ConfigError, match=r"Box\.item"):
        json_schema_of(Box)
