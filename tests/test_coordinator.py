"""Attempts: what the client's failures become, what the observer hears and when, waits, and what is kept alive."""

from __future__ import annotations

import copy
import gc
import pickle
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from promptkit import AttemptEvent, Backend, CancelToken, Engine, ExecutionOverride, GenerateResponse, Usage
from promptkit import errors as errors_module
from promptkit.errors import (
    CapacityExceededError,
    ConfigError,
    DeadlineExceededError,
    GenerationCancelledError,
    GenerationDeadlineError,
    GenerationError,
    MalformedResponseError,
    OverloadedError,
    PromptKitError,
    QueueTimeoutError,
    RateLimitedError,
    RunCancelledError,
    TransportError,
    TransportTimeoutError,
)
from promptkit.testing import FakeClock, Gate, ScriptedClient, held, late, wait_until_queued
from support.project import Project
from support.server import Server, completion, hang, reply
from support.threads import Worker

INPUTS = {"text": "t"}
ONE_PLACE = {"concurrency_limit": 1, "queue_capacity": 0}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An application's folders."""
    return Project(tmp_path)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that plays what the test tells it."""
    with Server() as server:
        yield server


class Client:
    """A model client made of one function."""

    def __init__(self, generate: Callable[[Any, CancelToken], Any]) -> None:
        self._generate = generate

    def generate(self, request: Any, cancel: CancelToken) -> Any:
        """Call the function."""
        return self._generate(request, cancel)


def stats(engine: Engine) -> tuple[int, int, int]:
    """Return leases, permits and tickets of the backend ``local``."""
    found = engine._runner._manager.stats("local")
    assert found is not None
    return tuple(found)


# ------------------------------------------------------------------------------------ the client's failures


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ValueError("x"), GenerationError),
        (KeyError("x"), GenerationError),
        (OSError("x"), TransportError),
        (ConnectionResetError("x"), TransportError),
        (TimeoutError("x"), TransportTimeoutError),
        (ConfigError("x"), GenerationError),
        (CapacityExceededError("other", 1, 0), GenerationError),
        (RecursionError("x"), GenerationError),
        (StopIteration("x"), GenerationError),
    ],
)
def test_whatever_an_injected_client_raises_is_wrapped_once(
    project: Project, raised: Exception, expected: type[GenerationError]
) -> None:
    """The class fits, the original is the cause, its text (which may hold anything) is not repeated."""
    client = ScriptedClient([raised])
    with pytest.raises(GenerationError) as caught:
        project.engine(client).run("echo", inputs=INPUTS)
    assert type(caught.value) is expected
    assert caught.value.__cause__ is raised
    assert type(raised).__name__ in str(caught.value)
    assert len(client.requests) == 1


def test_an_injected_clients_own_error_keeps_its_class_and_is_not_written_on(project: Project) -> None:
    """A client may raise one and the same error for many runs: each run gets a copy with its own account."""
    shared = RateLimitedError("slow down", status=429, retry_after_s=7, is_retryable=True)
    engine = project.engine(Client(lambda request, cancel: ScriptedClient([shared]).generate(request, cancel)))
    found = []
    for _ in range(2):
        with pytest.raises(RateLimitedError) as caught:
            engine.run("echo", inputs=INPUTS)
        found.append(caught.value)
    assert shared.args == ("slow down",)
    assert (shared.attempts, shared.usage) == ((), None)
    assert found[0] is not found[1]
    assert [error.__cause__ for error in found] == [shared, shared]
    assert [(error.status, error.retry_after_s, len(error.attempts)) for error in found] == [(429, 7, 1)] * 2


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (RunCancelledError("theirs"), GenerationError),
        (GenerationCancelledError("theirs"), GenerationError),
        (DeadlineExceededError("theirs"), TransportTimeoutError),
        (QueueTimeoutError("theirs", waited_s=1), TransportTimeoutError),
    ],
)
def test_a_cancel_that_was_not_this_runs_is_a_failure(
    project: Project, raised: Exception, expected: type[GenerationError]
) -> None:
    """A client with a token of its own – a nested run's – has failed; this run was neither cancelled nor late."""
    seen: list[AttemptEvent] = []
    with pytest.raises(GenerationError) as caught:
        project.engine(ScriptedClient([raised])).run("echo", inputs=INPUTS, observer=seen.append)
    assert type(caught.value) is expected
    assert not isinstance(caught.value, RunCancelledError)
    assert [(event.outcome, event.is_dispatched) for event in seen] == [("failed", True)]


