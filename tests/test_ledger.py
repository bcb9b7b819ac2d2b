"""The ledger: limits, order, withdrawal, and starting again after an interruption."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import attrs
import pytest

from promptkit._ledger import CapacityPolicy, Ledger, _check_count
from promptkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable


class Book(Ledger[str, str]):
    """A ledger whose tickets are letters; it keeps what it has notified, and can be interrupted there."""

    def __init__(self, limit: int = 1, queue: int = 2) -> None:
        super().__init__(CapacityPolicy(limit, queue), self.hear)
        self.told: list[str] = []
        self.interrupt: Callable[[], object] = bool

    def hear(self, wake: str) -> None:
        """Note whom this wakes."""
        self.interrupt()
        self.told.append(wake.removeprefix("wake "))

    def queue_up(self, *tickets: str) -> None:
        """Ask for a permit for each of ``tickets``; none is free."""
        for ticket in tickets:
            assert not self.request(ticket)
            self.enqueue(ticket, f"wake {ticket}")

    def granted(self, given_back: str | None = None) -> list[str]:
        """Grant what can be granted; return who has been told, in that order."""
        self.told.clear()
        self.grant(given_back)
        return self.told

    def be_interrupted(self, call: Callable[..., object], *arguments: str) -> None:
        """Make a call and have it interrupted as it is about to notify."""

        def interrupt() -> None:
            raise KeyboardInterrupt

        self.interrupt = interrupt
        with pytest.raises(KeyboardInterrupt):
            call(*arguments)
        self.interrupt = bool


# -------------------------------------------------------------------------------------------------- policies


def test_a_policy_adds_up_what_may_be_admitted() -> None:
    """A run is admitted to run or to wait."""
    policy = CapacityPolicy(3, 4)
    assert (policy.concurrency_limit, policy.queue_capacity, policy.admission_limit) == (3, 4, 7)


def test_the_smallest_and_largest_policies_are_allowed() -> None:
    """One at a time with nobody waiting; and everything that a container can count."""
    assert CapacityPolicy(1, 0).admission_limit == 1
    assert CapacityPolicy(1, sys.maxsize - 1).admission_limit == sys.maxsize


@pytest.mark.parametrize(
    ("limit", "queue", "message"),
    [
        (0, 0, "concurrency_limit must be at least 1, not 0"),
        (-1, 0, "concurrency_limit must be at least 1, not -1"),
        (True, 0, "concurrency_limit must be a whole number, at least 1, not a boolean"),
        (1.0, 0, "concurrency_limit must be a whole number, at least 1, not a number"),
        ("1", 0, "concurrency_limit must be a whole number, at least 1, not a string"),
        (None, 0, "concurrency_limit must be a whole number, at least 1, not null"),
        (1, -1, "queue_capacity must be at least 0, not -1"),
        (1, False, "queue_capacity must be a whole number, at least 0, not a boolean"),
        (1, None, "queue_capacity must be a whole number, at least 0, not null"),
        (1, 2.5, "queue_capacity must be a whole number, at least 0, not a number"),
        (
            1,
            sys.maxsize,
            f"concurrency_limit plus queue_capacity must be at most {sys.maxsize} (sys.maxsize), not {sys.maxsize + 1}",
        ),
    ],
)
def test_a_wrong_policy_is_refused(limit: object, queue: object, message: str) -> None:
    """The message says which number, what it was, and what would be right."""
    with pytest.raises(ConfigError) as caught:
        CapacityPolicy(limit, queue)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_a_count_is_bounded_by_the_minimum_that_its_field_names() -> None:
    """The minimum itself is allowed, and both messages say it."""
    sample = attrs.make_class("Sample", {"size": attrs.field(validator=_check_count(7))})
    assert sample(7).size == 7
    with pytest.raises(ConfigError) as caught:
        sample(6)
    assert str(caught.value) == "size must be at least 7, not 6"
    with pytest.raises(ConfigError) as caught:
        sample("7")
    assert str(caught.value) == "size must be a whole number, at least 7, not a string"


# ------------------------------------------------------------------------------------------------- admission


def test_admission_ends_at_limit_plus_queue() -> None:
    """C20: two running and three waiting are five; the sixth is refused, and nothing of it stays."""
    ledger = Book(2, 3)
    assert [ledger.admit(lease) for lease in "abcde"] == [True] * 5
    assert not ledger.admit("f")
    assert list(ledger.leases) == list("abcde")


def test_a_lease_given_back_makes_room_for_one() -> None:
    """Exactly one: giving it back again changes nothing."""
    ledger = Book(1, 0)
    assert ledger.admit("a")
    ledger.leave("a")
    ledger.leave("a")
    assert ledger.admit("b")
    assert not ledger.admit("c")


def test_admitting_again_what_has_been_admitted_takes_no_second_place() -> None:
    """An interrupted admission can be run again, also when the backend is full."""
    ledger = Book(1, 1)
    assert ledger.admit("a")
    assert ledger.admit("a")
    assert ledger.admit("b")
    assert ledger.admit("a")
    assert len(ledger.leases) == 2


def test_leaving_without_having_been_admitted_changes_nothing() -> None:
    """A release is valid in every state."""
    ledger = Book(1, 0)
    ledger.admit("a")
    ledger.leave("stranger")
    assert list(ledger.leases) == ["a"]


def test_leaving_says_whether_there_was_a_lease() -> None:
    """Who gives back what the ledger does not have is looked for elsewhere, under the lock."""
    ledger = Book()
    ledger.admit("a")
    assert ledger.leave("a")
    assert not ledger.leave("a")


# --------------------------------------------------------------------------------------------------- permits


def test_permits_are_given_at_once_up_to_the_limit() -> None:
    """And the next one has to queue."""
    ledger = Book(2)
    assert ledger.request("a")
    assert ledger.request("b")
    assert not ledger.request("c")
    assert list(ledger.held) == ["a", "b"]


def test_a_freed_permit_passes_to_the_oldest_ticket() -> None:
    """First come, first served; one permit, one grant."""
    ledger = Book(1)
    ledger.request("a")
    ledger.queue_up("b", "c")
    ledger.withdraw("a")
    assert ledger.granted() == ["b"]
    assert (list(ledger.held), list(ledger.waiting)) == (["b"], ["c"])


def test_a_newcomer_does_not_overtake_a_ticket_that_waits() -> None:
    """No barging: with a permit free and somebody waiting, the newcomer queues."""
    ledger = Book(1)
    ledger.request("a")
    ledger.queue_up("b")
    ledger.withdraw("a")
    assert not ledger.request("newcomer")
    assert ledger.granted() == ["b"]


def test_all_that_is_free_is_granted() -> None:
    """A grant looks at the level, not at how many releases there were."""
    ledger = Book(2, 3)
    ledger.request("a")
    ledger.request("b")
    ledger.queue_up("c", "d", "e")
    ledger.withdraw("a")
    ledger.withdraw("b")
    assert ledger.granted() == ["c", "d"]


def test_nothing_is_granted_when_nothing_is_free_or_nobody_waits() -> None:
    """And asking changes nothing."""
    ledger = Book(1)
    assert ledger.granted() == []
    ledger.request("a")
    ledger.queue_up("b")
    assert ledger.granted() == []
    assert (list(ledger.held), list(ledger.waiting)) == (["a"], ["b"])


@pytest.mark.parametrize("leaver", ["b", "c", "d"])
def test_a_ticket_leaves_from_anywhere_in_the_queue(leaver: str) -> None:
    """The others keep their order."""
    ledger = Book(1, 3)
    ledger.request("a")
    ledger.queue_up("b", "c", "d")
    ledger.withdraw(leaver)
    ledger.withdraw("a")
    assert ledger.granted() == ["b" if leaver != "b" else "c"]
    assert list(ledger.waiting) == [ticket for ticket in "bcd" if ticket not in (leaver, next(iter(ledger.held)))]


def test_withdrawing_twice_frees_one_permit() -> None:
    """Releasing what somebody else holds by now is not possible."""
    ledger = Book(1)
    ledger.request("a")
    ledger.queue_up("b", "c")
    ledger.withdraw("a")
    assert ledger.granted() == ["b"]
    ledger.withdraw("a")
    assert ledger.granted() == []
    assert list(ledger.held) == ["b"]


def test_enqueuing_again_keeps_the_place() -> None:
    """An interrupted enqueue can be run again."""
    ledger = Book(1)
    ledger.request("a")
    ledger.queue_up("b", "c")
    ledger.enqueue("b", "another wake")
    assert list(ledger.waiting.items()) == [("b", "another wake"), ("c", "wake c")]


def test_enqueuing_says_whether_there_is_something_to_grant() -> None:
    """A permit may have been given back since the request; as a rule there is none, and nobody needs to look."""
    ledger = Book(1)
    ledger.request("a")
    assert not ledger.enqueue("b", "wake b")
    ledger.give_back("a")
    assert ledger.enqueue("c", "wake c")


def test_requesting_again_what_has_been_granted_takes_no_second_permit() -> None:
    """An interrupted request can be run again, also when nothing is free and somebody waits."""
    ledger = Book(2)
    assert ledger.request("a")
    assert ledger.request("a")
    assert ledger.request("b")
    ledger.queue_up("c")
    assert ledger.request("a")
    assert len(ledger.held) == 2


# -------------------------------------------------------------------------------------- interrupted half-way


def test_an_interrupted_grant_is_finished_by_the_next_one() -> None:
    """Granted but still queued: the same ticket comes again, and uses the permit that it has."""
    ledger = Book(1)
    ledger.request("a")
    ledger.queue_up("b", "c")
    ledger.withdraw("a")
    ledger.be_interrupted(ledger.grant)
    ledger.be_interrupted(ledger.grant)
    assert (list(ledger.held), list(ledger.waiting)) == (["b"], ["b", "c"])
    assert ledger.granted() == ["b"]
    assert (list(ledger.held), list(ledger.waiting)) == (["b"], ["c"])
    assert ledger.granted() == []


def test_the_ticket_behind_a_half_granted_one_is_granted_as_well() -> None:
    """If there is a permit for it: finishing what was left off takes none."""
    ledger = Book(2)
    ledger.request("a")
    ledger.request("b")
    ledger.queue_up("c", "d")
    ledger.give_back("a")
    ledger.be_interrupted(ledger.grant)
    ledger.give_back("b")
    assert ledger.granted() == ["c", "d"]
    assert (list(ledger.held), list(ledger.waiting)) == (["c", "d"], [])


def test_withdrawing_in_the_middle_of_a_grant_takes_both_away() -> None:
    """The ticket is told, and the permit goes on to the next one."""
    ledger = Book(1)
    ledger.request("a")
    ledger.queue_up("b", "c")
    ledger.withdraw("a")
    ledger.be_interrupted(ledger.grant)
    ledger.withdraw("b")
    assert ledger.told == ["b"]
    assert ledger.granted() == ["c"]


def test_what_is_given_back_with_the_grant_goes_to_the_oldest() -> None:
    """And to nobody else; whether it was taken out before or not."""
    ledger = Book(1)
    ledger.request("a")
    ledger.queue_up("b", "c")
    assert ledger.granted("a") == ["b"]
    assert (list(ledger.held), list(ledger.waiting)) == (["b"], ["c"])


def test_a_half_granted_ticket_that_gives_back_is_told_and_gets_no_permit() -> None:
    """The grant was left off before its thread was woken; the permit is the next one's."""
    ledger = Book(1)
    ledger.request("a")
    ledger.queue_up("b", "c")
    ledger.give_back("a")
    ledger.be_interrupted(ledger.grant)
    assert ledger.granted("b") == ["b", "c"]
    assert (list(ledger.held), list(ledger.waiting)) == (["c"], [])


