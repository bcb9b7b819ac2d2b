"""The machine's clock."""

import threading
import time

import pytest

from promptkit._clock import SYSTEM_CLOCK
from support.threads import Worker


def test_the_system_clock_is_the_machines() -> None:
    """Monotonic for durations, wall for dates."""
    before = time.monotonic(), time.time()
    now = SYSTEM_CLOCK.monotonic(), SYSTEM_CLOCK.wall()
    after = time.monotonic(), time.time()
    assert before[0] <= now[0] <= after[0]
    assert before[1] <= now[1] <= after[1]


@pytest.mark.parametrize("timeout", [None, 60.0, threading.TIMEOUT_MAX * 2])
def test_a_wait_ends_by_a_notification(timeout: float | None) -> None:
    """With a deadline, without one, and with one so far away that the system could not wait for it."""
    condition = threading.Condition()
    is_waiting = threading.Event()

    def wait() -> None:
        with condition:
            is_waiting.set()
            SYSTEM_CLOCK.wait(condition, None if timeout is None else SYSTEM_CLOCK.monotonic() + timeout)

    worker = Worker(wait)
    assert is_waiting.wait(20)
    with condition:
        condition.notify_all()
    worker.result()


def test_a_wait_ends_at_its_deadline() -> None:
    """And returns at once when that has passed."""
    condition = threading.Condition()
    start = SYSTEM_CLOCK.monotonic()
    with condition:
        SYSTEM_CLOCK.wait(condition, start + 0.01)
        assert SYSTEM_CLOCK.monotonic() >= start + 0.01
        SYSTEM_CLOCK.wait(condition, start)