def test_a_client_that_breaks_because_it_was_cancelled_is_cancelled(project: Project) -> None:
    """A client may end by whatever its library raises when its socket is shut down: the token says why."""
    token = CancelToken()

    def generate(request: Any, cancel: CancelToken) -> Any:
        cancel.cancel("the user left")
        raise OSError("bad file descriptor")

    with pytest.raises(GenerationCancelledError, match="the user left") as caught:
        project.engine(Client(generate)).run("echo", inputs=INPUTS, cancel=token)
    assert isinstance(caught.value.__cause__, TransportError)
    assert isinstance(caught.value.__cause__.__cause__, OSError)
    assert [event.outcome for event in caught.value.attempts] == ["cancelled"]


def test_an_answer_that_came_in_spite_of_the_cancel_is_taken(project: Project) -> None:
    """It has been paid for, and is valid."""
    token = CancelToken()

    def generate(request: Any, cancel: CancelToken) -> GenerateResponse:
        cancel.cancel()
        return GenerateResponse(text="x", finish_reason="stop")

    assert project.engine(Client(generate)).run("echo", inputs=INPUTS, cancel=token).data == "x"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        3,
        "text",
        b"x",
        {"text": "x"},
        GenerateResponse(text=3),  # type: ignore[arg-type]  # the mistakes under test
        GenerateResponse(text=["x"]),  # type: ignore[arg-type]
        GenerateResponse(text="x", finish_reason=3),  # type: ignore[arg-type]
        GenerateResponse(text="x", usage={"total_tokens": 1}),  # type: ignore[arg-type]
        GenerateResponse(text="x", finish_reason="stop", usage=3),  # type: ignore[arg-type]
        GenerateResponse(text="x", finish_reason="stop", model=3),  # type: ignore[arg-type]
        GenerateResponse(text="x", finish_reason="stop", reasoning=3),  # type: ignore[arg-type]
        GenerateResponse(text="x", finish_reason="stop", rejection=3),  # type: ignore[arg-type]
        GenerateResponse(text="x", finish_reason="stop", request_id=object()),  # type: ignore[arg-type]
        GenerateResponse(text="x", refusal=3),  # type: ignore[arg-type]
        GenerateResponse(),
    ],
)
@pytest.mark.parametrize("prompt", ["echo", "extract"])
def test_garbage_from_a_client_is_a_malformed_response(project: Project, prompt: str, answer: Any) -> None:
    """Nothing, something else, or a response with fields of wrong types: one class, and still an event."""
    seen: list[AttemptEvent] = []
    with pytest.raises(MalformedResponseError) as caught:
        project.engine(Client(lambda request, cancel: answer)).run(prompt, inputs=INPUTS, observer=seen.append)
    assert caught.value.usage == Usage()
    assert [event.outcome for event in seen] == ["failed"]
    assert caught.value.attempts == tuple(seen)


def test_a_setting_that_the_built_in_client_refuses_keeps_its_category(project: Project, server: Server) -> None:
    """A header that the transport does not send is a ConfigError, and the attempt is told all the same."""
    seen: list[AttemptEvent] = []
    engine = project.engine(backend={"endpoint": f"{server.url}/v1"}, proxies={})
    override = ExecutionOverride(headers={"Content-Length": "3"})
    with pytest.raises(ConfigError, match=r"(?i)content-length") as caught:
        engine.run("echo", inputs=INPUTS, override=override, observer=seen.append)
    assert [(event.outcome, event.error_type) for event in seen] == [("failed", "ConfigError")]
    assert caught.value.attempts == tuple(seen)
    assert caught.value.usage == Usage()
    assert server.requests == []


