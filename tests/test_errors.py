"""The error tree: its shape, its attributes, and that every class survives a pickle and a copy."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from promptkit import errors
from promptkit._types import AttemptEvent, Issue, Problem, Usage
from promptkit.errors import PromptKitError

PROBLEMS = (Problem("a.yaml", 3, 5, "unknown key"), Problem("a.yaml", 0, 0, "empty"))
ISSUE = Issue("/total", "type", "is a string", expected="a number")
EVENT = AttemptEvent(
    number=1, kind="initial", outcome="failed", is_dispatched=True, queued_s=0.5, generation_s=1.5, error="no"
)

EXAMPLES = [
    errors.PromptKitError("plain"),
    errors.ConfigError("a backend is wrong"),
    errors.DocumentError(PROBLEMS),
    errors.InvalidRequestError("no"),
    errors.UnknownNameError("no prompt 'a'"),
    errors.InputError("missing", name="text"),
    errors.RenderError("undefined", path="a.yaml", line=7),
    errors.ArtifactError("outside"),
    errors.AlreadyClaimedError("claimed"),
    errors.CredentialError("not set", variable="MY_KEY"),
    errors.EngineClosedError("closed"),
    errors.CapacityExceededError("local", 4, 16),
    errors.RunCancelledError("cancelled", reason="client gone"),
    errors.DeadlineExceededError("too late", reason="view", timeout_s=2.5),
    errors.GenerationError("no answer"),
    errors.TransportError("refused", phase="connect", is_retryable=True),
    errors.TransportTimeoutError("slow", phase="body"),
    errors.ProviderError(
        "500", status=500, code="x", provider_message="oops", retry_after_s=3.0, request_id="r-1", is_retryable=True
    ),
    errors.AuthenticationError("401", status=401),
    errors.RateLimitedError("429", status=429, retry_after_s=1.0, is_retryable=True),
    errors.QuotaExhaustedError("402", status=402),
    errors.ContextLengthError("too long", status=400, code="context_length_exceeded"),
    errors.OverloadedError("503", status=503, is_retryable=True),
    errors.MalformedResponseError("no choices", is_retryable=True),
    errors.OutputTruncatedError("cut"),
    errors.ContentFilteredError("filtered"),
    errors.RefusalError("refused"),
    errors.GenerationCancelledError("cancelled", reason="client gone"),
    errors.GenerationDeadlineError("too late", timeout_s=2.5),
    errors.QueueTimeoutError("waited", waited_s=2.0, timeout_s=2.0),
    errors.OutputValidationError("invalid", issues=[ISSUE], text="{}", tries=[("{}", (ISSUE,))]),
]


def name_of(error: object) -> str:
    """Use an error's class as a test's id."""
    return type(error).__name__


def test_there_is_an_example_of_every_class() -> None:
    """The examples below leave no public class out, and ``__all__`` names each class of the module."""
    classes = {name for name, value in vars(errors).items() if inspect.isclass(value) and not name.startswith("_")}
    assert classes - {"Any", "Iterable"} == set(errors.__all__) == {name_of(error) for error in EXAMPLES}
    assert list(errors.__all__) == sorted(errors.__all__)


@pytest.mark.parametrize("error", EXAMPLES, ids=name_of)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_a_pickle(error: PromptKitError, protocol: int) -> None:
    """Class, text and every attribute come back, in each protocol that keeps slots and state."""
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=name_of)
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_an_error_survives_a_copy(error: PromptKitError, copied: object) -> None:
    """A copy, deep or not, has the class, the text and every attribute."""
    again = copied(error)  # type: ignore[operator]  # one of two functions
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=name_of)
def test_what_a_run_had_done_travels_with_its_error(error: PromptKitError) -> None:
    """Attempts and usage, empty by default, are carried by a pickle once they are set."""
    assert error.attempts == ()
    assert error.usage is None
    spent = copy.copy(error)
    spent.attempts = (EVENT,)
    spent.usage = Usage(total_tokens=7)
    again = pickle.loads(pickle.dumps(spent))
    assert again.attempts == (EVENT,)
    assert again.usage == Usage(total_tokens=7)
    assert error.attempts == ()


@pytest.mark.parametrize("error", EXAMPLES, ids=name_of)
def test_every_error_is_caught_by_the_base(error: PromptKitError) -> None:
    """One except clause is enough for whatever promptkit raises on purpose."""
    assert isinstance(error, PromptKitError)
    assert str(error)


@pytest.mark.parametrize(
    ("error", "also"),
    [
        ("ConfigError", ValueError),
        ("InvalidRequestError", ValueError),
        ("UnknownNameError", LookupError),
        ("DeadlineExceededError", TimeoutError),
        ("TransportTimeoutError", TimeoutError),
        ("GenerationCancelledError", errors.RunCancelledError),
        ("GenerationDeadlineError", errors.DeadlineExceededError),
        ("QueueTimeoutError", errors.GenerationDeadlineError),
        ("DocumentError", errors.ConfigError),
        ("OverloadedError", errors.ProviderError),
    ],
)
def test_an_error_is_also_what_callers_expect(error: str, also: type[Exception]) -> None:
    """The classes stand where the tree shows them."""
    assert issubclass(getattr(errors, error), also)


@pytest.mark.parametrize("other", [errors.InvalidRequestError, errors.GenerationError, errors.ConfigError])
def test_a_full_backend_is_no_fault_of_the_request(other: type[Exception]) -> None:
    """Capacity stands apart from what a caller did wrong and from what a model server did wrong."""
    assert not issubclass(errors.CapacityExceededError, other)


def test_a_document_error_lists_every_problem() -> None:
    """Its text has one line for each problem, and its place is the first one's."""
    error = errors.DocumentError(iter(PROBLEMS))
    assert str(error) == "a.yaml:3:5: unknown key\na.yaml: empty"
    assert (error.path, error.line, error.column) == ("a.yaml", 3, 5)
    assert error.problems == PROBLEMS


def test_a_refusal_says_which_numbers_to_raise() -> None:
    """The text names the backend, both numbers and both settings."""
    text = str(errors.CapacityExceededError("local", 4, 16))
    for part in ("'local'", "4 running", "16 waiting", "concurrency_limit", "queue_capacity"):
        assert part in text


def test_a_queue_timeout_knows_where_it_was() -> None:
    """Nothing was sent: the phase is the queue."""
    error = errors.QueueTimeoutError("waited", waited_s=2.0)
    assert (error.phase, error.waited_s, error.is_retryable) == ("queue", 2.0, False)


def test_an_error_without_a_text_is_an_empty_text() -> None:
    """``str()`` of an error built from nothing, as pickle does for a moment, does not fail."""
    assert str(PromptKitError.__new__(PromptKitError)) == ""


def test_messages_do_not_take_the_attributes_place() -> None:
    """A system error's ``errno`` formatting (TimeoutError is an OSError) does not change the text."""
    assert str(errors.DeadlineExceededError("2 s were up", timeout_s=2)) == "2 s were up"
