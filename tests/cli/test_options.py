"""What the arguments name: engines, inputs and settings, and how wrong ones are refused."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from promptkit.cli import _context
from promptkit.cli._exit import Exit

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16

TYPED = """
profile: main
inputs:
  text: {type: string, default: none}
  count: {type: integer, default: 0}
  share: {type: number, default: 0}
  on: {type: boolean, default: false}
  tags: {type: array, default: []}
  item: {type: object, default: {}}
  note: {type: file, required: false}
  scan: {type: image, required: false}
  turns: {type: messages, required: false}
messages:
  - role: user
    content: "{{ text }}|{{ count }}|{{ share }}|{{ on }}|{{ tags | tojson }}|{{ item | tojson }}|{% if note is defined %}{{ note }}{% endif %}"
    images: [scan]
  - history: turns
"""  # noqa: E501  # one template


def rendered(command: Any, *arguments: str, stdin: str | bytes | None = None) -> str:
    """Return the first message that the prompt ``typed`` renders to."""
    command.project.prompt("typed", TYPED)
    result = command.on_engine("render", "typed", "--json", *arguments, stdin=stdin)
    assert result.exit_code == Exit.OK, result.stderr
    content: str = json.loads(result.stdout)["messages"][0]["content"]
    return content


def refused(command: Any, *arguments: str, stdin: str | bytes | None = None) -> str:
    """Return what stderr says about arguments of the prompt ``typed`` that are wrong usage."""
    command.project.prompt("typed", TYPED)
    result = command.on_engine("render", "typed", *arguments, stdin=stdin)
    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
    said: str = result.stderr
    assert said.startswith("Usage: promptkit render ")
    return " ".join(said.split())


# ------------------------------------------------------------------------------------------------- inputs


def test_each_input_is_read_as_its_type_asks(command: Any) -> None:
    """A string as it is, everything else as JSON."""
    values = ["text=5", "count=5", "share=2.5", "on=true", 'tags=["a"]', 'item={"k": [1]}']
    content = rendered(command, *[part for value in values for part in ("-i", value)])
    assert content.startswith('5|5|2.5|True|["a"]|{"k": [1]}')


def test_a_value_may_have_equals_signs_and_line_breaks(command: Any) -> None:
    """Only the first = separates."""
    assert rendered(command, "-i", "text=a=b\nc").startswith("a=b\nc|")


def test_a_file_is_read_for_any_type(command: Any) -> None:
    """The text of a string, the JSON of an array, the bytes of a file; a byte order mark is dropped."""
    command.project.write("note.txt", b"\xef\xbb\xbfGr\xc3\xbc\xc3\x9fe")
    command.project.write("tags.json", '["x", "y"]')
    content = rendered(command, "-i", "text=@note.txt", "-i", "tags=@tags.json", "-i", "note=@note.txt")
    assert content == 'Grüße|0|0|False|["x", "y"]|{}|Grüße'


def test_images_and_histories(command: Any) -> None:
    """An image is read from its file, whatever it is called; earlier turns are JSON."""
    command.project.write("scan.bin", PNG)
    command.project.prompt("typed", TYPED)
    turns = '[{"role": "assistant", "content": "before"}]'
    result = command.on_engine("render", "typed", "-i", "scan=@scan.bin", "-i", f"turns={turns}")
    assert "[image: image/png, sha256:" in result.stdout
    assert "--- assistant ---\nbefore" in result.stdout


def test_standard_input(command: Any) -> None:
    """@- reads it whole."""
    assert rendered(command, "-i", "text=@-", stdin="from a pipe\n").startswith("from a pipe\n|")


def test_an_at_sign_that_is_meant(command: Any) -> None:
    """@@ stands for one of them."""
    assert rendered(command, "-i", "text=@@alice").startswith("@alice|")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-i", "text"), "-i takes name=value"),
        (("-i", "=secret"), "-i takes name=value"),
        (("-i", "text=a", "-i", "text=b"), "-i text: given twice"),
        (("-i", "text=@-", "-i", "note=@-"), "-i note: standard input can be read once, and text has it"),
        (("-i", "text=@missing.txt"), "-i text: 'missing.txt' cannot be read: No such file or directory"),
        (("-i", "text=@data"), "-i text: 'data' cannot be read: Is a directory"),
        (("-i", "text=@"), "-i text: after @ comes the path of a file"),
        (("-i", "text=@latin.txt"), "-i text: 'latin.txt', line 2: not UTF-8"),
        (("-i", "note=words"), "-i note: this input is of type file; name a file with note=@path"),
        (("-i", "count=five"), "-i count: this input is of type integer, so its value must be JSON"),
        (("-i", "on=True"), "-i on: this input is of type boolean, so its value must be JSON"),
        (("-i", "tags=[1,]"), "a comma before ']'"),
        (("-i", "share=NaN"), "NaN"),
        (("-i", "tags=" + "[" * 10_000 + "]" * 10_000), "very deep nesting"),
        (("-i", 'item={"a": 1, "a": 2}'), "without repeated keys"),
        (("-i", "count=" + "9" * 5000), "numbers beyond a double"),
        (("--set", "temprature=0"), "--set: there is no setting 'temprature'; did you mean 'temperature'?"),
        (("--set", "zzz=0"), "there are temperature, top_p,"),
        (("--set", "seed"), "--set seed: takes seed=VALUE"),
        (("--set", "seed=one"), "--set seed: the value must be JSON"),
        (("--set", "top_p=7"), "--set: "),
        (("--timeout", "5"), "No such option"),
    ],
)
def test_wrong_arguments_are_wrong_usage(command: Any, arguments: tuple[str, ...], said: str) -> None:
    """The option is named, and what would be right; exit code 2."""
    command.project.write("latin.txt", b"one\ntw\xf6\n")
    assert said in refused(command, *arguments)


def test_no_input_value_is_shown(command: Any) -> None:
    """A secret that is given the wrong way does not appear on the screen."""
    for arguments in (("-i", "hunter2"), ("-i", "count=hunter2"), ("-i", 'item={"hunter2": 1, "hunter2": 2}')):
        assert "hunter2" not in refused(command, *arguments)


def test_an_input_that_is_too_large_is_not_read_whole(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless file ends at the bound."""
    monkeypatch.setattr(_context, "MAX_INPUT_BYTES", 10)
    command.project.write("big.txt", "x" * 11)
    assert "-i text: 'big.txt' is larger than 10 bytes" in refused(command, "-i", "text=@big.txt")
    command.project.write("big.txt", "x" * 10)
    assert rendered(command, "-i", "text=@big.txt").startswith("x" * 10 + "|")


