"""Schemas from files and in place: references, caches, what is sent, and names that look like code."""

from __future__ import annotations

import builtins
import json
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import promptkit._loading._compilation as compilation
from promptkit._definitions import Place
from promptkit._fields import FrozenDict, freeze
from promptkit._loading._schemas import SchemaStore
from promptkit.errors import ConfigError, DocumentError
from support.threads import Worker

DRAFT_04 = "http://json-schema.org/draft-04/schema#"
DRAFT_07 = "http://json-schema.org/draft-07/schema#"


def write(path: Path, content: Any) -> Path:
    """Write a file and the folders above it; what is no text is written as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    old = time.time() - 60  # older than the clock's doubt, so that a second look costs no reading
    os.utime(path, (old, old))
    return path


@pytest.fixture
def store(tmp_path: Path) -> SchemaStore:
    """Return a store over the test's own folder."""
    return SchemaStore(tmp_path)


def told(store: SchemaStore, schema: Any) -> str:
    """Return what is said about a schema that does not load."""
    with pytest.raises(DocumentError) as caught:
        store.load(schema, path="p.yaml", place=Place(7, 3))
    return str(caught.value)


# ------------------------------------------------------------------------------------------------- files


def test_a_file_in_json_and_one_in_yaml(store: SchemaStore, tmp_path: Path) -> None:
    """Both are read; the name is the path below the root."""
    write(tmp_path / "a" / "number.json", {"type": "integer"})
    write(tmp_path / "text.yaml", "type: string\nmaxLength: 3\n")
    assert store.load("a/number.json").validate("x") != ()
    assert store.load("text.yaml").validate("abc") == ()


def test_a_problem_in_a_file_has_its_place(store: SchemaStore, tmp_path: Path) -> None:
    """Line and column are those of the value that is wrong, in YAML and in JSON."""
    write(tmp_path / "a.yaml", "type: object\nproperties:\n  n:\n    type: strng\n")
    write(tmp_path / "a.json", '{\n  "properties": {\n    "n": {"minLength": "3"}\n  }\n}\n')
    assert f"{tmp_path}/a.yaml:4:11: #/properties/n/type: unknown type strng" in told(store, "a.yaml")
    assert f"{tmp_path}/a.json:3:24: #/properties/n/minLength: " in told(store, "a.json")


def test_a_problem_in_place_has_the_prompts_place(store: SchemaStore) -> None:
    """What is known of the places in a prompt file is used; the nearest parent's otherwise."""
    schema = {"properties": {"n": {"type": "strng"}}}
    positions = {"": Place(7, 3), "/properties/n": Place(9, 5)}
    with pytest.raises(DocumentError) as caught:
        store.load(schema, path="p.yaml", place=Place(7, 3), positions=positions)
    assert str(caught.value).startswith("p.yaml:9:5: #/properties/n/type: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"type": "integer", "type": "string"}', "type"),
        ('{"minimum": NaN}', "NaN is no number of JSON"),
        ('{"minimum": Infinity}', "Infinity is no number of JSON"),
        ('{"type": "integer",}', "a.json:1:"),
        ("", "not JSON"),
        ('["a"]', "a mapping or a boolean, not a list"),
        ("[" * 100_000, "too deeply nested"),
        ('{"minimum": 1' + "0" * 5000 + "}", "digits"),
        ('{"type": "\\ud800"}', "half of a surrogate pair"),
        ('{"x-\\udfff": 1}', "half of a surrogate pair"),
    ],
    ids=range(10),
)
def test_a_file_that_is_no_schema(store: SchemaStore, tmp_path: Path, content: str, message: str) -> None:
    """Syntax errors, duplicate names and numbers that JSON does not have are told with the file's name."""
    write(tmp_path / "a.json", content)
    text = told(store, "a.json")
    assert f"{tmp_path}/a.json" in text
    assert message in text


def test_bytes_that_are_no_text(store: SchemaStore, tmp_path: Path) -> None:
    """A file in another encoding is told as such; a byte order mark is taken."""
    (tmp_path / "a.json").write_bytes('{"title": "é"}'.encode("latin-1"))
    assert "not UTF-8" in told(store, "a.json")
    (tmp_path / "b.json").write_bytes(b'\xef\xbb\xbf{"type": "integer"}')
    assert store.load("b.json").validate(1) == ()


def test_an_empty_yaml_file(store: SchemaStore, tmp_path: Path) -> None:
    """A file with nothing in it is no schema."""
    write(tmp_path / "a.yaml", "# later\n")
    assert "the file is empty" in told(store, "a.yaml")


def test_a_missing_file_offers_the_nearest(store: SchemaStore, tmp_path: Path) -> None:
    """A slip in the name is answered at the place where the name stands."""
    write(tmp_path / "invoice.json", {})
    text = told(store, "invioce.json")
    assert text.startswith("p.yaml:7:3: there is no file 'invioce.json' under the schema root")
    assert text.endswith("did you mean 'invoice.json'?")


