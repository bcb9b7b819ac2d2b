"""``promptkit check``: the examples are clean, and each kind of mistake in them is found where it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from promptkit.cli._exit import Exit

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = ("prompts", "profiles", "schemas")
PROMPT = "prompts/receipt/extract.yaml"
PROFILE = "profiles/local.yaml"
SCHEMA = "schemas/receipt.schema.json"


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of the examples that a test may spoil."""
    for folder in FOLDERS:
        shutil.copytree(EXAMPLES / folder, tmp_path / "examples" / folder)
    return tmp_path / "examples"


def replaced(before: str, after: str) -> Callable[[str], tuple[str, int, int]]:
    """Return a mistake: the first ``before`` of a file becomes ``after``; its place is where they begin to differ.

    In ``after``, a ``^`` marks the place that should be told, where it is another one.
    """

    def plant(text: str) -> tuple[str, int, int]:
        place = text.index(before) + max(after.find("^"), 0)
        text = text.replace(before, after.replace("^", "", 1), 1)
        return text, text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)

    return plant


def appended(line: str) -> Callable[[str], tuple[str, int, int]]:
    """Return a mistake: one more line at the end of a file; ``^`` marks the place that should be told."""

    def plant(text: str) -> tuple[str, int, int]:
        assert text.endswith("\n")
        return text + line.replace("^", "", 1) + "\n", text.count("\n") + 1, line.find("^") + 1

    return plant


MISTAKES: dict[str, tuple[str, Callable[[str], tuple[str, int, int]], str]] = {
    "a typo in a key": (PROMPT, replaced("messages:", "mesages:"), "did you mean 'messages'?"),
    "an unknown input in a template": (
        PROMPT,
        replaced('"{{ receipt }}"', '^"{{ reciept }}"'),
        "did you mean 'receipt'?",
    ),
    "an input that nothing uses": (
        PROMPT,
        replaced("  receipt: {", "  customer: ^{type: string}\n  receipt: {"),
        "input 'customer' is declared and never used",
    ),
    "indentation": (PROMPT, replaced("  - role: system\n    content:", "  - role: system\n   ^content:"), ""),
    "a duplicate key": (PROMPT, appended("^profile: local"), "duplicate key"),
    "an unknown profile": (PROMPT, replaced("profile: local", "profile: ^locale"), "did you mean 'local'?"),
    "a typo in a schema keyword": (SCHEMA, replaced('"required": [', '"requried": ^['), "did you mean required?"),
    "a number out of range": (PROFILE, appended("top_p: ^1.5"), "1"),
    "a number of the wrong kind": (PROMPT, replaced("max_attempts: 2", "max_attempts: ^two"), "max_attempts"),
    "a literal key": (PROFILE, appended("^api_key: sk-123456789"), "api_key_env"),
    "a template that does not parse": (PROMPT, replaced('"{{ receipt }}"', '^"{{ receipt }"'), "unexpected '}'"),
    "a schema that is not there": (
        PROMPT,
        replaced("schema: receipt.schema.json", "schema: ^reciept.schema.json"),
        "receipt.schema.json",
    ),
    "a type that is none": (PROMPT, replaced("{type: string,", "{type: ^text,"), "string"),
    "a role that is none": (PROMPT, replaced("role: assistant", "role: ^assistent"), "did you mean 'assistant'?"),
    "what keeps a schema from being strict": (
        PROMPT,
        replaced("schema: receipt.schema.json", "schema: {properties: {total: {type: number}}}\n  strict: ^true"),
        "cannot be sent as strict",
    ),
}


def test_the_examples_are_clean(command: Any) -> None:
    """Nothing on stdout, and exit code 0."""
    result = command("check", str(EXAMPLES))
    assert (result.exit_code, result.stdout, result.stderr) == (Exit.OK, "", "no problems\n")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found_by_its_line(command: Any, examples: Path, name: str) -> None:
    """One problem, at the very line that was changed, in the form that editors jump to; exit code 1."""
    file, plant, said = MISTAKES[name]
    path = examples / file
    text, line, column = plant(path.read_text("utf-8"))
    path.write_text(text, "utf-8")
    result = command("check", str(examples))
    assert result.exit_code == Exit.PROBLEMS
    found = [problem.split(": ", 1) for problem in result.stdout.splitlines()]
    places = [place for place, _ in found]
    assert places, result.stdout
    assert all(place.startswith(f"{path}:") for place in places), result.stdout
    assert f"{path}:{line}:{column}" in places, result.stdout
    assert any(said in message for _, message in found), result.stdout
    assert result.stderr == ("1 problem\n" if len(found) == 1 else f"{len(found)} problems\n")
    assert "sk-123456789" not in result.output


def test_many_mistakes_are_found_at_once(command: Any, examples: Path) -> None:
    """Each file's, in the order of path and line."""
    spoiled = ["a typo in a schema keyword", "a number out of range", "a literal key", "an input that nothing uses"]
    for name in spoiled:
        file, plant, _ = MISTAKES[name]
        path = examples / file
        path.write_text(plant(path.read_text("utf-8"))[0], "utf-8")
    result = command("check", str(examples))
    assert result.exit_code == Exit.PROBLEMS
    problems = result.stdout.splitlines()
    assert len(problems) >= len(spoiled)
    files = [problem.partition(":")[0] for problem in problems]
    assert files == sorted(files)
    assert set(files) == {str(examples / name) for name in (PROMPT, PROFILE, SCHEMA)}


def test_problems_as_json(command: Any, examples: Path) -> None:
    """--json prints a list for programs, empty where all is well."""
    assert json.loads(command("check", str(examples), "--json").stdout) == []
    path = examples / PROFILE
    path.write_text(path.read_text("utf-8") + "top_p: 1.5\n", "utf-8")
    result = command("check", str(examples), "--json")
    assert result.exit_code == Exit.PROBLEMS
    (problem,) = json.loads(result.stdout)
    assert problem.keys() == {"path", "line", "column", "message"}
    assert problem["path"] == str(path)


def test_an_unknown_backend_is_only_known_with_an_engine(command: Any) -> None:
    """Without --engine the backends of the application are not there to compare with."""
    command.project.write("profiles/main.yaml", "backend: locale\nmodel: m1\n")
    assert command("check").exit_code == Exit.OK
    result = command.on_engine("check")
    assert result.exit_code == Exit.PROBLEMS
    assert "profiles/main.yaml:1:10: backend: no backend is called 'locale'; did you mean 'local'?" in result.stdout


def test_paths_are_as_the_folder_was_named(command: Any, examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the working directory, so that an editor can open them."""
    path = examples / PROFILE
    path.write_text("backend: local\ntop_p: 1.5\n", "utf-8")
    monkeypatch.chdir(examples.parent)
    assert command("check", "examples").stdout.startswith(f"examples/{PROFILE}:2:")
    monkeypatch.chdir(examples)
    assert command("check").stdout.startswith(f"{PROFILE}:2:")
