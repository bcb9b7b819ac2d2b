"""How the command speaks and how it ends: two streams, one table of exit codes, no traceback for a user's error.

Guarantees: data goes to stdout as UTF-8 whatever the locale, text for people to stderr without markup, emoji codes
or control characters of somebody else's; a reader that has gone, a full disk and Ctrl-C end the command as quietly
as other programs end; only a fault of promptkit's own shows a traceback.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from enum import IntEnum
from typing import IO, Any, Final, NoReturn

import click
from rich.console import Console

from promptkit import CancelToken
from promptkit.errors import (
    CapacityExceededError,
    ConfigError,
    CredentialError,
    DocumentError,
    GenerationError,
    InvalidRequestError,
    OutputValidationError,
    PromptKitError,
    RunCancelledError,
)

MAX_ANSWER_SHOWN: Final = 2000
"""How much of an invalid answer a person is shown, in characters."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Exit(IntEnum):
    """The exit codes; documented in `promptkit.cli`."""

    OK = 0
    PROBLEMS = 1
    USAGE = 2
    INVALID_REQUEST = 3
    GENERATION_FAILED = 4
    INVALID_OUTPUT = 5
    FULL = 6
    CANCELLED = 7
    READER_GONE = 141
    """128 and the number of SIGPIPE: what a shell reports of a program that this signal ended."""


_CODES: Final[tuple[tuple[type[PromptKitError], Exit], ...]] = (
    # The first that fits counts: a cancelled generation is a cancel before it is a failed generation.
    (RunCancelledError, Exit.CANCELLED),
    (CapacityExceededError, Exit.FULL),
    (OutputValidationError, Exit.INVALID_OUTPUT),
    (GenerationError, Exit.GENERATION_FAILED),
    (InvalidRequestError, Exit.INVALID_REQUEST),
    (ConfigError, Exit.PROBLEMS),
    (CredentialError, Exit.PROBLEMS),
)


def exit_code(error: PromptKitError) -> Exit:
    """Return the exit code that stands for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.PROBLEMS)


class App(click.Group):
    """The command as a whole: whatever a subcommand ends with becomes a text on stderr and an exit code."""

    def invoke(self, context: click.Context) -> Any:
        """Run the subcommand."""
        try:
            return super().invoke(context)
        except PromptKitError as error:
            _explain(error)
            sys.exit(exit_code(error))
        except KeyboardInterrupt:
            tell("cancelled", style="yellow")
            sys.exit(Exit.CANCELLED)


def _explain(error: PromptKitError) -> None:
    # A document's problems are one to a line in the form that editors jump to, so nothing may stand before them.
    name = "" if isinstance(error, DocumentError) else f"{type(error).__name__}: "
    tell(f"{name}{error}", style="red")
    if isinstance(error, OutputValidationError) and error.text is not None:
        left_out = len(error.text) - MAX_ANSWER_SHOWN
        more = f" [{left_out:,} characters left out]" if left_out > 0 else ""
        tell(f"the last answer was: {error.text[:MAX_ANSWER_SHOWN]}{more}")


# ------------------------------------------------------------------------------------------------ the streams


def out(text: str) -> None:
    """Write text to stdout, ended by a line break. Ends the command when nobody can read it."""
    data = text.encode("utf-8", "replace")  # half a surrogate pair, in a text that a model wrote, becomes "?"
    try:
        click.echo(data, nl=not data.endswith(b"\n"))
    except BrokenPipeError:
        _abandon(sys.stdout)
        sys.exit(Exit.READER_GONE)
    except OSError as exc:
        _abandon(sys.stdout)
        tell(f"the output cannot be written: {exc.strerror}", style="red")
        sys.exit(Exit.PROBLEMS)


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Leave it to `tell`; rich would end the process."""
        raise BrokenPipeError


def tell(text: str, *, style: str | None = None) -> None:
    """Write a text for people to stderr. Where nobody can read it the command goes on without."""
    # Made anew each time, so that it follows whatever sys.stderr is now.
    console = _Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)
    try:
        console.print(_CONTROL.sub(lambda found: ascii(found[0])[1:-1], text), style=style)
    except OSError:
        _abandon(sys.stderr)


def _abandon(stream: IO[str]) -> None:
    # Python flushes both streams once more when it ends, which would fail again and change the exit code.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


# ------------------------------------------------------------------------------------------------ the signals


@contextlib.contextmanager
def interruptible() -> Iterator[CancelToken]:
    """Give a token that the first Ctrl-C or SIGTERM cancels; a second one ends the process as usual.

    A signal that this process was started to ignore, as ``nohup`` and a shell's ``&`` arrange it, stays ignored.
    """
    token = CancelToken()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    previous = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def cancel(number: int, _frame: object) -> None:
        restore()
        token.cancel(signal.Signals(number).name)

    for number in previous:
        signal.signal(number, cancel)
    try:
        yield token
    finally:
        restore()
