"""One backend's pool: the ledger behind its lock, and the threads that wait for what the ledger gives out.

Guarantees
    * What `_ledger` guarantees, for any number of threads; a freed permit passes straight to the oldest ticket.
    * Grant or cancel is decided once, under the pool's lock.
    * What was asked for while the lock could not be taken – by a signal handler or a finaliser that interrupted its
      owner – is logged, and done before the lock is given up or a wait begins.
    * Left at any point by an exception raised into the thread, the pool is right again when whoever comes next, or the
      ticket's own second release, has done the same again from the start.
    * After ``fork`` the child's pools are empty and their locks are free.
    * Nobody else's code runs under the lock: no polls, no callbacks, no logging.

What guards what: ``Pool.lock`` guards ``Pool.ledger`` and a ticket's ``stage``, as long as it is in the books.
``Pool.intents`` is guarded by nothing: it is a deque that anybody may append to, and only the lock's owner pops from.
Every unlock is followed by a look at it, so that what was logged while the lock was held does not stay behind; where an
exception made the unlock, the claim's release looks.

Rules for changing this file: ``with self.lock:``, never ``with condition:`` (whose ``__enter__`` is Python code that an
exception can leave locked); no ``while condition:`` directly inside ``try`` or ``with`` (python/cpython#130279: on 3.13
an exception on the loop's back edge skips the clean-up); no try-lock; notify before dequeue. On the way through a wait
every call of a function counts: what it touches has to come from the other processor's cache first.
"""

# ruff: noqa: SLF001  # a Condition and its lock know each other by these names

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from promptkit._cancel import earliest
from promptkit._clock import own_again
from promptkit._ledger import CapacityPolicy, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit._cancel import CancelToken
    from promptkit._clock import Clock

FRESH, USED, OVER = range(3)
"""What has become of a ticket: nothing yet, it may be in the pool's books, it has been released."""

_SPARE_WAKES: Final = 64

_EVERYBODY: Final = 100
"""More than ever stand on a Condition: one thread, and the entries that interrupted notifications have left."""

_pools: Final[weakref.WeakSet[Pool]] = weakref.WeakSet()


class Ticket:
    """What a pool has to know of a lease or a permit: which one it is, and what has become of it."""

    __slots__ = ("__weakref__", "stage")

    stage: int


