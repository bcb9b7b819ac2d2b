"""The three hashes of a run, computed a second time from docs/reference/hashes.md, and what changes them."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from promptkit import Artifact, Engine, ExecutionOverride, Message, PreparedRun
from promptkit._types import Image
from promptkit.testing import ScriptedClient
from support.project import Project

# --------------------------------------------------------------------- the documented form, in a second hand


def canonical(value: Any) -> str:
    """Write a JSON value as the page says, without the json module."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return f"{value:d}"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return f'"{"".join(map(escaped, value))}"'
    if isinstance(value, dict):
        return "{" + ",".join(f"{canonical(key)}:{canonical(value[key])}" for key in sorted(value)) + "}"
    return "[" + ",".join(map(canonical, value)) + "]"


def escaped(character: str) -> str:
    """Write one character of a string."""
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
    if character in short:
        return short[character]
    if character < " ":
        return f"\\u00{ord(character):02x}"
    return f"\\u{ord(character):04x}" if "\ud800" <= character <= "\udfff" else character


def hash_of(data: bytes | Any) -> str:
    """Hash bytes as they are, and everything else in its canonical form."""
    return "sha256:" + hashlib.sha256(data if isinstance(data, bytes) else canonical(data).encode()).hexdigest()


def rendered_again(form: dict[str, Any]) -> str:
    """Put the rendered hash together again from a stable form with content."""
    execution, output = form["execution"], form["output"]
    names = ("temperature", "top_p", "max_tokens", "seed", "stop", "presence_penalty", "frequency_penalty")
    return hash_of(
        {
            "messages": [
                {"role": m["role"], "content": m["content"], "images": [image["sha256"] for image in m["images"]]}
                for m in form["messages"]
            ],
            "model": form["model"],
            "numbers": {name: execution[name] for name in names if name in execution},
            "extra_body": execution["extra_body"],
            "output": {
                "format": output["format"],
                "schema": hash_of(output["schema"]) if output["format"] == "json_schema" else None,
                "strict": output["strict"],
                "structured_output": None if output["format"] == "text" else output["structured_output"],
            },
        }
    )


# -------------------------------------------------------------------------------------- a prompt of every kind

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00"
GIF = b"GIF89a\x01\x00\x01\x00\x00\x00\x00;"

EVERYTHING = """
description: One input of every type.
profile: main
inputs:
  text: {type: string}
  count: {type: integer}
  share: {type: number}
  flag: {type: boolean, default: false}
  rows: {type: array, default: [1, 1.0, "1", true, null]}
  fields: {type: object}
  doc: {type: file}
  scan: {type: image}
  scans: {type: image}
  turns: {type: messages}
  note: {type: string, required: false}
messages:
  - role: system
    content: Be brief.
  - history: turns
  - role: user
    content: |
      {{ text }} {{ count }} {{ share }} {{ flag }} {{ rows | tojson }}
      {{ fields | tojson }} {{ doc }} {{ note | default('') }}
    images: [scan, scans]
output:
  format: json_schema
  schema: {$ref: part.json}
  strict: true
execution: {temperature: 0, stop: [END], max_tokens: 10}
"""

PART = '{"type": "object", "properties": {"größe": {"type": ["number", "null"]}}, "required": ["größe"]}'

