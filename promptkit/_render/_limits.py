"""What one rendering may spend: counted, not timed, so that a template that works, works on every machine.

Every loop round, macro call, item that a filter goes through, and character that is made anywhere in a
rendering is charged to the `Budget` of the rendering thread before it is spent.
"""

from __future__ import annotations

import threading
from typing import Final, NoReturn

MAX_OUTPUT_CHARS: Final = 2_000_000
"""Longest text of one rendered message."""
MAX_MADE_CHARS: Final = 10_000_000
"""Most characters that one message's rendering may make, in macros, variables and filters as well."""
MAX_STEPS: Final = 500_000
"""Most loop rounds, calls and filtered items of one message's rendering."""
FILE_STEPS: Final = 25
"""Steps that including a file once is charged as; it costs about as much."""
MAX_FILE_BYTES: Final = 1_000_000
"""Largest file that a template may include."""
MAX_FILES: Final = 200
"""Most files that the messages of one prompt may include, directly or not."""
MAX_WIDTH: Final = 1_000
"""Largest width that padding, indenting and formatting take."""
MAX_DEPTH: Final = 100
"""Deepest nesting that ``tojson`` writes."""


class TemplateFaultError(Exception):
    """A template did what it may not. The message names what the template says and never holds a value."""


class Budget(threading.local):
    """What is left for the rendering that this thread is in."""

    def __init__(self) -> None:
        self.steps = 0
        self.chars = 0

    def refill(self) -> None:
        """Begin a rendering."""
        self.steps = MAX_STEPS
        self.chars = MAX_MADE_CHARS

    def spend(self, steps: int, chars: int = 0) -> None:
        """Charge ``steps`` and ``chars``; raises `TemplateFaultError` when they are not there."""
        self.steps -= steps
        self.chars -= chars
        if self.steps < 0 or self.chars < 0:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raise the error of the bound that has been passed."""
        if self.steps < 0:
            raise TemplateFaultError(f"more than {MAX_STEPS} loop rounds, calls and filtered items")
        raise TemplateFaultError(f"more than {MAX_MADE_CHARS} characters made on the way")
