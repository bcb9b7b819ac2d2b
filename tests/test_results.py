"""What would be sent and what came back, and their stable JSON forms."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from attrs import evolve, fields
from hypothesis import given, settings
from hypothesis import strategies as st

from promptkit import AttemptEvent, ExecutionOverride, Message, PreparedRun, RunResult, Usage
from promptkit._canonical import sha256_of_bytes
from promptkit._definitions import Place
from promptkit._loading._schemas import SchemaStore
from promptkit._types import Image, RetryPolicy
from promptkit.errors import ConfigError
from support.project import Project
from support.server import Server, completion, reply

GOLDEN = Path(__file__).parent / "golden"
KINDS = {PreparedRun: "prepared-run", RunResult: "run-result"}
Record = PreparedRun | RunResult

IMAGE = Image("image/png", b"\x89PNG bytes", sha256_of_bytes(b"\x89PNG bytes"))

PREPARED = PreparedRun(
    prompt="invoice/extract",
    description="Extract the fields of an invoice.",
    profile="fast",
    backend="local",
    endpoint="http://127.0.0.1:8080/v1",
    model="vendor/model",
    messages=(
        Message("system", "You extract invoices."),
        Message("user", "Größe: 5 €, \U0001f600\n", images=(IMAGE,)),
    ),
    session_id="invoice-7",
    execution=ExecutionOverride(
        model="vendor/model",
        temperature=0,
        max_tokens=800,
        seed=2**64,
        stop=["END"],
        timeout_s=120,
        retry=RetryPolicy(budget=2, base_delay_s=0.5, max_delay_s=20, max_retry_after_s=60),
        extra_body={"provider": {"order": ["a", "b"]}},
    ),
    output_format="json_schema",
    output_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    is_strict=True,
    repair_max_attempts=2,
    definition_hash="sha256:" + "d" * 64,
    inputs_hash="sha256:" + "1" * 64,
    rendered_hash="sha256:" + "e" * 64,
    duration_s=0.25,
)

RESULT = RunResult(
    data={"n": 10**30, "ä": [1.0, 0.1, True, None]},
    text='{"n": 1000000000000000000000000000000, "ä": [1.0, 0.1, true, null]}',
    prepared=PREPARED,
    usage=Usage(prompt_tokens=20, completion_tokens=9, cost=0.002),
    attempts=(
        AttemptEvent(
            number=1,
            kind="initial",
            outcome="failed",
            is_dispatched=True,
            queued_s=0.5,
            generation_s=1.5,
            backend="local",
            model="vendor/model",
            phase="answer",
            error_type="OverloadedError",
            error="backend 'local': 503: too busy",
            next_delay_s=0.125,
        ),
        AttemptEvent(
            number=2,
            kind="initial",
            outcome="succeeded",
            is_dispatched=True,
            queued_s=0.0,
            generation_s=2.0,
            backend="local",
            model="vendor/model-2026",
            usage=Usage(prompt_tokens=20, completion_tokens=9, cost=0.002),
            finish_reason="stop",
            request_id="r-1",
        ),
    ),
    finish_reason="stop",
    model="vendor/model-2026",
    reasoning="They want n.",
    request_id="r-1",
    duration_s=4.125,
)


def schema_of(kind: str) -> dict[str, Any]:
    """Return a published schema."""
    return json.loads((resources.files("promptkit") / "schemas" / f"{kind}.schema.json").read_text("utf-8"))


JUDGES = {kind: jsonschema.Draft7Validator(schema_of(kind)) for kind in KINDS.values()}


def check_published_form(record: Record, form: dict[str, Any]) -> None:
    """Fail unless the published schema allows the form, by the judgement of another implementation too."""
    kind = KINDS[type(record)]
    JUDGES[kind].validate(form)
    compiled = SchemaStore(str(GOLDEN)).load(schema_of(kind), path="x", place=Place(1, 1), positions={})
    assert compiled.validate(form) == ()


# -------------------------------------------------------------------------------------------------- golden files


@pytest.mark.parametrize("record", [PREPARED, RESULT])
@pytest.mark.parametrize(
    ("name", "options"),
    [("whole", {}), ("without-content", {"with_content": False}), ("with-images", {"with_images": True})],
)
def test_the_form_is_the_golden_one(record: Record, name: str, options: dict[str, bool]) -> None:
    """A change of a form is a change of its version; UPDATE_GOLDEN=1 writes the files anew."""
    file = GOLDEN / f"{KINDS[type(record)]}-1.{name}.json"
    text = record.to_json(**options) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text, "utf-8")
    assert text == file.read_text("utf-8")
    check_published_form(record, json.loads(text))


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.json")), ids=lambda file: file.name)
def test_golden_files_can_be_read_for_ever(file: Path) -> None:
    """What was written once comes back as the record, where its content is there."""
    form = json.loads(file.read_text("utf-8"))
    expected, kind = (PREPARED, PreparedRun) if file.name.startswith("prepared") else (RESULT, RunResult)
    if "without-content" in file.name:
        with pytest.raises(ConfigError, match=r"is missing|was left out"):
            kind.from_dict(form)
    else:
        assert kind.from_dict(form) == expected


def test_the_forms_on_the_page_are_real() -> None:
    """Each example of the reference is a form that can be read."""
    page = (GOLDEN.parents[1] / "docs/reference/stable-forms.md").read_text("utf-8")
    examples = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert examples
    for example in examples:
        form = json.loads(example)
        prepared = PreparedRun.from_dict(form)
        assert prepared.to_dict() == form
        check_published_form(prepared, form)


# ----------------------------------------------------------------------------------------------------- the forms


def objects(form: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a form."""
    if isinstance(form, dict):
        yield form
        for value in form.values():
            yield from objects(value)
    elif isinstance(form, list):
        for value in form:
            yield from objects(value)


