"""The frozen records: what they take, what they refuse, and that they never change."""

from __future__ import annotations

import pickle
from typing import Any

import attrs
import pytest

from promptkit import _definitions, _results, _types
from promptkit._fields import FrozenDict, FrozenList, Secret
from promptkit._types import (
    Artifact,
    AttemptEvent,
    ExecutionOverride,
    GenerateRequest,
    GenerateResponse,
    Image,
    Issue,
    Message,
    Problem,
    RetryPolicy,
    RunRequest,
    Usage,
)
from promptkit.errors import ConfigError, InvalidRequestError

HALF = "\ud83d"
IMAGE = Image("image/png", b"\x89PNG", "sha256:ab")
REQUEST = GenerateRequest(
    messages=[Message("user", "Hello")], endpoint="http://127.0.0.1:1/v1", credential=Secret("sk-very-secret")
)
RECORDS = [
    Problem("a.yaml", 1, 2, "wrong"),
    Issue("/a", "type", "is a string"),
    Usage(total_tokens=3, cost=0.5),
    Artifact("a.txt"),
    Artifact(data=b"x", name="a", media_type="text/plain"),
    IMAGE,
    Message("user", "Hello", images=[IMAGE]),
    RetryPolicy(budget=0),
    ExecutionOverride(temperature=0, stop="x", extra_body={"a": [1]}, headers={"X": "y"}, retry={"budget": 1}),
    RunRequest("a/b", {"x": [1, {"y": 2}]}, profile="p", session_id="s"),
    attrs.evolve(REQUEST, credential=None),
    GenerateResponse(text="hi", usage=Usage(total_tokens=1)),
    AttemptEvent(
        number=1, kind="initial", outcome="succeeded", is_dispatched=True, queued_s=0.0, generation_s=1.0
    ),
]  # fmt: skip


def name_of(record: object) -> str:
    """Use a record's class as a test's id."""
    return type(record).__name__


# -------------------------------------------------------------------------------------------- every record


@pytest.mark.parametrize("record", RECORDS, ids=name_of)
def test_a_record_comes_back_from_a_pickle_equal(record: object) -> None:
    """Records cross process borders unchanged."""
    again = pickle.loads(pickle.dumps(record))
    assert again == record
    assert type(again) is type(record)


@pytest.mark.parametrize("record", RECORDS, ids=name_of)
def test_a_record_cannot_be_changed(record: Any) -> None:
    """No attribute can be set, added or deleted."""
    name = attrs.fields(type(record))[0].name
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(record, name, None)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        delattr(record, name)
    with pytest.raises(AttributeError):
        record.no_such_field = 1


@pytest.mark.parametrize("module", [_types, _definitions, _results])
def test_annotations_can_be_read_at_run_time(module: Any) -> None:
    """Tools that build records from their annotations (cattrs) find every type."""
    classes = [value for value in vars(module).values() if isinstance(value, type) and attrs.has(value)]
    assert classes
    for cls in classes:
        attrs.resolve_types(cls)


# ------------------------------------------------------------------------------------ problems, issues, usage


def test_a_problem_reads_as_editors_want_it() -> None:
    """``path:line:column: message``, and no place where there is none."""
    assert str(Problem("a.yaml", 3, 5, "wrong")) == "a.yaml:3:5: wrong"
    assert str(Problem("a.yaml", 0, 0, "empty")) == "a.yaml: empty"


def test_an_issue_reads_with_its_place() -> None:
    """The pointer comes first; the whole document has a name too."""
    assert str(Issue("/a/0", "type", "is a string")) == "/a/0: is a string"
    assert str(Issue("", "json", "is no JSON")) == "(root): is no JSON"


def test_usages_add_up_field_by_field() -> None:
    """A number that one of them has is kept; one that neither has stays unknown."""
    left = Usage(prompt_tokens=1, completion_tokens=2, total_tokens=3, cost=0.25)
    right = Usage(prompt_tokens=10, cached_tokens=4, total_tokens=20, cost=0.5)
    assert left + right == Usage(
        prompt_tokens=11, completion_tokens=2, total_tokens=23, cached_tokens=4, reasoning_tokens=None, cost=0.75
    )


def test_zero_is_a_number_of_tokens() -> None:
    """A reported 0 is not the same as nothing reported."""
    assert Usage(prompt_tokens=0) + Usage() == Usage(prompt_tokens=0)
    assert Usage(prompt_tokens=0) != Usage()


