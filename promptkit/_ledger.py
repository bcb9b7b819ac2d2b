"""Who may run and who waits, for one backend: the decisions, without threads, time or I/O.

Guarantees
    * At most ``concurrency_limit + queue_capacity`` leases, at most ``concurrency_limit`` permits.
    * First come, first served: a permit that is free goes to the oldest waiting ticket, and a newcomer gets one at
      once only when nobody waits.
    * A ticket leaves from anywhere in the queue, and a permit is granted, at a cost that does not depend on how many
      wait.

How it stays right when an exception is raised into a thread between any two instructions: a lease, a permit and a
place in the queue *are* the membership of a container. Nothing is counted beside them. Every change is one call of
one container, and every operation can be run again from the start, by anybody, after having been left half done.
Whoever must hear of it is notified in the middle: after the decision, and before the last trace of it is gone.

Rules for changing this file: no counters; one container call a change; nothing that only a local variable knows
between taking an entry out of one container and putting it into another (look, commit, notify, then take out).

Not locked: the caller holds its pool's lock, except where an operation says that it needs none. Tickets and leases are
opaque, compared by identity.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import attrs

from promptkit._fields import describe, is_integer
from promptkit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

_ABSENT: Final = object()

_TicketT = TypeVar("_TicketT")
_WakeT = TypeVar("_WakeT")


def _check_count(minimum: int) -> Any:
    """Return a validator for a whole number of at least ``minimum``."""

    def validate(_policy: CapacityPolicy, attribute: attrs.Attribute[Any], value: object) -> None:
        if not is_integer(value):
            raise ConfigError(f"{attribute.name} must be a whole number, at least {minimum}, not {describe(value)}")
        if value < minimum:  # type: ignore[operator]  # is_integer says that it is an int
            raise ConfigError(f"{attribute.name} must be at least {minimum}, not {value}")

    return validate


@attrs.frozen
class CapacityPolicy:
    """What one backend takes: attempts in flight (at least 1), and runs admitted beyond those (0 for none).

    Wrong numbers raise `ConfigError`; so does a sum above ``sys.maxsize``.
    """

    concurrency_limit: int = attrs.field(validator=_check_count(1))
    queue_capacity: int = attrs.field(validator=_check_count(0))

    def __attrs_post_init__(self) -> None:
        if self.admission_limit > sys.maxsize:
            raise ConfigError(
                f"concurrency_limit plus queue_capacity must be at most {sys.maxsize} (sys.maxsize), "
                f"not {self.admission_limit}"
            )

    @property
    def admission_limit(self) -> int:
        """How many runs may be admitted at once."""
        return self.concurrency_limit + self.queue_capacity


class Ledger(Generic[_TicketT, _WakeT]):
    """The leases, permits and queue of one backend.

    ``leases`` and ``held`` are dicts used as ordered sets. ``waiting`` maps each queued ticket to what wakes it, the
    oldest first (an `OrderedDict`, whose oldest entry is found at constant cost; a plain dict's is not).

    ``notify`` is called with what wakes a ticket when that has been granted, cancelled or withdrawn: after the
    decision, and before the ticket leaves the queue. So whoever does it again, because it was left off in between,
    finds the ticket there and calls again; once too often must do no harm.
    """

    __slots__ = ("_notify", "admission_limit", "concurrency_limit", "held", "leases", "waiting")

    def __init__(self, policy: CapacityPolicy, notify: Callable[[_WakeT], object]) -> None:
        self.admission_limit = policy.admission_limit
        self.concurrency_limit = policy.concurrency_limit
        self.leases: dict[_TicketT, object] = {}
        self.held: dict[_TicketT, object] = {}
        self.waiting: OrderedDict[_TicketT, _WakeT] = OrderedDict()
        self._notify = notify

    # ------------------------------------------------------------------------------------------- admission

    def admit(self, lease: _TicketT) -> bool:
        """Admit ``lease`` if there is room for it, or if it has been; False means that the backend is full."""
        leases = self.leases
        if len(leases) >= self.admission_limit and lease not in leases:
            return False
        leases[lease] = None
        return True

    def leave(self, lease: _TicketT) -> bool:
        """Give the lease back; False if it is none. Needs no lock."""
        return self.leases.pop(lease, _ABSENT) is not _ABSENT

    # --------------------------------------------------------------------------------------------- permits

    def request(self, ticket: _TicketT) -> bool:
        """Give ``ticket`` a permit if one is free and nobody waits, or if it has one; False means: `enqueue` it."""
        held = self.held
        if len(held) < self.concurrency_limit and not self.waiting:
            held[ticket] = None
            return True
        return ticket in held

    def enqueue(self, ticket: _TicketT, wake: _WakeT) -> bool:
        """Put ``ticket`` at the end of the queue; one that is in it keeps its place. True means: call `grant`."""
        self.waiting[ticket] = wake
        return len(self.held) < self.concurrency_limit

    def grant(self, given_back: _TicketT | None = None) -> None:
        """Give every free permit to the oldest ticket, which is notified and leaves the queue.

        Left off anywhere, the next call does the rest: a ticket that has its permit and still stands in the queue is
        the oldest, and is notified again.

        ``given_back`` is a ticket whose permit is taken back first, if it has one. If it is itself the oldest, after a
        grant that was left off, it is notified and leaves without a permit.
        """
        held, waiting = self.held, self.waiting
        held.pop(given_back, None)  # type: ignore[arg-type]  # None is no ticket, and has no permit
        while waiting:
            ticket = next(iter(waiting))
            if ticket is not given_back and ticket not in held:
                if len(held) >= self.concurrency_limit:
                    return
                held[ticket] = None
            self._notify(waiting[ticket])
            del waiting[ticket]
            # Without a look at the next ticket: it may be far away in memory, and only the oldest can be half granted.
            if len(held) >= self.concurrency_limit:
                return

    def dequeue(self, ticket: _TicketT) -> None:
        """Take ``ticket`` out of the queue, if it is in it; a permit that it owns stays its own."""
        self.waiting.pop(ticket, None)

    def give_back(self, ticket: _TicketT) -> None:
        """Take the permit of ``ticket`` back, if it has one. If anybody waits, `grant` must follow.

        Needs no lock: it only makes room. Who enqueues looks for room *after* that, and who gives back looks at the
        queue *after* that, so that one of the two sees the other.
        """
        self.held.pop(ticket, None)

    def cancel(self, ticket: _TicketT) -> None:
        """If ``ticket`` waits and has not been granted, the cancel wins: notify it, and take it out of the queue."""
        if ticket in self.held:
            return
        wake = self.waiting.get(ticket)
        if wake is not None:
            self._notify(wake)
            del self.waiting[ticket]

    def withdraw(self, ticket: _TicketT) -> None:
        """Take back everything that ``ticket`` has, and notify it if it waits. Call `grant` afterwards."""
        wake = self.waiting.get(ticket)
        if wake is not None:
            self._notify(wake)
        self.leases.pop(ticket, None)
        self.waiting.pop(ticket, None)
        self.held.pop(ticket, None)