def test_what_was_given_back_before_is_no_error() -> None:
    """By another thread, or by the same one before it was interrupted."""
    ledger = Book(1)
    ledger.request("a")
    ledger.queue_up("b", "c")
    ledger.give_back("a")
    ledger.give_back("a")
    assert ledger.granted("a") == ["b"]


def test_what_is_given_back_to_an_empty_queue_is_free() -> None:
    """Whoever waited has left before the lock was had."""
    ledger = Book(1)
    ledger.request("a")
    assert ledger.granted("a") == []
    assert not ledger.held


def test_leaving_the_queue_leaves_a_permit_where_it_is() -> None:
    """A granted ticket that finds itself still queued takes itself out; twice is no error."""
    ledger = Book(1)
    ledger.request("a")
    ledger.queue_up("b")
    ledger.give_back("a")
    ledger.be_interrupted(ledger.grant)
    ledger.dequeue("b")
    ledger.dequeue("b")
    assert (list(ledger.held), list(ledger.waiting)) == (["b"], [])
    assert ledger.told == []


# -------------------------------------------------------------------------------------- withdrawal and cancel


def test_a_withdrawal_takes_everything() -> None:
    """The lease as well as the permit; nobody waits, so nobody is told."""
    ledger = Book(1)
    ledger.admit("a")
    ledger.request("a")
    ledger.withdraw("a")
    assert (len(ledger.leases), len(ledger.held), ledger.told) == (0, 0, [])


