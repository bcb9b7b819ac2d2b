"""The field cases about JSON Schema, each by its id: what users met on the plain libraries, and what happens here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from promptkit._definitions import Place
from promptkit._loading._schemas import CompiledSchema, SchemaStore
from promptkit.errors import DocumentError


@pytest.fixture
def store(tmp_path: Path) -> SchemaStore:
    """Return a store whose root has nothing in it."""
    return SchemaStore(tmp_path)


def messages(schema: CompiledSchema, value: Any) -> str:
    """Return what is said about a value, one issue a line."""
    return "\n".join(map(str, schema.validate(value)))


def refusal(store: SchemaStore, schema: Any) -> str:
    """Return what is said about a schema that does not load."""
    with pytest.raises(DocumentError) as caught:
        store.load(schema, path="prompts/p.yaml", place=Place(3, 5))
    assert "prompts/p.yaml:3:5: " in str(caught.value)
    return str(caught.value)


def test_s01_a_tuple_of_2020_12(store: SchemaStore) -> None:
    """A list under prefixItems with items: false means what the standard says, not what draft-07 makes of it."""
    schema = store.load(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "array",
            "prefixItems": [{"type": "integer"}],
            "items": False,
        }
    )
    assert schema.validate([1]) == ()
    assert "item 0 must be integer" in messages(schema, ["x"])
    assert "at most 1 items, got 2" in messages(schema, [1, 2])


def test_s02_unevaluated_properties(store: SchemaStore) -> None:
    """What the branches do not name is refused, as the standard says."""
    schema = store.load(
        {"type": "object", "allOf": [{"properties": {"a": {"type": "integer"}}}], "unevaluatedProperties": False}
    )
    assert schema.validate({"a": 1}) == ()
    (issue,) = schema.validate({"a": 1, "b": 2})
    assert (issue.pointer, issue.keyword) == ("", "unevaluatedProperties")
    assert "unexpected property b" in issue.message


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 2}, {"a": 1}),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1, "b": 2}, {"a": 1}),
        ({"contains": {"type": "integer"}, "minContains": 2}, [1, 2], [1, "x"]),
        ({"contains": {"type": "integer"}, "maxContains": 1}, [1, "x"], [1, 2]),
        ({"contains": {"type": "integer"}, "minContains": 0, "maxContains": 1}, [], [1, 2]),
        ({"$anchor": "top", "properties": {"a": {"$ref": "#top"}}, "required": ["b"]}, {"b": 1}, {"b": 1, "a": {}}),
        ({"$dynamicAnchor": "t", "properties": {"a": {"$dynamicRef": "#t"}}, "type": "object"}, {"a": {}}, {"a": 1}),
        ({"prefixItems": [{"type": "integer"}]}, [1, "x"], ["x"]),
        ({"$ref": "#/$defs/a", "maximum": 5, "$defs": {"a": {"type": "integer"}}}, 5, 6),
    ],
)
def test_s02_nothing_of_2020_12_is_ignored(store: SchemaStore, schema: Any, good: Any, bad: Any) -> None:
    """Every keyword that a draft-07 validator passes over is enforced."""
    compiled = store.load(schema)
    assert compiled.validate(good) == ()
    assert compiled.validate(bad) != ()


def test_s04_a_local_reference(store: SchemaStore) -> None:
    """A reference into $defs is followed, and the issue says what was wanted."""
    schema = store.load({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}})
    assert 'must be integer, got string "x"' in messages(schema, "x")


def test_s07_a_dangling_reference(store: SchemaStore) -> None:
    """A reference that leads nowhere is named with its file when the schema loads."""
    assert "#/$defs/none leads nowhere" in refusal(store, {"$ref": "#/$defs/none"})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
        {"anyOf": [{"type": "null"}, {"$ref": "#"}]},
        {"not": {"$ref": "#"}},
        {"if": {"$ref": "#"}},
        {"dependentSchemas": {"a": {"$ref": "#"}}},
        {"$dynamicAnchor": "x", "$dynamicRef": "#x"},
    ],
)
def test_s08_a_schema_that_only_refers_to_itself(store: SchemaStore, schema: Any) -> None:
    """A loop that no value could end is found when the schema loads."""
    assert "recursive reference" in refusal(store, schema)


@pytest.mark.parametrize(
    ("schema", "wrap"),
    [
        ({"type": "array", "items": {"$ref": "#"}}, lambda below: [below]),
        ({"properties": {"a": {"$ref": "#"}}, "type": "object"}, lambda below: {"a": below}),
        ({"additionalProperties": {"$ref": "#"}}, lambda below: {"a": below}),
        ({"anyOf": [{"type": "null"}, {"items": {"$ref": "#"}}]}, lambda below: [below]),
        ({"uniqueItems": True}, lambda below: [below]),
        ({"contains": {"$ref": "#"}, "minContains": 0, "maxContains": 3}, lambda below: [below]),
    ],
)
def test_s09_a_value_nested_too_deeply(store: SchemaStore, schema: Any, wrap: Any) -> None:
    """A deep value against a recursive schema is an issue, whatever the recursion goes through."""
    compiled = store.load(schema)
    value: Any = wrap({})
    for _ in range(sys.getrecursionlimit() * 3):
        value = wrap(value)
    (issue,) = compiled.validate(value)
    assert "nested too deeply" in issue.message


@pytest.mark.parametrize("schema", [[1], {"type": "object", "properties": []}, 5, None])
def test_s10_not_a_mapping(store: SchemaStore, schema: Any) -> None:
    """What is no schema, or has none where one belongs, is said with its path and what was expected."""
    assert "a mapping" in refusal(store, schema)


def test_s10_a_string_is_the_name_of_a_file(store: SchemaStore) -> None:
    """A name without a file is told with the root that was looked into."""
    assert "there is no file 'string' under the schema root" in refusal(store, "string")


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "object", "require": ["n"]}, "unknown keyword require, did you mean required?"),
        ({"type": "object", "requried": ["n"]}, "unknown keyword requried, did you mean required?"),
        ({"propertes": {}}, "did you mean properties?"),
        ({"additionalproperties": False}, "did you mean additionalProperties?"),
        ({"additional_properties": False}, "use additionalProperties"),
        ({"anyof": [True]}, "did you mean anyOf?"),
        ({"min_length": 3}, "did you mean minLength?"),
        ({"type": "strng"}, "unknown type strng, did you mean string?"),
        ({"type": "int"}, "did you mean integer?"),
        ({"type": "str"}, "did you mean string?"),
        ({"type": "any"}, "leave type out"),
        ({"type": ["string", "nul"]}, "unknown type nul, did you mean null?"),
        ({"type": ["string", None]}, 'quote it: "null"'),
        ({"type": "string|null"}, "write several types as a list"),
        ({"minLength": "3"}, "minLength must be an integer that is not negative, not a string; leave the quotation"),
        ({"minLength": -1}, "minLength must be an integer that is not negative"),
        ({"minLength": 1.5}, "minLength must be an integer that is not negative"),
        ({"minimum": True}, "minimum must be a number, not a boolean"),
        ({"minimum": "0"}, "minimum must be a number, not a string; leave the quotation marks out"),
        ({"multipleOf": 0}, "multipleOf must be a number above 0"),
        ({"maximum": float("inf")}, "not finite"),
        ({"maximum": float("nan")}, "not finite"),
        ({"exclusiveMinimum": True, "minimum": 1}, "exclusiveMinimum must be a number, not a boolean"),
        ({"enum": []}, "nothing would be valid"),
        ({"enum": "a"}, "enum must be a list of values that is not empty, not a string"),
        ({"required": True}, "beside properties"),
        ({"required": ["a", "a"]}, "a is there twice"),
        ({"required": ["a", 1]}, "an integer is among them"),
        ({"items": [{"type": "string"}]}, "a list of schemas belongs under prefixItems"),
        ({"anyOf": {}}, "anyOf must be a list of schemas"),
        ({"properties": {"a": "string"}}, "#/properties/a: a schema must be a mapping or a boolean, not a string"),
        ({"properties": {"a": None}}, "#/properties/a: a schema must be a mapping or a boolean, not null"),
        ({"pattern": "("}, "#/pattern: missing )"),
        ({"patternProperties": {"[": True}}, "#/patternProperties/[: missing ]"),
        ({"uniqueItems": "yes"}, "uniqueItems must be true or false"),
        ({"prefixItem": [True]}, "did you mean prefixItems?"),
        ({"dependencies": {"a": ["b"]}}, "use dependentRequired or dependentSchemas"),
        ({"additionalItems": False}, "use prefixItems, with items for the rest"),
        ({"id": "x"}, "use $id"),
        ({"optional": True}, "leave the name out of the parent's required list"),
    ],
)
def test_s11_a_slip_is_found_and_the_cure_named(store: SchemaStore, schema: Any, told: str) -> None:
    """Typos, wrong types and keywords of other dialects are refused with what was probably meant."""
    assert told in refusal(store, schema)
    assert told in refusal(store, {"properties": {"deep": {"anyOf": [schema]}}}).replace(
        "#/properties/deep/anyOf/0", "#"
    )


def test_s11_every_slip_is_told_at_once(store: SchemaStore) -> None:
    """All problems of a schema come in one error."""
    with pytest.raises(DocumentError) as caught:
        store.load({"requred": [], "properties": {"a": {"type": "strng"}, "b": {"minLength": "1"}}})
    assert len(caught.value.problems) == 3


def test_s13_dates_are_strings(tmp_path: Path) -> None:
    """A date in YAML stays the text that it is, so it equals the text that a model sends."""
    (tmp_path / "day.yaml").write_text("enum:\n  - 2024-01-02\n  - 2024-01-03\n")
    schema = SchemaStore(tmp_path).load("day.yaml")
    assert schema.validate("2024-01-02") == ()
    assert 'must be one of "2024-01-02", "2024-01-03"' in messages(schema, "2024-01-04")


def test_s13_a_date_object_is_refused(store: SchemaStore) -> None:
    """A Python date among the values could never equal anything that is JSON."""
    import datetime as dt

    told = refusal(store, {"enum": [dt.date(2024, 1, 2)]})
    assert "#/enum/0: the value 2024-01-02 is a date" in told
    assert "quote it" in told


def test_s14_words_of_yaml_1_1_are_strings(tmp_path: Path) -> None:
    """Yes and no are words."""
    (tmp_path / "s.yaml").write_text("enum: [yes, no, on, off]\n")
    schema = SchemaStore(tmp_path).load("s.yaml")
    assert [schema.validate(value) for value in ("yes", "no", "on", "off")] == [()] * 4
    assert schema.validate(value=True) != ()


def test_s17_multiples_of_decimals(store: SchemaStore) -> None:
    """Numbers are the decimals that they are written as."""
    schema = store.load({"multipleOf": 0.01})
    assert [schema.validate(value) for value in (0.07, 1.13, 19.99, 3, 10**30)] == [()] * 5
    assert "a multiple of 0.01" in messages(schema, 0.075)


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "(a|a)*$", "(a|aa)+$", r"^(\w+\s?)*$", "(.*a){12}", "(?=(x+)+y)", "^(a?){30}$"]
)
def test_s20_a_catastrophic_pattern(store: SchemaStore, pattern: str) -> None:
    """A pattern that a model's text could hang is refused when the schema loads."""
    assert "pattern" in refusal(store, {"pattern": pattern})
    assert "pattern" in refusal(store, {"patternProperties": {pattern: True}})


