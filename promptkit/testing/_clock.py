"""A clock for tests: it stands still until it is moved, and it knows who waits on it.

Guarantees: a thread counts as waiting from before it gives up the lock it waits with, so whatever needs that lock
comes after it is asleep; nothing here polls. Locks are taken in one order only: the waiter's own, then the clock's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from promptkit._wake import Wake
from promptkit.errors import ConfigError

if TYPE_CHECKING:
    from promptkit._engine import Engine

WAIT_LIMIT_S: Final = 20.0
"""How long the aids for tests wait, in real seconds, for what should happen at once; then they say that it hangs."""


class FakeClock:
    """Time for tests: nothing passes by itself, `advance` wakes whoever waits. Give it to `Engine` as ``clock``.

    ``now`` is where the monotonic clock begins and ``wall`` the time of day then, both in seconds. With
    ``is_jumping`` the clock is never waited for: it jumps to the deadline of whoever waits for one. That is right for
    a test of one thread, which could not advance it while it waits; where several wait, it would end a wait that
    another thread is about to end otherwise. The attribute may be changed at any time.

    A `CancelToken` of your own takes the same clock: ``CancelToken(timeout=5, clock=fake_clock)``. Safe for any
    number of threads.
    """

    def __init__(self, now: float = 1000.0, wall: float = 1_700_000_000.0, *, is_jumping: bool = False) -> None:
        self.is_jumping = is_jumping
        self._lock = threading.Condition(threading.Lock())
        self._now = now
        self._offset = wall - now
        self._sleepers: dict[object, threading.Condition] = {}
        self._called: set[object] = set()
        self._arrivals = 0

    def monotonic(self) -> float:
        """Return the seconds that the test has let pass, plus where it began."""
        return self._now

    def wall(self) -> float:
        """Return the time of day that goes with it, in seconds since the epoch."""
        return self._now + self._offset

    def set_wall(self, wall: float) -> None:
        """Set the time of day, as an administrator would; the monotonic clock does not notice."""
        self._offset = wall - self._now

    def wait(self, condition: threading.Condition, deadline: float | None) -> None:
        """Block until ``condition`` is notified or the clock is moved; at once if ``deadline`` has passed."""
        sleeper = object()
        with self._lock:
            if deadline is not None and self.is_jumping:
                self._now = max(self._now, deadline)
            if deadline is not None and self._now >= deadline:
                return
            self._sleepers[sleeper] = condition
            self._arrivals += 1
            self._lock.notify_all()
        try:
            condition.wait()
        finally:
            if isinstance(condition, Wake):  # what came as it woke up would end the next sleep, and that would count
                condition.forget()
            with self._lock:
                self._sleepers.pop(sleeper, None)
                self._called.discard(sleeper)

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, and wake everybody who waits: each looks at its deadline and may wait again."""
        with self._lock:
            self._now += seconds
            sleepers = list(self._sleepers.items())
            self._called.update(self._sleepers)
            self._sleepers.clear()
        for sleeper, condition in sleepers:
            with condition:
                if sleeper in self._called:  # a Condition that is used again may have another's sleep on it by now
                    condition.notify_all()

    def wait_for_sleepers(self, count: int = 1) -> None:
        """Block until at least ``count`` threads wait on this clock: queued, at a gate, or before a retry.

        Raises `AssertionError` when they do not come.
        """
        with self._lock:
            if not self._lock.wait_for(lambda: len(self._sleepers) >= count, WAIT_LIMIT_S):
                raise AssertionError(
                    f"{len(self._sleepers)} of {count} threads wait on the clock after {WAIT_LIMIT_S:g} s"
                )

    def wait_until(self, predicate: Callable[[], bool]) -> bool:
        """Block until ``predicate`` is true, asking whenever a thread has begun to wait on this clock.

        Returns what it said last: False when it was not true in time. It is called without any lock held.
        """
        arrivals = self._arrivals
        while not predicate():
            if not self._has_arrivals_after(arrivals):
                return predicate()
            arrivals = self._arrivals
        return True

    def _has_arrivals_after(self, arrivals: int) -> bool:
        with self._lock:
            return self._lock.wait_for(lambda: self._arrivals != arrivals, WAIT_LIMIT_S)


def wait_until_queued(engine: Engine, backend: str, runs: int = 1) -> None:
    """Block until at least ``runs`` runs of ``engine`` wait for a permit of ``backend``.

    The engine must have been built with a `FakeClock`. Raises `AssertionError` when they do not come, and `ConfigError`
    for another clock and for a backend that nothing can queue for, since it is unknown or has no limit.
    """
    clock, manager = engine._clock, engine._runner._manager  # noqa: SLF001  # an aid of the same package
    if not isinstance(clock, FakeClock):
        raise ConfigError("wait_until_queued needs an engine that was built with clock=FakeClock()")

    def waiting() -> int:
        stats = manager.stats(backend)
        if stats is None:
            raise ConfigError(f"nothing can queue for backend {backend!r}: it is unknown here, or has no limit")
        return stats.waiting

    if not clock.wait_until(lambda: waiting() >= runs):
        raise AssertionError(f"{waiting()} of {runs} runs are queued for backend {backend!r} after {WAIT_LIMIT_S:g} s")
