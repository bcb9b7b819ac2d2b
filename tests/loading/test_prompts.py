"""Prompt files: what each key says, and what is said of mistakes."""

# ruff: noqa: E501 - tables of mistakes, one line each

from __future__ import annotations

from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._definitions import HistorySpec, InputSpec, MessageSpec, Place, PromptDefinition, TemplateText
from promptkit._loading import _input_specs
from promptkit._loading._prompts import parse_prompt
from promptkit._types import NO_OVERRIDE, ExecutionOverride, RetryPolicy
from promptkit.errors import DocumentError

MESSAGES = "messages: [{role: user, content: hello}]\n"


def parse(text: str) -> PromptDefinition:
    """Return what a prompt file says."""
    return parse_prompt(text.encode(), "p.yaml", "p")


def problems(text: str) -> list[str]:
    """Return what is wrong with a prompt file, each as ``line:column: message``."""
    with pytest.raises(DocumentError) as caught:
        parse(text)
    assert all(problem.path == "p.yaml" for problem in caught.value.problems)
    return [str(problem).removeprefix("p.yaml:") for problem in caught.value.problems]


def problem(text: str) -> str:
    """Return the only thing that is wrong with a prompt file."""
    (found,) = problems(text)
    return found


def input_problem(declaration: str) -> str:
    """Return the only thing that is wrong with an input's declaration, without its place."""
    return problem(MESSAGES + f"inputs:\n  n: {declaration}\n").split(": ", 1)[1]


# -------------------------------------------------------------------------------------- what a file says

WHOLE = """\
description: Extract the fields of an invoice.
profile: fast
inputs:
  text: {type: string, max_chars: 20000}
  language: {type: string, default: en, choices: [en, de], description: ISO 639-1}
  scan: {type: image, required: false, max_bytes: 1000}
  turns: {type: messages, required: false}
  items: {type: array, schema: {items: {type: integer}}}
session: "invoice-{{ customer }}"
messages:
  - role: system
    content: You extract invoices. Answer in {{ language }}.
  - history: turns
  - role: user
    content: |
      {{ text }}
    images: [scan]
output:
  format: json_schema
  schema: invoice.json
  strict: true
  repair: {max_attempts: 2}
execution:
  model: m
  temperature: 0
  max_tokens: 800
  stop: []
  retry: {budget: 0}
  extra_body: {provider: {order: [a, b]}}
x-owner: billing
"""


def test_a_whole_file_is_read() -> None:
    """Every part arrives, with its place."""
    prompt = parse(WHOLE)
    assert (prompt.id, prompt.path, prompt.description) == ("p", "p.yaml", "Extract the fields of an invoice.")
    assert (prompt.profile, prompt.profile_place) == ("fast", Place(2, 10))
    assert list(prompt.inputs) == ["text", "language", "scan", "turns", "items"]
    assert prompt.inputs["text"] == InputSpec(
        name="text", type="string", is_required=True, max_chars=20000, place=Place(4, 9)
    )
    assert prompt.inputs["language"] == InputSpec(
        name="language",
        type="string",
        is_required=False,
        has_default=True,
        default="en",
        choices=("en", "de"),
        description="ISO 639-1",
        place=Place(5, 13),
    )
    assert (prompt.inputs["scan"].is_required, prompt.inputs["scan"].max_bytes) == (False, 1000)
    assert prompt.inputs["items"].schema == {"items": {"type": "integer"}}
    assert prompt.inputs["items"].schema_positions["/items/type"] == Place(8, 47)
    assert prompt.session == TemplateText(source="invoice-{{ customer }}", place=Place(9, 10), first_line=9)
    assert prompt.messages == (
        MessageSpec(
            role="system",
            content=TemplateText(
                source="You extract invoices. Answer in {{ language }}.", place=Place(12, 14), first_line=12
            ),
            place=Place(11, 5),
        ),
        HistorySpec(input="turns", place=Place(13, 5)),
        MessageSpec(
            role="user",
            content=TemplateText(source="{{ text }}\n", place=Place(15, 14), first_line=16, is_block=True),
            images=("scan",),
            place=Place(14, 5),
        ),
    )
    assert (prompt.output.format, prompt.output.schema, prompt.output.is_strict) == (
        "json_schema",
        "invoice.json",
        True,
    )
    assert (prompt.output.repair_max_attempts, prompt.output.schema_place) == (2, Place(20, 11))
    assert prompt.output.positions == {}
    assert prompt.execution == ExecutionOverride(
        model="m",
        temperature=0,
        max_tokens=800,
        stop=(),
        retry=RetryPolicy(budget=0),
        extra_body={"provider": {"order": ["a", "b"]}},
    )


