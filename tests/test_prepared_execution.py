"""Handles on frozen runs: prepared once, run once."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from pathlib import Path

import pytest

from promptkit import Artifact, CancelToken, Engine, ExecutionOverride, PreparedExecution
from promptkit.errors import (
    AlreadyClaimedError,
    CapacityExceededError,
    CredentialError,
    DeadlineExceededError,
    EngineClosedError,
    GenerationCancelledError,
    GenerationError,
    InputError,
    InvalidRequestError,
    OutputValidationError,
    QueueTimeoutError,
    RunCancelledError,
    UnknownNameError,
)
from promptkit.testing import FakeClock, Gate, ScriptedClient, Worker, held, wait_until_queued
from support.project import Project

FULL = {"concurrency_limit": 1, "queue_capacity": 0}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An application's folders."""
    return Project(tmp_path)


def places_taken(engine: Engine) -> tuple[int, int, int]:
    """Return how many leases, permits and queued tickets the backend has now."""
    stats = engine._runner._manager.stats("local")
    assert stats is not None
    return tuple(stats)


def busy(engine: Engine, gate: Gate) -> Worker:
    """Fill a backend that takes one run with one that is held at the gate."""
    worker = Worker(engine.run, "echo", inputs={"text": "busy"})
    gate.wait_for(1)
    return worker


# -------------------------------------------------------------------------------------------- what is prepared


def test_a_handle_is_prepared_as_a_run_is(project: Project) -> None:
    """The same pipeline: `prepare`, `prepare_execution` and both ways to run agree on every part and hash."""
    engine = project.engine(ScriptedClient(always={"n": 1}))
    request = {"inputs": {"text": "x"}, "session_id": "s", "override": ExecutionOverride(temperature=0.5, seed=7)}
    handle = engine.prepare_execution("extract", **request)
    results = [engine.run("extract", **request), engine.run_prepared(handle)]
    assert [result.prepared for result in results] == [handle.prepared] * 2
    assert engine.prepare("extract", **request) == handle.prepared


def test_what_cannot_be_prepared_is_told_at_once(project: Project) -> None:
    """Not when it is executed: an approval is for something that can run."""
    engine = project.engine(ScriptedClient())
    with pytest.raises(UnknownNameError):
        engine.prepare_execution("missing")
    with pytest.raises(InputError):
        engine.prepare_execution("echo")