def test_keys_are_sorted_in_the_text() -> None:
    """Equal forms are equal texts."""
    assert all(list(form) == sorted(form) for form in objects(json.loads(RESULT.to_json())))


def test_the_form_is_the_callers_own() -> None:
    """What is done with it does not reach the record."""
    form = RESULT.to_dict()
    for item in objects(form):
        item["changed"] = 1
    assert RESULT.to_dict() == json.loads((GOLDEN / "run-result-1.whole.json").read_text("utf-8"))


def test_without_content_nothing_that_was_said_is_left() -> None:
    """Texts, session, data, reasoning and the words of errors go; their hashes stay, equal to those with content."""
    text = RESULT.to_json(with_content=False)
    for said in ("You extract", "Größe", "invoice-7", "10000", "They want", "too busy"):
        assert said not in text
    bare, whole = json.loads(text), RESULT.to_dict()
    assert bare["hashes"] == whole["hashes"]
    assert bare["prepared"]["hashes"] == whole["prepared"]["hashes"]
    assert [m["content_hash"] for m in bare["prepared"]["messages"]] == [
        sha256_of_bytes(message.content.encode()) for message in PREPARED.messages
    ]


def test_images_are_told_by_hash_and_type_unless_asked_for() -> None:
    """A form is small by default, and its record still equal; asked for, the bytes are back."""
    (shown,) = PREPARED.to_dict()["messages"][1]["images"]
    assert shown == {"media_type": "image/png", "sha256": IMAGE.sha256}
    without, with_bytes = (PreparedRun.from_dict(PREPARED.to_dict(with_images=asked)) for asked in (False, True))
    assert without == with_bytes == PREPARED
    assert without.messages[1].images[0].data is None
    assert with_bytes.messages[1].images[0].data == b"\x89PNG bytes"
    assert "data" not in without.to_dict(with_images=True)["messages"][1]["images"][0]


