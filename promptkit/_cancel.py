"""Cancel tokens: how a caller ends a run, from any thread, a signal handler, or a deadline.

Guarantees
    * `CancelToken.cancel` never waits for a lock of the token: there is none. Everything shared is a list or a
      dict changed by single C-level calls, which neither another thread nor a signal handler can see half done.
    * A callback is called at most once, in the thread that cancels (or that registers, if it came too late), and
      never after `Registration.remove` has returned in a thread that was not racing with the cancel itself.
    * A token knows its parents and no token knows its children: who wants to be called is entered in every token of
      the chain and taken out of every one of them, so a token that outlives a million waits holds none of them.

Assumes that `dict` and `list` methods are atomic, as they are in CPython with string or identity-hashed keys.

The order that makes a cancel impossible to miss: who watches enters itself and *then* looks at the reasons; who
cancels writes the reason and *then* goes through the watchers. Whoever comes second sees the other.
"""

# ruff: noqa: SLF001  # a token, its registrations and its children are one mechanism

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from promptkit._clock import SYSTEM_CLOCK
from promptkit._fields import describe, is_seconds
from promptkit._wake import Wake
from promptkit.errors import DeadlineExceededError, InvalidRequestError, RunCancelledError

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit._clock import Clock

_logger: Final = logging.getLogger("promptkit")

POLL_REASON: Final = "its poll function returned true"


