"""Raises an exception, or calls a handler, at every point of a piece of code where CPython can do that by itself.

CPython looks for signals and ``PyThreadState_SetAsyncExc`` when a Python function is entered and when a call of a C
function has returned; a signal also interrupts a blocking ``lock.acquire``. These are what `sys.setprofile` reports, so
a profile function that raises at the n-th of them, for every n, is every place where Ctrl-C can land (once).
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from support.clock import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

CODE = (
    "promptkit/_capacity.py",
    "promptkit/_pool.py",
    "promptkit/_ledger.py",
    "promptkit/_cancel.py",
    "promptkit/_clock.py",
    "promptkit/_wake.py",
)
"""Ends of the files whose points count; what they call of `threading` counts as well."""


class InjectedError(KeyboardInterrupt):
    """What is raised: like Ctrl-C, it is no `Exception`."""


def be_interrupted() -> None:
    """Do what Ctrl-C does."""
    raise InjectedError


class _Injector:
    def __init__(self, point: int, code: tuple[str, ...], do: Callable[[], object]) -> None:
        self.countdown = point
        self.place: str | None = None
        self._code = code
        self._do = do

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        caller: FrameType | None = frame
        while caller is not None and caller.f_code.co_filename == threading.__file__:
            caller = caller.f_back
        if caller is None or not caller.f_code.co_filename.endswith(self._code):
            return
        if event == "call":
            self._arrive(frame, "entry")
        elif event == "c_return":
            self._arrive(frame, f"after {argument.__name__}")
        elif event == "c_call" and argument.__name__ == "acquire":
            self._arrive(frame, "inside acquire")

    def _arrive(self, frame: FrameType, what: str) -> None:
        self.countdown -= 1
        if self.countdown == 0:
            sys.setprofile(None)
            code = frame.f_code
            self.place = f"{code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno} {code.co_name}, {what}"
            self._do()


class Interrupted:
    """Runs ``act`` in a thread of its own, with the exception at its ``point``-th point.

    ``code`` are the ends of the files whose points count. ``place`` says where that was, None if ``act`` has fewer
    points; ``error`` what came out, without its traceback, as a caller has it who has dealt with it. Something else may
    be done there: then ``do`` is called in place of raising, as a signal handler is.
    """

    def __init__(
        self,
        act: Callable[[], object],
        point: int,
        *,
        code: tuple[str, ...] = CODE,
        do: Callable[[], object] = be_interrupted,
    ) -> None:
        self._injector = _Injector(point, code, do)
        self.error: BaseException | None = None
        thread = threading.Thread(target=self._run, args=(act,), daemon=True)
        thread.start()
        thread.join(HANG_S)
        if thread.is_alive():
            raise AssertionError(f"hangs after an exception at {self.place}")

    @property
    def place(self) -> str | None:
        """Where the exception was raised."""
        return self._injector.place

    def _run(self, act: Callable[[], object]) -> None:
        try:
            sys.setprofile(self._injector)
            try:
                act()
            finally:
                sys.setprofile(None)
        except BaseException as error:  # noqa: BLE001  # whatever comes out is what the test asks about
            error.__context__ = None
            self.error = error.with_traceback(None)


def points() -> Iterator[int]:
    """Count from one; the test stops when there is no such point any more."""
    yield from range(1, 5000)
    raise AssertionError("the code under test does not come to an end")
