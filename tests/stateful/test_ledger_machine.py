"""The ledger against a naive model: any sequence of operations, refusals as well as grants."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from promptkit._ledger import CapacityPolicy, Ledger


class LedgerMachine(RuleBasedStateMachine):
    """Plays the pool: whole operations, and now and then one that is left off half-way."""

    def __init__(self) -> None:
        super().__init__()
        self.names = iter(range(10**9))
        self.leases: list[int] = []  # the model: three lists, searched from the front
        self.running: list[int] = []
        self.queue: list[int] = []
        self.over: list[int] = []
        self.half_granted: int | None = None
        self.told: list[int] = []
        self.is_interrupted = False

    @initialize(limit=st.integers(1, 3), queue=st.integers(0, 3))
    def start(self, limit: int, queue: int) -> None:
        self.policy = CapacityPolicy(limit, queue)
        self.ledger: Ledger[int, str] = Ledger(self.policy, self.notify)

    def notify(self, wake: str) -> None:
        """Note who is told, or be interrupted before anybody is."""
        if self.is_interrupted:
            raise KeyboardInterrupt
        self.told.append(int(wake.removeprefix("wake ")))

    def grant(self, given_back: int | None = None) -> None:
        """Grant until nothing is left to grant, and see that the model would have granted the same."""
        expected = [self.half_granted] if self.half_granted is not None else []
        self.half_granted = None
        while self.queue and len(self.running) < self.policy.concurrency_limit:
            expected.append(self.queue.pop(0))
            self.running.append(expected[-1])
        self.told.clear()
        self.ledger.grant(given_back)
        assert self.told == expected

    # -------------------------------------------------------------------------------------------- admission

    @rule()
    def admit(self) -> None:
        lease = next(self.names)
        has_room = len(self.leases) < self.policy.concurrency_limit + self.policy.queue_capacity
        assert self.ledger.admit(lease) == has_room
        if has_room:
            self.leases.append(lease)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        self.leases.remove(lease)
        assert self.ledger.leave(lease)
        assert not self.ledger.leave(lease)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def admit_again(self, data: st.DataObject) -> None:
        assert self.ledger.admit(data.draw(st.sampled_from(self.leases)))

    # ---------------------------------------------------------------------------------------------- permits

    @rule()
    def ask(self) -> None:
        ticket = next(self.names)
        if len(self.running) < self.policy.concurrency_limit and not self.queue and self.half_granted is None:
            assert self.ledger.request(ticket)
            self.running.append(ticket)
        else:
            assert not self.ledger.request(ticket)
            self.ledger.enqueue(ticket, f"wake {ticket}")
            self.queue.append(ticket)
            self.grant()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.running))
        self.running.remove(ticket)
        self.over.append(ticket)
        if ticket == self.half_granted:
            self.half_granted = None
            self.ledger.withdraw(ticket)
        else:
            self.ledger.give_back(ticket)
        self.grant()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def pass_on(self, data: st.DataObject) -> None:
        """Give back and grant in one operation; a ticket that is half granted is told, though it has nothing."""
        ticket = data.draw(st.sampled_from(self.running))
        self.running.remove(ticket)
        self.over.append(ticket)
        self.grant(ticket)

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.queue))
        self.queue.remove(ticket)
        self.over.append(ticket)
        self.told.clear()
        self.ledger.cancel(ticket)
        self.ledger.cancel(ticket)
        assert self.told == [ticket]
        self.grant()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def cancel_too_late(self, data: st.DataObject) -> None:
        self.told.clear()
        self.ledger.cancel(data.draw(st.sampled_from(self.running)))
        assert not self.told

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def withdraw_from_the_queue(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.queue))
        self.queue.remove(ticket)
        self.over.append(ticket)
        self.told.clear()
        self.ledger.withdraw(ticket)
        assert self.told == [ticket]
        self.grant()

    @precondition(lambda self: self.over)
    @rule(data=st.data())
    def release_again(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.over))
        self.ledger.give_back(ticket)
        self.ledger.withdraw(ticket)
        self.ledger.dequeue(ticket)

    @precondition(lambda self: self.running and self.queue and self.half_granted is None)
    @rule(data=st.data())
    def give_back_and_be_interrupted(self, data: st.DataObject) -> None:
        """The grant has been decided, nobody has been told, and nothing else has been done."""
        ticket = data.draw(st.sampled_from(self.running))
        self.running.remove(ticket)
        self.over.append(ticket)
        self.ledger.give_back(ticket)
        self.half_granted = self.queue.pop(0)
        self.running.append(self.half_granted)
        self.is_interrupted = True
        with pytest.raises(KeyboardInterrupt):
            self.ledger.grant()
        self.is_interrupted = False

    # ------------------------------------------------------------------------------------------- invariants

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "ledger"):
            return
        stuck = [] if self.half_granted is None else [self.half_granted]
        assert set(self.ledger.leases) == set(self.leases)
        assert set(self.ledger.held) == set(self.running)
        assert list(self.ledger.waiting) == stuck + self.queue
        assert len(self.running) <= self.policy.concurrency_limit
        assert len(self.leases) <= self.policy.admission_limit
        assert not self.queue or len(self.running) == self.policy.concurrency_limit

    def teardown(self) -> None:
        if not hasattr(self, "ledger"):
            return
        for ticket in [*self.running, *self.queue]:
            self.ledger.withdraw(ticket)
        for lease in self.leases:
            self.ledger.leave(lease)
        assert (len(self.ledger.leases), len(self.ledger.held), len(self.ledger.waiting)) == (0, 0, 0)


TestLedgerMachine = LedgerMachine.TestCase
