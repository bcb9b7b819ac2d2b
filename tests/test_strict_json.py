from __future__ import annotations

import copy
import json
import math
import pickle
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._fields import FrozenDict, FrozenList
from promptkit._strict_json import MAX_CHARS, MAX_DEPTH, MAX_ISSUES, NotJsonError, UnsafeJsonError, parse_json

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON_VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5), max_leaves=30
)


def flaws(text: str) -> list[tuple[str, str]]:
    """Return pointer and message of everything that makes ``text`` unsafe."""
    with pytest.raises(UnsafeJsonError) as caught:
        parse_json(text)
    return [(issue.pointer, issue.message) for issue in caught.value.issues]


def is_frozen(value: object) -> bool:
    """True when no list or dict in ``value`` can be changed."""
    if isinstance(value, dict):
        return type(value) is FrozenDict and all(map(is_frozen, value.values()))
    if isinstance(value, list):
        return type(value) is FrozenList and all(map(is_frozen, value))
    return True


@given(value=JSON_VALUES, indent=st.none() | st.integers(0, 3), is_ascii=st.booleans())
def test_a_value_comes_back_as_it_was_written_and_frozen(value: object, indent: int | None, *, is_ascii: bool) -> None:
    """Whatever ``json.dumps`` writes is read back equal, of the same types, and immutable all the way down."""
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    parsed = parse_json(text)
    assert parsed == value
    assert json.dumps(parsed, indent=indent, ensure_ascii=is_ascii) == text
    assert is_frozen(parsed)


@given(st.text(alphabet='{}[]",:0123456789eE+-. \\ud8c3Nafnltrus\n\u20ac', max_size=30))
def test_nothing_is_accepted_that_the_standard_library_refuses_and_nothing_else_escapes(text: str) -> None:
    """For any text, the value is the one of ``json.loads``, or it is one of the two errors."""
    try:
        outcome: object = parse_json(text)
    except (NotJsonError, UnsafeJsonError) as error:
        outcome = error
    if isinstance(outcome, NotJsonError):
        assert 0 <= outcome.position <= len(text)
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)
    elif isinstance(outcome, UnsafeJsonError):
        json.loads(text)
        assert outcome.issues
    else:
        assert outcome == json.loads(text)


def test_data_survives_pickle_and_copies() -> None:
    """Parsed data can be pickled and deeply copied, and stays immutable."""
    value = parse_json('{"a": [[1, {"b": []}]]}')
    for twin in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):
        assert twin == {"a": [[1, {"b": []}]]}
        assert is_frozen(twin)


@pytest.mark.parametrize(
    ("text", "reason", "position"),
    [
        ("", "expecting value", 0),
        ("  ", "expecting value", 2),
        ("hello", "expecting value", 0),
        ('{"n": 1,}', "a comma before '}'", 8),
        ('{"n": 1 , \n }', "a comma before '}'", 12),
        ("[1,]", "a comma before ']'", 3),
        ("[1,,2]", "expecting value", 3),
        ("[,]", "a comma before ']'", 2),
        ('{"n": 1 "m": 2}', "expecting ',' delimiter", 8),
        ('{"n" 1}', "expecting ':' delimiter", 5),
        ("{n: 1}", "expecting property name enclosed in double quotes", 1),
        ("{'n': 1}", "expecting property name enclosed in double quotes", 1),
        ('{"n": 1', "expecting ',' delimiter", 7),
        ('{"n": ', "expecting value", 5),
        ('"abc', "unterminated string starting", 0),
        ('"a\nb"', "invalid control character", 2),
        ('"\\x"', "invalid \\escape", 1),
        ('"\\u12"', "invalid \\uXXXX escape", 2),
        ("01", "text after the JSON value", 1),
        (' \n[1]  {"a":2}', "text after the JSON value", 7),
        ("[True]", "expecting value", 1),
        ("[1.]", "expecting ',' delimiter", 2),
        ("[undefined]", "expecting value", 1),
        ("\ufeff[1]", "expecting value", 0),
    ],
)
def test_what_is_not_json_is_told_with_its_place_on_every_python(text: str, reason: str, position: int) -> None:
    """The reason and the position do not depend on the Python version, and white space in front counts."""
    with pytest.raises(NotJsonError) as caught:
        parse_json(text)
    assert (caught.value.reason.removesuffix(":"), caught.value.position) == (reason, position)


def test_j16_a_number_beyond_a_double_is_refused_with_its_place() -> None:
    """1e400 would become infinity; it is named where it stands, with everything else of the kind."""
    found = flaws(
        '{"score": 1e400, "a/b~": [1, -1e999, {"x": NaN}, Infinity, -Infinity], "fine": 1e308, "tiny": 1e-400}'
    )
    assert [pointer for pointer, _ in found] == ["/score", "/a~1b~0/1", "/a~1b~0/2/x", "/a~1b~0/3", "/a~1b~0/4"]
    assert all("not finite" in message for _, message in found)


def test_small_and_large_doubles_are_values() -> None:
    """What a double can hold, or rounds to zero, is read as ``json.loads`` reads it."""
    assert parse_json("[1e308, 1e-400, -0.0, 0.1]") == [1e308, 0.0, -0.0, 0.1]
    assert math.copysign(1, parse_json("-0.0")) == -1