def test_a_small_file_is_enough() -> None:
    """Only messages are needed; everything else has its default."""
    prompt = parse(MESSAGES)
    assert (prompt.description, prompt.profile, prompt.session, dict(prompt.inputs)) == (None, None, None, {})
    assert (prompt.output.format, prompt.output.schema, prompt.output.is_strict) == ("text", None, False)
    assert prompt.output.repair_max_attempts == 1
    assert prompt.execution == NO_OVERRIDE


def test_zero_is_a_value() -> None:
    """0, 0.0, an empty string and an empty list are kept apart from what is absent."""
    execution = parse(
        MESSAGES + 'execution: {temperature: 0.0, seed: 0, stop: "", retry: {base_delay_s: 0}}\n'
    ).execution
    assert (execution.temperature, execution.seed, execution.stop) == (0.0, 0, ("",))
    assert execution.retry == RetryPolicy(base_delay_s=0)
    assert execution.top_p is None
    assert parse(MESSAGES + "output: {format: json, repair: {max_attempts: 0}}\n").output.repair_max_attempts == 0


def test_a_schema_in_place_has_positions() -> None:
    """Each part of it can be pointed at in the prompt file."""
    text = (
        MESSAGES
        + "output:\n  format: json_schema\n  schema:\n    properties:\n      a/b: {type: string, enum: [null]}\n"
    )
    output = parse(text).output
    assert output.schema == {"properties": {"a/b": {"type": "string", "enum": [None]}}}
    assert output.positions[""] == Place(5, 5)
    assert output.positions["/properties/a~1b/type"] == Place(6, 19)
    assert parse(MESSAGES + "output: {format: json_schema, schema: true}\n").output.schema is True


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        ("plain", TemplateText(source="plain", first_line=1)),
        ("'quoted' # note", TemplateText(source="quoted", first_line=1)),
        ("use C# and # that", TemplateText(source="use C# and", first_line=1, has_comment=True)),
        (">\n      a\n      b\n", TemplateText(source="a b\n", first_line=1, is_folded=True)),
        ("|-\n      a\n      b\n", TemplateText(source="a\nb", first_line=2, is_block=True)),
    ],
)
def test_a_template_knows_how_it_is_written(scalar: str, expected: TemplateText) -> None:
    """So that a later complaint finds its line, and a lint its cause."""
    (message,) = parse(f"messages: \n  - role: user\n    content: {scalar}\n").messages
    assert isinstance(message, MessageSpec)
    found = message.content
    first_line = expected.first_line + 2
    assert (found.source, found.first_line) == (expected.source, first_line)
    assert (found.is_block, found.is_folded, found.has_comment) == (
        expected.is_block,
        expected.is_folded,
        expected.has_comment,
    )


def test_a_message_of_images_needs_no_text() -> None:
    """The text part is then empty."""
    prompt = parse("inputs: {scan: {type: image}}\nmessages: [{role: user, images: [scan, scan]}]\n")
    (message,) = prompt.messages
    assert isinstance(message, MessageSpec)
    assert (message.content.source, message.images) == ("", ("scan", "scan"))


def test_notes_and_anchors_live_under_x_keys() -> None:
    """Keys that begin with x- are the author's own, at the top level."""
    text = "x-base: &b {temperature: 0.2, stop: [X]}\nexecution: {<<: *b, temperature: 0.9}\n" + MESSAGES
    assert parse(text).execution == ExecutionOverride(temperature=0.9, stop=("X",))
    assert "unknown key x-a in execution" in problem(MESSAGES + "execution: {x-a: 1}\n")