class CancelToken:
    """A caller's handle on a run: cancel it, bound it in time, or be asked whether it is still wanted.

    ``timeout`` is in seconds from now, 0 for "already over", None for no deadline. ``poll`` is for hosts that can
    only be asked: it is called without arguments, outside every lock, by whoever looks at the token and every
    ``poll_interval_s`` seconds (above 0) by whoever waits; once it has returned true the token is cancelled. A
    poll that raises is logged and not asked again. Wrong arguments raise `InvalidRequestError`.

    Safe for any number of threads; `cancel` may be called in a signal handler. Nothing here blocks::

        token = CancelToken(timeout=30)
        signal.signal(signal.SIGTERM, lambda *_: token.cancel("shutting down"))
        engine.run(request, cancel=token)
    """

    __slots__ = (
        "__weakref__",
        "_ancestors",
        "_poll",
        "_reasons",
        "_timeout_s",
        "_watchers",
        "clock",
        "deadline",
        "poll_interval_s",
    )

    def __init__(
        self,
        *,
        timeout: float | None = None,
        poll: Callable[[], object] | None = None,
        poll_interval_s: float = 0.1,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if poll is not None and not callable(poll):
            raise InvalidRequestError(f"CancelToken.poll must be a function or None, not {describe(poll)}")
        if not is_seconds(poll_interval_s) or poll_interval_s <= 0:
            raise InvalidRequestError(
                f"CancelToken.poll_interval_s must be a finite number of seconds above 0, not {_shown(poll_interval_s)}"
            )
        self.clock: Final = clock
        self._ancestors: tuple[CancelToken, ...] = ()
        self._poll = poll
        self._reasons: list[str | None] = []  # empty until cancelled; the first one counts
        self._watchers: dict[Any, Callable[[Any], object]] = {}
        self._timeout_s: float | None = None
        self.deadline: float | None = None
        self.poll_interval_s: float | None = poll_interval_s if poll is not None else None
        self._bound(timeout)

    def _bound(self, timeout: float | None) -> None:
        """Set the deadline that is ``timeout`` seconds away, unless a parent's is earlier."""
        if timeout is None:
            return
        if not is_seconds(timeout) or timeout < 0:
            raise InvalidRequestError(
                f"timeout must be a finite number of seconds, at least 0, or None for no limit, not {_shown(timeout)}"
            )
        deadline = self.clock.monotonic() + timeout
        if self.deadline is None or deadline < self.deadline:
            self.deadline = deadline
            self._timeout_s = float(timeout)

    def child(self, *, timeout: float | None = None) -> CancelToken:
        """Return a token that ends with this one, or earlier: when it is cancelled itself, or after ``timeout``.

        Cancelling the child does not touch the parent. The parent keeps no reference to the child.
        """
        child = CancelToken(clock=self.clock)
        child._ancestors = (self, *self._ancestors)
        child.poll_interval_s = self.poll_interval_s
        child.deadline = self.deadline
        child._timeout_s = self._timeout_s
        child._bound(timeout)
        return child

    # ------------------------------------------------------------------------------------------ cancelling

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the token and its children, and call back everybody who registered.

        The first reason stays. Returns when all callbacks of this call have returned; what they raise is logged.
        Calling it again is harmless, and finishes what an interrupted call left undone.
        """
        if not self._reasons:
            self._reasons.append(reason)
        for key, call in list(self._watchers.items()):
            call(key)

    def on_cancel(self, callback: Callable[[], object]) -> Registration:
        """Call ``callback`` once when the token or a parent is cancelled; at once, and here, if it has been.

        It runs in the cancelling thread, which may be in a signal handler: it must be quick and must not block.
        A deadline calls nobody back: there is no timer. Remove the registration when it is no longer needed. Raises
        `InvalidRequestError` for what cannot be called.
        """
        if not callable(callback):
            raise InvalidRequestError(f"on_cancel takes a function without arguments, not {describe(callback)}")
        registration = Registration(self, callback)
        self.watch(registration, Registration._fire)
        return registration

    def watch(self, key: Any, call: Callable[[Any], object]) -> None:
        """Call ``call(key)`` when the token or a parent is cancelled; at once, and here, if it has been.

        For the library's own waiters, at the cost of a dict entry for each token of the chain: ``call`` may be called
        more than once, and must not raise. `unwatch` takes it out again, also when ``watch`` did not get to its end.
        """
        self._watchers[key] = call
        if self._ancestors:
            for token in self._ancestors:
                token._watchers[key] = call
        if self._reasons or (self._ancestors and self._cancelled_token() is not None):
            call(key)

    def unwatch(self, key: Any) -> None:
        """Undo `watch`, as much of it as was done, at a cost that does not depend on how many there are."""
        self._watchers.pop(key, None)
        if self._ancestors:
            for token in self._ancestors:
                token._watchers.pop(key, None)

    # --------------------------------------------------------------------------------------------- looking

    @property
    def cancelled(self) -> bool:
        """True once cancelled, out of time, or polled true, here or in a parent. Asks the poll functions."""
        if self._reasons:
            return True
        deadline = self.deadline
        if deadline is not None and self.clock.monotonic() >= deadline:
            return True
        for token in self._ancestors:
            if token._reasons:
                return True
        return self.poll_interval_s is not None and self._asked()

    @property
    def reason(self) -> str | None:
        """What the canceller gave; None if it gave nothing, or nobody cancelled. Does not ask the poll functions."""
        token = self._cancelled_token()
        return token._reasons[0] if token is not None else None

    def remaining(self) -> float | None:
        """Return the seconds that are left, 0.0 when time is up, None without a deadline."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - self.clock.monotonic())

    def raise_if_cancelled(self, doing: str | None = None) -> None:
        """Raise `RunCancelledError`, or `DeadlineExceededError` when it is time that ran out; else do nothing.

        ``doing`` completes the message: "… while waiting for a permit of backend 'local'".
        """
        if self.cancelled:
            raise self._error(doing)

    def _error(self, doing: str | None) -> RunCancelledError:
        """Say why the token is over. Being cancelled comes before being late."""
        token = self._cancelled_token()
        during = f" while {doing}" if doing else ""
        if token is None:
            return DeadlineExceededError(
                f"the run's time of {self._timeout_s:g} s was up{during}", timeout_s=self._timeout_s
            )
        reason = token._reasons[0]
        return RunCancelledError(f"the run was cancelled{during}{f': {reason}' if reason else ''}", reason=reason)

    def _cancelled_token(self) -> CancelToken | None:
        """The nearest token of the chain that has been cancelled."""
        if self._reasons:
            return self
        for token in self._ancestors:
            if token._reasons:
                return token
        return None

    def _asked(self) -> bool:
        """Ask the chain's poll functions; cancel the token whose function says so."""
        for token in (self, *self._ancestors):
            poll = token._poll
            if poll is None:
                continue
            try:
                is_over = bool(poll())
            except Exception:  # a host's function may raise anything, and a run must not end by it
                token._poll = None
                _logger.exception("the poll function of a CancelToken raised; it will not be asked again")
                continue
            if is_over:
                token.cancel(POLL_REASON)
                return True
        return False

    def __repr__(self) -> str:
        token = self._cancelled_token()
        state = f" cancelled reason={token._reasons[0]!r}" if token is not None else ""
        return f"<CancelToken{state} deadline={self.deadline!r}>"


class Registration:
    """A callback's entry in a token and its parents. `remove` may be called any number of times, from any thread."""

    __slots__ = ("_callback", "_claim", "_token")

    def __init__(self, token: CancelToken, callback: Callable[[], object]) -> None:
        self._token = token
        self._callback: Callable[[], object] | None = callback
        self._claim = [None]  # taken by the thread that calls back, so that only one does

    def remove(self) -> None:
        """Take the callback out, at a cost that does not depend on how many there are. It is not called any more."""
        self._callback = None
        self._token.unwatch(self)

    def _fire(self) -> None:
        callback = self._callback
        if callback is None:  # called while `watch` was still entering it in the rest of the chain
            self.remove()
            return
        try:
            try:
                self._claim.pop()
            except IndexError:  # another thread calls it
                return
            callback()
        except Exception:  # somebody else's code; the others must still be called
            _logger.exception("a callback registered with CancelToken.on_cancel raised")
        except BaseException:
            self._claim.append(None)  # interrupted: it stays registered, and the next cancel calls it
            raise
        self.remove()


def wait_until(cancel: CancelToken, deadline: float, doing: str | None = None) -> None:
    """Block until ``deadline`` (absolute, on the token's clock); raise as `raise_if_cancelled` does, at once.

    ``doing`` completes the error's message. Returns at once when ``deadline`` has passed and the token has not
    been cancelled.
    """
    lock = threading.RLock()
    wake = Wake(lock)
    clock = cancel.clock
    try:
        cancel.watch(wake, Wake.notify)
        while True:
            cancel.raise_if_cancelled(doing)
            now = clock.monotonic()
            if now >= deadline:
                return
            until = earliest(deadline, cancel.deadline)
            if cancel.poll_interval_s is not None:
                until = earliest(until, now + cancel.poll_interval_s)
            with lock:
                try:
                    clock.wait(wake, until)
                except BaseException:
                    wake.own_again()
                    raise
    finally:
        cancel.unwatch(wake)


def earliest(first: float | None, second: float | None) -> float | None:
    """Return the earlier of two moments, where None is never."""
    if first is None or (second is not None and second < first):
        return second
    return first


def _shown(value: object) -> str:
    return repr(value) if is_seconds(value) else describe(value)
