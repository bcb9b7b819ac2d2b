"""Threads for tests, as applications have them too, and a way out for the main thread, which nobody joins."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from promptkit.testing import Worker
from support.clock import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Worker", "rescued"]


@contextmanager
def rescued(rescue: Callable[[], object]) -> Iterator[None]:
    """Run the block in this thread; if it hangs, call ``rescue`` in another one and fail.

    For what must run in the main thread because signal handlers do.
    """
    is_done = threading.Event()
    rescues: list[str] = []

    def watch() -> None:
        if not is_done.wait(HANG_S):
            rescues.append("the block hung and had to be ended from outside")
            rescue()

    watcher = Worker(watch)
    try:
        yield
    finally:
        is_done.set()
        watcher.result()
        assert not rescues, rescues[0]
