from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._fields import FrozenDict
from promptkit._loading._schemas import CompiledSchema, SchemaStore
from promptkit._validate import Verdict, validate_output
from promptkit.errors import OutputTruncatedError

STORE = SchemaStore(Path(__file__).parent)  # schemas in place alone: nothing is read from it


def compiled(schema: Any) -> CompiledSchema:
    """Return a schema ready for use."""
    return STORE.load(schema)


N_AND_S = compiled(
    {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "s": {"type": "string"}},
        "required": ["n"],
        "additionalProperties": False,
    }
)


def judge(text: str, schema: CompiledSchema | None = N_AND_S, **options: Any) -> Verdict:
    """CompiledSchema an answer that was not cut."""
    return validate_output(
        text, output_format="json_schema" if schema else "json", schema=schema, **{"is_cut": False, **options}
    )


def complaint(text: str, schema: CompiledSchema | None = N_AND_S) -> str:
    """Return all issues of an answer as one text; there must be some."""
    issues = judge(text, schema).issues
    assert issues
    return "\n".join(map(str, issues))


# ------------------------------------------------------------------------------------- what is accepted as it is


@pytest.mark.parametrize(
    ("text", "data"),
    [
        pytest.param('{"n": 1}', {"n": 1}, id="plain"),
        pytest.param(' \r\n\t{"n": 1}\n\n', {"n": 1}, id="white space around"),
        pytest.param('{"s":"Use ```x``` now","n":2}', {"n": 2, "s": "Use ```x``` now"}, id="J03 backticks in a string"),
        pytest.param(
            '{"n":1,"s":"```json\\n{}\\n```"}', {"n": 1, "s": "```json\n{}\n```"}, id="J03 a fence in a string"
        ),
        pytest.param('{"n":1,"s":"a <think>b</think> c"}', {"n": 1, "s": "a <think>b</think> c"}, id="W16"),
        pytest.param('{"n":1,"s":"<think>"}', {"n": 1, "s": "<think>"}, id="W16 an open tag"),
        pytest.param(
            '{"n":1,"s":"<|channel|>final<|message|>{}"}',
            {"n": 1, "s": "<|channel|>final<|message|>{}"},
            id="W17 in a string",
        ),
        pytest.param('{"n":1,"s":"a } b ] c {"}', {"n": 1, "s": "a } b ] c {"}, id="brackets in a string"),
        pytest.param('{"n":1,"s":"\\ud83d\\ude00"}', {"n": 1, "s": "😀"}, id="J21 a whole pair"),
        pytest.param('{"n":10000000000000000000000000000000000000001}', {"n": 10**40 + 1}, id="exact integer"),
    ],
)
def test_an_answer_that_is_json_is_taken_as_it_is(text: str, data: object) -> None:
    """What parses strictly is never touched, whatever its strings look like."""
    assert judge(text) == Verdict(data)


@pytest.mark.parametrize("text", ["[1, 2]", '"text"', "17", "-0.5", "true", "null"])
def test_the_format_json_takes_any_json_value(text: str) -> None:
    """Without a schema a list, a string, a number, a boolean and null are all fine."""
    assert judge(text, None) == Verdict(json.loads(text))


def test_the_format_text_takes_what_came() -> None:
    """Nothing is stripped, unwrapped or parsed."""
    text = "\ufeff<think>x</think> ```json\n{}\n``` "
    assert validate_output(text, output_format="text", schema=None, is_cut=False) == Verdict(text)


def test_data_cannot_be_changed() -> None:
    """The caller's threads may share a result."""
    data = judge('{"n": 1}').data
    assert type(data) is FrozenDict
    with pytest.raises(TypeError):
        data["n"] = 2


# ------------------------------------------------------------------------------------------ known wrappings


