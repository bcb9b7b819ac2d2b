"""Pools: admission, permits in order, grant or cancel, deadlines, releases, and what they keep alive."""

import gc
import signal
import sys
import threading
import weakref
from collections import deque
from typing import Any

import pytest

from promptkit import _capacity, _pool
from promptkit._cancel import CancelToken
from promptkit._capacity import Held, Lease, Manager, Permit, PoolStats
from promptkit._ledger import CapacityPolicy, Ledger
from promptkit._wake import Wake
from promptkit.errors import (
    CapacityExceededError,
    ConfigError,
    DeadlineExceededError,
    QueueTimeoutError,
    RunCancelledError,
)
from support.clock import FakeClock
from support.threads import Worker, rescued

REENTERED = "^a signal handler or finaliser asked for capacity while it interrupted the same pool$"


class Bench:
    """A manager with one limited backend, ``b``, on a fake clock, and what the tests do with it."""

    def __init__(self, limit: int = 1, queue: int = 10) -> None:
        self.clock = FakeClock()
        self.manager = Manager({"b": CapacityPolicy(limit, queue)}, clock=self.clock)
        self.token = CancelToken(clock=self.clock)
        self.order: list[str] = []

    @property
    def stats(self) -> PoolStats:
        """Leases, permits, tickets in the queue."""
        stats = self.manager.stats("b")
        assert stats is not None
        return stats

    def acquire(self, token: CancelToken | None = None) -> Permit:
        """Acquire in this thread."""
        permit = self.manager.permit("b")
        permit.acquire(token or self.token)
        return permit

    def queue(self, name: str = "waiter", token: CancelToken | None = None, **kwargs: Any) -> Worker:
        """Start a thread that acquires, notes its turn and releases; return when it stands in the queue."""

        def run() -> Permit:
            permit = self.manager.permit("b")
            try:
                permit.acquire(token or self.token, **kwargs)
                self.order.append(name)
            finally:
                permit.release()
            return permit

        waiting = self.stats.waiting
        worker = Worker(run)
        self.clock.wait_for_sleepers(waiting + 1)
        return worker

    def assert_empty(self) -> None:
        """Everything has come back, and nothing is left in the token or in the log."""
        assert self.stats == (0, 0, 0)
        assert not self.token._watchers
        assert not self.manager._pools["b"].intents


# --------------------------------------------------------------------------------------------- construction


def test_a_blank_backend_id_is_refused() -> None:
    """It would never be found again."""
    for backend_id in ("", "  ", "\t\n"):
        with pytest.raises(ConfigError, match=r"^a backend id must not be blank$"):
            Manager({backend_id: CapacityPolicy(1, 0)})


def test_a_backend_id_that_is_no_string_is_refused() -> None:
    """By kind."""
    with pytest.raises(ConfigError, match="a backend id must be a string, not an integer"):
        Manager({7: CapacityPolicy(1, 0)})  # type: ignore[dict-item]


def test_a_capacity_that_is_no_policy_is_refused() -> None:
    """The numbers are checked by CapacityPolicy, so they must have come through it."""
    with pytest.raises(ConfigError, match="the capacity of backend 'b' must be a CapacityPolicy, not an integer"):
        Manager({"b": 4})  # type: ignore[dict-item]


def test_a_manager_does_not_change_with_its_makers_mapping() -> None:
    """And its own mapping cannot be changed."""
    policies = {"b": CapacityPolicy(1, 0)}
    manager = Manager(policies)
    policies["c"] = CapacityPolicy(1, 0)
    del policies["b"]
    assert manager.stats("b") == (0, 0, 0)
    assert manager.stats("c") is None
    with pytest.raises(TypeError):
        manager._pools["c"] = manager._pools["b"]  # type: ignore[index]


def test_importing_creates_no_lock() -> None:
    """A host may patch threading after the import: locks are made when a manager is."""
    for module in (_capacity, _pool):
        names = [name for name, value in vars(module).items() if type(value).__name__ in ("lock", "RLock", "Condition")]
        assert not names


# ------------------------------------------------------------------------------------------------ unlimited


@pytest.mark.parametrize("backend_id", [None, "another"])
def test_unlimited_backends_share_one_lease_and_one_permit(backend_id: str | None) -> None:
    """Nothing is made for a call, nothing is counted, and any number of them are given out."""
    bench = Bench()
    leases = {id(bench.manager.admit(backend_id, bench.token)) for _ in range(100)}
    permits = {id(bench.manager.acquire(backend_id, bench.token)) for _ in range(100)}
    assert len(leases) == len(permits) == 1
    assert bench.manager.stats(backend_id) is None
    bench.assert_empty()


def test_unlimited_calls_look_at_the_token() -> None:
    """A run that is over takes nothing, limited or not."""
    manager = Manager({})
    token = CancelToken()
    token.cancel("stop")
    with pytest.raises(RunCancelledError, match="the run was cancelled while asking for admission: stop"):
        manager.admit(None, token)
    with pytest.raises(RunCancelledError, match="the run was cancelled while waiting for a permit: stop"):
        manager.acquire("x", token)


def test_unlimited_claims_are_released_as_often_as_one_likes() -> None:
    """They stay usable, being everybody's."""
    manager = Manager({})
    token = CancelToken()
    lease, permit = manager.admit(None, token), manager.acquire(None, token)
    for claim in (lease, permit):
        claim.release()
        claim.release()
        assert claim.backend_id is None
    with manager.admit(None, token) as again:
        assert again is lease
    with manager.acquire(None, token) as again_permit:
        assert again_permit is permit
    permit.acquire(token, queue_deadline=0.0)


def test_an_unlimited_call_allocates_nothing_that_stays() -> None:
    """And takes no lock: there is none."""
    manager = Manager({})
    token = CancelToken()

    def use() -> None:
        manager.lease(None).admit(token)
        manager.permit(None).acquire(token)

    use()
    before = sys.getallocatedblocks()
    for _ in range(1000):
        use()
    assert sys.getallocatedblocks() - before < 50


# ------------------------------------------------------------------------------------------------ admission


def test_c20_admission_is_refused_beyond_limit_and_queue() -> None:
    """Two run, three wait, the sixth caller is told so at once, with the numbers."""
    bench = Bench(2, 3)
    leases = [bench.manager.admit("b", bench.token) for _ in range(5)]
    with pytest.raises(CapacityExceededError) as caught:
        bench.manager.admit("b", bench.token)
    assert (caught.value.backend_id, caught.value.concurrency_limit, caught.value.queue_capacity) == ("b", 2, 3)
    assert "backend 'b' is full: 2 running, 3 waiting" in str(caught.value)
    assert bench.stats.admitted == 5
    leases.pop().release()
    leases.append(bench.manager.admit("b", bench.token))
    for lease in leases:
        lease.release()
    bench.assert_empty()


def test_a_queue_of_zero_admits_only_what_may_run() -> None:
    """An explicit zero is a number, not "no limit"."""
    bench = Bench(1, 0)
    with bench.manager.admit("b", bench.token), pytest.raises(CapacityExceededError):
        bench.manager.admit("b", bench.token)
    bench.assert_empty()


def test_a_cancelled_token_is_not_admitted() -> None:
    """It says so before it says that the backend is full."""
    bench = Bench(1, 0)
    with bench.manager.admit("b", bench.token):
        token = CancelToken()
        token.cancel("stop")
        with pytest.raises(RunCancelledError, match="cancelled while asking backend 'b' for admission: stop"):
            bench.manager.admit("b", token)
        assert bench.stats.admitted == 1


