"""Issues: what is said about a value, where, and how much of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from promptkit._loading._schemas import SchemaStore
from promptkit._types import Issue


@pytest.fixture
def store(tmp_path: Path) -> SchemaStore:
    """Return a store whose root has nothing in it."""
    return SchemaStore(tmp_path)


def one(store: SchemaStore, schema: Any, value: Any) -> Issue:
    """Return the only issue of a value."""
    (issue,) = store.load(schema).validate(value)
    return issue


@pytest.mark.parametrize(
    ("schema", "value", "pointer", "message"),
    [
        ({"type": "integer"}, "42", "", 'the value must be integer, got string "42"; send it without quotation marks'),
        ({"type": "integer"}, 4.5, "", "the value must be integer, got number 4.5"),
        ({"type": "integer"}, True, "", "the value must be integer, got boolean true"),
        ({"type": ["string", "null"]}, [1], "", "the value must be string or null, got array of 1"),
        ({"type": "string"}, {"a": 1}, "", "the value must be string, got object with a"),
        ({"type": "string"}, [], "", "the value must be string, got an empty array"),
        ({"type": "array"}, {}, "", "the value must be array, got an empty object"),
        ({"type": "array"}, "[1]", "", 'the value must be array, got string "[1]"; send an array, not a quoted string'),
        ({"type": "object"}, '{"a":1}', "", "send an object, not a quoted string"),
        ({"type": "boolean"}, "true", "", "send it without quotation marks"),
        ({"type": "null"}, "None", "", "send null without quotation marks"),
        ({"items": {"type": "string"}}, ["a", None], "/1", "item 1 must be string, got null"),
        ({"items": {"items": {"type": "string"}}}, [["a", 1]], "/0/1", "item [0][1] must be string, got integer 1"),
        (
            {"properties": {"tags": {"items": {"type": "string"}}}},
            {"tags": ["a", 1]},
            "/tags/1",
            "tags[1] must be string, got integer 1",
        ),
        ({"enum": ["red", "green"]}, "Red", "", 'must be one of "red", "green"; got string "Red"; did you mean "red"?'),
        ({"enum": [1, None, True, ["a"]]}, 2, "", 'must be one of 1, null, true, ["a"]; got integer 2'),
        ({"const": {"a": 1}}, {}, "", 'must be {"a": 1}, got an empty object'),
        ({"minLength": 3}, "ab", "", "must have at least 3 characters, got 2"),
        ({"maxLength": 1}, "ab", "", "must have at most 1 characters, got 2"),
        ({"pattern": "^[a-z]+$"}, "A", "", 'must match the pattern ^[a-z]+$, got string "A"'),
        ({"format": "date"}, "today", "", 'must be a valid date, got string "today"'),
        ({"minimum": 3}, 2, "", "must be at least 3, got integer 2"),
        ({"exclusiveMinimum": 3}, 3, "", "must be more than 3"),
        ({"maximum": 3}, 3.5, "", "must be at most 3, got number 3.5"),
        ({"exclusiveMaximum": 3}, 3, "", "must be less than 3"),
        ({"multipleOf": 5}, 7, "", "must be a multiple of 5"),
        ({"minItems": 1}, [], "", "must have at least 1 items (minItems 1), got 0"),
        ({"uniqueItems": True}, [{"a": 1}, 2, {"a": 1.0}], "", "items 0 and 2 are"),
        ({"items": False}, [1], "", "must have no items, got 1"),
        ({"prefixItems": [True], "items": False}, [1, 2], "", "must have at most 1 items, got 2"),
        (
            {"contains": {"type": "integer"}},
            ["a"],
            "",
            "at least 1 fitting items, got 0; the first is not: item 0 must",
        ),
        ({"contains": True}, [], "", "at least 1 fitting items, got 0"),
        ({"contains": {"const": 1}, "minContains": 2}, [1], "", "at least 2 fitting items, got 1"),
        ({"contains": {"const": 1}, "maxContains": 1}, [1, 1], "", "at most 1 fitting items, got 2"),
        ({"required": ["a"]}, {}, "", "missing a"),
        ({"properties": {"x": {"required": ["a b"]}}}, {"x": {}}, "/x", 'missing "a b" in x'),
        ({"minProperties": 1}, {}, "", "must have at least 1 properties, got 0"),
        ({"maxProperties": 1}, {"a": 1, "b": 2}, "", "must have at most 1 properties, got 2"),
        (
            {"properties": {"name": True}, "additionalProperties": False},
            {"nmae": 1},
            "",
            "unexpected property nmae; did you mean name?",
        ),
        ({"additionalProperties": False}, {"a": 1, "b": 2}, "", "unexpected properties a, b; allowed: no properties"),
        ({"additionalProperties": {"type": "string"}}, {"a": 1}, "/a", "a must be string"),
        ({"patternProperties": {"^n": {"type": "string"}}}, {"n1": 1}, "/n1", "n1 must be string"),
        ({"propertyNames": {"maxLength": 2}}, {"abc": 1}, "/abc", "the name abc must have at most 2 characters"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "", "missing b, which is needed because a is there"),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1}, "", "missing b"),
        ({"properties": {"a": False}}, {"a": 1}, "/a", "a is not allowed here"),
        ({"not": {"type": "string"}}, "x", "", "is what the schema excludes"),
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": False}, "x", "", "at least 2 characters"),
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": False}, 1, "", "is not allowed here"),
        (
            {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
            3,
            "",
            "fits alternatives 1, 2 of 2, and must fit exactly one",
        ),
        (
            {"anyOf": [{"minimum": 5}, {"multipleOf": 2}]},
            3,
            "",
            "must be at least 5, got integer 3, or must be a multiple",
        ),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", "type": ["integer", "null"]},
            1.0,
            "",
            "integer or null",
        ),
        ({"unevaluatedItems": False, "prefixItems": [True]}, [1, 2], "", "must have at most 1 items, got 2"),
    ],
)
def test_one_thing_wrong(store: SchemaStore, schema: Any, value: Any, pointer: str, message: str) -> None:
    """Each keyword has a sentence of its own, at the place that it is about."""
    issue = one(store, schema, value)
    assert issue.pointer == pointer
    assert message in issue.message


def test_the_keyword_and_what_is_expected(store: SchemaStore) -> None:
    """An issue says by which rule, and what would be right."""
    issue = one(store, {"properties": {"n": {"type": "integer"}}}, {"n": "x"})
    assert issue == Issue("/n", "type", 'n must be integer, got string "x"', "integer")


def test_alternatives_told_apart_by_a_constant(store: SchemaStore) -> None:
    """Where one property says which branch is meant, the issues are that branch's own, with their places."""
    branches = [
        {
            "type": "object",
            "properties": {"kind": {"const": kind}, "size": {"type": "integer"}},
            "required": ["kind", "size"],
        }
        for kind in ("a", "b")
    ]
    found = store.load({"properties": {"x": {"oneOf": branches}}}).validate({"x": {"kind": "b", "size": "1"}})
    assert [(issue.pointer, issue.keyword) for issue in found] == [("/x/size", "type")]


