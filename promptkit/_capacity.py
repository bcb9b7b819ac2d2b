"""Capacity pools: bounded admission and first-come-first-served permits, shared by all threads of an engine.

Guarantees
    * What `_ledger` guarantees, for any number of threads; a freed permit passes straight to the oldest ticket.
    * Grant or cancel is decided once, under the pool's lock. Cancelled first: the ticket has left, nothing is sent.
      Granted first: `Permit.acquire` looks at the token before it returns, and gives the permit back if it is over.
    * An exception raised into a thread (Ctrl-C, a signal handler, ``PyThreadState_SetAsyncExc``) leaves the pool right
      wherever it lands, if the caller releases in two nested ``finally`` blocks (the safe shape, below).
    * `CancelToken.cancel` and `release` may be called in signal handlers and finalisers, even when they interrupt this
      very module. `admit` and `acquire` may not: they raise `RuntimeError` when they find that they have.
    * A released claim is kept alive by nothing, and keeps nothing alive. What `Manager.admit` and `Manager.acquire`
      return gives itself back when it is forgotten.
    * After ``fork`` the child's pools are empty and their locks are free.
    * Nobody else's code runs under a lock: no polls, no callbacks, no logging.

What guards what: ``_Pool.lock`` guards ``_Pool.ledger`` and a claim's ``_stage``, as long as it is in the books.
``_Pool.intents`` is guarded by nothing: it is a deque that anybody may append to, and only the lock's owner pops from.
Every unlock is followed by a look at it, so that what was logged while the lock was held does not stay behind.

The safe shape::

    permit = manager.permit(backend_id)      # nothing has happened yet
    try:
        try:
            permit.acquire(cancel)
            ...                              # send one attempt
        finally:
            permit.release()
    finally:
        permit.release()                     # free of cost when the first one completed

What pure Python cannot close: a second exception that lands in the few instructions of the second ``finally``, or in
the hand-over of a forgotten claim, or in the two lines that take the lock again after an interrupted wait; on CPython
3.14 the exit of a ``with`` block (python/cpython#148874). A claim used by ``with manager.acquire(...)`` alone may be
lost between two instructions of its caller; it comes back when the exception's traceback, which holds it, is dropped.

Rules for changing this file: ``with self.lock:``, never ``with condition:`` (whose ``__enter__`` is Python code that an
exception can leave locked); no ``while condition:`` directly inside ``try`` or ``with`` (python/cpython#130279: on 3.13
an exception on the loop's back edge skips the clean-up); no try-lock; notify before dequeue.
"""

# ruff: noqa: SLF001  # a pool, its claims and their lock are one mechanism

from __future__ import annotations

import os
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from promptkit._cancel import earliest
from promptkit._clock import SYSTEM_CLOCK, wait_owned
from promptkit._fields import FrozenDict, describe
from promptkit._ledger import CapacityPolicy, Ledger
from promptkit.errors import CapacityExceededError, ConfigError, QueueTimeoutError, RunCancelledError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from promptkit._cancel import CancelToken
    from promptkit._clock import Clock

_MAX_SPARE_WAKES: Final = 64

_FRESH, _USED, _OVER = range(3)
"""What has become of a claim: nothing yet, it may be in the pool's books, it has been released."""

_pools: Final[weakref.WeakSet[_Pool]] = weakref.WeakSet()


class PoolStats(NamedTuple):
    """How much of a pool is in use: leases, permits, and tickets that wait for a permit."""

    admitted: int
    active: int
    waiting: int