def test_a_missing_credential_is_told_when_preparing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by `run`, before anything is read that a refusal should not touch."""
    monkeypatch.delenv("PROMPTKIT_TEST_KEY", raising=False)
    with pytest.raises(CredentialError):
        project.engine(backend={"api_key_env": "PROMPTKIT_TEST_KEY"}).prepare_execution("echo", inputs={"text": "t"})


def test_preparing_works_beside_a_full_backend_and_holds_nothing(project: Project) -> None:
    """No lease, no permit, no place in the queue, however many handles wait."""
    gate = Gate()
    engine = project.engine(ScriptedClient([held(gate, "x")]), backend=FULL)
    worker = busy(engine, gate)
    handles = [engine.prepare_execution("echo", inputs={"text": "t"}) for _ in range(3)]
    assert places_taken(engine) == (1, 1, 0)
    gate.open()
    worker.result()
    assert places_taken(engine) == (0, 0, 0)
    assert not any(handle.is_claimed for handle in handles)


# ------------------------------------------------------------------------------------------------- what is frozen


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


def test_every_file_may_vanish(project: Project) -> None:
    """Included templates, referenced schemas, artifacts and images: all of it is in the handle."""
    png = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00"
    project.write("prompts/part.txt", "included {{ doc }}")
    project.write("schemas/out.json", '{"type": "object", "properties": {"n": {"$ref": "number.json"}}}')
    project.write("schemas/number.json", '{"type": "integer"}')
    project.write("data/a.txt", "old")
    project.write("data/a.png", png)
    project.prompt(
        "p",
        """
        profile: main
        inputs: {doc: {type: file}, scan: {type: image}, items: {type: array}}
        messages:
          - {role: user, content: "{% include 'part.txt' %} {{ items | join(',') }}", images: [scan]}
        output: {format: json_schema, schema: out.json, repair: {max_attempts: 1}}
        """,
    )
    client = ScriptedClient([{"n": "no integer"}, {"n": 1}])
    engine = project.engine(client)
    items = ["a"]
    handle = engine.prepare_execution("p", inputs={"doc": Artifact("a.txt"), "scan": Artifact("a.png"), "items": items})
    items.append("b")
    project.write("data/a.txt", "new")
    project.write("prompts/part.txt", "changed")
    for name in ("prompts/p.yaml", "schemas/out.json", "schemas/number.json", "data/a.png", "profiles/main.yaml"):
        (project.root / name).unlink()
    result = engine.run_prepared(handle)
    assert result.data == {"n": 1}
    assert len(result.attempts) == 2  # the first answer was held against the frozen contract, and repaired
    first, second = client.requests
    assert first.messages[0].content == "included old a"
    assert first.messages[0].images[0].data == png
    assert second.messages[: len(first.messages)] == first.messages
    assert first.rendered_hash() == handle.prepared.rendered_hash


def test_the_record_of_a_handle_cannot_be_changed(project: Project) -> None:
    """Deeply: what an approver has read stays what it was."""
    handle = project.engine(ScriptedClient()).prepare_execution("extract", inputs={"text": "x"})
    with pytest.raises(AttributeError):
        handle.prepared.model = "other"  # type: ignore[misc]  # the mistake under test
    with pytest.raises(TypeError):
        handle.prepared.output_schema["type"] = "array"
    with pytest.raises(AttributeError):
        handle.prepared = None  # type: ignore[misc, assignment]  # likewise


def test_a_handle_can_wait_for_hours(project: Project) -> None:
    """The time of a run begins when it is executed; waiting for an approval costs none of it."""
    clock = FakeClock()
    engine = project.engine(ScriptedClient(["x"]), clock=clock)
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    clock.advance(36_000)
    result = engine.run_prepared(handle, timeout=1)
    assert (result.text, result.duration_s) == ("x", 0)


# ------------------------------------------------------------------------------------------------ claimed once


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


@pytest.mark.parametrize("ending", ["cancel", "deadline"])
def test_a_run_that_is_ended_in_flight_stays_claimed(project: Project, ending: str) -> None:
    """Something was sent; its place is free again."""
    clock, gate = FakeClock(), Gate()
    engine = project.engine(ScriptedClient([held(gate, "x")]), backend=FULL, clock=clock)
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    token = CancelToken(clock=clock)
    worker = Worker(engine.run_prepared, handle, cancel=token, timeout=9)
    gate.wait_for(1)
    clock.wait_for_sleepers(1)
    if ending == "cancel":
        token.cancel("enough")
    else:
        clock.advance(9)
    with pytest.raises(GenerationCancelledError if ending == "cancel" else DeadlineExceededError):
        worker.result()
    assert places_taken(engine) == (0, 0, 0)
    with pytest.raises(AlreadyClaimedError):
        engine.run_prepared(handle)


def test_an_invalid_output_uses_the_handle_up(project: Project) -> None:
    """It was sent, and the model has answered."""
    engine = project.engine(ScriptedClient(always="no JSON"))
    handle = engine.prepare_execution("extract", inputs={"text": "t"})
    with pytest.raises(OutputValidationError):
        engine.run_prepared(handle)
    assert handle.is_claimed


def test_a_queue_timeout_uses_the_handle_up(project: Project) -> None:
    """It was admitted: only a refusal at the door gives a claim back."""
    clock, gate = FakeClock(), Gate()
    engine = project.engine(
        ScriptedClient([held(gate, "x")]), backend={"concurrency_limit": 1, "queue_capacity": 1}, clock=clock
    )
    worker = busy(engine, gate)
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    queued = Worker(engine.run_prepared, handle, queue_timeout=2)
    wait_until_queued(engine, "local")
    clock.advance(2)
    with pytest.raises(QueueTimeoutError):
        queued.result()
    assert handle.is_claimed
    gate.open()
    worker.result()
    assert places_taken(engine) == (0, 0, 0)


def test_the_second_of_two_claims_is_refused_while_the_first_one_runs(project: Project) -> None:
    """Not only when it has ended; the error names the prompt and the cure."""
    gate = Gate()
    engine = project.engine(ScriptedClient([held(gate, "x")]))
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    worker = Worker(engine.run_prepared, handle)
    gate.wait_for(1)
    with pytest.raises(AlreadyClaimedError, match=r"'echo'.*prepare another one"):
        engine.run_prepared(handle)
    gate.open()
    assert worker.result().text == "x"


# -------------------------------------------------------------------------------------------- claims given back


def test_a_refusal_gives_the_claim_back(project: Project) -> None:
    """Nothing was sent, so the same handle may be run later."""
    gate = Gate()
    engine = project.engine(ScriptedClient([held(gate, "one"), "two"]), backend=FULL)
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    first = busy(engine, gate)
    for _ in range(3):
        with pytest.raises(CapacityExceededError):
            engine.run_prepared(handle)
        assert not handle.is_claimed
    gate.open()
    first.result()
    assert engine.run_prepared(handle).data == "two"
    assert handle.is_claimed


def test_claims_that_are_given_back_under_threads_stay_one(project: Project) -> None:
    """Many threads claim and are refused, in any order: in the end there is one claim, and it runs once."""
    gate = Gate()
    engine = project.engine(ScriptedClient([held(gate, "busy")], always="run"), backend=FULL)
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    first = busy(engine, gate)
    barrier = threading.Barrier(8)

    def claim() -> set[str]:
        barrier.wait(20)
        outcomes = set()
        for _ in range(50):
            try:
                engine.run_prepared(handle)
                outcomes.add("run")
            except (AlreadyClaimedError, CapacityExceededError) as error:
                outcomes.add(type(error).__name__)
        return outcomes

    outcomes = set().union(*[worker.result() for worker in [Worker(claim) for _ in range(8)]])
    assert "run" not in outcomes
    assert "CapacityExceededError" in outcomes
    assert not handle.is_claimed
    gate.open()
    first.result()
    barrier.reset()
    runs = [Worker(run_if_possible, engine, handle, barrier) for _ in range(8)]
    assert sorted(worker.result() for worker in runs) == ["AlreadyClaimedError"] * 7 + ["run"]


def run_if_possible(engine: Engine, handle: PreparedExecution, barrier: threading.Barrier) -> str:
    """Return the answer of a run, or the class of its refusal."""
    barrier.wait(20)
    try:
        return engine.run_prepared(handle).text
    except AlreadyClaimedError as error:
        return type(error).__name__


def test_the_credential_is_looked_up_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that has gone gives the claim back; one that was rotated is the one that is used."""
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", "old")
    client = ScriptedClient(["x"])
    engine = project.engine(client, backend={"api_key_env": "PROMPTKIT_TEST_KEY"})
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    for wrong in (None, "", "two\nlines"):
        if wrong is None:
            monkeypatch.delenv("PROMPTKIT_TEST_KEY")
        else:
            monkeypatch.setenv("PROMPTKIT_TEST_KEY", wrong)
        with pytest.raises(CredentialError):
            engine.run_prepared(handle)
        assert not handle.is_claimed
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", "new")
    engine.run_prepared(handle)
    credential = client.requests[0].credential
    assert credential is not None
    assert credential.reveal() == "new"