class _Gate:
    """A pool's lock as its Conditions see it: they take these methods from the lock they are given.

    Giving it up for a wait settles the pool's log first, until it is empty. A signal handler that cancels the very
    ticket whose thread it interrupts, between that thread's last look and its sleep, can only log it; by now the waiter
    is registered with its Condition, so that it can be notified.
    """

    __slots__ = ("_acquire_restore", "_is_owned", "_release_save", "acquire", "release")

    def __init__(self, pool: Pool, lock: Any) -> None:
        release_save = lock._release_save

        def settle_and_release() -> object:  # with nothing in between where a handler could come in
            while pool.intents:
                pool.drain_locked()
            return release_save()

        self.acquire = lock.acquire
        self.release = lock.release
        self._acquire_restore = lock._acquire_restore
        self._is_owned = lock._is_owned
        self._release_save = settle_and_release

    def __enter__(self) -> bool:
        entered: bool = self.acquire()
        return entered

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class Pool:
    """One backend's ledger, its lock, and the log of what was asked for while the lock could not be taken."""

    __slots__ = (
        "__weakref__",
        "admitting",
        "backend_id",
        "clock",
        "gate",
        "intents",
        "is_owned",
        "ledger",
        "lock",
        "note",
        "policy",
        "spare_wakes",
        "waiting_for_permit",
    )

    def __init__(self, backend_id: str, policy: CapacityPolicy, clock: Clock) -> None:
        self.backend_id = backend_id
        self.policy = policy
        self.clock = clock
        self.admitting = f"asking backend {backend_id!r} for admission"
        self.waiting_for_permit = f"waiting for a permit of backend {backend_id!r}"
        self.note = self.log  # made once: every watcher refers to it
        self.reset()
        _pools.add(self)

    def reset(self) -> None:
        """Start empty, with a free lock: when built, and in the child after a fork."""
        self.lock = threading.RLock()
        self.is_owned: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]  # as Condition asks it
        self.gate = _Gate(self, self.lock)
        self.ledger: Ledger[Ticket, threading.Condition] = Ledger(self.policy)
        self.intents: deque[Ticket] = deque()
        self.spare_wakes: deque[threading.Condition] = deque(maxlen=_SPARE_WAKES)

    # ------------------------------------------------------------------- asked for from anywhere, done by the owner

    def log(self, ticket: Ticket) -> None:
        """Note that ``ticket`` is to be looked at: it was cancelled, released by a handler, or forgotten."""
        self.intents.append(ticket)
        self.settle()

    def settle(self) -> None:
        """Do what has been logged, unless this thread holds the lock: then it will, before it gives the lock up."""
        while self.intents:
            if self.is_owned():
                return
            with self.lock:
                self.drain_locked()

    def drain_locked(self) -> None:
        """Do what has been logged, and grant what it sets free.

        An entry is removed when both have been done: left off before, both are done again.
        """
        intents = self.intents
        while intents:
            ticket = intents[0]
            if ticket.stage == OVER:
                self.withdraw_locked(ticket)
            else:
                self.cancel_locked(ticket)
            self.pump_locked()
            intents.popleft()

    def cancel_locked(self, ticket: Ticket) -> None:
        """Wake ``ticket`` and take it out of the queue, unless it has been granted or does not wait."""
        wake = self.ledger.cancellable(ticket)
        if wake is not None:
            wake.notify(_EVERYBODY)
            self.ledger.dequeue(ticket)

    def withdraw_locked(self, ticket: Ticket) -> None:
        """Take everything back that ``ticket`` has; if it waits, wake it. Call `pump_locked` afterwards."""
        wake = self.ledger.waiting.get(ticket)
        if wake is not None:
            wake.notify(_EVERYBODY)
        self.ledger.leave(ticket)
        self.ledger.withdraw(ticket)

    def pump_locked(self, given_back: Ticket | None = None) -> None:
        """Give every free permit to the oldest ticket, after taking back that of ``given_back``.

        Done again from the start, it finishes what was interrupted.

        Only one thread waits on a Condition. All are notified, because an interrupted ``notify`` leaves the entry of
        the thread it has woken, and the next ticket that uses the Condition would stand behind it.
        """
        ledger = self.ledger
        ticket = ledger.grant(given_back)
        while ticket is not None:
            ledger.waiting[ticket].notify(_EVERYBODY)
            ticket = ledger.grant() if ledger.dequeue(ticket) else None

    # ------------------------------------------------------------------------------------------------ giving back

    def withdraw(self, ticket: Ticket) -> None:
        """Take back whatever ``ticket`` has or will have: it is in use elsewhere, interrupted, refused, or never used.

        If this cannot be done now, it is done before the lock is left: by then the caller has marked it as over.
        """
        if self.is_owned():
            self.log(ticket)
            return
        with self.lock:
            self.withdraw_locked(ticket)
            self.pump_locked()
            ticket.stage = OVER  # last: until then, another release does it all again
        if self.intents:
            self.settle()

    # -------------------------------------------------------------------------------------------------- waiting

    def new_wake(self) -> threading.Condition:
        """Return a Condition on the lock, for one ticket to wait on; making one costs as much as a whole acquire."""
        return threading.Condition(self.gate)  # type: ignore[arg-type]  # it has what Condition asks of a lock

    def wait_locked(
        self, ticket: Ticket, wake: threading.Condition, cancel: CancelToken, deadline: float | None
    ) -> bool | None:
        """Wait until ``ticket`` is granted (True), has left the queue (False), or it is time to look again (None)."""
        held, waiting = self.ledger.held, self.ledger.waiting
        if ticket in waiting and ticket not in held:
            until = cancel.deadline if deadline is None else earliest(deadline, cancel.deadline)
            if cancel.poll_interval_s is not None:
                until = earliest(until, self.clock.monotonic() + cancel.poll_interval_s)
            try:
                self.clock.wait(wake, until)
            except BaseException:
                own_again(wake)
                raise
        if ticket in held:
            if ticket in waiting:  # who granted it was interrupted
                self.ledger.dequeue(ticket)
            return True
        return None if ticket in waiting else False

    def wait(self, ticket: Ticket, wake: threading.Condition, cancel: CancelToken, deadline: float | None) -> bool:
        """Look at the token, outside the lock, and wait on, until ``ticket`` is granted (True) or gone (False)."""
        while True:
            is_late = cancel.cancelled or (deadline is not None and self.clock.monotonic() >= deadline)
            with self.lock:
                if is_late and ticket not in self.ledger.held:
                    self.ledger.dequeue(ticket)
                fate = self.wait_locked(ticket, wake, cancel, deadline)
            if self.intents:
                self.settle()
            if fate is not None:
                return fate


def _empty_all_pools() -> None:
    for pool in _pools:
        pool.reset()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_empty_all_pools)