@pytest.mark.parametrize(
    "name", ["../a.json", "/etc/passwd", "a/../../b.json", "x\0y", "%2e%2e/a.json", "c:\\a.json", ".."]
)
def test_a_name_never_leaves_the_root(store: SchemaStore, name: str) -> None:
    """Names that could lead elsewhere are refused before the disk is asked."""
    assert told(store, name)


@pytest.mark.parametrize(
    "reference", ["../a.json", "../../etc/passwd", "/../a.json", "%2e%2e/a.json", "..%2Fa.json", "x/../../a.json#/b"]
)
def test_a_reference_never_leaves_the_root(tmp_path: Path, reference: str) -> None:
    """A path that climbs above the root is refused, however it is spelled."""
    write(tmp_path / "a.json", {"type": "integer"})
    (tmp_path / "root").mkdir()
    text = told(SchemaStore(tmp_path / "root"), {"$ref": reference})
    assert "outside" in text or "cannot be a file under the schema root" in text


def test_a_symlink_out_of_the_root_is_refused(tmp_path: Path) -> None:
    """What lies outside stays outside."""
    write(tmp_path / "secret.json", {"type": "integer"})
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a.json").symlink_to(tmp_path / "secret.json")
    assert "symlink that leads outside" in told(SchemaStore(tmp_path / "root"), {"$ref": "a.json"})


def test_the_root_must_be_a_path() -> None:
    """A root that is none is told when the store is made."""
    with pytest.raises(ConfigError, match="schema root"):
        SchemaStore("")


# -------------------------------------------------------------------------------------------- references


def test_references_between_files(store: SchemaStore, tmp_path: Path) -> None:
    """A relative path is relative to the file that it stands in, and a fragment goes on from there."""
    write(tmp_path / "a" / "order.json", {"properties": {"to": {"$ref": "../common.json#/$defs/address"}}})
    write(tmp_path / "common.json", {"$defs": {"address": {"$ref": "a/zip.yaml"}, "zip": {"maxLength": 5}}})
    write(tmp_path / "a" / "zip.yaml", "$anchor: zip\ntype: string\nallOf: [{$ref: '../common.json#/$defs/zip'}]\n")
    schema = store.load("a/order.json")
    assert schema.validate({"to": "12345"}) == ()
    assert [issue.keyword for issue in schema.validate({"to": "123456"})] == ["maxLength"]
    assert [issue.keyword for issue in schema.validate({"to": 1})] == ["type"]
    assert store.load({"items": {"$ref": "a/zip.yaml#zip"}}).validate([1]) != ()


def test_a_part_of_a_file(store: SchemaStore, tmp_path: Path) -> None:
    """The name of a file may have a fragment."""
    write(tmp_path / "common.json", {"$defs": {"a": {"type": "integer"}, "b": {"items": {"$ref": "#/$defs/a"}}}})
    schema = store.load("common.json#/$defs/b")
    assert schema.validate([1]) == ()
    assert schema.validate(["x"]) != ()
    assert "leads nowhere" in told(store, "common.json#/$defs/c")
    wire = schema.wire_schema
    assert wire["$ref"] == "#/$defs/common/$defs/b"
    assert SchemaStore(tmp_path).load(wire).validate(["x"]) != ()


def test_a_slip_in_a_file_that_is_referred_to(store: SchemaStore, tmp_path: Path) -> None:
    """Every file that is reached is looked at, and its problems carry its name."""
    write(tmp_path / "b.json", {"$defs": {"unused": {"requred": []}}, "type": "integer"})
    assert f"{tmp_path}/b.json:1:" in told(store, {"$ref": "b.json"})


@pytest.mark.parametrize(
    "schema",
    [
        {"const": {"$ref": "nowhere.json"}},
        {"enum": [{"$ref": "http://example.org/x"}]},
        {"default": {"$ref": "#/nowhere", "$id": "http://example.org/"}},
        {"examples": [{"$ref": "file:///etc/passwd", "type": "strng"}]},
        {"properties": {"$ref": {"type": "integer"}, "$id": {"type": "string"}, "id": True, "const": False}},
        {"required": ["$ref"], "dependentRequired": {"$ref": ["$id"]}},
        {"x-note": {"$ref": "nowhere.json", "type": 5}},
    ],
)
def test_data_is_no_schema(store: SchemaStore, schema: Any) -> None:
    """A $ref in a value, or as the name of a property, is not followed."""
    store.load(schema)


def test_a_reference_in_an_enum_is_a_value(store: SchemaStore) -> None:
    """It equals itself and nothing else."""
    schema = store.load({"const": {"$ref": "#/a"}})
    assert schema.validate({"$ref": "#/a"}) == ()
    assert schema.validate({"$ref": "#/b"}) != ()


