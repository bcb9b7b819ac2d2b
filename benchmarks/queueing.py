"""A thousand threads at one backend that takes sixteen: how long, how many at once, in which order, at what cost.

    python benchmarks/queueing.py [--threads N]

The server, in a process of its own, needs 0.2 s for each answer and counts what it has in flight. Every contender
runs in a fresh process. The ideal is the rounds of sixteen, one after the other without a gap: 63 x 0.2 s for a
thousand. Limits, for ``engine.run``: at most 1.03 of the ideal, exactly sixteen in flight at most, everybody
answered, in the order of their tickets, at most 1.8 s of CPU and 55 MB of memory at its peak. Missing one is an exit
status of 1. Beside it, when it is installed: the OpenAI SDK behind a semaphore.

A ticket's time is worked out from what the observer hears (the moment, less the time with a permit and the wait for
it). Threads that queue within a few milliseconds of each other cannot be told apart that way, so a run counts as out
of turn only if another was served before it that had come more than ``SLACK_S`` later.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common.loopback import running, stats
from common.prompt import INPUTS, messages, write_files

LATENCY_S = 0.2
LIMIT = 16
SLACK_S = 0.02
MOST = {
    "times the ideal": 1.03,
    "most in flight": LIMIT,
    "out of turn": 0,
    "unanswered": 0,
    "CPU s": 1.8,
    "peak MB": 55,
}
STACK_BYTES = 256 * 1024

Ask = Callable[[int], "tuple[float, float] | None"]


def through_engine(address: str, folder: Path, threads: int) -> Ask:
    """``engine.run`` on a backend with a limit; returns when the ticket was taken and when the permit came."""
    from promptkit import Backend, Engine, RunRequest

    write_files(folder)
    backend = Backend("local", endpoint=f"{address}/v1", concurrency_limit=LIMIT, queue_capacity=threads)
    engine = Engine(prompts=folder / "prompts", profiles=folder / "profiles", backends=[backend])

    def ask(number: int) -> tuple[float, float]:
        times: list[tuple[float, float]] = []

        def observe(event: Any) -> None:
            granted = time.monotonic() - event.generation_s
            times.append((granted - event.queued_s, granted))

        engine.run(RunRequest("invoice", inputs={**INPUTS, "number": number}), observer=observe)
        return times[0]

    return ask


def through_openai(address: str, _folder: Path, _threads: int) -> Ask:
    """The OpenAI SDK behind a semaphore."""
    import openai

    client = openai.OpenAI(base_url=f"{address}/v1", api_key="key-1", max_retries=0, timeout=600)
    permits = threading.BoundedSemaphore(LIMIT)

    def ask(number: int) -> None:
        turns: Any = messages(number)
        with permits:
            client.chat.completions.create(model="m1", messages=turns)

    return ask


CONTENDERS = {"promptkit: engine.run": through_engine, "openai behind a semaphore": through_openai}


def out_of_turn(times: Sequence[tuple[float, float]]) -> int:
    """Count the runs that got their permit after one that had come more than the slack later."""
    by_permit = sorted(times, key=lambda pair: pair[1])
    latest = -math.inf
    count = 0
    for ticket, _ in by_permit:
        count += ticket < latest - SLACK_S
        latest = max(latest, ticket)
    return count


def compete(name: str, address: str, threads: int) -> dict[str, float]:
    """Run one contender in this process; return its figures."""
    with tempfile.TemporaryDirectory() as folder:
        ask = CONTENDERS[name](address, Path(folder), threads)
        ask(0)  # imports, compiling, a first connection
        stats(address)
        times: list[tuple[float, float] | None] = []
        ready = threading.Event()

        def work(number: int) -> None:
            ready.wait()
            times.append(ask(number))

        threading.stack_size(STACK_BYTES)
        workers = [threading.Thread(target=work, args=(number,)) for number in range(1, threads + 1)]
        for worker in workers:
            worker.start()
        cpu, began = time.process_time(), time.monotonic()
        ready.set()
        for worker in workers:
            worker.join()
        took, cpu = time.monotonic() - began, time.process_time() - cpu
    ideal = math.ceil(threads / LIMIT) * LATENCY_S
    figures = {
        "times the ideal": took / ideal,
        "most in flight": stats(address)["peak"],
        "unanswered": threads - len(times),
        "CPU s": cpu,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    known = [pair for pair in times if pair is not None]
    return {**figures, "out of turn": out_of_turn(known)} if known else figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1000, help="calling threads (1000)")
    parser.add_argument("--contender", nargs=2, metavar=("NAME", "ADDRESS"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.contender:
        print(json.dumps(compete(*options.contender, options.threads)))
        return 0
    results: dict[str, dict[str, float]] = {}
    for name in CONTENDERS:
        with running(LATENCY_S) as address:
            command = [sys.executable, __file__, "--threads", str(options.threads), "--contender", name, address]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        if done.returncode == 0:
            results[name] = json.loads(done.stdout)
        else:
            print(f"{name}: not measured")
    print(f"\n{options.threads} threads, {LIMIT} at once, {LATENCY_S} s each")
    print(f"{'':<28}" + "".join(f"{name:>17}" for name in MOST))
    for name, figures in [("limit", MOST), *results.items()]:
        print(f"{name:<28}" + "".join(f"{figures[key]:>17.4g}" if key in figures else f"{'-':>17}" for key in MOST))
    ours = results.get("promptkit: engine.run")
    if ours is None:
        return 1
    return 0 if all(ours[key] <= most for key, most in MOST.items()) and ours["most in flight"] == LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
