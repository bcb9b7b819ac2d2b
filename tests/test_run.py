"""Whole runs: an exception at any point, many threads, forks, closing, and what is left behind (nothing)."""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import pickle
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from promptkit import (
    AttemptEvent,
    Backend,
    CancelToken,
    Engine,
    ExecutionOverride,
    GenerateResponse,
    RunRequest,
    Usage,
)
from promptkit._coordinator import Coordinator
from promptkit._inputs import check_inputs
from promptkit._validate import validate_output
from promptkit.errors import (
    AlreadyClaimedError,
    CapacityExceededError,
    ConfigError,
    CredentialError,
    DeadlineExceededError,
    EngineClosedError,
    GenerationCancelledError,
    GenerationDeadlineError,
    GenerationError,
    InputError,
    InvalidRequestError,
    OutputTruncatedError,
    OutputValidationError,
    OverloadedError,
    QueueTimeoutError,
    RunCancelledError,
    UnknownNameError,
)
from promptkit.testing import FakeClock, Gate, ScriptedClient, held
from support.inject import CODE, InjectedError, Interrupted, points
from support.project import Project
from support.server import Gate as ServerGate
from support.server import Server, completion, reply
from support.threads import Worker

INPUTS = {"text": "t"}
SPINE = (*CODE, "promptkit/_coordinator.py", "promptkit/_run.py", "promptkit/_engine.py")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An application's folders."""
    return Project(tmp_path)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that plays what the test tells it."""
    with Server() as server:
        yield server


def stats(engine: Engine) -> tuple[int, int, int]:
    """Return leases, permits and tickets of the backend ``local``."""
    found = engine._runner._manager.stats("local")
    assert found is not None
    return tuple(found)


# ------------------------------------------------------------------------- an exception at every point of a run


class RawClient:
    """Plays a script without a lock of its own, which an exception raised into the thread could leave taken."""

    def __init__(self, *script: Any) -> None:
        self._script = list(script)

    def generate(self, request: Any, cancel: CancelToken) -> Any:
        """Return the next entry, or raise it."""
        entry = self._script.pop(0)
        if isinstance(entry, Exception):
            raise entry
        return GenerateResponse(text=entry, finish_reason="stop", usage=Usage(total_tokens=1))


def a_repaired_run(engine: Engine) -> Callable[[], object]:
    """Two attempts under one lease, each told to an observer."""
    seen: list[AttemptEvent] = []
    return lambda: engine.run("extract", inputs=INPUTS, observer=seen.append, timeout=60)


def a_prepared_run(engine: Engine) -> Callable[[], object]:
    """The same from a handle."""
    handle = engine.prepare_execution("extract", inputs=INPUTS)
    return lambda: engine.run_prepared(handle)


def a_run_out_of_patience(engine: Engine) -> Callable[[], object]:
    """One that queues and gives up."""
    permit = engine._runner._manager.acquire("local", CancelToken())

    def act() -> None:
        try:
            with pytest.raises(QueueTimeoutError):
                engine.run("echo", inputs=INPUTS, queue_timeout=1)
        finally:
            permit.release()

    return act


def a_retried_run(engine: Engine) -> Callable[[], object]:
    """One whose first attempt fails, and which waits before the second."""
    runner = engine._runner
    failure = OverloadedError("down", is_retryable=True, retry_after_s=5)
    client = RawClient(failure, '{"n": 1}')
    runner._coordinator = Coordinator(client, runner._manager, may_retry=True, clock=engine._clock)
    return lambda: engine.run("extract", inputs=INPUTS)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("scenario", [a_repaired_run, a_prepared_run, a_run_out_of_patience, a_retried_run])
def test_c11_an_exception_at_every_point_of_a_run_leaves_the_pool_right(
    project: Project, scenario: Callable[[Engine], Callable[[], object]]
) -> None:
    """No lease, no permit and no ticket is left, wherever Ctrl-C landed, and the exception comes out itself."""
    tried = 0
    for point in points():
        clock = FakeClock(is_jumping=True)
        engine = project.engine(
            RawClient('{"n": "x"}', '{"n": 1}'), backend={"concurrency_limit": 1, "queue_capacity": 1}, clock=clock
        )
        run = Interrupted(scenario(engine), point, code=SPINE)
        assert Worker(stats, engine).result() == (0, 0, 0), run.place
        assert run.error is None or type(run.error) is InjectedError, f"{run.place}: {run.error!r}"
        assert (run.error is None) == (run.place is None), f"{run.place}: the exception was swallowed"
        if run.place is None:
            break
        tried += 1
    assert tried > 50, "the search is empty"


# ------------------------------------------------------------------------------------------- many at once


def test_a_credential_that_fails_after_admission_does_not_give_the_claim_back(project: Project) -> None:
    """Something may have been sent before: only a refusal before admission leaves a handle as it was."""
    engine = project.engine(RawClient())
    runner = engine._runner
    client = RawClient('{"n": "x"}', CredentialError("rotated away"))
    runner._coordinator = Coordinator(client, runner._manager, may_retry=True, clock=engine._clock)
    handle = engine.prepare_execution("extract", inputs=INPUTS)
    with pytest.raises(CredentialError) as caught:
        engine.run_prepared(handle)
    assert handle.is_claimed
    assert (len(caught.value.attempts), caught.value.usage) == (2, Usage(total_tokens=1))


def test_thirty_two_threads_with_mixed_outcomes(project: Project) -> None:
    """Each gets its own outcome with its own account, and in the end everything is back."""
    answers: dict[str, Any] = {
        "good": '{"n": 1}',
        "bad": '{"n": "x"}',
        "cut": GenerateResponse(text='{"n"', finish_reason="length", usage=Usage(total_tokens=3)),
        "broken": OSError("gone"),
    }

    class Client:
        def generate(self, request: Any, cancel: CancelToken) -> Any:
            text = request.messages[1].content
            if text == "cancelled":
                cancel.cancel("left")
                cancel.raise_if_cancelled()
            answer = answers[text]
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, GenerateResponse):
                return answer
            return GenerateResponse(text=answer, finish_reason="stop", usage=Usage(total_tokens=2))

    expected = {
        "good": ("RunResult", 1, 2),
        "bad": ("OutputValidationError", 2, 4),
        "cut": ("OutputTruncatedError", 1, 3),
        "broken": ("TransportError", 1, None),
        "cancelled": ("GenerationCancelledError", 1, None),
    }
    engine = project.engine(Client(), backend={"concurrency_limit": 3})
    wrong: list[Any] = []

    def hammer(first: int) -> None:
        kinds = list(expected)
        for n in range(25):
            kind = kinds[(first + n) % len(kinds)]
            seen: list[AttemptEvent] = []
            try:
                outcome: Any = engine.run("extract", inputs={"text": kind}, cancel=CancelToken(), observer=seen.append)
            except (GenerationError, OutputValidationError) as error:
                outcome = error
            told = (type(outcome).__name__, len(outcome.attempts), outcome.usage.total_tokens)
            if told != expected[kind] or outcome.attempts != tuple(seen):
                wrong.append((kind, told))

    for worker in [Worker(hammer, n) for n in range(32)]:
        worker.result()
    assert wrong == []
    assert stats(engine) == (0, 0, 0)


def test_two_engines_share_nothing(project: Project) -> None:
    """C35: each has the full limit, and closing one leaves the other alone."""
    gate = Gate()
    one = project.engine(ScriptedClient([held(gate, "one")]), backend={"concurrency_limit": 1, "queue_capacity": 0})
    two = project.engine(ScriptedClient(always="two"), backend={"concurrency_limit": 1, "queue_capacity": 0})
    busy = Worker(one.run, "echo", inputs=INPUTS)
    gate.wait_for(1)
    with pytest.raises(CapacityExceededError):
        one.run("echo", inputs=INPUTS)
    assert two.run("echo", inputs=INPUTS).data == "two"
    one.close()
    assert two.run("echo", inputs=INPUTS).data == "two"
    gate.open()
    assert busy.result().data == "one"


def test_a_closed_engine_lets_runs_finish_even_their_retries(project: Project, server: Server) -> None:
    """Runs under way go on, on new connections if need be, and keep none; new calls are refused."""
    gate = ServerGate()
    server.play(reply(status=503, json={"error": {"message": "down"}}, gate=gate), reply(json=completion("hi")))
    engine = project.engine(backend={"endpoint": f"{server.url}/v1"}, proxies={})
    handle = engine.prepare_execution("echo", inputs=INPUTS)
    busy = Worker(engine.run, "echo", inputs=INPUTS, override=ExecutionOverride(retry={"base_delay_s": 0}))
    gate.wait_arrived()
    engine.close()
    engine.close()
    for call in (
        lambda: engine.run("echo", inputs=INPUTS),
        lambda: engine.run_prepared(handle),
        engine.__enter__,
    ):
        with pytest.raises(EngineClosedError):
            call()
    gate.open()
    assert (busy.result().data, len(busy.result().attempts)) == ("hi", 2)
    server.wait_for(lambda s: not s.open)
    assert not handle.is_claimed


def test_an_injected_client_is_not_closed(project: Project) -> None:
    """It is the application's own, and may serve other engines."""

    class Client(ScriptedClient):
        is_closed = False

        def close(self) -> None:
            self.is_closed = True

    client = Client(["x"])
    with project.engine(client) as engine:
        engine.run("echo", inputs=INPUTS)
    assert not client.is_closed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_c09_an_engine_made_and_busy_before_a_fork_works_in_the_child(project: Project, server: Server) -> None:
    """Runs of the parent hold every place; the child finds none taken, and the parent's go on unhurt."""
    gate = ServerGate()
    server.play(reply(json=completion("first"), gate=gate), reply(json=completion("later")))
    backend = {"endpoint": f"{server.url}/v1", "concurrency_limit": 1, "queue_capacity": 0}
    engine = project.engine(backend=backend, proxies={})
    busy = Worker(engine.run, "echo", inputs=INPUTS)
    gate.wait_arrived()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if stats(engine) == (0, 0, 0) and engine.run("echo", inputs=INPUTS, timeout=20).data == "later":
                status = 0
        except BaseException:  # noqa: BLE001  # the parent sees the status
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(CapacityExceededError):
        engine.run("echo", inputs=INPUTS)
    gate.open()
    assert busy.result().data == "first"
    assert engine.run("echo", inputs=INPUTS).data == "later"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_workers_do_not_wait_in_step(project: Project) -> None:
    """Full jitter spreads the retries of workers that were all made of one engine."""
    jitter = project.engine(ScriptedClient())._runner._coordinator._jitter
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, repr([jitter(0, 1) for _ in range(4)]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)
    assert theirs.count(",") == 3
    assert theirs != repr([jitter(0, 1) for _ in range(4)])