# ------------------------------------------------------------------------ exceptions raised into the thread


class SoftTimeLimitError(Exception):
    """What a task queue raises from a signal handler: an ordinary exception."""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals to threads")
def test_what_a_signal_handler_raises_passes_unchanged(project: Project, server: Server) -> None:
    """A task's soft time limit during a blocked read is no failure of the client; everything comes back."""
    server.play(hang())
    engine = project.engine(backend={"endpoint": f"{server.url}/v1", **ONE_PLACE}, proxies={})
    seen: list[AttemptEvent] = []
    is_over = threading.Event()
    main = threading.get_ident()

    def limit(*_: object) -> None:
        if not is_over.is_set():
            is_over.set()
            raise SoftTimeLimitError

    def interrupt() -> None:
        server.wait_for(lambda s: s.in_flight == 1)
        while not is_over.wait(0.01):  # one that comes just before the system call does not interrupt it
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, limit)
    try:
        helper = Worker(interrupt)
        with pytest.raises(SoftTimeLimitError):
            engine.run("echo", inputs=INPUTS, observer=seen.append)
        helper.result()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [(event.outcome, event.error_type, event.is_dispatched) for event in seen] == [
        ("cancelled", "SoftTimeLimitError", True)
    ]
    assert stats(engine) == (0, 0, 0)
    server.wait_for(lambda s: s.in_flight == 0)
    server.play(reply(json=completion("hi")))
    assert engine.run("echo", inputs=INPUTS).data == "hi"


class InterruptingClock(FakeClock):
    """A clock whose next wait ends as a signal handler that raises would end it."""

    is_armed = False

    def wait(self, condition: threading.Condition, deadline: float | None) -> None:
        """Raise once if armed; else wait."""
        if self.is_armed:
            self.is_armed = False
            raise SoftTimeLimitError
        super().wait(condition, deadline)


def test_what_is_raised_into_a_queued_thread_is_not_blamed_on_the_client(project: Project) -> None:
    """Nothing was sent; the exception is passed on, and the place in the queue is free again."""
    gate, clock = Gate(), InterruptingClock()
    client = ScriptedClient([held(gate, "one"), "two"])
    engine = project.engine(client, backend={"concurrency_limit": 1, "queue_capacity": 1}, clock=clock)
    first = Worker(engine.run, "echo", inputs=INPUTS)
    gate.wait_for(1)
    clock.wait_for_sleepers(1)
    clock.is_armed = True
    seen: list[AttemptEvent] = []
    with pytest.raises(SoftTimeLimitError):
        engine.run("echo", inputs=INPUTS, observer=seen.append)
    assert [(event.outcome, event.is_dispatched) for event in seen] == [("cancelled", False)]
    assert stats(engine) == (1, 1, 0)
    gate.open()
    assert first.result().data == "one"
    assert engine.run("echo", inputs=INPUTS).data == "two"


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_an_interrupted_attempt_is_told_and_nothing_is_kept(project: Project, raised: BaseException) -> None:
    """It passes unchanged, and the observer hears of the attempt that was sent."""
    engine = project.engine(ScriptedClient([raised]), backend=ONE_PLACE)
    seen: list[AttemptEvent] = []
    with pytest.raises(type(raised)) as caught:
        engine.run("echo", inputs=INPUTS, observer=seen.append)
    assert caught.value is raised
    assert [(event.outcome, event.error_type) for event in seen] == [("cancelled", type(raised).__name__)]
    assert stats(engine) == (0, 0, 0)


