from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import math
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit import _inputs
from promptkit._canonical import sha256_of, sha256_of_bytes
from promptkit._definitions import InputSpec, Place
from promptkit._fields import FrozenDict, FrozenList
from promptkit._inputs import CheckedInputs, check_inputs
from promptkit._loading._artifacts import ArtifactReader
from promptkit._types import Artifact, Image, Issue, Message
from promptkit.errors import ArtifactError, InputError, InvalidRequestError
from support.prompts import FixedIssues, NoSchemas

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
GIF = b"GIF89a" + b"\0" * 16
PLANTED = "planted-value"


def spec(name: str = "x", kind: Any = "string", **changes: Any) -> InputSpec:
    """Return a declaration, of a required input unless it says otherwise."""
    return InputSpec(name=name, type=kind, **{"is_required": not changes.get("has_default"), **changes})


def check(given: Mapping[Any, Any], *specs: InputSpec, root: Path | None = None, schemas: Any = None) -> CheckedInputs:
    """Check inputs against declarations."""
    return check_inputs(
        {one.name: one for one in specs},
        given,
        prompt="a/b",
        reader=ArtifactReader(root),
        schemas=schemas or NoSchemas(),
        path="prompts/a/b.yaml",
    )


def refusal(given: Mapping[Any, Any], *specs: InputSpec, **options: Any) -> str:
    """Return the text of the `InputError` that inputs get; it must name the prompt, and no planted value."""
    with pytest.raises(InputError) as caught:
        check(given, *specs, **options)
    text = str(caught.value)
    assert text.startswith("prompt 'a/b'")
    assert PLANTED not in text
    assert caught.value.name is None or caught.value.name in text
    return text


# ------------------------------------------------------------------------------------- which inputs are given


def test_an_unknown_name_offers_the_nearest_and_lists_what_is_declared() -> None:
    """All unknown names are told, the hint is for the first."""
    text = refusal({"langauge": PLANTED, "y": 1}, spec("language"), spec("text"))
    assert text == (
        "prompt 'a/b' does not declare the inputs 'langauge', 'y'; did you mean 'language'? (declared: language, text)"
    )


def test_an_unknown_name_for_a_prompt_without_inputs() -> None:
    """Says that there are none."""
    assert refusal({"x": 1}) == "prompt 'a/b' does not declare the input 'x' (declared: none)"


def test_names_are_strings() -> None:
    """Another kind of key is told by its kind."""
    assert refusal({7: 1}, spec()) == "prompt 'a/b': names of inputs are strings, not an integer"


def test_missing_inputs_are_told_together() -> None:
    """Each by name."""
    text = refusal({"c": "1"}, spec("a"), spec("b"), spec("c"))
    assert text == "prompt 'a/b' needs the inputs 'a', 'b', which were not given"
    assert refusal({}, spec("a")) == "prompt 'a/b' needs the input 'a', which was not given"


def test_defaults_are_filled_in_and_absent_inputs_are_absent() -> None:
    """An optional input without a default is not there at all."""
    checked = check({}, spec("a", has_default=True, default="d"), spec("b", is_required=False))
    assert checked.values == {"a": "d"}
    assert checked.hashable == {"a": "d"}


def test_a_default_in_effect_gives_the_same_hash_as_its_value() -> None:
    """The hash is of the inputs in effect."""
    one = spec("a", has_default=True, default="d")
    assert sha256_of(check({}, one).hashable) == sha256_of(check({"a": "d"}, one).hashable)


@pytest.mark.parametrize("kind", ["string", "integer", "array", "object", "file", "image", "messages"])
def test_null_is_refused_for_every_type(kind: str) -> None:
    """What to do instead is said where the input is optional."""
    assert refusal({"x": None}, spec(kind=kind)).startswith("prompt 'a/b': input 'x' is null, and must be ")
    optional = refusal({"x": None}, spec(kind=kind, is_required=False))
    assert optional.endswith("; leave it out instead, it is optional")


# ------------------------------------------------------------------------------------------------------ types