def test_a_ticket_that_is_withdrawn_while_it_waits_is_told() -> None:
    """Before it leaves: left off in between, it is still there, and is told by the next try."""
    ledger = Book(1)
    ledger.request("a")
    ledger.queue_up("b")
    ledger.be_interrupted(ledger.withdraw, "b")
    assert list(ledger.waiting) == ["b"]
    ledger.withdraw("b")
    ledger.withdraw("b")
    assert ledger.told == ["b"]
    assert (list(ledger.held), list(ledger.waiting)) == (["a"], [])


def test_a_waiting_ticket_can_be_cancelled() -> None:
    """It is told and leaves, once; left off before that, it still waits."""
    ledger = Book(1)
    ledger.request("a")
    ledger.queue_up("b", "c")
    ledger.be_interrupted(ledger.cancel, "c")
    assert list(ledger.waiting) == ["b", "c"]
    ledger.cancel("c")
    ledger.cancel("c")
    assert ledger.told == ["c"]
    assert list(ledger.waiting) == ["b"]


def test_a_granted_ticket_cannot_be_cancelled_any_more() -> None:
    """Also while it still stands in the queue: the grant came first."""
    ledger = Book(1)
    ledger.request("a")
    ledger.cancel("a")
    ledger.queue_up("b")
    ledger.withdraw("a")
    ledger.be_interrupted(ledger.grant)
    ledger.cancel("b")
    assert ledger.told == []
    assert (list(ledger.held), list(ledger.waiting)) == (["b"], ["b"])


def test_a_stranger_cannot_be_cancelled() -> None:
    """A cancel that comes after everything is over finds nothing."""
    ledger = Book()
    ledger.cancel("x")
    assert ledger.told == []