# ------------------------------------------------------------------------------------------ order of the steps


@pytest.fixture
def full(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine whose only place is taken, and a handle-worthy credential in the environment."""
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", "sk-1")
    backend = {"concurrency_limit": 1, "queue_capacity": 0, "api_key_env": "PROMPTKIT_TEST_KEY"}
    engine = project.engine(ScriptedClient(always="x"), backend=backend)
    with engine._runner._manager.admit("local", CancelToken()):
        yield engine
    assert stats(engine) == (0, 0, 0)


def test_a_token_that_is_over_comes_before_a_full_backend(full: Engine) -> None:
    """Whoever does not want the answer any more is not told to come back later."""
    token = CancelToken()
    token.cancel("left")
    with pytest.raises(RunCancelledError, match="left"):
        full.run("echo", inputs=INPUTS, cancel=token)
    with pytest.raises(DeadlineExceededError):
        full.run("echo", inputs=INPUTS, timeout=0)


def test_routing_comes_before_admission(full: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with names, session and credential is told by a full backend too; inputs are not looked at."""
    handle = full.prepare_execution("echo", inputs=INPUTS)
    mistakes: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"request": "nowhere"}, UnknownNameError),
        ({"profile": "nowhere"}, UnknownNameError),
        ({"session_id": "a\nb"}, InvalidRequestError),
        ({"override": ExecutionOverride(endpoint="ftp://h")}, ConfigError),
        ({"inputs": {}}, CapacityExceededError),
    ]
    for options, kind in mistakes:
        with pytest.raises(kind):
            full.run(**{"request": "echo", "inputs": INPUTS, **options})
    with pytest.raises(CapacityExceededError):
        full.run_prepared(handle)
    monkeypatch.delenv("PROMPTKIT_TEST_KEY")
    for call in (lambda: full.run("echo", inputs=INPUTS), lambda: full.run_prepared(handle)):
        with pytest.raises(CredentialError):
            call()
    assert not handle.is_claimed


