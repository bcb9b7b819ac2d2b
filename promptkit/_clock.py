"""Time, in one place: what the core asks for now, and how it waits.

Guarantees: durations and deadlines are on the monotonic clock; wall time is used for HTTP dates only.
A `Clock` has no state and takes no lock of its own; tests replace it by one that they move.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What the core needs of time. Implementations are safe for any number of threads."""

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back."""
        ...

    def wall(self) -> float:
        """Return seconds since the epoch; compared with dates that servers send, and nothing else."""
        ...

    def wait(self, condition: threading.Condition, deadline: float | None) -> None:
        """Block on ``condition``, whose lock is held, until it is notified or ``deadline`` has passed.

        ``deadline`` is absolute, on this clock; None waits for a notification alone. It may return early:
        the caller looks at its own predicate and calls again.
        """
        ...


class SystemClock:
    """The clock of the machine."""

    __slots__ = ()

    def monotonic(self) -> float:
        """Return ``time.monotonic()``."""
        return time.monotonic()

    def wall(self) -> float:
        """Return ``time.time()``."""
        return time.time()

    def wait(self, condition: threading.Condition, deadline: float | None) -> None:
        """Wait for a notification, or until ``deadline``."""
        if deadline is None:
            condition.wait()
            return
        left = deadline - time.monotonic()
        if left > 0:
            condition.wait(min(left, threading.TIMEOUT_MAX))


SYSTEM_CLOCK = SystemClock()
