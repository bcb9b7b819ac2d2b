"""How hard Hypothesis searches (HYPOTHESIS_PROFILE: ``ci``, the default and repeatable, or ``long``), and on what."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from hypothesis import HealthCheck, settings

import promptkit

settings.register_profile(
    "ci",
    deadline=None,  # a busy machine is no failure
    derandomize=True,  # the same change gives the same answer
    database=None,
    max_examples=60,
    print_blob=True,
)
settings.register_profile(
    "long",
    deadline=None,
    max_examples=1000,
    stateful_step_count=100,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure() -> None:
    """Let Ctrl-C be Ctrl-C: a shell starts its background jobs with SIGINT ignored, and children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    """Say which promptkit is tested: the installed one in the test session, the source tree in an editor."""
    return f"promptkit: {Path(promptkit.__file__).parent}"