def test_the_lease_is_held_through_completing_validating_and_repairing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A permit is held in the client alone; the lease from the second phase to the end."""
    engines: list[Engine] = []
    seen: list[tuple[str, tuple[int, int, int]]] = []

    class Client:
        def generate(self, request: Any, cancel: CancelToken) -> GenerateResponse:
            seen.append(("generate", stats(engines[0])))
            return GenerateResponse(text='{"n": "x"}' if len(seen) < 5 else '{"n": 1}', finish_reason="stop")

    def repairer(messages: Any, text: str, issues: Any, /) -> Any:
        seen.append(("repair", stats(engines[0])))
        return messages

    def spied(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            seen.append((name, stats(engines[0])))
            return function(*arguments, **options)

        return call

    engine = project.engine(Client(), backend={"concurrency_limit": 1, "queue_capacity": 0}, repairer=repairer)
    engines.append(engine)
    monkeypatch.setattr("promptkit._prepare.check_inputs", spied("complete", check_inputs))
    monkeypatch.setattr("promptkit._run.validate_output", spied("validate", validate_output))
    engine.run("extract", inputs=INPUTS)
    lease, permit = (1, 0, 0), (1, 1, 0)
    assert seen == [
        ("complete", lease),
        ("generate", permit),
        ("validate", lease),
        ("repair", lease),
        ("generate", permit),
        ("validate", lease),
    ]
    assert stats(engine) == (0, 0, 0)


# ----------------------------------------------------------------------------------------- what is left behind


def test_a_departed_run_keeps_nothing_alive(project: Project) -> None:
    """Not the request, not the token, not the result, not the observer; also with a parent token that stays."""
    left: list[weakref.ref[Any]] = []

    class Client:
        def generate(self, request: Any, cancel: CancelToken) -> Any:
            left.extend((weakref.ref(request), weakref.ref(cancel)))
            return GenerateResponse(text="x", finish_reason="stop")

    class Observer:
        def __call__(self, event: AttemptEvent) -> None:
            left.append(weakref.ref(event))

    engine = project.engine(Client(), backend={"concurrency_limit": 1})
    parent = CancelToken()
    gc.collect()
    gc.disable()
    try:
        for token in (parent.child(), None):
            request, observer = RunRequest("echo", INPUTS), Observer()
            result = engine.run(request, cancel=token, timeout=9, observer=observer)
            left.extend(weakref.ref(each) for each in (request, observer, result, result.prepared))
            del request, observer, result, token
        assert [reference() for reference in left if reference() is not None] == []
    finally:
        gc.enable()
    assert not parent._watchers


def test_nothing_grows_with_the_runs_served(project: Project) -> None:
    """Hundreds of runs of every outcome later there are as many objects as before."""

    class Client:
        def generate(self, request: Any, cancel: CancelToken) -> Any:
            text = request.messages[1].content
            if text == "broken":
                raise OSError("gone")
            return GenerateResponse(text=text, finish_reason="stop")

    engine = project.engine(Client(), backend={"concurrency_limit": 2})
    parent = CancelToken()
    override = ExecutionOverride(temperature=0)

    def serve(rounds: int) -> None:
        for n in range(rounds):
            for text in ('{"n": 1}', '{"n": "x"}', "broken"):
                with contextlib.suppress(GenerationError, OutputValidationError):
                    engine.run("extract", inputs={"text": text}, cancel=parent.child(timeout=60), override=override)
            handle = engine.prepare_execution("extract", inputs={"text": str(n)})
            with pytest.raises(InvalidRequestError):
                engine.run_prepared(handle, timeout=-1)

    serve(20)
    gc.collect()
    before = len(gc.get_objects())
    serve(150)
    gc.collect()
    assert len(gc.get_objects()) - before < 100


def test_targets_kept_ready_are_bounded(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that is edited again and again does not fill memory with what it used to mean."""
    monkeypatch.setattr("promptkit._prepare.MAX_TARGETS", 3)
    engine = project.engine(ScriptedClient())
    for n in range(8):
        project.prompt(f"p{n}", "profile: main\nmessages: [{role: user, content: x}]\n")
        engine.prepare(f"p{n}")
    assert len(engine._runner._preparer._targets) <= 3