def test_half_of_a_surrogate_pair_in_an_answer_is_no_trouble() -> None:
    """The text can be written as UTF-8, hashed, and read back as it was."""
    result = evolve(RESULT, data="a\ud800", text="a\ud800", reasoning="\udfff", model="m\ud800")
    for options in ({}, {"with_content": False}):
        result.to_json(**options).encode()
    assert RunResult.from_dict(json.loads(result.to_json())) == result
    check_published_form(result, json.loads(result.to_json()))


def test_the_embedded_schema_is_the_one_of_prepared_runs() -> None:
    """The two published files cannot drift apart."""
    prepared, result = schema_of("prepared-run"), schema_of("run-result")
    embedded = result["definitions"].pop("prepared")
    for key in ("$schema", "title", "description"):
        del prepared[key]
    shared = prepared.pop("definitions")
    assert embedded == prepared
    assert {name: result["definitions"][name] for name in shared} == shared


@pytest.mark.parametrize("record", [PREPARED, RESULT])
def test_schemas_describe_every_field_and_no_other(record: Record) -> None:
    """A field that is added to a form has to be described."""
    schema = schema_of(KINDS[type(record)])
    assert set(schema["properties"]) == set(record.to_dict())
    bare = set(record.to_dict(with_content=False))
    assert set(schema["required"]) == bare


def test_records_are_picklable_and_immutable() -> None:
    """A result can be sent to another process and cannot be changed in this one."""
    assert pickle.loads(pickle.dumps(RESULT)) == RESULT == copy.deepcopy(RESULT)
    with pytest.raises(AttributeError):
        RESULT.data = 1  # type: ignore[misc]  # the mistake under test
    with pytest.raises(TypeError):
        RESULT.data["n"] = 1


def test_data_is_frozen_by_the_record_itself() -> None:
    """A result made by hand does not change with its maker's objects."""
    data = {"n": [1]}
    result = evolve(RESULT, data=data)
    data["n"].append(2)
    assert result.data == {"n": [1]}


def test_a_repr_shows_no_content_of_answers() -> None:
    """Logs of a result name what ran, not what was said."""
    for said in ("You extract", "They want", "max_chars"):
        assert said not in repr(RESULT)


# -------------------------------------------------------------------------------------------- what never is in them

PLANTED = "planted-secret"
CAPACITY = (4861198765, 5939387654)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An application's folders."""
    return Project(tmp_path)


