"""The shared converters and validators, and the two containers that cannot be changed."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from types import MappingProxyType

import pytest

from promptkit._fields import (
    MAX_DEPTH,
    FrozenDict,
    FrozenList,
    Secret,
    describe,
    freeze,
    freeze_headers,
    freeze_json,
    is_integer,
    is_number,
    merge_headers,
    nearest,
    thaw,
)
from promptkit.errors import ConfigError

HALF = "\ud83d"
"""Half of a surrogate pair: a Python string that no encoding of Unicode takes."""


# ---------------------------------------------------------------------------------------------- containers

DICT_CHANGES: dict[str, Callable[[FrozenDict[str, int]], object]] = {
    "set": lambda d: d.__setitem__("a", 2),
    "delete": lambda d: d.__delitem__("a"),
    "clear": lambda d: d.clear(),
    "pop": lambda d: d.pop("a"),
    "popitem": lambda d: d.popitem(),
    "setdefault": lambda d: d.setdefault("b", 2),
    "update": lambda d: d.update(b=2),
    "or": lambda d: d.__ior__({"b": 2}),
}
LIST_CHANGES: dict[str, Callable[[FrozenList[int]], object]] = {
    "set": lambda x: x.__setitem__(0, 2),
    "delete": lambda x: x.__delitem__(0),
    "append": lambda x: x.append(3),
    "clear": lambda x: x.clear(),
    "extend": lambda x: x.extend([3]),
    "insert": lambda x: x.insert(0, 3),
    "pop": lambda x: x.pop(),
    "remove": lambda x: x.remove(1),
    "reverse": lambda x: x.reverse(),
    "sort": lambda x: x.sort(),
    "add": lambda x: x.__iadd__([3]),
    "multiply": lambda x: x.__imul__(2),
}


@pytest.mark.parametrize("change", DICT_CHANGES.values(), ids=DICT_CHANGES)
def test_a_frozen_dict_refuses_every_change(change: Callable[[FrozenDict[str, int]], object]) -> None:
    """No method of dict changes it, and the error says what to do instead."""
    frozen = FrozenDict(a=1)
    with pytest.raises(TypeError, match=r"FrozenDict cannot be changed; copy it with dict\(\.\.\.\)"):
        change(frozen)
    assert frozen == {"a": 1}


@pytest.mark.parametrize("change", LIST_CHANGES.values(), ids=LIST_CHANGES)
def test_a_frozen_list_refuses_every_change(change: Callable[[FrozenList[int]], object]) -> None:
    """No method of list changes it."""
    frozen = FrozenList([2, 1])
    with pytest.raises(TypeError, match="FrozenList cannot be changed"):
        change(frozen)
    assert frozen == [2, 1]


def test_every_method_that_changes_a_container_is_overridden() -> None:
    """Whatever dict and list have beyond their read-only cousins is refused."""
    read_only = set(dir(MappingProxyType)) | {"__init__", "__new__", "fromkeys", "__getattribute__", "__sizeof__"}
    for name in set(dir(dict)) - read_only - set(dir(object)):
        assert getattr(FrozenDict, name) is not getattr(dict, name), name
    for name in set(dir(list)) - set(dir(tuple)) - {"copy", "__reversed__"}:
        assert getattr(FrozenList, name) is not getattr(list, name), name


@pytest.mark.parametrize("frozen", [FrozenDict(a=FrozenList([1])), FrozenList([FrozenDict(a=1)])])
def test_frozen_containers_stay_frozen_in_copies_and_pickles(frozen: object) -> None:
    """A copy of what cannot change is the thing itself; a pickle brings back an equal one of the same class."""
    assert copy.copy(frozen) is frozen
    assert copy.deepcopy(frozen) is frozen
    again = pickle.loads(pickle.dumps(frozen))
    assert again == frozen
    assert type(again) is type(frozen)


def test_frozen_containers_are_json() -> None:
    """They serialise as the plain ones do."""
    assert json.dumps(freeze({"a": [1, {"b": ()}]})) == '{"a": [1, {"b": []}]}'


def test_freezing_copies_all_the_way_down() -> None:
    """Later changes of what was given are not seen, and nothing in the copy can be changed."""
    given = {"a": [1, {"b": [2]}], "c": (3,)}
    frozen = freeze(given)
    given["a"][1]["b"].append(9)  # type: ignore[index]  # a list of mixed things
    assert frozen == {"a": [1, {"b": [2]}], "c": [3]}
    assert type(frozen["a"]) is type(frozen["a"][1]["b"]) is type(frozen["c"]) is FrozenList
    assert type(frozen["a"][1]) is FrozenDict


def test_freezing_twice_copies_once() -> None:
    """What is frozen already is taken as it is."""
    frozen = freeze({"a": [1]})
    assert freeze(frozen) is frozen
    assert freeze(frozen["a"]) is frozen["a"]


def test_what_is_no_container_is_left_as_it_is() -> None:
    """An object that stands among JSON values is passed on."""
    thing = object()
    assert freeze([thing])[0] is thing


def test_thawing_gives_plain_containers() -> None:
    """The copy is made of dict and list, and may be changed."""
    frozen = freeze({"a": [1, {"b": 2}]})
    plain = thaw(frozen)
    assert plain == frozen
    assert type(plain) is dict
    assert type(plain["a"]) is list
    assert type(plain["a"][1]) is dict
    plain["a"].append(3)
    assert frozen["a"] == [1, {"b": 2}]


# ------------------------------------------------------------------------------------------ JSON from code


@pytest.mark.parametrize("value", [None, True, 0, -1.5, "ä", [], {}, {"a": [1, {"b": None}]}, ("x", 1), 2**1000])
def test_a_json_value_is_frozen_as_it_is(value: object) -> None:
    """Nothing is changed in it but the containers' class; a tuple is a list."""
    assert freeze_json(value, "x") == (list(value) if isinstance(value, tuple) else value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [{1, 2}]}, r"^body\.a\[0\] must be a JSON value, not a set$"),
        ({"a": b"x"}, r"^body\.a must be a JSON value, not bytes$"),
        ({"a": {1: 2}}, r"^body\.a must have strings for keys, not an integer$"),
        ({HALF: 1}, r"^body must have strings for keys, not a string$"),
        ([float("nan")], r"^body\[0\] must be a finite number, not nan$"),
        ([float("-inf")], r"^body\[0\] must be a finite number, not -inf$"),
        ([2**1024], r"^body\[0\] must be an integer of at most 1024 bits, not of 1025$"),
        ([10**10000], r"^body\[0\] must be an integer of at most 1024 bits"),
        ({"a": f"x{HALF}"}, r"^body\.a has half of a surrogate pair"),
        (object(), r"^body must be a JSON value, not an object$"),
    ],
)
def test_what_is_no_json_is_named_by_its_place(value: object, message: str) -> None:
    """The error says where in the value it stands and what it is."""
    with pytest.raises(ConfigError, match=message):
        freeze_json(value, "body")


