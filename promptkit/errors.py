"""Every error promptkit raises, in one tree.

::

    PromptKitError
    ├── ConfigError (ValueError) ── DocumentError(path, line, column, problems)
    ├── InvalidRequestError (ValueError)
    │   ├── UnknownNameError (LookupError)
    │   ├── InputError, RenderError, ArtifactError
    │   └── AlreadyClaimedError
    ├── CredentialError
    ├── CapacityExceededError(backend_id, concurrency_limit, queue_capacity)
    ├── RunCancelledError ── DeadlineExceededError (TimeoutError)
    ├── GenerationError
    │   ├── TransportError ── TransportTimeoutError (TimeoutError)
    │   ├── ProviderError(status, code, provider_message, retry_after_s, request_id)
    │   │   └── AuthenticationError, RateLimitedError, QuotaExhaustedError,
    │   │       ContextLengthError, OverloadedError
    │   ├── MalformedResponseError
    │   ├── OutputTruncatedError, ContentFilteredError, RefusalError
    │   ├── GenerationCancelledError (also RunCancelledError)
    │   └── GenerationDeadlineError (also DeadlineExceededError) ── QueueTimeoutError(waited_s)
    ├── OutputValidationError(issues, text, tries)
    └── EngineClosedError

Guarantees: each class can be pickled and copied with all its attributes; no message holds a key, a
prompt text or an input value; every error that ends a run carries ``attempts`` and ``usage``.

This module imports nothing but the standard library and starts nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptkit._types import AttemptEvent, Issue, Problem, Usage


def _restore(cls: type[PromptKitError], args: tuple[Any, ...], state: dict[str, Any]) -> PromptKitError:
    """Rebuild an error without calling its constructor, whose keywords pickle does not know."""
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class PromptKitError(Exception):
    """Base of everything promptkit raises on purpose.

    ``attempts`` is a tuple of `AttemptEvent` and ``usage`` a `Usage`: what the run had done and spent
    when the error ended it. Outside a run they are ``()`` and ``None``.
    """

    attempts: tuple[AttemptEvent, ...] = ()
    usage: Usage | None = None

    def __init__(self, message: str) -> None:
        super().__init__(message)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__.copy())


# ------------------------------------------------------------------------------ configuration and files


class ConfigError(PromptKitError, ValueError):
    """The engine, a backend or an environment setting is wrong; found while building or checking."""


class DocumentError(ConfigError):
    """A prompt, profile or schema file is wrong.

    ``problems`` has every problem found in the file, in file order; ``path``, ``line`` and ``column``
    (both 1-based, 0 when the problem has no place) are those of the first. The text has one
    ``path:line:column: message`` per line, the form that editors jump to.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        first = self.problems[0]
        self.path: str = first.path
        self.line: int = first.line
        self.column: int = first.column
        super().__init__("\n".join(map(str, self.problems)))


# ----------------------------------------------------------------------------------- the caller's request


class InvalidRequestError(PromptKitError, ValueError):
    """The request cannot be served as it was made. Nothing was sent; asking again cannot help."""


class UnknownNameError(InvalidRequestError, LookupError):
    """No prompt, profile or backend has that name; the message offers the nearest known one."""


