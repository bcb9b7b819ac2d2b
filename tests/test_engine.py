"""The engine from outside: what a run gives, what it refuses, and what it leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from promptkit import Backend, CancelToken, Engine, ExecutionOverride, GenerateResponse, RunRequest, Usage
from promptkit.errors import (
    CapacityExceededError,
    ConfigError,
    CredentialError,
    DeadlineExceededError,
    EngineClosedError,
    GenerationCancelledError,
    GenerationDeadlineError,
    GenerationError,
    InvalidRequestError,
    MalformedResponseError,
    OutputTruncatedError,
    OutputValidationError,
    QueueTimeoutError,
    RunCancelledError,
    TransportError,
    UnknownNameError,
)
from promptkit.testing import FakeClock, Gate, ScriptedClient, held, wait_until_queued
from support.project import Project
from support.threads import Worker


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An application's folders."""
    return Project(tmp_path)


def test_a_text_prompt_gives_the_text(project: Project) -> None:
    """What the model wrote is the data of a text prompt."""
    engine = project.engine(ScriptedClient(["hello"]))
    result = engine.run("echo", inputs={"text": "hi"})
    assert (result.data, result.text) == ("hello", "hello")
    assert [event.outcome for event in result.attempts] == ["succeeded"]


def test_the_client_sees_the_rendered_messages_and_the_target(project: Project) -> None:
    """A client gets messages, model and numbers; numbers that nobody gave are absent."""
    client = ScriptedClient(["x"])
    project.engine(client).run("echo", inputs={"text": "hi"}, override=ExecutionOverride(temperature=0))
    (request,) = client.requests
    assert [(m.role, m.content) for m in request.messages] == [("user", "hi")]
    assert (request.model, request.backend_id, request.temperature, request.top_p) == ("m1", "local", 0, None)


def test_valid_data_comes_back_parsed(project: Project) -> None:
    """A json_schema prompt gives data that satisfies its schema, equal to the plain value."""
    result = project.engine(ScriptedClient([{"n": 1, "s": "x"}])).run("extract", inputs={"text": "t"})
    assert result.data == {"n": 1, "s": "x"}


def test_an_invalid_answer_is_repaired(project: Project) -> None:
    """The model is asked again with what was wrong, and the usage of both answers is summed."""
    client = ScriptedClient(
        [
            GenerateResponse(text='{"n": "x"}', finish_reason="stop", usage=Usage(total_tokens=100)),
            GenerateResponse(text='{"n": 1}', finish_reason="stop", usage=Usage(total_tokens=80)),
        ]
    )
    result = project.engine(client).run("extract", inputs={"text": "t"})
    assert result.data == {"n": 1}
    assert result.usage.total_tokens == 180
    assert [event.kind for event in result.attempts] == ["initial", "repair"]
    assert "n" in client.requests[1].messages[-1].content


def test_output_that_stays_invalid_is_an_error_that_says_why(project: Project) -> None:
    """The error has the issues, every text, the attempts and the usage."""
    client = ScriptedClient(['{"n": "x"}', '{"n": "y"}', '{"n": "z"}'])
    with pytest.raises(OutputValidationError) as caught:
        project.engine(client).run("extract", inputs={"text": "t"})
    error = caught.value
    assert error.issues[0].pointer == "/n"
    assert [text for text, _ in error.tries] == ['{"n": "x"}', '{"n": "y"}', '{"n": "z"}']
    assert len(error.attempts) == 3
    assert error.usage == Usage()
    assert (error.backend, error.model) == (error.attempts[0].backend, error.attempts[0].model)
    assert "the output was invalid after 3 answers, those to repairs included: /n: " in str(error)
    assert f"(backend {error.backend!r}; model {error.model!r}, 3 attempts made; " in str(error)


def test_a_cut_answer_is_neither_retried_nor_repaired(project: Project) -> None:
    """A finish reason of length ends the run at once, with the partial text on the error (C33)."""
    client = ScriptedClient(
        [
            GenerateResponse(text='{"n": "x"}', finish_reason="stop", usage=Usage(total_tokens=100)),
            GenerateResponse(text='{"n": ', finish_reason="length", usage=Usage(total_tokens=80)),
        ]
    )
    with pytest.raises(OutputTruncatedError) as caught:
        project.engine(client).run("extract", inputs={"text": "t"})
    assert caught.value.text == '{"n": '
    assert caught.value.usage == Usage(total_tokens=180)
    assert len(caught.value.attempts) == 2


