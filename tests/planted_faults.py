"""Plants faults in the capacity code, one by one, and shows that the tests find each of them.

    python tests/planted_faults.py             # all of them: a few minutes
    python tests/planted_faults.py barging     # those whose name has that word

Each fault is a change of one place of the source. It is made in a copy of the package, and the tests that are to find
it are run against the copy. Exits with 1 if a fault goes unnoticed.
"""

# ruff: noqa: E501  # what is looked for in the source stands on one line, as it does there

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
UNITS = ("tests/test_ledger.py", "tests/test_capacity.py", "tests/test_cancel.py", "tests/test_wake.py")
STATES = ("tests/stateful/test_ledger_machine.py", "tests/stateful/test_manager_machine.py")
EXHAUSTIVE = ("tests/stateful/test_ledger_exhaustive.py",)
RACES = ("tests/concurrency/test_interleavings.py",)
INTERRUPTS = ("tests/concurrency/test_interrupts.py",)
FORKS = ("tests/concurrency/test_fork.py",)
LIMITS = ("-p", "no:cacheprovider", "-o", "faulthandler_timeout=30", "-o", "faulthandler_exit_on_timeout=true")
"""A test that hangs, though no helper bounds it, is a failure as well."""


class Fault(NamedTuple):
    """One change, and the tests that must fail by it."""

    name: str
    module: str
    right: str
    wrong: str
    tests: tuple[str, ...]