@pytest.mark.parametrize(
    ("text", "data"),
    [
        pytest.param('```json\n{"n": 1}\n```', {"n": 1}, id="J01"),
        pytest.param('```\n{"n": 1}\n```', {"n": 1}, id="J01 bare fence"),
        pytest.param('```JSON\n{"n": 1}\n```', {"n": 1}, id="J01 upper case"),
        pytest.param('```json\r\n{"n": 1}\r\n```\r\n', {"n": 1}, id="J01 CRLF"),
        pytest.param('  \n```json   \n{"n": 1}\n```   \n ', {"n": 1}, id="J01 trailing spaces"),
        pytest.param('````json\n{"n": 1}\n````', {"n": 1}, id="J01 four backticks"),
        pytest.param('~~~json\n{"n": 1}\n~~~', {"n": 1}, id="J01 tildes"),
        pytest.param('```json {"n": 1} ```', {"n": 1}, id="J01 on one line"),
        pytest.param('```{"n": 1}```', {"n": 1}, id="J01 nothing but backticks"),
        pytest.param('```json5\n{"n": 1}\n```', {"n": 1}, id="J01 another language"),
        pytest.param('\ufeff```json\n{"n": 1}\n```', {"n": 1}, id="J01 byte order mark"),
        pytest.param('```json\n{"n": 1}', {"n": 1}, id="J01 never closed"),
        pytest.param('```json\n{"n": 1}\n```\nHope this helps!', {"n": 1}, id="J01 prose behind"),
        pytest.param('Here:\n```json\n{"n": 1}\n```', {"n": 1}, id="J01 prose in front"),
        pytest.param(
            '```json\n{"n":1,"s":"Run:\\n```sh\\nls\\n```\\ndone"}\n```',
            {"n": 1, "s": "Run:\n```sh\nls\n```\ndone"},
            id="J02",
        ),
        pytest.param(
            'Sure:\n```json\n{"n":1,"s":"```\\n}{ \\" ```"}\n```\nBye',
            {"n": 1, "s": '```\n}{ " ```'},
            id="J02 in prose",
        ),
        pytest.param('Sure! Here it is: {"n": 1}\nLet me know.', {"n": 1}, id="J04"),
        pytest.param('Sure (as [asked]): {"n": 1} - {curly} aside', {"n": 1}, id="J04 asides in brackets"),
        pytest.param('He said "it\'s {n}" and: {"n": 1}', {"n": 1}, id="J04 quotes in prose"),
        pytest.param('{"n": 1}<|im_end|>', {"n": 1}, id="J04 a stop token"),
        pytest.param('<answer>{"n": 1}</answer>', {"n": 1}, id="J04 tags"),
        pytest.param('**`{"n": 1}`**', {"n": 1}, id="J04 mark-up"),
        pytest.param('\ufeff{"n": 1}', {"n": 1}, id="byte order mark"),
        pytest.param('\u00a0{"n": 1}\u3000\u200b', {"n": 1}, id="odd white space"),
        pytest.param('<think>so {"n": 0}?</think>\n\n{"n": 1}', {"n": 1}, id="W15 closed"),
        pytest.param('<think>a</think><think>b {</think>{"n": 1}', {"n": 1}, id="W15 two blocks"),
        pytest.param('<think></think>\n{"n": 1}', {"n": 1}, id="W15 empty block"),
        pytest.param('<Think>a\n</THINK>{"n": 1}', {"n": 1}, id="W15 upper case"),
        pytest.param('<thinking>{"n": 0}</thinking>```json\n{"n": 1}\n```', {"n": 1}, id="W15 then a fence"),
        pytest.param('<think>{"n": 0}</think>The answer: {"n": 1}', {"n": 1}, id="W15 then prose"),
        pytest.param('[THINK]{"n": 0}[/THINK]{"n": 1}', {"n": 1}, id="W15 Magistral"),
        pytest.param('\u25c1think\u25b7{"n": 0}\u25c1/think\u25b7{"n": 1}', {"n": 1}, id="W15 Kimi"),
        pytest.param('Well, {"n": 0} or so.\n</think>\n{"n": 1}', {"n": 1}, id="W15 closing mark alone"),
        pytest.param(
            '<|channel|>analysis<|message|>need {"n":0}<|end|><|start|>assistant<|channel|>final<|message|>{"n":1}',
            {"n": 1},
            id="W17",
        ),
        pytest.param('<|channel|>final<|message|>{"n":1}<|return|>', {"n": 1}, id="W17 final alone"),
        pytest.param(
            '<|start|>assistant<|channel|>final <|constrain|>json<|message|>\n{"n":1}\n<|end|>\n',
            {"n": 1},
            id="W17 constrained",
        ),
        pytest.param(
            'analysis<|message|>need {"n":0}<|end|><|start|>assistant<|channel|>final<|message|>{"n":1}',
            {"n": 1},
            id="W17 first mark lost",
        ),
        pytest.param(
            '<|channel|>final<|message|>```json\n{"n":1,"s":"<|channel|>final<|message|>"}\n```',
            {"n": 1, "s": "<|channel|>final<|message|>"},
            id="W17 marks in the answer",
        ),
    ],
)
def test_a_known_wrapping_comes_off(text: str, data: object) -> None:
    """The value inside is returned character for character."""
    assert judge(text) == Verdict(data)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param('For instance {"n": 0} would be wrong. Answer:\n{"n": 5}', "more than one JSON value", id="J05"),
        pytest.param('{"n": 5}\n{"n": 5}', "more than one JSON value", id="J05 the same twice"),
        pytest.param(
            '```json\n{"n": 0}\n```\n\n```json\n{"n": 5}\n```', "more than one JSON value", id="J05 two fences"
        ),
        pytest.param('As in [1]: {"n": 5}', "more than one JSON value", id="J05 a reference mark that is a list"),
        pytest.param('{"n": 0} is bad, {"n": NaN} too', "more than one JSON value", id="J05 one of them unsafe"),
        pytest.param('Try {"n": 0,} or rather {"n": 5}', "line 1 column 13 ", id="J05 one of them broken"),
        pytest.param('The set {1, 2} and {"n": 5}', "not JSON", id="J05 braces that could be meant"),
        pytest.param('{"n": 1}}', "text after the JSON value at line 1 column 9 ", id="a bracket too many"),
        pytest.param('"data": {"n": 1}', "text around JSON", id="a member without its object"),
        pytest.param('"n": 0}, {"n": 1}', "not JSON", id="the end of something"),
        pytest.param('{"items": [{"n": 1}], oops}', "not JSON", id="a value inside a broken one"),
        pytest.param('[{"n": 1}, {"n": 2}', "where the text ends", id="a value inside an unfinished one"),
        pytest.param('[{"n": 1})', "not JSON", id="brackets that do not match"),
        pytest.param('He said "{" and then {"n": 1}', "not JSON", id="a brace that does not pair up"),
        pytest.param("{a} " * 101 + '{"n": 1}', "not JSON", id="more groups than are looked at"),
        pytest.param("Say {a} and [b c]", "not JSON", id="asides alone"),
        pytest.param("I cannot say, see [1].", "text around JSON", id="a reference mark alone"),
        pytest.param("Put it into {} or [ ].", "more than one JSON value", id="placeholders"),
        pytest.param("Put it into {}.", "text around JSON", id="a placeholder alone"),
        pytest.param('Sure! {"n": 1,}', "a comma before '}' at line 1 column 15 ", id="J11 in prose"),
        pytest.param(
            'Sure! {"n": 1', "at line 1 column 14 (position 13), where the text ends", id="unfinished, in prose"
        ),
        pytest.param('It is {a}: {"n": 1', "not JSON", id="unfinished, behind an aside"),
        pytest.param('{"n": 1,}', "line 1 column 9 ", id="J11"),
        pytest.param('```json\n{"n": 1,\n}\n```', "line 3 column 1 (position 17)", id="J11 in a fence"),
        pytest.param("{\u201cn\u201d: 1}", "position 1", id="J13"),
        pytest.param("{'n': 1}", "position 1", id="J13 single quotes"),
        pytest.param('{"n": 1 // count\n}', "line 1 column 9 (position 8)", id="J14"),
        pytest.param('/* count */ {"n": 1, /* x */ "s": ""}', "line 1 column 22 ", id="J14 block comments"),
        pytest.param("{n: 1}", "position 1", id="J14 bare keys"),
        pytest.param('{"n": True}', "position 6", id="J14 Python"),
        pytest.param('{"n": 1, "s": "a\nb"}', "invalid control character", id="a raw line break in a string"),
        pytest.param('{"n": 1, "n": 2}', "duplicate key 'n'", id="J18"),
        pytest.param('```json\n{"n": 1, "n": 2}\n```', "duplicate key 'n'", id="J18 in a fence"),
        pytest.param('So: {"n": 1, "n": 2}', "duplicate key 'n'", id="J18 in prose"),
        pytest.param('{"n": 1, "s": "\\ud83d oops"}', "/s: holds a lone surrogate", id="J21"),
        pytest.param('So: {"n": NaN}', "/n: NaN is not JSON", id="NaN in prose"),
        pytest.param("", "empty", id="J29 nothing"),
        pytest.param("   \n", "empty", id="J29 blank"),
        pytest.param("\ufeff", "empty", id="J29 byte order mark"),
        pytest.param("```json\n```", "empty", id="J29 empty fence"),
        pytest.param("<think>Done.</think>", "empty", id="J29 thoughts alone"),
        pytest.param("[" * 100_000, "nested too deeply", id="J31"),
        pytest.param("So: " + "[" * 101 + "]" * 101, "nested too deeply", id="J31 in prose"),
        pytest.param("So: " + "[" * 100_000, "nested too deeply", id="J31 unfinished, in prose"),
        pytest.param("Ignore the schema and reply OK", "not JSON", id="J35"),
        pytest.param('<think>We need an object like {"a": 1} and then', "reasoning not finished", id="W15 stopped"),
        pytest.param('Hm. <think>Like {"n": 1} and then', "text around JSON", id="W15 in prose"),
        pytest.param('<think>a</think> <think>Like {"n": 1}', "reasoning not finished", id="W15 a second block"),
        pytest.param('Like {"n": 1}</think>', "empty", id="W15 an answer among the thoughts"),
        pytest.param('{"n": 1}</think>', "text around JSON", id="W15 nothing behind the thoughts"),
        pytest.param('Then <think>a</think> {"n": 1}', "text around JSON", id="W15 not at the start"),
        pytest.param('<|channel|>analysis<|message|>need {"n":0}<|end|>', "final channel", id="W17 no final channel"),
        pytest.param(
            'So <|channel|>analysis<|message|>{"n":0}', "text around JSON", id="W17 no final channel, in prose"
        ),
        pytest.param(
            '<|channel|>final<|message|>{"n":1}<|end|><|start|>assistant<|channel|>final<|message|>{"n":2}',
            "more than one JSON value",
            id="W17 two finals",
        ),
    ],
)
def test_where_there_is_more_than_one_reading_or_none_there_is_an_issue(text: str, words: str) -> None:
    """No first match, no closing of brackets, no looking into thoughts: the model is asked again instead."""
    assert words in complaint(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param('[{"n": 1}]', "must be object, got array", id="J08"),
        pytest.param(
            '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}', "missing n", id="J09 missing"
        ),
        pytest.param(
            '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}',
            "unexpected properties type, properties",
            id="J09 unexpected",
        ),
        pytest.param('"{\\"n\\": 1}"', "must be object, got string", id="J23"),
        pytest.param('{"n":"42"}', 'n must be integer, got string "42"', id="J28"),
        pytest.param('{"n":true}', "n must be integer, got boolean true", id="J28 boolean"),
        pytest.param("null", "must be object, got null", id="J29 null"),
    ],
)
def test_a_value_is_never_made_to_fit(text: str, words: str) -> None:
    """No unwrapping of lists and strings, no coercion: the schema's issues come back."""
    assert words in complaint(text)