def test_the_same_text_gives_equal_definitions() -> None:
    """Definitions compare by value."""
    assert parse(WHOLE) == parse(WHOLE)


# ------------------------------------------------------------------------------------------- top level


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("description: x\n", "1:1: messages is missing"),
        ("messages: []\n", "1:11: messages is empty"),
        ("messages:\n", "1:1: messages is empty: give it a value"),
        ("messages: hello\n", "1:11: messages: expected a list of messages, got a string"),
        (MESSAGES + "message: []\n", "2:1: unknown key message; did you mean 'messages'?"),
        (MESSAGES + "qqq: 1\n", "2:1: unknown key qqq; known are description, profile, inputs, session, messages"),
        (MESSAGES + "qqq: 1\n", "a key for your own notes begins with x-"),
        (MESSAGES + "temperature: 1\n", "2:1: unknown key temperature: temperature belongs in execution"),
        (MESSAGES + "schema: x.json\n", "2:1: unknown key schema: schema belongs in output"),
        (MESSAGES + "role: user\n", "2:1: unknown key role: role belongs in an entry of messages"),
        (MESSAGES + "system: hello\n", "write messages: [{role: system, content: …}]"),
        (MESSAGES + "endpoint: http://x\n", "endpoint belongs in a profile"),
        (MESSAGES + "api-key: x\n", "a prompt holds no credential"),
        (MESSAGES + "concurrency_limit: 4\n", "concurrency_limit belongs to the Backend in code"),
        (MESSAGES + "max_attempts: 4\n", "max_attempts belongs in output, under repair"),
        (MESSAGES + "version: 1.10\n", "such as x-version"),
        (MESSAGES + "description: 1.10\n", '2:14: description must be a string, not a number: quote 1.10 as "1.10"'),
        (MESSAGES + "description: true\n", 'description must be a string, not a boolean: quote true as "true"'),
        (MESSAGES + "description: [a]\n", "description must be a string, not a list"),
        (MESSAGES + "profile: ''\n", "2:10: profile is empty: give it a value or leave the key out"),
        (
            MESSAGES + "profile: ../x\n",
            '2:10: profile: "../x" cannot name a profile: it contains .. and would lead outside',
        ),
        (MESSAGES + "session: ~\n", "2:10: session is empty: give it a value or leave the key out"),
        (MESSAGES + "inputs: [a]\n", "2:9: inputs: expected a mapping, got a list"),
        (MESSAGES + "inputs:\n", "2:1: inputs is empty: give it a value or leave the key out"),
        (MESSAGES + "output: json\n", "2:9: output: expected a mapping, got a string"),
        (MESSAGES + "execution: 3\n", "2:12: execution: expected a mapping, got an integer"),
    ],
)
def test_mistakes_at_the_top_are_told(text: str, told: str) -> None:
    """Missing, misspelt, misplaced and mistyped keys have a place and a cure."""
    assert told in problem(text)


def test_a_tagged_file_is_told_once() -> None:
    """What is wrong with the whole is not told again of its kind."""
    assert problem("!prompt\n" + MESSAGES).startswith('1:1: tag "!prompt" is not allowed')


def test_the_number_of_problems_is_bounded() -> None:
    """A file of another kind altogether does not make an endless message."""
    assert len(problems("".join(f"k{number}: 1\n" for number in range(500)))) == 100


def test_a_problem_of_the_reader_and_others_are_told_together() -> None:
    """A duplicate key does not hide an unknown one; nothing is told twice of one value."""
    found = problems(MESSAGES + "profile: 010\nprofile: a\nfoo: 1\nexecution: {max_tokens: !x 3, seed: .inf}\n")
    assert [line.partition(": ")[0] for line in found] == ["2:10", "3:1", "4:1", "5:25", "5:37"]


