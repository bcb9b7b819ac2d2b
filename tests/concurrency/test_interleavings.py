"""Races, explored rather than hoped for: a preemption at every line, for every order of the threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from promptkit._cancel import CancelToken, wait_until
from promptkit._capacity import Lease, Manager, Permit
from promptkit._ledger import CapacityPolicy
from promptkit.errors import CapacityExceededError, QueueTimeoutError, RunCancelledError
from support.clock import FakeClock
from support.preempt import explore


class Scene:
    """One permit, which is taken, and what the threads of a scenario do."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.manager = Manager({"b": CapacityPolicy(1, 1)}, clock=self.clock)
        self.held = self.manager.acquire("b", CancelToken(clock=self.clock))
        self.token = CancelToken(clock=self.clock)
        self.free_token = CancelToken(clock=self.clock)
        self.events: list[str] = []
        self.permits: list[Permit] = []

    def use(self, name: str, token: CancelToken, queue_deadline: float | None = None) -> None:
        """Acquire, see that nobody else is in, and release."""
        permit = self.manager.permit("b")
        self.permits.append(permit)  # kept alive, so that nothing comes back by itself
        try:
            permit.acquire(token, queue_deadline)
            assert len(self.manager._pools["b"].ledger.held) == 1
            self.events.append(f"{name} in")
        except QueueTimeoutError:
            self.events.append(f"{name} late")
        except RunCancelledError:
            self.events.append(f"{name} cancelled")
        finally:
            permit.release()

    def check(self) -> None:
        """Everything has come back."""
        self.held.release()
        assert self.manager.stats("b") == (0, 0, 0)
        assert not self.token._watchers
        assert not self.free_token._watchers
        assert not self.manager._pools["b"].intents


def release(scene: Scene) -> None:
    """Give the permit back that is taken when the scene begins."""
    scene.held.release()


def wait(scene: Scene) -> None:
    """Wait without a limit of time."""
    scene.use("waiter", scene.token)


def wait_a_second(scene: Scene) -> None:
    """Wait for a second of the scene's clock."""
    scene.use("waiter", scene.token, 1001.0)


def wait_behind(scene: Scene) -> None:
    """Wait with a token that nobody cancels."""
    scene.use("second", scene.free_token)


def cancel(scene: Scene) -> None:
    """Cancel the first waiter's token."""
    scene.token.cancel("changed my mind")


def let_time_pass(scene: Scene) -> None:
    """Let a second pass."""
    scene.clock.advance(1)


def test_grant_or_cancel_with_the_waiter_queued() -> None:
    """One of them wins; the permit is not lost, and the next in the queue is served."""

    def check(scene: Scene) -> None:
        assert sorted(scene.events) in (["second in", "waiter cancelled"], ["second in", "waiter in"])
        scene.check()

    assert explore(Scene, [release, wait, cancel, wait_behind], check, first=[1, 3], bystanders=[3]) > 100


@pytest.mark.parametrize("end", [cancel, let_time_pass, lambda scene: scene.permits[0].release()])
def test_a_release_as_the_only_waiter_leaves(end: Callable[[Scene], None]) -> None:
    """Seen at the first look and gone at the next: the permit is free again all the same."""

    def check(scene: Scene) -> None:
        scene.check()

    assert explore(Scene, [release, wait_a_second, end], check, first=[1], bystanders=[1]) > 25


def test_grant_or_deadline() -> None:
    """The time is up as the permit comes: one of them wins, and the permit goes on."""

    def check(scene: Scene) -> None:
        assert sorted(scene.events) in (["second in", "waiter late"], ["second in", "waiter in"])
        scene.check()

    assert (
        explore(Scene, [release, wait_a_second, let_time_pass, wait_behind], check, first=[1, 3], bystanders=[3]) > 60
    )


def test_cancel_or_deadline() -> None:
    """Nobody gives anything back: the waiter must hear of one of the two."""

    def check(scene: Scene) -> None:
        assert scene.events in (["waiter late"], ["waiter cancelled"])
        scene.check()

    assert explore(Scene, [wait_a_second, cancel, let_time_pass], check) > 60


def test_cancel_while_the_waiter_registers() -> None:
    """Nobody gives anything back: a cancel that is missed is a hang."""

    def check(scene: Scene) -> None:
        assert scene.events == ["waiter cancelled"]
        scene.check()

    assert explore(Scene, [wait, cancel], check, preemptions=2) > 200


def test_release_while_the_waiter_queues() -> None:
    """Giving back takes no lock: whoever comes second sees the other, so the waiter is always granted."""

    def check(scene: Scene) -> None:
        assert scene.events == ["waiter in"]
        scene.check()

    assert explore(Scene, [wait, release], check, preemptions=2) > 200


