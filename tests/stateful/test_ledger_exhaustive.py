"""Every state that a ledger can get into is visited, and what it promises is checked in each of them.

The steps are the ledger's own calls, not whole operations: whoever is interrupted stops between two of them, and a
permit is given back without the lock, between any two of somebody else's. So a state is also what an interruption at
that place leaves behind. The search is breadth first with a set of the states seen, and it goes on until there is
nothing new: within the bounds (limits, queues, tickets) nothing is left out, whatever the depth.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple

import pytest

from promptkit._ledger import CapacityPolicy, Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator


class State(NamedTuple):
    """The containers of a ledger, and how far each ticket has come.

    ``stages`` has for each ticket: ``new``; ``refused`` (asked, must enqueue next); ``queued`` (has been put into the
    queue); ``in`` (was given a permit when it asked); ``returned`` (has given its permit back); ``done``.
    """

    leases: tuple[int, ...]
    held: tuple[int, ...]
    waiting: tuple[int, ...]
    stages: tuple[str, ...]


def load(policy: CapacityPolicy, state: State) -> Ledger[int, str]:
    """Return a ledger in ``state``."""
    ledger: Ledger[int, str] = Ledger(policy)
    ledger.leases.update(dict.fromkeys(state.leases))
    ledger.held.update(dict.fromkeys(state.held))
    ledger.waiting = OrderedDict((ticket, f"wake {ticket}") for ticket in state.waiting)
    return ledger


def save(ledger: Ledger[int, str], stages: tuple[str, ...]) -> State:
    """Return the state that ``ledger`` is in."""
    return State(tuple(sorted(ledger.leases)), tuple(sorted(ledger.held)), tuple(ledger.waiting), stages)


def with_stage(stages: tuple[str, ...], ticket: int, stage: str) -> tuple[str, ...]:
    """Return ``stages`` with that of ``ticket`` changed."""
    return (*stages[:ticket], stage, *stages[ticket + 1 :])


def permit_steps(policy: CapacityPolicy, state: State) -> Iterator[State]:
    """Make every call that the protocol allows in ``state``, one by one; check what each returns."""
    limit = policy.concurrency_limit
    for ticket, stage in enumerate(state.stages):
        ledger = load(policy, state)
        if stage in ("new", "refused", "in"):  # the first time, or again after an interruption
            is_granted = ledger.request(ticket)
            is_free = len(state.held) < limit and not state.waiting
            assert is_granted == (is_free or ticket in state.held), "at once only if nobody waits"
            yield save(ledger, with_stage(state.stages, ticket, "in" if is_granted else "refused"))
        if stage == "refused":
            ledger = load(policy, state)
            assert ledger.enqueue(ticket, f"wake {ticket}") == (len(state.held) < limit)
            assert tuple(ledger.waiting) == (*state.waiting, ticket), "at the end"
            yield save(ledger, with_stage(state.stages, ticket, "queued"))
        if stage in ("in", "queued"):  # give back: what the owner does first, and without the lock
            ledger = load(policy, state)
            ledger.give_back(ticket)
            assert ticket not in ledger.held
            if ticket in state.held:
                yield save(ledger, with_stage(state.stages, ticket, "returned"))
        # And with the lock, after anything that others may have done in between. Who sees that somebody waits leaves
        # the giving back to the grant.
        if stage == "returned" or ticket in state.held:
            ledger = load(policy, state)
            granted = ledger.grant(ticket)
            assert ticket not in ledger.held
            if granted == ticket:
                assert state.waiting[0] == ticket, "half granted: it is to be told, and gets no permit"
                ledger.dequeue(ticket)
            assert ticket not in ledger.waiting
            yield save(ledger, with_stage(state.stages, ticket, "done"))
        ledger = load(policy, state)  # withdraw: after an interruption, or of a ticket that was never used
        ledger.withdraw(ticket)
        assert ticket not in ledger.held
        assert ticket not in ledger.waiting
        yield save(ledger, with_stage(state.stages, ticket, "done"))
        ledger = load(policy, state)  # a cancel, from any thread at any moment
        wake = ledger.cancellable(ticket)
        assert (wake is not None) == (ticket in state.waiting and ticket not in state.held), "granted first, or not"
        if wake is not None:
            assert wake == f"wake {ticket}"
            ledger.dequeue(ticket)
            yield save(ledger, state.stages)
    ledger = load(policy, state)
    granted = ledger.grant()
    if granted is None:
        assert not state.waiting or (len(state.held) == limit and state.waiting[0] not in state.held)
        assert save(ledger, state.stages) == state
    else:
        assert granted == state.waiting[0], "first come, first served"
        assert granted in ledger.held
        yield save(ledger, state.stages)
        ledger.dequeue(granted)
        yield save(ledger, state.stages)


def check_permits(policy: CapacityPolicy, state: State) -> None:
    """What holds in every state, also between the steps of an operation."""
    assert len(state.held) <= policy.concurrency_limit
    assert len(set(state.waiting)) == len(state.waiting)
    for ticket, stage in enumerate(state.stages):
        if stage in ("new", "refused", "done"):
            assert ticket not in state.held
            assert ticket not in state.waiting
    # Whoever runs the pump, at any time, finishes what was left off: nothing free while somebody waits.
    ledger = load(policy, state)
    order = []
    while (ticket := ledger.grant()) is not None:
        order.append(ticket)
        ledger.dequeue(ticket)
    assert tuple(order) == state.waiting[: len(order)], "in the order of the queue"
    assert not ledger.waiting or len(ledger.held) == policy.concurrency_limit
    assert not set(ledger.held) & set(ledger.waiting)
    # And when everybody goes, nothing is left.
    for ticket in range(len(state.stages)):
        ledger.withdraw(ticket)
    assert not ledger.held
    assert not ledger.waiting


@pytest.mark.parametrize(
    ("limit", "tickets", "states"), [(1, 3, 570), (2, 3, 264), (1, 4, 5281), (2, 4, 4123), (3, 4, 1099)]
)
def test_every_state_of_the_permits(limit: int, tickets: int, states: int) -> None:
    """Up to four tickets, one to three permits, all orders, with an interruption anywhere."""
    policy = CapacityPolicy(limit, 0)
    start = State((), (), (), ("new",) * tickets)
    seen, frontier = {start}, deque([start])
    while frontier:
        state = frontier.popleft()
        check_permits(policy, state)
        for following in permit_steps(policy, state):
            if following not in seen:
                seen.add(following)
                frontier.append(following)
    assert len(seen) == states, "the search is not what it was"


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("queue", [0, 1, 2])
def test_every_state_of_the_admission(limit: int, queue: int) -> None:
    """One run more than may be admitted, in all orders: exactly the places that there are are given out."""
    policy = CapacityPolicy(limit, queue)
    runs = limit + queue + 1
    start: frozenset[int] = frozenset()
    seen, frontier = {start}, deque([start])
    while frontier:
        state = frontier.popleft()
        assert len(state) <= limit + queue
        for lease in range(runs):
            ledger: Ledger[int, str] = Ledger(policy)
            ledger.leases.update(dict.fromkeys(state))
            is_admitted = ledger.admit(lease)
            assert is_admitted == (lease in state or len(state) < limit + queue)
            admitted = frozenset(ledger.leases)
            assert admitted == (state | {lease} if is_admitted else state)
            ledger = Ledger(policy)
            ledger.leases.update(dict.fromkeys(state))
            assert ledger.leave(lease) == (lease in state)
            left = frozenset(ledger.leases)
            assert left == state - {lease}
            for following in (admitted, left):
                if following not in seen:
                    seen.add(following)
                    frontier.append(following)
    assert len(seen) == 2**runs - 1, "every set of runs but the full one"