# ------------------------------------------------------------------------------ accounts on every way out


def test_usage_sums_with_presence(project: Project) -> None:
    """A number that one answer reported counts, one that nobody reported stays None, 0 is a number; cost adds up."""
    client = ScriptedClient(
        [
            GenerateResponse(text='{"n": "x"}', finish_reason="stop", usage=Usage(prompt_tokens=3, cost=0.25)),
            GenerateResponse(text='{"n": "y"}', finish_reason="stop"),
            GenerateResponse(
                text='{"n": 1}', finish_reason="stop", usage=Usage(completion_tokens=0, cached_tokens=2, cost=0.5)
            ),
        ]
    )
    result = project.engine(client).run("extract", inputs=INPUTS)
    assert result.usage == Usage(prompt_tokens=3, completion_tokens=0, cached_tokens=2, cost=0.75)
    assert result.usage.total_tokens is None
    assert [event.usage is None for event in result.attempts] == [False, True, False]


def test_what_a_run_gives_and_takes_survives_copies(project: Project) -> None:
    """Request, result, prepared run, events and what the client was given are equal after pickle, copy and deepcopy."""
    client = ScriptedClient(['{"n": "x"}', '{"n": 1}'])
    engine = project.engine(client, backend={"api_key": "sk-secret"})
    request = RunRequest("extract", {"text": "t"}, session_id="s", override=ExecutionOverride(stop=["x"], seed=0))
    result = engine.run(request)
    for record in (request, result, result.prepared, *result.attempts, *client.requests):
        data = pickle.dumps(record)
        assert b"sk-secret" not in data
        for twin in (pickle.loads(data), copy.copy(record), copy.deepcopy(record)):
            assert twin == record
            assert type(twin) is type(record)