def test_an_observer_that_interrupts_passes(project: Project) -> None:
    """KeyboardInterrupt from an observer is no failure of it to be logged."""

    def observer(event: AttemptEvent) -> None:
        raise KeyboardInterrupt

    engine = project.engine(ScriptedClient(["x"]), backend=ONE_PLACE)
    with pytest.raises(KeyboardInterrupt):
        engine.run("echo", inputs=INPUTS, observer=observer)
    assert stats(engine) == (0, 0, 0)


# ---------------------------------------------------------------------------------- calls from inside a run


def test_c17_a_client_that_runs_on_its_own_full_backend_is_refused(project: Project) -> None:
    """The nested run gets the refusal of the pool, and the outer one says so; nobody waits for anybody."""
    engines: list[Engine] = []

    def generate(request: Any, cancel: CancelToken) -> Any:
        return engines[0].run("echo", inputs=INPUTS)

    engine = project.engine(Client(generate), backend=ONE_PLACE)
    engines.append(engine)
    with pytest.raises(GenerationError, match="CapacityExceededError") as caught:
        engine.run("echo", inputs=INPUTS)
    assert isinstance(caught.value.__cause__, CapacityExceededError)
    assert stats(engine) == (0, 0, 0)


def test_c17_a_repairer_that_runs_on_its_own_full_backend_is_refused(project: Project) -> None:
    """The run ends with its own error, and the refusal is the cause."""
    engines: list[Engine] = []

    def repairer(messages: Any, text: str, issues: Any, /) -> Any:
        return engines[0].run("echo", inputs=INPUTS)

    engine = project.engine(ScriptedClient(['{"n": "x"}']), backend=ONE_PLACE, repairer=repairer)
    engines.append(engine)
    with pytest.raises(errors_module.OutputValidationError, match="CapacityExceededError") as caught:
        engine.run("extract", inputs=INPUTS)
    assert isinstance(caught.value.__cause__, CapacityExceededError)
    assert len(caught.value.attempts) == 1


def test_c17_a_nested_run_works_where_there_is_room(project: Project) -> None:
    """An observer may run something on a backend that is not full: it holds no permit while it is called."""
    engine = project.engine(ScriptedClient(["one", "two"]), backend={"concurrency_limit": 1, "queue_capacity": 1})
    inner: list[str] = []

    def observer(event: AttemptEvent) -> None:
        inner.append(engine.run("echo", inputs=INPUTS).data)

    assert engine.run("echo", inputs=INPUTS, observer=observer).data == "one"
    assert inner == ["two"]


def test_the_observer_is_called_when_the_permit_is_back_and_the_lease_is_not(project: Project) -> None:
    """In the run's own thread, for each attempt in order, and before the run goes on."""
    engine = project.engine(ScriptedClient(['{"n": "x"}', '{"n": 1}']), backend={"concurrency_limit": 2})
    seen: list[tuple[int, str, tuple[int, int, int], int]] = []

    def observer(event: AttemptEvent) -> None:
        seen.append((event.number, event.kind, stats(engine), threading.get_ident()))

    engine.run("extract", inputs=INPUTS, observer=observer)
    mine = threading.get_ident()
    assert seen == [(1, "initial", (1, 0, 0), mine), (2, "repair", (1, 0, 0), mine)]


def test_an_observer_that_cancels_stops_the_repair(project: Project) -> None:
    """The invalid first answer is accounted for, and no second one is asked for."""
    token = CancelToken()
    client = ScriptedClient([GenerateResponse(text='{"n": "x"}', finish_reason="stop", usage=Usage(total_tokens=7))])
    with pytest.raises(GenerationCancelledError) as caught:
        project.engine(client).run(
            "extract", inputs=INPUTS, cancel=token, observer=lambda event: token.cancel("seen enough")
        )
    assert [(event.kind, event.is_dispatched) for event in caught.value.attempts] == [
        ("initial", True),
        ("repair", False),
    ]
    assert caught.value.usage == Usage(total_tokens=7)
    assert len(client.requests) == 1


# -------------------------------------------------------------------------------------------- waits and time


