"""What a type checker sees of the public interface; checked by mypy in the lint session, never run."""

from typing import assert_type

from promptkit.errors import (
    CapacityExceededError,
    DocumentError,
    OutputValidationError,
    PromptKitError,
    ProviderError,
    QueueTimeoutError,
)


def errors_carry_typed_facts(error: PromptKitError) -> None:
    """Narrowing an error by its class gives its attributes their types."""
    if isinstance(error, CapacityExceededError):
        assert_type(error.backend_id, str)
        assert_type(error.concurrency_limit, int)
        assert_type(error.queue_capacity, int)
    if isinstance(error, ProviderError):
        assert_type(error.status, int | None)
        assert_type(error.retry_after_s, float | None)
    if isinstance(error, QueueTimeoutError):
        assert_type(error.waited_s, float)
    if isinstance(error, DocumentError):
        assert_type(error.line, int)
    if isinstance(error, OutputValidationError):
        assert_type(error.text, str | None)