RIGHT: dict[str, list[Any]] = {
    "string": ["", "a"],
    "integer": [0, -1, 10**300],
    "number": [0, 1.5, -0.0, 10**300],
    "boolean": [True, False],
    "array": [[], [1, "a", None, [True]], (1, 2)],
    "object": [{}, {"a": {"b": [1]}}, MappingProxyType({"a": 1})],
}


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in RIGHT.items() for value in values])
def test_values_of_the_declared_type_are_taken(kind: str, value: Any) -> None:
    """As they are; tuples become lists and mappings plain ones."""
    taken = check({"x": value}, spec(kind=kind)).values["x"]
    plain = list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
    assert taken == plain
    assert type(taken) in {str, int, float, bool, FrozenList, FrozenDict}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (kind, value)
        for kind in RIGHT
        for other, values in RIGHT.items()
        for value in values
        if other != kind and (kind, other) != ("number", "integer") and not (kind == "integer" and type(value) is int)
    ],
)
def test_values_of_another_type_are_refused(kind: str, value: Any) -> None:
    """Nothing is converted: 1.0 is no integer, true is no number, "1" is neither."""
    assert refusal({"x": value}, spec(kind=kind)).startswith("prompt 'a/b': input 'x' must be ")


def test_a_number_with_an_integral_value_is_no_integer() -> None:
    """The error says that nothing is rounded."""
    assert refusal({"x": 3.0}, spec(kind="integer")).endswith(
        "must be an integer, not a number; numbers are not rounded, pass an int"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    """At the top and inside."""
    assert "must be a finite number" in refusal({"x": value}, spec(kind="number"))
    assert "input 'x' at '/a/0' is not a finite number" in refusal({"x": {"a": [value]}}, spec(kind="object"))


class Colour(enum.Enum):
    """No JSON value."""

    RED = 1


class Word(str):
    """A str that prints as something else."""

    __slots__ = ()

    def __str__(self) -> str:
        return "other"


class Level(enum.IntEnum):
    """An int with a name."""

    LOW = 1


class Ratio(float):
    """A float of a subclass."""

    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        b"bytes",
        {1, 2},
        frozenset(),
        dt.date(2026, 1, 1),
        decimal.Decimal(1),
        fractions.Fraction(1, 2),
        1j,
        object(),
        len,
        Colour.RED,
        PurePosixPath("a"),
        range(3),
        iter(()),
        Artifact("a"),
        Message("user", "a"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_json_like_values_are_taken(value: object) -> None:
    """The error has the input's name, the pointer and the kind."""
    text = refusal({"x": {"a~b": [0, {"c/d": value}]}}, spec(kind="object"))
    assert "input 'x' at '/a~0b/1/c~1d' is " in text
    assert "inputs are JSON-like values only" in text


@dataclasses.dataclass
class Point:
    """Data, and yet no JSON value."""

    x: int = 1


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        (dt.date(2026, 1, 1), "its isoformat()"),
        (Point(), "dataclasses.asdict() of it"),
        (Point, "dataclasses"),
        (1j, ""),
    ],
)
def test_what_to_pass_instead_is_said_where_it_is_known(value: object, cure: str) -> None:
    """For dates, data classes and their like; a class is told from its instances."""
    text = refusal({"x": [value]}, spec(kind="array"))
    assert text.endswith(f"of them; pass {cure}" if cure and value is not Point else "of them")


def test_subclasses_of_plain_types_become_plain() -> None:
    """So that no method of theirs runs in a template."""
    taken = check({"x": [Word("a"), Level.LOW, Ratio(0.5)]}, spec(kind="array")).values["x"]
    assert taken == ["a", 1, 0.5]
    assert [type(item) for item in taken] == [str, int, float]


def test_keys_are_strings() -> None:
    """A mapping with another kind of key is refused by the place of the mapping."""
    assert "input 'x' at '/a' has a key that is an integer; keys are strings" in refusal(
        {"x": {"a": {1: PLANTED}}}, spec(kind="object")
    )


def test_an_integer_too_long_to_print_is_refused() -> None:
    """Python itself refuses to print it."""
    assert "more than 1200 digits" in refusal({"x": 10**5000}, spec(kind="integer"))


def test_text_that_is_no_text_is_refused_anywhere() -> None:
    """Strings, keys, turns, files: with the character's position."""
    assert "input 'x' has a NUL (U+0000) at position 2, which is no text" in refusal({"x": "ab\0"}, spec())
    assert "input 'x' at '/0' has a lone surrogate (U+D800) at position 1" in refusal(
        {"x": ["é\ud800"]}, spec(kind="array")
    )
    turns = [{"role": "user", "content": "a"}, {"role": "user", "content": "\udfff"}]
    assert "input 'x' at '/1' has a lone surrogate (U+DFFF) at position 0" in refusal(
        {"x": turns}, spec(kind="messages")
    )


