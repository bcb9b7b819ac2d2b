"""The command as a process of its own: installed entry, signals, pipes and locales."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from promptkit.cli._exit import Exit
from support.clock import HANG_S

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and pipes of POSIX systems")

WAITS = """[lambda request: (print("in flight", file=__import__("sys").stderr, flush=True), held(Gate(), "x"))[1]]"""


def start(command: Any, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start the command in the project's folder."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": ""}
    environment |= options.pop("env", {})
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "promptkit.cli", *arguments],
        cwd=command.project.root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=options.pop("stderr", subprocess.PIPE),
        encoding="utf-8",
        **options,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr."""
    with process:
        try:
            stdout, stderr = process.communicate(timeout=HANG_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert "Traceback" not in (stderr or "")
    return process.returncode, stdout, stderr


def waiting(command: Any, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start a run whose model never answers, and return when its request is in flight."""
    command.script(WAITS)
    process = start(command, "run", "echo", "-i", "text=x", "--engine", command.engine, *arguments, **options)
    wait_for_line(process, "in flight\n")
    return process


def wait_for_line(process: subprocess.Popen[str], line: str) -> None:
    """Block until a process says ``line`` on stderr; one that says something else is ended."""
    assert process.stderr is not None
    said = process.stderr.readline()
    if said != line:
        process.kill()
        raise AssertionError(f"it said {said + finish(process)[2]!r}")


def test_the_process_ends_with_the_code(command: Any) -> None:
    """0 and data for a good run, the documented code for a bad one."""
    assert finish(start(command, "run", "echo", "-i", "text=x", "--engine", command.engine, "-q")) == (0, "fine\n", "")
    code, stdout, stderr = finish(start(command, "run", "ecko", "--engine", command.engine))
    assert (code, stdout) == (Exit.INVALID_REQUEST, "")
    assert "did you mean 'echo'?" in stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_7_a_signal_cancels_the_run(command: Any, number: signal.Signals) -> None:
    """Ctrl-C, or SIGTERM of a service manager: the run is cancelled and says so."""
    process = waiting(command)
    process.send_signal(number)
    code, stdout, stderr = finish(process)
    assert (code, stdout) == (Exit.CANCELLED, "")
    assert "GenerationCancelledError" in stderr
    assert number.name in stderr


def test_a_signal_that_was_ignored_stays_ignored(command: Any) -> None:
    """As ``nohup`` and a shell's ``&`` arrange it: the run goes on until its own time is up."""
    process = waiting(command, "--timeout", "1.5", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    process.send_signal(signal.SIGINT)
    code, _, stderr = finish(process)
    assert code == Exit.CANCELLED
    assert "DeadlineError" in stderr


def test_7_ctrl_c_outside_of_a_run(command: Any) -> None:
    """While an application loads, too."""
    command.project.write(
        "slow.py",
        """
        import sys, threading
        print("loading", flush=True)
        threading.Event().wait()
        """,
    )
    process = start(command, "check", "--engine", "slow:engine")
    wait_for_line(process, "loading\n")
    process.send_signal(signal.SIGINT)
    assert finish(process) == (Exit.CANCELLED, "", "cancelled\n")


def test_a_reader_that_has_gone(command: Any) -> None:
    """Like ``| head``: no complaint, and the code that a shell shows for SIGPIPE."""
    reading, writing = os.pipe()
    os.close(reading)
    process = start(command, "render", "echo", "-i", "text=x", "--engine", command.engine, stdout=writing)
    os.close(writing)
    code, _, stderr = finish(process)
    assert (code, stderr) == (Exit.READER_GONE, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")  # noqa: PTH110
def test_a_full_disk(command: Any) -> None:
    """The reason is told."""
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123
        process = start(command, "render", "echo", "-i", "text=x", "--engine", command.engine, stdout=full)
        code, _, stderr = finish(process)
    assert (code, stderr) == (Exit.PROBLEMS, "the output cannot be written: No space left on device\n")


def test_where_nobody_reads_stderr_the_data_still_comes(command: Any) -> None:
    """A run is not lost because its progress cannot be shown."""
    reading, writing = os.pipe()
    os.close(reading)
    process = start(command, "run", "echo", "-i", "text=x", "--engine", command.engine, stderr=writing)
    os.close(writing)
    code, stdout, _ = finish(process)
    assert (code, stdout) == (Exit.OK, "fine\n")


def test_data_is_utf_8_in_any_locale(command: Any) -> None:
    """A terminal's encoding does not change what a script reads."""
    command.script('["Zürich €"]')
    environment = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    process = start(command, "run", "echo", "-i", "text=x", "--engine", command.engine, env=environment)
    assert finish(process)[:2] == (Exit.OK, "Zürich €\n")


def test_input_that_is_no_text(command: Any) -> None:
    """Bytes of another encoding on the command line are refused, not passed on as half characters."""
    command.project.write("main.sh", b'exec "$@" -i text=\xff\n')
    arguments = ["run", "echo", "--engine", command.engine]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["sh", "main.sh", sys.executable, "-m", "promptkit.cli", *arguments],
        cwd=command.project.root,
        env=environment,
        capture_output=True,
        check=False,
        timeout=HANG_S,
    )
    assert done.returncode == Exit.INVALID_REQUEST
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra(command: Any, missing: str) -> None:
    """The command says how to install what it needs; exit code 2."""
    script = f"import sys; sys.modules[{missing!r}] = None; from promptkit.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment, timeout=HANG_S
    )
    assert (done.returncode, done.stdout) == (Exit.USAGE, "")
    assert done.stderr.startswith(f"the promptkit command needs {missing}")
    assert 'pip install "promptkit[cli]"' in done.stderr


def test_help_names_the_subcommands(command: Any) -> None:
    """``promptkit --help`` and the help of each subcommand."""
    code, stdout, _ = finish(start(command, "--help"))
    assert code == Exit.OK
    for name in ("run", "render", "check", "diff", "schema"):
        assert f"\n  {name} " in stdout
    assert "--queue-timeout" in finish(start(command, "run", "-h"))[1]


def test_every_exit_code_is_documented() -> None:
    """The table of the reference, which is the package's docstring, has each code that the command can end with."""
    import promptkit.cli

    text = promptkit.cli.__doc__ or ""
    rows = {int(row.split()[0]) for row in text.splitlines() if row[:1].isdigit()}
    assert rows == {code for code in Exit if code != Exit.READER_GONE}
    assert str(int(Exit.READER_GONE)) in text
