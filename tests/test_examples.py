"""The examples and the tutorial run as they stand, without any server: on recordings and on scripts."""

from __future__ import annotations

import functools
import importlib.util
import io
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest
from click.testing import CliRunner
from rich.console import Console

import promptkit.local
from promptkit import GenerateRequest, RunResult
from promptkit.cli._app import app as command
from promptkit.errors import OutputValidationError, OverloadedError
from promptkit.testing import Gate, ReplayClient, ScriptedClient, Worker, held

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
RECEIPT = {"merchant": "Corner Cafe", "date": "2026-03-02", "total": 6.35, "currency": "GBP"}


def example(name: str) -> ModuleType:
    """Import an example under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ------------------------------------------------------------------------------------------------ the demo


@pytest.fixture(scope="module")
def replayed() -> tuple[str, list[Any]]:
    """Run the demo on what the embedded model answered when it was recorded; return its log and its outcomes."""
    demo = example("demo")
    documents = sorted((EXAMPLES / "data").glob("*.txt"))
    log = io.StringIO()
    console = Console(file=log, width=demo.LOG_WIDTH, no_color=True, highlight=False)
    with demo.engine_on("http://promptkit.invalid/v1", ReplayClient(EXAMPLES / "recordings")) as engine:
        outcomes = demo.run_all(engine, documents, console)
    demo.report(documents, outcomes, console, 1.0)
    return log.getvalue(), outcomes


def test_the_demo_shows_valid_answers_and_a_repair_that_worked(replayed: tuple[str, list[Any]]) -> None:
    """A dozen documents; most are read at once, and at least one after the model was told what was wrong."""
    _, outcomes = replayed
    valid = [outcome for outcome in outcomes if isinstance(outcome, RunResult)]
    assert len(outcomes) == 12
    assert len(valid) >= 10
    assert all(outcome.data.keys() == RECEIPT.keys() for outcome in valid)
    assert any(event.kind == "repair" for outcome in valid for event in outcome.attempts)


def test_what_stays_invalid_is_told(replayed: tuple[str, list[Any]]) -> None:
    """Each failure is one of validation, and the log says why."""
    log, outcomes = replayed
    words = "".join(log.split())
    for outcome in outcomes:
        if not isinstance(outcome, RunResult):
            assert isinstance(outcome, OutputValidationError)
            assert "".join(str(outcome).split()) in words


def test_the_log_of_a_pipeline_is_readable(replayed: tuple[str, list[Any]]) -> None:
    """No control codes, and each document on one line of the table with all its columns."""
    log, outcomes = replayed
    assert "\x1b" not in log
    assert "…" not in log
    rows = [line for line in log.splitlines() if re.match(r" \d\d-[\w-]+ +(valid|repaired|invalid) ", line)]
    assert len(rows) == len(outcomes)
    for row, outcome in zip(rows, outcomes, strict=True):
        assert re.search(rf" {len(outcome.attempts)} +\d+\.\d +\d+\.\d +\d+$", row.rstrip()), row


def test_a_narrow_terminal_still_shows_every_number() -> None:
    """In 80 columns names give way, and nothing is cut."""
    demo = example("demo")
    documents = sorted((EXAMPLES / "data").glob("*.txt"))
    screen = io.StringIO()
    console = Console(file=screen, width=80)
    with demo.engine_on("http://promptkit.invalid/v1", ReplayClient(EXAMPLES / "recordings")) as engine:
        outcomes = demo.run_all(engine, documents, console)
    demo.report(documents, outcomes, console, 1.0)
    assert "…" not in screen.getvalue()
    assert max(map(len, screen.getvalue().splitlines())) <= 80
    assert re.search(r"168\.70 +EUR +1 +0\.0 +0\.0 +\d+", screen.getvalue())


def test_the_demo_in_a_terminal_has_a_live_bar() -> None:
    """Progress moves in place, and ends complete."""
    demo = example("demo")
    documents = sorted((EXAMPLES / "data").glob("*.txt"))[:3]
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=140)
    client = ScriptedClient(always=RECEIPT)
    with demo.engine_on("http://promptkit.invalid/v1", client) as engine:
        demo.run_all(engine, documents, console)
    assert "3/3" in screen.getvalue()
    assert client.max_in_flight <= demo.PERMITS


# ------------------------------------------------------------------------------------------------ the view


def post(client: ScriptedClient, receipt: bytes | None = b"CORNER CAFE") -> Any:
    """Send a receipt to the view and return its response."""
    pytest.importorskip("flask")
    files = {} if receipt is None else {"receipt": (io.BytesIO(receipt), "receipt.txt")}
    app = example("flask_view").create_app(client)
    return app.test_client().post("/receipts", data=files)


def test_a_view_answers_with_data() -> None:
    """200 and the valid output."""
    response = post(ScriptedClient([RECEIPT]))
    assert (response.status_code, response.json) == (200, RECEIPT)


@pytest.mark.parametrize(
    ("receipt", "said"),
    [(None, "a file called receipt"), (b"\xff", "no UTF-8 text"), (b"x" * 5000, "max_chars is 4000")],
)
def test_a_view_refuses_what_it_cannot_use(receipt: bytes | None, said: str) -> None:
    """400 and a reason, and no model is asked."""
    client = ScriptedClient()
    response = post(client, receipt)
    assert response.status_code == 400
    assert said in response.json["error"].replace(",", "")
    assert client.requests == ()


def failing(request: GenerateRequest) -> Exception:
    """Answer as a server that is down."""
    return OverloadedError("down", status=503)


@pytest.mark.parametrize(("answer", "status"), [({"merchant": 5}, 422), (failing, 502)])
def test_a_view_says_what_failed(answer: Any, status: int) -> None:
    """An answer that stays invalid is another matter than a server that fails."""
    assert post(ScriptedClient(always=answer)).status_code == status


def test_a_view_is_busy_or_out_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """503 with Retry-After when no turn comes, 504 when the answer does not."""
    pytest.importorskip("flask")
    view = example("flask_view")
    monkeypatch.setattr(view, "START_WITHIN_S", 0.05)
    gate = Gate()
    app = view.create_app(ScriptedClient(always=held(gate, RECEIPT)))

    def post_to_it() -> Any:
        return app.test_client().post("/receipts", data={"receipt": (io.BytesIO(b"CAFE"), "r.txt")})

    first = [Worker(post_to_it) for _ in range(2)]
    gate.wait_for(2)
    busy = post_to_it()
    assert (busy.status_code, busy.headers["Retry-After"]) == (503, str(view.RETRY_AFTER_S))
    gate.open()
    assert [worker.result().status_code for worker in first] == [200, 200]
    monkeypatch.setattr(view, "ANSWER_WITHIN_S", 0.05)
    monkeypatch.setattr(view, "START_WITHIN_S", None)
    assert post_to_it_late(view) == 504


def post_to_it_late(view: ModuleType) -> int:
    """Return the status when the model never answers."""
    app = view.create_app(ScriptedClient(always=held(Gate(), RECEIPT)))
    status: int = app.test_client().post("/receipts", data={"receipt": (io.BytesIO(b"CAFE"), "r.txt")}).status_code
    return status


# -------------------------------------------------------------------------------------------- the tutorial

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def tutorial_blocks(language: str) -> list[str]:
    """Return what the tutorial tells its reader to save, in order."""
    text = (ROOT / "docs" / "tutorial" / "first-prompt.md").read_text("utf-8")
    return [code for found, code in BLOCK.findall(text) if found == language]


@pytest.fixture
def lesson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the reader's folder, after all files have been saved and the working directory is there."""
    profile, prompt = tutorial_blocks("yaml")
    (schema,) = tutorial_blocks("json")
    for name, text in {"profiles/small": profile, "prompts/ticket/sort": prompt}.items():
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(text, "utf-8")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "ticket.json").write_text(schema, "utf-8")
    for name, text in zip(("app", "run", "many"), tutorial_blocks("python"), strict=True):
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(promptkit.local, "LocalServer", StandIn)
    for name in ("app", "run", "many"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


class StandIn:
    """Stands in for the embedded server; what it would answer comes from a script."""

    endpoint = "http://promptkit.invalid/v1"

    def __init__(self, *, parallel: int) -> None:
        assert parallel == 2

    def start(self) -> None:
        """Do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


def on_script(monkeypatch: pytest.MonkeyPatch, client: ScriptedClient) -> None:
    """Make every engine from now on ask a scripted client."""
    monkeypatch.setattr(promptkit, "Engine", functools.partial(promptkit.Engine, client=client))


ANSWER = {"topic": "delivery", "is_urgent": True, "summary": "A parcel is late."}


def correct(lesson: Path) -> None:
    """Correct the prompt as the tutorial asks."""
    path = lesson / "prompts" / "ticket" / "sort.yaml"
    path.write_text(path.read_text("utf-8").replace("langauge", "language"), "utf-8")


def test_the_tutorial_s_mistake_is_found_as_it_says(lesson: Path) -> None:
    """`check` names place and nearest name, and is content once it is corrected."""
    before = CliRunner().invoke(command, ["check", "--engine", "app:engine"])
    assert before.exit_code == 1
    unused, misspelt = before.stdout.splitlines()
    assert unused.startswith("prompts/ticket/sort.yaml:5:13: input 'language' is declared and never used")
    assert misspelt.startswith("prompts/ticket/sort.yaml:8:14: 'langauge' is no input")
    assert "did you mean 'language'?" in misspelt
    correct(lesson)
    after = CliRunner().invoke(command, ["check", "--engine", "app:engine"])
    assert (after.exit_code, after.stdout) == (0, "")


def test_the_tutorial_renders(lesson: Path) -> None:
    """`render` shows the messages and three hashes."""
    correct(lesson)
    arguments = ["--engine", "app:engine", "render", "ticket/sort", "-i", "text=My parcel has not come."]
    stdout = CliRunner().invoke(command, arguments).stdout
    assert "Write the summary in English." in stdout
    assert "My parcel has not come." in stdout
    assert stdout.count("sha256:") == 3


def test_the_tutorial_runs(lesson: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`run.py` prints data and counts, after a repair."""
    correct(lesson)
    on_script(monkeypatch, ScriptedClient([{"topic": "parcels"}, ANSWER]))
    runpy.run_path("run.py", run_name="__main__")
    printed = capsys.readouterr().out
    assert str(ANSWER) in printed
    assert "2 attempts" in printed


def test_the_tutorial_runs_many_at_a_time(
    lesson: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`many.py` prints each message with its answer, and never asks more than two at a time."""
    correct(lesson)
    client = ScriptedClient(always=ANSWER)
    on_script(monkeypatch, client)
    runpy.run_path("many.py", run_name="__main__")
    assert capsys.readouterr().out.count(str(ANSWER)) == 6
    assert client.max_in_flight <= 2