@given(st.text(max_size=30))
def test_any_text_that_can_be_encoded_is_taken_unchanged(text: str) -> None:
    """Astral characters, controls other than NUL, and all."""
    if "\0" in text:
        text = text.replace("\0", "")
    assert check({"x": text}, spec()).values["x"] == text


# ----------------------------------------------------------------------------------------------------- bounds


def nested(levels: int, wrap: Callable[[Any], Any]) -> Any:
    """Return a value of so many levels."""
    value: Any = "end"
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize(("kind", "wrap"), [("array", lambda v: [v]), ("object", lambda v: {"k": v})])
def test_depth_is_bounded(kind: str, wrap: Callable[[Any], Any]) -> None:
    """At 64 levels; far deeper ones are refused all the same."""
    one = spec(kind=kind)
    assert check({"x": nested(64, wrap)}, one).values
    assert "nested deeper than 64 levels, or contains itself" in refusal({"x": nested(65, wrap)}, one)
    assert "nested deeper" in refusal({"x": nested(100_000, wrap)}, one)


def test_values_that_contain_themselves_are_refused() -> None:
    """Lists, mappings, and both in turn, also when each level branches."""
    loop: list[Any] = []
    loop += [loop, loop]
    assert "contains itself" in refusal({"x": loop}, spec(kind="array"))
    ring: dict[str, Any] = {}
    ring["a"] = [ring]
    assert "contains itself" in refusal({"x": ring}, spec(kind="object"))


def test_a_long_pointer_is_shortened() -> None:
    """So that a key cannot flood the log."""
    text = refusal({"x": {"k" * 5000: object()}}, spec(kind="object"))
    assert len(text) < 500


def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items and characters of all inputs together, shared parts counted each time."""
    monkeypatch.setattr(_inputs, "MAX_ITEMS", 10)
    monkeypatch.setattr(_inputs, "MAX_CHARS", 10)
    two = (spec("x", "array"), spec("y", "array"))
    assert check({"x": [1] * 5, "y": [1] * 5}, *two).values
    assert "input 'y' is too large: the inputs of a run hold at most 10 items" in refusal(
        {"x": [1] * 5, "y": [1] * 6}, *two
    )
    shared = [1, 2]
    assert "too large" in refusal({"x": [shared, shared, shared, shared]}, spec(kind="array"))
    turns = [{"role": "user", "content": "a"}] * 11
    assert "too large" in refusal({"x": turns}, spec(kind="messages"))
    assert check({"x": "a" * 10}, spec()).values
    assert "input 'x' is too long: the inputs of a run hold at most 10 characters" in refusal({"x": "a" * 11}, spec())
    assert "too long" in refusal({"x": {"abcdef": "ghijk"}}, spec(kind="object"))


def test_a_large_list_is_refused_with_the_real_bound() -> None:
    """A hundred thousand items."""
    assert "at most 100000 items" in refusal({"x": [0] * 100_001}, spec(kind="array"))


# ------------------------------------------------------------------------------ what the declaration adds


def test_choices_are_compared_by_value() -> None:
    """The error lists them and not what was given."""
    one = spec(choices=("en", "de"))
    assert check({"x": "en"}, one).values["x"] == "en"
    assert refusal({"x": PLANTED}, one).endswith("is not one of its choices ('en', 'de')")
    assert refusal({"x": 99}, spec(kind="integer", choices=tuple(range(30)))).endswith("18, 19, …)")


def test_max_chars_counts_characters() -> None:
    """Not bytes; the bound itself is allowed."""
    assert check({"x": "éé"}, spec(max_chars=2)).values["x"] == "éé"
    assert refusal({"x": "abc"}, spec(max_chars=2)).endswith("has 3 characters, and max_chars is 2")


def test_max_chars_holds_for_the_text_of_a_file() -> None:
    """Bytes are bounded by max_bytes, characters by max_chars."""
    assert check({"x": "éé".encode()}, spec(kind="file", max_chars=2)).values["x"] == "éé"
    assert "has 3 characters" in refusal({"x": b"abc"}, spec(kind="file", max_chars=2))


def test_a_schema_sees_the_checked_value() -> None:
    """It is loaded by the place of its declaration."""
    schemas = FixedIssues()
    positions = FrozenDict({"/items": Place(4, 9)})
    one = spec(kind="array", schema={"items": {}}, schema_place=Place(3, 5), schema_positions=positions)
    check({"x": (1, 2)}, one, schemas=schemas)
    assert schemas.seen == [[1, 2]]
    assert schemas.loaded == [
        ({"items": {}}, {"path": "prompts/a/b.yaml", "place": Place(3, 5), "positions": positions})
    ]


def test_schema_issues_are_told_without_the_value() -> None:
    """By pointer, keyword and what is expected; an issue's own message may quote the value."""
    schemas = FixedIssues(
        Issue("/a", "pattern", f"{PLANTED} does not match", "a match of ^a"), Issue("", "required", f"no {PLANTED}")
    )
    text = refusal({"x": {"a": PLANTED}}, spec(kind="object", schema="s.json"), schemas=schemas)
    assert text == (
        "prompt 'a/b': input 'x' does not fit its schema: '/a' breaks 'pattern' (expected a match of ^a); "
        "the value breaks 'required'"
    )


