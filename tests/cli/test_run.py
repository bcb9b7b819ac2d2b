"""``promptkit run``: what goes to which stream, and which exit code stands for what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from promptkit import AttemptEvent, RunResult, Usage
from promptkit.cli._app import _tell
from promptkit.cli._exit import Exit, exit_code
from promptkit.errors import EngineClosedError

ECHO = ("echo", "-i", "text=hello")
EXTRACT = ("extract", "-i", "text=hello")


def test_a_text_is_printed_as_the_model_wrote_it(command: Any) -> None:
    """The output alone is on stdout, ended by one line break; how it went is on stderr."""
    command.script('["Zürich 5 €"]')
    result = command.on_engine("run", *ECHO)
    assert (result.exit_code, result.stdout) == (Exit.OK, "Zürich 5 €\n")
    assert result.stderr.startswith("attempt 1 (initial): succeeded after ")


def test_a_text_that_ends_a_line_gets_no_second_end(command: Any) -> None:
    """What is printed can be compared with what the model wrote."""
    command.script('["one\\ntwo\\n"]')
    assert command.on_engine("run", *ECHO).stdout == "one\ntwo\n"


def test_half_a_surrogate_pair_does_not_break_the_output(command: Any) -> None:
    """A text that has no UTF-8 form is printed as far as it has one."""
    command.script(r'["broken \ud83d pair"]')
    result = command.on_engine("run", *ECHO)
    assert (result.exit_code, result.stdout) == (Exit.OK, "broken ? pair\n")


def test_data_is_printed_as_json(command: Any) -> None:
    """The parsed and valid output, readable, with its characters as they are."""
    command.script('["```json\\n{\\"n\\": 12345678901234567890, \\"s\\": \\"Köln\\"}\\n```"]')
    result = command.on_engine("run", *EXTRACT)
    assert json.loads(result.stdout) == {"n": 12345678901234567890, "s": "Köln"}
    assert "Köln" in result.stdout


def test_a_text_that_is_json_is_printed_as_json(command: Any) -> None:
    """With the format json a string has its quotes, so that a script can always parse it."""
    command.project.prompt("free", "profile: main\nmessages: [{role: user, content: hi}]\noutput: {format: json}\n")
    command.script("""['"a text"']""")
    assert command.on_engine("run", "free").stdout == '"a text"\n'


def test_the_whole_result_in_its_stable_form(command: Any) -> None:
    """--json prints the run-result form, which can be read back."""
    command.script('[{"n": 1}]')
    result = command.on_engine("run", *EXTRACT, "--json")
    assert RunResult.from_dict(json.loads(result.stdout)).data == {"n": 1}


def test_content_can_be_left_out(command: Any) -> None:
    """--no-content keeps the hashes and drops messages and output."""
    command.script('["the answer"]')
    stdout = command.on_engine("run", *ECHO, "--json", "--no-content").stdout
    assert "the answer" not in stdout
    assert "hello" not in stdout
    assert json.loads(stdout)["hashes"]["text"].startswith("sha256:")


def test_quiet(command: Any) -> None:
    """-q leaves stderr empty when all goes well."""
    assert command.on_engine("run", *ECHO, "-q").stderr == ""


def test_a_dry_run_sends_nothing(command: Any) -> None:
    """--dry-run prints what `render` prints."""
    command.script("[]")
    dry = command.on_engine("run", *ECHO, "--dry-run")
    assert dry.exit_code == Exit.OK
    assert dry.stdout == command.on_engine("render", *ECHO).stdout
    assert "hello" in dry.stdout


def test_repairs_are_told_as_they_happen(command: Any) -> None:
    """Each attempt is a line on stderr."""
    command.script('[{"n": "x"}, {"n": 1}]')
    result = command.on_engine("run", *EXTRACT)
    assert result.exit_code == Exit.OK
    assert "attempt 1 (initial): succeeded" in result.stderr
    assert "attempt 2 (repair): succeeded" in result.stderr


def test_numbers_can_be_set(command: Any) -> None:
    """--set is laid over profile and prompt, with 0 as a value."""
    settings = ["--set", "temperature=0", "--set", "model=m2", "--set", 'stop=["END"]', "--set", "timeout_s=5"]
    form = json.loads(command.on_engine("run", *ECHO, *settings, "--json").stdout)["prepared"]
    assert form["model"] == "m2"
    assert form["execution"]["temperature"] == 0
    assert form["execution"]["stop"] == ["END"]
    assert form["execution"]["timeout_s"] == 5


def test_another_profile_and_a_session(command: Any) -> None:
    """-p and --session go into the request."""
    command.project.write("profiles/other.yaml", "backend: local\nmodel: m9\n")
    form = json.loads(command.on_engine("run", *ECHO, "-p", "other", "--session", "s-1", "--json").stdout)["prepared"]
    assert (form["profile"], form["model"], form["session_id"]) == ("other", "m9", "s-1")


# --------------------------------------------------------------------------------------------- exit codes


def test_1_a_file_is_wrong(command: Any) -> None:
    """Each problem begins a line on stderr, in the form that editors jump to; nothing is on stdout."""
    command.project.prompt("bad", "profile: main\nmesages: []\nmessages: [{role: user, contents: hi}]\n")
    result = command.on_engine("run", "bad")
    assert (result.exit_code, result.stdout) == (Exit.PROBLEMS, "")
    places = [line.partition(": ")[0].rpartition("prompts/")[2] for line in result.stderr.splitlines()]
    assert places[0] == "bad.yaml:2:1"
    assert all(place.startswith("bad.yaml:3:") for place in places[1:])


def test_1_a_credential_is_missing(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is named."""
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    command.project.write("profiles/main.yaml", "backend: local\nmodel: m1\napi_key_env: NO_SUCH_KEY\n")
    result = command.on_engine("run", *ECHO)
    assert result.exit_code == Exit.PROBLEMS
    assert "CredentialError" in result.stderr
    assert "NO_SUCH_KEY" in result.stderr


