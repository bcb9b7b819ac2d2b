"""The ledger: limits, order, withdrawal, and starting again after an interruption."""

import sys

import attrs
import pytest

from promptkit._ledger import CapacityPolicy, Ledger, _check_count
from promptkit.errors import ConfigError


def make_ledger(limit: int = 1, queue: int = 2) -> Ledger[str, str]:
    """Return a ledger whose tickets are letters."""
    return Ledger(CapacityPolicy(limit, queue))


def queue_up(ledger: Ledger[str, str], *tickets: str) -> None:
    """Ask for a permit for each of ``tickets``; none is free."""
    for ticket in tickets:
        assert not ledger.request(ticket)
        ledger.enqueue(ticket, f"wake {ticket}")


def drain(ledger: Ledger[str, str]) -> list[str]:
    """Grant all that can be granted, as the pool does; return the tickets in the order of their grants."""
    granted = []
    while (ticket := ledger.grant()) is not None:
        granted.append(ticket)
        ledger.dequeue(ticket)
    return granted


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
    ledger = make_ledger(2, 3)
    assert [ledger.admit(lease) for lease in "abcde"] == [True] * 5
    assert not ledger.admit("f")
    assert list(ledger.leases) == list("abcde")


def test_a_lease_given_back_makes_room_for_one() -> None:
    """Exactly one: giving it back again changes nothing."""
    ledger = make_ledger(1, 0)
    assert ledger.admit("a")
    ledger.leave("a")
    ledger.leave("a")
    assert ledger.admit("b")
    assert not ledger.admit("c")


def test_admitting_again_what_has_been_admitted_takes_no_second_place() -> None:
    """An interrupted admission can be run again, also when the backend is full."""
    ledger = make_ledger(1, 1)
    assert ledger.admit("a")
    assert ledger.admit("a")
    assert ledger.admit("b")
    assert ledger.admit("a")
    assert len(ledger.leases) == 2


def test_leaving_without_having_been_admitted_changes_nothing() -> None:
    """A release is valid in every state."""
    ledger = make_ledger(1, 0)
    ledger.admit("a")
    ledger.leave("stranger")
    assert list(ledger.leases) == ["a"]


def test_leaving_says_whether_there_was_a_lease() -> None:
    """Who gives back what the ledger does not have is looked for elsewhere, under the lock."""
    ledger = make_ledger()
    ledger.admit("a")
    assert ledger.leave("a")
    assert not ledger.leave("a")


# --------------------------------------------------------------------------------------------------- permits


def test_permits_are_given_at_once_up_to_the_limit() -> None:
    """And the next one has to queue."""
    ledger = make_ledger(2)
    assert ledger.request("a")
    assert ledger.request("b")
    assert not ledger.request("c")
    assert list(ledger.held) == ["a", "b"]


def test_a_freed_permit_passes_to_the_oldest_ticket() -> None:
    """First come, first served; one permit, one grant."""
    ledger = make_ledger(1)
    ledger.request("a")
    queue_up(ledger, "b", "c")
    ledger.withdraw("a")
    assert drain(ledger) == ["b"]
    assert (list(ledger.held), list(ledger.waiting)) == (["b"], ["c"])


def test_a_newcomer_does_not_overtake_a_ticket_that_waits() -> None:
    """No barging: with a permit free and somebody waiting, the newcomer queues."""
    ledger = make_ledger(1)
    ledger.request("a")
    queue_up(ledger, "b")
    ledger.withdraw("a")
    assert not ledger.request("newcomer")
    assert drain(ledger) == ["b"]


def test_all_that_is_free_is_granted() -> None:
    """The pump looks at the level, not at how many releases there were."""
    ledger = make_ledger(2, 3)
    ledger.request("a")
    ledger.request("b")
    queue_up(ledger, "c", "d", "e")
    ledger.withdraw("a")
    ledger.withdraw("b")
    assert drain(ledger) == ["c", "d"]


def test_nothing_is_granted_when_nothing_is_free_or_nobody_waits() -> None:
    """And asking changes nothing."""
    ledger = make_ledger(1)
    assert ledger.grant() is None
    ledger.request("a")
    queue_up(ledger, "b")
    assert ledger.grant() is None
    assert (list(ledger.held), list(ledger.waiting)) == (["a"], ["b"])


@pytest.mark.parametrize("leaver", ["b", "c", "d"])
def test_a_ticket_leaves_from_anywhere_in_the_queue(leaver: str) -> None:
    """The others keep their order."""
    ledger = make_ledger(1, 3)
    ledger.request("a")
    queue_up(ledger, "b", "c", "d")
    ledger.withdraw(leaver)
    ledger.withdraw("a")
    assert drain(ledger) == ["b" if leaver != "b" else "c"]
    assert list(ledger.waiting) == [ticket for ticket in "bcd" if ticket not in (leaver, next(iter(ledger.held)))]