FAULTS = [
    Fault(
        "lost permit on cancel after grant",
        "_capacity",
        '            if is_mine:\n                self.release()\n            raise\n\n    def release(self) -> None:\n        """Pass',
        '            self.stage = OVER\n            raise\n\n    def release(self) -> None:\n        """Pass',
        RACES,
    ),
    Fault(
        "deadline wins over a grant that was made",
        "_pool",
        "                    fate = ticket in ledger.held\n",
        "                    fate = ticket in ledger.held and not is_late\n",
        UNITS,
    ),
    Fault(
        "missed wake-up: what comes before the sleep is forgotten",
        "_wake",
        "        try:\n            if timeout is None:\n",
        "        self._bed.acquire(blocking=False)\n        try:\n            if timeout is None:\n",
        RACES,
    ),
    Fault(
        "cancel wins over a grant that was made",
        "_ledger",
        "        if ticket in self.held:\n            return\n        wake",
        "        wake",
        (*EXHAUSTIVE, *UNITS),
    ),
    Fault(
        "barging: a newcomer takes what is free",
        "_ledger",
        "if len(held) < self.concurrency_limit and not self.waiting:",
        "if len(held) < self.concurrency_limit:",
        EXHAUSTIVE,
    ),
    Fault(
        "last come, first served",
        "_ledger",
        "next(iter(waiting))",
        "next(reversed(waiting))",
        STATES,
    ),
    Fault(
        "double release gives back another's permit",
        "_ledger",
        "        self.held.pop(ticket, None)\n\n    def cancel",
        "        if self.held:\n            self.held.popitem()\n\n    def cancel",
        STATES,
    ),
    Fault(
        "double release: over before it is given back",
        "_capacity",
        "            if self.stage == FRESH or self not in ledger.held",
        "            stage, self.stage = self.stage, OVER\n            if stage == FRESH or self not in ledger.held",
        INTERRUPTS,
    ),
    Fault("missed wake-up: the grant tells nobody", "_ledger", "self._notify(waiting[ticket])", "pass", RACES),
    Fault(
        "missed wake-up: the grant takes out before it tells",
        "_ledger",
        "            self._notify(waiting[ticket])\n            del waiting[ticket]\n",
        "            self._notify(waiting.pop(ticket))\n",
        INTERRUPTS,
    ),
    Fault(
        "a ticket that has been told is told again, which is an error",
        "_wake",
        "        except RuntimeError as error:",
        "        except KeyError as error:",
        (*UNITS, *INTERRUPTS),
    ),
    Fault(
        "missed wake-up: the release does not look at the queue",
        "_capacity",
        "                if ledger.waiting:\n                    pool.withdraw(self)",
        "",
        RACES,
    ),
    Fault(
        "missed wake-up: who queues does not look for room",
        "_ledger",
        "self.waiting[ticket] = wake\n        return len(self.held) < self.concurrency_limit",
        "self.waiting[ticket] = wake\n        return False",
        RACES,
    ),
    Fault(
        "missed wake-up: the cancel tells nobody",
        "_ledger",
        "            self._notify(wake)\n            del self.waiting[ticket]\n",
        "            del self.waiting[ticket]\n",
        RACES,
    ),
    Fault(
        "missed wake-up: the withdrawal tells nobody",
        "_ledger",
        "            self._notify(wake)\n        self.leases.pop(ticket, None)\n",
        "            pass\n        self.leases.pop(ticket, None)\n",
        UNITS,
    ),
    Fault(
        "missed wake-up: the cancel takes out before it tells",
        "_ledger",
        "            self._notify(wake)\n            del self.waiting[ticket]\n",
        "            del self.waiting[ticket]\n            self._notify(wake)\n",
        INTERRUPTS,
    ),
    Fault(
        "missed cancel: looked before it was entered",
        "_cancel",
        "        self._watchers[key] = call\n",
        "        if self._cancelled_token() is not None:\n            call(key)\n        self._watchers[key] = call\n        return\n",
        RACES,
    ),
    Fault(
        "missed cancel: a handler's note is not read before the sleep",
        "_wake",
        "        while self._log:\n            self._settle()\n",
        "",
        UNITS,
    ),
    Fault(
        "lost permit: what is logged is forgotten before it is granted",
        "_pool",
        "            ledger.grant()\n            intents.popleft()\n",
        "            intents.popleft()\n            ledger.grant()\n",
        INTERRUPTS,
    ),
    Fault(
        "lost permit: a release looks at the queue twice",
        "_capacity",
        "            elif ledger.waiting and not pool.is_owned():\n                with pool.lock:\n                    ledger.grant(self)\n"
        "            else:\n                ledger.give_back(self)\n",
        "            else:\n                if not ledger.waiting:\n                    ledger.give_back(self)\n",
        RACES,
    ),
    Fault(
        "a callback is called twice",
        "_cancel",
        "                self._claim.pop()\n",
        "                self._claim.copy()\n",
        UNITS,
    ),
    Fault(
        "a watcher is left in the parent",
        "_cancel",
        "            for token in self._ancestors:\n                token._watchers.pop(key, None)\n",
        "            pass\n",
        UNITS,
    ),
    Fault(
        "a watcher is left behind by an exception",
        "_capacity",
        "            if wake is not None:\n                cancel.unwatch(self)\n            if is_mine:",
        "            if is_mine:",
        INTERRUPTS,
    ),
    Fault(
        "one permit too many",
        "_ledger",
        "if len(held) < self.concurrency_limit and",
        "if len(held) <= self.concurrency_limit and",
        EXHAUSTIVE,
    ),
    Fault(
        "one grant too many",
        "_ledger",
        "                if len(held) >= self.concurrency_limit:\n                    return\n",
        "                if len(held) > self.concurrency_limit:\n                    return\n",
        EXHAUSTIVE,
    ),
    Fault(
        "one lease too many",
        "_ledger",
        "if len(leases) >= self.admission_limit",
        "if len(leases) > self.admission_limit",
        EXHAUSTIVE,
    ),
    Fault(
        "a lease is checked and taken outside the lock",
        "_capacity",
        "                is_mine = True\n                is_admitted = pool.ledger.admit(self)\n",
        "                is_mine = True\n            is_admitted = pool.ledger.admit(self)\n",
        RACES,
    ),
    Fault(
        "a permit is checked and taken outside the lock",
        "_capacity",
        "                if ledger.waiting or not ledger.request(self):  # a queue is seen without a call\n",
        "                pool.lock.release()\n                is_granted = ledger.request(self)\n                pool.lock.acquire()\n"
        "                if not is_granted:\n",
        RACES,
    ),
    Fault(
        "a forgotten permit stays away",
        "_capacity",
        "        claim._guard = weakref.ref(self, claim._forget)\n",
        "        claim._guard = weakref.ref(self)\n",
        STATES,
    ),
    Fault(
        "double release: over before it is withdrawn",
        "_pool",
        "            self.ledger.withdraw(ticket)\n            self.ledger.grant()\n            ticket.stage = OVER",
        "            ticket.stage = OVER\n            self.ledger.withdraw(ticket)\n            self.ledger.grant()",
        INTERRUPTS,
    ),
    Fault(
        "a permit is granted to the ticket that gives it back",
        "_ledger",
        "        if ticket is not given_back and ticket not in held:\n",
        "        if ticket not in held:\n",
        INTERRUPTS,
    ),
    Fault(
        "a callback that was called early stays in the parent",
        "_cancel",
        "            self.remove()\n            return\n",
        "            return\n",
        RACES,
    ),
    Fault(
        "a handler opens books that are open",
        "_pool",
        "Callable[[], bool] = self.lock._is_owned ",
        "Callable[[], bool] = bool ",
        UNITS,
    ),
    Fault(
        "an interrupted wait comes out without the lock",
        "_wake",
        "            self.acquire()\n",
        "            pass\n",
        INTERRUPTS,
    ),
    Fault(
        "fork: the child keeps its parent's pools",
        "_pool",
        "    for pool in _pools:\n        pool.start_anew()\n",
        "    pass\n",
        FORKS,
    ),
    Fault(
        "fork: the child's lock stays with a thread of its parent",
        "_pool",
        "            self.lock._at_fork_reinit() ",
        "            pass",
        FORKS,
    ),
    Fault(
        "fork: the child sleeps on, in a queue of its parent's",
        "_pool",
        "        for wake in self.ledger.waiting.values():\n            wake.notify()\n",
        "",
        FORKS,
    ),
    Fault(
        "fork: the child goes to sleep, in a queue of its parent's",
        "_capacity",
        "fate = ledger is pool.ledger and pool",
        "fate = pool",
        FORKS,
    ),
    Fault(
        "lost permit: a handler's note is left behind by its exception",
        "_capacity",
        "        if pool.intents:  # also when it was over",
        "        if pool.intents and not self._pool:  # also when it was over",
        INTERRUPTS,
    ),
    Fault(
        "a handler's exception is taken for the lock's own",
        "_wake",
        "# raised by a signal handler\n                raise\n",
        "# raised by a signal handler\n                pass\n",
        UNITS,
    ),
    Fault(
        "time is not charged for waiting",
        "_pool",
        "self.clock.wait(wake, until)",
        "self.clock.wait(wake, None if until else None)",
        ("tests/test_capacity.py::test_waiting_works_on_the_machines_clock",),
    ),
    Fault(
        "the last reason counts",
        "_cancel",
        "        return token._reasons[0] if token is not None else None",
        "        return token._reasons[-1] if token is not None else None",
        RACES,
    ),
]


