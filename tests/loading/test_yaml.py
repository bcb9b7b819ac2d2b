"""The strict YAML reader: what it accepts and means, what it refuses, and where it says that things stand."""

from __future__ import annotations

import contextlib
import json
import warnings
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from promptkit._definitions import Place
from promptkit._fields import FrozenDict, FrozenList
from promptkit._loading import _yaml
from promptkit._types import Problem
from promptkit.errors import DocumentError
from support.threads import Worker


def load(text: str | bytes) -> Any:
    """Return what a file means."""
    return _yaml.load(text.encode() if isinstance(text, str) else text, "f.yaml").value


def problems(text: str | bytes) -> list[str]:
    """Return the problems of a file, as an editor would show them."""
    with pytest.raises(DocumentError) as caught:
        load(text)
    return [str(problem) for problem in caught.value.problems]


def problem(text: str | bytes) -> str:
    """Return the only problem of a file."""
    (found,) = problems(text)
    return found


# ----------------------------------------------------------------------------------------------- meaning


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("2024-01-02", "2024-01-02"),
        ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("0o17", 15),
        ("0x1F", 31),
        ("+3", 3),
        ("-0", 0),
        ("0", 0),
        ("1.10", 1.1),
        ("-.5e3", -500.0),
        ("1.", 1.0),
        ("1e3", 1000.0),
        ("0.25", 0.25),
        ("1.2.3", "1.2.3"),
        ("+", "+"),
        (".", "."),
        ("=", "="),
        ("12 apples", "12 apples"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("C#", "C#"),
        ("a # b", "a"),
        ('"\\0\\x41\\u00e9\\U0001F600"', "\0A\u00e9\U0001f600"),
    ],
)
def test_a_word_means_what_yaml_1_2_says(text: str, value: object) -> None:
    """Plain words are resolved by the core schema; everything quoted is a string."""
    found = load(f"a: {text}\n")["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("|\n  one\n  two\n", "one\ntwo\n"),
        ("|-\n  one\n", "one"),
        ("|+\n  one\n\n\n", "one\n\n\n"),
        (">\n  one\n  two\n\n  three\n", "one two\nthree\n"),
        ("|2\n    code\n  rest\n", "  code\nrest\n"),
        ("one\n  two\n", "one two"),
        ("'it''s'", "it's"),
    ],
)
def test_text_is_kept_as_yaml_says(text: str, value: str) -> None:
    """Block and quoted text come out as written, line ends included."""
    assert load(f"a: {text}") == {"a": value}


def test_line_ends_of_windows_are_line_ends() -> None:
    """CRLF in a block becomes one newline."""
    assert load("a: |\r\n  one\r\n  two\r\nb: 1\r\n") == {"a": "one\ntwo\n", "b": 1}


def test_two_json_escapes_make_one_character() -> None:
    """JSON writes an emoji as two escapes; half of one is no character."""
    assert load('{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}
    assert problem('a: "\\ud83d"') == "f.yaml:1:4: half of a surrogate pair is not a character"
    assert load('{"a": "\\ud83d\\ude00\ufffd"}') == {"a": "\U0001f600\ufffd"}


def test_what_is_read_cannot_be_changed() -> None:
    """Mappings and lists are immutable, so an aliased part can be shared."""
    value = load("base: &b {stop: [X]}\none: *b\ntwo: *b\n")
    assert isinstance(value, FrozenDict)
    assert isinstance(value["one"]["stop"], FrozenList)
    assert value["one"] is value["two"]


def test_a_version_line_for_1_2_is_fine_and_any_other_is_refused() -> None:
    """A file that asks for YAML 1.1 would mean something else, so it is not read at all."""
    assert load("%YAML 1.2\n---\na: yes\n") == {"a": "yes"}
    assert problem("%YAML 1.1\n---\na: yes\n") == (
        "f.yaml:1:1: files are read as YAML 1.2, not 1.1; remove the %YAML line"
    )


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(10**20), 10**20)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        lambda child: st.lists(child, max_size=4) | st.dictionaries(st.text(max_size=8), child, max_size=4),
        max_leaves=12,
    )
)
def test_json_is_read_as_json(value: object) -> None:
    """What `json.dumps` writes in plain ASCII means the same here."""
    assert load(json.dumps(value)) == value


