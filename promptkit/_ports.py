"""The seams of the core: what it asks of a model client, an observer, a token and a repairer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from promptkit._cancel import CancelToken
    from promptkit._types import AttemptEvent, GenerateRequest, GenerateResponse, Issue, Message


@runtime_checkable
class LLMClient(Protocol):
    """Sends one attempt to a model. Called by many threads at once, each while it holds a permit.

    It is called exactly once per attempt: whatever it raises ends the run as a `GenerationError` with the
    original as its cause, and is not retried. It should return soon after ``cancel`` is cancelled or out of
    time (look at ``cancel.remaining()``, register with ``cancel.on_cancel``).
    """

    def generate(self, request: GenerateRequest, cancel: CancelToken) -> GenerateResponse:
        """Return the model's answer, or raise."""
        ...


class Observer(Protocol):
    """Hears of every attempt of a run, in order, in the run's own thread and with no permit held.

    What it raises is logged once and changes nothing. It must not wait for work that needs this run's lease.
    """

    def __call__(self, event: AttemptEvent, /) -> None:
        """Take note of ``event``."""
        ...


class OutputRepairer(Protocol):
    """Turns an invalid answer into the turns that ask for a better one."""

    def __call__(
        self, messages: tuple[Message, ...], text: str, issues: tuple[Issue, ...], /
    ) -> tuple[Message, ...] | None:
        """Return the whole conversation to send, or None to give up.

        ``messages`` are those of the first attempt (never of an earlier repair), ``text`` is the last answer
        and ``issues`` what is wrong with it.
        """
        ...
