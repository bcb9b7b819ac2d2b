"""A clock that stands still until a test moves it, and that knows who waits on it."""

from __future__ import annotations

import threading

HANG_S = 10.0
"""How long a helper of the tests waits for what must happen at once, before it says that it hangs."""


class FakeClock:
    """Time for tests: nothing passes by itself, `advance` wakes whoever waits, `wait_for_sleepers` needs no polling.

    A waiter is counted from before it gives up its lock, so what a test does next finds it asleep: anything that
    needs the same lock comes after it. Locks are taken in one order only: the waiter's own, then the clock's.
    """

    def __init__(self, now: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self._lock = threading.Condition(threading.Lock())
        self._now = now
        self._offset = wall - now
        self._sleepers: dict[object, threading.Condition] = {}

    def monotonic(self) -> float:
        """Return the seconds that the test has let pass, plus where it began."""
        return self._now

    def wall(self) -> float:
        """Return the time of day that goes with it."""
        return self._now + self._offset

    def set_wall(self, wall: float) -> None:
        """Set the time of day, as an administrator would; the monotonic clock does not notice."""
        self._offset = wall - self._now

    def wait(self, condition: threading.Condition, deadline: float | None) -> None:
        """Block until ``condition`` is notified or the test moves the clock; at once if ``deadline`` has passed."""
        sleeper = object()
        with self._lock:
            if deadline is not None and self._now >= deadline:
                return
            self._sleepers[sleeper] = condition
            self._lock.notify_all()
        try:
            condition.wait()
        finally:
            with self._lock:
                self._sleepers.pop(sleeper, None)

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, and wake everybody who waits: each looks at its deadline and may wait again."""
        with self._lock:
            self._now += seconds
            sleepers = list(self._sleepers.values())
            self._sleepers.clear()
        for condition in sleepers:
            with condition:
                condition.notify_all()

    def wait_for_sleepers(self, count: int) -> None:
        """Block until at least ``count`` threads wait on this clock: until they are queued, or in a retry wait."""
        with self._lock:
            if not self._lock.wait_for(lambda: len(self._sleepers) >= count, HANG_S):
                raise AssertionError(f"{len(self._sleepers)} of {count} threads wait on the clock after {HANG_S:g} s")
