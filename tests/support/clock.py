"""The clock that tests move, as applications have it too; one that says who sleeps; and how patient the tests are."""

from __future__ import annotations

import os
from queue import SimpleQueue
from typing import TYPE_CHECKING

from promptkit._clock import SystemClock
from promptkit.testing import FakeClock
from promptkit.testing._clock import WAIT_LIMIT_S

if TYPE_CHECKING:
    import threading

HANG_S = float(os.environ.get("PROMPTKIT_HANG_S", WAIT_LIMIT_S))
"""How long a helper of the tests waits for what must happen at once, before it says that it hangs."""

__all__ = ["HANG_S", "AnnouncingClock", "FakeClock"]


class AnnouncingClock(SystemClock):
    """The machine's clock; says when a thread is about to sleep on it, which means that its ticket is queued."""

    __slots__ = ("_announcements",)

    def __init__(self) -> None:
        self._announcements: SimpleQueue[None] = SimpleQueue()  # in C: it survives the exceptions

    def announce(self) -> None:
        """Say that somebody sleeps."""
        self._announcements.put(None)

    def wait_for_sleeper(self) -> None:
        """Block until somebody has said so since the last call."""
        self._announcements.get(timeout=HANG_S)

    def wait(self, condition: threading.Condition, deadline: float | None) -> None:
        """Wait, after having said so."""
        self.announce()
        super().wait(condition, deadline)