def test_withdrawing_twice_frees_one_permit() -> None:
    """Releasing what somebody else holds by now is not possible."""
    ledger = make_ledger(1)
    ledger.request("a")
    queue_up(ledger, "b", "c")
    ledger.withdraw("a")
    assert drain(ledger) == ["b"]
    ledger.withdraw("a")
    assert drain(ledger) == []
    assert list(ledger.held) == ["b"]


def test_enqueuing_again_keeps_the_place() -> None:
    """An interrupted enqueue can be run again."""
    ledger = make_ledger(1)
    ledger.request("a")
    queue_up(ledger, "b", "c")
    ledger.enqueue("b", "another wake")
    assert list(ledger.waiting.items()) == [("b", "another wake"), ("c", "wake c")]


def test_enqueuing_says_whether_there_is_something_to_grant() -> None:
    """A permit may have been given back since the request; as a rule there is none, and nobody needs to look."""
    ledger = make_ledger(1)
    ledger.request("a")
    assert not ledger.enqueue("b", "wake b")
    ledger.give_back("a")
    assert ledger.enqueue("c", "wake c")


def test_requesting_again_what_has_been_granted_takes_no_second_permit() -> None:
    """An interrupted request can be run again, also when nothing is free and somebody waits."""
    ledger = make_ledger(2)
    assert ledger.request("a")
    assert ledger.request("a")
    assert ledger.request("b")
    queue_up(ledger, "c")
    assert ledger.request("a")
    assert len(ledger.held) == 2


# -------------------------------------------------------------------------------------- interrupted half-way


def test_an_interrupted_grant_is_finished_by_the_next_one() -> None:
    """Granted but still queued: the same ticket comes again, and uses the permit that it has."""
    ledger = make_ledger(1)
    ledger.request("a")
    queue_up(ledger, "b", "c")
    ledger.withdraw("a")
    assert ledger.grant() == "b"
    assert ledger.grant() == "b"
    assert (list(ledger.held), list(ledger.waiting)) == (["b"], ["b", "c"])
    ledger.dequeue("b")
    ledger.dequeue("b")
    assert ledger.grant() is None
    assert list(ledger.held) == ["b"]


def test_withdrawing_in_the_middle_of_a_grant_takes_both_away() -> None:
    """The permit goes on to the next ticket."""
    ledger = make_ledger(1)
    ledger.request("a")
    queue_up(ledger, "b", "c")
    ledger.withdraw("a")
    assert ledger.grant() == "b"
    ledger.withdraw("b")
    assert drain(ledger) == ["c"]


def test_what_is_given_back_with_the_grant_goes_to_the_oldest() -> None:
    """Whether it was taken out before or not; the others stay where they are."""
    ledger = make_ledger(1)
    ledger.request("a")
    queue_up(ledger, "b", "c")
    assert ledger.grant("a") == "b"
    assert list(ledger.held) == ["b"]
    assert list(ledger.waiting) == ["b", "c"]


def test_a_half_granted_ticket_that_gives_back_is_told_and_gets_no_permit() -> None:
    """The grant was left off before its thread was woken; the permit is the next one's."""
    ledger = make_ledger(1)
    ledger.request("a")
    queue_up(ledger, "b", "c")
    ledger.give_back("a")
    assert ledger.grant() == "b"
    assert ledger.grant("b") == "b"
    assert not ledger.held
    assert ledger.dequeue("b")
    assert ledger.grant() == "c"


def test_what_was_given_back_before_is_no_error() -> None:
    """By another thread, or by the same one before it was interrupted."""
    ledger = make_ledger(1)
    ledger.request("a")
    queue_up(ledger, "b", "c")
    ledger.give_back("a")
    ledger.give_back("a")
    assert ledger.grant("a") == "b"


def test_what_is_given_back_to_an_empty_queue_is_free() -> None:
    """Whoever waited has left before the lock was had."""
    ledger = make_ledger(1)
    ledger.request("a")
    assert ledger.grant("a") is None
    assert not ledger.held


def test_leaving_the_queue_says_whether_a_permit_is_free() -> None:
    """So that who grants knows when to stop."""
    ledger = make_ledger(1)
    ledger.request("a")
    queue_up(ledger, "b", "c")
    assert not ledger.dequeue("c")
    ledger.give_back("a")
    assert ledger.dequeue("b")


# ------------------------------------------------------------------------------------------ grant or cancel


def test_a_waiting_ticket_can_be_cancelled() -> None:
    """What wakes it comes back."""
    ledger = make_ledger(1)
    ledger.request("a")
    queue_up(ledger, "b")
    assert ledger.cancellable("b") == "wake b"


def test_a_granted_ticket_cannot_be_cancelled_any_more() -> None:
    """Also while it still stands in the queue: the grant came first."""
    ledger = make_ledger(1)
    ledger.request("a")
    assert ledger.cancellable("a") is None
    queue_up(ledger, "b")
    ledger.withdraw("a")
    ledger.grant()
    assert "b" in ledger.waiting
    assert ledger.cancellable("b") is None


def test_a_stranger_cannot_be_cancelled() -> None:
    """A cancel that comes after everything is over finds nothing."""
    assert make_ledger().cancellable("x") is None
