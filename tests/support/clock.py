"""The clock that tests move, as applications have it too."""

from promptkit.testing import FakeClock
from promptkit.testing._clock import WAIT_LIMIT_S as HANG_S

__all__ = ["HANG_S", "FakeClock"]
