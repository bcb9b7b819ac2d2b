"""Storms of real exceptions against a pool under contention: nothing may be lost, nobody may hang.

    python tests/storms.py alarm 100000      # KeyboardInterrupt by SIGALRM, every 5 to 80 µs, in the main thread
    python tests/storms.py async 20000       # PyThreadState_SetAsyncExc into six threads, with cancels going on
    python tests/storms.py handler 20000     # a signal handler that cancels and releases, whatever it interrupts

Prints one line of JSON and exits with 1 if the pool is not as it was. The test suite runs short ones.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from promptkit._cancel import CancelToken
from promptkit._capacity import Manager, Permit
from promptkit._ledger import CapacityPolicy
from promptkit.errors import RunCancelledError

if TYPE_CHECKING:
    from collections.abc import Callable

HANG_S = 30.0
RANDOM = random.Random(20261130)


class BoomError(BaseException):
    """What is raised into the workers."""


class Field:
    """A pool with two permits, a background of threads that use it, and the books."""

    def __init__(self, background: int) -> None:
        self.manager = Manager({"b": CapacityPolicy(2, 100)})
        self.pool = self.manager._pools["b"]
        self.parent = CancelToken()
        self.is_over = False
        self.cycles = 0
        self.queued = 0  # how often somebody waited
        self.threads = [threading.Thread(target=self.use_until_over, daemon=True) for _ in range(background)]
        for thread in self.threads:
            thread.start()

    def use(self, token: CancelToken) -> None:
        """Be admitted and acquire, in the safe shape."""
        lease, permit = self.manager.lease("b"), self.manager.permit("b")
        try:
            try:
                lease.admit(token)
                permit.acquire(token)
                self.cycles += 1
                if self.threads:
                    time.sleep(0)  # let others run into the limit
                    self.queued += bool(self.pool.ledger.waiting)
            finally:
                permit.release()
                lease.release()
        finally:
            permit.release()
            lease.release()

    def use_in_a_with_block(self, token: CancelToken) -> None:
        """The convenient shape."""
        with self.manager.admit("b", token), self.manager.acquire("b", token):
            self.cycles += 1

    def use_until_over(self) -> None:
        """Use it all the time."""
        while not self.is_over:
            self.use(self.parent)

    def end(self) -> dict[str, Any]:
        """Stop everybody; say what is left that should not be."""
        self.is_over = True
        deadline = time.monotonic() + HANG_S
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        hung = sum(thread.is_alive() for thread in self.threads)
        ledger = self.pool.ledger
        left = [len(ledger.leases), len(ledger.held), len(ledger.waiting), len(self.pool.intents)]
        left.append(len(self.parent._watchers))
        is_locked = hung == 0 and self.pool.is_owned()
        return {"cycles": self.cycles, "queued": self.queued, "hung": hung, "left": left, "locked": is_locked}


def alarm(count: int) -> dict[str, Any]:
    """Interrupt the main thread ``count`` times: alone in the pool, with others in it, and in ``with`` blocks."""
    results: dict[str, Any] = {}
    for name, background in (("alone", 0), ("contended", 3), ("with blocks", 0)):
        field = Field(background)
        use = field.use_in_a_with_block if name == "with blocks" else field.use
        broken = interrupt_often(use, field, count // 3 + 1)
        results[name] = {"interrupts": count // 3 + 1, "broken": broken, **field.end()}
    return results


def interrupt_often(use: Callable[[CancelToken], None], field: Field, count: int) -> int:
    """Let SIGALRM raise `KeyboardInterrupt` into a loop of ``use``; count the states it leaves broken."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    broken = 0
    for _ in range(count):
        token = field.parent.child()
        try:
            signal.setitimer(signal.ITIMER_REAL, 5e-6 + RANDOM.random() * 75e-6)
            for _ in range(400):
                use(token)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            pass
        ledger = field.pool.ledger
        is_broken = field.pool.is_owned() or bool(token._watchers)
        if not field.threads:
            is_broken = is_broken or bool(ledger.held or ledger.waiting or ledger.leases or field.pool.intents)
        broken += is_broken
        if is_broken:
            field.pool.reset()
    return broken


