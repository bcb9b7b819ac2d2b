"""Storms of real exceptions, in their short form; ``PROMPTKIT_STORMS=full`` runs them at full length."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import promptkit

IS_FULL = os.environ.get("PROMPTKIT_STORMS") == "full"
SCRIPT = Path(__file__).parent.parent / "storms.py"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGALRM")
@pytest.mark.parametrize(
    ("kind", "short", "full"), [("alarm", 1500, 100_000), ("async", 200, 20_000), ("handler", 1000, 50_000)]
)
def test_a_storm_of_exceptions_loses_no_permit(kind: str, short: int, full: int) -> None:
    """Ctrl-C, exceptions set from another thread, and handlers that cancel: nothing lost, nobody hangs."""
    count = full if IS_FULL else short
    # Not measured for coverage: an exception in the tracer itself would be lost, and every line is slower.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    environment["PYTHONPATH"] = str(Path(promptkit.__file__).parent.parent)
    run = subprocess.run(  # in a process of its own: an alarm must not hit the test runner
        [sys.executable, str(SCRIPT), kind, str(count)],
        capture_output=True,
        text=True,
        timeout=3600 if IS_FULL else 120,
        env=environment,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads(run.stdout)
    assert report["right"] is True
    for name, result in report.items():
        if isinstance(result, dict):
            assert result["interrupts"] >= count // 3, name
            assert result["cycles"] > 0, name