# ------------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("hello", "messages[0]: expected a mapping, got a string"),
        ("{}", "messages[0].role is missing"),
        ("{role: user}", "messages[0].content is missing"),
        ("{content: x}", "messages[0].role is missing"),
        ("{role: usr, content: x}", "messages[0].role: expected system or user or assistant, got \"usr\"; did you mean 'user'?"),
        ("{role: 3, content: x}", "messages[0].role: expected system or user or assistant, got 3"),
        ("{role: user, content: 3}", 'messages[0].content must be a string, not an integer: quote 3 as "3"'),
        ("{role: user, content: ''}", "messages[0].content is empty"),
        ("{role: user, content: }", "messages[0].content is empty"),
        ("{role: user, content: {a: b}}", "messages[0].content must be a string, not a mapping"),
        ("{role: user, text: x, content: x}", "unknown key text in messages[0]: write content"),
        ("{role: user, content: x, history: turns}", "history is an entry of its own"),
        ("{role: user, content: x, images: scan}", "messages[0].images: expected a list of names of image inputs, got a string"),
        ("{role: user, content: x, images: [scam]}", "messages[0].images[0]: there is no input called scam; did you mean 'scan'?"),
        ("{role: user, content: x, images: [zzz]}", "there is no input called zzz; declare it in inputs with type: image"),
        ("{role: user, content: x, images: [text]}", "the input text is of type string; expected one of type image"),
        ("{role: user, content: x, images: [3]}", "messages[0].images[0] must be a string, not an integer"),
        ("{role: system, content: x, images: [scan]}", "messages[0].images: only messages of role user carry images"),
        ("{history: text}", "messages[0].history: the input text is of type string; expected one of type messages"),
        ("{history: nope}", "messages[0].history: there is no input called nope"),
        ("{history: 3}", "messages[0].history must be a string, not an integer"),
        ("{history: turns, max: 3}", "unknown key max in messages[0]; known are history"),
    ],
)  # fmt: skip
def test_mistakes_in_messages_are_told(entry: str, told: str) -> None:
    """Each entry is checked against the inputs that are declared."""
    inputs = "inputs: {text: {type: string}, scan: {type: image}, turns: {type: messages}}\n"
    assert any(told in found for found in problems(f"{inputs}messages:\n  - {entry}\n"))


def test_an_input_that_is_wrong_itself_is_not_told_to_be_missing() -> None:
    """One mistake, one problem."""
    text = "inputs: {scan: {type: imag}}\nmessages: [{role: user, content: x, images: [scan]}]\n"
    assert "inputs.scan.type: expected " in problem(text)


def test_no_message_shows_prompt_text() -> None:
    """What stands where a mapping should be is told by its kind."""
    text = "messages:\n  - top secret words\n  - {role: user, content: [top secret words]}\n"
    assert "secret" not in " ".join(problems(text))


# --------------------------------------------------------------------------------------------- inputs