# ---------------------------------------------------------------------------------------- agreement, fuzz

WORDS = st.sampled_from(
    [
        "a",
        "b: ",
        "- ",
        "? ",
        ": ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "|\n",
        ">-\n",
        "|2\n",
        "'",
        '"',
        "#",
        " #",
        "&a ",
        "*a",
        "<<: ",
        "!!str ",
        "!x ",
        "%YAML 1.1\n",
        "%TAG ! x\n",
        "---\n",
        "...\n",
        "\n",
        "\n  ",
        "\n    ",
        "\t",
        "\\u00e9",
        "\\ud800",
        "\\U00110000",
        "1",
        "01",
        "1.5",
        ".inf",
        "true",
        "null",
        "~",
        "@",
        "`",
        "\r\n",
        "é",
        "\x85",
        "\u2028",
        "\x00",
        "{{ x }}",
    ]
)
TEXTS = st.lists(WORDS, max_size=25).map("".join)


@settings(max_examples=400)
@given(TEXTS)
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    """Whatever stands in a file, the only exception is `DocumentError`, and its places are in the file."""
    found: tuple[Problem, ...] = ()
    try:
        load(text)
    except DocumentError as error:
        found = error.problems
    for problem_ in found:
        assert problem_.path == "f.yaml"
        assert 1 <= problem_.line <= text.count("\n") + text.count("\r") + 2
        assert problem_.column >= 1


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """The same for bytes that are no text."""
    with contextlib.suppress(DocumentError):
        load(data)