def test_a_default_is_checked_like_a_given_value() -> None:
    """Also against the schema."""
    one = spec(has_default=True, default="d", schema="s.json")
    assert "does not fit its schema" in refusal({}, one, schemas=FixedIssues(Issue("", "pattern", "m")))


# -------------------------------------------------------------------------------------------- files and images


@pytest.mark.parametrize(
    "file",
    [b"caf\xc3\xa9", bytearray(b"caf\xc3\xa9"), Artifact(data=b"\xef\xbb\xbfcaf\xc3\xa9"), Artifact("a.txt")],
    ids=repr,
)
def test_a_file_is_its_text(tmp_path: Path, file: Any) -> None:
    """From bytes or by path, a byte order mark dropped; the hash is of the bytes."""
    (tmp_path / "a.txt").write_bytes(b"caf\xc3\xa9")
    checked = check({"x": file}, spec(kind="file"), root=tmp_path)
    assert checked.values["x"] == "café"
    data = file.data or b"caf\xc3\xa9" if isinstance(file, Artifact) else bytes(file)
    assert checked.hashable == {"x": {"artifact": sha256_of_bytes(data)}}


@pytest.mark.parametrize("data", [b"\xff\xfeh\0i\0", b"caf\xe9", b"a\0b", PNG])
def test_a_file_that_is_no_text_is_refused(data: bytes) -> None:
    """The error is the reader's and names the input."""
    with pytest.raises(ArtifactError, match="'x'"):
        check({"x": data}, spec(kind="file"))


@pytest.mark.parametrize("kind", ["file", "image"])
@pytest.mark.parametrize("value", ["report.pdf", 7, {"path": "a"}, Path("a")], ids=lambda value: type(value).__name__)
def test_a_path_is_not_taken_for_a_file(kind: str, value: object) -> None:
    """A string could come from anybody; the error says how to pass a file."""
    text = refusal({"x": value}, spec(kind=kind))
    assert "pass Artifact('path') or the file's bytes" in text
    assert "report" not in text


def test_max_bytes_is_passed_to_the_reader() -> None:
    """Which refuses what is larger."""
    with pytest.raises(ArtifactError, match="more than the limit of 3"):
        check({"x": b"abcd"}, spec(kind="file", max_bytes=3))


def test_an_image_is_given_to_messages_and_described_to_templates() -> None:
    """Templates see its name and media type, never its bytes."""
    checked = check({"x": Artifact(data=PNG, name="scan.png")}, spec(kind="image"))
    assert checked.images == {"x": (Image("image/png", PNG, sha256_of_bytes(PNG)),)}
    assert checked.values == {"x": [{"name": "scan.png", "media_type": "image/png"}]}
    assert checked.hashable == {"x": [{"artifact": sha256_of_bytes(PNG)}]}


def test_a_list_of_images_is_several() -> None:
    """In their order."""
    checked = check({"x": [PNG, Artifact(data=GIF)]}, spec(kind="image"))
    assert [image.media_type for image in checked.images["x"]] == ["image/png", "image/gif"]