@pytest.mark.parametrize(
    ("declaration", "told"),
    [
        ("string", "inputs.n: expected a mapping; write {type: string}"),
        ("strong", "inputs.n: expected a mapping, got a string"),
        ("{}", "inputs.n.type is missing: one of string, integer"),
        ("{type: strng}", "inputs.n.type: expected string or integer or number"),
        ("{type: string, optional: true}", "unknown key optional in inputs.n: write required: false"),
        ("{type: string, enum: [a]}", "unknown key enum in inputs.n: write choices"),
        ("{type: string, required: no}", 'inputs.n.required: expected true or false, got "no"'),
        ("{type: string, default: 5}", 'inputs.n.default: expected a string, got an integer: quote 5 as "5"'),
        ("{type: string, default: true}", 'inputs.n.default: expected a string, got a boolean: quote true as "true"'),
        ("{type: string, default: [a]}", "inputs.n.default: expected a string, got a list"),
        ("{type: string, default: ~}", "inputs.n.default is empty: give it a value, or write required: false"),
        ("{type: string, default: a, required: true}", "inputs.n.required: an input with a default is never required"),
        ("{type: string, default: abc, max_chars: 2}", "inputs.n.default is longer than max_chars: 3 characters, 2 allowed"),
        ("{type: string, default: c, choices: [a, b]}", 'inputs.n.default: "c" is not one of the choices'),
        ("{type: integer, default: 1.0}", "inputs.n.default: expected an integer, got 1.0"),
        ("{type: integer, default: '1'}", 'inputs.n.default: expected an integer, got "1"'),
        ("{type: integer, default: true}", "inputs.n.default: expected an integer, got true"),
        ("{type: number, default: x}", 'inputs.n.default: expected a number, got "x"'),
        ("{type: boolean, default: yes}", 'inputs.n.default: expected true or false, got "yes"'),
        ("{type: boolean, default: 1}", "inputs.n.default: expected true or false, got 1"),
        ("{type: array, default: {}}", "inputs.n.default: expected a list, got a mapping"),
        ("{type: object, default: []}", "inputs.n.default: expected a mapping, got a list"),
        ("{type: file, default: a}", "inputs.n.default: an input of type file has no default"),
        ("{type: messages, default: []}", "inputs.n.default: an input of type messages has no default"),
        ("{type: string, choices: a}", "inputs.n.choices: expected a list of values of type string, got a string"),
        ("{type: string, choices: []}", "inputs.n.choices is empty"),
        ("{type: string, choices: [a, 1]}", "inputs.n.choices[1]: expected a string, got an integer"),
        ("{type: string, choices: [a, ~]}", "inputs.n.choices[1] is empty"),
        ("{type: integer, choices: [1, 2, 1]}", "inputs.n.choices[2]: 1 stands twice"),
        ("{type: boolean, choices: [true]}", "inputs.n.choices: only inputs of type string, integer, number have it"),
        ("{type: integer, max_chars: 3}", "inputs.n.max_chars: only inputs of type string, file have it, this one is of type integer"),
        ("{type: string, max_bytes: 3}", "inputs.n.max_bytes: only inputs of type file, image have it"),
        ("{type: string, max_chars: 0}", "inputs.n.max_chars: expected an integer of at least 1, got 0"),
        ("{type: string, max_chars: 1e3}", "inputs.n.max_chars: expected an integer of at least 1, got 1e3"),
        ("{type: string, max_chars: '20,000'}", 'got "20,000"; write 20000 without quotes, underscores or commas'),
        ("{type: image, schema: {}}", "inputs.n.schema: only inputs of type string,"),
        ("{type: string, schema: 3}", "inputs.n.schema: expected a schema in place or the name of a schema file, got an integer"),
        ("{type: string, schema: /etc/passwd}", 'inputs.n.schema: "/etc/passwd" cannot be a file under the schema root: it is an absolute path'),
        ("{type: string, schema: }", "inputs.n.schema is empty"),
    ],
)  # fmt: skip
def test_mistakes_in_inputs_are_told(declaration: str, told: str) -> None:
    """Defaults, choices and limits are checked against the type and each other."""
    assert told in input_problem(declaration)


@pytest.mark.parametrize(
    ("declaration", "default"),
    [
        ("{type: integer, default: 0}", 0),
        ("{type: number, default: 1}", 1),
        ("{type: number, default: 1.5, choices: [1.5, 2]}", 1.5),
        ("{type: boolean, default: false}", False),
        ("{type: string, default: ''}", ""),
        ("{type: array, default: [1, [~]]}", [1, [None]]),
        ("{type: object, default: {a: {b: ~}}}", {"a": {"b": None}}),
        ("{type: string, default: 2024-01-02}", "2024-01-02"),
    ],
)
def test_a_default_makes_an_input_optional(declaration: str, default: Any) -> None:
    """Falsy defaults are defaults; lists and mappings may hold anything that JSON can."""
    spec = parse(MESSAGES + f"inputs:\n  n: {declaration}\n").inputs["n"]
    assert (spec.has_default, spec.default, spec.is_required) == (True, default, False)


def test_an_input_is_required_unless_told_otherwise() -> None:
    """Absent, true and false."""
    inputs = parse(
        MESSAGES + "inputs: {a: {type: file}, b: {type: file, required: true}, c: {type: file, required: false}}\n"
    ).inputs
    assert [inputs[name].is_required for name in "abc"] == [True, True, False]


