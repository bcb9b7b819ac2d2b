"""promptkit runs prompts kept as files against OpenAI-compatible model servers, from blocking code.

A backend is never asked for more than it takes, and the rest waits in order or is refused at once; every run
ends when its caller says so; what comes back is valid, or is an error that says why.

Start with `Engine`. Errors live in `promptkit.errors`.
"""

from __future__ import annotations

from promptkit._backends import Backend
from promptkit._cancel import CancelToken
from promptkit._engine import Engine
from promptkit._ports import LLMClient, Observer, OutputRepairer
from promptkit._results import PreparedRun, RunResult
from promptkit._run import PreparedExecution
from promptkit._types import (
    Artifact,
    AttemptEvent,
    ExecutionOverride,
    GenerateRequest,
    GenerateResponse,
    Issue,
    Message,
    Problem,
    RunRequest,
    Usage,
)
from promptkit._version import __version__ as __version__
from promptkit.errors import PromptKitError

__all__ = [
    "Artifact",
    "AttemptEvent",
    "Backend",
    "CancelToken",
    "Engine",
    "ExecutionOverride",
    "GenerateRequest",
    "GenerateResponse",
    "Issue",
    "LLMClient",
    "Message",
    "Observer",
    "OutputRepairer",
    "PreparedExecution",
    "PreparedRun",
    "Problem",
    "PromptKitError",
    "RunRequest",
    "RunResult",
    "Usage",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__", "errors"]