def test_s20_a_slow_pattern_is_not_run_on_long_texts(store: SchemaStore) -> None:
    """A pattern of quadratic cost is bounded by the length of the text that it is matched against."""
    schema = store.load({"pattern": "^a*a*b$"})
    assert schema.validate("a" * 50 + "b") == ()
    (issue,) = schema.validate("a" * 1_000_000)
    assert "longer than 10000 characters is not matched against the pattern" in issue.message


def test_s21_an_unknown_format_is_an_annotation(store: SchemaStore) -> None:
    """It is not checked, and the schema says so."""
    schema = store.load({"type": "string", "format": "phone"}, path="p.yaml", place=Place(2, 1))
    assert schema.validate("x") == ()
    assert list(map(str, schema.notes)) == ["p.yaml:2:1: #/format: format phone is not known, so it is not checked"]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2020-02-29", "2020-02-31"),
        ("date-time", "2020-01-01T10:00:00Z", "2020-01-01 10:00"),
        ("time", "10:00:00Z", "25:00:00Z"),
        ("email", "a@example.org", "a.example.org"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
        ("uri", "https://example.org/a?b#c", "/a"),
        ("ipv4", "127.0.0.1", "127.0.0.256"),
        ("ipv6", "::1", "::g"),
        ("hostname", "example.org", "-example.org"),
        ("duration", "P1DT2H", "1 day"),
    ],
)
def test_s21_a_known_format_is_checked(store: SchemaStore, name: str, good: str, bad: str) -> None:
    """Without $schema, and up to draft-07, the formats of the standard are assertions."""
    for dialect in ({}, {"$schema": "http://json-schema.org/draft-07/schema#"}):
        schema = store.load({**dialect, "type": "string", "format": name})
        assert schema.validate(good) == ()
        assert f"must be a valid {name}" in messages(schema, bad)