@settings(max_examples=400)
@given(TEXTS)
def test_what_is_accepted_means_what_ruamel_reads(text: str) -> None:
    """On the accepted subset the library's own safe loader reads the same, but for dates, 0b… and 1_000."""
    try:
        value = load(text)
    except DocumentError:
        return
    assume("1_" not in text and "0b" not in text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = YAML(typ="safe", pure=True).load(text)
        except YAMLError:
            # It resolves merge keys in its own way: only mappings that stand in the file before.
            assert "<<" in text
            return
    assert value == theirs or "<<" in text


# ------------------------------------------------------------------------------------------------ places


def test_every_key_and_value_has_its_place() -> None:
    """Lines and columns are 1-based and count characters."""
    document = _yaml.load("ä: 1\nmessages:\n  - role: user\n    content: |\n      hi\n".encode(), "f.yaml")
    assert document.place_of("/ä") == Place(1, 4)
    assert document.place_of("/messages", key=True) == Place(2, 1)
    assert document.place_of("/messages/0") == Place(3, 5)
    assert document.place_of("/messages/0/content") == Place(4, 14)
    assert document.place_of("/messages/0/content", key=True) == Place(4, 5)
    assert document.place_of("/messages/7/content") == Place(3, 3)
    assert document.place_of("") == Place(1, 1)


def test_pointers_are_escaped() -> None:
    """Keys with ~ and / have the pointers of RFC 6901."""
    root = _yaml.load(b'{"a/b": {"c~d": [1]}}', "f.yaml").root
    assert set(root.positions()) == {"", "/a~1b", "/a~1b/c~0d", "/a~1b/c~0d/0"}
    assert _yaml.load(b'{"a/b": {"c~d": [1]}}', "f.yaml").place_of("/a~1b/c~0d/0") == Place(1, 18)


def test_places_of_a_value_are_bounded() -> None:
    """Long keys above many values do not multiply: outer places stay, inner ones are left out."""
    key = "k" * 100_000
    root = _yaml.load(f"? {key}\n: [{'1,' * 5000}]\n".encode(), "f.yaml").root
    found = root.positions()
    assert {"", f"/{key}"} <= set(found)
    assert len(found) < 100


def test_a_scalar_knows_how_it_is_written() -> None:
    """Style, the first line of a block, and a comment behind plain text are kept."""
    entries = _yaml.load(
        b"plain: a b\ncut: use #1 and F #x\nquoted: 'a' # b\nblock: |  # c\n  x\nfold: >\n  y\nempty: # z\n", "f"
    ).root.entries
    assert [(entries[key].style, entries[key].has_comment) for key in entries] == [
        ("plain", False),
        ("plain", True),
        ("quoted", False),
        ("literal", False),
        ("folded", False),
        ("plain", False),
    ]
    assert entries["cut"].value == "use"
    assert (entries["block"].text_line, entries["fold"].text_line, entries["plain"].text_line) == (5, 7, 0)


def test_an_empty_value_stands_at_its_key() -> None:
    """The parser sees it where the next thing begins, which is no help to an author."""
    document = _yaml.load(b"a:\n\n\nb: 1\n", "f.yaml")
    assert document.place_of("/a") == Place(1, 1)


# -------------------------------------------------------------------------------- aliases and merge keys


def test_merge_keys_give_way_to_own_keys_and_to_earlier_sources() -> None:
    """Own keys win wherever they stand; of several sources the first one wins."""
    text = "x: &x {k: 1, l: 1}\ny: &y {k: 2, m: 2}\nboth: {l: 3, <<: [*x, *y]}\none: {<<: *y, k: 9}\n"
    value = load(text)
    assert value["both"] == {"k": 1, "l": 3, "m": 2}
    assert value["one"] == {"k": 9, "m": 2}


def test_a_quoted_merge_key_is_a_key() -> None:
    """Only the plain << merges."""
    assert load('"<<": 1') == {"<<": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<<: 3\n", "1:1: << takes a mapping or a list of mappings"),
        ("<<: [{a: 1}, 3]\n", "1:1: << takes a mapping or a list of mappings"),
        ("<<: {a: 1}\n<<: {b: 1}\n", "2:1: duplicate key <<: first on line 1, again on line 2"),
        ("a: *x\n", "1:4: alias *x has no anchor before it; quote text that begins with *"),
        ("a: &a [*a]\n", "1:8: recursive alias *a"),
        ("a: &a {b: {c: *a}}\n", "1:15: recursive alias *a"),
        ("<<: *nope\n", "1:5: alias *nope has no anchor"),
        ("&a k: 1\n", "1:1: a key can have neither an anchor nor a tag"),
        ("!x k: 1\n", "1:1: a key can have neither an anchor nor a tag"),
    ],
)
def test_aliases_that_lead_nowhere_are_told(text: str, message: str) -> None:
    """Undefined, recursive and misused aliases have a place and a reason."""
    assert problem(text).startswith(f"f.yaml:{message}")


