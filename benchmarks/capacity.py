"""What a permit costs, alone and in a crowd, beside the floor that threads themselves set and beside what peers offer.

    python benchmarks/capacity.py [--rounds N] [--quick] [--json FILE]

Every figure is a ratio of two that were measured in the same run, taking turns; a figure of its own says more about
the machine than about the code. The floor of a hand-off is a ring: four tokens that go round among the threads, from
raw lock to raw lock. The peers are what people use instead: `threading.Semaphore` and `queue.Queue`.

``Jain`` is Jain's fairness index of the threads' shares: 1 is equal shares, 1/N is one thread that has everything.
Missing a limit is an exit status of 1. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import queue
import random
import statistics
import sys
import threading
import time
import tracemalloc
from _thread import allocate_lock
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from promptkit._cancel import CancelToken
from promptkit._capacity import Manager, Permit
from promptkit._ledger import CapacityPolicy
from promptkit._wake import Wake
from promptkit.errors import RunCancelledError

PERMITS = 4
STACK_BYTES = 256 * 1024
Act = Callable[[], object]
Runner = Callable[["Crowd", int], None]
"""What one thread of a crowd does, over and over: acquire, hold, release, count."""


def make_manager(queue_capacity: int = 200_000) -> Manager:
    """Return a manager with four permits for ``b``."""
    return Manager({"b": CapacityPolicy(PERMITS, queue_capacity)})


@contextmanager
def small_stacks() -> Iterator[None]:
    """Let threads made here have small stacks, so that a thousand of them fit anywhere."""
    before = threading.stack_size(STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(before)


# ------------------------------------------------------------------------------------------------ uncontended


def time_semaphore(calls: int) -> float:
    """Nanoseconds of an acquire and a release of a `threading.Semaphore` that nobody else wants."""
    semaphore = threading.Semaphore(PERMITS)
    acquire, release = semaphore.acquire, semaphore.release
    start = time.perf_counter_ns()
    for _ in range(calls):
        acquire()
        release()
    return (time.perf_counter_ns() - start) / calls


def time_permit(calls: int, token: CancelToken | None = None) -> float:
    """The same of a permit, in the safe shape, its making included."""
    manager, cancel = make_manager(), token or CancelToken()
    start = time.perf_counter_ns()
    for _ in range(calls):
        permit = manager.permit("b")
        try:
            try:
                permit.acquire(cancel)
            finally:
                permit.release()
        finally:
            permit.release()
    return (time.perf_counter_ns() - start) / calls


def time_permit_of_a_run(calls: int) -> float:
    """The same with the kind of token that a run has: a child with a deadline."""
    return time_permit(calls, CancelToken().child(timeout=3600))


def time_lease(calls: int) -> float:
    """The same of a lease."""
    manager, cancel = make_manager(), CancelToken()
    start = time.perf_counter_ns()
    for _ in range(calls):
        lease = manager.lease("b")
        try:
            try:
                lease.admit(cancel)
            finally:
                lease.release()
        finally:
            lease.release()
    return (time.perf_counter_ns() - start) / calls


# -------------------------------------------------------------------------------------------------- contended


class Crowd:
    """Threads that each acquire, hold and release until they are stopped, and what they got done in a window."""

    def __init__(self, size: int, hold_s: float) -> None:
        self.counts = [0] * size
        self.is_over = False
        self.start = threading.Barrier(size + 1)
        self._hold_s = hold_s

    def hold(self) -> None:
        """Keep the permit: for a moment, or for a while in which others may run."""
        if self._hold_s:
            time.sleep(self._hold_s)

    def measure(self, runners: Sequence[Act], window_s: float, open_gate: Act) -> tuple[float, float]:
        """Return microseconds a cycle, and Jain's index; ``open_gate`` is called when all threads have begun."""
        with small_stacks():
            threads = [threading.Thread(target=runner, daemon=True) for runner in runners]
            for thread in threads:
                thread.start()
        self.start.wait()
        open_gate()
        time.sleep(0.15)
        before, begin = list(self.counts), time.perf_counter()
        time.sleep(window_s)
        after, end = list(self.counts), time.perf_counter()
        self.is_over = True
        for thread in threads:
            thread.join(60)
        done = [late - early for early, late in zip(before, after, strict=True)]
        total = sum(done)
        jain = total * total / (len(done) * sum(each * each for each in done)) if total else 0.0
        return 1e6 * (end - begin) / max(1, total), jain