def test_json_that_contains_itself_is_refused() -> None:
    """A cycle ends at the depth that is allowed, in a `ConfigError`."""
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(ConfigError, match=f"deeper than {MAX_DEPTH} levels, or contains itself"):
        freeze_json(cycle, "body")


@pytest.mark.parametrize(("levels", "is_fine"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False)])
def test_json_is_as_deep_as_it_may_be(levels: int, *, is_fine: bool) -> None:
    """The bound is on lists and mappings within each other."""
    value: object = 0
    for _ in range(levels):
        value = [value]
    if is_fine:
        assert freeze_json(value, "body") == value
    else:
        with pytest.raises(ConfigError, match="nested deeper"):
            freeze_json(value, "body")


# -------------------------------------------------------------------------------------------------- headers


@pytest.mark.parametrize("value", ["", "x", "a b", "application/json; q=0.5", "~"])
def test_a_header_that_http_carries_is_taken(value: str) -> None:
    """One line of printable ASCII, the empty one too."""
    assert freeze_headers({"X-Title": value}, "headers") == {"X-Title": value}


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ("X: y", "must be a mapping of names to strings, not a string"),
        ({1: "x"}, "must have strings for names, not an integer"),
        ({"": "x"}, "'' is no header name"),
        ({"X Y": "x"}, "'X Y' is no header name"),
        ({"X:": "x"}, "'X:' is no header name"),
        ({"X\r\nY": "x"}, r"'X\\r\\nY' is no header name"),
        ({"Ä": "x"}, "'Ä' is no header name"),
        ({"X": 1}, "the value of X must be a string, not an integer"),
        ({"X": None}, "the value of X must be a string, not null"),
    ],
)
def test_a_header_that_http_does_not_carry_is_refused(headers: object, message: str) -> None:
    """The name is shown, the value never."""
    with pytest.raises(ConfigError, match=f"^Backend.headers:? ?{message}"):
        freeze_headers(headers, "Backend.headers")


