"""Capacity pools: bounded admission and first-come-first-served permits, shared by all threads of an engine.

Guarantees, over those of `_pool`, which locks, waits, and has the rules for changing either file
    * Cancelled before it was granted, a ticket has left, and nothing is sent. Granted first: `Permit.acquire` looks at
      the token before it returns, and gives the permit back if it is over.
    * An exception raised into a thread (Ctrl-C, a signal handler, ``PyThreadState_SetAsyncExc``) leaves the pool right
      wherever it lands, if the caller releases in two nested ``finally`` blocks (the safe shape, below).
    * `CancelToken.cancel` and `release` may be called in signal handlers and finalisers, even when they interrupt these
      very modules. `admit` and `acquire` may not: they raise `RuntimeError` when they find that they have.
    * A released claim is kept alive by nothing, and keeps nothing alive. What `Manager.admit` and `Manager.acquire`
      return gives itself back when it is forgotten.

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
the first ones of a forgotten claim's callback, or in the two lines that take the lock again after an interrupted wait;
a second one in the clean-up of an interrupted wait, which leaves the ticket among its token's watchers; on CPython 3.14
the exit of a ``with`` block (python/cpython#148874). A claim used by ``with manager.acquire(...)`` alone may be lost
between two instructions of its caller; it comes back when the exception's traceback, which holds it, is dropped.
"""

# ruff: noqa: SLF001  # a claim and the object that has it are one mechanism

from __future__ import annotations

import sys
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from promptkit._clock import SYSTEM_CLOCK
from promptkit._fields import FrozenDict, describe
from promptkit._ledger import CapacityPolicy
from promptkit._pool import FRESH, OVER, USED, Pool, Ticket
from promptkit.errors import CapacityExceededError, ConfigError, QueueTimeoutError, RunCancelledError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from promptkit._cancel import CancelToken
    from promptkit._clock import Clock


class PoolStats(NamedTuple):
    """How much of a pool is in use: leases, permits, and tickets that wait for a permit."""

    admitted: int
    active: int
    waiting: int


class _Claim(Ticket, ABC):
    """What a lease and a permit have in common: made without effect, used once, released any number of times.

    It is its own ticket: the pool knows it by identity, and keeps it alive while it has or wants something.
    """

    __slots__ = ("_guard", "_pool")

    _guard: weakref.ref[Held] | None  # there when a `Held` has this claim; nobody reads it

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.stage = FRESH

    @property
    def backend_id(self) -> str | None:
        """The backend whose pool this is; None for one without a limit."""
        return self._pool.backend_id

    @abstractmethod
    def release(self) -> None:
        """Give back what this has, or leave the queue. Any thread, any state, any number of times; does not block."""

    def _forget(self, _guard: object) -> None:
        """Give back what nobody is left to release: the owner of this claim has died."""
        self.stage = OVER
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
        if cancel.cancelled:
            cancel.raise_if_cancelled(pool.admitting)
        if pool.is_owned():
            self._refuse_reentry()
        is_mine = False
        try:
            with pool.lock:
                if self.stage != FRESH:
                    self._refuse_reuse()
                self.stage = USED
                is_mine = True
                is_admitted = pool.ledger.admit(self)
            if pool.intents:
                pool.settle()
        except BaseException:
            if is_mine:
                self.release()
            raise
        if not is_admitted:
            self._guard = None
            policy = pool.policy
            raise CapacityExceededError(pool.backend_id, policy.concurrency_limit, policy.queue_capacity)

    def release(self) -> None:
        """Give the place back. Any thread, any state, any number of times; does not block."""
        pool = self._pool
        if self.stage != OVER:
            if self.stage == FRESH or not pool.ledger.leave(self):
                pool.withdraw(self)
            self.stage = OVER
            self._guard = None
        if pool.intents:
            pool.settle()


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
        ledger = pool.ledger
        if pool.is_owned():
            self._refuse_reentry()
        if cancel.poll_interval_s is not None:  # asked before the wait, so as not to wait for the first interval
            cancel.raise_if_cancelled(pool.waiting_for_permit)
        started = None if queue_deadline is None else pool.clock.monotonic()
        is_mine = False
        wake = None
        fate: bool | None = True
        try:
            with pool.lock:
                if self.stage != FRESH:
                    self._refuse_reuse()
                self.stage = USED
                is_mine = True
                if ledger.waiting or not ledger.request(self):  # a queue is seen without a call
                    wake = pool.spare_wakes.pop() if pool.spare_wakes else pool.new_wake()
                    if ledger.enqueue(self, wake):
                        ledger.grant()
                    cancel.watch(self, pool.note)
                    # The books are others in the child of a fork, and nobody grants what stands in the old ones.
                    fate = ledger is pool.ledger and pool.wait_locked(self, wake, cancel, queue_deadline)
            if pool.intents:
                pool.settle()
            if wake is not None:
                if fate is None:
                    fate = pool.wait(self, wake, cancel, queue_deadline)
                cancel.unwatch(self)
                pool.spare_wakes.append(wake)
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
        pool = self._pool
        if self.stage != OVER:
            ledger = pool.ledger
            if self.stage == FRESH or self not in ledger.held:
                pool.withdraw(self)
            elif ledger.waiting and not pool.is_owned():
                with pool.lock:
                    ledger.grant(self)
            else:
                ledger.give_back(self)
                if ledger.waiting:
                    pool.withdraw(self)  # there is nothing left to take, but something to grant
            self.stage = OVER
            self._guard = None
        if pool.intents:  # also when it was over: the exception that ended it may have unlocked without a look
            pool.settle()

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
        pools: dict[str | None, Pool] = {}
        for backend_id, policy in policies.items():
            if not isinstance(backend_id, str):
                raise ConfigError(f"a backend id must be a string, not {describe(backend_id)}")
            if not backend_id.strip():
                raise ConfigError("a backend id must not be blank")
            if not isinstance(policy, CapacityPolicy):
                raise ConfigError(
                    f"the capacity of backend {backend_id!r} must be a CapacityPolicy, not {describe(policy)}"
                )
            pools[backend_id] = Pool(backend_id, policy, clock)
        self._pools: FrozenDict[str | None, Pool] = FrozenDict(pools)

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
        pool.settle()
        with pool.lock:
            ledger = pool.ledger
            stats = PoolStats(len(ledger.leases), len(ledger.held), len(ledger.waiting))
        if pool.intents:
            pool.settle()
        return stats
