"""``promptkit render``, ``diff`` and ``schema generate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from promptkit import PreparedRun
from promptkit.cli._exit import Exit

HELLO = ("echo", "-i", "text=hello")


def save(command: Any, name: str, *arguments: str) -> str:
    """Run a subcommand with --json and keep what it prints in a file."""
    result = command.on_engine(*arguments, "--json")
    assert result.exit_code == Exit.OK, result.stderr
    command.project.write(name, result.stdout)
    return name


# -------------------------------------------------------------------------------------------------- render


def test_render_shows_messages_target_and_hashes(command: Any) -> None:
    """What a person needs in order to approve a run, and nothing on stderr."""
    command.project.write("profiles/main.yaml", "backend: local\nmodel: m1\ntemperature: 0\nmax_tokens: 9\n")
    result = command.on_engine("render", "extract", "-i", "text=A bill", "--session", "s-7")
    lines = result.stdout.splitlines()
    assert result.stderr == ""
    assert lines[0].startswith("prompt:      extract  sha256:")
    assert [line.split()[0] for line in lines[1:3]] == ["inputs:", "rendering:"]
    assert lines[3:8] == [
        "profile:     main",
        "target:      m1 at http://127.0.0.1:9/v1",
        "session:     s-7",
        "numbers:     temperature=0, max_tokens=9",
        "output:      json_schema",
    ]
    assert lines[8:] == ["", "--- system ---", "You extract.", "", "--- user ---", "A bill"]


def test_render_says_what_is_not_sent(command: Any) -> None:
    """No model and no numbers: the server decides."""
    command.project.write("profiles/main.yaml", "backend: local\n")
    stdout = command.on_engine("render", *HELLO).stdout
    assert "target:      (the server chooses) at" in stdout
    assert "numbers:     (none sent)" in stdout


def test_render_in_its_stable_form(command: Any) -> None:
    """--json prints the prepared-run form; --no-content leaves the messages out of both forms."""
    form = json.loads(command.on_engine("render", *HELLO, "--json").stdout)
    assert PreparedRun.from_dict(form).messages[0].content == "hello"
    for options in (["--no-content"], ["--no-content", "--json"]):
        stdout = command.on_engine("render", *HELLO, *options).stdout
        assert "hello" not in stdout
        assert form["hashes"]["rendered"] in stdout


def test_render_of_a_template_that_fails(command: Any) -> None:
    """The request cannot be served: exit code 3, with the place."""
    command.project.prompt("divide", "profile: main\nmessages:\n  - role: user\n    content: '{{ 1 // 0 }}'\n")
    result = command.on_engine("render", "divide")
    assert (result.exit_code, result.stdout) == (Exit.INVALID_REQUEST, "")
    assert "RenderError" in result.stderr
    assert "divide.yaml:4" in result.stderr


# ---------------------------------------------------------------------------------------------------- diff


def test_the_same_twice_is_no_difference(command: Any) -> None:
    """How long preparation took does not count."""
    before = save(command, "a.json", "render", *HELLO)
    after = save(command, "b.json", "render", *HELLO)
    result = command("diff", before, after)
    assert (result.exit_code, result.stdout, result.stderr) == (Exit.OK, "", "no differences\n")


def test_differences_are_told_by_part(command: Any) -> None:
    """Definition, inputs, rendering and target; text line by line."""
    before = save(command, "a.json", "render", *HELLO)
    command.project.prompt(
        "echo",
        """
        profile: main
        inputs: {text: {type: string}}
        messages:
          - role: system
            content: Be brief.
          - role: user
            content: "Say\\n{{ text }}"
        output: {format: json}
        """,
    )
    command.project.write("profiles/main.yaml", "backend: local\nmodel: m2\nseed: 7\n")
    after = save(command, "b.json", "run", "echo", "-i", "text=bye", "--dry-run")
    result = command("diff", before, after)
    assert result.exit_code == Exit.PROBLEMS
    lines = result.stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["definition:", "inputs:", "rendering:", "target:"]
    for expected in (
        "  1 messages -> 2 messages",
        '  message 1 role: "user" -> "system"',
        "    -hello",
        "    +Be brief.",
        '  output.format: "text" -> "json"',
        '  model: "m1" -> "m2"',
        "  seed: (absent) -> 7",
    ):
        assert expected in lines


def test_a_result_is_compared_by_what_was_sent(command: Any) -> None:
    """A result against what had been approved: nothing changed in between."""
    approved = save(command, "approved.json", "render", *HELLO)
    sent = save(command, "result.json", "run", *HELLO)
    assert command("diff", approved, sent).exit_code == Exit.OK


def test_forms_without_content_are_compared_by_their_hashes(command: Any) -> None:
    """What changed is named, what it was is not known."""
    before = save(command, "a.json", "render", *HELLO, "--no-content")
    after = save(command, "b.json", "render", "echo", "-i", "text=bye", "--no-content")
    result = command("diff", before, after)
    assert '  message 1 content_hash: "sha256:' in result.stdout


PREPARED: dict[str, Any] = {
    "kind": "promptkit.prepared-run/1",
    "hashes": {},
    "messages": [],
    "execution": {},
    "output": {},
}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe", "it is not UTF-8 text"),
        (b"{", "it is not JSON"),
        (b'{"kind": NaN}', "it is not JSON"),
        (b"[" * 10_000, "it is not JSON"),
        (b"[]", "its kind must be 'promptkit.prepared-run/1' or 'promptkit.run-result/1', not None"),
        (b'{"kind": "promptkit.run-result/1"}', "its kind must be"),
        (b'{"kind": "promptkit.run-result/1", "prepared": 5}', "its kind must be"),
        (json.dumps(PREPARED | {"hashes": None}).encode(), "the part 'hashes' is missing or is no object"),
        (json.dumps(PREPARED | {"execution": []}).encode(), "the part 'execution' is missing"),
        (json.dumps(PREPARED | {"messages": {}}).encode(), "the part 'messages' is missing or is no list of messages"),
        (json.dumps(PREPARED | {"messages": [5]}).encode(), "the part 'messages' is missing or is no list of messages"),
        (json.dumps(PREPARED | {"messages": [{"content": 5}]}).encode(), "the part 'messages'"),
    ],
)
def test_a_file_that_is_no_form(command: Any, content: bytes, said: str) -> None:
    """The file and what it should be are named; exit code 1."""
    command.project.write("good.json", json.dumps(PREPARED))
    command.project.write("bad.json", content)
    result = command("diff", "good.json", "bad.json")
    assert (result.exit_code, result.stdout) == (Exit.PROBLEMS, "")
    assert result.stderr.startswith("ConfigError: bad.json: ")
    assert said in result.stderr


def test_a_file_that_goes_away_in_between(tmp_path: Path) -> None:
    """The reason is told, as for a file without permission."""
    from promptkit.cli._diff import load_prepared
    from promptkit.errors import ConfigError

    with pytest.raises(ConfigError, match="cannot be read"):
        load_prepared(tmp_path)


# ----------------------------------------------------------------------------------------- schema generate


def test_a_schema_of_a_class_of_the_application(command: Any) -> None:
    """The class is found from the working directory; the schema can be saved as it is printed."""
    command.project.write(
        "records.py",
        """
        print("importing")
        import dataclasses

        @dataclasses.dataclass
        class Bill:
            total: float
            note: str = ""
        """,
    )
    result = command("schema", "generate", "records:Bill")
    schema = json.loads(result.stdout)
    assert schema["properties"].keys() == {"total", "note"}
    assert schema["required"] == ["total"]
    assert result.stderr == "importing\n"


@pytest.mark.parametrize(
    ("spec", "code", "said"),
    [
        ("records", Exit.USAGE, "a class is named as module:Class, not 'records'"),
        ("no_such_module:Bill", Exit.USAGE, "importing 'no_such_module' failed with ModuleNotFoundError"),
        ("records:Bil", Exit.USAGE, "has no class 'Bil'"),
        ("leaves:Bill", Exit.USAGE, "failed with SystemExit"),
        ("records:Plain", Exit.PROBLEMS, "neither an attrs class nor a dataclass nor a TypedDict"),
    ],
)
def test_a_class_that_has_no_schema(command: Any, spec: str, code: Exit, said: str) -> None:
    """A name of nothing is wrong usage, a class without a JSON form a problem."""
    command.project.write("records.py", "class Plain: pass\n")
    command.project.write("leaves.py", "raise SystemExit(0)\n")
    result = command("schema", "generate", spec)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in " ".join(result.stderr.split())