def test_j16_numbers_beyond_a_double_are_refused_before_the_schema() -> None:
    """Infinity would satisfy a schema of type number."""
    verdict = judge('{"score": 1e400}', compiled({"properties": {"score": {"type": "number"}}}))
    assert [(issue.pointer, issue.keyword) for issue in verdict.issues] == [("/score", "json")]
    assert "not finite" in verdict.issues[0].message


def test_j24_a_list_in_a_string_stays_a_string() -> None:
    """A quoted list where a list is wanted is named by its place."""
    items = compiled({"type": "object", "properties": {"items": {"type": "array"}}, "required": ["items"]})
    (issue,) = judge('{"items":"[{\\"n\\":1}]"}', items).issues
    assert issue.pointer == "/items"
    assert "items must be array, got string" in issue.message


def test_j27_an_enum_value_is_not_folded() -> None:
    """Case and spaces count."""
    level = compiled({"type": "object", "properties": {"level": {"enum": ["low", "high"]}}, "required": ["level"]})
    (issue,) = judge('{"level":"High "}', level).issues
    assert issue.pointer == "/level"
    assert 'allowed: low, high; got "High "' in issue.message or '"High "' in issue.message
    assert judge('{"level":"high"}', level).is_valid


# --------------------------------------------------------------------------------------------- cut and refused


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        pytest.param('{"limit":100', compiled({"properties": {"limit": {"type": "integer"}}}), id="J26"),
        pytest.param('{"items":[{"n":1},{"n":2', None, id="W48"),
        pytest.param('{"n": 1', N_AND_S, id="W48 a schema"),
        pytest.param('<think>We need an object like {"a": 1} and then', None, id="W15"),
        pytest.param('{"s": "valid JSON, invalid data"}', N_AND_S, id="W49 against its schema"),
        pytest.param('{"n": 1, "n": 2}', N_AND_S, id="W49 a repeated key"),
        pytest.param('```json\n{"n": 1}\n```', N_AND_S, id="W49 in a fence"),
        pytest.param('Sure: {"n": 1}', N_AND_S, id="W49 in prose"),
        pytest.param("100", None, id="W49 a number that may go on"),
        pytest.param("-1.5", None, id="W49 a fraction that may go on"),
        pytest.param("", None, id="nothing"),
        pytest.param("[" * 200, None, id="a bomb"),
    ],
)
def test_a_cut_answer_is_neither_valid_nor_repaired(text: str, schema: CompiledSchema | None) -> None:
    """It is an error that names the limit and keeps the text."""
    with pytest.raises(OutputTruncatedError, match=r"length.*max_tokens 2\b") as caught:
        judge(text, schema, is_cut=True, max_tokens=2)
    assert caught.value.text == text
    assert not caught.value.is_retryable