def test_no_secret_and_no_capacity_number_is_in_any_form(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, header values of both kinds, values of the address's query, limits: after a failure that echoes all."""
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", PLANTED + "-env")
    project.write(
        "profiles/main.yaml",
        f"""
        backend: local
        model: m1
        api_key_env: PROMPTKIT_TEST_KEY
        headers: {{X-Profile: {PLANTED}-profile}}
        retry: {{budget: 1, base_delay_s: 0}}
        proxy: none
        """,
    )
    with Server() as server:
        endpoint = f"{server.url}/v1?tenant={PLANTED}-query&{PLANTED}-bare"

        def echo(connection: Any, received: Any) -> bool:
            said = f"{received.target} {dict(received.headers)}"
            return reply(status=503, json={"error": {"message": said}})(connection, received)

        server.play(echo, reply(json=completion('{"n": 1}')))
        backend = {
            "endpoint": endpoint,
            "headers": {"X-Backend": f"{PLANTED}-backend"},
            "concurrency_limit": CAPACITY[0],
            "queue_capacity": CAPACITY[1],
        }
        with project.engine(backend=backend) as engine:
            result = engine.run("extract", inputs={"text": "t"})
            events = [result.attempts[0].error]
    assert result.attempts[0].outcome == "failed"
    assert result.prepared.endpoint == f"{server.url}/v1?tenant=***&***"
    forms = [
        make(**options)
        for make in (result.to_json, result.prepared.to_json)
        for options in ({}, {"with_content": False}, {"with_images": True})
    ]
    for text in (*forms, repr(result), repr(result.prepared), str(events)):
        assert PLANTED not in text
        assert not any(str(number) in text for number in CAPACITY)
    assert RunResult.from_dict(json.loads(result.to_json())) == result


def test_an_endpoint_of_the_request_is_not_shown_in_the_execution_either(project: Project) -> None:
    """The merged values hold no address and no header: those are where secrets stand."""
    project.write("profiles/main.yaml", f"endpoint: http://a.example/v1?tenant={PLANTED}\nheaders: {{X: {PLANTED}}}\n")
    engine = project.engine()
    prepared = engine.prepare(
        "echo", inputs={"text": "t"}, override=ExecutionOverride(headers={"Y": PLANTED}, temperature=0.5)
    )
    assert PLANTED not in repr(prepared) + prepared.to_json() + repr(prepared.execution.headers)
    assert prepared.endpoint == "http://a.example/v1?tenant=***"
    assert PreparedRun.from_dict(prepared.to_dict()) == prepared
    assert PLANTED not in repr(engine.prepare_execution("echo", inputs={"text": "t"}))


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [
        ("http://h/v1", "http://h/v1"),
        ("http://h/v1?", "http://h/v1?"),
        ("http://h/v1?a=b=c&d&e=&&", "http://h/v1?a=***&***&e=***&&"),
        ("http://h/v1?a=***&***", "http://h/v1?a=***&***"),
    ],
)
def test_addresses_are_shown_without_the_values_of_their_query(endpoint: str, shown: str) -> None:
    """Names stay, to tell addresses apart; masking again changes nothing."""
    assert evolve(PREPARED, endpoint=endpoint).endpoint == shown
    assert evolve(PREPARED, endpoint=shown).endpoint == shown


# ------------------------------------------------------------------------------------------------- round trips

TEXT = st.text(st.characters())  # half surrogate pairs included
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
CLEAN = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.recursive(
    st.none() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | CLEAN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(CLEAN, inner, max_size=3),
    max_leaves=5,
)
HASHES = st.binary(max_size=3).map(sha256_of_bytes)
SECONDS = st.floats(0, 1e9)
COUNTS = st.none() | st.integers(0, 2**63)
NAMES = CLEAN.filter(str.strip)
IMAGES = st.builds(lambda kind, data: Image(kind, data, sha256_of_bytes(data)), CLEAN, st.binary(max_size=4))
MESSAGES = st.builds(
    lambda role, content, images: Message(role, content, images=images),
    st.sampled_from(["system", "user", "assistant"]),
    TEXT,
    st.lists(IMAGES, max_size=2),
)
USAGES = st.builds(
    Usage, **{a.name: COUNTS for a in fields(Usage) if a.name != "cost"}, cost=st.none() | st.floats(0, 1e9)
)
EVENTS = st.builds(
    AttemptEvent,
    number=st.integers(1, 100),
    kind=st.sampled_from(["initial", "repair"]),
    outcome=st.sampled_from(["succeeded", "failed", "cancelled"]),
    is_dispatched=st.booleans(),
    queued_s=SECONDS,
    generation_s=SECONDS,
    usage=st.none() | USAGES,
    next_delay_s=st.none() | SECONDS,
    **{
        name: st.none() | TEXT
        for name in ("backend", "model", "finish_reason", "request_id", "phase", "error_type", "error")
    },
)