def test_an_expired_token_is_not_admitted() -> None:
    """With the seconds that had been allowed."""
    bench = Bench()
    token = CancelToken(timeout=5, clock=bench.clock)
    bench.clock.advance(5)
    with pytest.raises(DeadlineExceededError, match="time of 5 s was up while asking backend 'b' for admission"):
        bench.manager.admit("b", token)
    bench.assert_empty()


def test_a_refused_lease_holds_nothing_and_cannot_be_tried_again() -> None:
    """Its release is as harmless as any."""
    bench = Bench(1, 0)
    first = bench.manager.admit("b", bench.token)
    lease = bench.manager.lease("b")
    with pytest.raises(CapacityExceededError):
        lease.admit(bench.token)
    first.release()
    lease.release()
    with pytest.raises(RuntimeError, match="used once"):
        lease.admit(bench.token)
    bench.assert_empty()


def test_leases_and_permits_are_counted_apart() -> None:
    """A run that waits to retry holds a lease and no permit."""
    bench = Bench(1, 1)
    lease = bench.manager.admit("b", bench.token)
    permit = bench.acquire()
    assert bench.stats == (1, 1, 0)
    permit.release()
    assert bench.stats == (1, 0, 0)
    lease.release()
    bench.assert_empty()


def test_two_backends_share_nothing() -> None:
    """A full one does not hold up the other."""
    clock = FakeClock()
    manager = Manager({"a": CapacityPolicy(1, 0), "b": CapacityPolicy(1, 0)}, clock=clock)
    token = CancelToken(clock=clock)
    with manager.admit("a", token), manager.acquire("a", token):
        with manager.admit("b", token), manager.acquire("b", token):
            assert manager.stats("a") == manager.stats("b") == (1, 1, 0)
        assert manager.stats("b") == (0, 0, 0)


def test_c35_two_managers_share_nothing() -> None:
    """Capacity is per engine: the same backend in two engines has twice the permits."""
    first, second = Bench(1, 0), Bench(1, 0)
    with first.acquire(), second.acquire():
        assert first.stats == second.stats == (0, 1, 0)


# ------------------------------------------------------------------------------------------ permits in order


def test_permits_up_to_the_limit_are_given_at_once() -> None:
    """Without waiting on the clock."""
    bench = Bench(3)
    permits = [bench.acquire() for _ in range(3)]
    assert bench.stats == (0, 3, 0)
    assert {permit.backend_id for permit in permits} == {"b"}
    for permit in permits:
        permit.release()
    bench.assert_empty()


def test_permits_are_granted_in_the_order_of_asking() -> None:
    """Fifty threads in a queue, one permit."""
    bench = Bench(1, 50)
    held = bench.acquire()
    names = [f"waiter {number}" for number in range(50)]
    workers = [bench.queue(name) for name in names]
    assert bench.stats == (0, 1, 50)
    held.release()
    for worker in workers:
        worker.result()
    assert bench.order == names
    bench.assert_empty()


def test_a_freed_permit_is_the_oldest_tickets_before_anybody_else_can_have_it() -> None:
    """A newcomer that asks after the release, and before the woken thread has run, queues behind it."""
    bench = Bench(1)
    held = bench.acquire()
    worker = bench.queue("first")
    pool = bench.manager._pools["b"]
    newcomer = bench.manager.permit("b")
    with pool.lock:  # the woken thread cannot run on
        pool.ledger.withdraw(held)
        pool.ledger.grant()
        assert not pool.ledger.request(newcomer)
    worker.result()
    assert bench.order == ["first"]
    held.release()
    bench.assert_empty()


def test_one_release_wakes_one_thread() -> None:
    """The one whose turn it is; then the next one."""
    bench = Bench(1)
    pool = bench.manager._pools["b"]
    ledger = pool.ledger = PoolLedger(pool.policy)
    held = bench.acquire()
    workers = [bench.queue(f"{number}") for number in range(5)]
    wakes = list(ledger.waiting.values())
    with pool.lock:  # the woken thread cannot run on
        ledger.grant(held)
        assert ledger.told == wakes[:1]
    held.release()
    for worker in workers:
        worker.result()
    assert ledger.told == wakes
    bench.assert_empty()


def test_all_freed_permits_are_passed_on() -> None:
    """Two releases, two grants."""
    bench = Bench(2)
    held = [bench.acquire(), bench.acquire()]
    workers = [bench.queue("a"), bench.queue("b"), bench.queue("c")]
    for permit in held:
        permit.release()
    for worker in workers:
        worker.result()
    assert sorted(bench.order) == ["a", "b", "c"]
    bench.assert_empty()


# -------------------------------------------------------------------------------------------- grant or cancel


def test_c21_a_cancelled_ticket_leaves_the_queue_at_once() -> None:
    """From the middle; the others keep their order and nothing is sent for it."""
    bench = Bench()
    held = bench.acquire()
    token = CancelToken(clock=bench.clock)
    first, second, third = bench.queue("1"), bench.queue("2", token), bench.queue("3")
    token.cancel("caller gone")
    with pytest.raises(RunCancelledError, match="cancelled while waiting for a permit of backend 'b': caller gone"):
        second.result()
    assert bench.stats.waiting == 2
    held.release()
    first.result()
    third.result()
    assert bench.order == ["1", "3"]
    bench.assert_empty()


def test_the_cancelling_call_itself_frees_the_place() -> None:
    """When cancel has returned, the ticket is gone, whether its thread has run or not."""
    bench = Bench()
    token = CancelToken(clock=bench.clock)
    with bench.acquire():
        worker = bench.queue("x", token)
        token.cancel()
        assert bench.manager._pools["b"].ledger.waiting == {}
        with pytest.raises(RunCancelledError):
            worker.result()
    bench.assert_empty()


def test_a_cancelled_head_does_not_hold_up_the_next() -> None:
    """The free permit goes to whoever is oldest now."""
    bench = Bench()
    held = bench.acquire()
    token = CancelToken(clock=bench.clock)
    head, following = bench.queue("head", token), bench.queue("next")
    token.cancel()
    held.release()
    with pytest.raises(RunCancelledError):
        head.result()
    following.result()
    assert bench.order == ["next"]
    bench.assert_empty()


def test_a_cancel_after_the_grant_gives_the_permit_back() -> None:
    """Granted first: the caller owns it, looks at the token before it returns, and passes it on."""
    bench = Bench()
    held = bench.acquire()
    token = CancelToken(clock=bench.clock)
    chosen, following = bench.queue("chosen", token), bench.queue("next")
    pool = bench.manager._pools["b"]
    with pool.lock:  # the woken thread cannot run before the cancel
        pool.ledger.withdraw(held)
        pool.ledger.grant()
        token.cancel("too late")
    with pytest.raises(RunCancelledError, match="too late"):
        chosen.result()
    following.result()
    assert bench.order == ["next"]
    held.release()
    bench.assert_empty()


