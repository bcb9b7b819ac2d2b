"""One attempt after another: permit, sending, retry wait, events and usage, in one place for the whole run.

Guarantees: a permit is held around one call of the client and at no other time, and is back on every way
out, an exception raised into the thread included; first generation and repairs draw on one retry budget;
each attempt that was sent, or ended while waiting to be sent, is told to the observer once, in order, after
its permit has been released; what any answer reported is in the usage, whatever happened to the answer. An
error that has left a run is kept alive by whoever caught it, and by no frame of ours.

Nothing here starts a thread or holds a lock. An `Account` belongs to the one thread that runs it.
"""

from __future__ import annotations

import copy
import logging
import random
from typing import TYPE_CHECKING, Final

from attrs import evolve

from promptkit._cancel import wait_until
from promptkit._types import AttemptEvent, AttemptKind, AttemptOutcome, GenerateRequest, GenerateResponse, Usage
from promptkit._wire import check_response
from promptkit.errors import (
    DeadlineExceededError,
    GenerationCancelledError,
    GenerationDeadlineError,
    GenerationError,
    OutputValidationError,
    PromptKitError,
    QueueTimeoutError,
    RunCancelledError,
    TransportError,
    TransportTimeoutError,
)

if TYPE_CHECKING:
    from promptkit._cancel import CancelToken
    from promptkit._capacity import Manager
    from promptkit._clock import Clock
    from promptkit._ports import LLMClient, Observer
    from promptkit._types import RetryPolicy

_log = logging.getLogger("promptkit")

DOING: Final = {
    "queue": "waiting for a permit",
    "connect": "connecting",
    "send": "sending the request",
    "first byte": "waiting for the first byte of the answer",
    "body": "reading the response",
    "backoff": "waiting to retry",
}
"""What a run was doing in each phase, in the words of its errors."""

_NOTHING: Final = Usage()


class Account:
    """What one run has done and spent so far, and what it may still do."""

    __slots__ = (
        "_observer_failed",
        "attempts",
        "backoff_s",
        "budget",
        "cancel",
        "is_admitted",
        "observer",
        "queue_timeout",
        "usage",
    )

    cancel: CancelToken
    """What ends the run; given before it is routed."""

    def __init__(self) -> None:
        self.queue_timeout: float | None = None
        """Seconds that the first attempt may wait for its permit; None for no limit of its own."""
        self.observer: Observer | None = None
        self.budget = 0
        """Retries left to the run."""
        self.is_admitted = False
        self.attempts: tuple[AttemptEvent, ...] = ()
        self.usage = _NOTHING
        self.backoff_s = 0.0
        self._observer_failed = False

    def record(self, event: AttemptEvent) -> None:
        """Add an attempt to the account and tell the observer. What the observer raises is logged once."""
        self.attempts = (*self.attempts, event)
        if event.usage is not None:
            self.usage = self.usage + event.usage
        if self.observer is None:
            return
        try:
            self.observer(event)
        except Exception:  # noqa: BLE001  # an application's own code: a broken observer must not lose a paid answer
            if not self._observer_failed:
                self._observer_failed = True
                _log.exception("the observer of a run raised; the run goes on and this is logged once")

    def settle(self, error: PromptKitError) -> None:
        """Put the account on the error that ends the run."""
        error.attempts = self.attempts
        error.usage = self.usage


