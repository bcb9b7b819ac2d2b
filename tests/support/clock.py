"""The clock that tests move, as applications have it too, and how patient the tests are."""

import os

from promptkit.testing import FakeClock
from promptkit.testing._clock import WAIT_LIMIT_S

HANG_S = float(os.environ.get("PROMPTKIT_HANG_S", WAIT_LIMIT_S))
"""How long a helper of the tests waits for what must happen at once, before it says that it hangs."""

__all__ = ["HANG_S", "FakeClock"]