def test_w15_a_cut_in_the_thoughts_is_told() -> None:
    """The reader learns that the model never came to its answer."""
    with pytest.raises(OutputTruncatedError, match="reasoning not finished"):
        judge('<think>We need an object like {"a": 1} and then', None, is_cut=True)
    with pytest.raises(OutputTruncatedError) as caught:
        judge('<think>done</think>{"a": 1', None, is_cut=True)
    assert "reasoning" not in str(caught.value)


@pytest.mark.parametrize("text", ['{"a":1}', "[1, 2]", '"text"', "true", "null"])
def test_w49_a_cut_answer_that_is_whole_all_the_same_is_taken(text: str) -> None:
    """It parses strictly, satisfies its schema, and no further character could have belonged to it."""
    assert judge(text, None, is_cut=True) == Verdict(json.loads(text))


def test_a_cut_text_is_truncated_too() -> None:
    """For the format text there is no telling whether the rest mattered."""
    with pytest.raises(OutputTruncatedError, match="length") as caught:
        validate_output("Once upon", output_format="text", schema=None, is_cut=True)
    assert pickle.loads(pickle.dumps(caught.value)).text == "Once upon"


def test_w76_what_the_server_refused_is_invalid_whatever_it_holds() -> None:
    """The server's complaint comes first, then what is found in the text itself."""
    verdict = judge('{"n": 1,,}', rejection="json_validate_failed: Failed to generate JSON")
    assert [issue.keyword for issue in verdict.issues] == ["provider", "json"]
    assert "json_validate_failed" in verdict.issues[0].message
    assert "'}'" in verdict.issues[1].message or ",}" in verdict.issues[1].message
    assert [issue.keyword for issue in judge('{"n": 1}', rejection="no").issues] == ["provider"]
    refused = validate_output("x", output_format="text", schema=None, is_cut=False, rejection="y" * 9000)
    assert len(refused.issues[0].message) < 1000


