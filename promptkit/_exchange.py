"""One request and its answer: when it must end, who may end it, and where its time goes.

* `Exchange.wait_s` says how long the next operation may block; whoever blocks asks it first, each time. So nothing
  outlasts the attempt's end or the token's by more than one system call's way back.
* `Exchange.interrupt`, from any thread or signal handler, ends a wait that is under way at once. It takes no lock.
* An interrupt that comes late never touches what has gone on to serve another exchange: what would be woken lies in
  a list of at most one waker, and whoever pops it (one C call) owns it. Only an owner who got it back with
  `Exchange.disarm` may go on with what it wakes.

No thread stands by and there is no timer. A token that polls bounds each wait to its interval and is asked in
between. This module knows no sockets; `promptkit._sockets` does.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit._cancel import CancelToken

Phase = Literal["connect", "send", "first byte", "body"]


class Stopped(Exception):  # noqa: N818 – control flow inside the transport: it says stop, not what went wrong
    """The exchange is over: cancelled, or out of time. `Exchange` knows which."""


class Exchange:
    """One request and its answer: when it must end, who may end it, and where its time goes.

    ``connect_s`` bounds the connect phase alone, ``timeout_s`` the whole. Used by one thread; `interrupt` alone may
    be called from others. ``end`` is when the present phase must end, on ``time.monotonic()``; ``is_connect_bound``
    says that the limit of the connect phase is what ends it; ``timings`` has the seconds of the phases gone by;
    ``has_ended_stream`` says that the peer has closed since the present phase began.
    """

    __slots__ = (
        "_cancel",
        "_connect_s",
        "_is_token_bound",
        "_poll_s",
        "_since",
        "_wakers",
        "_whole_end",
        "end",
        "has_ended_stream",
        "is_connect_bound",
        "is_interrupted",
        "phase",
        "timings",
    )

    def __init__(self, cancel: CancelToken, *, timeout_s: float, connect_s: float) -> None:
        remaining = cancel.remaining()  # asked before the time is taken, so that end is never too early
        now = time.monotonic()
        self._cancel = cancel
        self._poll_s = cancel.poll_interval_s
        self._is_token_bound = remaining is not None and remaining <= timeout_s
        self._whole_end = now + (timeout_s if remaining is None else min(timeout_s, remaining))
        self._connect_s = connect_s
        self._since = now
        self._wakers: list[Callable[[], object]] = []
        self.is_interrupted = False
        self.phase: Phase
        self.timings: dict[str, float] = {}
        self._begin("connect", now)

    @property
    def is_over(self) -> bool:
        """True when the exchange has been cancelled or its time is up."""
        try:
            self.wait_s()
        except Stopped:
            return True
        return False

    def enter(self, phase: Phase) -> None:
        """Begin ``phase``; the time until now is the previous phase's."""
        self._begin(phase, self.charge())

    def charge(self) -> float:
        """Add the time until now to the present phase's; return what the time is."""
        now = time.monotonic()
        self.timings[self.phase] = self.timings.get(self.phase, 0.0) + now - self._since
        self._since = now
        return now

    def _begin(self, phase: Phase, now: float) -> None:
        self.phase = phase
        self._since = now
        self.has_ended_stream = False
        self.is_connect_bound = phase == "connect" and now + self._connect_s < self._whole_end
        self.end = now + self._connect_s if self.is_connect_bound else self._whole_end

    def wait_s(self) -> float:
        """Return how long the next operation may block, in seconds; raise `Stopped` when it may not."""
        if self.is_interrupted or (self._poll_s is not None and self._cancel.cancelled):
            raise Stopped
        now = time.monotonic()
        left = self.end - now
        if left <= 0:
            # A token may run on another clock than the system's, which alone bounds what a socket waits.
            left = (self._cancel.remaining() or 0.0) if self._is_token_bound and not self.is_connect_bound else 0.0
            if left <= 0:
                raise Stopped
            self.end = self._whole_end = now + left
        return left if self._poll_s is None else min(left, self._poll_s)

    def note_received(self, count: int) -> None:
        """Take note that ``count`` bytes came, or that the stream has ended (0)."""
        if not count:
            self.has_ended_stream = True
        elif self.phase == "first byte":
            self.enter("body")

    # ------------------------------------------------------------------------------------ interruption

    def interrupt(self) -> None:
        """End the exchange and wake its thread. Any thread, any signal handler; never blocks."""
        self.is_interrupted = True
        with contextlib.suppress(IndexError):
            self._wakers.pop()()

    def arm(self, wake: Callable[[], object]) -> None:
        """Have ``wake`` called by an interrupt, once, until `disarm`. Raise `Stopped` if one has come already."""
        self._wakers.append(wake)
        if self.is_interrupted:
            raise Stopped

    def disarm(self) -> bool:
        """Take the waker back; False when an interrupt has it, and what it wakes must not be used again."""
        try:
            self._wakers.pop()
        except IndexError:
            return False
        return True