class Coordinator:
    """Runs attempts against one engine's client and pools. Safe for any number of threads."""

    __slots__ = ("_client", "_clock", "_jitter", "_manager", "_may_retry")

    def __init__(self, client: LLMClient, manager: Manager, *, may_retry: bool, clock: Clock) -> None:
        """``may_retry`` is True for the built-in client alone: an injected one is called once per attempt."""
        self._client = client
        self._manager = manager
        self._may_retry = may_retry
        self._clock = clock
        # The system's source has no state: workers that were forked after the engine was made do not wait in step.
        self._jitter = random.SystemRandom().uniform

    def generate(
        self, request: GenerateRequest, kind: AttemptKind, account: Account, retry: RetryPolicy
    ) -> GenerateResponse:
        """Return a usable answer, trying again where that may help and the budget allows.

        Blocks. Raises `GenerationError`: the last attempt's, or one that is also a `RunCancelledError` or
        `DeadlineExceededError` when the run's token ended it.
        """
        failures = 0
        while True:
            attempt = _Attempt(request, kind, len(account.attempts) + 1)
            try:
                outcome = self._run_attempt(attempt, account)
            except BaseException as exc:
                account.record(attempt.interrupted(exc))
                raise
            if isinstance(outcome, GenerateResponse):
                account.record(attempt.event())
                return outcome
            error = outcome
            try:
                delay = self._delay(error, attempt, failures, account, retry)
                account.record(attempt.event(error, next_delay_s=delay))
                if delay is None:
                    if isinstance(error, GenerationError):
                        explain(error, attempt.request, account, attempt.remark)
                    raise error
                failures += 1
                account.budget -= 1
                self._back_off(delay, error, attempt, account)
            finally:
                del error, outcome  # its traceback has this frame in it

    # ------------------------------------------------------------------------------------- one attempt

    def _run_attempt(self, attempt: _Attempt, account: Account) -> GenerateResponse | PromptKitError:
        """Send one attempt and return its answer, or the error that it failed with.

        What was raised into the thread – `KeyboardInterrupt`, whatever a signal handler raises – passes as it is.
        """
        cancel, clock = account.cancel, self._clock
        permit = self._manager.permit(attempt.request.backend_id)
        attempt.entered = clock.monotonic()
        queue_deadline = None
        if account.queue_timeout is not None and attempt.number == 1:
            queue_deadline = attempt.entered + account.queue_timeout
        is_released = False
        # The permit object exists before it owns anything, and its release is idempotent. The second
        # `finally` covers an exception raised into the thread at the entry of the first one's release.
        try:
            try:
                permit.acquire(cancel, queue_deadline)
                attempt.granted = clock.monotonic()
                attempt.response = self._client.generate(attempt.request, cancel)
            finally:
                permit.release()
                is_released = True
        except Exception as exc:
            if not isinstance(exc, PromptKitError) and (attempt.granted is None or self._may_retry):
                raise  # raised into the thread: neither the pool nor the built-in client raises anything else
            return self._judged(exc, attempt, cancel)
        finally:
            if not is_released:
                permit.release()
            attempt.ended = clock.monotonic()
        try:
            attempt.response = response = check_response(attempt.response, attempt.request)
        except GenerationError as exc:
            return exc
        attempt.outcome = "succeeded"
        return response

    def _judged(self, exc: Exception, attempt: _Attempt, cancel: CancelToken) -> PromptKitError:
        """Return the error that an attempt failed with."""
        is_queued = attempt.granted is None
        if isinstance(exc, RunCancelledError) and (is_queued or self._may_retry or cancel.cancelled):
            attempt.outcome = "cancelled"
            return exc if is_queued and isinstance(exc, QueueTimeoutError) else _ended(exc, attempt, self._clock)
        if isinstance(exc, PromptKitError) and (is_queued or self._may_retry):
            # A setting or a credential that the built-in client refuses to send keeps its category.
            return _failure(exc, attempt, cancel, self._clock) if isinstance(exc, GenerationError) else exc
        return _failure(_owned(exc), attempt, cancel, self._clock)

    # -------------------------------------------------------------------------------------- retry policy

    def _delay(
        self, error: PromptKitError, attempt: _Attempt, failures: int, account: Account, retry: RetryPolicy
    ) -> float | None:
        """Return the seconds to wait before the next attempt, or None when there is to be none."""
        if not self._may_retry or attempt.outcome == "cancelled" or account.budget <= 0:
            return None
        if not isinstance(error, GenerationError) or not error.is_retryable:
            return None
        longest_jitter = min(retry.max_delay_s or 0.0, (retry.base_delay_s or 0.0) * 2.0**failures)
        hint = error.retry_after_s
        left = account.cancel.remaining()
        if hint is not None:
            longest = retry.max_retry_after_s or 0.0
            if hint > longest:
                attempt.remark = f"the server asks to wait {hint:g} s, and at most {longest:g} s are waited"
                return None
            if left is not None and hint >= left:
                attempt.remark = f"the server asks to wait {hint:g} s, and {left:.3g} s are left of the run's time"
                return None
            longest_jitter = min(longest_jitter, longest - hint)
        at_least = hint or 0.0
        if left is not None:  # the attempt that follows needs some of it
            longest_jitter = min(longest_jitter, (left - at_least) / 2)
        return at_least + self._jitter(0.0, longest_jitter)

    def _back_off(self, delay: float, error: PromptKitError, attempt: _Attempt, account: Account) -> None:
        """Wait before the next attempt: the lease is kept, the permit is not, a cancel ends it at once."""
        started = self._clock.monotonic()
        try:
            wait_until(account.cancel, started + delay)
        except RunCancelledError as exc:
            attempt.phase = "backoff"
            account.backoff_s += self._clock.monotonic() - started
            ended = _ended(exc, attempt, self._clock)
            explain(ended, attempt.request, account)
            try:
                raise ended from error
            finally:
                del ended, error  # its traceback has this frame in it
        account.backoff_s += self._clock.monotonic() - started


