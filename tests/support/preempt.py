"""A deterministic scheduler on real threads and real primitives: it says where a thread is preempted.

`explore` runs a scenario again and again. Each time one thread runs a given number of lines and is frozen there, the
others run to their ends or until they are blocked, and then the frozen one goes on; over all orders of the threads and
all numbers of lines (with ``preemptions=2``, a second thread is frozen in the same way). Nothing is patched, so every
failure is a real execution, and its schedule is in the message: `replay` runs that one alone.

What it cannot see: what two preemptions more would show, and what happens between two instructions of a line. A
thread that is silent for ``QUIET_S``, and off the processor, counts as blocked; if that is wrong, it loses coverage
and nothing else.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.clock import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

FILES = (
    "promptkit/_capacity.py",
    "promptkit/_pool.py",
    "promptkit/_ledger.py",
    "promptkit/_cancel.py",
    "promptkit/_wake.py",
)
"""Ends of the files whose lines count; those of `threading` that they call count as well."""

QUIET_S = 0.004

Schedule = list[tuple[int, int | None]]
"""Which thread runs next, and how many lines of it; None for as many as it can."""


class _Puppet:
    """A thread that stops before each line until it is given leave to run more."""

    def __init__(self, act: Callable[[Any], object], scene: Any) -> None:
        self.is_done = False
        self.error: BaseException | None = None
        self.place = "its start"
        self._act, self._scene = act, scene
        self._change = threading.Condition()
        self._leave: int | None = 0  # lines that it may run; None for any number
        self._is_frozen = False
        self._lines = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._stop_if_spent()
            sys.settrace(self._trace)
            self._act(self._scene)
        except BaseException as error:  # noqa: BLE001  # raised again by the explorer
            self.error = error
        finally:
            sys.settrace(None)
            with self._change:
                self.is_done = True
                self._change.notify_all()

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        caller: FrameType | None = frame
        while caller is not None and caller.f_code.co_filename == threading.__file__:
            caller = caller.f_back
        if caller is None or not caller.f_code.co_filename.endswith(FILES):
            return None
        if event == "line":
            self.place = f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}"
            self._lines += 1
            self._stop_if_spent()
        return self._trace

    def _stop_if_spent(self) -> None:
        with self._change:
            while self._leave is not None and self._leave <= 0:
                self._is_frozen = True
                self._change.notify_all()
                self._change.wait()
            self._is_frozen = False
            if self._leave is not None:
                self._leave -= 1

    def run(self, lines: int | None) -> str:
        """Let it run so many lines; return ``frozen`` after them, ``done`` at its end, ``blocked`` if it is silent."""
        with self._change:
            self._leave = lines
            self._is_frozen = False
            self._change.notify_all()
            while True:
                before = self._lines
                self._change.wait_for(lambda: self.is_done or self._is_frozen, QUIET_S)
                if self.is_done:
                    return "done"
                if self._is_frozen:
                    return "frozen"
                if self._lines == before and self._is_asleep():
                    self._leave = 0  # it stops at its next line
                    return "blocked"

    def _is_asleep(self) -> bool:
        """Tell a thread that is blocked from one that only gets no processor, where the system says so (Linux)."""
        try:
            status = Path(f"/proc/self/task/{self.thread.native_id}/stat").read_text(encoding="ascii")
        except OSError:
            return True
        return not status.rpartition(")")[2].lstrip().startswith("R")

    def free(self) -> None:
        """Let it run to its end."""
        with self._change:
            self._leave = None
            self._change.notify_all()


def replay(
    make: Callable[[], Any], acts: Sequence[Callable[[Any], object]], check: Callable[[Any], object], schedule: Schedule
) -> list[str]:
    """Run one schedule on a fresh scene; return how each of its steps ended. `AssertionError` if anything is wrong."""
    scene = make()
    puppets = [_Puppet(act, scene) for act in acts]
    steps: list[str] = []
    log: list[str] = []
    for index, lines in schedule:
        steps.append(puppets[index].run(lines))
        log.append(f"{acts[index].__name__} {steps[-1]} at {puppets[index].place}")
    for puppet in puppets:
        puppet.free()
    end = time.monotonic() + HANG_S
    for puppet in puppets:
        puppet.thread.join(max(0.0, end - time.monotonic()))
    story = f"schedule {schedule}: {'; '.join(log)}"
    stuck = [
        f"{act.__name__} at {puppet.place}" for act, puppet in zip(acts, puppets, strict=True) if not puppet.is_done
    ]
    if stuck:
        raise AssertionError(f"never ends: {', '.join(stuck)} | {story}")
    for puppet in puppets:
        if puppet.error is not None:
            raise AssertionError(f"{puppet.error!r} | {story}") from puppet.error
    try:
        check(scene)
    except AssertionError as error:
        raise AssertionError(f"{error} | {story}") from error
    return steps


def explore(
    make: Callable[[], Any],
    acts: Sequence[Callable[[Any], object]],
    check: Callable[[Any], object],
    *,
    first: Sequence[int] = (),
    bystanders: Sequence[int] = (),
    preemptions: int = 1,
) -> int:
    """Run all schedules; return how many there were.

    ``make`` returns a fresh scene, each of ``acts`` is run with it in a thread of its own, ``check`` asserts at the
    end. The threads of ``first`` run before anything else, until they are done or blocked: callers that wait in a
    queue. Those of ``bystanders`` are not preempted, and not part of the order.
    """
    runs = 0
    start: Schedule = [(index, None) for index in first]

    def search(prefix: Schedule, order: tuple[int, ...], position: int) -> None:
        nonlocal runs
        rest: Schedule = [(index, None) for index in order[position + 1 :]]
        for lines in itertools.count(1):
            here: Schedule = [*prefix, (order[position], lines)]
            runs += 1
            steps = replay(make, acts, check, [*here, *rest, (order[position], None)])
            if position + 1 < min(preemptions, len(order)):
                search(here, order, position + 1)
            if steps[len(here) - 1] != "frozen":
                return

    for order in itertools.permutations(index for index in range(len(acts)) if index not in bystanders):
        search(start, order, 0)
    return runs