@pytest.mark.parametrize("name", ["1a", "a-b", "a b", "a.b", "for-each", "", "a!"])
def test_a_name_that_no_template_can_use_is_refused(name: str) -> None:
    """Names are identifiers."""
    assert "cannot be the name of an input" in problem(MESSAGES + f'inputs: {{"{name}": {{type: string}}}}\n')


@pytest.mark.parametrize("name", ["\ufb01t", "gro\u0308\u00dfe", "x\u2102"])
def test_a_name_with_two_spellings_is_refused(name: str) -> None:
    """A ligature, a letter and its accent apart, a letter of another style: Python takes them for other names."""
    assert "normal form NFKC" in problem(MESSAGES + f'inputs: {{"{name}": {{type: string}}}}\n')


def test_many_choices_take_no_time() -> None:
    """Each is looked up, not compared with all others."""
    choices = ", ".join(f"c{number}" for number in range(20_000))
    spec = parse(MESSAGES + f"inputs: {{n: {{type: string, choices: [{choices}]}}}}\n").inputs["n"]
    assert len(spec.choices or ()) == 20_000


@pytest.mark.parametrize("name", sorted(_input_specs.RESERVED_NAMES))
def test_a_name_that_templates_use_themselves_is_refused(name: str) -> None:
    """Such an input could not be reached, or would hide what templates rely on."""
    assert "templates use this name themselves" in problem(MESSAGES + f'inputs: {{"{name}": {{type: string}}}}\n')


@given(
    st.one_of(
        st.from_regex(r"[^\W\d]\w{0,8}", fullmatch=True),
        st.sampled_from(
            ["class", "import", "from", "lambda", "set", "block", "for", "include", "macro", "raw", "_", "do"]
        ),
    ).filter(lambda name: _input_specs._name_fault(name) is None)
)
def test_every_name_that_is_allowed_can_be_used_in_a_template(name: str) -> None:
    """Words of Python and of Jinja's statements are names like any other in an expression."""
    template = jinja2.Environment(autoescape=False, undefined=jinja2.StrictUndefined).from_string("{{ " + name + " }}")
    assert template.render({name: "value"}) == "value"


# ------------------------------------------------------------------------------- output and execution


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("{format: xml}", 'output.format: expected text or json or json_schema, got "xml"'),
        ("{format: json_shema, schema: a.json}", "did you mean 'json_schema'?"),
        ("{format: json_schema}", "output.schema is missing: format json_schema needs one"),
        ("{format: json, schema: a.json}", "output.schema needs format: json_schema, not json"),
        ("{schema: a.json}", "output.schema needs format: json_schema, not text (the default)"),
        ("{strict: true}", "output.strict needs format: json_schema, not text (the default)"),
        ("{strict: !x true}", 'tag "!x" is not allowed'),
        ("{strict: no}", 'output.strict: expected true or false, got "no"'),
        ("{strict: 'true'}", 'output.strict: expected true or false, got "true"'),
        ("{format: json_schema, schema: [a]}", "output.schema: expected a schema in place or the name of a schema file, got a list"),
        ("{format: json_schema, schema: }", "output.schema is empty"),
        ("{format: json_schema, schema: ''}", "cannot be a file under the schema root: it is empty"),
        ("{format: json_schema, schema: ../x.json}", "it contains .. and would lead outside"),
        ("{format: json, max_attempts: 2}", "unknown key max_attempts in output: max_attempts belongs in repair"),
        ("{format: json, temperature: 0}", "unknown key temperature in output: temperature belongs in execution"),
        ("{format: json, repair: 2}", "output.repair: expected a mapping, got an integer"),
        ("{format: json, repair: {max_attempts: 11}}", "output.repair.max_attempts: expected an integer from 0 to 10, got 11"),
        ("{format: json, repair: {max_attempts: -1}}", "expected an integer from 0 to 10, got -1"),
        ("{format: json, repair: {max_attempts: true}}", "expected an integer from 0 to 10, got true"),
        ("{format: json, repair: {attempts: 1}}", "unknown key attempts in output.repair; did you mean 'max_attempts'?"),
    ],
)  # fmt: skip
def test_mistakes_in_output_are_told(output: str, told: str) -> None:
    """Format, schema and strictness go together."""
    assert told in problem(MESSAGES + f"output: {output}\n")