class Targets:
    """Six threads that are admitted, wait and work, and survive what is raised into them."""

    def __init__(self, field: Field) -> None:
        count = 6
        self.field = field
        self.tokens = [field.parent] * count
        self.is_armed, self.sent, self.caught = [False] * count, [0] * count, [0] * count
        self.swallowed = 0
        self.threads = [threading.Thread(target=self.work, args=(number,), daemon=True) for number in range(count)]

    def work(self, number: int) -> None:
        """Use the pool until it is over, whatever comes in between."""
        while True:
            try:
                self.use_until_over(number)
            except BoomError:
                self.is_armed[number] = False
                self.caught[number] += 1
            else:
                return

    def use_until_over(self, number: int) -> None:
        """Use the pool, with a token that somebody else may cancel."""
        self.is_armed[number] = True
        while not self.field.is_over:
            token = self.tokens[number] = self.field.parent.child()
            with suppress(RunCancelledError):
                self.field.use(token)

    def cancel_until_over(self) -> None:
        """Cancel what is going on, here and there."""
        while not self.field.is_over:
            RANDOM.choice(self.tokens).cancel("storm")
            time.sleep(1e-4)

    def raise_into_one(self) -> None:
        """Raise into one of them, unless it has not caught the last one yet."""
        number = RANDOM.randrange(len(self.threads))
        if self.is_armed[number] and self.caught[number] == self.sent[number]:
            self.sent[number] += 1
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self.threads[number].ident or 0), ctypes.py_object(BoomError)
            )

    def count_swallowed(self, report: sys.UnraisableHookArgs) -> None:
        """Count one that has landed in a finaliser: it cannot come out, and the interpreter goes on."""
        if report.exc_type is BoomError:
            self.swallowed += 1
            self.caught[self.threads.index(threading.current_thread())] += 1


def raise_into_threads(count: int) -> dict[str, Any]:
    """Raise `BoomError` into threads that wait and work, while two others cancel what waits."""
    field = Field(0)
    targets = Targets(field)
    sys.unraisablehook = targets.count_swallowed
    field.threads = [*targets.threads]
    field.threads += [threading.Thread(target=targets.cancel_until_over, daemon=True) for _ in range(2)]
    for thread in field.threads:
        thread.start()
    last_progress, cycles = time.monotonic(), -1
    is_stalled = False
    while sum(targets.sent) < count and not is_stalled:
        targets.raise_into_one()
        time.sleep(RANDOM.random() * 2e-4)
        if field.cycles != cycles:
            last_progress, cycles = time.monotonic(), field.cycles
        is_stalled = time.monotonic() - last_progress > HANG_S
    deadline = time.monotonic() + HANG_S
    while sum(targets.caught) < sum(targets.sent) and time.monotonic() < deadline:
        time.sleep(0.01)
    broken = int(is_stalled) + sum(targets.sent) - sum(targets.caught)
    return {"async": {"interrupts": sum(targets.sent), "swallowed": targets.swallowed, "broken": broken, **field.end()}}


def handler(count: int) -> dict[str, Any]:
    """Run a handler in the main thread that cancels its token and releases its permit, wherever that thread is."""
    field = Field(3)
    runs = 0
    current: list[tuple[CancelToken, Permit]] = []

    def handle(*_: object) -> None:
        nonlocal runs
        runs += 1
        if current:
            token, permit = current[-1]
            token.cancel("handler")
            if runs % 3 == 0:
                permit.release()
        signal.setitimer(signal.ITIMER_REAL, 5e-6 + RANDOM.random() * 75e-6)

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 1e-3)
    while runs < count:
        token, permit = field.parent.child(), field.manager.permit("b")
        current.append((token, permit))
        try:
            permit.acquire(token)
            field.cycles += 1
            time.sleep(0)
        except RunCancelledError:
            pass
        except RuntimeError as error:
            if "used once" not in str(error):  # the handler came between the making and the use
                raise
        finally:
            permit.release()
        current.clear()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    return {"handler": {"interrupts": runs, "broken": 0, **field.end()}}


STORMS = {"alarm": alarm, "async": raise_into_threads, "handler": handler}


def main() -> int:
    """Run one storm; report."""
    kind, count = sys.argv[1], int(sys.argv[2])
    sys.setswitchinterval(2e-5)
    sys.unraisablehook = lambda _: None  # an exception that lands in a finaliser is reported, and cannot come out
    results = STORMS[kind](count)
    is_right = all(
        result["broken"] == 0 and result["hung"] == 0 and not any(result["left"]) and not result["locked"]
        for result in results.values()
    )
    print(json.dumps({"python": sys.version.split()[0], "right": is_right, **results}), flush=True)  # noqa: T201
    os._exit(0 if is_right else 1)  # threads that hang must not keep the report


if __name__ == "__main__":
    main()