@st.composite
def prepared_runs(draw: st.DrawFn) -> PreparedRun:
    """Return any record that an engine could make."""
    model = draw(st.none() | NAMES)
    execution = ExecutionOverride(
        model=model,
        endpoint=draw(st.none() | st.just("http://a.example/v1?k=v")),
        temperature=draw(st.none() | st.just(0) | st.floats(0, 2)),
        top_p=draw(st.none() | st.floats(0, 1)),
        max_tokens=draw(st.none() | st.integers(1, 10**6)),
        seed=draw(st.none() | st.integers(-(2**1000), 2**1000)),
        stop=draw(st.none() | st.lists(CLEAN, max_size=2)),
        presence_penalty=draw(st.none() | st.floats(-2, 2)),
        frequency_penalty=draw(st.none() | st.integers(-2, 2)),
        timeout_s=draw(st.none() | st.floats(0.1, 1000)),
        retry=draw(st.none() | st.builds(RetryPolicy, budget=st.none() | st.integers(0, 9))),
        headers=draw(st.none() | st.just({"X-H": PLANTED})),
        extra_body=draw(st.none() | st.dictionaries(CLEAN, PLAIN, max_size=3)),
    )
    return PreparedRun(
        prompt=draw(CLEAN),
        description=draw(st.none() | CLEAN),
        profile=draw(CLEAN),
        backend=draw(st.none() | CLEAN),
        endpoint=draw(CLEAN),
        model=model,
        messages=draw(st.lists(MESSAGES, max_size=3)),
        session_id=draw(st.none() | CLEAN),
        execution=execution,
        output_format=draw(st.sampled_from(["text", "json", "json_schema"])),
        output_schema=draw(st.none() | st.booleans() | st.dictionaries(CLEAN, PLAIN, max_size=3)),
        is_strict=draw(st.booleans()),
        structured_output=draw(st.sampled_from(["json_schema", "json_object", "prompt"])),
        repair_max_attempts=draw(st.integers(0, 10)),
        definition_hash=draw(HASHES),
        inputs_hash=draw(HASHES),
        rendered_hash=draw(HASHES),
        duration_s=draw(SECONDS),
    )


RESULTS = st.builds(
    RunResult,
    data=JSON,
    text=TEXT,
    prepared=prepared_runs(),
    usage=USAGES,
    attempts=st.lists(EVENTS, max_size=3).map(tuple),
    finish_reason=st.none() | TEXT,
    model=st.none() | TEXT,
    reasoning=st.none() | TEXT,
    request_id=st.none() | TEXT,
    duration_s=SECONDS,
)


@given(record=prepared_runs() | RESULTS, with_images=st.booleans())
def test_a_form_with_content_comes_back_equal(record: Record, *, with_images: bool) -> None:
    """Through JSON text and UTF-8, whatever is in it; the published schema allows it; no header is in it."""
    encoded = record.to_json(with_images=with_images).encode()
    form = json.loads(encoded)
    assert type(record).from_dict(form) == record
    assert type(record).from_dict(form).to_json(with_images=with_images).encode() == encoded
    JUDGES[KINDS[type(record)]].validate(form)
    assert PLANTED.encode() not in encoded


@given(prepared_runs() | RESULTS)
def test_a_form_without_content_is_allowed_by_the_schema_too(record: Record) -> None:
    """It is written for any record, and says that it lacks its content when it is read."""
    form = json.loads(record.to_json(with_content=False).encode())
    JUDGES[KINDS[type(record)]].validate(form)
    with pytest.raises(ConfigError, match="is no complete"):
        type(record).from_dict(form)


# ------------------------------------------------------------------------------------------------------ garbage