@pytest.mark.parametrize("dialect", [DRAFT_07, "https://json-schema.org/draft/2020-12/schema"])
def test_definitions_whose_names_look_alike(store: SchemaStore, dialect: str) -> None:
    """Names that differ in case, punctuation or accents only are different definitions."""
    names = ["Item", "item", "a-b", "a_b", "a b", "é", "ü", "a/b", "a~b", "a%b", 'a"b', "{}", ""]
    key = "definitions" if "07" in dialect else "$defs"
    pointers = {
        name: f"#/{key}/" + name.replace("~", "~0").replace("/", "~1").replace("%", "%25").replace('"', "%22")
        for name in names
    }
    schema = store.load(
        {
            "$schema": dialect,
            key: {name: {"const": number} for number, name in enumerate(names)},
            "properties": {name: {"$ref": pointer} for name, pointer in pointers.items()},
        }
    )
    for number, name in enumerate(names):
        assert schema.validate({name: number}) == ()
        assert [issue.keyword for issue in schema.validate({name: number + 1})] == ["const"]


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": DRAFT_07, "items": {"$ref": "#n"}, "definitions": {"a": {"$id": "#n", "type": "integer"}}},
        {"$schema": DRAFT_07, "items": {"$ref": "b"}, "definitions": {"a": {"$id": "./x/../b", "type": "integer"}}},
        {"$schema": DRAFT_07, "items": {"$ref": "c/#n"}, "definitions": {"a": {"$id": "c/.#n", "type": "integer"}}},
        {"$schema": DRAFT_04, "id": "http://a.b/c/", "items": {"$ref": "d"},
         "definitions": {"a": {"id": "d", "type": "integer"}}},
        {"$id": "urn:example:x", "items": {"$ref": "urn:example:x#/$defs/a"}, "$defs": {"a": {"type": "integer"}}},
        {"$id": "http://a.b/c?d", "items": {"$ref": "?d#a"}, "$defs": {"a": {"$anchor": "a", "type": "integer"}}},
        {"items": {"$ref": "#/x-parts/0"}, "x-parts": [{"type": "integer"}]},
        {"items": {"$ref": "#/prefixItems/0"}, "prefixItems": [{"type": "integer"}]},
        {"items": {"$ref": "#/$defs/a/items"}, "$defs": {"a": {"items": {"type": "integer"}}}},
    ],
)  # fmt: skip
def test_identifiers_and_anchors(store: SchemaStore, schema: Any) -> None:
    """Every way of the standards to name a part of a document, none of which opens anything."""
    compiled = store.load(schema)
    assert compiled.validate([1, 2]) == ()
    assert compiled.validate([1, "x"]) != ()


def test_nothing_is_opened_while_compiling() -> None:
    """Should a reference ever be left to fastjsonschema, it is refused whatever its scheme."""
    handlers = compilation._Refusal()
    assert "file" in handlers
    with pytest.raises(compilation.CompilationFaultError, match="file:///etc/passwd"):
        handlers["file"]("file:///etc/passwd")


def test_an_id_that_is_there_twice(store: SchemaStore) -> None:
    """A name means one schema."""
    assert "is there twice" in told(store, {"$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}})
    assert "is there twice" in told(store, {"$defs": {"a": {"$id": "x"}, "b": {"$id": "x"}}})


CHAIN = {f"a{number}": {"$ref": f"#/$defs/a{number + 1}"} for number in range(2000)} | {"a2000": {}}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "#nowhere"}, "names no anchor of"),
        ({"$ref": "#/a/0"}, "leads nowhere"),
        ({"allOf": [True], "$ref": "#/allOf/1"}, "leads nowhere"),
        ({"allOf": [True], "$ref": "#/allOf/00"}, "leads nowhere"),
        ({"$ref": "#/title", "title": "x"}, "a schema must be a mapping or a boolean, not a string"),
        ({"$ref": 5}, "$ref must be a string"),
        ({"$id": "x#y"}, "must have no fragment"),
        ({"$schema": "https://example.org/mine"}, "is no dialect that is known here"),
        ({"$schema": 5}, "$schema must be a string"),
        ({"$schema": "http://["}, "is no dialect"),
        ({"items": {"$schema": DRAFT_07}}, "$schema belongs to the top of a document"),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, "the meta-schema of 2020-12"),
        ({"$ref": "https://json-schema.org/draft/2020-12/meta/core"}, "the meta-schema of 2020-12"),
        ({"$defs": {"a": {"$id": "x", "$schema": "nope"}}}, "is no dialect"),
        ({"$ref": "", "$id": "a/../../b"}, "leads outside the schema root"),
        ({"$anchor": "1a"}, "$anchor must be a name"),
        ({"type": ["string", "string"]}, "type has a name twice"),
        ({"type": []}, "nothing would be valid"),
        ({"type": 5}, "type must be a type name or a list"),
        ({"type": [5]}, "a type must be the name of one, not an integer"),
        ({"type": None}, 'quote it: "null"'),
        ({"examples": {}}, "examples must be a list"),
        (
            {"$schema": DRAFT_04, "items": True},
            "a schema must be a mapping in draft-04",
        ),
        ({"$schema": DRAFT_04, "required": []}, "one at least in draft-04"),
        ({"$schema": DRAFT_04, "exclusiveMinimum": True}, "needs minimum beside it"),
        (
            {"$schema": DRAFT_04, "exclusiveMinimum": 5},
            "as a number it is of draft-06",
        ),
        ({"$schema": DRAFT_04, "const": 5}, "use enum with one value"),
        (
            {"$schema": DRAFT_04, "contains": {}},
            "it is one of draft-06, draft-07, 2019-09",
        ),
        ({"$ref": "#/$defs/a0", "$defs": CHAIN}, "in too long a chain"),
        ({"$vocabulary": {"x": 1}}, "$vocabulary must be a mapping of URIs to booleans"),
        ({"properties": {1: True}}, "a key must be a string"),
        ({"x-big": 1 << 2000}, "a number of more than 1024 bits"),
        ({"x-set": {1}}, "is a set, which is no JSON value"),
        ({"enum": [list(range(60_000))]}, "too large"),
    ],
)
def test_references_and_identifiers_that_do_not_work(store: SchemaStore, schema: Any, message: str) -> None:
    """Each is told at its place."""
    assert message in told(store, schema)