def crowd_of_ring(size: int, hold_s: float, window_s: float) -> tuple[float, float]:
    """The floor: four rings of raw locks, through which four tokens pass from thread to thread."""
    crowd, length = Crowd(size, hold_s), size // PERMITS
    rings = [[allocate_lock() for _ in range(length)] for _ in range(PERMITS)]
    for ring in rings:
        for lock in ring:
            lock.acquire()

    def runner(ring: list[Any], place: int, number: int) -> Act:
        def run() -> None:
            take, give = ring[place].acquire, ring[(place + 1) % length].release
            crowd.start.wait()
            while True:
                take()
                if crowd.is_over:
                    give()
                    return
                crowd.hold()
                crowd.counts[number] += 1
                give()

        return run

    runners = [
        runner(ring, place, index * length + place) for index, ring in enumerate(rings) for place in range(length)
    ]
    return crowd.measure(runners, window_s, lambda: [ring[0].release() for ring in rings])


def crowd_of(
    make: Callable[[], tuple[Runner, Act, Callable[[], int]]], size: int, hold_s: float, window_s: float
) -> tuple[float, float]:
    """A crowd at something with four permits, all of which are taken until everybody waits."""
    crowd = Crowd(size, hold_s)
    run, open_gate, count_waiting = make()

    def open_when_all_wait() -> None:
        while count_waiting() < size:
            time.sleep(0.002)
        open_gate()

    runners = [lambda number=number: run(crowd, number) for number in range(size)]
    return crowd.measure(runners, window_s, open_when_all_wait)


def make_pool() -> tuple[Runner, Act, Callable[[], int]]:
    """promptkit, in the safe shape."""
    manager = make_manager()
    held = [manager.acquire("b", CancelToken()) for _ in range(PERMITS)]

    def run(crowd: Crowd, number: int) -> None:
        token = CancelToken()
        crowd.start.wait()
        while not crowd.is_over:
            permit = manager.permit("b")
            try:
                try:
                    permit.acquire(token)
                    crowd.hold()
                finally:
                    permit.release()
            finally:
                permit.release()
            crowd.counts[number] += 1

    return run, lambda: [permit.release() for permit in held], lambda: len(manager._pools["b"].ledger.waiting)  # noqa: SLF001  # exact, and free of its lock


def make_semaphore() -> tuple[Runner, Act, Callable[[], int]]:
    """`threading.Semaphore`."""
    semaphore = threading.Semaphore(0)
    waiters = semaphore._cond._waiters  # type: ignore[attr-defined]  # noqa: SLF001  # there is no other way to count them

    def run(crowd: Crowd, number: int) -> None:
        crowd.start.wait()
        while not crowd.is_over:
            with semaphore:
                crowd.hold()
            crowd.counts[number] += 1

    return run, lambda: semaphore.release(PERMITS), lambda: len(waiters)


def make_queue() -> tuple[Runner, Act, Callable[[], int]]:
    """`queue.Queue`, filled with four tokens."""
    tokens: queue.Queue[int] = queue.Queue()
    waiters = tokens.not_empty._waiters  # type: ignore[attr-defined]  # noqa: SLF001  # there is no other way to count them

    def run(crowd: Crowd, number: int) -> None:
        crowd.start.wait()
        while not crowd.is_over:
            token = tokens.get()
            try:
                crowd.hold()
            finally:
                tokens.put(token)
            crowd.counts[number] += 1

    return run, lambda: [tokens.put(1) for _ in range(PERMITS)], lambda: len(waiters)


def count_inversions(size: int) -> int:
    """How many of ``size`` threads that queued one after the other were served before one that had come earlier."""
    manager, token = make_manager(), CancelToken()
    held = [manager.acquire("b", token) for _ in range(PERMITS)]
    served: list[int] = []

    def run(number: int) -> None:
        with manager.acquire("b", token):
            served.append(number)

    threads = []
    with small_stacks():
        for number in range(size):
            thread = threading.Thread(target=run, args=(number,), daemon=True)
            thread.start()
            threads.append(thread)
            while len(manager._pools["b"].ledger.waiting) <= number:  # noqa: SLF001  # exact, and free of its lock
                time.sleep(0.0005)
    held[0].release()  # the others stay taken: what goes through one permit has an order
    for thread in threads:
        thread.join(60)
    for permit in held:
        permit.release()
    return sum(late < early for early, late in pairwise(served))


