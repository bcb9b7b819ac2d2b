"""The pages on templates say what is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from promptkit._render import Renderer, _limits
from promptkit._render._analysis import LEFT_OUT
from promptkit._render._sandbox import GLOBALS
from support.prompts import Prompts

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = (DOCS / "reference/templates.md").read_text(encoding="utf-8")
HOW_TO = (DOCS / "how-to/few-shot-and-history.md").read_text(encoding="utf-8")
PROMPTS = re.findall(r"```yaml\n(.*?)```", HOW_TO, re.DOTALL)


@pytest.fixture
def prompts(tmp_path: Path) -> Prompts:
    """An empty prompts folder."""
    return Prompts(tmp_path)


def listed(heading: str) -> set[str]:
    """Return the names in the first paragraph below a heading."""
    section = REFERENCE.split(f"\n## {heading}\n", 1)[1].strip()
    return set(re.findall(r"`([^`]+)`", section.split("\n\n", 1)[0]))


def test_the_reference_lists_what_there_is(tmp_path: Path) -> None:
    """Filters, tests and functions, no more and no fewer."""
    sandbox = Renderer(tmp_path)._sandbox
    assert listed("Filters") == {name for name in sandbox.filters if not name.startswith(" ")}
    assert listed("Tests") == set(sandbox.tests)
    assert listed("Functions and methods") == set(GLOBALS) == set(sandbox.globals)
    assert not set(LEFT_OUT) & set(sandbox.filters)


@pytest.mark.parametrize("name", ["MAX_OUTPUT_CHARS", "MAX_MADE_CHARS", "MAX_STEPS", "MAX_WIDTH", "MAX_FILE_BYTES"])
def test_the_reference_tells_the_bounds(name: str) -> None:
    """As they are."""
    assert f"{getattr(_limits, name):,}".replace(",", " ") in REFERENCE


def test_the_reference_tells_the_truth_about_white_space(prompts: Prompts) -> None:
    """The example gives what it says."""
    template = REFERENCE.split("```jinja\n", 1)[1].split("```", 1)[0]
    assert prompts.text(template, items=["a", "b"], urgent=True) == "- a\n- b\nTotal: 2 (urgent)\nAnswer in English.\n"
    assert prompts.text(template, items=["a"], urgent=False) == "- a\nTotal: 1\nAnswer in English.\n"


def test_the_reference_tells_the_truth_about_braces(prompts: Prompts) -> None:
    """The example is text all over."""
    template = REFERENCE.split("```jinja\n", 2)[2].split("```", 1)[0]
    assert prompts.text(template) == ('Reply like {"total": 1}.\n<div style={{color: "red"}}>\\frac{#1}{2}</div>\n')


@pytest.mark.parametrize("number", range(len(PROMPTS)))
def test_the_prompts_of_the_guide_have_no_problem(prompts: Prompts, number: int) -> None:
    """Each loads and is found right."""
    prompts.write(PROMPTS[number])
    assert prompts.check() == []


def test_the_guide_splices_and_sums_up_a_history(prompts: Prompts) -> None:
    """As it says."""
    turns = [{"role": "user", "content": "{{ hi }}"}, {"role": "assistant", "content": "b"}]
    prompts.write(PROMPTS[1])
    messages = prompts.render(examples=turns, ticket="t")
    assert [(message.role, message.content) for message in messages[1:]] == [
        ("user", "{{ hi }}"),
        ("assistant", "b"),
        ("user", "t"),
    ]
    prompts.write(PROMPTS[3])
    assert prompts.render(turns=turns)[0].content.endswith("sentences.\n\nuser: {{ hi }}\nassistant: b\n")
