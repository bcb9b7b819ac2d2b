"""After fork the child starts with empty pools and free locks, whatever the parent's threads were doing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from promptkit import _pool
from promptkit._cancel import CancelToken
from promptkit._capacity import Manager, Permit
from promptkit._clock import SYSTEM_CLOCK
from promptkit._ledger import CapacityPolicy
from promptkit.errors import RunCancelledError
from support.clock import AnnouncingClock, FakeClock
from support.inject import Interrupted, points
from support.preloaded import MANAGER, use_everything, use_the_modules_own
from support.threads import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


def in_a_child(act: Callable[[], object]) -> None:
    """Run ``act`` in a forked child; `AssertionError` with its traceback if it raises, or if it hangs."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(10)  # kills a child that hangs
            act()
            code = 0
        except BaseException:  # noqa: BLE001  # reported to the parent
            os.write(writer, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        report = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    assert status == 0, report or f"the child hangs (status {status})"


def test_c09_the_child_of_a_busy_process_starts_empty() -> None:
    """Threads of the parent hold a lease, a permit, a place in the queue, and the lock itself."""
    clock = FakeClock()
    manager = Manager({"b": CapacityPolicy(1, 1)}, clock=clock)
    token = CancelToken(clock=clock)
    is_locked, go = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with manager._pools["b"].lock:
            is_locked.set()
            assert go.wait(20)

    lease, permit = manager.admit("b", token), manager.acquire("b", token)
    waiter = Worker(lambda: manager.acquire("b", token).release())
    clock.wait_for_sleepers(1)
    holder = Worker(hold_the_lock)
    assert is_locked.wait(20)

    def act() -> None:
        manager._pools["b"].clock = token.clock = SYSTEM_CLOCK  # type: ignore[misc]  # time passes in it
        use_everything(manager)

    in_a_child(act)
    go.set()
    holder.result()
    assert manager.stats("b") == (1, 1, 1), "the parent is as it was"
    permit.release()
    waiter.result()
    lease.release()
    assert manager.stats("b") == (0, 0, 0)


def test_the_parents_claims_are_nobodys_in_the_child() -> None:
    """The forking thread's own ``finally`` runs in the child too, and must not take what others have there."""
    manager = Manager({"b": CapacityPolicy(1, 1)})
    token = CancelToken()

    def act() -> None:
        other = manager.acquire("b", token)
        other_lease = manager.admit("b", token)
        permit.release()
        lease.release()
        assert manager.stats("b") == (1, 1, 0)
        other.release()
        other_lease.release()
        use_everything(manager)

    with manager.admit("b", token) as lease, manager.acquire("b", token) as permit:
        in_a_child(act)
        assert manager.stats("b") == (1, 1, 0)
    assert manager.stats("b") == (0, 0, 0)


def test_a_fork_in_the_middle_of_a_wait() -> None:
    """A poll function that forks: the child's wait ends with an error, and its pool is good."""
    manager = Manager({"b": CapacityPolicy(1, 1)})
    held = manager.acquire("b", CancelToken())
    polls: list[int] = []
    reader, writer = os.pipe()

    def poll() -> bool:
        polls.append(1)
        if len(polls) == 2:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                polls.append(os.fork())
            held.release()
        return False

    try:
        manager.acquire("b", CancelToken(poll=poll, poll_interval_s=0.01)).release()
        outcome = "granted"
    except BaseException as error:  # noqa: BLE001  # the child must not run the rest of the tests
        outcome = repr(error)
    if polls[2] == 0:
        try:
            signal.alarm(10)
            use_everything(manager)
            os.write(writer, outcome.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert "the permit was released while waiting" in pipe.read().decode()
    os.waitpid(polls[2], 0)
    assert outcome == "granted"
    assert manager.stats("b") == (0, 0, 0)


@pytest.mark.parametrize("cancels", [False, True], ids=["", "after a cancel"])
def test_a_fork_at_every_point_of_a_wait(cancels: bool) -> None:  # noqa: FBT001  # a parameter
    """By a handler, in the middle of anything: the child's wait ends at once, and its pool is good."""
    tried = 0
    for point in points():
        clock = AnnouncingClock()
        manager = Manager({"b": CapacityPolicy(1, 1)}, clock=clock)
        held, mine, token = manager.permit("b"), manager.permit("b"), CancelToken()
        held.acquire(CancelToken())
        children: list[int] = []

        def fork(children: list[int] = children, token: CancelToken = token) -> None:
            if cancels:
                token.cancel()
            children.append(os.fork())
            if children == [0]:
                signal.alarm(10)  # kills a child that hangs

        def act(
            manager: Manager = manager, mine: Permit = mine, token: CancelToken = token, children: list[int] = children
        ) -> None:
            code = 1
            try:
                with suppress(RunCancelledError):
                    mine.acquire(token)
                mine.release()
                if children == [0]:
                    use_everything(manager)
                    code = 0
            finally:
                if children == [0]:
                    os._exit(code)

        def release(clock: AnnouncingClock = clock, held: Permit = held) -> None:
            clock.wait_for_sleeper()
            held.release()

        other = Worker(release)
        run = Interrupted(act, point, do=fork)
        clock.announce()
        other.result()
        assert run.error is None
        for child in children:
            assert os.waitpid(child, 0)[1] == 0, f"forked at {run.place}"
        assert manager.stats("b") == (0, 0, 0)
        if run.place is None:
            break
        tried += 1
    assert tried > 20, "the search is empty"


def test_one_hook_serves_any_number_of_pools() -> None:
    """It is registered when the module is imported, and knows the pools by weak references."""
    managers = [Manager({"b": CapacityPolicy(1, 1)}) for _ in range(3)]
    permits = [manager.acquire("b", CancelToken()) for manager in managers]
    before = len(_pool._pools)
    assert before >= 3

    def act() -> None:
        for manager in managers:
            use_everything(manager)

    in_a_child(act)
    for permit in permits:
        permit.release()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_c09_worker_processes_start_empty(method: str) -> None:
    """A manager made at import time and in use in the parent, as with a preloading web server."""
    context = multiprocessing.get_context(method)
    answers = context.SimpleQueue()
    with MANAGER.admit("b", CancelToken()), MANAGER.acquire("b", CancelToken()), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process = context.Process(target=use_the_modules_own, args=(answers,))
        process.start()
        process.join(60)
        assert process.exitcode == 0
        assert answers.get() == "good"
    assert MANAGER.stats("b") == (0, 0, 0)
