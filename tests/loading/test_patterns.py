"""Regular expressions: what ECMA-262 means is what is matched, and what could hang is refused."""

from __future__ import annotations

import re
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._loading import _ambiguity
from promptkit._loading._patterns import PatternFaultError, _Parser, translate


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^a$", ["a"], ["a\n", "ba", "a\nb"]),
        ("^.$", ["a", "\x85", "\U0001f600"], ["\n", "\r", "\u2028", "\u2029", ""]),
        (r"^\d$", ["7"], ["\u0667", "x"]),
        (r"^\D$", ["\u0667", "x"], ["7"]),
        (r"^\w$", ["_", "a", "9"], ["é", "-"]),
        (r"^\W$", ["é", "-"], ["_"]),
        (r"^\s$", [" ", "\ufeff", "\u2029", "\xa0", "\u3000"], ["\x85", "\x1c", "a"]),
        (r"^\S$", ["\x85", "a"], ["\ufeff"]),
        (r"^[\d-]$", ["3", "-"], ["a"]),
        (r"^[\w\s]$", ["a", " "], ["é"]),
        (r"^[^\D]$", ["3"], ["x"]),
        (r"^[a\]b]$", ["]", "a"], ["\\"]),
        ("^[&&||~~[-]$", ["&", "|", "~", "-", "["], ["a"]),
        ("[]", [], ["", "a"]),
        ("^[^]$", ["\n", "a"], [""]),
        (r"\bcat\b", ["a cat.", "écaté cat"], ["scat"]),
        (r"x\bé", ["xé"], ["x"]),
        (r"^\B$", [""], ["a"]),
        (r"^a\Bb$", ["ab"], ["a b"]),
        (r"^\$\.\*\/\-$", ["$.*/-"], ["$.*/"]),
        (r"^\x41\u0042\u{43}\cJ\0$", ["ABC\n\0"], ["ABC"]),
        (r"^\uD83D\uDE00$", ["\U0001f600"], ["\ud83d\ude00"]),
        (r"^\u{1F600}{2}$", ["\U0001f600\U0001f600"], ["\U0001f600"]),
        (r"^[\uD83D\uDE00-\uD83D\uDE02]$", ["\U0001f601"], ["\U0001f603"]),
        (r"^\p{L}+$", ["aéяß"], ["a1", ""]),
        (r"^\p{Lu}\p{Lowercase_Letter}\P{L}$", ["Éé1"], ["éé1"]),
        (r"^[\p{gc=Nd}_]+$", ["1\u0667_"], ["a"]),
        (r"^\p{ASCII}\p{Any}$", ["aé"], ["éa"]),
        (r"^\p{LC}$", ["a", "A"], ["\u05d0"]),
        ("^(?<year>[0-9]{4})-(?:0[1-9]|1[0-2])$", ["2024-02"], ["2024-13"]),
        ("^a{2}b{1,}c{0,2}d??$", ["aab", "aabbccd"], ["ab", "aabccc"]),
        ("^(?=.*[0-9])(?!.*x).+$", ["a1"], ["a", "a1x"]),
        ("(?<=a)b(?<!cb)", ["ab"], ["cb"]),
        ("^(a|b|)$", ["a", ""], ["c"]),
        ("^{.*}$", ["{a}"], ["a"]),
        ("^]}$", ["]}"], [""]),
        (r"^[\b]$", ["\b"], ["b"]),
        (r"^[\t\n\v\f\r]$", ["\t", "\v"], ["t"]),
        ("á", ["xáx"], ["a\u0301"]),
    ],
)
def test_a_pattern_means_what_ecma_262_says(pattern: str, good: list[str], bad: list[str]) -> None:
    """Texts that match, and texts that Python's own reading of the pattern would judge otherwise."""
    compiled = translate(pattern)
    assert [text for text in good if not compiled.is_match(text)] == []
    assert [text for text in bad if compiled.is_match(text)] == []


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("(", "missing )"),
        (")", "unmatched )"),
        ("[a", "missing ]"),
        ("a**", "nothing to repeat"),
        ("a++", "nothing to repeat"),
        ("*", "nothing to repeat"),
        ("a{2,1}", "wrong order"),
        ("a{,3}", "write {0,n}"),
        ("a{99999}", "repeat count above"),
        ("\\", "ends in a backslash"),
        (r"(a)\1", "back-references"),
        (r"(?<n>a)\k<n>", "back-references"),
        (r"\a", r"\a is not available"),
        (r"\Z", r"\Z is not available"),
        (r"\A", r"\A is not available"),
        (r"\07", "not available"),
        (r"\u12", r"\u is not available"),
        (r"\u{110000}", r"\u is not available"),
        (r"\c1", r"\c is not available"),
        (r"\p{Script=Greek}", "general categories"),
        (r"\p{Nope}", "general categories"),
        (r"\pL", "not available"),
        ("(?i)a", "flags such as (?i)"),
        ("(?P<n>a)", "groups are known"),
        ("(?#c)", "groups are known"),
        ("^*", "cannot be repeated"),
        ("(?=a)+", "cannot be repeated"),
        ("[b-a]", "ascending order"),
        (r"[\d-x]", "ascending order"),
        ("(?<=a+)b", "no exact form"),
        ("(" * 40 + ")" * 40, "nested deeper"),
        ("a" * 3000, "longer than 2000"),
    ],
)
def test_what_has_no_exact_form_is_refused(pattern: str, told: str) -> None:
    """The fault says what cannot be used, and where in the pattern."""
    with pytest.raises(PatternFaultError, match=re.escape(told)):
        translate(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "^[a-z0-9]+(?:-[a-z0-9]+)*$",
        r"^[\w.+-]+@[\w-]+\.[\w.-]+$",
        r"^\d{4}-\d{2}-\d{2}$",
        r"^-?\d+(\.\d+)?([eE][+-]?\d+)?$",
        r"^(([01]?\d|2[0-3]):)?[0-5]\d$",
        "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
        r"^https?://[^\s/$.?#].[^\s]*$",
        r"^(?:\+?1[-. ]?)?\(?(\d{3})\)?[-. ]?(\d{3})[-. ]?(\d{4})$",
        r"^([0-9]{1,3}\.){3}[0-9]{1,3}$",
        "^([A-Z]{4}[A-Z0-9]{4}){5}$",
        r"^[A-Z]{2}\d{2}[A-Z0-9]{4}\d{7}([A-Z0-9]?){0,3}$",
        r"\d+",
        "foo.*",
        r"^#([0-9a-f]{3}|[0-9a-f]{6})$",
        r'^"(?:[^"\\]|\\.)*"$',
    ],
)
def test_patterns_of_everyday_use_are_linear(pattern: str) -> None:
    """What people write for slugs, dates, addresses and numbers is run without a bound."""
    assert translate(pattern).max_length == sys.maxsize