class InputError(InvalidRequestError):
    """An input is missing, unknown, or not what its declaration allows. ``name`` is the input's name."""

    def __init__(self, message: str, *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class RenderError(InvalidRequestError):
    """A template failed while rendering; ``path`` and ``line`` (1-based, 0 if unknown) say where."""

    def __init__(self, message: str, *, path: str | None = None, line: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.line = line


class ArtifactError(InvalidRequestError):
    """A file or bytes given as an input cannot be used: outside the root, too large, of the wrong type."""


class AlreadyClaimedError(InvalidRequestError):
    """The prepared execution has been claimed before: a handle runs once."""


class CredentialError(PromptKitError):
    """A credential is missing or unusable. ``variable`` names where it was looked for; never its value."""

    def __init__(self, message: str, *, variable: str | None = None) -> None:
        super().__init__(message)
        self.variable = variable


class EngineClosedError(PromptKitError):
    """The engine has been closed; build a new one."""


# ------------------------------------------------------------------------------- capacity and cancellation


class CapacityExceededError(PromptKitError):
    """The backend runs and queues as much as it may; refused at once, nothing was sent.

    A view answers 503. ``concurrency_limit`` and ``queue_capacity`` are the pool's configured numbers.
    """

    def __init__(self, backend_id: str, concurrency_limit: int, queue_capacity: int) -> None:
        super().__init__(
            f"backend {backend_id!r} is full: {concurrency_limit} running, {queue_capacity} waiting; "
            "try again later, or raise concurrency_limit or queue_capacity of the Backend"
        )
        self.backend_id = backend_id
        self.concurrency_limit = concurrency_limit
        self.queue_capacity = queue_capacity


class RunCancelledError(PromptKitError):
    """The run's token was cancelled.

    ``reason`` is what the canceller gave, or None; ``phase`` where the run was (see `GenerationError`), or None.
    """

    phase: str | None = None

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class DeadlineExceededError(RunCancelledError, TimeoutError):
    """The run's time was up. ``timeout_s`` is the number of seconds that had been allowed, if known."""

    def __init__(self, message: str, *, reason: str | None = None, timeout_s: float | None = None) -> None:
        super().__init__(message, reason=reason)
        self.timeout_s = timeout_s


# --------------------------------------------------------------------------------------------- generation


class GenerationError(PromptKitError):
    """No usable answer came back from the model.

    Attributes, each None when unknown: ``backend`` (id, or None for an endpoint-only profile), ``model``,
    ``phase`` (where it failed: ``"queue"``, ``"connect"``, ``"send"``, ``"first byte"``, ``"body"``,
    ``"backoff"`` or ``"answer"``), ``retry_after_s`` (the server's hint, seconds), ``attempt_usage``
    (what this one answer reported) and ``text`` (what the model had written, where it had).
    ``is_retryable`` says whether the same request may succeed when sent again.
    """

    is_retryable: bool = False
    backend: str | None = None
    model: str | None = None
    phase: str | None = None
    retry_after_s: float | None = None
    attempt_usage: Usage | None = None
    text: str | None = None


class TransportError(GenerationError):
    """The request did not reach the server, or its answer did not arrive whole."""

    def __init__(self, message: str, *, phase: str | None = None, is_retryable: bool = False) -> None:
        super().__init__(message)
        self.phase = phase
        self.is_retryable = is_retryable


class TransportTimeoutError(TransportError, TimeoutError):
    """One attempt took longer than the profile's ``timeout_s``."""


class ProviderError(GenerationError):
    """The server answered with an error.

    ``status`` is the HTTP status, ``code`` the server's own code as text, ``provider_message`` its words
    (shortened, without the key), ``retry_after_s`` its hint, ``request_id`` its name for the call.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        provider_message: str | None = None,
        retry_after_s: float | None = None,
        request_id: str | None = None,
        is_retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.provider_message = provider_message
        self.retry_after_s = retry_after_s
        self.request_id = request_id
        self.is_retryable = is_retryable


class AuthenticationError(ProviderError):
    """The server refused the credential (401, 403)."""


class RateLimitedError(ProviderError):
    """Too many requests for now (429)."""


class QuotaExhaustedError(ProviderError):
    """The account has no credit left (402, ``insufficient_quota``); trying again cannot help."""


class ContextLengthError(ProviderError):
    """The prompt is longer than the model's context."""


class OverloadedError(ProviderError):
    """The server is overloaded or down for now (502, 503, 504, 529)."""


class MalformedResponseError(GenerationError):
    """The answer is not a chat completion with a usable message."""

    def __init__(self, message: str, *, is_retryable: bool = False) -> None:
        super().__init__(message)
        self.is_retryable = is_retryable


class OutputTruncatedError(GenerationError):
    """The answer was cut at the token limit. ``text`` has the part that came."""


class ContentFilteredError(GenerationError):
    """A content filter withheld the answer or refused the prompt."""


class RefusalError(GenerationError):
    """The model declined to answer. ``text`` has what it said instead."""


class GenerationCancelledError(GenerationError, RunCancelledError):
    """The run was cancelled while queued, in flight, or waiting to retry; ``phase`` says which."""


class GenerationDeadlineError(GenerationError, DeadlineExceededError):
    """The run's time was up while queued, in flight, or waiting to retry; ``phase`` says which."""


class QueueTimeoutError(GenerationDeadlineError):
    """``queue_timeout`` passed before the first permit; nothing was sent. ``waited_s``: seconds waited."""

    def __init__(self, message: str, *, waited_s: float, timeout_s: float | None = None) -> None:
        super().__init__(message, timeout_s=timeout_s)
        self.waited_s = waited_s
        self.phase = "queue"


class OutputValidationError(PromptKitError):
    """The output was still invalid after the last repair.

    ``issues`` are those of the last answer and ``text`` is that answer; ``tries`` has ``(text, issues)``
    of every answer, the first one first. ``backend`` (None for an endpoint-only profile) and ``model`` say who
    wrote them.
    """

    backend: str | None = None
    model: str | None = None

    def __init__(
        self,
        message: str,
        *,
        issues: Iterable[Issue] = (),
        text: str | None = None,
        tries: Iterable[tuple[str, tuple[Issue, ...]]] = (),
    ) -> None:
        super().__init__(message)
        self.issues: tuple[Issue, ...] = tuple(issues)
        self.text = text
        self.tries: tuple[tuple[str, tuple[Issue, ...]], ...] = tuple(tries)


__all__ = [
    "AlreadyClaimedError",
    "ArtifactError",
    "AuthenticationError",
    "CapacityExceededError",
    "ConfigError",
    "ContentFilteredError",
    "ContextLengthError",
    "CredentialError",
    "DeadlineExceededError",
    "DocumentError",
    "EngineClosedError",
    "GenerationCancelledError",
    "GenerationDeadlineError",
    "GenerationError",
    "InputError",
    "InvalidRequestError",
    "MalformedResponseError",
    "OutputTruncatedError",
    "OutputValidationError",
    "OverloadedError",
    "PromptKitError",
    "ProviderError",
    "QueueTimeoutError",
    "QuotaExhaustedError",
    "RateLimitedError",
    "RefusalError",
    "RenderError",
    "RunCancelledError",
    "TransportError",
    "TransportTimeoutError",
    "UnknownNameError",
]
