"""A client that plays what a test has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from promptkit import CancelToken, GenerateRequest, GenerateResponse, Message
from promptkit.errors import MalformedResponseError, RateLimitedError, RunCancelledError
from promptkit.testing import Gate, ScriptedClient, ScriptError, Worker, held, late
from support.project import Project

REQUEST = GenerateRequest(messages=(Message("user", "hi"),), endpoint="http://127.0.0.1:9/v1", model="m1")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An application's folders."""
    return Project(tmp_path)


def texts(client: ScriptedClient, calls: int) -> list[str | None]:
    """Return the texts of so many calls."""
    return [client.generate(REQUEST, CancelToken()).text for _ in range(calls)]


def test_entries_are_played_in_order_and_then_always() -> None:
    """Text, data as JSON, a whole response, a function of the request; then what stays."""
    client = ScriptedClient(
        ["a", {"ä": 1}, [1], GenerateResponse(text="whole"), lambda request: request.messages[0].content], always="z"
    )
    assert texts(client, 7) == ["a", '{"ä": 1}', "[1]", "whole", "hi", "z", "z"]
    assert client.requests == (REQUEST,) * 7


def test_an_exception_is_raised(project: Project) -> None:
    """As a server's failure would be: the application sees the class it has to handle."""
    engine = project.engine(ScriptedClient([RateLimitedError("slow down", status=429, retry_after_s=3)]))
    with pytest.raises(RateLimitedError, match="slow down") as caught:
        engine.run("echo", inputs={"text": "t"})
    assert caught.value.retry_after_s == 3


def test_a_call_more_than_the_script_has_is_told_by_the_run(project: Project) -> None:
    """The outer error says so, and entries may be added later."""
    client = ScriptedClient()
    engine = project.engine(client)
    with pytest.raises(ScriptError, match="no answer for call 1"):
        engine.run("echo", inputs={"text": "t"})
    client.add("one", "two")
    assert [engine.run("echo", inputs={"text": "t"}).text for _ in range(2)] == ["one", "two"]


def test_what_no_client_may_return_reaches_the_run(project: Project) -> None:
    """A broken client can be played as well."""
    engine = project.engine(ScriptedClient([lambda _: None]))
    with pytest.raises(MalformedResponseError):
        engine.run("echo", inputs={"text": "t"})


@pytest.mark.parametrize("entry", [held(Gate(), "x"), late(3600, "x")])
def test_a_call_that_waits_ends_with_its_run(project: Project, entry: object) -> None:
    """A cancel from another thread ends a held or late call at once."""
    token, started = CancelToken(), Gate()

    def begin(_: GenerateRequest) -> object:
        started.open()
        return entry

    worker = Worker(project.engine(ScriptedClient([begin])).run, "echo", inputs={"text": "t"}, cancel=token)
    started.pass_through(CancelToken(timeout=20))
    token.cancel("enough")
    with pytest.raises(RunCancelledError, match="enough"):
        worker.result()


def test_calls_in_flight_are_counted() -> None:
    """The largest number at the same time is what a test of a limit asks for."""
    gate = Gate()
    client = ScriptedClient([held(gate, "x")] * 3, always="y")
    workers = [Worker(client.generate, REQUEST, CancelToken()) for _ in range(3)]
    gate.wait_for(3)
    assert gate.waiting == 3
    gate.open()
    for worker in workers:
        worker.join()
    texts(client, 2)
    assert client.max_in_flight == 3