def test_queue_timeout_is_for_the_first_attempt_alone(project: Project) -> None:
    """A repair that has to queue waits for as long as it takes."""
    clock, gate = FakeClock(), Gate()
    engine_of: list[Engine] = []
    others: list[Worker] = []

    def repairer(messages: Any, text: str, issues: Any, /) -> Any:
        others.append(Worker(engine_of[0].run, "echo", inputs=INPUTS))
        gate.wait_for(1)
        return messages

    client = ScriptedClient(['{"n": "x"}', held(gate, "other"), '{"n": 1}'])
    engine = project.engine(client, backend={"concurrency_limit": 1}, clock=clock, repairer=repairer)
    engine_of.append(engine)
    worker = Worker(engine.run, "extract", inputs=INPUTS, queue_timeout=5)
    wait_until_queued(engine, "local")
    clock.advance(60)
    gate.open()
    assert worker.result().data == {"n": 1}
    assert others[0].result().data == "other"


def test_queue_timeout_of_zero_takes_a_free_permit(project: Project) -> None:
    """Not waiting is not the same as not running; without a limit there is nothing to wait for."""
    for backend in ({"concurrency_limit": 1}, {}):
        engine = project.engine(ScriptedClient(["x"]), backend=backend)
        assert engine.run("echo", inputs=INPUTS, queue_timeout=0).data == "x"


def test_the_queue_timeout_says_how_long_was_waited(project: Project) -> None:
    """``waited_s`` in the error, the queue as its phase, and an attempt that was not dispatched."""
    clock, gate = FakeClock(), Gate()
    engine = project.engine(ScriptedClient([held(gate, "x")]), backend={"concurrency_limit": 1}, clock=clock)
    first = Worker(engine.run, "echo", inputs=INPUTS)
    gate.wait_for(1)
    second = Worker(engine.run, "echo", inputs=INPUTS, queue_timeout=2, timeout=60)
    wait_until_queued(engine, "local")
    clock.advance(2.5)
    with pytest.raises(QueueTimeoutError, match="nothing was sent") as caught:
        second.result()
    assert caught.value.waited_s == 2.5
    (event,) = caught.value.attempts
    assert (event.outcome, event.is_dispatched, event.queued_s, event.generation_s) == ("cancelled", False, 2.5, 0)
    gate.open()
    first.result()


@pytest.mark.parametrize(
    ("options", "allowed"),
    [({"timeout": 5}, "5 s"), ({"of_token": 7}, "7 s"), ({"timeout": 9, "of_token": 4}, "4 s")],
)
def test_the_earlier_of_timeout_and_token_ends_the_run_and_is_named(
    project: Project, options: dict[str, float], allowed: str
) -> None:
    """Whoever set it: the message tells the seconds that were allowed, the attribute has them."""
    clock = FakeClock()
    token = CancelToken(timeout=options.pop("of_token", None), clock=clock)
    engine = project.engine(ScriptedClient([late(100, "x")]), clock=clock)
    worker = Worker(engine.run, "echo", inputs=INPUTS, cancel=token, **options)
    clock.wait_for_sleepers(1)
    clock.advance(50)
    with pytest.raises(GenerationDeadlineError, match=f"the run's time of {allowed} was up") as caught:
        worker.result()
    assert caught.value.timeout_s == float(allowed.removesuffix(" s"))


def test_timeout_s_is_named_as_the_attempts_own(project: Project, server: Server) -> None:
    """A slow attempt is not a run that is out of time: another class, another message."""
    server.play(hang())
    engine = project.engine(backend={"endpoint": f"{server.url}/v1"}, proxies={})
    with pytest.raises(TransportTimeoutError, match=r"0\.05 s") as caught:
        engine.run("echo", inputs=INPUTS, timeout=30, override=ExecutionOverride(timeout_s=0.05))
    assert not isinstance(caught.value, RunCancelledError)