def is_found(fault: Fault) -> bool:
    """Make the change in a copy, run the tests; say whether they fail."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "promptkit", copy / "promptkit", ignore=shutil.ignore_patterns("__pycache__"))
        module = copy / "promptkit" / f"{fault.module}.py"
        source = module.read_text(encoding="utf-8")
        if source.count(fault.right) != 1:
            raise SystemExit(f"{fault.name}: its place occurs {source.count(fault.right)} times in {module.name}")
        module.write_text(source.replace(fault.right, fault.wrong), encoding="utf-8")
        # "Safe path": the working directory, with the right package in it, must not come first.
        environment = dict(
            os.environ, PYTHONPATH=folder, PROMPTKIT_HANG_S="3", PYTHONDONTWRITEBYTECODE="1", PYTHONSAFEPATH="1"
        )
        command = [sys.executable, "-m", "pytest", "-x", *LIMITS, *fault.tests]
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if run.returncode not in (0, 1) or (run.returncode == 0 and f"promptkit: {folder}" not in run.stdout):
            raise SystemExit(f"{fault.name}: the tests could not be run\n{run.stdout}{run.stderr}")
        return run.returncode == 1


def main() -> int:
    """Plant what the arguments name, or everything."""
    words = sys.argv[1:]
    missed = []
    for fault in FAULTS:
        if words and not any(word in fault.name for word in words):
            continue
        start = time.monotonic()
        found = is_found(fault)
        if not found:
            missed.append(fault.name)
        print(f"{'found ' if found else 'MISSED'} {time.monotonic() - start:6.1f} s  {fault.name}", flush=True)  # noqa: T201
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
