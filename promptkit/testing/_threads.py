"""A thread for tests: joined in bounded time, and what it raises is raised again where its result is asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from promptkit.testing._clock import WAIT_LIMIT_S


class Worker:
    """Runs ``function(*args, **kwargs)`` in a thread of its own, started at once.

    ``thread`` is the thread and ``error`` what it has raised, None so far or for good.
    """

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
            del self._call, function, args, kwargs  # a thread that has ended keeps nothing alive

    def join(self, timeout: float = WAIT_LIMIT_S) -> None:
        """Block until the thread has ended. Raises `AssertionError` when it has not, after ``timeout`` seconds."""
        self.thread.join(timeout)
        if self.thread.is_alive():
            raise AssertionError(f"the thread is still running after {timeout:g} s")

    def result(self, timeout: float = WAIT_LIMIT_S) -> Any:
        """Return what the function returned, or raise what it raised. Blocks as `join` does."""
        self.join(timeout)
        if self.error is not None:
            raise self.error
        return self._value
