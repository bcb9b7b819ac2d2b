"""What a thread sleeps on: notifications that are remembered, and a lock that is had again."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from promptkit._wake import Wake
from support.threads import Worker, rescued

if TYPE_CHECKING:
    from collections.abc import Callable


def make(kind: str = "lock") -> tuple[threading.Lock, Wake]:
    """Return an RLock and a Wake on it, or on a Condition on it."""
    lock = threading.RLock()
    return lock, Wake(lock if kind == "lock" else threading.Condition(lock))  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ["lock", "condition"])
@pytest.mark.parametrize("notify", [Wake.notify, Wake.notify_all, lambda wake: wake.notify(7)])
def test_a_notification_that_comes_first_ends_the_wait_at_once(kind: str, notify: Callable[[Wake], None]) -> None:
    """Once: several are one."""
    lock, wake = make(kind)
    notify(wake)
    notify(wake)
    with lock:
        assert wake.wait() is True
        assert wake.wait(0) is False


def test_a_wait_gives_the_lock_up_and_has_it_again() -> None:
    """However deep it was held."""
    lock, wake = make()
    seen: list[bool] = []

    def other() -> None:
        with lock:
            seen.append(True)
            wake.notify()

    with lock, lock:
        worker = Worker(other)
        assert wake.wait() is True
        assert seen == [True]
        assert Worker(lock.acquire, blocking=False).result() is False
    worker.result()
    assert Worker(lock.acquire, blocking=False).result() is True


@pytest.mark.parametrize("timeout", [0.001, 0, -1, -0.5])
def test_a_wait_that_nobody_ends_says_so(timeout: float) -> None:
    """A time that has passed is no error, and not for ever."""
    lock, wake = make()
    with lock, rescued(wake.notify):
        assert wake.wait(timeout) is False


def test_a_wait_of_some_time_is_ended_by_a_notification() -> None:
    """And says so."""
    lock, wake = make()
    wake.notify()
    with lock:
        assert wake.wait(60.0) is True


def test_waiting_for_something_works_as_with_any_condition() -> None:
    """`threading.Condition.wait_for` uses the wait."""
    lock, wake = make()
    answers = iter([False, True])
    wake.notify()
    with lock:
        assert wake.wait_for(lambda: next(answers), 60) is True


def test_a_wait_needs_the_lock() -> None:
    """Whoever does not hold it is told so, and holds it no more than before."""
    lock, wake = make()
    with pytest.raises(RuntimeError, match="un-acquired"):
        wake.wait(0)
    assert Worker(lock.acquire, blocking=False).result() is True


def test_notifying_needs_no_lock_and_waits_for_none() -> None:
    """It may be called where the lock's owner was interrupted, or while another thread holds it."""
    lock, wake = make()
    with lock:
        Worker(wake.notify).result()
        assert wake.wait() is True


@pytest.mark.parametrize("error", [RuntimeError, type("SoftTimeLimitError", (RuntimeError,), {}), KeyError])
def test_what_a_handler_raises_while_it_notifies_comes_out(error: type[Exception]) -> None:
    """Even where it is of the kind that the lock itself raises when it has been released already."""
    _lock, wake = make()

    def interrupt(_frame: object, event: str, function: Any) -> None:
        if event == "c_return" and function.__name__ == "release":
            sys.setprofile(None)
            raise error("time is up")

    sys.setprofile(interrupt)
    try:
        with pytest.raises(error, match="time is up"):
            wake.notify()
    finally:
        sys.setprofile(None)


def test_what_was_notified_can_be_forgotten() -> None:
    """By who has seen it otherwise; there may have been nothing."""
    lock, wake = make()
    wake.notify()
    with lock:
        wake.forget()
        wake.forget()
        assert wake.wait(0) is False
        wake.notify()
        assert wake.wait(0) is True


def test_the_log_is_settled_before_the_lock_is_given_up() -> None:
    """As often as there is something in it, and with the lock held."""
    lock = threading.RLock()
    log = ["first", "second"]
    seen: list[tuple[str, bool]] = []

    def settle() -> None:
        seen.append((log.pop(0), Worker(lock.acquire, blocking=False).result()))

    wake = Wake(lock, log, settle)
    with lock:
        assert wake.wait(0) is False
    assert seen == [("first", False), ("second", False)]


def test_what_a_handler_logs_while_the_log_is_settled_is_settled_too() -> None:
    """It comes out of the settling itself; and what it notifies ends the wait that was about to begin."""
    lock = threading.RLock()
    log = ["first"]
    before = signal.signal(signal.SIGUSR1, lambda *_: log.append("the handler's"))

    def settle() -> None:
        if log.pop(0) == "first":
            signal.raise_signal(signal.SIGUSR1)
        else:
            wake.notify()

    wake = Wake(lock, log, settle)
    try:
        with lock, rescued(wake.notify):
            assert wake.wait() is True
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert log == []


def test_an_exception_out_of_a_sleep_leaves_the_lock_held_and_the_next_sleep_whole() -> None:
    """A signal handler that raises while the thread sleeps, for one."""
    lock, wake = make()

    def interrupt(_frame: object, event: str, function: Any) -> None:
        if event == "c_call" and function.__name__ == "acquire":
            sys.setprofile(None)
            raise KeyboardInterrupt

    with lock:
        sys.setprofile(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                wake.wait()
        finally:
            sys.setprofile(None)
        assert Worker(lock.acquire, blocking=False).result() is False
        assert wake.wait(0) is False
    assert Worker(lock.acquire, blocking=False).result() is True


@pytest.mark.parametrize("is_lost", [True, False])
def test_the_lock_is_held_again_once(is_lost: bool) -> None:  # noqa: FBT001  # a parameter
    """Whether an interrupted wait came out with the lock or without it, one release frees it."""
    lock, wake = make()

    def act() -> None:
        with lock:
            if is_lost:
                lock.release()
            wake.own_again()

    act()
    assert Worker(lock.acquire, blocking=False).result() is True