def test_nothing_usable_from_a_client_is_a_malformed_response(project: Project) -> None:
    """None instead of a response names the fault, and is not an AttributeError."""
    with pytest.raises(MalformedResponseError):
        project.engine(ScriptedClient([lambda request: None], always=None)).run("echo", inputs={"text": "t"})


def test_what_an_injected_client_raises_is_the_cause(project: Project) -> None:
    """An injected client is called once, and its error is wrapped in the fitting class."""
    original = ConnectionResetError("gone")
    client = ScriptedClient([original])
    with pytest.raises(TransportError) as caught:
        project.engine(client).run("echo", inputs={"text": "t"})
    assert caught.value.__cause__ is original
    assert len(client.requests) == 1
    assert len(caught.value.attempts) == 1


def test_a_full_backend_refuses_at_once(project: Project) -> None:
    """With limit 1 and queue 0 a second run is refused while the first one is in flight (C20)."""
    gate = Gate()
    client = ScriptedClient([held(gate, "one")])
    engine = project.engine(client, backend={"concurrency_limit": 1, "queue_capacity": 0})
    first = Worker(engine.run, "echo", inputs={"text": "t"})
    gate.wait_for(1)
    with pytest.raises(CapacityExceededError) as caught:
        engine.run("echo", inputs={"text": "t"})
    assert (caught.value.backend_id, caught.value.attempts, caught.value.usage) == ("local", (), Usage())
    gate.open()
    assert first.result().data == "one"


def test_a_refusal_touches_nothing(project: Project) -> None:
    """A refused run reads no artifact and no schema: a schema file that is not there goes unnoticed."""
    gate = Gate()
    client = ScriptedClient([held(gate, "one")])
    engine = project.engine(client, backend={"concurrency_limit": 1, "queue_capacity": 0})
    project.prompt(
        "broken",
        """
        profile: main
        messages: [{role: user, content: x}]
        output: {format: json_schema, schema: missing.json}
        """,
    )
    first = Worker(engine.run, "echo", inputs={"text": "t"})
    gate.wait_for(1)
    with pytest.raises(CapacityExceededError):
        engine.run("broken")
    gate.open()
    first.result()
    with pytest.raises(ConfigError):
        engine.run("broken")


def test_queue_timeout_ends_the_wait_for_the_first_permit(project: Project) -> None:
    """A run that may not wait in the queue says so, and nothing was sent."""
    gate = Gate()
    client = ScriptedClient([held(gate, "one")])
    engine = project.engine(client, backend={"concurrency_limit": 1})
    first = Worker(engine.run, "echo", inputs={"text": "t"})
    gate.wait_for(1)
    with pytest.raises(QueueTimeoutError) as caught:
        engine.run("echo", inputs={"text": "t"}, queue_timeout=0)
    assert caught.value.phase == "queue"
    assert [event.is_dispatched for event in caught.value.attempts] == [False]
    gate.open()
    first.result()
    assert len(client.requests) == 1


def test_a_cancel_in_the_queue_sends_nothing(project: Project) -> None:
    """A run cancelled while queued is both a GenerationError and a RunCancelledError, and frees its place (C21)."""
    gate = Gate()
    client = ScriptedClient([held(gate, "one")])
    engine = project.engine(client, backend={"concurrency_limit": 1, "queue_capacity": 1}, clock=FakeClock())
    first = Worker(engine.run, "echo", inputs={"text": "t"})
    gate.wait_for(1)
    token = CancelToken()
    seen = []
    second = Worker(engine.run, "echo", inputs={"text": "t"}, cancel=token, observer=seen.append)
    wait_until_queued(engine, "local")
    token.cancel("enough")
    with pytest.raises(GenerationCancelledError, match="enough") as caught:
        second.result()
    assert isinstance(caught.value, RunCancelledError)
    assert [event.outcome for event in caught.value.attempts] == ["cancelled"]
    assert list(caught.value.attempts) == seen
    gate.open()
    first.result()
    assert len(client.requests) == 1