def test_strict_false_needs_no_schema() -> None:
    """It says what is so anyway."""
    assert parse(MESSAGES + "output: {strict: false}\n").output.is_strict is False


@pytest.mark.parametrize(
    ("execution", "told"),
    [
        ("{temperature: -0.1}", "execution.temperature: expected a number of at least 0, got -0.1"),
        ("{temperature: hot}", 'execution.temperature: expected a number of at least 0, got "hot"'),
        ("{temperature: '0.2'}", 'got "0.2"'),
        ("{temperature: true}", "got true"),
        ("{top_p: 1.5}", "execution.top_p: expected a number from 0 to 1, got 1.5"),
        ("{max_tokens: 0}", "execution.max_tokens: expected an integer of at least 1, got 0"),
        ("{max_tokens: 10.5}", "expected an integer of at least 1, got 10.5"),
        ("{max_tokens: 1_000}", 'got "1_000"; write 1000 without quotes, underscores or commas'),
        ("{max_tokens: 0100}", "0100 has a leading zero"),
        ("{seed: 1.5}", "execution.seed: expected an integer, got 1.5"),
        ("{timeout_s: 0}", "execution.timeout_s: expected a number above 0 and at most 86400, got 0"),
        ("{timeout_s: 86401}", "got 86401"),
        ("{timeout: 3}", "unknown key timeout in execution: write timeout_s, in seconds"),
        ("{model: 1.10}", 'execution.model must be a string, not a number: quote 1.10 as "1.10"'),
        ("{model: }", "execution.model is empty"),
        ("{stop: 3}", 'execution.stop must be a string, not an integer: quote 3 as "3"'),
        ("{stop: [a, 3]}", "execution.stop[1] must be a string"),
        ("{stop: }", "execution.stop is empty"),
        ("{retry: 3}", "execution.retry: expected a mapping, got an integer"),
        ("{retry: {budget: 101}}", "execution.retry.budget: expected an integer from 0 to 100, got 101"),
        ("{retry: {max_retries: 1}}", "unknown key max_retries in execution.retry"),
        ("{budget: 1}", "unknown key budget in execution: budget belongs in retry"),
        ("{extra_body: [a]}", "execution.extra_body: expected a mapping, got a list"),
        ("{extra_body: {stream: true}}", "execution.extra_body: the field stream is set by the client"),
        ("{endpoint: http://x}", "unknown key endpoint in execution: endpoint belongs in a profile"),
        ("{headers: {}}", "headers belongs in a profile"),
        ("{api_key: sk-1}", "a prompt holds no credential"),
        ("{queue_capacity: 1}", "queue_capacity belongs to the Backend in code"),
        ("{profile: x}", "unknown key profile in execution: profile belongs at the top level"),
    ],
)  # fmt: skip
def test_mistakes_in_execution_are_told(execution: str, told: str) -> None:
    """Ranges are told with the value; what belongs elsewhere is told where."""
    found = problem(MESSAGES + f"execution: {execution}\n")
    assert told in found
    assert "sk-1" not in found


def test_null_inside_extra_body_is_a_value() -> None:
    """Some servers give null a meaning of its own."""
    assert parse(MESSAGES + "execution: {extra_body: {a: ~}}\n").execution.extra_body == {"a": None}


# ---------------------------------------------------------------------------------------------- fuzz


@given(st.data())
def test_a_damaged_file_is_read_or_refused(data: st.DataObject) -> None:
    """Cutting out, doubling and moving pieces of a file never gives anything but `DocumentError`."""
    text = WHOLE
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(start + 12, len(text))))
        piece = data.draw(
            st.sampled_from(["", text[start:end] * 2, ": ", "\n", "~", "[", "&a ", "*a", "3", "'", "{}", "- "])
        )
        text = text[:start] + piece + text[end:]
    try:
        parse(text)
    except DocumentError as error:
        assert len(error.problems) <= 100  # noqa: PT017 - accepted files are fine, too