def test_an_optional_object_is_not_blamed_on_null(store: SchemaStore) -> None:
    """Of null and an object, an object was meant: only its own issues are told."""
    schema = {"anyOf": [{"type": "null"}, {"type": "object", "required": ["a", "b"]}]}
    assert [issue.message for issue in store.load(schema).validate({})] == ["missing a", "missing b"]


def test_many_alternatives_are_cut_short(store: SchemaStore) -> None:
    """A message stays short however many branches there are."""
    issue = one(store, {"anyOf": [{"minimum": 10 + number} for number in range(30)]}, 1)
    assert "(and 24 more)" in issue.message
    assert len(issue.message) < 600


def test_excerpts_are_short_and_on_one_line(store: SchemaStore) -> None:
    """A long or hostile text is quoted in part, without line breaks or control characters."""
    message = one(store, {"type": "integer"}, "a\n\x1b[31m\u2028" + "x" * 10_000).message
    assert len(message) < 160
    assert message.isprintable()
    assert "…" in message


@pytest.mark.parametrize(
    "value",
    [{"k" * 5000: 1}, {f"key{i}": 1 for i in range(1000)}, list(range(10_000)), 1 << 10_000],
    ids=["name", "names", "items", "digits"],
)
def test_messages_are_bounded(store: SchemaStore, value: Any) -> None:
    """No value makes a long message."""
    for schema in ({"type": "string"}, {"enum": ["x" * 1000] * 3}, {"additionalProperties": False, "type": "object"}):
        assert all(len(issue.message) < 600 for issue in store.load(schema).validate(value))