def test_what_is_no_image_is_refused() -> None:
    """By content; one wrong item of a list is told by its place."""
    with pytest.raises(ArtifactError, match="'x'"):
        check({"x": [PNG, b"just text"]}, spec(kind="image"))
    assert "input 'x' at '/1' must be an image" in refusal({"x": [PNG, "b.png"]}, spec(kind="image"))


def test_an_empty_list_of_images() -> None:
    """Is fine for an optional input only."""
    assert check({"x": []}, spec(kind="image", is_required=False)).images == {"x": ()}
    assert "needs at least one image" in refusal({"x": []}, spec(kind="image"))


# ---------------------------------------------------------------------------------------------------- history


def test_a_history_takes_mappings_and_messages() -> None:
    """Both become messages, in order."""
    image = Image("image/png", PNG, sha256_of_bytes(PNG))
    turns = [{"role": "user", "content": "{{ a }}"}, Message("assistant", ""), Message("user", "see", images=[image])]
    checked = check({"x": turns}, spec(kind="messages"))
    assert checked.histories == {
        "x": (Message("user", "{{ a }}"), Message("assistant", ""), Message("user", "see", images=[image]))
    }
    assert checked.values["x"][0] == {"role": "user", "content": "{{ a }}"}
    assert checked.hashable["x"][2] == {"role": "user", "content": "see", "images": [image.sha256]}


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        ({"role": "system", "content": PLANTED}, "has the role 'system'; earlier turns are of the roles user and"),
        (Message("system", PLANTED), "has the role 'system'"),
        ({"role": PLANTED, "content": "a"}, "has another role; earlier turns"),
        ({"role": ["user"], "content": "a"}, "has another role"),
        ({"role": "user"}, "lacks role or content"),
        ({"content": "a"}, "lacks role or content"),
        ({"role": "user", "content": None}, "has a content that is null; it must be a string"),
        ({"role": "user", "content": [{"type": "text"}]}, "has a content that is a list"),
        ({"role": "user", "content": "a", "name": "b"}, "has the key 'name'; a turn is a mapping of role and content"),
        ({"role": "user", "content": "a", 7: "b"}, "has the key 7"),
        ("user: hi", "is a string; a turn is"),
        (None, "is null; a turn is"),
    ],
)
def test_turns_that_are_none_are_refused(turn: object, told: str) -> None:
    """With the number of the turn."""
    text = refusal({"x": [{"role": "user", "content": "a"}, turn]}, spec(kind="messages"))
    assert "input 'x' at '/1' " + told in text


def test_a_history_is_a_list() -> None:
    """One turn alone is not enough."""
    assert "must be a list of turns, not a mapping" in refusal(
        {"x": {"role": "user", "content": "a"}}, spec(kind="messages")
    )


# -------------------------------------------------------------------------------------------------- as a whole


def test_the_caller_keeps_its_objects() -> None:
    """What is taken is a copy, all the way down, and cannot be changed."""
    data = {"a": [1]}
    checked = check({"x": data}, spec(kind="object"))
    data["a"].append(2)
    assert checked.values["x"] == {"a": [1]}
    with pytest.raises(TypeError):
        checked.values["x"]["a"].append(3)


def test_values_are_not_shown() -> None:
    """In a repr neither."""
    assert PLANTED not in repr(check({"x": PLANTED}, spec()))


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.characters()
    | st.binary(max_size=5)
    | st.dates()
    | st.just(object()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.tuples(inner)
    ),
    max_leaves=12,
)


@given(st.sampled_from([*RIGHT, "file", "image", "messages"]), ANYTHING)
def test_any_value_is_taken_or_refused_with_a_promptkit_error(kind: str, value: Any) -> None:
    """And what is taken has a hash."""
    try:
        checked = check({"x": value}, spec(kind=kind))
    except InvalidRequestError as exc:
        assert "'x'" in str(exc)  # noqa: PT017 - the other outcome is as good
    else:
        assert sha256_of(checked.hashable).startswith("sha256:")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_has_not_is_refused_for_what_it_is(value: float) -> None:
    """NaN is of the right type, and still no number that can be sent."""
    text = refusal({"x": value}, spec(kind="number"))
    kind = "NaN" if math.isnan(value) else "an infinite number"
    assert text.endswith(f"must be a finite number, not {kind}; NaN and infinities are no numbers of JSON")