VALUES: dict[str, Any] = {
    "text": 'Größe "\\\t\x7f \u2028 \U0001f600',
    "count": 10**40,
    "share": 1e16,
    "fields": {"z": 0.1, "a": {"\uffff": -0.0, "\U00010000": 5e-324}, "": []},
    "doc": Artifact("doc.txt"),
    "scan": PNG,
    "scans": [Artifact("scan.gif"), PNG],
    "turns": [{"role": "user", "content": "earlier"}, Message("assistant", "yes")],
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An application with a prompt of every kind."""
    project = Project(tmp_path)
    project.write("prompts/all.yaml", EVERYTHING)
    project.write("schemas/part.json", PART)
    project.write("data/doc.txt", b"content of the file")
    project.write("data/scan.gif", GIF)
    project.write("profiles/main.yaml", "backend: local\nmodel: m1\nextra_body: {provider: {order: [a]}}\ntop_p: 0.5\n")
    return project


def test_all_three_are_what_the_page_says(project: Project) -> None:
    """Another program computes the same from the file, the inputs and the form."""
    prepared = project.engine().prepare("all", inputs=VALUES)
    file = (project.root / "prompts/all.yaml").read_bytes()
    assert prepared.definition_hash == hash_of(file)
    assert prepared.inputs_hash == hash_of(
        {
            "text": VALUES["text"],
            "count": 10**40,
            "share": 1e16,
            "flag": False,
            "rows": [1, 1.0, "1", True, None],
            "fields": VALUES["fields"],
            "doc": {"artifact": hash_of(b"content of the file")},
            "scan": [{"artifact": hash_of(PNG)}],
            "scans": [{"artifact": hash_of(GIF)}, {"artifact": hash_of(PNG)}],
            "turns": [{"role": "user", "content": "earlier"}, {"role": "assistant", "content": "yes"}],
        }
    )
    form = json.loads(prepared.to_json())
    assert prepared.rendered_hash == rendered_again(form)
    assert form["output"]["strict"] is False  # the schema has an optional field: strict mode is not asked for
    assert [len(m["images"]) for m in form["messages"]] == [0, 0, 0, 3]


def test_a_turn_with_images_has_their_hashes(project: Project) -> None:
    """A history may bring images of its own."""
    turn = Message("user", "look", images=(Image("image/png", PNG, hash_of(PNG)),))
    project.prompt(
        "p", "profile: main\ninputs: {turns: {type: messages}}\nmessages: [{history: turns}, {role: user, content: x}]"
    )
    prepared = project.engine().prepare("p", inputs={"turns": [turn]})
    assert prepared.inputs_hash == hash_of({"turns": [{"role": "user", "content": "look", "images": [hash_of(PNG)]}]})
    assert prepared.rendered_hash == rendered_again(prepared.to_dict())


@pytest.mark.parametrize("name", ["echo", "extract"])
def test_text_and_strict_contracts_are_as_the_page_says_too(project: Project, name: str) -> None:
    """A contract of text has no way to travel; a strict one says so."""
    project.write(
        "prompts/extract.yaml",
        """
        profile: main
        inputs: {text: {type: string}}
        messages: [{role: user, content: "{{ text }}"}]
        output:
          format: json_schema
          strict: true
          schema: {type: object, properties: {n: {type: integer}}, required: [n], additionalProperties: false}
        """,
    )
    prepared = project.engine().prepare(name, inputs={"text": "x"})
    assert prepared.is_strict is (name == "extract")
    assert prepared.rendered_hash == rendered_again(json.loads(prepared.to_json()))


def test_what_is_sent_has_the_hash_that_was_prepared(project: Project) -> None:
    """The request that a client is given, and its form, say the same as the record."""
    client = ScriptedClient([{"größe": 1}])
    result = project.engine(client).run("all", inputs=VALUES)
    request = client.requests[0]
    assert hash_of(request.rendered_form()) == request.rendered_hash() == result.prepared.rendered_hash


def test_results_have_the_hashes_of_what_came(project: Project) -> None:
    """Of the text as bytes, of the data as a value."""
    result = project.engine(ScriptedClient(['{"größe": 1.50}'])).run("all", inputs=VALUES)
    hashes = result.to_dict(with_content=False)["hashes"]
    assert hashes == {"text": hash_of('{"größe": 1.50}'.encode()), "data": hash_of({"größe": 1.5})}


# ------------------------------------------------------------------------------ what changes them, and what does not

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=4)
YAML_TEXT = st.text("abz äß€😀09 :#'\"-?{}[]|>%@`!&*,~=\n\t", max_size=8)
YAML_OBJECTS = st.dictionaries(
    YAML_TEXT,
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | YAML_TEXT,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(YAML_TEXT, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)

ANY = """
profile: main
inputs: {fields: {type: object}}
messages: [{role: user, content: "{{ fields | tojson }}"}]
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """An engine with a prompt that says its only input."""
    project = Project(tmp_path_factory.mktemp("app"))
    project.write("prompts/any.yaml", ANY)
    return project.engine()


def prepared_with(engine: Engine, fields: object) -> PreparedRun:
    """Return what would be sent for these fields."""
    return engine.prepare("any", inputs={"fields": fields})


def shuffled(value: Any, draw: st.DrawFn) -> Any:
    """Return the same value with the keys of every object in another order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key], draw) for key in draw(st.permutations(list(value)))}
    return [shuffled(item, draw) for item in value] if isinstance(value, list) else value


@st.composite
def reordered(draw: st.DrawFn) -> tuple[Any, Any]:
    """Return an object twice, in two orders of keys."""
    value = draw(OBJECTS)
    return value, shuffled(value, draw)


@given(pair=reordered())
def test_the_order_of_keys_does_not_matter(engine: Engine, pair: tuple[Any, Any]) -> None:
    """Equal values have equal inputs hashes, at every depth."""
    first, second = (prepared_with(engine, fields) for fields in pair)
    assert first.inputs_hash == second.inputs_hash == hash_of({"fields": pair[0]})


@given(first=OBJECTS, second=OBJECTS)
def test_different_values_have_different_hashes(engine: Engine, first: Any, second: Any) -> None:
    """Whatever the difference is: 1, 1.0, "1" and true are four values."""
    assume(canonical(first) != canonical(second))
    assert prepared_with(engine, first).inputs_hash != prepared_with(engine, second).inputs_hash


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of everything below a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in items for found in [(*path, key), *places(item, (*path, key))]]


@given(data=st.data(), value=OBJECTS.filter(bool), other=JSON)
def test_any_single_change_changes_it(engine: Engine, data: st.DataObject, value: Any, other: Any) -> None:
    """One value anywhere inside."""
    path = data.draw(st.sampled_from(places(value)))
    changed = json.loads(json.dumps(value))
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    assume(canonical(holder[path[-1]]) != canonical(other))
    holder[path[-1]] = other
    assert prepared_with(engine, value).inputs_hash != prepared_with(engine, changed).inputs_hash


class Layout:
    """Writes YAML in one of many ways: block or flow style, quotes, order of keys, indentation, comments."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.step = draw(st.sampled_from(["  ", "    "]))
        self.comments = draw(st.sampled_from([[""], ["", "  # reviewed"], ["", "\n\n# by: nobody"]]))

    def document(self, value: dict[str, Any]) -> str:
        """Return a whole file."""
        return "# inputs\n" + "\n".join(self.block(value, "") if value else ["{}"]) + "\n"

    def block(self, value: Any, indent: str) -> list[str]:
        """Return the lines of a mapping or list that is not empty."""
        items = [("- ", item) for item in value]
        if isinstance(value, dict):
            order = self.draw(st.permutations(list(value)))
            items = [(f"{self.scalar(key)}: ", value[key]) for key in order]
        lines = []
        for start, item in items:
            comment = self.draw(st.sampled_from(self.comments))
            if isinstance(item, (dict, list)) and item and self.draw(st.booleans()):
                lines += [f"{indent}{start.rstrip()}{comment}", *self.block(item, indent + self.step)]
            else:
                lines.append(f"{indent}{start}{self.flow(item)}{comment}")
        return lines

    def flow(self, value: Any) -> str:
        """Return a value in one line."""
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.scalar(key)}: {self.flow(item)}" for key, item in value.items()) + "}"
        return f"[{', '.join(map(self.flow, value))}]" if isinstance(value, list) else self.scalar(value)

    def scalar(self, value: Any) -> str:
        """Return a scalar; a text in quotation marks of either kind, or bare where it may be."""
        ways = [json.dumps(value, ensure_ascii=False)]
        if isinstance(value, str) and not set(value) & set("\n\t"):
            ways.append("'" + value.replace("'", "''") + "'")
            if re.fullmatch("z[abz]+", value):
                ways.append(value)
        return self.draw(st.sampled_from(ways))


