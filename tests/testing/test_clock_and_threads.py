"""Time that tests move, and threads that give their errors back."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import promptkit.testing._clock as clock_module
from promptkit import CancelToken
from promptkit._wake import Wake
from promptkit.errors import ConfigError, DeadlineExceededError, GenerationDeadlineError
from promptkit.testing import FakeClock, Gate, ScriptedClient, Worker, held, late, wait_until_queued
from support.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An application's folders."""
    return Project(tmp_path)


def test_the_two_clocks_go_together_until_the_wall_clock_is_set() -> None:
    """An administrator changes the time of day and not what has passed."""
    clock = FakeClock(now=10, wall=500)
    clock.advance(5)
    assert (clock.monotonic(), clock.wall()) == (15, 505)
    clock.set_wall(100)
    clock.advance(1)
    assert (clock.monotonic(), clock.wall()) == (16, 101)


def test_queued_runs_can_be_waited_for(project: Project) -> None:
    """The test knows that two runs are queued behind one, without sleeping, and lets them go on."""
    gate, clock = Gate(), FakeClock()
    client = ScriptedClient([held(gate, "first")], always="later")
    engine = project.engine(client, backend={"concurrency_limit": 1, "queue_capacity": 5}, clock=clock)
    workers = [Worker(engine.run, "echo", inputs={"text": str(n)}) for n in range(3)]
    wait_until_queued(engine, "local", 2)
    assert len(client.requests) == 1
    gate.open()
    assert sorted(worker.result().text for worker in workers) == ["first", "later", "later"]
    assert client.max_in_flight == 1


def test_a_queue_timeout_needs_no_sleep(project: Project) -> None:
    """The queued run's time is up when the test says so."""
    gate, clock = Gate(), FakeClock()
    engine = project.engine(
        ScriptedClient([held(gate, "first")]), backend={"concurrency_limit": 1, "queue_capacity": 5}, clock=clock
    )
    first = Worker(engine.run, "echo", inputs={"text": "1"})
    clock.wait_for_sleepers()
    second = Worker(engine.run, "echo", inputs={"text": "2"}, timeout=7)
    wait_until_queued(engine, "local")
    clock.advance(7)
    with pytest.raises(GenerationDeadlineError):
        second.result()
    gate.open()
    assert first.result().duration_s == 7


def test_a_jumping_clock_ends_waits_in_the_thread_that_waits(project: Project) -> None:
    """One thread sees a slow answer come, and a slower one miss the deadline, at once."""
    engine = project.engine(ScriptedClient([late(20, "x"), late(40, "y")]), clock=FakeClock(is_jumping=True))
    assert engine.run("echo", inputs={"text": "t"}, timeout=30).duration_s == 20
    with pytest.raises(DeadlineExceededError, match="30 s"):
        engine.run("echo", inputs={"text": "t"}, timeout=30)


def test_a_gate_that_is_never_opened_ends_by_the_deadline(project: Project) -> None:
    """A held call is bound by its run's time."""
    engine = project.engine(ScriptedClient([held(Gate(), "x")]), clock=FakeClock(is_jumping=True))
    with pytest.raises(DeadlineExceededError):
        engine.run("echo", inputs={"text": "t"}, timeout=30)


def test_a_gate_asks_a_token_that_can_only_be_polled(project: Project) -> None:
    """A host that says when its client has gone ends a held call too."""
    clock, gone = FakeClock(is_jumping=True), iter([False, False, False, False, False, True])
    token = CancelToken(poll=lambda: next(gone, True), poll_interval_s=1, clock=clock)
    with pytest.raises(Exception, match="cancelled"):
        project.engine(ScriptedClient([held(Gate(), "x")]), clock=clock).run("echo", inputs={"text": "t"}, cancel=token)


def test_what_cannot_be_waited_for_is_said(project: Project) -> None:
    """Another clock tells nobody of its waiters; a backend without a limit has no queue."""
    with pytest.raises(ConfigError, match=r"clock=FakeClock\(\)"):
        wait_until_queued(project.engine(ScriptedClient()), "local")
    engine = project.engine(ScriptedClient(), clock=FakeClock())
    for backend in ("local", "unknown"):
        with pytest.raises(ConfigError, match="nothing can queue"):
            wait_until_queued(engine, backend)


def test_whoever_has_left_is_not_told_the_time() -> None:
    """Somebody else may sleep on the same Condition by then, and would be woken for nothing."""
    clock, told = FakeClock(), []

    class Late(threading.Condition):
        """Lets the sleeper go before the clock gets hold of the lock."""

        def __enter__(self) -> bool:
            with self._lock:  # type: ignore[attr-defined]
                self.notify()
            worker.result()
            return super().__enter__()

        def notify_all(self) -> None:
            told.append(self)

    lock = threading.RLock()
    condition = Late(lock)

    def sleep() -> None:
        with lock:
            clock.wait(condition, None)

    worker = Worker(sleep)
    clock.wait_for_sleepers()
    clock.advance(1)
    assert told == []


def test_what_comes_as_a_sleeper_wakes_up_does_not_end_its_next_sleep() -> None:
    """A thread that counts as asleep is asleep, also on a Wake, which remembers."""
    clock = FakeClock()

    class Twice(Wake):
        """Is notified once more when the sleeper has woken up."""

        def wait(self, timeout: float | None = None) -> bool:
            is_notified = super().wait(timeout)
            self.notify()
            return is_notified

    lock = threading.RLock()
    wake = Twice(lock)
    wake.notify()
    with lock:
        clock.wait(wake, None)
        assert Wake.wait(wake, 0) is False


def test_waits_for_what_does_not_come_end(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that would hang fails with what it was waiting for."""
    monkeypatch.setattr(clock_module, "WAIT_LIMIT_S", 0.01)
    clock = FakeClock()
    with pytest.raises(AssertionError, match="0 of 1 threads wait on the clock"):
        clock.wait_for_sleepers()
    engine = project.engine(ScriptedClient(), backend={"concurrency_limit": 1}, clock=clock)
    with pytest.raises(AssertionError, match="0 of 2 runs are queued for backend 'local'"):
        wait_until_queued(engine, "local", 2)


def test_a_gate_nobody_comes_to_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise for calls."""
    monkeypatch.setattr("promptkit.testing._scripted.WAIT_LIMIT_S", 0.01)
    with pytest.raises(AssertionError, match="0 calls came to the gate, not 1"):
        Gate().wait_for()


def test_a_worker_gives_back_what_its_function_gave() -> None:
    """A value, or the error itself, whatever it derives from."""
    assert Worker(divmod, 7, 2).result() == (3, 1)

    def stop() -> None:
        raise KeyboardInterrupt("stop")

    worker = Worker(stop)
    worker.join()
    assert isinstance(worker.error, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt, match="stop"):
        worker.result()


def test_a_worker_that_hangs_is_told() -> None:
    """The test fails, and does not hang with it."""
    release = threading.Event()
    worker = Worker(release.wait)
    with pytest.raises(AssertionError, match=r"still running after 0\.01 s"):
        worker.result(timeout=0.01)
    release.set()
    worker.join()