@pytest.mark.parametrize("state", ["granted", "queued", "full"])
def test_whatever_acquire_or_admit_raises_nothing_has_been_taken(state: str) -> None:
    """Even before anybody calls release, and with the claim still alive."""
    bench = Bench(1, 0)
    held = bench.acquire() if state == "queued" else None
    leases = [bench.manager.admit("b", bench.token)] if state == "full" else []
    before = bench.stats
    token = CancelToken(clock=bench.clock)
    token.cancel()
    permit, lease = bench.manager.permit("b"), bench.manager.lease("b")
    with pytest.raises(RunCancelledError):
        permit.acquire(token)
    with pytest.raises(CapacityExceededError if state == "full" else RunCancelledError):
        lease.admit(bench.token if state == "full" else token)
    assert bench.stats == before
    for claim in [*leases, *([held] if held else [])]:
        claim.release()
    bench.assert_empty()


def test_an_already_cancelled_token_takes_no_permit_and_no_place() -> None:
    """Whether one is free or not."""
    bench = Bench()
    token = CancelToken(clock=bench.clock)
    token.cancel("before")
    with pytest.raises(RunCancelledError, match="before"):
        bench.acquire(token)
    with bench.acquire(), pytest.raises(RunCancelledError, match="before"):
        bench.acquire(token)
    bench.assert_empty()


def test_a_parents_cancel_reaches_the_queue() -> None:
    """A run's token is a child of the caller's."""
    bench = Bench()
    with bench.acquire():
        worker = bench.queue("x", bench.token.child(timeout=100))
        bench.token.cancel("all")
        with pytest.raises(RunCancelledError, match="all"):
            worker.result()
    bench.assert_empty()


# ------------------------------------------------------------------------------------------------- deadlines


def test_c04_the_deadline_is_charged_for_waiting() -> None:
    """The place in the queue is free at once; the message has the seconds and the backend."""
    bench = Bench()
    held = bench.acquire()
    worker = bench.queue("late", CancelToken(timeout=5, clock=bench.clock))
    bench.clock.advance(4)
    bench.clock.wait_for_sleepers(1)
    assert bench.stats.waiting == 1
    bench.clock.advance(1)
    with pytest.raises(DeadlineExceededError) as caught:
        worker.result()
    assert str(caught.value) == "the run's time of 5 s was up while waiting for a permit of backend 'b'"
    assert caught.value.timeout_s == 5
    assert bench.stats == (0, 1, 0)
    held.release()
    assert bench.order == []
    bench.assert_empty()


def test_a_queue_timeout_is_its_own_error() -> None:
    """With the seconds waited; the token is not over."""
    bench = Bench()
    held = bench.acquire()
    worker = bench.queue("late", queue_deadline=bench.clock.monotonic() + 2)
    bench.clock.advance(2)
    with pytest.raises(QueueTimeoutError) as caught:
        worker.result()
    assert caught.value.waited_s == 2
    assert caught.value.phase == "queue"
    assert str(caught.value) == (
        "the queue timeout passed after 2 s while waiting for a permit of backend 'b'; nothing was sent"
    )
    assert not bench.token.cancelled
    held.release()
    bench.assert_empty()


def test_a_queue_deadline_that_has_passed_does_not_wait() -> None:
    """0 means do not wait: a free permit is taken, a busy backend is left."""
    bench = Bench()
    now = bench.clock.monotonic()
    permit = bench.manager.permit("b")
    permit.acquire(bench.token, queue_deadline=now)
    other = bench.manager.permit("b")
    with pytest.raises(QueueTimeoutError) as caught:
        other.acquire(bench.token, queue_deadline=now)
    assert caught.value.waited_s == 0
    permit.release()
    bench.assert_empty()


def test_the_tokens_deadline_comes_before_a_queue_timeout_at_the_same_moment() -> None:
    """The run is over; that there was no permit either is no news."""
    bench = Bench()
    with bench.acquire():
        token = CancelToken(timeout=2, clock=bench.clock)
        worker = bench.queue("late", token, queue_deadline=bench.clock.monotonic() + 2)
        bench.clock.advance(2)
        with pytest.raises(DeadlineExceededError) as caught:
            worker.result()
        assert not isinstance(caught.value, QueueTimeoutError)
    bench.assert_empty()


def test_a_granted_permit_is_kept_though_the_queue_deadline_passes() -> None:
    """It bounds the waiting, not the attempt."""
    bench = Bench()
    permit = bench.manager.permit("b")
    permit.acquire(bench.token, queue_deadline=bench.clock.monotonic() + 1)
    bench.clock.advance(5)
    assert bench.stats.active == 1
    permit.release()
    bench.assert_empty()


def test_c32_a_jump_of_the_wall_clock_ends_no_wait() -> None:
    """Deadlines are on the monotonic clock."""
    bench = Bench()
    held = bench.acquire()
    worker = bench.queue("x", CancelToken(timeout=30, clock=bench.clock))
    bench.clock.set_wall(bench.clock.wall() - 3600)
    bench.clock.advance(0)
    bench.clock.wait_for_sleepers(1)
    held.release()
    worker.result()
    assert bench.order == ["x"]


def test_a_polled_token_is_asked_at_every_interval_and_outside_the_lock() -> None:
    """A host that can only be asked leaves the queue within one interval."""
    bench = Bench()
    is_gone: list[bool] = []
    owned: list[bool] = []
    pool = bench.manager._pools["b"]

    def poll() -> bool:
        owned.append(pool.is_owned())
        return bool(is_gone)

    with bench.acquire():
        worker = bench.queue("x", CancelToken(poll=poll, poll_interval_s=0.5, clock=bench.clock))
        bench.clock.advance(0.5)
        bench.clock.wait_for_sleepers(1)
        is_gone.append(True)
        bench.clock.advance(0.5)
        with pytest.raises(RunCancelledError, match="poll"):
            worker.result()
    assert owned
    assert not any(owned)
    bench.assert_empty()


class NotingClock(FakeClock):
    """Jumps to the moment that is slept for, and notes the seconds from the start until then."""

    def __init__(self) -> None:
        super().__init__(is_jumping=True)
        self.began = self.monotonic()
        self.slept_until: list[float] = []

    @property
    def seconds(self) -> float:
        """How many have passed."""
        return self.monotonic() - self.began

    def wait(self, condition: threading.Condition, deadline: float | None) -> None:
        """Note, and jump."""
        if deadline is None:
            pytest.fail("a wait has no end")
        self.slept_until.append(deadline - self.began)
        super().wait(condition, deadline)


@pytest.mark.parametrize(
    ("timeout_s", "queue_s", "poll_interval_s", "slept_until", "error"),
    [
        (None, 2, None, [2], QueueTimeoutError),
        (2, None, None, [2], DeadlineExceededError),
        (2, 3, None, [2], DeadlineExceededError),
        (3, 2, None, [2], QueueTimeoutError),
        (None, 1.25, 0.5, [0.5, 1, 1.25], QueueTimeoutError),
        (1.25, None, 0.5, [0.5, 1, 1.25], DeadlineExceededError),
        (1.25, 2, 5, [1.25], DeadlineExceededError),
    ],
)
def test_a_wait_lasts_until_the_first_moment_that_matters_and_nobody_late_waits_again(
    timeout_s: float | None,
    queue_s: float | None,
    poll_interval_s: float | None,
    slept_until: list[float],
    error: type[Exception],
) -> None:
    """The token's deadline, the queue's, or the next time to ask the poll: in the first wait and in those after it."""
    clock = NotingClock()
    manager = Manager({"b": CapacityPolicy(1, 1)}, clock=clock)
    token = CancelToken(timeout=timeout_s, clock=clock)
    token.poll_interval_s = poll_interval_s
    with manager.acquire("b", CancelToken()), pytest.raises(error):
        manager.permit("b").acquire(token, None if queue_s is None else clock.began + queue_s)
    assert clock.slept_until == slept_until