def test_integers_stay_exact() -> None:
    """An integer beyond 64 bits and beyond a double keeps every digit."""
    digits = "9" * 4000
    assert parse_json(f"[{digits}, -9007199254740993]") == [int(digits), -9007199254740993]


@pytest.mark.skipif(not sys.get_int_max_str_digits(), reason="this interpreter converts integers of any length")
def test_an_integer_of_more_digits_than_python_converts_is_an_issue() -> None:
    """It could neither be converted nor ever be written out again."""
    assert flaws('{"n": [' + "7" * 5000 + "]}") == [("/n/0", "an integer of 5,000 digits, more than can be converted")]
    assert "integer of 4,401" in flaws("1" * 4400 + "0")[0][1]


def test_j18_a_repeated_key_is_named() -> None:
    """Keeping the last one would hide a contradiction; each repeated key is named once, with its object's place."""
    assert flaws('{"n": 1, "n": 2}') == [("", "duplicate key 'n'")]
    assert flaws('[{"a": {"x": 1, "y": 2, "x": 3, "x": 4, "y": 5}}]') == [
        ("/0/a", "duplicate key 'x'"),
        ("/0/a", "duplicate key 'y'"),
    ]
    assert flaws('{"n": 1, "\\u006e": 2}') == [("", "duplicate key 'n'")]


@pytest.mark.parametrize(
    "text",
    [
        r'{"n":1,"s":"\ud83d oops"}',
        r'{"n":1,"s":"\ud83d"}',
        r'{"n":1,"s":"\ude00\ud83d"}',
        r'{"n":1,"s":"\uD83D\u0041"}',
        '{"n":1,"s":"\udcff"}',
    ],
)
def test_j21_half_a_surrogate_pair_is_refused_with_its_place(text: str) -> None:
    """Such a string explodes later, when it is encoded, logged or stored."""
    assert flaws(text) == [("/s", "holds a lone surrogate: half a pair of \\u escapes")]


def test_a_whole_surrogate_pair_is_one_character() -> None:
    """A pair of escapes is combined, a backslash before "ud83d" is text, and plain emoji stay."""
    assert parse_json(r'["\ud83d\ude00", "\\ud83d", "\uD83D\uDE00x", "😀"]') == ["😀", "\\ud83d", "😀x", "😀"]


def test_a_key_with_half_a_surrogate_pair_is_refused() -> None:
    """The issue can be encoded although the key cannot."""
    found = flaws(r'{"a": {"\udc00": {"\ud800": 1, "\ud800": 2}}}')
    assert [pointer for pointer, _ in found] == ["/a", "/a/\ufffd", "/a/\ufffd"]
    assert "\n".join(pointer + message for pointer, message in found).encode()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        '{"a":[' * 60 + "1" + "]}" * 60,
        '[{"s": "]]]]}}}}\\"]]"}, ' + "[" * (MAX_DEPTH) + "]" * (MAX_DEPTH) + "]",
        '["' + '\\"' * 1000 + '", ' + "[" * 101 + '"never closed ]]]]',
    ],
)
def test_j31_a_nesting_bomb_is_an_issue(text: str) -> None:
    """No RecursionError, and the same bound whatever the brackets in strings make it look like."""
    assert "nested too deeply" in flaws(text)[0][1]


@pytest.mark.parametrize("bracket", ["[]", "{}"])
def test_the_deepest_allowed_value_is_read(bracket: str) -> None:
    """`MAX_DEPTH` lists or objects inside each other are fine, and so is any number beside each other."""
    opening, closing = ("[", "]") if bracket == "[]" else ('{"a": ', "}")
    deep = opening * (MAX_DEPTH - 1) + bracket + closing * (MAX_DEPTH - 1)
    beside = ", ".join(["[]", "{}", '{"[[{{": "[["}'] * 200)
    assert parse_json(f"[{beside}, {deep[len(opening) : -1]}]")[:3] == [[], {}, {"[[{{": "[["}]
    assert parse_json(deep)


def test_a_caller_with_hardly_any_stack_left_gets_an_issue() -> None:
    """The bound on nesting is not all that recursion depends on; the error is one of ours all the same."""
    outcome: list[object] = []

    def down(levels: int) -> None:
        if levels:
            down(levels - 1)
            return
        try:
            parse_json("[" * 90 + "]" * 90)
        except UnsafeJsonError as error:
            outcome.append(error.issues[0].keyword)

    thread = threading.Thread(target=down, args=(sys.getrecursionlimit() - 60,))  # a thread starts with no frames
    thread.start()
    thread.join()
    assert outcome == ["json"]


def test_an_endless_text_is_an_issue() -> None:
    """The length is bounded before anything is parsed."""
    assert flaws('"' + "x" * MAX_CHARS + '"') == [("", "longer than 16,777,216 characters")]


def test_the_number_of_flaws_listed_is_bounded() -> None:
    """A thousand NaN give as many issues as a reader can use."""
    assert len(flaws("[" + ", ".join(["NaN"] * 1000) + "]")) == MAX_ISSUES
    assert len(flaws("{" + ", ".join(f'"{n}": 1, "{n}": 2' for n in range(1000)) + "}")) == MAX_ISSUES
