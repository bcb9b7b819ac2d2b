"""What a type checker sees of the public interface; checked by mypy in the lint session, never run."""

from typing import Any, assert_type

from promptkit import (
    Artifact,
    AttemptEvent,
    Backend,
    CancelToken,
    Engine,
    ExecutionOverride,
    GenerateRequest,
    GenerateResponse,
    Issue,
    LLMClient,
    Message,
    Observer,
    OutputRepairer,
    PreparedExecution,
    PreparedRun,
    Problem,
    PromptKitError,
    RunRequest,
    RunResult,
    Usage,
)
from promptkit.errors import (
    CapacityExceededError,
    DocumentError,
    OutputValidationError,
    ProviderError,
    QueueTimeoutError,
)


class EchoClient:
    """A client of an application's own: any class with this method is one."""

    def generate(self, request: GenerateRequest, cancel: CancelToken) -> GenerateResponse:
        """Answer with the last message."""
        assert_type(request.messages, tuple[Message, ...])
        assert_type(request.temperature, float | None)
        cancel.raise_if_cancelled()
        return GenerateResponse(text=request.messages[-1].content, usage=Usage(total_tokens=1))


client: LLMClient = EchoClient()
seen: list[AttemptEvent] = []
observer: Observer = seen.append


def two_at_most(messages: tuple[Message, ...], text: str, issues: tuple[Issue, ...], /) -> tuple[Message, ...] | None:
    """Repair once more, or give up: a function is a repairer."""
    if len(issues) > 2:
        return None
    return (*messages, Message("assistant", text), Message("user", "\n".join(issue.message for issue in issues)))


repairer: OutputRepairer = two_at_most


def build() -> Engine:
    """Folders may be strings or paths, and the rest is optional."""
    backend = Backend("local", endpoint="http://127.0.0.1:8080/v1", concurrency_limit=4, queue_capacity=0)
    assert_type(backend.concurrency_limit, int | None)
    return Engine(prompts="prompts", profiles="profiles", backends=[backend], client=client, repairer=repairer)


def run(engine: Engine) -> None:
    """A run gives typed records, and data of any JSON type."""
    request = RunRequest("a/b", {"text": "x", "scan": Artifact("scan.png")}, override=ExecutionOverride(temperature=0))
    with engine:
        result = engine.run(request, timeout=30, queue_timeout=2, observer=observer, cancel=CancelToken())
    assert_type(result, RunResult)
    assert_type(result.data, Any)
    assert_type(result.text, str)
    assert_type(result.usage, Usage)
    assert_type(result.usage.total_tokens, int | None)
    assert_type(result.attempts, tuple[AttemptEvent, ...])
    assert_type(result.prepared, PreparedRun)
    assert_type(engine.run("a/b", inputs={"text": "x"}), RunResult)


def prepare(engine: Engine) -> None:
    """What would be sent, and a handle that sends it once."""
    prepared = engine.prepare("a/b", inputs={"text": "x"})
    assert_type(prepared.messages, tuple[Message, ...])
    assert_type(prepared.rendered_hash, str)
    handle = engine.prepare_execution(RunRequest("a/b"))
    assert_type(handle, PreparedExecution)
    assert_type(engine.run_prepared(handle, timeout=3), RunResult)
    assert_type(engine.check(), list[Problem])


def mistakes_are_seen(engine: Engine, result: RunResult) -> None:
    """Each of these is an error; an ignore that nothing needs would be one too."""
    Engine(prompts="prompts")  # type: ignore[call-arg]  # no profiles
    Backend("local")  # type: ignore[call-arg]  # no endpoint
    Message("tool", "x")  # type: ignore[arg-type]  # no such role
    engine.run("a/b", timeouts=3)  # type: ignore[call-arg]  # a misspelling
    result.text = ""  # type: ignore[misc]  # records are frozen
    client_without_cancel: LLMClient = object()  # type: ignore[assignment]  # no method generate
    assert_type(client_without_cancel, LLMClient)


def cancel(token: CancelToken) -> None:
    """Tokens nest and tell why."""
    assert_type(token.child(timeout=2), CancelToken)
    assert_type(token.remaining(), float | None)
    assert_type(token.cancelled, bool)
    assert_type(token.reason, str | None)


def errors_carry_typed_facts(error: PromptKitError) -> None:
    """Narrowing an error by its class gives its attributes their types."""
    assert_type(error.attempts, tuple[AttemptEvent, ...])
    assert_type(error.usage, Usage | None)
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
        assert_type(error.problems, tuple[Problem, ...])
    if isinstance(error, OutputValidationError):
        assert_type(error.issues, tuple[Issue, ...])
        assert_type(error.text, str | None)