def test_unevaluated_properties_in_too_many_combinations(store: SchemaStore) -> None:
    """What would grow without bounds is refused with another way to write it."""
    branches = [{"properties": {f"p{number}": True}} for number in range(20)]
    assert "use additionalProperties or items in the branches" in told(
        store, {"anyOf": branches, "unevaluatedProperties": False}
    )
    assert store.load({"oneOf": branches, "unevaluatedProperties": False})


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_references_that_multiply_are_bounded(store: SchemaStore, keyword: str) -> None:
    """A chain in which each refers to the next twice is refused, or its checks are counted."""
    definitions: dict[str, Any] = {f"a{n}": {keyword: [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(20)}
    assert "multiply" in told(store, {"$ref": "#/$defs/a0", "$defs": {**definitions, "a20": True}})
    operator = {"properties": {"x": {"$ref": "#"}, "op": {"enum": ["+"]}}}
    schema = store.load({keyword: [operator, {**operator, "minProperties": 1}], "required": ["op"]})
    value: Any = {"op": "?"}
    for _ in range(40):
        value = {"op": "+", "x": value}
    assert schema.validate(value) != ()


def test_an_enum_of_many_strings(store: SchemaStore) -> None:
    """A long list is looked up, and still means what a short one does."""
    names = [f"v{number}" for number in range(5000)]
    schema = store.load({"enum": names})
    assert schema.validate("v4999") == ()
    for value in ("v5000", 1, None, ["v1"]):
        assert [issue.keyword for issue in schema.validate(value)] == ["enum"]
    assert store.load({"not": {"enum": names}}).validate("v5000") == ()


def test_large_and_deep_schemas_compile(store: SchemaStore) -> None:
    """What makes generated code too deep or too wide is taken apart."""
    wide = {"properties": {f"p{number}": {"type": "integer"} for number in range(1000)}}
    assert store.load(wide).validate({"p999": "x"}) != ()
    steps = [
        lambda below: {"items": below},
        lambda below: {"allOf": [below]},
        lambda below: {"not": {"not": below}},
        lambda below: {"if": True, "then": below},
        lambda below: {"anyOf": [False, below]},
        lambda below: {"propertyNames": False, "additionalProperties": below},
    ]
    for step in steps:
        schema: object = {"type": "integer"}
        for _ in range(32):
            schema = step(schema)
        compiled = store.load(schema)
        value: object = "x"
        if "items" in step({}):
            for _ in range(32):
                value = [value]
        assert (compiled.validate(value) == ()) == ("propertyNames" in step({}))


def test_dynamic_references(store: SchemaStore) -> None:
    """A tree is refined by what stands in the outermost schema, and one schema serves two refinements."""
    tree = {
        "$id": "tree",
        "$dynamicAnchor": "node",
        "type": "object",
        "properties": {"value": True, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
    }
    strict = {
        "$id": "strict",
        "$dynamicAnchor": "node",
        "$ref": "tree",
        "unevaluatedProperties": False,
    }
    schema = store.load(
        {"properties": {"a": {"$ref": "strict"}, "b": {"$ref": "tree"}}, "$defs": {"tree": tree, "strict": strict}}
    )
    odd = {"children": [{"valeu": 1}]}
    assert schema.validate({"b": odd, "a": {"children": [{"value": 1}]}}) == ()
    assert [issue.pointer for issue in schema.validate({"a": odd})] == ["/a/children/0"]


def test_recursive_references_of_2019_09(store: SchemaStore) -> None:
    """The same in the words of 2019-09."""
    tree = {
        "$id": "tree",
        "$recursiveAnchor": True,
        "properties": {"children": {"items": {"$recursiveRef": "#"}}},
    }
    schema = store.load(
        {
            "$schema": "https://json-schema.org/draft/2019-09/schema",
            "$id": "strict",
            "$recursiveAnchor": True,
            "$ref": "tree",
            "unevaluatedProperties": False,
            "$defs": {"tree": tree},
        }
    )
    assert schema.validate({"children": [{"children": []}]}) == ()
    assert [issue.pointer for issue in schema.validate({"children": [{"x": 1}]})] == ["/children/0"]
    assert '$recursiveRef must be "#"' in told(
        store, {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "#/a"}
    )


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"if": {"required": ["a"], "properties": {"a": True}}, "then": {"properties": {"b": True}},
          "else": {"properties": {"c": True}}}, [{"a": 1, "b": 1}, {"c": 1}, {}], [{"a": 1, "c": 1}, {"b": 1}]),
        ({"dependentSchemas": {"a": {"properties": {"b": True}}}, "properties": {"a": True}},
         [{"a": 1, "b": 1}], [{"b": 1}]),
        ({"anyOf": [{"properties": {"a": {"const": 1}}}, {"patternProperties": {"^b": True}}]},
         [{"a": 1, "b": 1}, {"b": 1}], [{"a": 2, "b": 1}, {"c": 1}]),
        ({"allOf": [{"additionalProperties": True}]}, [{"a": 1}], []),
        ({"allOf": [{"unevaluatedProperties": True}]}, [{"a": 1}], []),
        ({"not": {"not": {"properties": {"a": True}}}}, [{}], [{"a": 1}]),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": True}}}}, [{"a": 1}], [{"b": 1}]),
    ],
)  # fmt: skip
def test_unevaluated_properties(store: SchemaStore, schema: Any, good: list[Any], bad: list[Any]) -> None:
    """Only what a branch that is valid has looked at counts as evaluated."""
    compiled = store.load({**schema, "unevaluatedProperties": False})
    assert [value for value in good if compiled.validate(value)] == []
    assert [value for value in bad if not compiled.validate(value)] == []


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"prefixItems": [True], "contains": {"type": "string"}}, [[1, "a", "b"], ["a"]], [[1], [1, "a", 2]]),
        ({"anyOf": [{"prefixItems": [True, {"const": 2}]}, {"prefixItems": [True]}]}, [[1, 2], [1]], [[1, 3]]),
        ({"allOf": [{"items": True}]}, [[1, 2]], []),
        ({"oneOf": [{"maxItems": 1, "prefixItems": [True]}, {"minItems": 2}]}, [[1]], [[1, 2]]),
    ],
)
def test_unevaluated_items(store: SchemaStore, schema: Any, good: list[Any], bad: list[Any]) -> None:
    """The same for items, those that contains has found included."""
    compiled = store.load({**schema, "unevaluatedItems": False})
    assert [value for value in good if compiled.validate(value)] == []
    assert [value for value in bad if not compiled.validate(value)] == []