class _Gate:
    """A pool's lock as its Conditions see it: they take these five methods from the lock they are given.

    Giving it up for a wait settles the pool's log first. A signal handler that cancels the very ticket whose thread it
    interrupts, between that thread's last look and its sleep, can only log it; by now the waiter is registered with
    its Condition, so that it can be notified.
    """

    __slots__ = ("_acquire_restore", "_is_owned", "_release_save", "acquire", "release")

    def __init__(self, pool: _Pool, lock: Any) -> None:
        self.acquire = lock.acquire
        self.release = lock.release
        self._acquire_restore = lock._acquire_restore
        self._is_owned = lock._is_owned
        self._release_save = partial(pool.give_up_lock, lock._release_save)

    def __enter__(self) -> bool:
        entered: bool = self.acquire()
        return entered

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class _Pool:
    """One backend's ledger, its lock, and the log of what was asked for while the lock could not be taken."""

    __slots__ = (
        "__weakref__",
        "admitting",
        "backend_id",
        "clock",
        "gate",
        "intents",
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
        self.gate = _Gate(self, self.lock)
        self.ledger: Ledger[_Claim, threading.Condition] = Ledger(self.policy)
        self.intents: deque[_Claim] = deque()
        self.spare_wakes: list[threading.Condition] = []

    def is_inside(self) -> bool:
        """True when this thread holds the lock: the caller has interrupted this module."""
        is_owned: bool = self.lock._is_owned()  # type: ignore[attr-defined]  # the RLock method that Condition uses
        return is_owned

    # ------------------------------------------------------------------- asked for from anywhere, done by the owner

    def log(self, ticket: _Claim) -> None:
        """Note that ``ticket`` is to be looked at: it was cancelled, released by a handler, or forgotten."""
        self.intents.append(ticket)
        self.settle()

    def settle(self) -> None:
        """Do what has been logged, unless this thread holds the lock: then it will, before it gives the lock up."""
        while self.intents:
            if self.is_inside():
                return
            with self.lock:
                self.drain_locked()

    def drain_locked(self) -> None:
        """Do what has been logged, and pass on what it set free. Each entry is removed when it has been done."""
        intents = self.intents
        while intents:
            ticket = intents[0]
            if ticket._stage == _OVER:
                self.withdraw_locked(ticket)
            else:
                self.cancel_locked(ticket)
            intents.popleft()
        self.pump_locked()

    def cancel_locked(self, ticket: _Claim) -> None:
        """Wake ``ticket`` and take it out of the queue, unless it has been granted or does not wait."""
        wake = self.ledger.cancellable(ticket)
        if wake is not None:
            wake.notify_all()
            self.ledger.dequeue(ticket)

    def withdraw_locked(self, ticket: _Claim) -> None:
        """Take everything back that ``ticket`` has; if it waits, wake it. Call `pump_locked` afterwards."""
        self.cancel_locked(ticket)
        self.ledger.leave(ticket)
        self.ledger.withdraw(ticket)

    def pump_locked(self) -> None:
        """Give every free permit to the oldest ticket. Done again from the start, it finishes what was interrupted.

        Only one thread waits on a Condition. All are notified, because an interrupted ``notify`` leaves the entry of
        the thread it has woken, and the next ticket that uses the Condition would stand behind it.
        """
        ledger = self.ledger
        while True:
            ticket = ledger.grant()
            if ticket is None:
                return
            ledger.waiting[ticket].notify_all()
            ledger.dequeue(ticket)

    # ------------------------------------------------------------------------------------------------ giving back

    def pass_on(self, ticket: _Claim) -> None:
        """Grant what ``ticket`` has given back; not to itself, if it still stands in the queue after a torn grant."""
        if self.is_inside():
            self.log(ticket)
            return
        with self.lock:
            self.ledger.finish(ticket)
            self.pump_locked()
        if self.intents:
            self.settle()

    def withdraw(self, ticket: _Claim) -> None:
        """Take back whatever ``ticket`` has or will have: it is in use elsewhere, interrupted, or was never used."""
        if self.is_inside():
            self.log(ticket)
            ticket._stage = _OVER  # what was interrupted reads the log after this
            return
        with self.lock:
            self.withdraw_locked(ticket)
            self.pump_locked()
            ticket._stage = _OVER  # last: until then, another release does it all again
        if self.intents:
            self.settle()

    # -------------------------------------------------------------------------------------------------- waiting

    def wake_locked(self) -> threading.Condition:
        """Return a Condition on the lock, for one ticket to wait on."""
        if self.spare_wakes:
            return self.spare_wakes.pop()
        return threading.Condition(self.gate)  # type: ignore[arg-type]  # it has what Condition asks of a lock

    def keep(self, wake: threading.Condition) -> None:
        """Keep a Condition that nobody waits on for the next ticket: making one costs as much as a whole acquire."""
        if len(self.spare_wakes) < _MAX_SPARE_WAKES:
            self.spare_wakes.append(wake)

    def give_up_lock(self, release_save: Callable[[], object]) -> object:
        """Settle the log and give the lock up, with nothing in between where a handler could come in."""
        if self.intents:
            self.drain_locked()
        return release_save()

    def queue_locked(
        self, ticket: _Claim, wake: threading.Condition, cancel: CancelToken, deadline: float | None
    ) -> bool | None:
        """Put ``ticket`` into the queue and wait for the first time; returns as `wait_locked` does."""
        if self.ledger.enqueue(ticket, wake):
            self.pump_locked()
        cancel.watch(ticket, self.note)
        if self.intents:
            self.drain_locked()
        fate = self.fate_locked(ticket)
        return self.wait_locked(ticket, wake, cancel, deadline) if fate is None else fate

    def wait_locked(
        self, ticket: _Claim, wake: threading.Condition, cancel: CancelToken, deadline: float | None
    ) -> bool | None:
        """Wait until ``ticket`` is granted (True), has left the queue (False), or it is time to look again (None)."""
        until = earliest(deadline, cancel.deadline)
        if cancel.poll_interval_s is not None:
            until = earliest(until, self.clock.monotonic() + cancel.poll_interval_s)
        wait_owned(self.clock, wake, until)
        if self.intents:
            self.drain_locked()
        return self.fate_locked(ticket)

    def fate_locked(self, ticket: _Claim) -> bool | None:
        """Say whether ``ticket`` has been granted (True), is gone (False), or waits (None)."""
        ledger = self.ledger
        if ticket in ledger.held:
            ledger.dequeue(ticket)  # where who granted it was interrupted, it is still there
            return True
        return None if ticket in ledger.waiting else False

    def wait(self, ticket: _Claim, wake: threading.Condition, cancel: CancelToken, deadline: float | None) -> bool:
        """Look at the token, outside the lock, and wait on, until ``ticket`` is granted (True) or gone (False)."""
        while True:
            is_late = cancel.cancelled or (deadline is not None and self.clock.monotonic() >= deadline)
            with self.lock:
                fate = self.fate_locked(ticket)
                if fate is None and is_late:
                    self.ledger.dequeue(ticket)
                    fate = False
                if fate is None:
                    fate = self.wait_locked(ticket, wake, cancel, deadline)
            if self.intents:
                self.settle()
            if fate is not None:
                return fate


class _Claim(ABC):
    """What a lease and a permit have in common: made without effect, used once, released any number of times.

    It is its own ticket: the pool knows it by identity, and keeps it alive while it has or wants something.
    """

    __slots__ = ("__weakref__", "_guard", "_pool", "_stage")

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self._stage = _FRESH
        self._guard: weakref.ref[Held] | None = None

    @property
    def backend_id(self) -> str | None:
        """The backend whose pool this is; None for one without a limit."""
        return self._pool.backend_id

    @abstractmethod
    def release(self) -> None:
        """Give back what this has, or leave the queue. Any thread, any state, any number of times; does not block."""

    def _forget(self, _guard: object) -> None:
        """Give back what nobody is left to release: the owner of this claim has died."""
        self._stage = _OVER
        if not sys.is_finalizing():  # then the lock's owner may never run again, and nobody is left to want it
            self._pool.log(self)

    def _refuse_reentry(self) -> NoReturn:
        raise RuntimeError("a signal handler or finaliser asked for capacity while it interrupted the same pool")

    def _refuse_reuse(self) -> NoReturn:
        raise RuntimeError("a lease or permit is used once; ask the manager for a new one")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class Lease(_Claim):
    """A run's place in its backend's admission count."""

    __slots__ = ()

    def admit(self, cancel: CancelToken) -> None:
        """Take the place, at once. Never blocks.

        Raises what the token raises if it is over, `CapacityExceededError` when the backend runs and queues as much
        as it may; then nothing has been taken.
        """
        pool = self._pool
        lock = pool.lock
        if cancel.cancelled:
            cancel.raise_if_cancelled(pool.admitting)
        if lock._is_owned():  # type: ignore[attr-defined]  # the RLock method that Condition uses
            self._refuse_reentry()
        is_mine = False
        try:
            with lock:
                if self._stage != _FRESH:
                    self._refuse_reuse()
                self._stage = _USED
                is_mine = True
                is_admitted = pool.ledger.admit(self)
            if pool.intents:
                pool.settle()
        except BaseException:
            if is_mine:
                self.release()
            raise
        if not is_admitted:
            self.release()
            policy = pool.policy
            raise CapacityExceededError(pool.backend_id, policy.concurrency_limit, policy.queue_capacity)

    def release(self) -> None:
        """Give the place back. Any thread, any state, any number of times; does not block."""
        if self._stage == _OVER:
            return
        pool = self._pool
        if self._stage == _FRESH or not pool.ledger.leave(self):
            pool.withdraw(self)
        self._stage = _OVER
        self._guard = None


class Permit(_Claim):
    """The right to have one attempt in flight."""

    __slots__ = ()

    def acquire(self, cancel: CancelToken, queue_deadline: float | None = None) -> None:
        """Block until the permit is this caller's, first come, first served.

        Raises what the token raises as soon as it is over, also when that happens together with the grant, and
        `QueueTimeoutError` when ``queue_deadline`` (absolute, on the manager's clock; None for none) passes first.
        Whatever it raises, nothing has been taken and the caller's place in the queue is free again.
        """
        pool = self._pool
        lock = pool.lock
        if lock._is_owned():  # type: ignore[attr-defined]  # the RLock method that Condition uses
            self._refuse_reentry()
        if cancel.poll_interval_s is not None:  # asked before the wait, so as not to wait for the first interval
            cancel.raise_if_cancelled(pool.waiting_for_permit)
        started = None if queue_deadline is None else pool.clock.monotonic()
        is_mine = False
        wake = None
        fate: bool | None = True
        try:
            with lock:
                if self._stage != _FRESH:
                    self._refuse_reuse()
                self._stage = _USED
                is_mine = True
                if not pool.ledger.request(self):
                    wake = pool.wake_locked()
                    fate = pool.queue_locked(self, wake, cancel, queue_deadline)
            if pool.intents:
                pool.settle()
            if wake is not None:
                if fate is None:
                    fate = pool.wait(self, wake, cancel, queue_deadline)
                cancel.unwatch(self)
                if lock is pool.lock:  # it is another one in the child of a fork
                    pool.keep(wake)
            if cancel.cancelled:
                cancel.raise_if_cancelled(pool.waiting_for_permit)
            if not fate:
                self._refuse(started, queue_deadline)
        except BaseException:
            if wake is not None:
                cancel.unwatch(self)
            if is_mine:
                self.release()
            raise

    def release(self) -> None:
        """Pass the permit on, or leave the queue. Any thread, any state, any number of times; does not block."""
        if self._stage == _OVER:
            return
        pool = self._pool
        if self._stage == _FRESH or not pool.ledger.give_back(self):
            pool.withdraw(self)
        elif pool.ledger.waiting:
            pool.pass_on(self)
        self._stage = _OVER
        self._guard = None

    def _refuse(self, started: float | None, queue_deadline: float | None) -> NoReturn:
        """Say why the ticket is gone, though the token is not over."""
        pool = self._pool
        now = pool.clock.monotonic()
        if started is not None and queue_deadline is not None and now >= queue_deadline:
            waited_s = now - started
            raise QueueTimeoutError(
                f"the queue timeout passed after {waited_s:.3g} s while {pool.waiting_for_permit}; nothing was sent",
                waited_s=waited_s,
            )
        raise RunCancelledError(f"the permit was released while {pool.waiting_for_permit}")


class Held:
    """A lease or permit that somebody has, for a ``with`` block; it comes back when this is forgotten, too.

    The claim, which the pool keeps alive, has a weak reference to this object; its callback gives back what was not
    released. A claim that has been released has dropped the reference, so that usually nothing runs when this dies.
    """

    __slots__ = ("__weakref__", "_claim")

    def __init__(self, claim: _Claim) -> None:
        self._claim = claim
        claim._guard = weakref.ref(self, claim._forget)

    @property
    def backend_id(self) -> str | None:
        """The backend whose pool this is; None for one without a limit."""
        return self._claim.backend_id

    def release(self) -> None:
        """Give it back. Any thread, any number of times; does not block."""
        self._claim.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class _Unlimited:
    """What the lease and the permit of every backend without a limit have in common: they only look at the token."""

    __slots__ = ()

    def __init__(self) -> None:
        """Keep no state: this one object is everybody's."""

    @property
    def backend_id(self) -> None:
        """None."""

    def release(self) -> None:
        """Do nothing."""


class _UnlimitedLease(_Unlimited, Lease):
    __slots__ = ()

    def admit(self, cancel: CancelToken) -> None:
        """Raise what the token raises if it is over."""
        cancel.raise_if_cancelled("asking for admission")


class _UnlimitedPermit(_Unlimited, Permit):
    __slots__ = ()

    def acquire(self, cancel: CancelToken, queue_deadline: float | None = None) -> None:  # noqa: ARG002  # never queues
        """Raise what the token raises if it is over."""
        cancel.raise_if_cancelled("waiting for a permit")


_UNLIMITED_LEASE: Final = _UnlimitedLease()
_UNLIMITED_PERMIT: Final = _UnlimitedPermit()


class Manager:
    """The pools of one engine, one for each limited backend; fixed when built, safe for any number of threads.

    ``policies`` maps a backend's id to its `CapacityPolicy` and is copied. An id that is not in it, and None, is
    unlimited: such calls take no lock and make no object. Two managers share nothing. Raises `ConfigError` for an id
    that is not a string or is blank, and for anything that is not a policy.
    """

    __slots__ = ("_pools",)

    def __init__(self, policies: Mapping[str, CapacityPolicy], *, clock: Clock = SYSTEM_CLOCK) -> None:
        pools: dict[str | None, _Pool] = {}
        for backend_id, policy in policies.items():
            if not isinstance(backend_id, str):
                raise ConfigError(f"a backend id must be a string, not {describe(backend_id)}")
            if not backend_id.strip():
                raise ConfigError("a backend id must not be blank")
            if not isinstance(policy, CapacityPolicy):
                raise ConfigError(
                    f"the capacity of backend {backend_id!r} must be a CapacityPolicy, not {describe(policy)}"
                )
            pools[backend_id] = _Pool(backend_id, policy, clock)
        self._pools: FrozenDict[str | None, _Pool] = FrozenDict(pools)

    def lease(self, backend_id: str | None) -> Lease:
        """Return a lease that has not been admitted yet; see `Lease.admit`."""
        pool = self._pools.get(backend_id)
        return _UNLIMITED_LEASE if pool is None else Lease(pool)

    def permit(self, backend_id: str | None) -> Permit:
        """Return a permit that has not been granted yet; see `Permit.acquire`."""
        pool = self._pools.get(backend_id)
        return _UNLIMITED_PERMIT if pool is None else Permit(pool)

    def admit(self, backend_id: str | None, cancel: CancelToken) -> Lease | Held:
        """Return an admitted lease, to be used in a ``with`` block; raises as `Lease.admit` does."""
        lease = self.lease(backend_id)
        held = lease if lease is _UNLIMITED_LEASE else Held(lease)
        lease.admit(cancel)
        return held

    def acquire(self, backend_id: str | None, cancel: CancelToken) -> Permit | Held:
        """Wait for a permit and return it, to be used in a ``with`` block; raises as `Permit.acquire` does."""
        permit = self.permit(backend_id)
        held = permit if permit is _UNLIMITED_PERMIT else Held(permit)
        permit.acquire(cancel)
        return held

    def stats(self, backend_id: str | None) -> PoolStats | None:
        """Return how much of a backend's pool is in use at this moment; None if it is unlimited. For gauges."""
        pool = self._pools.get(backend_id)
        if pool is None:
            return None
        with pool.lock:
            pool.drain_locked()
            ledger = pool.ledger
            stats = PoolStats(len(ledger.leases), len(ledger.held), len(ledger.waiting))
        if pool.intents:
            pool.settle()
        return stats


def _empty_all_pools() -> None:
    for pool in _pools:
        pool.reset()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_empty_all_pools)