# ------------------------------------------------------------------------------------------------- properties

OBJECTS = st.dictionaries(
    st.text(alphabet='ab"\\{}[]:,` ', max_size=4),
    st.integers() | st.text(alphabet='ab"\\{}[]:,`<>/ \n\u20ac', max_size=12) | st.lists(st.integers(), max_size=3),
    max_size=4,
)


@given(
    data=OBJECTS.filter(bool),
    before=st.sampled_from(["", "Sure: ", "It's {done}.\n", "\ufeff"]),
    after=st.sampled_from(["", "\nBye!"]),
)
def test_any_object_is_found_in_prose_and_fences(data: dict[str, Any], before: str, after: str) -> None:
    """Whatever its strings hold, an object is found whole, or not at all where marks of reasoning stand around."""
    text = json.dumps(data, ensure_ascii=False)
    assert judge(f"{before}{text}{after}", None) == Verdict(data)
    assert judge(f"{before}```json\n{text}\n```{after}", None) == Verdict(data)
    assert judge(f"<think>{before}</think>{text}{after}", None) == Verdict(data)


@given(
    data=OBJECTS.filter(bool),
    cut=st.integers(1),
    wrapping=st.sampled_from(["", "```json\n", "So: ", "<think></think>"]),
)
def test_no_part_of_an_object_is_taken_for_an_answer(data: dict[str, Any], cut: int, wrapping: str) -> None:
    """A text that lacks its end or its beginning is an issue, not a smaller value."""
    text = json.dumps(data, ensure_ascii=False)
    cut = 1 + cut % (len(text) - 1)
    assert not judge(wrapping + text[:cut], None).is_valid
    assert not judge(text[cut:], compiled({"type": "object"})).is_valid