def test_3_an_unknown_backend(command: Any) -> None:
    """Without --engine the application's backends are not there, and the message says which are."""
    result = command("run", *ECHO)
    assert result.exit_code == Exit.INVALID_REQUEST
    assert "openrouter" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [(("ecko", "-i", "text=x"), "did you mean 'echo'?"), (("echo", "-i", "txt=x"), "did you mean 'text'?")],
)
def test_3_unknown_names_have_a_hint(command: Any, arguments: tuple[str, ...], hint: str) -> None:
    """The nearest prompt, or the nearest input, is offered."""
    result = command.on_engine("run", *arguments)
    assert (result.exit_code, result.stdout) == (Exit.INVALID_REQUEST, "")
    assert hint in result.stderr


def test_3_an_input_is_missing(command: Any) -> None:
    """The input is named."""
    result = command.on_engine("run", "echo")
    assert result.exit_code == Exit.INVALID_REQUEST
    assert "'text'" in result.stderr


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ('OverloadedError("the server is down", status=503)', "OverloadedError: the server is down"),
        ('OutputTruncatedError("cut")', "OutputTruncatedError: cut"),
        ("None", "MalformedResponseError"),
    ],
)
def test_4_generation_failed(command: Any, error: str, text: str) -> None:
    """Whatever the model server did, the class and its text are on stderr."""
    command.script(f"[lambda request: {error}]")
    result = command.on_engine("run", *ECHO)
    assert (result.exit_code, result.stdout) == (Exit.GENERATION_FAILED, "")
    assert text in result.stderr


def test_5_the_output_is_invalid(command: Any) -> None:
    """The issues and the last answer are shown to the person, and stdout stays empty."""
    command.script("[]", always='{"n": "many"}')
    result = command.on_engine("run", *EXTRACT)
    assert (result.exit_code, result.stdout) == (Exit.INVALID_OUTPUT, "")
    assert "/n: " in result.stderr
    assert 'the last answer was: {"n": "many"}' in result.stderr


def test_what_a_model_wrote_cannot_drive_the_terminal(command: Any) -> None:
    """Control characters and rich's own markup in an answer are shown as text; a long one is cut."""
    command.script("[]", always='"\\x1b[2J\\x9b31m[red]:smile:" + "x" * 5000')
    stderr = command.on_engine("run", *EXTRACT).stderr
    assert "\x1b" not in stderr
    assert "\x9b" not in stderr
    assert "\\x1b[2J\\x9b31m[red]:smile:xxx" in stderr
    assert "characters left out]" in stderr
    assert "x" * 3000 not in stderr


def test_6_the_backend_is_full(command: Any) -> None:
    """A backend that may take nothing more refuses at once."""
    with command.busy("queue_capacity=0"):
        result = command.on_engine("run", *ECHO)
    assert (result.exit_code, result.stdout) == (Exit.FULL, "")
    assert "backend 'local' is full" in result.stderr


def test_7_out_of_time(command: Any) -> None:
    """--timeout is for the whole run."""
    command.script('[held(Gate(), "never")]')
    result = command.on_engine("run", *ECHO, "--timeout", "0.05")
    assert (result.exit_code, result.stdout) == (Exit.CANCELLED, "")
    assert "DeadlineError" in result.stderr


def test_7_a_turn_that_does_not_come(command: Any) -> None:
    """--queue-timeout is for the first permit, here held by another run."""
    with command.busy("queue_capacity=1"):
        result = command.on_engine("run", *ECHO, "--queue-timeout", "0.05")
    assert (result.exit_code, result.stdout) == (Exit.CANCELLED, "")
    assert "QueueTimeoutError" in result.stderr
    assert command.on_engine("run", *ECHO, "--queue-timeout", "-1").exit_code == Exit.USAGE


def test_every_other_error_of_promptkit_is_a_problem() -> None:
    """A class without a code of its own has the general one."""
    assert exit_code(EngineClosedError("closed")) == Exit.PROBLEMS


def test_an_attempt_is_told_with_what_is_known_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Waits that are worth a word, tokens where the server counted, the error, and when it is tried again."""
    usage = Usage(total_tokens=1234)
    event = AttemptEvent(
        number=2,
        kind="initial",
        outcome="failed",
        is_dispatched=True,
        queued_s=3.21,
        generation_s=1.04,
        usage=usage,
        error_type="OverloadedError",
        error="the server is [overloaded] :smile:",
        next_delay_s=0.5,
    )
    _tell(event)
    assert capsys.readouterr().err == (
        "attempt 2 (initial): failed after 1.0 s, queued 3.2 s, 1234 tokens, next in 0.5 s\n"
        "  OverloadedError: the server is [overloaded] :smile:\n"
    )