def test_s22_defaults_are_not_filled_in(store: SchemaStore) -> None:
    """The value is left as the model sent it."""
    value: dict[str, Any] = {}
    assert store.load({"type": "object", "properties": {"a": {"default": [1]}}}).validate(value) == ()
    assert value == {}


def test_s24_alternatives_say_why_each_failed(store: SchemaStore) -> None:
    """Each branch's reason is in the message."""
    schema = store.load({"anyOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]})
    assert "missing a, or missing b" in messages(schema, {"c": 1})


def test_s25_several_issues_at_once(store: SchemaStore) -> None:
    """One round of repair can mend all of them."""
    schema = store.load(
        {
            "type": "object",
            "properties": {"n": {"type": "integer"}, "s": {"type": "string"}},
            "required": ["n"],
            "additionalProperties": False,
        }
    )
    found = {(issue.pointer, issue.keyword) for issue in schema.validate({"n": "x", "extra": 1})}
    assert found == {("/n", "type"), ("", "additionalProperties")}
    assert "unexpected property extra" in messages(schema, {"n": "x", "extra": 1})


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "string", "nullable": True}, "use type: [string, null]"),
        ({"nullable": True}, "nullable: it is OpenAPI's"),
        ({"oneOf": [True], "discriminator": {"propertyName": "x"}}, "discriminator: it is OpenAPI's"),
        ({"example": 1}, "use examples"),
    ],
)
def test_s26_keywords_of_openapi(store: SchemaStore, schema: Any, told: str) -> None:
    """What would be ignored is pointed out with what the standard has instead."""
    assert told in refusal(store, schema)