def test_the_key_function_is_called_for_each_execution(project: Project) -> None:
    """And what it raises gives the claim back; a handle holds no key in between."""
    keys = iter(["key-1", RuntimeError("vault closed"), "key-2"])

    def key() -> str:
        value = next(keys)
        if isinstance(value, Exception):
            raise value
        return value

    client = ScriptedClient(["x"])
    engine = project.engine(client, backend={"api_key": key})
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    assert handle._plan.generate.credential is None
    with pytest.raises(CredentialError, match="RuntimeError"):
        engine.run_prepared(handle)
    engine.run_prepared(handle)
    credential = client.requests[0].credential
    assert credential is not None
    assert credential.reveal() == "key-2"
    assert handle._plan.generate.credential is None


def test_the_credential_comes_before_admission(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key nothing asks for a place: a full backend is not even looked at."""
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", "key")
    gate = Gate()
    engine = project.engine(ScriptedClient([held(gate, "x")]), backend={**FULL, "api_key_env": "PROMPTKIT_TEST_KEY"})
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    worker = busy(engine, gate)
    monkeypatch.delenv("PROMPTKIT_TEST_KEY")
    with pytest.raises(CredentialError) as caught:
        engine.run_prepared(handle)
    assert caught.value.attempts == ()
    gate.open()
    worker.result()


@pytest.mark.parametrize("failure", [CapacityExceededError("local", 1, 0), CredentialError("no key")])
def test_such_an_error_of_a_client_gives_nothing_back(project: Project, failure: Exception) -> None:
    """It was admitted and called: whatever the client raises, it may have sent something."""
    engine = project.engine(ScriptedClient([failure]))
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    with pytest.raises(GenerationError):
        engine.run_prepared(handle)
    assert handle.is_claimed


def test_arguments_that_are_wrong_do_not_claim(project: Project) -> None:
    """The call is refused before it touches the handle."""
    engine = project.engine(ScriptedClient(["x"]))
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    for arguments in ({"timeout": -1}, {"queue_timeout": "1"}, {"cancel": 5}, {"observer": 5}):
        with pytest.raises(InvalidRequestError):
            engine.run_prepared(handle, **arguments)
    assert engine.run_prepared(handle).text == "x"


def test_a_closed_engine_does_not_claim(project: Project) -> None:
    """It says so; preparing on it says so too."""
    engine = project.engine(ScriptedClient())
    handle = engine.prepare_execution("echo", inputs={"text": "t"})
    engine.close()
    with pytest.raises(EngineClosedError):
        engine.run_prepared(handle)
    assert not handle.is_claimed
    with pytest.raises(EngineClosedError):
        engine.prepare_execution("echo", inputs={"text": "t"})


# ------------------------------------------------------------------------------------------ the handle as an object


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
    """Neither the engine nor a cache keeps it, whether it has run or not."""
    client = ScriptedClient(always="x")
    engine = project.engine(client)
    for is_run in (False, True):
        handle = engine.prepare_execution("echo", inputs={"text": "t"})
        if is_run:
            engine.run_prepared(handle)
        client._requests.clear()
        content = weakref.ref(handle.prepared)
        plan = weakref.ref(handle._plan)
        del handle
        gc.collect()
        assert (content(), plan()) == (None, None)


def test_a_handle_says_what_it_is_without_its_content(project: Project) -> None:
    """The prompt, the hash and the state."""
    engine = project.engine(ScriptedClient(["x"]))
    handle = engine.prepare_execution("echo", inputs={"text": "a private text"})
    assert repr(handle) == f"<PreparedExecution of 'echo', {handle.prepared.rendered_hash}, unclaimed>"
    engine.run_prepared(handle)
    assert repr(handle).endswith("claimed>")
    assert "private" not in repr(handle)