def test_a_cancel_in_flight_ends_the_attempt(project: Project) -> None:
    """A client that looks at its token ends as soon as it is cancelled."""
    gate = Gate()
    engine = project.engine(ScriptedClient([held(gate, "one")]))
    token = CancelToken()
    worker = Worker(engine.run, "echo", inputs={"text": "t"}, cancel=token)
    gate.wait_for(1)
    token.cancel()
    with pytest.raises(GenerationCancelledError) as caught:
        worker.result()
    assert [event.is_dispatched for event in caught.value.attempts] == [True]


def test_no_time_left_is_a_deadline_before_admission(project: Project) -> None:
    """A timeout of 0 ends the run before anything is admitted: not a GenerationError."""
    with pytest.raises(DeadlineExceededError) as caught:
        project.engine(ScriptedClient()).run("echo", inputs={"text": "t"}, timeout=0)
    assert not isinstance(caught.value, GenerationError)
    assert caught.value.usage == Usage()


def test_a_cancelled_token_is_refused_before_admission(project: Project) -> None:
    """The same for a token that had been cancelled before."""
    token = CancelToken()
    token.cancel("no")
    with pytest.raises(RunCancelledError, match="no") as caught:
        project.engine(ScriptedClient()).run("echo", inputs={"text": "t"}, cancel=token)
    assert not isinstance(caught.value, GenerationDeadlineError)