def test_there_are_twenty_issues_at_most(store: SchemaStore) -> None:
    """A value with a thousand faults is not told a thousand times."""
    found = store.load({"items": {"type": "string"}}).validate(list(range(1000)))
    assert len(found) == 20
    assert found[19].pointer == "/19"


def test_the_same_issue_is_told_once(store: SchemaStore) -> None:
    """Two branches of allOf that agree make one issue."""
    one(store, {"allOf": [{"required": ["a"]}, {"required": ["a"]}]}, {})


def test_explaining_ends_even_when_it_is_much(store: SchemaStore) -> None:
    """Comparing thousands of large items is given up, and the verdict still told."""
    values = [[number] * 50 for number in range(3000)]
    found = store.load({"uniqueItems": True}).validate([*values, values[-1]])
    assert "unique" in found[0].message


def test_order_of_issues_is_that_of_the_schema(store: SchemaStore) -> None:
    """What is missing comes first, then the properties in the schema's order."""
    schema = {"properties": {"b": {"type": "string"}, "a": {"type": "string"}}, "required": ["c"]}
    assert [str(issue) for issue in store.load(schema).validate({"a": 1, "b": 2})] == [
        "(root): missing c",
        "/b: b must be string, got integer 2",
        "/a: a must be string, got integer 1",
    ]


def test_numbers_and_booleans_are_told_apart(store: SchemaStore) -> None:
    """1 is 1.0, and neither is true, at any depth."""
    schema = store.load({"enum": [1, [False], {"a": 0}]})
    assert [schema.validate(value) for value in (1, 1.0, [False], {"a": 0.0})] == [()] * 4
    assert all(schema.validate(value) for value in (True, [0], {"a": False}))


def test_values_that_are_no_json_do_not_raise(store: SchemaStore) -> None:
    """Infinities, NaN and foreign objects get an issue or pass, and raise nothing."""
    odd = [float("nan"), float("inf"), 10**5000, b"x", object(), {1: 2}, {"a": {1, 2}}, "\ud800", ("a",)]
    schemas: tuple[Any, ...] = (
        {"type": "integer"}, {"multipleOf": 0.1}, {"multipleOf": 3}, {"minimum": 1e300}, {"enum": [1]},
        {"uniqueItems": True}, {"propertyNames": {"pattern": "^a$"}}, {"format": "date"}, {"items": {"const": 1}},
        {"contains": {"type": "null"}}, {"not": {"required": ["a"]}},
        {"patternProperties": {"a*a*b": {"type": "string"}}},
    )  # fmt: skip
    for schema in schemas:
        compiled = store.load(schema)
        for value in odd:
            assert all(isinstance(issue, Issue) for issue in compiled.validate(value))
            assert all(isinstance(issue, Issue) for issue in compiled.validate([value, value]))


def test_exact_numbers(store: SchemaStore) -> None:
    """Integers of any size and decimals are compared and divided exactly."""
    big = 10**40
    assert store.load({"maximum": big}).validate(big) == ()
    assert store.load({"maximum": big}).validate(big + 1) != ()
    assert store.load({"enum": [big]}).validate(big + 1) != ()
    assert store.load({"multipleOf": 3}).validate(10**20 + 2) == ()
    assert store.load({"multipleOf": 3}).validate(1e20) != ()
    assert store.load({"multipleOf": 0.1}).validate(big + 1) == ()
    assert store.load({"multipleOf": 1e-300}).validate(1e300) == ()
    assert store.load({"multipleOf": 0.3}).validate(10**400) != ()
    assert store.load({"type": "integer"}).validate(1e300) == ()
