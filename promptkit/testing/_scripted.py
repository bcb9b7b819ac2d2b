"""A model client that plays a script: answers, failures, latencies and gates.

Guarantees: each call takes the next entry of the script, under a lock, so that any number of threads share it;
a call that waits – for time to pass or for a gate to open – ends at once when its run is cancelled; nothing
sleeps and nothing connects.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from promptkit._cancel import CancelToken, earliest, wait_until
from promptkit._types import GenerateRequest, GenerateResponse
from promptkit.errors import GenerationError
from promptkit.testing._clock import WAIT_LIMIT_S

Answer = str | Mapping[str, Any] | list[Any] | GenerateResponse | BaseException | Callable[[GenerateRequest], Any]
"""What a script may hold: a text, data (sent as JSON), a whole response, an exception to raise, or a function
of the request that returns one of these."""


class ScriptError(GenerationError):
    """The code under test has called a `ScriptedClient` more often than its script has answers."""


class Gate:
    """Holds calls until it is opened, and lets a test wait until they have come."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_open = False
        self._waiting = 0

    def open(self) -> None:
        """Let all calls through that wait or will come."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """How many calls wait now."""
        return self._waiting

    def wait_for(self, calls: int = 1) -> None:
        """Block until that many calls wait at the gate. Raises `AssertionError` when they do not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting >= calls, WAIT_LIMIT_S):
                raise AssertionError(f"{self._waiting} calls came to the gate, not {calls}")

    def pass_through(self, cancel: CancelToken) -> None:
        """Block until the gate is open. Raises the token's error as soon as it is cancelled."""

        def wake() -> None:
            with self._changed:
                self._changed.notify_all()

        registration = cancel.on_cancel(wake)
        try:
            with self._changed:
                self._waiting += 1
                self._changed.notify_all()
                try:
                    while not self._is_open and not cancel.cancelled:
                        until = cancel.deadline
                        if cancel.poll_interval_s is not None:
                            until = earliest(until, cancel.clock.monotonic() + cancel.poll_interval_s)
                        cancel.clock.wait(self._changed, until)
                finally:
                    self._waiting -= 1
        finally:
            registration.remove()
        cancel.raise_if_cancelled()


class _Held:
    __slots__ = ("answer", "gate")

    def __init__(self, gate: Gate, answer: Answer) -> None:
        self.gate = gate
        self.answer = answer


class _Late:
    __slots__ = ("answer", "seconds")

    def __init__(self, seconds: float, answer: Answer) -> None:
        self.seconds = seconds
        self.answer = answer


def held(gate: Gate, answer: Answer) -> Any:
    """Return a script entry that waits until ``gate`` is open, and then answers."""
    return _Held(gate, answer)


def late(seconds: float, answer: Answer) -> Any:
    """Return a script entry that answers after ``seconds`` on the clock of the run's token: the engine's own."""
    return _Late(seconds, answer)


class ScriptedClient:
    """An `LLMClient` that plays a script, one entry per call, in the order of the calls.

    An entry is a text, data (sent as JSON), a whole `GenerateResponse`, an exception to raise, a function of the
    request that returns one of these, or one of them in `held` or `late`. ``always`` answers when the script has
    run out; without it, a call more than the script has is a `ScriptError`. ``max_in_flight`` is the largest number
    of calls that were in it at the same time. Safe for any number of threads.
    """

    def __init__(self, script: Iterable[Any] = (), *, always: Answer | None = None) -> None:
        self._lock = threading.Lock()
        self._script = deque(script)
        self._always = always
        self._in_flight = 0
        self._requests: list[GenerateRequest] = []
        self.max_in_flight = 0

    @property
    def requests(self) -> tuple[GenerateRequest, ...]:
        """Every request so far, in the order of the calls."""
        with self._lock:
            return tuple(self._requests)

    def add(self, *entries: Any) -> None:
        """Add entries to the end of the script."""
        with self._lock:
            self._script.extend(entries)

    def generate(self, request: GenerateRequest, cancel: CancelToken) -> GenerateResponse:
        """Play the next entry. Raises what it says, `ScriptError` when there is none, and the token's errors."""
        with self._lock:
            self._requests.append(request)
            number = len(self._requests)
            self._in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self._in_flight)
            entry = self._script.popleft() if self._script else self._always
        try:
            if entry is None:
                raise ScriptError(f"the script has no answer for call {number}")
            return self._played(entry, request, cancel)
        finally:
            with self._lock:
                self._in_flight -= 1

    def _played(self, entry: Any, request: GenerateRequest, cancel: CancelToken) -> GenerateResponse:
        if isinstance(entry, _Held):
            entry.gate.pass_through(cancel)
            return self._played(entry.answer, request, cancel)
        if isinstance(entry, _Late):
            wait_until(cancel, cancel.clock.monotonic() + entry.seconds)
            return self._played(entry.answer, request, cancel)
        if isinstance(entry, BaseException):
            raise entry
        if isinstance(entry, GenerateResponse):
            return entry
        if isinstance(entry, str):
            return GenerateResponse(text=entry, finish_reason="stop", model=request.model)
        if isinstance(entry, (Mapping, list)):
            return GenerateResponse(
                text=json.dumps(entry, ensure_ascii=False), finish_reason="stop", model=request.model
            )
        if callable(entry):
            return self._played(entry(request), request, cancel)
        return entry  # type: ignore[no-any-return]  # what a broken client might return is for the run to refuse