def test_s28_what_keeps_a_schema_from_strict_mode(store: SchemaStore) -> None:
    """The reasons are listed, and the schema is sent as it was written."""
    source = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}
    schema = store.load(source)
    assert schema.strict_obstacles == ("#: additionalProperties is not false", "#: b is not required")
    assert schema.wire_schema == source


def test_s29_the_schema_is_enforced_here(store: SchemaStore) -> None:
    """A server that accepts a schema need not enforce it."""
    schema = store.load({"type": "array", "minItems": 2, "maxItems": 2})
    assert "maxItems 2), got 4" in messages(schema, [1, 2, 3, 4])


@pytest.mark.parametrize("step", [lambda x: {"items": x}, lambda x: {"properties": {"a": x}}, lambda x: {"not": x}])
def test_s32_a_schema_nested_too_deeply(store: SchemaStore, step: Any) -> None:
    """Two hundred levels are refused in words."""
    schema: Any = {"type": "array"}
    for _ in range(200):
        schema = step(schema)
    assert "too deeply nested" in refusal(store, schema)


def test_s34_property_names_that_look_like_code(store: SchemaStore) -> None:
    """Any name is only a name, and its pointer is exact."""
    names = ["a.b", 'x"y', "{z}", "a/b", "m~n", "'", "\\", "\n", "%s", "__class__", "", "é", "\u2028", "data", "$ref"]
    schema = store.load({"type": "object", "properties": {name: {"type": "integer"} for name in names}})
    assert 'x"y' in messages(schema, {'x"y': "q"}).replace("\\", "")
    for name in names:
        (issue,) = schema.validate({name: "q"})
        assert issue.pointer == "/" + name.replace("~", "~0").replace("/", "~1")
        assert "must be integer" in issue.message
        assert schema.validate({name: 1}) == ()


@pytest.mark.parametrize(
    ("schema", "address"),
    [
        (
            {"$id": "http://127.0.0.1:9/base.json", "properties": {"a": {"$ref": "b.json"}}},
            "http://127.0.0.1:9/b.json",
        ),
        ({"$ref": 'data:application/json,{"type":"integer"}'}, "data:application/json"),
        ({"$ref": "https://example.org/a.json#/x"}, "https://example.org/a.json"),
        ({"$ref": "file:///etc/passwd"}, "file:///etc/passwd"),
        ({"$ref": "//example.org/a"}, "//example.org/a"),
        ({"$ref": "ftp://example.org/a"}, "ftp://example.org/a"),
        ({"$ref": "urn:uuid:1"}, "urn:uuid:1"),
        ({"$id": "urn:example:a", "items": {"$ref": "urn:example:b"}}, "urn:example:b"),
        ({"$id": "http://a.example/", "items": {"$dynamicRef": "x#y"}}, "http://a.example/x"),
    ],
)
def test_s35_remote_references_are_never_followed(store: SchemaStore, schema: Any, address: str) -> None:
    """Every reference that leads out of the root is refused with the address it resolves to."""
    told = refusal(store, schema)
    assert address in told
    assert "remote references are never followed" in told