class _Attempt:
    """The state of one attempt, until it becomes an event."""

    __slots__ = ("ended", "entered", "granted", "kind", "number", "outcome", "phase", "remark", "request", "response")

    def __init__(self, request: GenerateRequest, kind: AttemptKind, number: int) -> None:
        self.request = request
        self.kind = kind
        self.number = number
        self.outcome: AttemptOutcome = "failed"
        self.response: GenerateResponse | None = None
        self.phase: str | None = None
        self.remark: str | None = None
        self.entered = 0.0
        self.granted: float | None = None
        self.ended = 0.0

    def interrupted(self, exc: BaseException) -> AttemptEvent:
        """Return what the observer is told of an attempt that an exception raised into its thread ended."""
        self.outcome = "cancelled"
        kind = type(exc).__name__
        return evolve(self.event(), error_type=kind, error=f"{kind} was raised into the thread of the run")

    def event(self, error: PromptKitError | None = None, *, next_delay_s: float | None = None) -> AttemptEvent:
        """Return what the observer is told."""
        response = self.response if isinstance(self.response, GenerateResponse) else None
        usage = response.usage if response else None
        if not isinstance(usage, Usage):
            usage = getattr(error, "attempt_usage", None)
        granted = self.ended if self.granted is None else self.granted
        return AttemptEvent(
            number=self.number,
            kind=self.kind,
            outcome=self.outcome,
            is_dispatched=self.granted is not None,
            queued_s=max(0.0, granted - self.entered),
            generation_s=max(0.0, self.ended - granted),
            backend=self.request.backend_id,
            model=(response.model if response else None) or self.request.model,
            usage=usage,
            finish_reason=response.finish_reason if response else None,
            request_id=response.request_id if response else getattr(error, "request_id", None),
            phase=getattr(error, "phase", None),
            error_type=type(error).__name__ if error else None,
            error=str(error) if error else None,
            next_delay_s=next_delay_s,
        )


# ----------------------------------------------------------------------------------------------- errors


def _owned(exc: Exception) -> GenerationError:
    """Return what an injected client raised as an error of this run's own, with the original as its cause.

    A cancel or a deadline that was not this run's is a failure of the client like any other.
    """
    said = f"the model client raised {type(exc).__name__}"
    error: GenerationError
    if isinstance(exc, GenerationError) and not isinstance(exc, RunCancelledError):
        error = copy.copy(exc)
    elif isinstance(exc, TimeoutError):
        error = TransportTimeoutError(said)
    elif isinstance(exc, OSError):
        error = TransportError(said)
    else:
        error = GenerationError(said)
    error.__cause__ = exc
    return error


def _failure(error: GenerationError, attempt: _Attempt, cancel: CancelToken, clock: Clock) -> GenerationError:
    """Return the error of an attempt that failed: the token's, when that is what made it fail."""
    try:
        cancel.raise_if_cancelled()
    except RunCancelledError as exc:
        attempt.outcome = "cancelled"
        ended = _ended(exc, attempt, clock)
        ended.attempt_usage = error.attempt_usage
        ended.phase = ended.phase or error.phase
        ended.__cause__ = error
        return ended
    return error


def _ended(exc: RunCancelledError, attempt: _Attempt, clock: Clock) -> GenerationError:
    """Return the form of a cancel or a deadline that is a `GenerationError` too, naming the phase."""
    phase = attempt.phase or getattr(exc, "phase", None) or ("queue" if attempt.granted is None else None)
    doing = DOING.get(phase or "", "generating")
    error: GenerationError
    if isinstance(exc, DeadlineExceededError):
        allowed = "the time of the run" if exc.timeout_s is None else f"the run's time of {exc.timeout_s:g} s"
        spent = clock.monotonic() - attempt.entered
        error = GenerationDeadlineError(
            f"{allowed} was up while {doing}, {spent:.3g} s into attempt {attempt.number}",
            reason=exc.reason,
            timeout_s=exc.timeout_s,
        )
    else:
        why = f": {exc.reason}" if exc.reason else ""
        error = GenerationCancelledError(f"the run was cancelled while {doing}{why}", reason=exc.reason)
    error.phase = phase
    error.__cause__ = exc
    return error


def explain(
    error: GenerationError | OutputValidationError,
    request: GenerateRequest,
    account: Account,
    remark: str | None = None,
) -> None:
    """Complete the text of the error that ends the run: who, how often, and where the time went."""
    error.backend = error.backend or request.backend_id
    error.model = error.model or request.model
    events = account.attempts
    sent = sum(event.is_dispatched for event in events)
    queued = sum(event.queued_s for event in events)
    generating = sum(event.generation_s for event in events)
    parts = [] if remark is None else [remark]
    parts.append(f"backend {request.backend_id!r}" if request.backend_id else f"profile {request.profile!r}")
    parts.append(f"model {error.model!r}, {sent} attempt{'' if sent == 1 else 's'} made")
    parts.append(f"{queued:.3g} s queued, {generating:.3g} s generating, {account.backoff_s:.3g} s waiting to retry")
    error.args = (f"{error} ({'; '.join(parts)})",)


__all__ = ["Account", "Coordinator", "explain"]
