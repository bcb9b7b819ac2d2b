"""What the pages on bounding a run and on calling from a view say: the table is complete, the view's code works."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import attrs
import pytest

from promptkit import Backend, CancelToken, errors
from promptkit._prepare import DEFAULT_RETRY, DEFAULT_TIMEOUT_S
from promptkit._transport import CONNECT_S
from promptkit.testing import FakeClock, Gate, ScriptedClient, held, late, wait_until_queued
from support.project import Project
from support.threads import Worker

HOW_TO = Path(__file__).parents[1] / "docs/how-to"
BOUND = (HOW_TO / "timeouts-retries-cancellation.md").read_text("utf-8")
VIEW = (HOW_TO / "call-from-a-view.md").read_text("utf-8")
LIMIT = (HOW_TO / "limit-a-backend.md").read_text("utf-8")


def rows() -> dict[str, tuple[str, ...]]:
    """Return the table of errors: class name to the other cells of its row."""
    table = BOUND[BOUND.index("| error |") :]
    found: dict[str, tuple[str, ...]] = {}
    for line in table.splitlines()[2:]:
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
        for name in re.findall(r"`(\w+)`", cells[0]):
            assert name not in found, f"{name} has two rows"
            found[name] = cells[1:]
    return found


def test_the_table_has_every_error_once_and_nothing_else() -> None:
    """All of `promptkit.errors` but the base of them all."""
    assert set(rows()) == set(errors.__all__) - {"PromptKitError"}


def test_every_row_says_whether_to_try_again_and_what_to_answer() -> None:
    """Three filled cells, the last with a status."""
    for name, cells in rows().items():
        assert len(cells) == 3, name
        assert all(cells), name
        assert re.search(r"\b[45]\d\d\b", cells[2]), name


def test_the_numbers_of_the_page_are_the_codes() -> None:
    """Defaults as the page gives them."""
    policy = re.search(r"retry: \{(.*?)\}", BOUND)
    assert policy is not None
    said = {name.strip(): float(value) for name, value in (part.split(":") for part in policy[1].split(","))}
    assert said == attrs.asdict(DEFAULT_RETRY)
    assert f"defaults to {DEFAULT_TIMEOUT_S:g}" in BOUND
    assert f"at most {CONNECT_S:g} s of it" in BOUND


def test_c34_the_limit_is_said_to_be_of_one_process() -> None:
    """Beside the option and in the guide, with the formula for several processes."""
    assert "Limits hold for one engine in one process." in str(Backend.__doc__)
    assert "`concurrency_limit` × engines per process × processes × machines" in LIMIT


class Response:
    """Stands in for Django's JsonResponse."""

    def __init__(self, data: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.data = data
        self.status = status
        self.headers = headers or {}


class Request:
    """Stands in for Django's request."""

    def __init__(self, text: object) -> None:
        self.POST = {"text": text}


@pytest.fixture
def view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes the page's view on a scripted engine."""
    (code,) = re.findall(r"```python\n(from django.*?)```", VIEW, re.DOTALL)

    def make(*script: Any, clock: FakeClock | None = None) -> types.SimpleNamespace:
        project = Project(tmp_path / "app")
        project.write("prompts/invoice/extract.yaml", (project.root / "prompts/extract.yaml").read_bytes())
        options = {} if clock is None else {"clock": clock}
        engine = project.engine(
            ScriptedClient(script), backend={"concurrency_limit": 1, "queue_capacity": 1}, **options
        )
        http: Any = types.ModuleType("django.http")
        http.JsonResponse = Response
        prompts: Any = types.ModuleType("prompts")
        prompts.engine = engine
        for name, module in (("django", types.ModuleType("django")), ("django.http", http), ("prompts", prompts)):
            monkeypatch.setitem(sys.modules, name, module)
        space: dict[str, Any] = {}
        exec(compile(code, "call-from-a-view.md", "exec", dont_inherit=True), space)
        return types.SimpleNamespace(extract=space["extract"], engine=engine)

    return make


def test_the_view_answers_with_the_data(view: Any) -> None:
    """What the contract let through."""
    response = view({"n": 1}).extract(Request("x"))
    assert (response.status, response.data) == (200, {"n": 1})


@pytest.mark.parametrize(
    ("script", "text", "status", "said"),
    [
        (['{"n": "x"}'] * 3, "x", 502, "no valid answer"),
        ([OSError("gone")], "x", 502, "no valid answer"),
        ([errors.RefusalError("no")], "x", 502, "no valid answer"),
        ([{"n": 1}], 3, 400, "text"),
    ],
)
def test_the_view_answers_by_what_happened(view: Any, script: list[Any], text: Any, status: int, said: str) -> None:
    """An invalid or missing answer is a bad gateway, a wrong input the visitor's."""
    response = view(*script).extract(Request(text))
    assert response.status == status
    assert said in response.data["error"]


def test_the_view_says_busy_when_it_is_not_its_turn_and_when_there_is_no_place(view: Any) -> None:
    """A place in the queue that is waited in for too long, and none at all: 503 with Retry-After."""
    clock, gate = FakeClock(), Gate()
    app = view(held(gate, {"n": 1}), clock=clock)
    first = Worker(app.engine.run, "echo", inputs={"text": "x"})
    gate.wait_for(1)
    queued = Worker(app.extract, Request("x"))
    wait_until_queued(app.engine, "local")
    refused = app.extract(Request("x"))
    clock.advance(3)
    for response in (refused, queued.result()):
        assert (response.status, response.data, response.headers) == (503, {"error": "busy"}, {"Retry-After": "5"})
    gate.open()
    first.result()


def test_the_view_says_that_it_took_too_long(view: Any) -> None:
    """The run's time passes in flight: 504, not 502."""
    clock = FakeClock()
    app = view(late(60, {"n": 1}), clock=clock)
    worker = Worker(app.extract, Request("x"))
    clock.wait_for_sleepers(1)
    clock.advance(26)
    assert worker.result().status == 504


def test_mistakes_of_the_application_are_not_answered_by_the_view(view: Any) -> None:
    """They are for its log."""
    app = view()
    app.engine.close()
    with pytest.raises(errors.EngineClosedError):
        app.extract(Request("x"))


def test_a_run_is_not_interrupted_after_its_answer(tmp_path: Path) -> None:
    """As the page says, an answer that came in spite of a cancel is taken."""
    token = CancelToken()
    engine = Project(tmp_path / "app").engine(ScriptedClient([{"n": 1}]))
    result = engine.run("extract", inputs={"text": "x"}, cancel=token, observer=lambda event: token.cancel())
    assert result.data == {"n": 1}