# --------------------------------------------------------------------------------- artifacts and messages


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "a path or data"),
        ({"path": "a", "data": b"x"}, "a path or data"),
        ({"path": 3}, "Artifact.path must be a string or None, not an integer"),
        ({"data": b"", "name": 3}, "Artifact.name must be a string or None, not an integer"),
        ({"data": b"", "media_type": b"text/plain"}, "Artifact.media_type must be a string or None, not bytes"),
        ({"data": "text"}, "Artifact.data must be bytes or None, not a string"),
    ],
)
def test_an_artifact_is_a_path_or_bytes(arguments: dict[str, Any], message: str) -> None:
    """Exactly one of the two, of the right type."""
    with pytest.raises(InvalidRequestError, match=message):
        Artifact(**arguments)


@pytest.mark.parametrize("data", [b"xyz", bytearray(b"xyz"), memoryview(b"xyz")])
def test_an_artifact_copies_its_bytes(data: Any) -> None:
    """A buffer that its owner goes on writing to is copied; empty data is data."""
    artifact = Artifact(data=data)
    assert artifact.data == b"xyz"
    assert type(artifact.data) is bytes
    assert Artifact(data=b"").data == b""


def test_a_message_has_a_known_role() -> None:
    """The roles are named in the error."""
    with pytest.raises(InvalidRequestError, match="system, user, assistant, not 'tool'"):
        Message("tool", "x")  # type: ignore[arg-type]  # what the test is about


def test_a_message_has_text() -> None:
    """Content is a string; the error tells what it was, not what it said."""
    with pytest.raises(InvalidRequestError, match="content must be a string, not bytes"):
        Message("user", b"secret")  # type: ignore[arg-type]  # what the test is about


@pytest.mark.parametrize(
    "record",
    [
        Message("user", "secret"),
        Artifact(data=b"secret"),
        Image("image/png", b"secret", "sha256:ab"),
        RunRequest("a", {"x": "secret"}),
        ExecutionOverride(headers={"Authorization": "secret"}, extra_body={"key": "secret"}),
        GenerateResponse(text="secret", reasoning="secret", refusal="secret"),
        attrs.evolve(REQUEST, credential=Secret("secret"), headers=FrozenDict(X="secret"), output_schema="secret"),
    ],
    ids=name_of,
)
def test_a_repr_shows_no_content(record: object) -> None:
    """What a log may get by accident holds no prompt, input, answer or key."""
    assert "secret" not in repr(record)


def test_a_request_loses_its_credential_in_a_pickle() -> None:
    """The bytes of a pickled request hold no key."""
    assert b"very-secret" not in pickle.dumps(REQUEST)


# ---------------------------------------------------------------------------------------- execution values


@pytest.mark.parametrize("name", ["temperature", "presence_penalty", "frequency_penalty", "seed"])
def test_zero_is_a_value(name: str) -> None:
    """0 is kept apart from absent."""
    override: Any = ExecutionOverride(**{name: 0})
    assert getattr(override, name) == 0
    assert getattr(ExecutionOverride(), name) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", True),
        ("temperature", "0.2"),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 1.01),
        ("top_p", -0.01),
        ("max_tokens", 0),
        ("max_tokens", 1.0),
        ("max_tokens", True),
        ("seed", 1.5),
        ("presence_penalty", float("-inf")),
        ("frequency_penalty", "x"),
        ("timeout_s", 0),
        ("timeout_s", 86401),
        ("model", ""),
        ("model", "  "),
        ("model", 3),
        ("model", f"m{HALF}"),
        ("endpoint", "\n"),
        ("stop", 3),
        ("stop", [1]),
        ("stop", {"a"}),
        ("stop", [f"x{HALF}"]),
        ("headers", []),
        ("headers", {"X": 1}),
        ("headers", {"X": "a\nb"}),
        ("extra_body", "x"),
        ("extra_body", {"x": {1}}),
    ],
)
def test_a_value_out_of_its_range_is_refused(name: str, value: object) -> None:
    """The error is a `ConfigError` that names the field."""
    with pytest.raises(ConfigError, match=name):
        ExecutionOverride(**{name: value})


@pytest.mark.parametrize("name", ["temperature", "seed", "max_tokens"])
def test_a_number_beyond_all_measure_is_refused(name: str) -> None:
    """So large an integer has no text; the error tells its size instead."""
    with pytest.raises(ConfigError, match=f"{name} must be .* not an integer of 16610 bits"):
        ExecutionOverride(**{name: 10**5000})  # type: ignore[arg-type]  # one of three numbers