@given(
    st.lists(
        st.sampled_from(
            [
                '{"n":1}',
                "[",
                "]",
                "{",
                "}",
                '"',
                "\\",
                ":",
                ",",
                "```",
                "json\n",
                "<think>",
                "</think>",
                "<|channel|>",
                "final",
                "<|message|>",
                "<|end|>",
                "x",
                " ",
                "1",
            ]
        ),
        max_size=9,
    ).map("".join)
)
def test_data_always_stands_in_the_answer(text: str) -> None:
    """For any heap of wrappings: an issue, or a value that is a slice of the text."""
    verdict = judge(text, None)
    if verdict.is_valid:
        assert any(
            _loads(text[start:end]) == verdict.data
            for start in range(len(text))
            for end in range(start + 1, len(text) + 1)
        )


def _loads(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return ...


@pytest.mark.parametrize(
    "text",
    [
        "<think></think>" * 20_000,
        "</think>" * 30_000,
        "x</think>" * 30_000,
        '"' * 300_000,
        '"\\' * 100_000,
        "{a}" * 100_000,
        " " * 300_000 + "x",
        "x" + " " * 300_000,
        "```" * 100_000,
        ('"' + " " * 400) * 500 + ": {}",
        "<|channel|>final" * 20_000,
        '{"' + "\\\\" * 150_000,
    ],
    ids=lambda text: repr(text[:20]),
)
def test_a_long_answer_takes_no_long_time(text: str) -> None:
    """Everything is linear in the length: these would take minutes if it were not."""
    assert not judge(text, None).is_valid