def test_c33_a_truncated_repair_carries_what_both_answers_cost(project: Project) -> None:
    """The error that ends the run is the truncation, with the sum and both attempts."""
    client = ScriptedClient(
        [
            GenerateResponse(text='{"n": "x"}', finish_reason="stop", usage=Usage(total_tokens=100)),
            GenerateResponse(text='{"n"', finish_reason="length", usage=Usage(total_tokens=80)),
        ]
    )
    with pytest.raises(OutputTruncatedError, match="2 attempts made") as caught:
        project.engine(client).run("extract", inputs=INPUTS)
    assert caught.value.usage == Usage(total_tokens=180)
    assert [event.usage for event in caught.value.attempts] == [Usage(total_tokens=100), Usage(total_tokens=80)]


def test_a_failure_after_admission_keeps_its_category_and_gives_the_lease_back(project: Project) -> None:
    """Inputs are read once the run has its place; what is wrong with them is told as that."""
    engine = project.engine(ScriptedClient(["x"]), backend={"concurrency_limit": 1, "queue_capacity": 0})
    for inputs in ({}, {"text": 3}, {"text": "x", "more": 1}):
        with pytest.raises(InputError) as caught:
            engine.run("echo", inputs=inputs)
        assert (caught.value.attempts, caught.value.usage) == ((), Usage())
    assert stats(engine) == (0, 0, 0)
    assert engine.run("echo", inputs=INPUTS).data == "x"


def test_a_second_claim_has_an_account_too(project: Project) -> None:
    """Every error that leaves run_prepared has one, that of a claim and those of its arguments included."""
    engine = project.engine(ScriptedClient(["x"]))
    handle = engine.prepare_execution("echo", inputs=INPUTS)
    engine.run_prepared(handle)
    with pytest.raises(AlreadyClaimedError) as caught:
        engine.run_prepared(handle)
    assert (caught.value.attempts, caught.value.usage) == ((), Usage())
    with pytest.raises(InvalidRequestError) as refused:
        engine.run_prepared(handle, timeout=float("inf"))
    assert refused.value.usage == Usage()