# ------------------------------------------------------------------------------------- scaling with the queue


class Queued:
    """A full pool with tickets in its queue, as if a thread were parked behind each."""

    def __init__(self, size: int) -> None:
        self.manager = make_manager()
        self.pool = self.manager._pools["b"]  # noqa: SLF001  # a queue of 100,000 without as many threads
        self.token = CancelToken()
        self.held = [self.manager.acquire("b", self.token) for _ in range(PERMITS)]
        self.permits: list[Permit] = []
        self.wakes: list[Wake] = []
        for _ in range(size):
            self.enqueue()

    def enqueue(self) -> None:
        """Do what `Permit.acquire` does up to the wait."""
        permit = self.manager.permit("b")
        permit.stage = 1  # in use
        with self.pool.lock:
            wake = self.pool.new_wake()
            self.pool.ledger.enqueue(permit, wake)
        self.token.watch(permit, self.pool.note)
        self.permits.append(permit)
        self.wakes.append(wake)  # its thread would have it


def time_hand_off(size: int, calls: int = 2000) -> float:
    """Nanoseconds of a release that grants to the oldest of ``size`` tickets."""
    crowd = Queued(size)
    order = [*crowd.held, *crowd.permits]
    times = []
    for number in range(calls):
        start = time.perf_counter_ns()
        order[number].release()
        times.append(time.perf_counter_ns() - start)
        crowd.enqueue()
        order.append(crowd.permits[-1])
    return statistics.median(times)


def time_cancel(size: int, calls: int = 50) -> float:
    """Nanoseconds that it takes to cancel one ticket from the middle of ``size``."""
    crowd = Queued(size)
    middle = len(crowd.permits) // 2 - calls // 2
    times = []
    for permit in crowd.permits[middle : middle + calls]:
        start = time.perf_counter_ns()
        crowd.pool.log(permit)  # what the token calls
        times.append(time.perf_counter_ns() - start)
    assert len(crowd.pool.ledger.waiting) == size - calls
    return statistics.median(times)


def bytes_per_ticket(size: int = 5000) -> float:
    """Traced bytes of one queued ticket, its permit, its Condition and its entry in the token included."""
    Queued(10)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    crowd = Queued(size)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / len(crowd.permits)


# ------------------------------------------------------------------------------------- promptness and idleness