@pytest.mark.parametrize(
    ("pattern", "degree"),
    [("^a*a*b", 2), ("a*b", 2), ("^a*ba*b", 1), ("^a*b*c*d", 1), ("^.*.*.*x", 3), ("^(?=.*a)b", 1), ("^abc$", 0)],
)
def test_the_power_of_the_time_is_known(pattern: str, degree: int) -> None:
    """Loops that can take the same text multiply; a search that may start anywhere counts as one."""
    assert _ambiguity.degree_of(_Parser(pattern).parse()) == degree


@pytest.mark.parametrize(
    ("pattern", "degree"),
    [
        ("^" + "ab" * 300 + "c*d", 1),
        ("^" + "ab" * 300 + "c*d{0,9}e(?=f*)", 3),
        ("^(?:" + "ab" * 300 + "|c*d)+e", None),
        ("^(?:" + "ab" * 300 + "){2,5}(?:c|d*)x", 2),
        ("^(?:" + "ab" * 300 + "(?:c+d)*)e", None),
        ("^(?:" + "ab" * 300 + "(?=(?:c+)+))e", None),
    ],
)
def test_long_patterns_are_judged_crudely(pattern: str, degree: int | None) -> None:
    """Where the automaton would be too large, loops in loops are refused and others add up."""
    assert _ambiguity.degree_of(_Parser(pattern).parse()) == degree


def test_a_pattern_with_too_many_ways_is_refused() -> None:
    """Where the pairs of places are too many to look at, the worst is taken to be true."""
    with pytest.raises(PatternFaultError, match="exponential"):
        translate("^(?:.{140}|.{151})*x")


@pytest.mark.parametrize("pattern", ["^a|^b*c", "^(?:^a*|b)c", "(?:^a*b|c*d)e"])
def test_alternatives_that_begin_with_an_anchor(pattern: str) -> None:
    """Each must, for the whole to be tried in one place."""
    degree = _ambiguity.degree_of(_Parser(pattern).parse())
    assert degree == (2 if pattern.startswith("(?:^a*b|c") else 1)


_ATOMS = st.sampled_from(["a", "b", "[ab]", ".", "ab", ""])
_PATTERNS = st.recursive(
    _ATOMS,
    lambda below: st.one_of(
        st.tuples(below, below).map("".join),
        st.tuples(below, below).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(below, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{3,9}"])).map(lambda p: f"(?:{p[0]}){p[1]}"),
    ),
    max_leaves=8,
)


@given(pattern=_PATTERNS, end=st.sampled_from(["", "$", "c$"]), text=st.text("ab", max_size=12))
def test_an_accepted_pattern_is_quick_up_to_its_bound(pattern: str, end: str, text: str) -> None:
    """However loops are put together, what is accepted ends in a moment on the texts that it is run on."""
    try:
        compiled = translate(f"^{pattern}{end}")
    except PatternFaultError:
        return
    assert compiled.is_match(text) == (re.search(f"^{pattern}{end.replace('$', chr(92) + 'Z')}", text) is not None)
    for unit in (text, "a", "ab"):
        long = (unit * 2000)[: min(compiled.max_length, 400)] if unit else ""
        started = time.process_time()
        compiled.is_match(long + "!")
        assert time.process_time() - started < 5, long[:40]