def test_a_poll_that_is_true_beforehand_takes_no_permit_that_is_free() -> None:
    """The error says what for."""
    bench = Bench()
    with pytest.raises(
        RunCancelledError,
        match=r"^the run was cancelled while waiting for a permit of backend 'b': its poll function returned true$",
    ):
        bench.acquire(CancelToken(poll=lambda: True, clock=bench.clock))
    bench.assert_empty()


def test_a_poll_is_asked_before_the_first_interval_and_after_each() -> None:
    """Not twice at one moment: it may ask a server."""
    clock = NotingClock()
    manager = Manager({"b": CapacityPolicy(1, 1)}, clock=clock)
    asked_at: list[float] = []

    def poll() -> bool:
        asked_at.append(clock.seconds)
        return len(asked_at) == 3

    with manager.acquire("b", CancelToken()), pytest.raises(RunCancelledError):
        manager.acquire("b", CancelToken(poll=poll, poll_interval_s=0.5, clock=clock))
    assert asked_at == [0, 0.5, 1]


@pytest.mark.parametrize("queue_s", [100, 0.5])
def test_a_permit_granted_while_the_poll_is_asked_is_taken_without_waiting_again(queue_s: float) -> None:
    """Its notification found nobody; and what has been granted is not late."""
    clock = NotingClock()
    manager = Manager({"b": CapacityPolicy(1, 1)}, clock=clock)
    held = manager.acquire("b", CancelToken())

    def poll() -> None:
        if clock.seconds:
            held.release()

    permit = manager.permit("b")
    permit.acquire(CancelToken(poll=poll, poll_interval_s=0.5, clock=clock), clock.began + queue_s)
    assert clock.slept_until == [0.5]
    assert manager.stats("b") == (0, 1, 0)
    permit.release()


def test_who_is_late_has_left_the_queue_before_the_token_is_looked_at_again() -> None:
    """Nothing is granted to a ticket whose thread has given up."""
    clock = NotingClock()
    manager = Manager({"b": CapacityPolicy(1, 1)}, clock=clock)
    waiting: list[int] = []

    class Token(CancelToken):
        """Notes how many wait whenever it is looked at."""

        __slots__ = ()

        @property
        def cancelled(self) -> bool:
            stats = manager.stats("b")
            assert stats is not None
            waiting.append(stats.waiting)
            return False

    with manager.acquire("b", CancelToken()), pytest.raises(QueueTimeoutError):
        manager.permit("b").acquire(Token(), clock.began + 2)
    assert waiting == [1, 0]


def test_waiting_works_on_the_machines_clock() -> None:
    """A short queue timeout, and a short deadline, for real."""
    manager = Manager({"b": CapacityPolicy(1, 1)})
    token = CancelToken()

    def wait_twice() -> None:
        with manager.acquire("b", token):
            with pytest.raises(QueueTimeoutError):
                manager.permit("b").acquire(token, queue_deadline=token.clock.monotonic() + 0.02)
            with pytest.raises(DeadlineExceededError):
                manager.acquire("b", CancelToken(timeout=0.02))

    Worker(wait_twice).result()
    assert manager.stats("b") == (0, 0, 0)


# -------------------------------------------------------------------------------------------------- releases


@pytest.mark.parametrize("kind", ["lease", "permit"])
def test_release_is_idempotent_in_every_state(kind: str) -> None:
    """Before use, after use, twice, and from another thread."""
    bench = Bench(1, 0)

    def make() -> Lease | Permit:
        return bench.manager.lease("b") if kind == "lease" else bench.manager.permit("b")

    def use(claim: Lease | Permit) -> None:
        if isinstance(claim, Lease):
            claim.admit(bench.token)
        else:
            claim.acquire(bench.token)

    fresh = make()
    fresh.release()
    fresh.release()
    with pytest.raises(RuntimeError, match=r"^a lease or permit is used once; ask the manager for a new one$"):
        use(fresh)
    claim = make()
    use(claim)
    with pytest.raises(RuntimeError, match="used once"):
        use(claim)
    Worker(claim.release).result()
    bench.assert_empty()
    other = make()
    use(other)
    claim.release()  # does not take what the other has
    assert bench.stats != (0, 0, 0)
    other.release()
    bench.assert_empty()


def test_giving_back_waits_for_no_lock_when_nobody_queues() -> None:
    """Nor does giving back again, ever: `finally` blocks do both."""
    bench = Bench()
    lease, permit = bench.manager.lease("b"), bench.manager.permit("b")
    lease.admit(bench.token)
    permit.acquire(bench.token)
    with bench.manager._pools["b"].lock:
        for claim in (lease, permit, lease, permit):
            Worker(claim.release).result()
    bench.assert_empty()


def test_an_interrupted_admission_or_request_takes_nothing() -> None:
    """Even before anybody calls release, and with the claim still alive."""
    bench = Bench()
    pool = bench.manager._pools["b"]
    ledger = pool.ledger = NoisyLedger(pool.policy)

    def interrupt() -> None:
        raise KeyboardInterrupt

    lease, permit = bench.manager.lease("b"), bench.manager.permit("b")
    ledger.noise = interrupt
    with pytest.raises(KeyboardInterrupt):
        lease.admit(bench.token)
    ledger.noise = interrupt
    with pytest.raises(KeyboardInterrupt):
        permit.acquire(bench.token)
    bench.assert_empty()


def half_grant(bench: Bench, held: Permit) -> Ledger[Any, Wake]:
    """Give ``held`` back, and be interrupted when the next ticket has its permit and nobody has told its thread."""
    ledger = bench.manager._pools["b"].ledger

    def interrupt(_wake: Wake) -> None:
        raise KeyboardInterrupt

    ledger.give_back(held)
    ledger._notify, notify = interrupt, ledger._notify
    with pytest.raises(KeyboardInterrupt):
        ledger.grant()
    ledger._notify = notify
    return ledger


def test_a_permit_released_after_a_torn_grant_is_not_granted_to_itself() -> None:
    """Whoever granted it was interrupted: it owns a permit, still stands in the queue, and its thread sleeps."""
    bench = Bench(1)
    held = bench.acquire()
    permit = bench.manager.permit("b")
    worker = Worker(permit.acquire, bench.token)
    bench.clock.wait_for_sleepers(1)
    ledger = half_grant(bench, held)
    assert list(ledger.held) == list(ledger.waiting) == [permit]
    permit.release()
    assert (len(ledger.held), len(ledger.waiting)) == (0, 0)
    with pytest.raises(RunCancelledError):
        worker.result()
    held.release()
    bench.assert_empty()


def test_a_thread_that_finds_itself_granted_leaves_the_queue() -> None:
    """Whoever granted it was interrupted before saying so; the next grant is not to stumble over it."""
    bench = Bench(1)
    held = bench.acquire()
    permit = bench.manager.permit("b")
    worker = Worker(permit.acquire, bench.token)
    bench.clock.wait_for_sleepers(1)
    ledger = half_grant(bench, held)
    assert list(ledger.held) == list(ledger.waiting) == [permit]
    bench.clock.advance(0)
    worker.result()
    assert not ledger.waiting
    assert bench.stats == (0, 1, 0)
    permit.release()
    held.release()
    bench.assert_empty()