def test_an_observer_that_raises_changes_nothing(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    """A broken observer is logged once and the paid answer comes back (C18)."""

    def broken(event: object) -> None:
        raise ValueError("broken")

    client = ScriptedClient(['{"n": "x"}', '{"n": 1}'])
    result = project.engine(client).run("extract", inputs={"text": "t"}, observer=broken)
    assert result.data == {"n": 1}
    assert len([record for record in caplog.records if record.name == "promptkit"]) == 1


def test_an_observer_that_runs_on_the_same_full_backend_is_refused(project: Project) -> None:
    """It gets the refusal of the pool, not a deadlock, since its own run holds the only lease (C17)."""
    refusals = []
    engine = project.engine(ScriptedClient(["one"]), backend={"concurrency_limit": 1, "queue_capacity": 0})

    def observer(event: object) -> None:
        with pytest.raises(CapacityExceededError) as caught:
            engine.run("echo", inputs={"text": "t"})
        refusals.append(caught.value)

    assert engine.run("echo", inputs={"text": "t"}, observer=observer).data == "one"
    assert len(refusals) == 1


def test_keyboard_interrupt_passes_unchanged_and_gives_everything_back(project: Project) -> None:
    """An exception that is not a failure is neither wrapped nor retried (C13)."""
    engine = project.engine(
        ScriptedClient([KeyboardInterrupt(), "two"]), backend={"concurrency_limit": 1, "queue_capacity": 0}
    )
    with pytest.raises(KeyboardInterrupt):
        engine.run("echo", inputs={"text": "t"})
    assert engine.run("echo", inputs={"text": "t"}).data == "two"


def test_a_missing_credential_is_found_before_admission(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable."""
    monkeypatch.delenv("PROMPTKIT_TEST_KEY", raising=False)
    client = ScriptedClient(["x"])
    engine = project.engine(client, backend={"api_key_env": "PROMPTKIT_TEST_KEY"})
    with pytest.raises(CredentialError, match="PROMPTKIT_TEST_KEY"):
        engine.run("echo", inputs={"text": "t"})
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", "sk-secret")
    engine.run("echo", inputs={"text": "t"})
    (request,) = client.requests
    assert request.credential is not None
    assert request.credential.reveal() == "sk-secret"
    assert "sk-secret" not in repr(request)


def test_a_closed_engine_refuses(project: Project) -> None:
    """Every call after close is an EngineClosedError."""
    engine = project.engine(ScriptedClient(["x"]))
    with engine:
        engine.run("echo", inputs={"text": "t"})
    for call in (engine.run, engine.prepare, engine.prepare_execution):
        with pytest.raises(EngineClosedError):
            call("echo", inputs={"text": "t"})
    with pytest.raises(EngineClosedError):
        engine.check()


@pytest.mark.parametrize(
    "options",
    [{"timeout": -1}, {"timeout": True}, {"queue_timeout": float("nan")}, {"cancel": 3}, {"observer": 3}],
)
def test_wrong_options_are_refused(project: Project, options: dict[str, object]) -> None:
    """Each names the option; nothing is sent."""
    with pytest.raises(InvalidRequestError, match=next(iter(options))):
        project.engine(ScriptedClient()).run("echo", inputs={"text": "t"}, **options)


def test_a_request_and_its_short_form_do_not_mix(project: Project) -> None:
    """A RunRequest has all of its fields itself."""
    engine = project.engine(ScriptedClient(["x"]))
    assert engine.run(RunRequest("echo", {"text": "t"})).data == "x"
    with pytest.raises(InvalidRequestError, match="RunRequest"):
        engine.run(RunRequest("echo", {"text": "t"}), inputs={})


def test_unknown_names_offer_the_nearest(project: Project) -> None:
    """A prompt, a profile and a backend that do not exist are named, with the nearest known one."""
    engine = project.engine(ScriptedClient())
    with pytest.raises(UnknownNameError, match="echo"):
        engine.run("ecko", inputs={"text": "t"})
    with pytest.raises(UnknownNameError, match="main"):
        engine.run("echo", inputs={"text": "t"}, profile="mian")
    project.write("profiles/main.yaml", "backend: lokal\n")
    with pytest.raises(UnknownNameError, match="local"):
        engine.run("echo", inputs={"text": "t"})


def test_precedence_of_execution_values(project: Project) -> None:
    """Profile, then the prompt's execution, then the request's override; 0 is a value all the way."""
    project.write("profiles/main.yaml", "backend: local\nmodel: m1\ntemperature: 0.2\ntop_p: 0.5\nseed: 1\n")
    project.prompt(
        "p", "profile: main\nexecution: {temperature: 0, top_p: 0.7}\nmessages: [{role: user, content: x}]\n"
    )
    prepared = project.engine(ScriptedClient()).prepare("p", override=ExecutionOverride(top_p=0))
    execution = prepared.execution
    assert (execution.temperature, execution.top_p, execution.seed) == (0, 0, 1)


def test_folders_must_be_there(tmp_path: Path) -> None:
    """A folder that does not exist is a ConfigError that names the argument."""
    with pytest.raises(ConfigError, match="prompts"):
        Engine(prompts=tmp_path / "nowhere", profiles=tmp_path)


def test_an_endpoint_override_stays_in_its_backends_pool(project: Project) -> None:
    """The address changes; backend id and pool do not."""
    project.write("profiles/main.yaml", "backend: local\nendpoint: http://127.0.0.1:10/v1\n")
    gate = Gate()
    client = ScriptedClient([held(gate, "one")])
    engine = project.engine(client, backend={"concurrency_limit": 1, "queue_capacity": 0})
    first = Worker(engine.run, "echo", inputs={"text": "t"})
    gate.wait_for(1)
    with pytest.raises(CapacityExceededError):
        engine.run("echo", inputs={"text": "t"})
    gate.open()
    first.result()
    assert client.requests[0].endpoint == "http://127.0.0.1:10/v1"


def test_an_endpoint_only_profile_is_unlimited(project: Project) -> None:
    """It has no backend, so there is no pool that it could wait for."""
    project.write("profiles/main.yaml", "endpoint: http://127.0.0.1:10/v1\n")
    gate = Gate()
    client = ScriptedClient(always=None, script=[held(gate, "x") for _ in range(5)])
    engine = project.engine(client, backends=[Backend("other", endpoint="http://127.0.0.1:9/v1", concurrency_limit=1)])
    workers = [Worker(engine.run, "echo", inputs={"text": "t"}) for _ in range(5)]
    gate.wait_for(5)
    gate.open()
    assert [worker.result().data for worker in workers] == ["x"] * 5