@pytest.mark.parametrize("seconds", [1e300, 10**300, 10**12])
def test_times_beyond_all_clocks_set_no_limit(project: Project, seconds: float) -> None:
    """They are numbers of seconds like others; nothing overflows."""
    engine = project.engine(ScriptedClient(["x"]), backend={"concurrency_limit": 1})
    assert engine.run("echo", inputs=INPUTS, timeout=seconds, queue_timeout=seconds).data == "x"


@pytest.mark.parametrize("seconds", [10**400, float("inf"), float("nan"), "3", True, -0.1])
@pytest.mark.parametrize("option", ["timeout", "queue_timeout"])
def test_what_is_no_number_of_seconds_is_refused(project: Project, option: str, seconds: Any) -> None:
    """The option is named, and how it has to be."""
    with pytest.raises(InvalidRequestError, match=f"{option} must be .* seconds"):
        project.engine(ScriptedClient()).run("echo", inputs=INPUTS, **{option: seconds})


def test_a_deadline_that_passes_while_a_repair_is_queued(project: Project) -> None:
    """It is told as waiting for a permit, with the first attempt's usage, and the lease is back."""
    clock, gate = FakeClock(), Gate()
    engines: list[Engine] = []
    others: list[Worker] = []

    def repairer(messages: Any, text: str, issues: Any, /) -> Any:
        others.append(Worker(engines[0].run, "echo", inputs=INPUTS))
        gate.wait_for(1)
        clock.advance(10)
        return messages

    first = GenerateResponse(text='{"n": "x"}', finish_reason="stop", usage=Usage(total_tokens=5))
    engine = project.engine(
        ScriptedClient([first, held(gate, "other")]),
        backend={"concurrency_limit": 1},
        clock=clock,
        repairer=repairer,
    )
    engines.append(engine)
    with pytest.raises(GenerationDeadlineError, match="waiting for a permit") as caught:
        engine.run("extract", inputs=INPUTS, timeout=5)
    assert (caught.value.phase, caught.value.usage) == ("queue", Usage(total_tokens=5))
    assert [event.is_dispatched for event in caught.value.attempts] == [True, False]
    gate.open()
    others[0].result()
    assert stats(engine) == (0, 0, 0)


def test_a_cancel_from_another_thread_reaches_a_child_token(project: Project) -> None:
    """``timeout=`` makes a child of the caller's token; cancelling the caller's own ends the run."""
    gate, token = Gate(), CancelToken()
    engine = project.engine(ScriptedClient([held(gate, "x")]))
    worker = Worker(engine.run, "echo", inputs=INPUTS, cancel=token, timeout=60)
    gate.wait_for(1)
    token.cancel("enough")
    with pytest.raises(GenerationCancelledError, match="enough"):
        worker.result()
    assert not token._watchers


def test_duration_includes_waiting_and_preparation_does_not(project: Project) -> None:
    """The result's clock starts when run is entered, the prepared run's covers preparation alone."""
    clock, gate = FakeClock(), Gate()
    engine = project.engine(ScriptedClient([held(gate, "x")]), clock=clock)
    worker = Worker(engine.run, "echo", inputs=INPUTS)
    clock.wait_for_sleepers(1)
    clock.advance(12)
    gate.open()
    result = worker.result()
    assert (result.duration_s, result.prepared.duration_s) == (12, 0)
    assert result.attempts[0].generation_s == 12


def test_backends_of_one_engine_are_independent(project: Project) -> None:
    """A full backend refuses its own runs and nobody else's."""
    project.write("profiles/other.yaml", "backend: other\n")
    gate = Gate()
    one = {"concurrency_limit": 1, "queue_capacity": 0, "endpoint": "http://127.0.0.1:9/v1"}
    engine = project.engine(
        ScriptedClient([held(gate, "a"), "b"]), backends=[Backend("local", **one), Backend("other", **one)]
    )
    busy = Worker(engine.run, "echo", inputs=INPUTS)
    gate.wait_for(1)
    with pytest.raises(CapacityExceededError, match=r"'local' is full: 1 running, 0 waiting"):
        engine.run("echo", inputs=INPUTS)
    assert engine.run("echo", inputs=INPUTS, profile="other").data == "b"
    gate.open()
    assert busy.result().data == "a"