@pytest.mark.parametrize(
    ("retry", "message"),
    [
        (3, "retry must be a mapping, not an integer"),
        ({"budgets": 3}, "retry has no field 'budgets'; known are budget, base_delay_s"),
        ({1: 2, "x": 3}, "retry has no field 1"),
        ({"budget": -1}, "budget must be an integer at least 0 and at most 100 or None, not -1"),
        ({"budget": 101}, "not 101"),
        ({"budget": 1.5}, "budget must be an integer"),
        ({"base_delay_s": "1"}, "base_delay_s must be a number .* not a string"),
    ],
)
def test_a_retry_policy_is_checked(retry: Any, message: str) -> None:
    """The error names the field and what would be right."""
    with pytest.raises(ConfigError, match=message):
        ExecutionOverride(retry=retry)


@pytest.mark.parametrize(
    ("name", "value"),
    [("top_p", 0), ("top_p", 1), ("max_tokens", 1), ("timeout_s", 86400), ("timeout_s", 0.001), ("temperature", 5)],
)
def test_the_bounds_are_inside(name: str, value: float) -> None:
    """The ends of a range are allowed."""
    override: Any = ExecutionOverride(**{name: value})
    assert getattr(override, name) == value


@pytest.mark.parametrize(
    ("given", "kept"), [(None, None), ("x", ("x",)), (["x", "y"], ("x", "y")), ((), ()), ([], ()), ("", ("",))]
)
def test_stop_is_a_tuple_of_strings(given: Any, kept: object) -> None:
    """One string is a list of one; empty is not absent."""
    assert ExecutionOverride(stop=given).stop == kept


def test_later_values_win_and_absent_ones_do_not() -> None:
    """0 replaces a value, None does not."""
    merged = ExecutionOverride(temperature=0.5, model="a", seed=7).merged_with(
        ExecutionOverride(temperature=0, model="b")
    )
    assert merged == ExecutionOverride(temperature=0, model="b", seed=7)


def test_empty_values_win_too() -> None:
    """An empty list of stops is a value."""
    assert ExecutionOverride(stop=["x"]).merged_with(ExecutionOverride(stop=[])).stop == ()


def test_mappings_are_merged_key_by_key() -> None:
    """Headers and extra body keep the keys that the later layer does not name."""
    first = ExecutionOverride(headers={"A": "1", "B": "1"}, extra_body={"a": {"x": 1}, "b": 1})
    later = ExecutionOverride(headers={"B": "2"}, extra_body={"a": {"y": 2}})
    merged = first.merged_with(later)
    assert merged.headers == {"A": "1", "B": "2"}
    assert merged.extra_body == {"a": {"y": 2}, "b": 1}
    assert first.headers == {"A": "1", "B": "1"}


def test_retry_numbers_are_merged_one_by_one() -> None:
    """A layer may change the budget and leave the delays."""
    first = ExecutionOverride(retry={"budget": 5, "base_delay_s": 0.1})
    merged = first.merged_with(ExecutionOverride(retry=RetryPolicy(budget=0)))
    assert merged.retry == RetryPolicy(budget=0, base_delay_s=0.1)
    assert ExecutionOverride().merged_with(first).retry == first.retry


def test_merging_nothing_changes_nothing() -> None:
    """The empty override is neutral on both sides."""
    values = ExecutionOverride(temperature=0, headers={"A": "1"})
    assert values.merged_with(ExecutionOverride()) is values
    assert ExecutionOverride().merged_with(values) == values


# ------------------------------------------------------------------------------------------------ requests


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt": ""}, "RunRequest.prompt must be a string that is not blank"),
        ({"prompt": None}, "RunRequest.prompt must be .* not null"),
        ({"prompt": "a", "profile": " "}, "RunRequest.profile"),
        ({"prompt": "a", "profile": 1}, "RunRequest.profile .* not an integer"),
        ({"prompt": "a", "session_id": ""}, "RunRequest.session_id"),
        ({"prompt": "a", "inputs": ["x"]}, "RunRequest.inputs must be a mapping of names to values, not a list"),
        ({"prompt": "a", "inputs": None}, "RunRequest.inputs .* not null"),
        ({"prompt": "a", "override": {"temperature": 0}}, "RunRequest.override must be an ExecutionOverride"),
        ({"prompt": "a", "override": None}, "RunRequest.override must be an ExecutionOverride, not null"),
    ],
)
def test_a_request_is_checked_when_it_is_made(arguments: dict[str, Any], message: str) -> None:
    """The error names the field and what kind of thing was given."""
    with pytest.raises(InvalidRequestError, match=message):
        RunRequest(**arguments)


