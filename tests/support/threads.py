"""Threads for tests: joined in bounded time, and what they raise is raised again in the test."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from support.clock import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable


class Worker:
    """Runs ``function(*args, **kwargs)`` in a thread of its own, started at once."""

    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._call = (function, args, kwargs)
        self._value: Any = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        function, args, kwargs = self._call
        try:
            self._value = function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001  # raised again by result()
            self.error = error
        finally:
            del self._call, function, args, kwargs

    def join(self, timeout: float = HANG_S) -> None:
        """Wait for the thread's end; an `AssertionError` says that it hangs."""
        self.thread.join(timeout)
        assert not self.thread.is_alive(), f"the thread is still running after {timeout:g} s"

    def result(self, timeout: float = HANG_S) -> Any:
        """Return what the function returned, or raise what it raised."""
        self.join(timeout)
        if self.error is not None:
            raise self.error
        return self._value