def test_a_cancel_between_grant_and_sending_gives_the_permit_back(project: Project) -> None:
    """A token whose poll says so as the permit is granted: nothing is sent, the attempt was not dispatched."""
    client = ScriptedClient(["x"])
    engine = project.engine(client, backend=ONE_PLACE)
    answers = iter([False, False])  # at admission and before the queue; after the grant it has gone
    token = CancelToken(poll=lambda: next(answers, True))
    with pytest.raises(GenerationCancelledError) as caught:
        engine.run("echo", inputs=INPUTS, cancel=token)
    assert [event.is_dispatched for event in caught.value.attempts] == [False]
    assert client.requests == ()
    assert stats(engine) == (0, 0, 0)


@pytest.mark.parametrize("hint", [None, "8"])
def test_a_wait_leaves_time_for_the_attempt_that_follows(project: Project, server: Server, hint: str | None) -> None:
    """With 10 s left, a wait of up to an hour is cut so that the run can still be served."""
    headers = {} if hint is None else {"Retry-After": hint}
    server.play(reply(status=503, headers=headers, json={"error": {"message": "down"}}), reply(json=completion("hi")))
    clock = FakeClock()
    engine = project.engine(backend={"endpoint": f"{server.url}/v1"}, proxies={}, clock=clock)
    seen: list[AttemptEvent] = []
    override = ExecutionOverride(retry={"base_delay_s": 3600, "max_delay_s": 3600})
    worker = Worker(engine.run, "echo", inputs=INPUTS, timeout=10, override=override, observer=seen.append)
    clock.wait_for_sleepers(1)
    delay = seen[0].next_delay_s
    assert delay is not None
    assert float(hint or 0) <= delay <= 9
    clock.advance(delay)
    assert worker.result().data == "hi"


def test_the_longest_wait_holds_with_jitter_too(project: Project, server: Server) -> None:
    """A hint of just ``max_retry_after_s`` is waited for exactly."""
    server.play(
        reply(status=503, headers={"Retry-After": "60"}, json={"error": {"message": "down"}}),
        reply(json=completion("hi")),
    )
    clock = FakeClock()
    engine = project.engine(backend={"endpoint": f"{server.url}/v1"}, proxies={}, clock=clock)
    worker = Worker(engine.run, "echo", inputs=INPUTS)
    clock.wait_for_sleepers(1)
    clock.advance(60)
    result = worker.result()
    assert result.attempts[0].next_delay_s == 60
    assert result.duration_s >= 60


# ------------------------------------------------------------------------------------- what errors are like


def ended_runs(project: Project, server: Server) -> Iterator[PromptKitError]:
    """Yield an error of each way in which a run can end."""
    server.play(reply(status=503, json={"error": {"message": "down", "code": "x"}}))
    engine = project.engine(backend={"endpoint": f"{server.url}/v1", "concurrency_limit": 1}, proxies={})
    cancelled = CancelToken()
    cancelled.cancel("why")
    once = ExecutionOverride(retry={"budget": 0})
    calls: list[tuple[Engine, str, dict[str, Any]]] = [
        (engine, "echo", {"override": once}),
        (engine, "echo", {"cancel": cancelled}),
        (engine, "echo", {"timeout": 0}),
        (engine, "nowhere", {}),
        (engine, "echo", {"profile": "nowhere"}),
        (engine, "echo", {"inputs": {}}),
        (engine, "echo", {"timeout": -1}),
        (engine, "echo", {"session_id": "a\nb"}),
        (project.engine(ScriptedClient(['{"n": "x"}'] * 2)), "extract", {}),
        (project.engine(ScriptedClient([GenerateResponse(text="{", finish_reason="length")])), "extract", {}),
        (project.engine(ScriptedClient([GenerateResponse(refusal="no", finish_reason="stop")])), "extract", {}),
        (project.engine(ScriptedClient([RunCancelledError("theirs")])), "echo", {}),
        (project.engine(ScriptedClient(["x"]), backend={"api_key_env": "PROMPTKIT_NO_SUCH_KEY"}), "echo", {}),
    ]
    closed = project.engine(ScriptedClient())
    closed.close()
    calls.append((closed, "echo", {}))
    for caller, prompt, options in calls:
        with pytest.raises(PromptKitError) as caught:
            caller.run(prompt, **{"inputs": INPUTS, **options})
        yield caught.value