@st.composite
def laid_out(draw: st.DrawFn) -> tuple[Any, str, str]:
    """Return an object and two YAML texts of it."""
    value = draw(YAML_OBJECTS)
    return value, Layout(draw).document(value), Layout(draw).document(value)


@given(case=laid_out())
def test_layout_and_comments_of_a_yaml_file_do_not_matter(engine: Engine, case: tuple[Any, str, str]) -> None:
    """Inputs that were read from two spellings of one file are the same inputs."""
    value, first, second = case
    hashes = {prepared_with(engine, YAML(typ="safe", pure=True).load(text)).inputs_hash for text in (first, second)}
    assert hashes == {hash_of({"fields": value})}


@pytest.mark.parametrize(
    ("change", "replacement"),
    [
        ("profile: main", "profile: main  # a comment"),
        ("content: Be brief.", 'content: "Be brief."'),
        ("execution:", "\nexecution:"),
        ("description: One input of every type.", "description: Another."),
    ],
)
def test_the_definition_hash_is_of_the_file_as_written(project: Project, change: str, replacement: str) -> None:
    """A comment, a quotation mark or a blank line is another file, and the same inputs and rendering."""
    engine = project.engine()
    before = engine.prepare("all", inputs=VALUES)
    project.write("prompts/all.yaml", EVERYTHING.replace(change, replacement))
    after = engine.prepare("all", inputs=VALUES)
    assert before.definition_hash != after.definition_hash
    assert (before.inputs_hash, before.rendered_hash) == (after.inputs_hash, after.rendered_hash)