@contextmanager
def on_processor(number: int | None) -> Iterator[None]:
    """Keep the calling thread on one of the processors; None leaves it to the system, as does a system that cannot."""
    if number is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[number % len(before)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def time_ping_pong(here_on: int | None = None, there_on: int | None = None, turns: int = 4000) -> float:
    """Microseconds that a raw lock takes to wake another thread, on the processors given."""
    here, there = allocate_lock(), allocate_lock()
    here.acquire()
    there.acquire()

    def answer() -> None:
        with on_processor(there_on):
            for _ in range(turns):
                there.acquire()
                here.release()

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    with on_processor(here_on):
        start = time.perf_counter_ns()
        for _ in range(turns):
            there.release()
            here.acquire()
        elapsed = time.perf_counter_ns() - start
    thread.join()
    return elapsed / (2 * turns) / 1000


def time_wake_from_sleep(turns: int = 60) -> float:
    """Microseconds that a raw lock takes to wake a thread that has slept for a while, at the median."""
    times = []
    for _ in range(turns):
        gate = allocate_lock()
        gate.acquire()
        woken: list[int] = []

        def run(gate: Any = gate, woken: list[int] = woken) -> None:
            gate.acquire()
            woken.append(time.perf_counter_ns())

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        time.sleep(0.002 + random.random() * 0.005)  # noqa: S311  # until it sleeps, and not in step with anything
        start = time.perf_counter_ns()
        gate.release()
        thread.join()
        times.append((woken[0] - start) / 1000)
    return statistics.median(times)


def time_cancel_to_exception(turns: int = 60) -> float:
    """Microseconds from `CancelToken.cancel` to the exception in the queued caller, at the median."""
    manager = make_manager()
    held = [manager.acquire("b", CancelToken()) for _ in range(PERMITS)]
    times = []
    for _ in range(turns):
        token = CancelToken()
        ended: list[int] = []

        def run(token: CancelToken = token, ended: list[int] = ended) -> None:
            try:
                manager.acquire("b", token)
            except RunCancelledError:
                ended.append(time.perf_counter_ns())

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while not manager._pools["b"].ledger.waiting:  # noqa: SLF001  # exact, and free of its lock
            time.sleep(0.0005)
        time.sleep(0.002 + random.random() * 0.005)  # noqa: S311  # until it sleeps, and not in step with anything
        start = time.perf_counter_ns()
        token.cancel()
        thread.join()
        times.append((ended[0] - start) / 1000)
    for permit in held:
        permit.release()
    return statistics.median(times)


def idle_share(size: int, seconds: float) -> float:
    """The share of one processor that ``size`` waiting callers use."""
    manager, token = make_manager(), CancelToken()
    held = [manager.acquire("b", CancelToken()) for _ in range(PERMITS)]

    def run() -> None:
        with suppress(RunCancelledError):
            manager.acquire("b", token.child(timeout=3600))

    with small_stacks():
        threads = [threading.Thread(target=run, daemon=True) for _ in range(size)]
        for thread in threads:
            thread.start()
    while len(manager._pools["b"].ledger.waiting) < size:  # noqa: SLF001  # exact, and free of its lock
        time.sleep(0.01)
    time.sleep(0.3)
    start_cpu, start = time.process_time(), time.perf_counter()
    time.sleep(seconds)
    share = (time.process_time() - start_cpu) / (time.perf_counter() - start)
    token.cancel()
    for thread in threads:
        thread.join(60)
    for permit in held:
        permit.release()
    return share


# ------------------------------------------------------------------------------------------------------ report


def take_turns(rounds: int, measures: dict[str, Callable[[], Any]]) -> dict[str, list[Any]]:
    """Run each measure ``rounds`` times, one after the other and round again."""
    results: dict[str, list[Any]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            results[name].append(measure())
    return results


class Report:
    """The table, as it is filled, and whether every limit is met."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, name: str, figure: float, *, most: float | None = None, least: float | None = None) -> None:
        """Print a line: a figure and, if there is one, its limit."""
        is_met = (most is None or figure <= most) and (least is None or figure >= least)
        limit = f"<= {most:g}" if most is not None else f">= {least:g}" if least is not None else ""
        self.rows.append({"name": name, "figure": figure, "most": most, "least": least, "met": is_met})
        print(f"{name:<66}{figure:>10.3f}  {limit:<9}{'' if is_met else 'MISSED'}", flush=True)

    @property
    def is_met(self) -> bool:
        """Whether no limit is missed."""
        return all(row["met"] for row in self.rows)


def report_uncontended(report: Report, rounds: int, calls: int) -> None:
    """Nobody waits: beside a semaphore."""
    results = take_turns(
        rounds * 5,
        {
            "semaphore": lambda: time_semaphore(calls),
            "permit": lambda: time_permit(calls),
            "permit of a run": lambda: time_permit_of_a_run(calls),
            "lease": lambda: time_lease(calls),
        },
    )
    medians = {name: statistics.median(times) for name, times in results.items()}
    report.add("semaphore: acquire + release, ns", medians["semaphore"])
    report.add("permit: acquire + release / semaphore", medians["permit"] / medians["semaphore"], most=1.0)
    report.add("permit with a run's token / semaphore", medians["permit of a run"] / medians["semaphore"])
    report.add("lease: admit + release / semaphore", medians["lease"] / medians["semaphore"], most=1.0)


def report_crowds(report: Report, rounds: int, window_s: float, sizes: Sequence[int]) -> None:
    """Everybody waits: beside the ring, and beside the peers."""
    for size in sizes:
        results = take_turns(
            rounds,
            {
                "ring": lambda size=size: crowd_of_ring(size, 0, window_s),
                "pool": lambda size=size: crowd_of(make_pool, size, 0, window_s),
                "semaphore": lambda size=size: crowd_of(make_semaphore, size, 0, window_s),
                "queue.Queue": lambda size=size: crowd_of(make_queue, size, 0, window_s),
            },
        )
        floor = statistics.median(cycle for cycle, _ in results["ring"])
        report.add(f"{size} threads: ring, µs a cycle", floor)
        for name, most, least in (("pool", 2.0, 0.99), ("semaphore", None, None), ("queue.Queue", None, None)):
            cycle = statistics.median(cycle for cycle, _ in results[name])
            jain = statistics.median(jain for _, jain in results[name])
            report.add(f"{size} threads: {name} / ring", cycle / floor, most=most)
            report.add(f"{size} threads: {name}, Jain", jain, least=least)


def report_holding(report: Report, rounds: int, window_s: float, sizes: Sequence[int]) -> None:
    """Permits are held for a millisecond, as by something that does input or output."""
    for size in sizes:
        results = take_turns(
            rounds,
            {
                "ring": lambda size=size: crowd_of_ring(size, 0.001, window_s),
                "pool": lambda size=size: crowd_of(make_pool, size, 0.001, window_s),
                "semaphore": lambda size=size: crowd_of(make_semaphore, size, 0.001, window_s),
                "queue.Queue": lambda size=size: crowd_of(make_queue, size, 0.001, window_s),
            },
        )
        floor = statistics.median(cycle for cycle, _ in results["ring"])
        for name, least in (("pool", 0.9), ("semaphore", None), ("queue.Queue", None)):
            cycle = statistics.median(cycle for cycle, _ in results[name])
            report.add(f"{size} threads, 1 ms: {name}, share of the ring's throughput", floor / cycle, least=least)
            jain = statistics.median(jain for _, jain in results[name])
            report.add(f"{size} threads, 1 ms: {name}, Jain", jain, least=0.99 if name == "pool" else None)


def report_scaling(report: Report, rounds: int) -> None:
    """Long queues cost no more than short ones."""
    results = take_turns(
        rounds,
        {
            "few": lambda: time_hand_off(10),
            "many": lambda: time_hand_off(100_000),
            "cancel few": lambda: time_cancel(100),
            "cancel many": lambda: time_cancel(10_000),
        },
    )
    medians = {name: statistics.median(times) for name, times in results.items()}
    report.add("release and grant: 100,000 queued / 10 queued", medians["many"] / medians["few"], most=1.5)
    report.add("cancel in the middle: 10,000 / 100", medians["cancel many"] / medians["cancel few"], most=1.5)
    report.add("bytes of a queued ticket", bytes_per_ticket(), most=1400)


def report_waiting(report: Report, rounds: int, seconds: float) -> None:
    """Waiting is cheap, and ends promptly."""
    results = take_turns(
        rounds,
        {
            "anywhere": time_ping_pong,
            "apart": lambda: time_ping_pong(0, 1),
            "asleep": time_wake_from_sleep,
            "cancel": time_cancel_to_exception,
        },
    )
    anywhere, apart, asleep, latency = (
        statistics.median(results[name]) for name in ("anywhere", "apart", "asleep", "cancel")
    )
    report.add("raw lock: ping-pong, wherever the threads are put, µs one way", anywhere)
    report.add("raw lock: ping-pong between two processors, µs one way", apart)
    report.add("raw lock: waking a thread that has slept, µs", asleep)
    report.add("cancel to exception of a caller that has slept, µs", latency)
    report.add("cancel to exception / ping-pong wherever the threads are put", latency / anywhere)
    report.add("cancel to exception / ping-pong between two processors", latency / apart, most=15)
    report.add("cancel to exception / waking a thread that has slept", latency / asleep, most=15)
    report.add("1,024 waiting callers, share of a processor", idle_share(1024, seconds), most=0.005)
    report.add("64 queued one by one, served out of turn", count_inversions(64), most=0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (5)")
    parser.add_argument("--quick", action="store_true", help="short windows and small crowds, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    options = parser.parse_args(arguments)
    rounds = 1 if options.quick else options.rounds
    window_s = 0.2 if options.quick else 1.0
    sizes = (16, 64) if options.quick else (16, 64, 256, 1024)
    report = Report()
    print(f"Python {sys.version.split()[0]}, {PERMITS} permits, medians of {rounds} rounds that take turns")
    report_uncontended(report, rounds, 2000 if options.quick else 15_000)
    report_crowds(report, rounds, window_s, sizes)
    report_holding(report, rounds, window_s, sizes[1:3])
    report_scaling(report, rounds)
    report_waiting(report, rounds, 0.5 if options.quick else 3.0)
    if options.json:
        options.json.write_text(json.dumps({"python": sys.version, "rows": report.rows}, indent=2), encoding="utf-8")
    return 0 if report.is_met else 1


if __name__ == "__main__":
    sys.exit(main())
