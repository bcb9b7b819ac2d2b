"""Canonical JSON: one meaning, one text; and the hashes made of it."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._canonical import canonical_json, sha256_of, sha256_of_bytes
from promptkit._fields import freeze

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)


def reversed_keys(value: object) -> object:
    """Return the same JSON value with the keys of every object in the opposite order."""
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [reversed_keys(item) for item in value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        ("ä\u20ac\U0001f600", '"ä€😀"'),
        ('a"b\\c/d', '"a\\"b\\\\c/d"'),
        ("\b\t\n\f\r\x00\x1f\x7f\u2028", '"\\b\\t\\n\\f\\r\\u0000\\u001f\x7f\u2028"'),
        (2**80, "1208925819614629174706176"),
        ([0, -0.0, 0.1, 1.0, 1e16, 1e-7], "[0,-0.0,0.1,1.0,1e+16,1e-07]"),
        ({"\uffff": 1, "\U00010000": 2}, '{"\uffff":1,"\U00010000":2}'),
        ({}, "{}"),
        ("", '""'),
    ],
)
def test_the_form_is_the_documented_one(value: object, text: str) -> None:
    """Sorted keys, no white space, the fewest escapes, UTF-8."""
    assert canonical_json(value) == text.encode()


@given(JSON)
def test_the_form_reads_back_as_the_same_value(value: object) -> None:
    """The canonical form is JSON, and loses nothing."""
    again = json.loads(canonical_json(value))
    assert again == value
    assert canonical_json(again) == canonical_json(value)


@given(JSON)
def test_key_order_and_frozen_copies_change_nothing(value: object) -> None:
    """Insertion order and the containers' class are not part of the meaning."""
    assert canonical_json(reversed_keys(value)) == canonical_json(value)
    assert sha256_of(freeze(value)) == sha256_of(value)


@given(JSON, JSON)
def test_different_forms_mean_different_values(left: object, right: object) -> None:
    """Two values with one form are equal; the hash tells apart what the form tells apart."""
    same = canonical_json(left) == canonical_json(right)
    assert (sha256_of(left) == sha256_of(right)) is same
    if same:
        assert left == right


@pytest.mark.parametrize(("left", "right"), [(1, 1.0), (0, False), (1, True), (0.0, -0.0), ("1", 1), (None, "null")])
def test_values_that_python_confuses_are_told_apart(left: object, right: object) -> None:
    """Equality in Python is not equality in JSON."""
    assert sha256_of(left) != sha256_of(right)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_json_has_no_number_for_has_no_form(value: float) -> None:
    """NaN and infinities are refused, never written as words."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(value)


def test_a_hash_names_its_algorithm() -> None:
    """The text is ``sha256:`` and 64 hexadecimal digits, of the bytes or of the canonical form."""
    assert sha256_of_bytes(b"abc") == "sha256:" + hashlib.sha256(b"abc").hexdigest()
    assert sha256_of({"a": 1}) == sha256_of_bytes(b'{"a":1}')
