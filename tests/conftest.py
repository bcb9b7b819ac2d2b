"""How hard Hypothesis searches: HYPOTHESIS_PROFILE is ``ci`` (the default; repeatable) or ``long``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

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
