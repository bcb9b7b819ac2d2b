"""What one thread sleeps on: a Condition that remembers a notification.

Guarantees
    * A notification is never lost: one that comes before the wait ends it at once. Several are one.
    * `Wake.notify` waits for nothing and needs no lock: any thread may call it, also in a signal handler or a finaliser
      that interrupts the sleeper itself.
    * A wait lets its lock go only when the log that it was given is empty. Between that look and the release of the
      lock CPython looks for no signals, so whatever a handler has logged, in the belief that the lock's owner reads it,
      has been read.

A notification that comes when the thread has woken up already ends its next wait early: whoever waits looks at what it
waits for, and waits again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sized


class Wake(threading.Condition):
    """A Condition for one thread at a time, on an RLock or on another Condition, whose lock and methods it shares.

    ``settle`` is called before the lock is given up, for as long as there is something in ``log``.

    One raw lock, made once, is what the thread sleeps on: locked, until it is notified, and locked again by waking up.
    A Condition of the standard library makes one for each wait and keeps them in a list, so as to have several threads;
    for one thread, that would be a tenth of the cost of passing a permit on.
    """

    __slots__ = ("_bed", "_log", "_settle")

    def __init__(self, lock: Any, log: Sized = (), settle: Callable[[], object] = bool) -> None:
        super().__init__(lock)
        self._log = log
        self._settle = settle
        self._bed = threading.Lock()
        self._bed.acquire()

    def wait(self, timeout: float | None = None) -> bool:
        """Give the lock up and sleep, for ``timeout`` seconds at most; with the lock again, return whether notified.

        The lock must be held, else it raises `RuntimeError`. An exception raised into the thread may come out without
        the lock: call `own_again`.
        """
        while self._log:
            self._settle()
        lock_state = self._release_save()  # type: ignore[attr-defined]  # with nothing in between, see above
        try:
            if timeout is None:
                return self._bed.acquire()
            return self._bed.acquire(timeout=max(timeout, 0))
        finally:
            self._acquire_restore(lock_state)  # type: ignore[attr-defined]

    def notify(self, n: int = 1) -> None:  # noqa: ARG002  # there is one thread
        """Wake the thread that sleeps here, or the next one that means to."""
        try:
            self._bed.release()
        except RuntimeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # raised by a signal handler
                raise
            # The lock's own: it has been notified, and has not slept since.

    def notify_all(self) -> None:
        """Do the same: one is all."""
        self.notify()

    def forget(self) -> None:
        """Remember no notification. For who holds the lock, and looks at what it waits for before it waits again."""
        self._bed.acquire(blocking=False)

    def own_again(self) -> None:
        """Take the lock if a wait, interrupted by an exception, came out of it without the lock.

        An exception raised into a thread inside a wait may leave it so (python/cpython#118433), and the ``with`` block
        around the wait would then fail on its way out and hide the exception.
        """
        if not self._is_owned():  # type: ignore[attr-defined]  # the RLock's own, as Condition has it
            self.acquire()