def test_unevaluated_items_of_2019_09(store: SchemaStore) -> None:
    """There contains evaluates nothing, and additionalItems everything."""
    head = {"$schema": "https://json-schema.org/draft/2019-09/schema", "unevaluatedItems": False}
    schema = store.load({**head, "items": [True], "contains": {"type": "string"}})
    assert schema.validate(["a"]) == ()
    assert schema.validate(["a", "b"]) != ()
    assert store.load({**head, "items": [True], "additionalItems": {}}).validate([1, 2]) == ()
    assert store.load({**head, "items": {"type": "integer"}}).validate([1, 2]) == ()


# ------------------------------------------------------------------------------------------------ caches


def test_a_changed_file_is_read_again(store: SchemaStore, tmp_path: Path) -> None:
    """Directly, and through a schema that refers to it."""
    write(tmp_path / "n.json", {"type": "integer"})
    outer = freeze({"items": {"$ref": "n.json"}})
    assert store.load("n.json").validate("x") != ()
    assert store.load(outer).validate(["x"]) != ()
    write(tmp_path / "n.json", {"type": "string"})
    assert store.load("n.json").validate("x") == ()
    assert store.load(outer).validate(["x"]) == ()


def test_a_file_that_goes_wrong_and_comes_back(store: SchemaStore, tmp_path: Path) -> None:
    """A broken file is an error while it is broken, and no longer."""
    write(tmp_path / "n.json", {"type": "integer"})
    first = store.load("n.json")
    write(tmp_path / "n.json", "{")
    assert "not JSON" in told(store, "n.json")
    (tmp_path / "n.json").unlink()
    assert "there is no file" in told(store, "n.json")
    write(tmp_path / "n.json", {"type": "integer"})
    assert store.load("n.json").hash == first.hash