def test_line_endings_belong_to_the_definition(project: Project) -> None:
    """The same text saved on another system is another file."""
    engine = project.engine()
    before = engine.prepare("echo", inputs={"text": "x"})
    file = project.root / "prompts/echo.yaml"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    after = engine.prepare("echo", inputs={"text": "x"})
    assert before.definition_hash != after.definition_hash == hash_of(file.read_bytes())
    assert before.rendered_hash == after.rendered_hash


@pytest.mark.parametrize(
    ("where", "before", "after"),
    [
        ("prompts/all.yaml", "Be brief.", "Be terse."),
        ("prompts/all.yaml", "role: system", "role: user"),
        ("prompts/all.yaml", "temperature: 0,", "temperature: 0.0,"),
        ("prompts/all.yaml", "temperature: 0, ", ""),
        ("prompts/all.yaml", "stop: [END]", "stop: []"),
        ("prompts/all.yaml", "images: [scan, scans]", "images: [scans, scan]"),
        ("schemas/part.json", '"number"', '"integer"'),
        ("profiles/main.yaml", "model: m1", "model: m2"),
        ("profiles/main.yaml", "order: [a]", "order: [b]"),
        ("profiles/main.yaml", "top_p: 0.5", "structured_output: prompt\ntop_p: 0.5"),
    ],
)
def test_any_change_of_what_is_asked_changes_the_rendered_hash(
    project: Project, where: str, before: str, after: str
) -> None:
    """Messages, numbers, contract, model and extra body count; a number that is absent is none that is 0."""
    engine = project.engine()
    first = engine.prepare("all", inputs=VALUES)
    text = (project.root / where).read_text("utf-8")
    assert before in text
    project.write(where, text.replace(before, after))
    second = engine.prepare("all", inputs=VALUES)
    assert first.rendered_hash != second.rendered_hash
    assert second.rendered_hash == rendered_again(json.loads(second.to_json()))
    assert first.inputs_hash == second.inputs_hash


def test_where_and_for_whom_does_not_change_the_rendered_hash(project: Project) -> None:
    """Another address, header, session, time or retry is the same question."""
    engine = project.engine()
    first = engine.prepare("all", inputs=VALUES)
    elsewhere = ExecutionOverride(
        endpoint="http://else.example/v1",
        headers={"X": "y"},
        timeout_s=1,
        retry={"budget": 0},  # type: ignore[arg-type]  # converted
    )
    second = engine.prepare("all", inputs=VALUES, session_id="s-1", override=elsewhere)
    assert first.rendered_hash == second.rendered_hash
    assert first != second


def test_where_an_artifact_comes_from_does_not_change_the_inputs_hash(project: Project) -> None:
    """By path, by bytes, under any name."""
    project.prompt("p", "profile: main\ninputs: {d: {type: file}}\nmessages: [{role: user, content: '{{ d }}'}]")
    engine = project.engine()
    sources = [Artifact("doc.txt"), b"content of the file", Artifact(data=b"content of the file", name="other.txt")]
    prepared = [engine.prepare("p", inputs={"d": source}) for source in sources]
    assert len({(run.inputs_hash, run.rendered_hash) for run in prepared}) == 1
    assert engine.prepare("p", inputs={"d": b"content of the File"}).inputs_hash != prepared[0].inputs_hash


@given(st.text(), JSON)
def test_texts_with_half_surrogate_pairs_have_hashes(text: str, value: Any) -> None:
    """What a client of the application's own may give has a hash, and another one than its escape."""
    from promptkit._canonical import sha256_of

    assert sha256_of({text: [text, value]}) == hash_of({text: [text, value]})
    assert sha256_of("\ud800") != sha256_of("\\ud800")