def test_standard_input_that_is_closed(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """``<&-`` in a shell leaves a process without one."""
    import click

    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(click.UsageError, match="-i text: standard input is closed"):
        _context._read("text", "-")


# ------------------------------------------------------------------------------------------------- engines


@pytest.mark.parametrize("place", ["before", "after"])
def test_the_engine_may_be_named_on_either_side(command: Any, place: str) -> None:
    """Before the subcommand as after it."""
    option = ("--engine", command.engine)
    arguments = ("run", "echo", "-i", "text=x")
    result = command(*option, *arguments) if place == "before" else command(*arguments, *option)
    assert (result.exit_code, result.stdout) == (Exit.OK, "fine\n")


def test_of_two_engines_the_later_one_counts(command: Any) -> None:
    """As with any option that is given twice."""
    result = command("--engine", "no.such:engine", "run", "echo", "-i", "text=x", "--engine", command.engine)
    assert result.exit_code == Exit.OK


def test_an_engine_inside_something_and_a_function_that_makes_one(command: Any) -> None:
    """module:attribute.attribute, and a factory, as WSGI servers take them."""
    path = command.project.root / f"{command.module}.py"
    path.write_text(path.read_text("utf-8") + "\nclass box:\n    make = staticmethod(lambda: engine)\n", "utf-8")
    result = command("run", "echo", "-i", "text=x", "--engine", f"{command.module}:box.make")
    assert (result.exit_code, result.stdout) == (Exit.OK, "fine\n")


BAD_ENGINES = {
    "no colon": ("module", "", "--engine takes module:attribute, as in myapp.prompts:engine; not 'module'"),
    "no attribute": ("module:", "", "--engine takes module:attribute"),
    "no module": ("no_such_module:engine", "", "ModuleNotFoundError: No module named 'no_such_module'"),
    "a relative one": (".x:engine", "", "importing '.x' failed with TypeError"),
    "a dependency is missing": ("bad:engine", "import no_such_dependency", "No module named 'no_such_dependency'"),
    "raises": ("bad:engine", "x = 1\n\nraise RuntimeError('no database')", "RuntimeError: no database"),
    "a syntax error": ("bad:engine", "def", "SyntaxError"),
    "exits": ("bad:engine", "import sys; sys.exit(0)", "importing 'bad' failed with SystemExit: 0"),
    "a name that is not there": ("bad:engin", "engine = 1", "'bad' has no 'engin'; did you mean 'engine'?"),
    "something else": ("bad:engine", "engine = 1", "bad:engine must be an Engine or a function that returns one"),
    "a function that fails": ("bad:make", "def make():\n    return 1 / 0", "calling bad:make failed with ZeroDivision"),
    "a function with arguments": ("bad:make", "def make(x):\n    pass", "calling bad:make failed with TypeError"),
    "a function that makes none": ("bad:make", "def make():\n    pass", "must be an Engine"),
}


@pytest.mark.parametrize(("spec", "code", "said"), BAD_ENGINES.values(), ids=BAD_ENGINES)
def test_a_bad_engine_is_wrong_usage(command: Any, spec: str, code: str, said: str) -> None:
    """Whatever the application's module does, the answer is one clear text and exit code 2."""
    command.project.write("bad.py", code)
    result = command("check", "--engine", spec)
    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
    assert said in " ".join(result.stderr.split())


def test_where_an_application_failed_is_told(command: Any) -> None:
    """File and line of the statement that raised."""
    command.project.write("bad.py", "x = 1\n\nraise RuntimeError('no database')")
    stderr = command("check", "--engine", "bad:engine").stderr
    assert f"({Path.cwd() / 'bad.py'}:3)" in "".join(stderr.split("\n"))


def test_an_engine_with_wrong_settings_has_their_exit_code(command: Any) -> None:
    """A `ConfigError` of the application's own Engine is told as one."""
    command.project.write("bad.py", "from promptkit import Engine\nengine = Engine(prompts='nowhere', profiles='x')")
    result = command("check", "--engine", "bad:engine")
    assert result.exit_code == Exit.PROBLEMS
    assert "ConfigError: Engine(prompts=…): 'nowhere' is not a folder" in result.stderr


def test_what_an_application_prints_is_no_data(command: Any) -> None:
    """Prints at import go to stderr, so that stdout stays parsable."""
    path = command.project.root / f"{command.module}.py"
    path.write_text("print('loading')\n" + path.read_text("utf-8"), "utf-8")
    result = command.on_engine("run", "echo", "-i", "text=x")
    assert result.stdout == "fine\n"
    assert "loading" in result.stderr


# ------------------------------------------------------------------------------------------------- folders


def test_without_an_engine_the_folders_of_the_working_directory_are_used(command: Any) -> None:
    """prompts/, profiles/ and schemas/, with the built-in backends."""
    command.project.write("profiles/main.yaml", "endpoint: http://127.0.0.1:9/v1\nmodel: m1\n")
    result = command("render", "echo", "-i", "text=hello")
    assert result.exit_code == Exit.OK
    assert "m1 at http://127.0.0.1:9/v1" in result.stdout


def test_another_folder(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """--root names the folder that they are in."""
    command.project.write("profiles/main.yaml", "endpoint: http://127.0.0.1:9/v1\n")
    root = Path.cwd()
    command.project.write("elsewhere/x", "")
    monkeypatch.chdir(root / "elsewhere")
    assert command("render", "echo", "-i", "text=hello", "--root", str(root)).exit_code == Exit.OK
    missing = command("render", "echo", "-i", "text=hello")
    assert missing.exit_code == Exit.USAGE
    assert "there is no folder 'prompts'; run the command beside prompts/ and profiles/" in missing.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("render", "echo", "--root", "nowhere"),
        ("check", "nowhere"),
        ("check", "profiles"),
        ("check", ".", "--engine", "a:b"),
        ("render", "echo", "--root", ".", "--engine", "a:b"),
        ("nonsense",),
        ("run",),
        ("diff", "a", "b"),
        ("schema",),
        (),
    ],
)
def test_wrong_usage_of_each_command(command: Any, arguments: tuple[str, ...]) -> None:
    """Exit code 2, and nothing on stdout."""
    result = command(*arguments)
    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
    assert result.stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser can read every file")
def test_a_file_without_permission(command: Any) -> None:
    """The system's reason is told."""
    command.project.write("locked.txt", "x").chmod(0)
    assert "'locked.txt' cannot be read: Permission denied" in refused(command, "-i", "text=@locked.txt")