@pytest.mark.parametrize("value", ["secret\r\nX: y", "secret\n", " secret", "secret ", "\tsecret", "sécret", "\0"])
def test_a_header_value_is_one_line_and_never_shown(value: str) -> None:
    """Nothing can be smuggled in behind a value, and a key in a header stays out of the error."""
    with pytest.raises(ConfigError, match="the value of Authorization must be one line") as caught:
        freeze_headers({"Authorization": value}, "Backend.headers")
    assert "cret" not in str(caught.value)


# -------------------------------------------------------------------------------------------------- secrets


def test_a_secret_shows_itself_to_reveal_alone() -> None:
    """Neither repr nor str nor format nor a pickle has it."""
    secret = Secret("sk-very-secret")
    assert secret.reveal() == "sk-very-secret"
    shown = (repr(secret), str(secret), f"{secret}", f"{[secret]}", pickle.dumps(secret).decode("latin-1"))
    assert not any("very" in text for text in shown)


def test_a_secret_is_lost_in_a_pickle() -> None:
    """What comes back says so when it is asked."""
    again = pickle.loads(pickle.dumps(Secret("sk-very-secret")))
    with pytest.raises(ConfigError, match="went through a pickle"):
        again.reveal()


def test_a_secret_function_is_called_each_time() -> None:
    """A rotating key is always the current one."""
    keys = iter(["one", "two"])
    secret = Secret(lambda: next(keys))
    assert [secret.reveal(), secret.reveal()] == ["one", "two"]


def test_a_secret_is_known_only_when_it_is_held() -> None:
    """Asking what must not be shown never calls the function; resolving calls it once."""
    keys = iter(["one"])
    secret = Secret(lambda: next(keys))
    assert secret.known() is None
    resolved = secret.resolved()
    assert (resolved.known(), resolved.reveal(), resolved.resolved() is resolved) == ("one", "one", True)


def test_a_secret_function_must_give_a_string() -> None:
    """None is no key, and the error names what came."""
    with pytest.raises(ConfigError, match="must return a string, not null"):
        Secret(lambda: None).reveal()  # type: ignore[arg-type,return-value]  # what the test is about


# ------------------------------------------------------------------------------------------- small helpers


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (True, "a boolean"),
        (3, "an integer"),
        (0.5, "a number"),
        (math.nan, "NaN"),
        (-math.inf, "an infinite number"),
        ("secret", "a string"),
        (b"secret", "bytes"),
        ({}, "a mapping"),
        ([], "a list"),
        ((), "a list"),
        ({1}, "a set"),
        (OSError(), "an OSError"),
    ],
)
def test_a_value_is_described_by_its_kind(value: object, words: str) -> None:
    """The kind is told as the files call it, the value is not."""
    assert describe(value) == words


@pytest.mark.parametrize(
    ("value", "number", "integer"),
    [
        (1, True, True),
        (0, True, True),
        (1.5, True, False),
        (10**400, True, True),
        (True, False, False),
        (float("nan"), False, False),
        (float("inf"), False, False),
        ("1", False, False),
        (None, False, False),
        (1j, False, False),
    ],
)
def test_a_bool_is_no_number(value: object, *, number: bool, integer: bool) -> None:
    """Numbers are finite ints and floats; True and False are neither."""
    assert (is_number(value), is_integer(value)) == (number, integer)


def test_the_nearest_name_is_offered() -> None:
    """A slip of the keyboard gets a hint, another word gets none."""
    assert nearest("temprature", ["temperature", "top_p"]) == "; did you mean 'temperature'?"
    assert nearest("TOP_P", ["temperature", "top_p"]) == "; did you mean 'top_p'?"
    assert nearest("banana", ["temperature", "top_p"]) == ""
    assert nearest("x", []) == ""


def test_headers_that_may_hold_a_credential_stay_out_of_reprs_and_pickles() -> None:
    """Going by their names; the others come back from a pickle, and all are there to be sent."""
    headers = merge_headers(freeze_headers({"X-Auth": "SECRET", "X-Title": "t"}, "h"), {"Api-Key": "SECRET"})
    assert headers == {"X-Auth": "SECRET", "X-Title": "t", "Api-Key": "SECRET"}
    assert "SECRET" not in repr(headers)
    assert b"SECRET" not in pickle.dumps(headers)
    assert pickle.loads(pickle.dumps(headers)) == {"X-Title": "t"}