def test_every_error_that_ends_a_run_carries_an_account_and_survives_copies(project: Project, server: Server) -> None:
    """Attempts, usage, notes and all other attributes are equal after pickle, copy and deepcopy."""
    kinds = set()
    for error in ended_runs(project, server):
        kinds.add(type(error).__name__)
        assert isinstance(error.attempts, tuple)
        assert isinstance(error.usage, Usage)
        error.add_note("seen by the caller")
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert type(twin) is type(error)
            assert str(twin) == str(error)
            assert twin.__dict__ == error.__dict__
            assert twin.__notes__ == ["seen by the caller"]
    assert len(kinds) >= 10


@pytest.mark.parametrize("name", errors_module.__all__)
def test_every_error_class_survives_copies_with_an_account(name: str) -> None:
    """Also those that are hard to bring about, with what a run puts on them."""
    kind = getattr(errors_module, name)
    error = errors_module._restore(kind, ("what happened",), {"usage": Usage(total_tokens=3)})
    error.attempts = (
        AttemptEvent(number=1, kind="initial", outcome="failed", is_dispatched=True, queued_s=0, generation_s=1),
    )
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is kind
        assert (str(twin), twin.attempts, twin.usage) == ("what happened", error.attempts, error.usage)


def test_an_error_that_has_left_is_kept_alive_by_its_catcher_alone(project: Project, server: Server) -> None:
    """No frame of ours is in a cycle with it: it goes when the caller lets go, without the collector."""
    server.play(reply(status=503, json={"error": {"message": "down"}}))
    engine = project.engine(backend={"endpoint": f"{server.url}/v1"}, proxies={})
    clock = FakeClock(is_jumping=True)
    late_engine = project.engine(backend={"endpoint": f"{server.url}/v1"}, proxies={}, clock=clock)
    engines: list[tuple[Engine, dict[str, Any]]] = [
        (engine, {"override": ExecutionOverride(retry={"base_delay_s": 0})}),
        (late_engine, {"override": ExecutionOverride(retry={"base_delay_s": 9})}),
        (project.engine(ScriptedClient([ValueError("x")])), {}),
        (project.engine(ScriptedClient([GenerationError("x")])), {}),
        (project.engine(ScriptedClient([GenerateResponse(refusal="no")])), {}),
        (project.engine(ScriptedClient([GenerateResponse(text="x", finish_reason="length")])), {}),
        (project.engine(ScriptedClient()), {"timeout": 0}),
        (project.engine(ScriptedClient(), backends=[Backend("other", endpoint="http://h/v1")]), {}),
    ]
    gc.collect()
    gc.disable()
    try:
        for each, options in engines:
            try:
                each.run("echo", inputs=INPUTS, **options)
            except PromptKitError as error:
                left = weakref.ref(error)
            assert left() is None
    finally:
        gc.enable()


def test_a_deadline_in_a_retry_wait_is_kept_alive_by_its_catcher_alone(project: Project, server: Server) -> None:
    """Neither it nor the failure before it."""
    server.play(reply(status=503, headers={"Retry-After": "30"}, json={"error": {"message": "down"}}))
    token = CancelToken()
    engine = project.engine(backend={"endpoint": f"{server.url}/v1"}, proxies={}, clock=FakeClock())
    gc.collect()
    gc.disable()
    try:
        try:
            engine.run("echo", inputs=INPUTS, cancel=token, observer=lambda event: token.cancel())
        except GenerationCancelledError as error:
            kinds = [type(error), type(error.__cause__)]
            left = [weakref.ref(error), weakref.ref(error.__cause__)]
        assert kinds == [GenerationCancelledError, OverloadedError]
        assert [reference() for reference in left] == [None, None]
    finally:
        gc.enable()
