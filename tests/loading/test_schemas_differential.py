"""Verdicts against those of ``jsonschema``, over generated schemas of every dialect and generated values."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from promptkit._loading._schemas import SchemaStore
from promptkit.errors import DocumentError

DIALECTS: dict[str, Any] = {
    "http://json-schema.org/draft-04/schema#": jsonschema.Draft4Validator,
    "http://json-schema.org/draft-06/schema#": jsonschema.Draft6Validator,
    "http://json-schema.org/draft-07/schema#": jsonschema.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
}
DRAFT_04, DRAFT_06, DRAFT_07, DRAFT_2019, LATEST = DIALECTS
NAMES = st.sampled_from(["a", "b", "ab", "a-b", "A", ""])
NUMBERS = st.one_of(st.integers(-3, 5), st.sampled_from([0.5, 1.0, 2.5, -1.5, 0.1, 10**20]))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, NAMES, st.sampled_from(["aa", "ba", "1"]))
VALUES = st.recursive(
    SCALARS,
    lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(NAMES, below, max_size=4)),
    max_leaves=8,
)
TYPES = st.sampled_from(["null", "boolean", "object", "array", "number", "string", "integer"])
COUNTS = st.integers(0, 3)
PATTERNS = st.sampled_from(["a", "^a", "b$", "^$", "[ab]{2}", "a|-", "^(?!a)"])


def keywords(dialect: str, schema: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """Return what may stand under each keyword of a dialect."""
    some = st.lists(schema, min_size=1, max_size=3)
    by_name = st.dictionaries(NAMES, schema, max_size=3)
    names = st.lists(NAMES, min_size=1, max_size=2, unique=True)
    flag_or_schema = st.one_of(st.booleans(), schema)
    found: dict[str, st.SearchStrategy[Any]] = {
        "type": st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=3, unique=True)),
        "enum": st.lists(VALUES, min_size=1, max_size=4, unique_by=repr),
        "allOf": some,
        "anyOf": some,
        "oneOf": some,
        "not": schema,
        "minLength": COUNTS,
        "maxLength": COUNTS,
        "pattern": PATTERNS,
        "minimum": NUMBERS,
        "maximum": NUMBERS,
        "multipleOf": st.sampled_from([1, 2, 3, 0.5, 0.25]),
        "minItems": COUNTS,
        "maxItems": COUNTS,
        "uniqueItems": st.booleans(),
        "items": schema,
        "minProperties": COUNTS,
        "maxProperties": COUNTS,
        "required": names,
        "properties": by_name,
        "patternProperties": st.dictionaries(PATTERNS, schema, max_size=2),
        "additionalProperties": flag_or_schema,
        "$ref": st.sampled_from(["#/definitions/x", "#/definitions/y"]),
    }
    if dialect != DRAFT_04:
        found |= {
            "const": VALUES,
            "contains": schema,
            "propertyNames": schema,
            "exclusiveMinimum": NUMBERS,
            "exclusiveMaximum": NUMBERS,
        }
    if dialect in (DRAFT_04, DRAFT_06, DRAFT_07):
        found |= {"dependencies": st.dictionaries(NAMES, st.one_of(schema, names), max_size=2)}
    if dialect not in (DRAFT_04, DRAFT_06):
        found |= {"if": schema, "then": schema, "else": schema}
    if dialect in (DRAFT_2019, LATEST):
        found |= {
            "dependentRequired": st.dictionaries(NAMES, names, max_size=2),
            "dependentSchemas": by_name,
            "minContains": COUNTS,
            "maxContains": COUNTS,
        }
    if dialect == LATEST:
        # In 2019-09 the judge takes the keywords under additionalProperties for names of properties.
        found |= {"prefixItems": some, "unevaluatedProperties": schema, "unevaluatedItems": schema}
    else:
        found |= {"items": st.one_of(schema, some), "additionalItems": flag_or_schema}
    return found


def without_idle_items(schema: dict[str, Any]) -> dict[str, Any]:
    """Drop additionalItems where it has no effect: beside items that is a boolean, the judge raises."""
    if isinstance(schema.get("items"), bool):
        schema.pop("additionalItems", None)
    return schema


@st.composite
def schemas(draw: st.DrawFn, dialect: str) -> Any:
    """Draw a schema of a dialect, with two definitions that its references may name."""

    def below(depth: int) -> st.SearchStrategy[Any]:
        plain = [st.builds(dict)] if dialect == DRAFT_04 else [st.booleans(), st.builds(dict)]
        if depth == 0:
            leaves = TYPES.map(lambda name: {"type": name}), VALUES.map(lambda value: {"enum": [value]})
            return st.one_of(*plain, *leaves)
        options = keywords(dialect, st.deferred(lambda: below(depth - 1)))
        chosen = st.lists(st.sampled_from(sorted(options)), min_size=1, max_size=4, unique=True)
        mapping = chosen.flatmap(lambda names: st.fixed_dictionaries({name: options[name] for name in names}))
        mapping = mapping.map(without_idle_items)
        return st.one_of(mapping, mapping, *plain)

    schema = draw(below(3))
    definitions = {"x": draw(below(1)), "y": draw(below(1))}
    if not isinstance(schema, dict):
        schema = {"allOf": [schema]}
    return {"$schema": dialect, **schema, "definitions": definitions}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SchemaStore:
    """Return a store whose root has nothing in it."""
    return SchemaStore(tmp_path_factory.mktemp("schemas"))


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
def test_the_verdict_is_that_of_jsonschema(store: SchemaStore, dialect: str, data: st.DataObject) -> None:
    """A schema that loads accepts what the other validator accepts, and every refusal of a value has a reason."""
    schema = data.draw(schemas(dialect), label="schema")
    try:
        compiled = store.load(schema)
    except DocumentError as error:
        if "recursive reference" in str(error):
            reject()
        raise
    judge = DIALECTS[dialect](schema)
    for value in data.draw(st.lists(VALUES, min_size=1, max_size=5), label="values"):
        issues = compiled.validate(value)
        assert (issues == ()) == judge.is_valid(value), value
        assert all(issue.keyword not in ("schema", "limit") for issue in issues)