def test_using_a_claim_twice_does_not_lose_it() -> None:
    """The refusal leaves what the first use has taken."""
    bench = Bench(1, 0)
    lease, permit = bench.manager.lease("b"), bench.manager.permit("b")
    lease.admit(bench.token)
    permit.acquire(bench.token)
    with pytest.raises(RuntimeError, match="used once"):
        lease.admit(bench.token)
    with pytest.raises(RuntimeError, match="used once"):
        permit.acquire(bench.token)
    assert bench.stats == (1, 1, 0)
    lease.release()
    permit.release()
    bench.assert_empty()


@pytest.mark.parametrize("queue_deadline", [None, 5000.0])
def test_a_waiting_permit_can_be_released_by_another_thread(queue_deadline: float | None) -> None:
    """Its caller is told that it will not come, and not that it is late."""
    bench = Bench()
    with bench.acquire():
        permit = bench.manager.permit("b")
        worker = Worker(permit.acquire, bench.token, queue_deadline)
        bench.clock.wait_for_sleepers(1)
        permit.release()
        assert bench.stats.waiting == 0
        with pytest.raises(RunCancelledError, match="the permit was released while waiting for a permit of backend"):
            worker.result()
    bench.assert_empty()


def test_claims_are_context_managers() -> None:
    """Whatever the block raises, they come back."""
    bench = Bench()

    def use() -> None:
        with bench.manager.admit("b", bench.token) as lease, bench.manager.acquire("b", bench.token) as permit:
            assert lease.backend_id == permit.backend_id == "b"
            assert bench.stats == (1, 1, 0)
            with bench.manager.lease("b") as unused, bench.manager.permit("b"):
                unused.admit(bench.token)
                assert bench.stats == (2, 1, 0)
            assert bench.stats == (1, 1, 0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()
    bench.assert_empty()


def test_a_claim_comes_back_at_the_end_of_its_block_and_not_when_it_is_forgotten() -> None:
    """Its name outlives the block."""
    bench = Bench()
    with bench.manager.admit("b", bench.token) as lease, bench.manager.acquire("b", bench.token) as permit:
        pass
    assert bench.stats == (0, 0, 0)
    assert lease.backend_id == permit.backend_id == "b"


def test_a_forgotten_claim_comes_back_when_it_dies() -> None:
    """And what it held goes to the oldest ticket, without anybody calling anything."""
    bench = Bench()
    lease, permit = bench.manager.admit("b", bench.token), bench.manager.acquire("b", bench.token)
    worker = bench.queue("next")
    del permit
    worker.result()
    del lease
    bench.assert_empty()


def test_a_forgotten_claim_in_a_reference_cycle_comes_back_too() -> None:
    """When the garbage collector finds it: an exception's traceback makes such cycles."""
    bench = Bench()
    permit = bench.manager.acquire("b", bench.token)
    cycle: list[Any] = [permit]
    cycle.append(cycle)
    del permit, cycle
    gc.collect()
    bench.assert_empty()


def test_a_claim_never_used_dies_quietly() -> None:
    """The pool has never heard of it, or has heard of it in vain."""
    bench = Bench()
    claims = [bench.manager.permit("b"), bench.manager.lease("b")]
    claims.clear()
    token = CancelToken(clock=bench.clock)
    token.cancel()
    with pytest.raises(RunCancelledError):
        bench.manager.admit("b", token)
    with pytest.raises(RunCancelledError):
        bench.manager.acquire("b", token)
    gc.collect()
    bench.assert_empty()


def test_a_forgotten_claim_does_not_keep_the_interpreter_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """By then a daemon thread may have been stopped for good with the lock in its hands."""
    bench = Bench()
    held = [bench.manager.acquire("b", bench.token)]
    is_locked, go = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with bench.manager._pools["b"].lock:
            is_locked.set()
            assert go.wait(60)

    holder = Worker(hold_the_lock)
    assert is_locked.wait(20)
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    try:
        Worker(held.clear).result()
    finally:
        go.set()
        holder.result()


def test_nothing_runs_when_a_released_claim_dies() -> None:
    """Code that runs in a finaliser swallows a Ctrl-C that lands in it."""
    bench = Bench()
    logged: list[object] = []
    held = [bench.manager.admit("b", bench.token), bench.manager.acquire("b", bench.token)]
    guards = [each._claim._guard for each in held if isinstance(each, Held)]
    assert [guard() for guard in guards if guard is not None] == held
    pool = bench.manager._pools["b"]
    for each in held:
        each.release()
    assert [each._claim._guard for each in held if isinstance(each, Held)] == [None, None]
    pool.intents = NoisyDeque(logged)  # type: ignore[assignment]
    guards.clear()
    held.clear()
    assert not logged


class NoisyDeque(deque[Any]):
    """Remembers what it was given."""

    def __init__(self, logged: list[object]) -> None:
        super().__init__()
        self.logged = logged

    def append(self, item: Any) -> None:
        """Remember it too."""
        self.logged.append(item)
        super().append(item)


# ------------------------------------------------------------------------------------- what is kept alive


def test_a_departed_ticket_keeps_nothing_alive() -> None:
    """Neither the permit, nor the token, nor the error: whether it was granted, cancelled or timed out."""
    bench = Bench()

    def leave(how: str) -> list[weakref.ref[Any]]:
        token = CancelToken(timeout=5, clock=bench.clock)
        held = bench.acquire()
        permit = bench.manager.permit("b")
        worker = Worker(permit.acquire, token)
        bench.clock.wait_for_sleepers(1)
        if how == "grant":
            held.release()
        elif how == "cancel":
            token.cancel()
        else:
            bench.clock.advance(5)
        worker.join()
        if how == "grant":
            permit.release()
        held.release()
        kept: list[weakref.ref[Any]] = [weakref.ref(permit), weakref.ref(token)]
        if worker.error is not None:
            kept.append(weakref.ref(worker.error))
            worker.error = None
        return kept

    for how in ("grant", "cancel", "deadline"):
        kept = leave(how)
        gc.collect()
        assert [ref() for ref in kept] == [None] * len(kept), how
    bench.assert_empty()


def test_a_manager_that_is_dropped_is_freed() -> None:
    """The list of pools for fork keeps none of them."""
    manager = Manager({"b": CapacityPolicy(1, 0)})
    gone = weakref.ref(manager._pools["b"])
    with manager.acquire("b", CancelToken()):
        pass
    del manager
    gc.collect()
    assert gone() is None


def test_nothing_grows_with_runs_served() -> None:
    """A thousand of them leave as many blocks as the first did."""
    bench = Bench()

    def serve() -> None:
        with bench.manager.admit("b", bench.token), bench.acquire():
            pass

    serve()
    before = sys.getallocatedblocks()
    for _ in range(1000):
        serve()
    assert sys.getallocatedblocks() - before < 100


# ------------------------------------------------------------------------------- signal handlers, finalisers


@pytest.fixture
def on_signal() -> Any:
    """Set what SIGUSR1 does in this test."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda function: signal.signal(signal.SIGUSR1, lambda *_: function())
    signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_cancels_reaches_the_thread_it_interrupts(on_signal: Any) -> None:
    """Also between that thread's last look and its sleep, when a notification would find nobody."""

    class Interrupting(FakeClock):
        def wait(self, condition: threading.Condition, deadline: float | None) -> None:
            signal.raise_signal(signal.SIGUSR1)
            super().wait(condition, deadline)

    clock = Interrupting()
    manager = Manager({"b": CapacityPolicy(1, 1)}, clock=clock)
    token = CancelToken(clock=clock)
    on_signal(lambda: token.cancel("signal"))
    with (
        manager.acquire("b", CancelToken()),
        rescued(lambda: (token.cancel("it hangs"), clock.advance(0))),
        pytest.raises(RunCancelledError, match="signal"),
    ):
        manager.acquire("b", token)
    assert manager.stats("b") == (0, 0, 0)


def test_a_handler_that_releases_inside_the_pool_is_served_by_the_pool_itself(on_signal: Any) -> None:
    """It is logged, and done before the interrupted thread gives the lock up."""

    class Interrupting(FakeClock):
        def wait(self, condition: threading.Condition, deadline: float | None) -> None:
            signal.raise_signal(signal.SIGUSR1)
            super().wait(condition, deadline)

    clock = Interrupting()
    manager = Manager({"b": CapacityPolicy(1, 1)}, clock=clock)
    held = manager.acquire("b", CancelToken())
    on_signal(held.release)
    token = CancelToken()
    with rescued(lambda: (token.cancel("it hangs"), clock.advance(0))), manager.acquire("b", token):
        assert manager.stats("b") == (0, 1, 0)
    held.release()
    assert manager.stats("b") == (0, 0, 0)


def test_a_handler_that_releases_the_permit_it_interrupts_ends_the_wait(on_signal: Any) -> None:
    """The waiting thread is told that the permit will not come, though nobody else is there to tell it."""

    class Interrupting(FakeClock):
        def wait(self, condition: threading.Condition, deadline: float | None) -> None:
            signal.raise_signal(signal.SIGUSR1)
            super().wait(condition, deadline)

    clock = Interrupting()
    manager = Manager({"b": CapacityPolicy(1, 1)}, clock=clock)
    with manager.acquire("b", CancelToken()):
        permit = manager.permit("b")
        fresh = manager.permit("b")

        def release() -> None:
            permit.release()
            fresh.release()

        on_signal(release)
        with pytest.raises(
            RunCancelledError, match="the permit was released while waiting for a permit of backend 'b'"
        ):
            permit.acquire(CancelToken())
        assert manager.stats("b") == (0, 1, 0)
    with pytest.raises(RuntimeError, match="used once"):
        fresh.acquire(CancelToken())
    assert manager.stats("b") == (0, 0, 0)


class PoolLedger(Ledger[Any, Wake]):
    """What a pool makes for itself; the tests put one of its kinds in that place."""

    def __init__(self, policy: CapacityPolicy) -> None:
        super().__init__(policy, self.wake_up)
        self.told: list[Wake] = []

    def wake_up(self, wake: Wake) -> None:
        """Do what the pool does, and keep in mind who it was."""
        wake.notify()
        self.told.append(wake)


class NoisyLedger(PoolLedger):
    """Calls ``noise`` once, in the middle of an operation, as a signal handler may be called there."""

    noise: Any = None

    def wake_up(self, wake: Wake) -> None:
        """Be interrupted before somebody is notified."""
        self.make_noise()
        super().wake_up(wake)

    def make_noise(self) -> None:
        """Be interrupted."""
        noise, self.noise = self.noise, None
        if noise is not None:
            noise()

    def admit(self, lease: Any) -> bool:
        """Admit, and be interrupted."""
        is_admitted = super().admit(lease)
        self.make_noise()
        return is_admitted

    def request(self, ticket: Any) -> bool:
        """Ask, and be interrupted."""
        is_granted = super().request(ticket)
        self.make_noise()
        return is_granted

    def grant(self, given_back: Any = None) -> None:
        """Grant, and be interrupted."""
        super().grant(given_back)
        self.make_noise()

    def dequeue(self, ticket: Any) -> None:
        """Take it out, and be interrupted."""
        super().dequeue(ticket)
        self.make_noise()


@pytest.mark.parametrize("operation", ["admit", "acquire", "time out", "pass on", "withdraw", "release a waiter"])
def test_what_a_handler_logs_under_the_lock_is_done_when_the_lock_is_left(operation: str) -> None:
    """Every operation that takes the lock looks at the log afterwards."""
    bench = Bench(2, 5)
    pool = bench.manager._pools["b"]
    ledger = pool.ledger = NoisyLedger(pool.policy)
    handlers, held = bench.acquire(), bench.acquire()
    lease, permit = bench.manager.lease("b"), bench.manager.permit("b")
    if operation == "acquire":
        held.release()
    worker = None
    if operation in ("time out", "pass on", "release a waiter"):
        worker = Worker(permit.acquire, bench.token, bench.clock.monotonic() + 5)
        bench.clock.wait_for_sleepers(1)

    def note() -> None:
        handlers.stage = _pool.OVER
        pool.log(handlers)

    ledger.noise = note
    if operation == "admit":
        lease.admit(bench.token)
    elif operation == "acquire":
        permit.acquire(bench.token)
    elif operation == "time out":
        bench.clock.advance(5)
    elif operation == "pass on":
        held.release()
    elif operation == "withdraw":
        bench.manager.permit("b").release()
    else:
        permit.release()
    if worker is not None:
        worker.join()
    assert ledger.noise is None
    assert not pool.intents
    permit.release()
    held.release()
    lease.release()
    bench.assert_empty()


def test_what_a_handler_logs_while_a_permit_is_passed_on_does_not_wait_for_the_new_owner() -> None:
    """Its thread may be long in coming."""
    bench = Bench(2, 5)
    pool = bench.manager._pools["b"]
    handlers, held = bench.acquire(), bench.acquire()
    absent = bench.manager.permit("b")
    with pool.lock:
        absent.stage = _pool.USED
        pool.ledger.enqueue(absent, pool.new_wake())

    class Handler(dict[Any, Any]):
        """Logs as a permit is entered: that is, under the lock."""

        def __setitem__(self, ticket: Any, value: object) -> None:
            handlers.stage = _pool.OVER
            pool.log(handlers)
            super().__setitem__(ticket, value)

    pool.ledger.held = Handler(pool.ledger.held)
    held.release()
    assert list(pool.ledger.held) == [absent]
    assert not pool.intents
    absent.release()
    bench.assert_empty()


def test_everything_that_is_free_is_granted_at_once() -> None:
    """Two permits were given back by threads that were interrupted before they passed them on."""
    bench = Bench(2, 5)
    pool = bench.manager._pools["b"]
    held = [bench.acquire(), bench.acquire()]
    absent = [bench.manager.permit("b") for _ in range(3)]
    with pool.lock:
        for permit in absent:
            permit.stage = _pool.USED
            pool.ledger.enqueue(permit, pool.new_wake())
    for permit in held:
        pool.ledger.give_back(permit)
    held[0].release()  # the second ``finally`` of one of them
    assert list(pool.ledger.held) == absent[:2]
    assert list(pool.ledger.waiting) == absent[2:]
    for permit in absent:
        permit.release()
    bench.assert_empty()


def test_what_a_handler_logs_after_a_later_wait_is_done_when_the_lock_is_left() -> None:
    """Though the waiter has what it wants."""
    handlers: list[Permit] = []

    class Interrupting(FakeClock):
        """Comes back from the second wait with a note in the log."""

        waits = 0

        def wait(self, condition: threading.Condition, deadline: float | None) -> None:
            super().wait(condition, deadline)
            self.waits += 1
            if self.waits == 2:
                handlers[0].stage = _pool.OVER
                pool.log(handlers[0])

    clock = Interrupting()
    manager = Manager({"b": CapacityPolicy(2, 1)}, clock=clock)
    pool = manager._pools["b"]
    token = CancelToken(poll=lambda: False, poll_interval_s=1, clock=clock)
    for _ in range(2):
        handlers.append(manager.permit("b"))
        handlers[-1].acquire(CancelToken())
    permit = manager.permit("b")
    worker = Worker(permit.acquire, token)
    clock.wait_for_sleepers()
    clock.advance(1)
    clock.wait_until(lambda: clock.waits == 1)
    clock.wait_for_sleepers()
    handlers[1].release()
    worker.result()
    assert clock.waits == 2
    assert not pool.intents
    assert list(pool.ledger.held) == [permit]
    permit.release()
    assert manager.stats("b") == (0, 0, 0)


class GrantingLedger(PoolLedger):
    """Calls ``between`` after the first look whether ``ticket`` has a permit, as another thread may come there."""

    ticket: Any = None
    between: Any = None

    def __init__(self, policy: CapacityPolicy) -> None:
        super().__init__(policy)
        ledger = self

        class Held(dict[Any, Any]):
            def __contains__(self, ticket: object) -> bool:
                is_held = super().__contains__(ticket)
                if ticket is ledger.ticket and ledger.between is not None:
                    between, ledger.between = ledger.between, None
                    between()
                return is_held

        self.held = Held()


def test_what_is_granted_between_the_look_and_the_lock_of_a_release_goes_on() -> None:
    """The permit came while its ticket was about to be withdrawn: it is the next one's."""
    bench = Bench()
    pool = bench.manager._pools["b"]
    ledger = pool.ledger = GrantingLedger(pool.policy)
    held = bench.acquire()
    permit = bench.manager.permit("b")
    waiter = Worker(permit.acquire, bench.token)
    bench.clock.wait_for_sleepers()
    next_one = bench.queue("next")
    ledger.ticket, ledger.between = permit, held.release
    permit.release()
    next_one.result()
    waiter.join()
    assert bench.order == ["next"]
    bench.assert_empty()


@pytest.mark.parametrize("kind", ["lease", "permit"])
def test_what_a_handler_releases_before_it_is_in_the_books_is_not_kept(kind: str) -> None:
    """The handler comes between the first use of a lease or permit and its entry."""
    bench = Bench()
    pool = bench.manager._pools["b"]
    lease, permit = bench.manager.lease("b"), bench.manager.permit("b")

    class Early(PoolLedger):
        def admit(self, lease: Any) -> bool:
            lease.release()
            return super().admit(lease)

        def request(self, ticket: Any) -> bool:
            ticket.release()
            return super().request(ticket)

    pool.ledger = Early(pool.policy)
    if kind == "lease":
        lease.admit(bench.token)
    else:
        permit.acquire(bench.token)
    bench.assert_empty()


def test_a_permit_given_back_while_somebody_is_about_to_queue_is_his() -> None:
    """Giving back takes no lock, so it may come between the look and the queueing; nobody else would wake him then."""
    bench = Bench()
    pool = bench.manager._pools["b"]
    ledger = pool.ledger = NoisyLedger(pool.policy)
    held = bench.acquire()
    ledger.noise = held.release
    permit = bench.manager.permit("b")
    permit.acquire(bench.token)
    assert bench.stats == (0, 1, 0)
    permit.release()
    bench.assert_empty()


def test_a_cancel_that_comes_as_the_log_is_done_before_a_sleep_is_not_slept_over() -> None:
    """A first handler's note is being done as the thread lies down, and a second handler cancels that very wait."""
    clock = FakeClock()
    manager = Manager({"b": CapacityPolicy(2, 3)}, clock=clock)
    pool = manager._pools["b"]
    ledger = pool.ledger = NoisyLedger(pool.policy)
    held = [manager.permit("b") for _ in range(2)]
    for each in held:
        each.acquire(CancelToken())
    lease = manager.lease("b")
    lease.admit(CancelToken())
    token = CancelToken(clock=clock)
    permit = manager.permit("b")

    class First(FakeClock):
        def wait(self, condition: threading.Condition, deadline: float | None) -> None:
            lease.stage = _pool.OVER
            pool.log(lease)
            ledger.noise = token.cancel  # when the grant for the note above looks for tickets
            super().wait(condition, deadline)

    pool.clock = First()
    worker = Worker(permit.acquire, token)
    with pytest.raises(RunCancelledError):
        worker.result()
    for each in held:
        each.release()
    assert manager.stats("b") == (0, 0, 0)
    assert not token._watchers


def test_asking_how_it_stands_disturbs_nothing_that_it_interrupts() -> None:
    """A gauge may be read by a finaliser, in the middle of the work on the log."""
    bench = Bench(2, 5)
    pool = bench.manager._pools["b"]
    ledger = pool.ledger = NoisyLedger(pool.policy)
    seen: list[PoolStats] = []
    with pool.lock:
        for lease in [bench.manager.lease("b") for _ in range(2)]:
            ledger.admit(lease)
            lease.stage = _pool.OVER
            pool.log(lease)
    ledger.noise = lambda: seen.append(bench.stats)
    pool.settle()
    assert seen == [(1, 0, 0)]
    bench.assert_empty()


def test_asking_how_it_stands_does_what_an_interrupted_callback_has_logged() -> None:
    """Nobody calls that callback again."""
    bench = Bench()
    permit = bench.acquire()
    permit.stage = _pool.OVER
    bench.manager._pools["b"].intents.append(permit)
    assert bench.stats == (0, 0, 0)


def test_what_a_handler_logs_while_somebody_asks_how_it_stands_is_done() -> None:
    """The lock was held, though nothing was to be done with it."""
    bench = Bench()
    pool = bench.manager._pools["b"]
    permit = bench.acquire()

    class Handler(dict[Any, Any]):
        """Logs as the leases are counted: that is, under the lock."""

        def __len__(self) -> int:
            permit.release()
            return super().__len__()

    permit.stage = _pool.FRESH  # so that its release has to ask for the lock
    pool.ledger.leases = Handler()
    assert bench.stats == (0, 1, 0)
    assert not pool.intents
    assert not pool.ledger.held


def test_whoever_comes_between_the_look_and_the_giving_back_gets_the_permit() -> None:
    """He saw no room, and nobody saw him."""
    bench = Bench()
    pool = bench.manager._pools["b"]
    held, absent = bench.acquire(), bench.manager.permit("b")

    class Late(PoolLedger):
        def give_back(self, ticket: Any) -> None:
            with pool.lock:
                absent.stage = _pool.USED
                assert not self.enqueue(absent, pool.new_wake())
            super().give_back(ticket)

    ledger = Late(pool.policy)
    ledger.held.update(pool.ledger.held)
    pool.ledger = ledger
    held.release()
    assert list(ledger.held) == [absent]
    assert not ledger.waiting


@pytest.mark.parametrize("kind", ["lease", "permit"])
def test_what_a_handler_logged_before_it_raised_is_done_by_a_release(kind: str) -> None:
    """Also by the only one there is, and by one that comes when everything is over."""
    bench = Bench()
    pool = bench.manager._pools["b"]
    for is_late in (False, True):
        lease, permit = bench.manager.lease("b"), bench.manager.permit("b")
        lease.admit(bench.token)
        permit.acquire(bench.token)
        claim: Lease | Permit = lease if kind == "lease" else permit
        other: Lease | Permit = permit if kind == "lease" else lease
        if is_late:
            claim.release()
        other.stage = _pool.OVER
        pool.intents.append(other)  # what a handler does that finds the lock owned
        claim.release()
        assert not pool.intents
        bench.assert_empty()


def test_what_is_released_under_the_lock_is_passed_on_when_the_lock_is_left() -> None:
    """A handler has come into the middle of something: it only takes its own out, and leaves a note."""
    bench = Bench()
    pool = bench.manager._pools["b"]
    held = bench.acquire()
    worker = bench.queue()
    with pool.lock:
        held.release()
        assert (len(pool.ledger.held), len(pool.ledger.waiting), list(pool.intents)) == (0, 1, [held])
    pool.settle()
    worker.result()
    bench.assert_empty()


@pytest.mark.parametrize("is_told", [True, False])
def test_a_ticket_that_is_granted_between_two_sleeps_does_not_sleep_again(is_told: bool) -> None:  # noqa: FBT001
    """Though nobody may have told it; and no notification is left behind for the next user of its Wake."""
    bench = Bench()
    held = bench.acquire()
    asked: list[int] = []

    def poll() -> bool:
        asked.append(1)
        if len(asked) == 2:
            if is_told:
                held.release()
            else:
                half_grant(bench, held)
        return False

    worker = bench.queue("waiter", CancelToken(poll=poll, poll_interval_s=1, clock=bench.clock))
    bench.clock.advance(1)
    worker.result()
    (wake,) = bench.manager._pools["b"].spare_wakes
    assert wake._bed.locked()
    held.release()
    bench.assert_empty()


def test_the_child_of_a_fork_has_new_books_and_whoever_waits_is_told() -> None:
    """The thread that forked, in the middle of a wait, finds its ticket gone; the parent's claims are nobody's."""
    bench = Bench()
    pool = bench.manager._pools["b"]
    held = bench.acquire()
    worker = bench.queue()
    pool.start_anew()
    with pytest.raises(RunCancelledError, match="the permit was released while waiting"):
        worker.result()
    assert bench.stats == (0, 0, 0)
    own = bench.acquire()
    held.release()
    assert bench.stats == (0, 1, 0)
    worker = bench.queue()
    own.release()
    worker.result()
    bench.assert_empty()


@pytest.mark.parametrize("is_locked", [True, False])
def test_the_child_of_a_fork_has_a_lock_that_is_free(is_locked: bool) -> None:  # noqa: FBT001  # a parameter
    """Whether or not a thread held it that is not there any more, and would never give it back."""
    pool = Bench().manager._pools["b"]
    is_ready, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        if is_locked:
            pool.lock.acquire()
        is_ready.set()
        assert is_over.wait(20)

    holder = Worker(hold)
    assert is_ready.wait(20)
    pool.start_anew()
    assert Worker(pool.lock.acquire, blocking=False).result() is True
    is_over.set()
    holder.result()


def test_the_thread_that_forked_keeps_its_lock_until_it_leaves_it() -> None:
    """As it would have done without the fork."""
    pool = Bench().manager._pools["b"]
    with pool.lock:
        pool.start_anew()
        assert Worker(pool.lock.acquire, blocking=False).result() is False
    assert Worker(pool.lock.acquire, blocking=False).result() is True


def test_wakes_are_used_again_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowd leaves no more of them behind than that."""
    monkeypatch.setattr(_pool, "_SPARE_WAKES", 2)
    bench = Bench()
    pool = bench.manager._pools["b"]
    held = bench.acquire()
    workers = [bench.queue(f"{number}") for number in range(4)]
    held.release()
    for worker in workers:
        worker.result()
    spare = list(pool.spare_wakes)
    assert len(spare) == 2
    with bench.acquire():
        again = bench.queue("again")
        assert next(iter(pool.ledger.waiting.values())) is spare[1]
        assert list(pool.spare_wakes) == spare[:1]
    again.result()
    bench.assert_empty()


@pytest.mark.parametrize("how", ["grant", "cancel"])
def test_a_notification_that_came_too_late_for_one_ticket_grants_nothing_to_the_next(how: str) -> None:
    """It ends the first sleep of whoever uses that Wake next, who looks and sleeps on."""
    bench = Bench()
    with bench.acquire():
        first = bench.queue("first", queue_deadline=bench.clock.monotonic() + 1)
        bench.clock.advance(1)
        first.join()
    bench.manager._pools["b"].spare_wakes[0].notify()
    held = bench.acquire()
    token = CancelToken(clock=bench.clock)
    worker = bench.queue("second", token)
    assert bench.stats.waiting == 1
    if how == "grant":
        held.release()
        worker.result()
    else:
        token.cancel()
        with pytest.raises(RunCancelledError):
            worker.result()
        held.release()
    bench.assert_empty()


def test_a_handler_must_not_ask_for_capacity_inside_the_pool(on_signal: Any) -> None:
    """It would find the books open: it is told so, and nothing is lost."""

    class Interrupting(FakeClock):
        def wait(self, condition: threading.Condition, deadline: float | None) -> None:
            signal.raise_signal(signal.SIGUSR1)
            super().wait(condition, deadline)

    clock = Interrupting()
    manager = Manager({"b": CapacityPolicy(1, 1)}, clock=clock)
    on_signal(lambda: manager.acquire("b", CancelToken()))
    with (
        manager.acquire("b", CancelToken()),
        pytest.raises(RuntimeError, match=REENTERED),
    ):
        manager.acquire("b", CancelToken())
    on_signal(lambda: manager.admit("b", CancelToken()))
    with (
        manager.acquire("b", CancelToken()),
        pytest.raises(RuntimeError, match=REENTERED),
    ):
        manager.acquire("b", CancelToken())
    assert manager.stats("b") == (0, 0, 0)


def test_an_exception_out_of_the_wait_leaves_the_queue_and_is_not_hidden() -> None:
    """C13: Condition.wait may come out without its lock; KeyboardInterrupt comes out of acquire unchanged."""

    class Losing(FakeClock):
        def wait(self, condition: threading.Condition, deadline: float | None) -> None:
            condition.release()
            raise KeyboardInterrupt

    manager = Manager({"b": CapacityPolicy(1, 1)}, clock=Losing())
    token = CancelToken()
    with manager.acquire("b", CancelToken()):
        with pytest.raises(KeyboardInterrupt):
            manager.acquire("b", token)
        assert manager.stats("b") == (0, 1, 0)
    assert manager.stats("b") == (0, 0, 0)
    assert not token._watchers


def test_c11_permits_survive_an_interrupt_right_after_the_grant() -> None:
    """A signal handler raises as soon as the permit is granted, a hundred times; all permits are still there."""
    bench = Bench(2)

    class SoftTimeLimitError(Exception):
        """What a task queue raises into its worker."""

    class Token(CancelToken):
        """Raises when acquire looks at it: after the grant."""

        __slots__ = ()

        @property
        def cancelled(self) -> bool:
            assert bench.stats.active == 1
            raise SoftTimeLimitError

    for _ in range(100):
        token = Token()
        with pytest.raises(SoftTimeLimitError):
            bench.acquire(token)
    assert bench.stats == (0, 0, 0)
    with bench.acquire(), bench.acquire():
        assert bench.stats.active == 2
