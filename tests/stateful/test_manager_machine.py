"""A real manager, with a thread for each waiting caller, against a naive model. Time is the test's."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from promptkit._cancel import CancelToken
from promptkit._capacity import Held, Lease, Manager, Permit
from promptkit._ledger import CapacityPolicy
from promptkit.errors import CapacityExceededError, DeadlineExceededError, QueueTimeoutError, RunCancelledError
from support.clock import FakeClock
from support.threads import Worker

WAITS = st.one_of(st.none(), st.integers(0, 6))


class Caller:
    """One call of acquire in a thread of its own, and what the model knows of it."""

    def __init__(
        self, manager: Manager, clock: FakeClock, parent: CancelToken, timeout: int | None, queue_timeout: int | None
    ) -> None:
        now = clock.monotonic()
        self.token = parent.child(timeout=timeout)
        self.run_ends = math.inf if timeout is None else now + timeout
        self.queue_ends = math.inf if queue_timeout is None else now + queue_timeout
        self.permit: Permit | None = manager.permit("b")
        self.held: Held | None = Held(self.permit)
        queue_deadline = None if queue_timeout is None else self.queue_ends
        self.worker = Worker(self.permit.acquire, self.token, queue_deadline)

    def expect_granted(self) -> None:
        """It returns, without an error."""
        self.worker.result()

    def expect(self, error: type[BaseException]) -> None:
        """It raises exactly ``error``."""
        self.worker.join()
        assert type(self.worker.error) is error, self.worker.error
        self.worker.error = None


class ManagerMachine(RuleBasedStateMachine):
    """Callers come, are granted, cancelled, late, released and forgotten, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.leases: list[Held | Lease] = []
        self.running: list[Caller] = []
        self.queue: list[Caller] = []
        self.over: list[Any] = []

    @initialize(limit=st.integers(1, 3), queue=st.integers(0, 3))
    def start(self, limit: int, queue: int) -> None:
        self.clock = FakeClock()
        self.limit, self.places = limit, limit + queue
        self.manager = Manager({"b": CapacityPolicy(limit, queue)}, clock=self.clock)
        self.parent = CancelToken(clock=self.clock)

    def after_a_permit_came_free(self) -> None:
        """The oldest callers of the queue have been granted; their threads end."""
        while self.queue and len(self.running) < self.limit:
            caller = self.queue.pop(0)
            caller.expect_granted()
            self.running.append(caller)

    # -------------------------------------------------------------------------------------------- admission

    @rule()
    def admit(self) -> None:
        try:
            lease = self.manager.admit("b", self.parent)
        except CapacityExceededError:
            assert len(self.leases) == self.places
        else:
            assert len(self.leases) < self.places
            self.leases.append(lease)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), is_forgotten=st.booleans())
    def leave(self, data: st.DataObject, is_forgotten: bool) -> None:  # noqa: FBT001  # drawn by Hypothesis
        lease = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        if not is_forgotten:
            lease.release()
            self.over.append(lease)

    # ---------------------------------------------------------------------------------------------- permits

    @rule(timeout=WAITS, queue_timeout=WAITS)
    def ask(self, timeout: int | None, queue_timeout: int | None) -> None:
        caller = Caller(self.manager, self.clock, self.parent, timeout, queue_timeout)
        if timeout == 0:
            caller.expect(DeadlineExceededError)
        elif len(self.running) < self.limit:
            caller.expect_granted()
            self.running.append(caller)
        elif queue_timeout == 0:
            caller.expect(QueueTimeoutError)
        else:
            self.queue.append(caller)
            self.clock.wait_for_sleepers(len(self.queue))

    @rule()
    def ask_with_a_cancelled_token(self) -> None:
        token = self.parent.child()
        token.cancel("before")
        caller = Caller(self.manager, self.clock, token, None, None)
        caller.expect(RunCancelledError)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), is_forgotten=st.booleans())
    def release(self, data: st.DataObject, is_forgotten: bool) -> None:  # noqa: FBT001  # drawn by Hypothesis
        caller = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        assert caller.permit is not None
        if is_forgotten:
            caller.permit = caller.held = None
        else:
            caller.permit.release()
            self.over.append(caller.permit)
        self.after_a_permit_came_free()

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        caller = self.queue.pop(data.draw(st.integers(0, len(self.queue) - 1)))
        caller.token.cancel("changed my mind")
        caller.expect(RunCancelledError)
        self.over.append(caller.permit)

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def release_while_it_waits(self, data: st.DataObject) -> None:
        caller = self.queue.pop(data.draw(st.integers(0, len(self.queue) - 1)))
        assert caller.permit is not None
        caller.permit.release()
        caller.expect(RunCancelledError)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def cancel_too_late(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.running)).token.cancel("too late")

    @precondition(lambda self: self.over)
    @rule(data=st.data())
    def release_again(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.over)).release()

    @rule(seconds=st.integers(0, 4))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)
        now = self.clock.monotonic()
        for caller in list(self.queue):
            if min(caller.run_ends, caller.queue_ends) <= now:
                self.queue.remove(caller)
                caller.expect(DeadlineExceededError if caller.run_ends <= now else QueueTimeoutError)
        self.clock.wait_for_sleepers(len(self.queue))

    # ------------------------------------------------------------------------------------------- invariants

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "manager"):
            return
        assert self.manager.stats("b") == (len(self.leases), len(self.running), len(self.queue))
        pool = self.manager._pools["b"]
        with pool.lock:
            assert list(pool.ledger.waiting) == [caller.permit for caller in self.queue]
        assert len(self.running) <= self.limit
        assert len(self.leases) <= self.places
        assert not self.queue or len(self.running) == self.limit
        assert len(self.parent._watchers) == len(self.queue)

    def teardown(self) -> None:
        if not hasattr(self, "manager"):
            return
        self.parent.cancel("the end")
        for caller in self.queue:
            caller.expect(RunCancelledError)
        for caller in self.running:
            assert caller.permit is not None
            caller.permit.release()
        for lease in self.leases:
            lease.release()
        assert self.manager.stats("b") == (0, 0, 0)
        assert not self.parent._watchers


TestManagerMachine = ManagerMachine.TestCase