def test_two_releases_of_one_permit() -> None:
    """Two threads wait; never are both in."""

    def release_too(scene: Scene) -> None:
        scene.held.release()

    def check(scene: Scene) -> None:
        assert sorted(scene.events) == ["second in", "waiter in"]
        scene.check()

    assert explore(Scene, [release, release_too, wait, wait_behind], check, first=[2, 3], bystanders=[3]) > 60


def test_a_newcomer_never_overtakes() -> None:
    """The one that waits is in first, whenever the newcomer asks."""

    def check(scene: Scene) -> None:
        assert scene.events == ["waiter in", "second in"]
        scene.check()

    assert explore(Scene, [release, wait, wait_behind], check, first=[1]) > 100


def test_release_of_a_permit_that_another_thread_waits_for() -> None:
    """It is granted, or it is gone; the permit is not lost in between."""

    class Shared(Scene):
        def __init__(self) -> None:
            super().__init__()
            self.permit = self.manager.permit("b")

    def acquire(scene: Shared) -> None:
        with suppress(RunCancelledError, RuntimeError):
            scene.permit.acquire(scene.token)

    def release_it(scene: Shared) -> None:
        scene.permit.release()

    def check(scene: Shared) -> None:
        scene.permit.release()
        scene.check()

    assert explore(Shared, [acquire, release_it, release], check) > 60


def test_two_runs_and_one_place() -> None:
    """One is admitted, one is refused."""

    class Door:
        def __init__(self) -> None:
            self.manager = Manager({"b": CapacityPolicy(1, 0)})
            self.leases: list[Lease] = []
            self.refusals = 0

    def admit(door: Door) -> None:
        try:
            door.leases.append(door.manager.admit("b", CancelToken()))
        except CapacityExceededError:
            door.refusals += 1

    def admit_too(door: Door) -> None:
        admit(door)

    def check(door: Door) -> None:
        assert (len(door.leases), door.refusals) == (1, 1)

    assert explore(Door, [admit, admit_too], check) > 20


class Calls:
    """A token, a child, and who was called back."""

    def __init__(self) -> None:
        self.parent = CancelToken()
        self.child = self.parent.child()
        self.called: list[str] = []


def register(calls: Calls) -> None:
    """Ask to be called back."""
    calls.child.on_cancel(lambda: calls.called.append("x"))


def cancel_parent(calls: Calls) -> None:
    """Cancel above."""
    calls.parent.cancel("parent")


def cancel_child(calls: Calls) -> None:
    """Cancel below."""
    calls.child.cancel("child")


def test_register_and_cancel_twice() -> None:
    """Called once, whoever comes first."""

    def check(calls: Calls) -> None:
        assert calls.called == ["x"]
        assert not calls.parent._watchers
        assert not calls.child._watchers

    assert explore(Calls, [register, cancel_parent, cancel_child], check, preemptions=2) > 200


def test_register_remove_and_cancel() -> None:
    """Called once or not at all, and nothing is left behind."""

    def register_and_remove(calls: Calls) -> None:
        calls.child.on_cancel(lambda: calls.called.append("x")).remove()

    def check(calls: Calls) -> None:
        assert calls.called in ([], ["x"])
        assert not calls.parent._watchers
        assert not calls.child._watchers

    assert explore(Calls, [register_and_remove, cancel_parent], check, preemptions=2) > 60


def test_the_first_reason_is_one_of_the_two() -> None:
    """And it does not change any more."""

    def cancel_again(calls: Calls) -> None:
        calls.parent.cancel("again")

    def look(calls: Calls) -> None:
        reasons = [calls.child.reason for _ in range(3)]
        seen = [reason for reason in reasons if reason is not None]
        assert len(set(seen)) <= 1
        calls.called.extend(seen[:1])

    def check(calls: Calls) -> None:
        assert calls.child.reason in ("parent", "again")
        assert not calls.called or calls.called == [calls.child.reason]

    assert explore(Calls, [cancel_parent, cancel_again, look], check) > 20


def test_a_sleeper_and_a_cancel() -> None:
    """The sleep ends by the cancel, or a hang is found."""

    class Bed:
        def __init__(self) -> None:
            self.clock = FakeClock()
            self.token = CancelToken(clock=self.clock)

    def sleep(bed: Bed) -> None:
        with pytest.raises(RunCancelledError):
            wait_until(bed.token, 2000.0)

    def wake(bed: Bed) -> None:
        bed.token.cancel()

    def check(bed: Bed) -> None:
        assert not bed.token._watchers

    assert explore(Bed, [sleep, wake], check, preemptions=2) > 100