def test_an_alias_bomb_is_refused_before_it_is_built() -> None:
    """Values are counted as if every alias were written out."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{name}: &{name} [{', '.join([f'*{last}'] * 9)}]" for last, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    assert "more than 50000 values, aliases filled in" in problem("\n".join(lines))


def test_a_merge_bomb_costs_no_more_than_its_keys() -> None:
    """Merging the same mapping ten times at ten levels gives the mapping, not ten to the tenth entries."""
    lines = ["a: &a {x: 1, y: 2}"]
    lines += [
        f"{name}: &{name} {{<<: [{', '.join([f'*{last}'] * 10)}]}}"
        for last, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    assert load("\n".join(lines))["i"] == {"x": 1, "y": 2}


def test_nesting_through_aliases_is_bounded() -> None:
    """Depth counts with aliases filled in."""
    lines = ["a0: &a0 [1]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 70)]
    assert "nested deeper than 64, aliases filled in" in problem("\n".join(lines))


def test_an_anchor_may_be_used_again() -> None:
    """A later anchor of the same name takes over from there on."""
    assert load("a: &x 1\nb: *x\nc: &x 2\nd: *x\n") == {"a": 1, "b": 1, "c": 2, "d": 2}


# --------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 0100\n", "1:4: 0100 has a leading zero"),
        ("a: -07\n", "1:4: -07 has a leading zero"),
        ("a: .inf\n", "1:4: .inf is not a number that JSON has"),
        ("a: -.INF\n", "1:4: -.INF is not a number that JSON has"),
        ("a: .nan\n", "1:4: .nan is not a number that JSON has"),
        ("a: 1e400\n", '1:4: "1e400" is too large for a number'),
        (f"a: {'9' * 5000}\n", "1:4: an integer of 5000 digits is too large"),
        (f"a: 0x{'f' * 298}\n", "1:4: an integer of 300 digits is too large"),
        ("1: a\n", "1:1: a key must be a string; quote 1"),
        ("true: a\n", "1:1: a key must be a string; quote true"),
        ("~: a\n", "1:1: a key must be a string; quote ~"),
        (": a\n", "1:1: a key is empty"),
        ("01: a\n", "1:1: 01 has a leading zero"),
        ("? [a]\n: b\n", "1:3: a key must be a string, not a list"),
        ("a: &x b\n*x : c\n", "2:1: a key must be a string, not a list, a mapping or an alias"),
        ("a: {{ text }}\n", "1:5: a key must be a string, not a list, a mapping or an alias; text that begins with {{"),
        ("a: !secret k\n", '1:4: tag "!secret" is not allowed'),
        ("a: ! k\n", '1:4: tag "!" is not allowed'),
        ("a: !!map {b: 1}\n", '1:4: tag "!!map" is not allowed'),
        ("a: !!str 1\n", '1:4: tag "!!str" is not allowed'),
        ("%TAG !e! tag:x\n---\na: 1\n", "2:1: %TAG lines are not allowed"),
        ("a: 1\n---\nb: 2\n", "2:1: a second document begins here"),
        ("---\n---\n", "2:1: a second document begins here"),
        ("a: " + "[" * 100, "1:67: nested deeper than 64"),
        ("a: x\x00y\n", "1:5: the character U+0000 cannot stand in a file"),
        ("ok: 1\na: x\x1by\n", "2:5: the character U+001B cannot stand in a file"),
        ("a: x\u2028y\n", "1:5: the character U+2028 cannot stand in a file"),
    ],
)
def test_what_misleads_is_refused(text: str, message: str) -> None:
    """What YAML allows and a reader, JSON or another YAML version would take differently has a reason and a place."""
    assert problem(text).startswith(f"f.yaml:{message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\n\tb: 1\n", "2:1: a tab is used for indentation; use spaces"),
        ("a: |\n\ttext\n", "2:1: a tab is used for indentation; use spaces"),
        ("a: b\tc\n", "1:5: a tab cannot stand here"),
        ("a: Note: this\n", '1:8: a second ": " in one value'),
        ("a: 'x\nb: 1\n", "1:4: the quote that opens here is never closed"),
        ("a: [1, 2\nb: 3\n", "2:2: the bracket that begins on line 1, column 4 is not closed before this"),
        ("a: @x\n", "1:4: text that begins with this character must be quoted"),
        ("a: {% if x %}\n", "1:5: text that begins with this character must be quoted"),
        ("a: - b\n", '1:4: a list item ("- ") must begin on a line of its own'),
        ("a: ? b\n", '1:4: text that begins with "? " must be quoted'),
        ("a:\n- b\n-c\n", '3:1: expected "key: value" on this line'),
        ("a:\n   b: 1\n  c: 2\n", "3:3: this line does not line up with the mapping or list that begins on line 1"),
        ("a: 'it's'\n", "1:8: something follows a value that has ended"),
        ('a: "\\d+"\n', "1:6: in double quotes \\ begins an escape"),
        ('a: "\\xZZ"\n', "1:7: in double quotes \\ begins an escape"),
        ('a: "\\U00110000"\n', "1:2: what follows here is not valid YAML (the parser failed with ValueError)"),
        ("{a: 1} b\n", "1:8: something follows the end of what this file says"),
        ("k:\n  a: |\n      b\n  c d\n", '4:3: expected "key: value" on this line'),
        ("a: |x\n  b\n", "1:5: not valid YAML: expected chomping"),
    ],
)
def test_syntax_errors_say_what_to_write(text: str, message: str) -> None:
    """The parser's complaints are told in the author's terms, at the place to look at."""
    assert problem(text).startswith(f"f.yaml:{message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t: |\n    code\n  rest\n", "3:3: indentation of block text: .*line 2.*use |2 instead of | on line 1"),
        ("t: >\n    code\n  rest\n", "3:3: indentation of block text: .*line 2.*use >2 instead of > on line 1"),
        ("t: |\n    code\n  rest: x\n", "3:3: indentation of block text: .*use |2 instead"),
        (
            "t: |  # note\n\n    code\n\n  rest\n",
            "5:3: indentation of block text: .*line 3.*use |2 instead of | on line 1",
        ),
        ("t:\n  - |\n      code\n    rest\n", "4:5: indentation of block text: .*use |2 instead of | on line 2"),
        ("t:\n  - c: |\n        x\n      y\n", "4:7: indentation of block text: .*use |2 instead of | on line 2"),
        ("- - |\n      x\n    y\n", "3:5: indentation of block text: .*use |2 instead"),
    ],
)
def test_block_text_that_comes_out_is_explained(text: str, message: str) -> None:
    """Text whose first line is indented more than the rest is told with the indicator that would help."""
    assert problem(text).startswith("f.yaml:" + message.partition(".*")[0])
    for part in message.split(".*"):
        assert part in problem(text)


def test_the_advice_for_block_text_is_right() -> None:
    """Following it gives the text that was meant."""
    assert load("t:\n  - c: |2\n        x\n      y\n") == {"t": [{"c": "  x\ny\n"}]}
    assert load("t:\n  - |2\n      code\n    rest\n") == {"t": ["  code\nrest\n"]}


def test_all_problems_of_a_file_are_told_in_its_order() -> None:
    """What keeps nothing else from being read is collected; a syntax error comes with what was found before."""
    assert [found.partition(": ")[0] for found in problems("b: 01\na: !x y\na: 2\n1: c\nd: [\n")] == [
        "f.yaml:1:4",
        "f.yaml:2:4",
        "f.yaml:3:1",
        "f.yaml:4:1",
        "f.yaml:6:1",
    ]


def test_the_number_of_problems_is_bounded() -> None:
    """A file of nothing but mistakes does not make an endless message."""
    assert len(problems("- 01\n" * 1000)) == _yaml.MAX_PROBLEMS


def test_a_caller_can_collect_the_problems() -> None:
    """With a list, what is wrong and can be read over goes there, and the value is marked."""
    found: list[Problem] = []
    document = _yaml.load(b"a: 01\nb: 2\n", "f.yaml", problems=found)
    assert [problem.line for problem in found] == [1]
    assert document.root.entries["a"].is_bad
    assert not document.root.entries["a"].is_empty
    assert document.root.entries["b"].value == 2


def test_size_is_bounded() -> None:
    """A file larger than the limit is refused without being decoded."""
    assert problem(b"\xff" * (_yaml.MAX_BYTES + 1)) == "f.yaml: the file is larger than the limit of 1048576 bytes"


def test_the_number_of_values_is_bounded() -> None:
    """A long list counts as a bomb does."""
    assert "more than 50000 values" in problem("- a\n" * 50_001)


def test_threads_do_not_mix_their_files() -> None:
    """Every load has a parser of its own."""

    def read(number: int) -> None:
        text = "".join(f"k{number}_{line}: v{number}_{line}\n" for line in range(40))
        expected = {f"k{number}_{line}": f"v{number}_{line}" for line in range(40)}
        for _ in range(5):
            assert load(text) == expected

    for worker in [Worker(read, number) for number in range(6)]:
        worker.result()
