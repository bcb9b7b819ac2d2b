"""What one rendering may spend: counted, not timed, so that a template that works, works on every machine.

Every loop round, macro call, item that a filter goes through, and character that is made anywhere in a
rendering is charged to the `Budget` of the rendering thread before it is spent.
"""

from __future__ import annotations

import threading
from typing import Final

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


class _Left:
    __slots__ = ("chars", "steps")

    def __init__(self) -> None:
        self.steps = MAX_STEPS
        self.chars = MAX_MADE_CHARS


class Budget:
    """What is left for the rendering that each thread is in; nothing is kept of a thread that renders no more.

    A thread that waits in a queue has rendered, and a `threading.local` would stay with it.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left: dict[int, _Left] = {}  # by thread; each has one entry, and touches no other

    def begin(self) -> _Left | None:
        """Begin a rendering with all there is; `end` takes what this returns, the one that it interrupts."""
        thread = threading.get_ident()
        outer = self._left.get(thread)
        self._left[thread] = _Left()
        return outer

    def end(self, outer: _Left | None) -> None:
        """End a rendering."""
        thread = threading.get_ident()
        if outer is None:
            self._left.pop(thread, None)
        else:
            self._left[thread] = outer

    def spend(self, steps: int, chars: int = 0) -> None:
        """Charge ``steps`` and ``chars``; raises `TemplateFaultError` when they are not there."""
        left = self._left[threading.get_ident()]
        left.steps -= steps
        left.chars -= chars
        if left.steps < 0:
            raise TemplateFaultError(f"more than {MAX_STEPS} loop rounds, calls and filtered items")
        if left.chars < 0:
            raise TemplateFaultError(f"more than {MAX_MADE_CHARS} characters made on the way")