def places(form: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a form."""
    yield path
    if isinstance(form, dict):
        for key, value in form.items():
            yield from places(value, (*path, key))
    elif isinstance(form, list):
        for index, value in enumerate(form):
            yield from places(value, (*path, index))


def changed(form: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a form with another value at a place."""
    if not path:
        return value
    form = copy.copy(form)
    form[path[0]] = changed(form[path[0]], path[1:], value)
    return form


FORM = RESULT.to_dict(with_images=True)
ANYTHING = JSON | st.sampled_from(
    [float("nan"), object(), b"x", {1: 2}, (), {"kind": []}, "sha256:" + "A" * 64, 10**5000, -1, {"k": {None: 1}}]
)


@given(st.sampled_from(sorted(places(FORM), key=repr)), ANYTHING)
@settings(max_examples=150)
def test_a_form_with_a_wrong_value_is_refused_or_read(path: tuple[Any, ...], value: Any) -> None:
    """Nothing but a `ConfigError` comes out, and what is read is a record whose form is allowed."""
    form = changed(FORM, path, value)
    try:
        result = RunResult.from_dict(form)
    except ConfigError as error:
        text = str(error)
        assert "is no complete 'promptkit.run-result/1' form" in text
        assert len(text) < 1000
    else:
        JUDGES["run-result"].validate(json.loads(result.to_json()))


@pytest.mark.parametrize("path", [path for path in places(FORM) if path], ids=str)
def test_every_field_is_needed_and_none_is_ignored(path: tuple[Any, ...]) -> None:
    """A form with a field missing, or with one more beside it, is not the form."""
    *parents, name = path
    form = copy.deepcopy(FORM)
    holder = form
    for key in parents:
        holder = holder[key]
    is_free = any(key in ("extra_body", "schema") for key in parents) or parents[:1] == ["data"]
    if isinstance(holder, list) or is_free:
        return
    holder["one more"] = 1
    with pytest.raises(ConfigError, match="unknown field 'one more'"):
        RunResult.from_dict(form)
    del holder["one more"]
    numbers = {
        "temperature",
        "max_tokens",
        "seed",
        "stop",
        "budget",
        "base_delay_s",
        "max_delay_s",
        "max_retry_after_s",
    }
    if name in numbers or (name == "data" and "images" in parents):
        return  # what is absent is not sent
    del holder[name]
    with pytest.raises(ConfigError, match=r"is missing|was left out"):
        RunResult.from_dict(form)


@pytest.mark.parametrize("form", [None, 5, "x", [], {}, {"kind": "promptkit.run-result/2"}, {"kind": ["x"]}])
@pytest.mark.parametrize("kind", [PreparedRun, RunResult])
def test_what_is_no_form_is_refused(kind: type[Record], form: Any) -> None:
    """Another version, another kind, no mapping at all."""
    with pytest.raises(ConfigError, match="is no complete"):
        kind.from_dict(form)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (changed(FORM, ("attempts",), 5), "attempts must be a list, not an integer"),
        (changed(FORM, ("prepared", "messages"), ["x"]), r"messages\[0\] must be a mapping, not a string"),
        ({**FORM, 7: 1}, "it must have strings for keys, not an integer"),
        ({**FORM, "reazoning": None}, "the unknown field 'reazoning'; did you mean 'reasoning'"),
        (changed(FORM, ("hashes", "data"), "sha256:" + "A" * 64), "hashes.data must be sha256: and 64"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(form: dict[Any, Any], said: str) -> None:
    """The path of the field, what stands there by its kind, and what would be right."""
    with pytest.raises(ConfigError, match=said):
        RunResult.from_dict(form)


def test_a_form_that_contains_itself_is_refused() -> None:
    """Depth is bounded."""
    loop: dict[str, Any] = {}
    loop["again"] = loop
    for path in (("data",), ("prepared", "output", "schema"), ("prepared", "execution", "extra_body")):
        with pytest.raises(ConfigError, match="nested"):
            RunResult.from_dict(changed(FORM, path, loop))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("text",), "another answer"),
        (("prepared", "messages", 0, "content"), "another prompt"),
        (("prepared", "messages", 1, "images", 0, "data"), "AAAA"),
        (("prepared", "messages", 1, "images", 0, "data"), "no base64!"),
        (("prepared", "messages", 1, "images", 0, "data"), "ä"),
    ],
)
def test_content_that_is_not_what_was_hashed_is_refused(path: tuple[Any, ...], value: str) -> None:
    """A stored form whose text was changed proves nothing; the error does not show it."""
    with pytest.raises(ConfigError, match=r"made of|base64") as caught:
        RunResult.from_dict(changed(FORM, path, value))
    assert value not in str(caught.value)
