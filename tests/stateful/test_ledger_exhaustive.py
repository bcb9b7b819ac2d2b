"""Every state that a ledger can get into is visited, and what it promises is checked in each of them.

The steps are the ledger's own calls, each whole and each left off where it notifies somebody: before that, and after
it. A permit is given back without the lock, between any two calls of somebody else's. So a state is also what an
interruption leaves behind. The search is breadth first with a set of the states seen, and it goes on until there is
nothing new: within the bounds (limits, queues, tickets) nothing is left out, whatever the depth.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple

import pytest

from promptkit._ledger import CapacityPolicy, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class State(NamedTuple):
    """The containers of a ledger, and how far each ticket has come.

    ``stages`` has for each ticket: ``new``; ``refused`` (asked, must enqueue next); ``queued`` (has been put into the
    queue); ``in`` (was given a permit when it asked); ``returned`` (has given its permit back); ``done``.
    """

    leases: tuple[int, ...]
    held: tuple[int, ...]
    waiting: tuple[int, ...]
    stages: tuple[str, ...]


class LeftOff(Exception):  # noqa: N818  # nothing is wrong
    """Raised where a call notifies: the rest of it is not done."""


class Told(list[int]):
    """The tickets that have been notified, in their order; it can be told to stop at one of them."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self._stop_at = stop_at

    def notify(self, wake: str) -> None:
        """Note whose ``wake`` this is."""
        if len(self) == self._stop_at:
            raise LeftOff
        self.append(int(wake.removeprefix("wake ")))


def load(policy: CapacityPolicy, state: State, told: Told | None = None) -> Ledger[int, str]:
    """Return a ledger in ``state``."""
    ledger: Ledger[int, str] = Ledger(policy, (Told() if told is None else told).notify)
    ledger.leases.update(dict.fromkeys(state.leases))
    ledger.held.update(dict.fromkeys(state.held))
    ledger.waiting = OrderedDict((ticket, f"wake {ticket}") for ticket in state.waiting)
    return ledger


def save(ledger: Ledger[int, str], stages: tuple[str, ...]) -> State:
    """Return the state that ``ledger`` is in."""
    return State(tuple(sorted(ledger.leases)), tuple(sorted(ledger.held)), tuple(ledger.waiting), stages)


def left_off(
    policy: CapacityPolicy, state: State, times: int, call: Callable[..., object], *arguments: int
) -> Iterator[Ledger[int, str]]:
    """Make ``call``, which notifies so many times, and leave it off at each of them; yield what the ledger is then."""
    for number in range(times):
        ledger = load(policy, state, Told(stop_at=number))
        with pytest.raises(LeftOff):
            call(ledger, *arguments)
        yield ledger


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
            told = Told()
            ledger = load(policy, state, told)
            ledger.grant(ticket)
            check_granted(policy, state, ledger, told, given_back=ticket)
            assert ticket not in ledger.held
            assert ticket not in ledger.waiting
            yield save(ledger, with_stage(state.stages, ticket, "done"))
            for ledger in left_off(policy, state, len(told), Ledger.grant, ticket):
                assert ticket not in ledger.held
                yield save(ledger, with_stage(state.stages, ticket, "returned"))
        told = Told()  # withdraw: after an interruption, or of a ticket that was never used
        ledger = load(policy, state, told)
        ledger.withdraw(ticket)
        assert ticket not in ledger.held
        assert ticket not in ledger.waiting
        assert told == [ticket] * (ticket in state.waiting)
        yield save(ledger, with_stage(state.stages, ticket, "done"))
        for ledger in left_off(policy, state, len(told), Ledger.withdraw, ticket):
            assert save(ledger, state.stages) == state
        told = Told()  # a cancel, from any thread at any moment
        ledger = load(policy, state, told)
        ledger.cancel(ticket)
        wins = ticket in state.waiting and ticket not in state.held
        assert told == [ticket] * wins, "granted first, or not"
        assert tuple(ledger.waiting) == tuple(other for other in state.waiting if other != ticket or not wins)
        yield save(ledger, state.stages)
        for ledger in left_off(policy, state, len(told), Ledger.cancel, ticket):
            assert save(ledger, state.stages) == state
    told = Told()
    ledger = load(policy, state, told)
    ledger.grant()
    check_granted(policy, state, ledger, told)
    yield save(ledger, state.stages)
    for number, ledger in enumerate(left_off(policy, state, len(told), Ledger.grant)):
        assert ledger.held.keys() >= {state.waiting[number]}, "decided before it is said"
        yield save(ledger, state.stages)


def check_granted(
    policy: CapacityPolicy, state: State, ledger: Ledger[int, str], told: list[int], given_back: int | None = None
) -> None:
    """What a grant must have done in ``state``: everything that there was to do, in the order of the queue."""
    assert tuple(told) == state.waiting[: len(told)], "first come, first served"
    assert tuple(ledger.waiting) == state.waiting[len(told) :]
    assert set(ledger.held) == {*state.held, *told} - {given_back}
    assert not ledger.waiting or len(ledger.held) == policy.concurrency_limit
    assert not set(ledger.held) & set(ledger.waiting)


def check_permits(policy: CapacityPolicy, state: State) -> None:
    """What holds in every state, also between the steps of an operation."""
    assert len(state.held) <= policy.concurrency_limit
    assert len(set(state.waiting)) == len(state.waiting)
    for ticket, stage in enumerate(state.stages):
        if stage in ("new", "refused", "done"):
            assert ticket not in state.held
            assert ticket not in state.waiting
    # Whoever grants, at any time, finishes what was left off: nothing free while somebody waits.
    told = Told()
    ledger = load(policy, state, told)
    ledger.grant()
    check_granted(policy, state, ledger, told)
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
            ledger: Ledger[int, str] = Ledger(policy, Told().notify)
            ledger.leases.update(dict.fromkeys(state))
            is_admitted = ledger.admit(lease)
            assert is_admitted == (lease in state or len(state) < limit + queue)
            admitted = frozenset(ledger.leases)
            assert admitted == (state | {lease} if is_admitted else state)
            ledger = Ledger(policy, Told().notify)
            ledger.leases.update(dict.fromkeys(state))
            assert ledger.leave(lease) == (lease in state)
            left = frozenset(ledger.leases)
            assert left == state - {lease}
            for following in (admitted, left):
                if following not in seen:
                    seen.add(following)
                    frontier.append(following)
    assert len(seen) == 2**runs - 1, "every set of runs but the full one"
