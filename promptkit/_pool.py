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
an exception on the loop's back edge skips the clean-up); no try-lock. On the way through a wait
every call of a function counts: what it touches has to come from the other processor's cache first.
"""

# ruff: noqa: SLF001  # a lock's own methods, which `threading.Condition` and `threading` itself call

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Final

from promptkit._cancel import earliest
from promptkit._ledger import CapacityPolicy, Ledger
from promptkit._wake import Wake

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit._cancel import CancelToken
    from promptkit._clock import Clock

FRESH, USED, OVER = range(3)
"""What has become of a ticket: nothing yet, it may be in the pool's books, it has been released."""

_SPARE_WAKES: Final = 64

_pools: Final[weakref.WeakSet[Pool]] = weakref.WeakSet()


class Ticket:
    """What a pool has to know of a lease or a permit: which one it is, and what has become of it."""

    __slots__ = ("__weakref__", "stage")

    stage: int


class Pool:
    """One backend's ledger, its lock, and the log of what was asked for while the lock could not be taken."""

    __slots__ = (
        "__weakref__",
        "admitting",
        "backend_id",
        "clock",
        "drain",
        "intents",
        "is_owned",
        "ledger",
        "lock",
        "lock_methods",
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
        self.note, self.drain = self.log, self.drain_locked  # made once: every watcher, every Wake refers to them
        self.lock = threading.RLock()
        self.is_owned: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]  # as Condition asks it
        self.lock_methods = threading.Condition(self.lock)  # bound once, for every Wake; nobody waits on it
        self.ledger: Ledger[Ticket, Wake] = Ledger(policy, Wake.notify)
        self.intents: deque[Ticket] = deque()
        self.spare_wakes: deque[Wake] = deque(maxlen=_SPARE_WAKES)
        _pools.add(self)

    def start_anew(self) -> None:
        """In the child of a fork: start empty, with a lock that is free, or this thread's if it forked holding it.

        That thread may have forked in a handler, in the middle of anything here. It goes on with the books of the
        parent, which are nobody's any more, and does not sleep. What was logged finds nothing in the new ones.
        """
        if not self.is_owned():
            self.lock._at_fork_reinit()  # type: ignore[attr-defined]  # as `threading` does with its own
        for wake in self.ledger.waiting.values():
            wake.notify()
        self.ledger = Ledger(self.policy, Wake.notify)

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
        intents, ledger = self.intents, self.ledger
        while intents:
            ticket = intents[0]
            if ticket.stage == OVER:
                ledger.withdraw(ticket)
            else:
                ledger.cancel(ticket)
            ledger.grant()
            intents.popleft()

    # ------------------------------------------------------------------------------------------------ giving back

    def withdraw(self, ticket: Ticket) -> None:
        """Take back whatever ``ticket`` has or will have: it is in use elsewhere, interrupted, refused, or never used.

        For its release alone, which marks it as over and looks at the log afterwards. If it cannot be done now, it is
        done before the lock is left.
        """
        if self.is_owned():
            self.log(ticket)
            return
        with self.lock:
            self.ledger.withdraw(ticket)
            self.ledger.grant()
            ticket.stage = OVER  # last: until then, another release does it all again

    # -------------------------------------------------------------------------------------------------- waiting

    def new_wake(self) -> Wake:
        """Return what one ticket waits on; making one costs as much as a whole acquire."""
        return Wake(self.lock_methods, self.intents, self.drain)

    def wait_locked(self, ticket: Ticket, wake: Wake, cancel: CancelToken, deadline: float | None) -> bool | None:
        """Sleep; then say that ``ticket`` is granted (True), has left the queue (False), or may have to (None).

        Whoever decides it notifies ``wake``, which remembers: what was decided before ends the sleep at once.
        """
        until = cancel.deadline if deadline is None else earliest(deadline, cancel.deadline)
        if cancel.poll_interval_s is not None:
            until = earliest(until, self.clock.monotonic() + cancel.poll_interval_s)
        try:
            self.clock.wait(wake, until)
        except BaseException:
            wake.own_again()
            raise
        held, waiting = self.ledger.held, self.ledger.waiting
        if ticket in held:
            if ticket in waiting:  # who granted it was interrupted
                self.ledger.dequeue(ticket)
            return True
        return None if ticket in waiting else False

    def wait(self, ticket: Ticket, wake: Wake, cancel: CancelToken, deadline: float | None) -> bool:
        """Look at the token, outside the lock, and sleep on, until ``ticket`` is granted (True) or gone (False)."""
        while True:
            is_late = cancel.cancelled or (deadline is not None and self.clock.monotonic() >= deadline)
            with self.lock:
                ledger = self.ledger
                fate: bool | None
                if is_late or ticket in ledger.held or ticket not in ledger.waiting:
                    ledger.dequeue(ticket)  # decided now, or before by somebody who may have been interrupted
                    wake.forget()
                    fate = ticket in ledger.held
                else:
                    fate = self.wait_locked(ticket, wake, cancel, deadline)
            if self.intents:
                self.settle()
            if fate is not None:
                return fate


def _empty_all_pools() -> None:
    for pool in _pools:
        pool.start_anew()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_empty_all_pools)
