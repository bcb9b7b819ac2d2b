"""Handles on frozen runs: prepared once, run once."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from pathlib import Path

import pytest

from promptkit import CancelToken
from promptkit.errors import (
    AlreadyClaimedError,
    CapacityExceededError,
    CredentialError,
    GenerationError,
    InvalidRequestError,
    RunCancelledError,
)
from promptkit.testing import Gate, ScriptedClient, held
from support.project import Project
from support.threads import Worker


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An application's folders."""
    return Project(tmp_path)


def test_files_changed_in_between_change_nothing(project: Project) -> None:
    """Prompt, profile and schema are frozen: what was approved is what is sent."""
    project.write("schemas/out.json", '{"type": "object", "required": ["n"]}')
    project.prompt(
        "p",
        """
        profile: main
        inputs: {text: {type: string}}
        messages: [{role: user, content: "before {{ text }}"}]
        output: {format: json_schema, schema: out.json}
        """,
    )
    client = ScriptedClient([{"n": 1}])
    engine = project.engine(client)
    handle = engine.prepare_execution("p", inputs={"text": "x"})
    project.write("prompts/p.yaml", "broken: [")
    (project.root / "profiles/main.yaml").unlink()
    project.write("schemas/out.json", "false")
    assert engine.run_prepared(handle).data == {"n": 1}
    assert client.requests[0].messages[0].content == "before x"
    assert client.requests[0].rendered_hash() == handle.prepared.rendered_hash


def test_artifacts_and_inputs_are_frozen(project: Project) -> None:
    """The caller's objects and the artifact's file may change: the handle does not."""
    from promptkit import Artifact

    project.write("data/a.txt", "old")
    project.prompt(
        "p",
        """
        profile: main
        inputs: {doc: {type: file}, items: {type: array}}
        messages: [{role: user, content: "{{ doc }} {{ items | join(',') }}"}]
        """,
    )
    client = ScriptedClient(["x"])
    engine = project.engine(client)
    items = ["a"]
    handle = engine.prepare_execution("p", inputs={"doc": Artifact("a.txt"), "items": items})
    items.append("b")
    project.write("data/a.txt", "new")
    engine.run_prepared(handle)
    assert client.requests[0].messages[0].content == "old a"


def test_of_many_threads_one_claims(project: Project) -> None:
    """Sixteen threads claim at once: one runs, fifteen are told that it has been claimed."""
    client = ScriptedClient(always="x")
    engine = project.engine(client)
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    barrier = threading.Barrier(16)

    def claim() -> str:
        barrier.wait(20)
        try:
            return str(engine.run_prepared(handle).data)
        except AlreadyClaimedError:
            return "claimed"

    outcomes = [worker.result() for worker in [Worker(claim) for _ in range(16)]]
    assert sorted(outcomes) == ["claimed"] * 15 + ["x"]
    assert len(client.requests) == 1


@pytest.mark.parametrize("failure", [GenerationError("boom"), KeyboardInterrupt()])
def test_a_failed_run_stays_claimed(project: Project, failure: BaseException) -> None:
    """Something may have been sent, so the handle has been used up."""
    engine = project.engine(ScriptedClient([failure, "x"]))
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    with pytest.raises(type(failure)):
        engine.run_prepared(handle)
    with pytest.raises(AlreadyClaimedError):
        engine.run_prepared(handle)


def test_a_cancelled_run_stays_claimed(project: Project) -> None:
    """A cancel is the caller's own decision, and no refusal."""
    engine = project.engine(ScriptedClient(["x"]))
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    token = CancelToken()
    token.cancel()
    with pytest.raises(RunCancelledError):
        engine.run_prepared(handle, cancel=token)
    assert handle.is_claimed


def test_a_refusal_gives_the_claim_back(project: Project) -> None:
    """Nothing was sent, so the same handle may be run later."""
    gate = Gate()
    engine = project.engine(
        ScriptedClient([held(gate, "one"), "two"]), backend={"concurrency_limit": 1, "queue_capacity": 0}
    )
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    first = Worker(engine.run, "echo", inputs={"text": "t"})
    gate.wait_for(1)
    with pytest.raises(CapacityExceededError):
        engine.run_prepared(handle)
    gate.open()
    first.result()
    assert engine.run_prepared(handle).data == "two"


def test_the_credential_is_looked_up_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that has gone gives the claim back; one that was rotated is the one that is used."""
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", "old")
    client = ScriptedClient(["x"])
    engine = project.engine(client, backend={"api_key_env": "PROMPTKIT_TEST_KEY"})
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    monkeypatch.delenv("PROMPTKIT_TEST_KEY")
    with pytest.raises(CredentialError):
        engine.run_prepared(handle)
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", "new")
    engine.run_prepared(handle)
    credential = client.requests[0].credential
    assert credential is not None
    assert credential.reveal() == "new"


def test_preparing_takes_no_place(project: Project) -> None:
    """Any number of handles may wait beside a backend that takes one run."""
    engine = project.engine(ScriptedClient(always="x"), backend={"concurrency_limit": 1, "queue_capacity": 0})
    handles = [engine.prepare_execution("echo", inputs={"text": str(n)}) for n in range(5)]
    assert [engine.run_prepared(handle).data for handle in handles] == ["x"] * 5


def test_a_handle_of_another_engine_is_refused(project: Project) -> None:
    """It is refused without being claimed."""
    mine, other = project.engine(ScriptedClient(["x"])), project.engine(ScriptedClient(["y"]))
    handle = mine.prepare_execution("echo", inputs={"text": "t"})
    with pytest.raises(InvalidRequestError, match="another engine"):
        other.run_prepared(handle)
    assert mine.run_prepared(handle).data == "x"
    with pytest.raises(InvalidRequestError, match="PreparedExecution"):
        mine.run_prepared("echo")  # type: ignore[arg-type]  # the mistake under test


def test_a_handle_can_be_neither_copied_nor_pickled(project: Project) -> None:
    """Either would make one approval into two runs."""
    handle = project.engine(ScriptedClient()).prepare_execution("echo", inputs={"text": "t"})
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            make(handle)
    assert "unclaimed" in repr(handle)


def test_a_dropped_handle_lets_go_of_its_content(project: Project) -> None:
    """Neither the engine nor a cache keeps it."""
    engine = project.engine(ScriptedClient())
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    content = weakref.ref(handle.prepared)
    del handle
    gc.collect()
    assert content() is None