def test_a_request_does_not_change_with_its_inputs() -> None:
    """Inputs are copied when the request is made."""
    inputs: dict[str, Any] = {"rows": [1]}
    request = RunRequest("a", inputs)
    inputs["rows"].append(2)
    inputs["more"] = 1
    assert request.inputs == {"rows": [1]}
    assert type(request.inputs) is FrozenDict
    assert type(request.inputs["rows"]) is FrozenList


def test_inputs_that_contain_themselves_are_refused() -> None:
    """A cycle is an error of the request, not a RecursionError."""
    cycle: dict[str, Any] = {}
    cycle["again"] = cycle
    with pytest.raises(InvalidRequestError, match="input 'again' is nested too deeply, or contains itself"):
        RunRequest("a", cycle)


@pytest.mark.parametrize(
    ("images", "given"),
    [(5, "an integer"), ("x.png", "a string"), (["x.png"], "a string"), ([Artifact(data=b"x")], "an Artifact")],
)
def test_a_message_takes_nothing_but_image_records(images: Any, given: str) -> None:
    """Whatever else a caller may take for an image is refused where it is given, with the way to give one."""
    with pytest.raises(InvalidRequestError, match=f"images must be .*, not {given}"):
        Message("user", "x", images=images)


@pytest.mark.parametrize(("messages", "given"), [(5, "an integer"), ("abc", "a string"), ([{}], "a mapping")])
def test_a_generate_request_takes_nothing_but_messages(messages: Any, given: str) -> None:
    """A record that a client would stumble over cannot be made."""
    with pytest.raises(ConfigError, match=f"messages must be .*, not {given}"):
        GenerateRequest(messages=messages, endpoint="http://127.0.0.1:1/v1")


# --------------------------------------------------------------------------------- the hash of a rendering

SAME = [
    {"endpoint": "http://127.0.0.1:2/v1"},
    {"credential": None},
    {"timeout_s": 1.0},
    {"headers": FrozenDict(X="y")},
    {"proxy": "none"},
    {"session_id": "s"},
    {"output_schema_name": "other"},
]
OTHER = [
    {"messages": (Message("system", "Hello"),)},
    {"messages": (Message("user", "Hello "),)},
    {"messages": (Message("user", "Hello", images=[IMAGE]),)},
    {"messages": (Message("user", "Hello"), Message("user", ""))},
    {"model": "m"},
    {"temperature": 0},
    {"temperature": 0.5},
    {"seed": 0},
    {"stop": ()},
    {"extra_body": FrozenDict(a=1)},
    {"output_format": "json"},
    {"output_format": "json_schema", "output_schema_hash": "sha256:aa"},
    {"output_format": "json_schema", "output_schema_hash": "sha256:bb"},
    {"output_format": "json_schema", "output_schema_hash": "sha256:bb", "is_strict": True},
    {"output_format": "json", "structured_output": "prompt"},
]


@pytest.mark.parametrize("changes", SAME, ids=",".join)
def test_where_a_request_goes_is_not_in_its_hash(changes: dict[str, Any]) -> None:
    """Address, credential and time limits do not change what is said."""
    assert attrs.evolve(REQUEST, **changes).rendered_hash() == REQUEST.rendered_hash()


def test_what_a_request_says_is_in_its_hash() -> None:
    """Messages, images, model, numbers and contract each change it; no two of these are alike."""
    hashes = [attrs.evolve(REQUEST, **changes).rendered_hash() for changes in OTHER]
    assert len({REQUEST.rendered_hash(), *hashes}) == len(OTHER) + 1


@pytest.mark.parametrize(
    "changes", [{"prompt_tokens": -1}, {"total_tokens": 1.0}, {"cost": float("nan")}, {"cost": "1"}]
)
def test_usage_takes_numbers_only(changes: dict[str, Any]) -> None:
    """A client of the application's own cannot bring a number into a result that JSON has no form for."""
    with pytest.raises(ConfigError, match=next(iter(changes))):
        Usage(**changes)


def test_images_are_compared_by_their_hash() -> None:
    """One that was read back without its bytes equals the one it was made of."""
    sha256 = "sha256:" + "0" * 64
    assert Image("image/png", None, sha256) == Image("image/png", b"x", sha256)
    assert Image("image/png", None, sha256) != Image("image/jpeg", None, sha256)