def test_an_unchanged_schema_is_the_same_object(store: SchemaStore, tmp_path: Path) -> None:
    """Loading again costs a look at the files."""
    write(tmp_path / "n.json", {"type": "integer"})
    frozen = freeze({"$ref": "n.json"})
    assert store.load("n.json") is store.load("n.json")
    assert store.load(frozen) is store.load(frozen)


def test_a_changeable_mapping_is_read_each_time(store: SchemaStore) -> None:
    """A caller's dict may change between two loads, and a loaded schema does not change with it."""
    schema = {"type": "integer"}
    first = store.load(schema)
    schema["type"] = "string"
    assert store.load(schema).validate("x") == ()
    assert first.validate("x") != ()
    assert first.source == {"type": "integer"}


def test_the_warm_table_is_bounded(store: SchemaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemas that come and go do not stay for ever."""
    monkeypatch.setattr("promptkit._loading._schemas._MAX_WARM", 4)
    kept = [freeze({"const": number}) for number in range(10)]
    for schema in kept:
        assert store.load(schema).validate(schema["const"]) == ()
    assert len(store._warm) == 4
    assert store.load(kept[0]).validate(0) == ()


def test_equal_schemas_are_compiled_once(store: SchemaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """By content: two prompts with the same schema share the check, and 64 threads make it once."""
    made: list[object] = []
    compile_ = compilation.fastjsonschema.compile

    def counting(*args: Any, **kwargs: Any) -> Any:
        made.append(args)
        return compile_(*args, **kwargs)

    monkeypatch.setattr(compilation.fastjsonschema, "compile", counting)
    schema = {"properties": {f"p{number}": {"type": "integer"} for number in range(40)}}
    workers = [Worker(store.load, json.loads(json.dumps(schema))) for _ in range(64)]
    loaded = [worker.result() for worker in workers]
    assert len(made) == 1
    assert all(compiled.validate({"p1": 1}) == () != compiled.validate({"p1": "x"}) for compiled in loaded)


def test_one_check_in_many_threads(store: SchemaStore) -> None:
    """A recursive schema with counted steps gives every thread its own answer."""
    operator = {"properties": {"x": {"$ref": "#"}, "op": {"type": "integer"}}}
    schema = store.load({"anyOf": [operator, {**operator, "maxProperties": 1}]})

    def judge(start: int) -> list[bool]:
        return [
            schema.validate({"x": {"op": number if number % 3 else "no"}}) == () for number in range(start, start + 200)
        ]

    workers = [Worker(judge, start) for start in range(8)]
    for start, worker in enumerate(workers):
        assert worker.result() == [number % 3 != 0 for number in range(start, start + 200)]


def test_a_failure_is_not_kept(store: SchemaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema that could not be compiled is tried again, and the error names the schema."""

    def fail(*_: Any, **__: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(compilation.fastjsonschema, "compile", fail)
        assert "too large to be compiled" in told(store, {"type": "null"})
    assert store.load({"type": "null"}).validate(None) == ()


def test_another_way_of_naming_functions_is_noticed(store: SchemaStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the generated functions have other names, schemas that need ours are refused, not misjudged."""
    monkeypatch.setattr(compilation, "_function_name", lambda name: f"check_{name}")
    assert "names its functions otherwise" in told(store, {"multipleOf": 0.1})


# --------------------------------------------------------------------------------------- what is sent


def test_the_wire_schema_is_the_authors(store: SchemaStore) -> None:
    """Without references to files it is the source, word for word, frozen."""
    source = {
        "$schema": DRAFT_07,
        "title": "T",
        "properties": {"a": {"$ref": "#/definitions/b"}},
        "definitions": {"b": {}},
    }
    schema = store.load(source)
    assert schema.wire_schema == schema.source == source
    assert isinstance(schema.wire_schema, FrozenDict)
    assert list(schema.wire_schema) == list(source)
    with pytest.raises(TypeError):
        schema.wire_schema["title"] = "U"


@pytest.mark.parametrize(("dialect", "container"), [(DRAFT_07, "definitions"), (None, "$defs")])
def test_files_are_put_into_the_wire_schema(
    store: SchemaStore, tmp_path: Path, dialect: str | None, container: str
) -> None:
    """All files that are reached are there, their references lead there, and the meaning is the same."""
    head = {"$schema": dialect} if dialect else {}
    write(
        tmp_path / "x" / "b.json",
        {**head, container: {"n%~": {"type": "integer"}}, "items": {"$ref": f"#/{container}/n%25~0"}},
    )
    write(
        tmp_path / "x" / "a.json",
        {**head, "type": "object", "properties": {"b": {"$ref": "b.json"}, "me": {"$ref": "#"}}},
    )
    schema = store.load({**head, "items": {"$ref": "x/a.json"}, container: {"a": {"type": "null"}}})
    wire = schema.wire_schema
    assert wire["items"] == {"$ref": f"#/{container}/a_2"}
    assert wire[container]["a"] == {"type": "null"}
    assert wire[container]["a_2"]["properties"] == {
        "b": {"$ref": f"#/{container}/b"},
        "me": {"$ref": f"#/{container}/a_2"},
    }
    assert "$schema" not in wire[container]["b"]
    alone = SchemaStore(tmp_path / "nowhere").load(wire)
    for value in ([{"b": [1]}], [{"b": ["x"]}], [{"me": {"me": 1}}], [1], {}):
        assert (alone.validate(value) == ()) == (schema.validate(value) == ())


@pytest.mark.parametrize(
    ("inner", "outer", "message"),
    [
        ({"$schema": DRAFT_07}, {}, "a part of draft-07 cannot be sent inside a schema of 2020-12"),
        ({"$dynamicAnchor": "x"}, {}, "$dynamicAnchor in a file that another refers to"),
        (
            {},
            {"$id": "https://example.org/s", "items": {"$id": "t/", "items": {"$ref": "promptkit-root:/n.json"}}},
            "remove the $id",
        ),
    ],
)
def test_what_cannot_be_sent_as_one_document(
    store: SchemaStore, tmp_path: Path, inner: Any, outer: Any, message: str
) -> None:
    """A bundle that would mean something else is refused."""
    write(tmp_path / "n.json", {"type": "integer", **inner})
    assert message in told(store, outer or {"$ref": "n.json"})


def test_the_hash_is_of_the_content(store: SchemaStore, tmp_path: Path) -> None:
    """Equal schemas have equal hashes, whatever the order of their keys; a file's change shows."""
    assert store.load({"type": "integer", "minimum": 1}).hash == store.load({"minimum": 1, "type": "integer"}).hash
    assert store.load({"minimum": 1}).hash != store.load({"minimum": 2}).hash
    write(tmp_path / "n.json", {"type": "integer"})
    before = store.load({"$ref": "n.json"}).hash
    write(tmp_path / "n.json", {"type": "number"})
    assert store.load({"$ref": "n.json"}).hash != before


# ------------------------------------------------------------------------------------------ strict mode


CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    "schema",
    [
        CLOSED,
        {**CLOSED, "properties": {"a": {"anyOf": [CLOSED, {"type": "null"}]}}},
        {**CLOSED, "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "array", "items": CLOSED}}},
        {**CLOSED, "properties": {"a": {"type": ["string", "null"], "enum": ["x", None], "description": "d"}}},
        {**CLOSED, "properties": {"a": {"$ref": "#"}}},
        {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
    ],
)
def test_what_is_fit_for_strict_mode(store: SchemaStore, schema: Any) -> None:
    """Closed objects with every property required."""
    assert store.load(schema).strict_obstacles == ()


@pytest.mark.parametrize(
    ("schema", "obstacle"),
    [
        ({"type": "array", "items": CLOSED}, "#: the root must have type: object"),
        ({"anyOf": [CLOSED]}, "#: the root must have type: object"),
        (True, "#: the root must have type: object"),
        ({**CLOSED, "required": []}, "#: a is not required"),
        ({**CLOSED, "additionalProperties": {"type": "string"}}, "#: additionalProperties is not false"),
        ({**CLOSED, "properties": {"a": {"type": "object"}}}, "#/properties/a: additionalProperties is not false"),
        (
            {**CLOSED, "properties": {"a": {"type": "string", "minLength": 1}}},
            "#/properties/a: minLength is not supported",
        ),
        ({**CLOSED, "properties": {"a": {"oneOf": [True], "not": {}}}}, "#/properties/a: oneOf, not are not supported"),
        ({**CLOSED, "properties": {"a": {"type": "string", "format": "uri"}}}, "#/properties/a: format uri is not"),
        ({**CLOSED, "properties": {"a": True}}, "#/properties/a: a boolean schema is not supported"),
        ({**CLOSED, "properties": {"a": {"enum": list(range(1001))}}}, "#: there are 1001 enum values, more than 1000"),
        ({**CLOSED, "patternProperties": {"^x": CLOSED}}, "#: patternProperties is not supported"),
    ],
)
def test_what_is_not_fit_for_strict_mode(store: SchemaStore, schema: Any, obstacle: str) -> None:
    """Each obstacle is named with its pointer."""
    assert any(text.startswith(obstacle) for text in store.load(schema).strict_obstacles)


def test_objects_nested_too_deeply_for_strict_mode(store: SchemaStore) -> None:
    """Ten levels are the most that OpenAI takes."""
    schema: Any = {"type": "string"}
    for _ in range(12):
        schema = {**CLOSED, "properties": {"a": schema}}
    assert any("nested deeper than 10 levels" in text for text in store.load(schema).strict_obstacles)


def test_obstacles_are_bounded(store: SchemaStore) -> None:
    """Twenty are enough to know."""
    schema = {**CLOSED, "properties": {f"p{number}": {"type": "object"} for number in range(6000)}}
    assert len(store.load(schema).strict_obstacles) == 20


# ------------------------------------------------------------------------------------------------ notes


@pytest.mark.parametrize(
    ("schema", "note"),
    [
        (
            {"$schema": DRAFT_07, "$ref": "#/definitions/a", "maxItems": 1, "definitions": {"a": {}}},
            "maxItems beside $ref has no",
        ),
        ({"then": {"type": "string"}}, "then has no effect without if"),
        ({"minContains": 1}, "have no effect without contains"),
        ({"$schema": DRAFT_07, "additionalItems": False}, "additionalItems has no effect unless items is a list"),
        ({"$schema": DRAFT_07, "additionalItems": False, "items": {}}, "additionalItems has no effect unless items is"),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "format": "date"}, "leave $schema out to have it"),
    ],
)
def test_what_the_standard_ignores_is_noted(store: SchemaStore, schema: Any, note: str) -> None:
    """The verdict is the standard's, and the author is told."""
    assert any(note in found.message for found in store.load(schema).notes)


def test_notes_are_about_the_schema_that_was_loaded(store: SchemaStore) -> None:
    """Equal schemas in two prompts share the check; each is told its own place."""
    for path in ("a.yaml", "b.yaml"):
        (note,) = store.load({"format": "phone"}, path=path, place=Place(4, 2)).notes
        assert (note.path, note.line, note.column) == (path, 4, 2)


@pytest.mark.parametrize(
    "dialect", ["https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema"]
)
def test_formats_are_annotations_where_the_standard_says_so(store: SchemaStore, dialect: str) -> None:
    """A declared 2019-09 or 2020-12 leaves formats unchecked."""
    assert store.load({"$schema": dialect, "format": "date"}).validate("x") == ()


def test_annotations_are_taken_in(store: SchemaStore) -> None:
    """What the standard has for readers, and what begins with x-, means nothing and is no fault."""
    schema = {
        "title": "t", "description": "d", "default": {}, "examples": [1], "$comment": "c", "deprecated": True,
        "readOnly": True, "writeOnly": False, "contentEncoding": "base64", "contentMediaType": "application/json",
        "contentSchema": {"type": "object"}, "x-order": [1],
    }  # fmt: skip
    assert store.load(schema).validate("not base64!") == ()
    assert store.load(schema).notes == ()


# ------------------------------------------------------------------------------ names that look like code


PAYLOADS = [
    '"); HIT.append(1) #',
    "'); HIT.append(1) #",
    '" + str(HIT.append(1)) + "',
    '"]; HIT.append(1); x["',
    '\\");HIT.append(1)#',
    "{HIT.append(1)}",
    "{0}",
    "{variable}",
    "{data.__class__}",
    "{",
    "}",
    "\\",
    '\\"',
    "\\'",
    '"""',
    "'''",
    "#",
    "$",
    "%s%n",
    "\n    HIT.append(1)\n",
    "\r",
    "\u2028HIT.append(1)",
    "\x00",
    "\U0010ffff",
    "é" * 300,
    "__import__('os')",
    "^(HIT)$",
    "data",
    "self",
    "name_prefix",
    "custom_formats",
    "fn",
    "validate",
]


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_no_text_of_a_schema_becomes_code(store: SchemaStore, payload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a name, a value or a description says, it is text: nothing runs, and verdicts are right."""
    hits: list[int] = []
    monkeypatch.setattr(builtins, "HIT", hits, raising=False)
    reference = payload.replace("~", "~0").replace("/", "~1")
    schema = {
        "title": payload,
        "description": payload,
        "$comment": payload,
        "default": {payload: payload},
        "examples": [payload],
        "format": payload,
        "x-" + payload: payload,
        "$defs": {payload: {"properties": {payload: {"const": payload}}}},
        "properties": {payload: {"enum": [payload, {payload: [payload]}]}},
        "required": [payload],
        "dependentRequired": {payload: [payload + "!"]},
        "dependentSchemas": {payload: {"not": {"const": payload}}},
        "propertyNames": {"enum": [payload, payload + "!"]},
        "additionalProperties": {"const": payload},
        "unevaluatedProperties": {"const": payload},
    }
    assert store.load({"$ref": f"#/$defs/{quote(reference)}", "$defs": schema["$defs"]})
    compiled = store.load(schema)
    assert compiled.validate({payload: payload, payload + "!": payload}) == ()
    assert compiled.validate({payload: {payload: [payload]}, payload + "!": payload}) == ()
    for value in ({}, {payload: 1, payload + "!": 1}, {payload: payload}, {"other": payload}):
        issues = compiled.validate(value)
        assert issues
        assert all(issue.keyword != "schema" for issue in issues)
    assert hits == []
