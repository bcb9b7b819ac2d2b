"""Routing and completing: which target a request reaches, with which numbers, headers, session and credential."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from promptkit import Artifact, Backend, Engine, ExecutionOverride, RunRequest
from promptkit.errors import (
    ArtifactError,
    ConfigError,
    CredentialError,
    DocumentError,
    InputError,
    InvalidRequestError,
    RenderError,
    UnknownNameError,
)
from promptkit.testing import ScriptedClient
from support.project import Project

INPUTS = {"text": "t"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An application's folders."""
    return Project(tmp_path)


def sent(project: Project, *, backend: dict[str, Any] | None = None, prompt: str = "echo", **options: Any) -> Any:
    """Run a prompt and return the request that the client was given."""
    client = ScriptedClient(always="x")
    project.engine(client, backend=backend).run(prompt, **{"inputs": INPUTS, **options})
    return client.requests[0]


# ------------------------------------------------------------------------------------------------ precedence


@pytest.mark.parametrize(
    ("name", "in_profile", "in_prompt", "in_request"),
    [
        ("temperature", 0.7, 0.2, 0),
        ("top_p", 0.9, 0, 0.5),
        ("max_tokens", 10, 20, 30),
        ("seed", 0, 1, 0),
        ("stop", ["a"], ["b"], []),
        ("presence_penalty", 1, -1, 0.0),
        ("frequency_penalty", 0, 0.5, -0.5),
        ("timeout_s", 10, 20, 30),
    ],
)
def test_later_layers_win_and_nothing_is_not_absence(
    project: Project, name: str, in_profile: Any, in_prompt: Any, in_request: Any
) -> None:
    """Profile, prompt, request: 0, 0.0 and [] are values; an absent one leaves the layer below as it is."""
    layers = [in_profile, in_prompt, in_request]
    for present in range(8):
        given = [value if present & (1 << n) else None for n, value in enumerate(layers)]
        in_file = ["" if value is None else f"{name}: {value}\n" for value in given]
        project.write("profiles/main.yaml", f"backend: local\nmodel: m1\n{in_file[0]}")
        execution = f"execution: {{{in_file[1].strip()}}}\n" if in_file[1] else ""
        project.prompt("p", f"profile: main\n{execution}messages: [{{role: user, content: x}}]\n")
        override = ExecutionOverride() if given[2] is None else ExecutionOverride(**{name: given[2]})
        request = sent(project, prompt="p", inputs={}, override=override)
        expected = next((value for value in reversed(given) if value is not None), None)
        if expected is None and name == "timeout_s":
            expected = 600
        found = getattr(request, name)
        assert (list(found) if isinstance(found, tuple) else found) == expected, given


def test_an_empty_stop_list_is_sent(project: Project) -> None:
    """``[]`` takes the stop words of a profile away by being sent, not by being dropped."""
    from promptkit._wire import encode

    project.write("profiles/main.yaml", "backend: local\nstop: [END]\n")
    assert encode(sent(project))["stop"] == ["END"]
    assert encode(sent(project, override=ExecutionOverride(stop=[])))["stop"] == []


def test_retry_is_merged_number_by_number(project: Project) -> None:
    """A layer that names one number leaves the others; 0 turns retrying off; defaults fill what nobody gave."""
    project.write("profiles/main.yaml", "backend: local\nretry: {budget: 5, base_delay_s: 0}\n")
    engine = project.engine(ScriptedClient())
    prepared = engine.prepare("echo", inputs=INPUTS, override=ExecutionOverride(retry={"budget": 0}))
    retry = prepared.execution.retry
    assert retry is not None
    assert (retry.budget, retry.base_delay_s, retry.max_delay_s, retry.max_retry_after_s) == (0, 0, 20, 60)


def test_headers_merge_whatever_the_case_of_their_names(project: Project) -> None:
    """A later layer replaces a header of the same name, so that a server never gets two of it."""
    project.write("profiles/main.yaml", "backend: local\nheaders: {x-title: profile, X-Team: a}\n")
    request = sent(
        project,
        backend={"headers": {"X-Title": "backend", "X-Region": "eu"}},
        override=ExecutionOverride(headers={"X-TEAM": "b"}),
    )
    assert dict(request.headers) == {"X-Region": "eu", "x-title": "profile", "X-TEAM": "b"}


def test_extra_body_merges_by_its_own_keys(project: Project) -> None:
    """Its keys are JSON's, and differ by case; a later layer replaces a key's value as a whole."""
    project.write("profiles/main.yaml", "backend: local\nextra_body: {provider: {order: [a]}, Top: 1}\n")
    request = sent(project, override=ExecutionOverride(extra_body={"provider": {"only": ["b"]}, "top": 2}))
    assert dict(request.extra_body) == {"provider": {"only": ["b"]}, "Top": 1, "top": 2}


def test_an_endpoint_override_leaves_backend_and_credential_rules(project: Project) -> None:
    """Of a profile and of a request; the later one counts."""
    project.write("profiles/main.yaml", "backend: local\nendpoint: http://127.0.0.1:10/v1\n")
    backend = {"api_key": "sk-1", "session_field": "sid"}
    request = sent(project, backend=backend, session_id="s")
    assert (request.endpoint, request.backend_id, request.session_field) == ("http://127.0.0.1:10/v1", "local", "sid")
    assert request.credential.reveal() == "sk-1"
    override = ExecutionOverride(endpoint="http://127.0.0.1:11/v1")
    assert sent(project, backend=backend, override=override).endpoint == "http://127.0.0.1:11/v1"


def test_a_wrong_endpoint_in_a_request_is_refused(project: Project) -> None:
    """Before anything is admitted."""
    with pytest.raises(ConfigError, match="ftp"):
        sent(project, override=ExecutionOverride(endpoint="ftp://host/v1"))


def test_an_endpoint_only_profile_has_its_own_rules(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """No backend, so no backend's headers, key or session field; the key is the profile's."""
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", "sk-own")
    project.write(
        "profiles/main.yaml", "endpoint: http://127.0.0.1:10/v1\nmodel: m2\napi_key_env: PROMPTKIT_TEST_KEY\n"
    )
    backend = {"api_key": "sk-backend", "headers": {"X-A": "1"}, "session_field": "sid"}
    request = sent(project, backend=backend, session_id="s")
    assert (request.backend_id, request.endpoint, request.model) == (None, "http://127.0.0.1:10/v1", "m2")
    assert (dict(request.headers), request.session_field) == ({}, None)
    assert request.credential.reveal() == "sk-own"


def test_a_request_may_name_another_profile(project: Project) -> None:
    """A prompt without a profile of its own needs one; a request's counts."""
    project.write("profiles/other.yaml", "backend: local\nmodel: m9\n")
    project.prompt("bare", "messages: [{role: user, content: x}]\n")
    assert sent(project, profile="other").model == "m9"
    assert sent(project, prompt="bare", inputs={}, profile="other").model == "m9"
    with pytest.raises(InvalidRequestError, match="names no profile"):
        sent(project, prompt="bare", inputs={})


def test_a_profile_without_any_address_is_refused(project: Project) -> None:
    """The loader lets none through; one made otherwise is a ConfigError, not an address of None."""
    preparer = project.engine(ScriptedClient())._runner._preparer
    profile = evolve(preparer._profiles.load("main"), backend=None)
    with pytest.raises(ConfigError, match="neither a backend nor an endpoint"):
        preparer._resolved(preparer._prompts.load("echo"), profile, ExecutionOverride())


def test_a_changed_profile_counts_from_the_next_run(project: Project) -> None:
    """What was resolved for the old file is not used for the new one."""
    client = ScriptedClient(always="x")
    engine = project.engine(client)
    for model in ("a", "b", "b", "c"):
        project.write("profiles/main.yaml", f"backend: local\nmodel: {model}\n")
        engine.run("echo", inputs=INPUTS)
    assert [request.model for request in client.requests] == ["a", "b", "b", "c"]


# ------------------------------------------------------------------------------------------------- credentials


@pytest.mark.parametrize(
    ("key", "match"),
    [
        (lambda: 3, "must return a string"),
        (lambda: "", "blank"),
        (lambda: "sk a", "space"),
        ("sk-\n1", "line break"),
    ],
)
def test_an_unusable_key_is_found_before_admission(project: Project, key: Any, match: str) -> None:
    """Its source and the kind of fault are named, and it is not shown."""
    with pytest.raises(CredentialError, match=match) as caught:
        sent(project, backend={"api_key": key})
    assert "sk" not in str(caught.value)


def test_a_key_function_that_raises_is_named_by_its_error(project: Project) -> None:
    """Whatever it raises means that there is no credential; the original is the cause."""
    original = RuntimeError("vault at sk-secret is sealed")

    def key() -> str:
        raise original

    with pytest.raises(CredentialError, match="RuntimeError") as caught:
        sent(project, backend={"api_key": key})
    assert caught.value.__cause__ is original
    assert "secret" not in str(caught.value)


def test_a_key_function_is_called_once_a_run(project: Project) -> None:
    """Attempts and repairs of one run share what it gave."""
    calls: list[int] = []

    def key() -> str:
        calls.append(1)
        return f"sk-{len(calls)}"

    client = ScriptedClient(['{"n": "x"}', '{"n": 1}', "y"])
    engine = project.engine(client, backend={"api_key": key})
    engine.run("extract", inputs=INPUTS)
    engine.run("echo", inputs=INPUTS)
    keys = [request.credential.reveal() for request in client.requests if request.credential]
    assert keys == ["sk-1", "sk-1", "sk-2"]


def test_a_key_that_went_through_a_pickle_says_so(project: Project) -> None:
    """A backend sent to another process has lost its key; that is a CredentialError, not an empty header."""
    backend = pickle.loads(pickle.dumps(Backend("local", endpoint="http://127.0.0.1:9/v1", api_key="sk-1")))
    engine = project.engine(ScriptedClient(["x"]), backends=[backend])
    with pytest.raises(CredentialError, match="pickle"):
        engine.run("echo", inputs=INPUTS)


def test_a_profiles_variable_comes_before_the_backends_key(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """And an empty variable is not an unset one."""
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", "sk-profile")
    project.write("profiles/main.yaml", "backend: local\napi_key_env: PROMPTKIT_TEST_KEY\n")
    assert sent(project, backend={"api_key": "sk-backend"}).credential.reveal() == "sk-profile"
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", "")
    with pytest.raises(CredentialError, match=r"PROMPTKIT_TEST_KEY.*blank") as caught:
        sent(project)
    assert caught.value.variable == "PROMPTKIT_TEST_KEY"


# ---------------------------------------------------------------------------------------------------- sessions

SESSION = """
profile: main
session: "invoice-{{ customer }}"
inputs: {customer: {type: string}}
messages: [{role: user, content: "{{ customer }}"}]
"""


def test_a_session_template_and_its_bypass(project: Project) -> None:
    """The template gives the id, unless the request brings one; outer spaces come off."""
    project.prompt("p", SESSION)
    inputs = {"customer": "c1"}
    assert sent(project, prompt="p", inputs=inputs).session_id == "invoice-c1"
    assert sent(project, prompt="p", inputs=inputs, session_id="  mine ").session_id == "mine"
    assert sent(project).session_id is None


def test_the_request_bypasses_a_template_that_could_not_be_rendered(project: Project) -> None:
    """The template is not even looked at."""
    project.prompt("p", SESSION)
    with pytest.raises(RenderError, match="session id"):
        sent(project, prompt="p", inputs={"customer": "a\nb"})
    assert sent(project, prompt="p", inputs={"customer": "a\nb"}, session_id="s").session_id == "s"


@pytest.mark.parametrize(
    ("session_id", "match"),
    [
        ("", "blank"),
        (" \t", "blank"),
        (3, "integer"),
        ("a\nb", "line break"),
        ("a\x00b", "does not print"),
        ("a\x7fb", "does not print"),
        ("a\ud800b", "does not print"),
        ("a\u00a0b", "does not print"),
        ("a" * 257, "257 characters"),
    ],
)
def test_session_ids_that_cannot_be_sent_are_refused(project: Project, session_id: Any, match: str) -> None:
    """Blank, of another type, with what does not print, or too long: before anything is read."""
    with pytest.raises(InvalidRequestError, match=match):
        sent(project, prompt="nowhere", session_id=session_id)


def test_the_longest_session_id_is_sent(project: Project) -> None:
    """256 characters, of any script."""
    assert sent(project, session_id="é" * 256).session_id == "é" * 256


def test_the_session_field_is_sent_only_where_the_backend_has_one(project: Project) -> None:
    """A server that knows no sessions gets none; the prepared run has the id all the same."""
    from promptkit._wire import encode

    with_field = sent(project, backend={"session_field": "session_id"}, session_id="s")
    assert encode(with_field)["session_id"] == "s"
    without = sent(project, session_id="s")
    assert "session_id" not in encode(without)
    assert without.session_id == "s"


# ------------------------------------------------------------------------------------------------------ hashes


def hashes(project: Project, **options: Any) -> tuple[str, str, str]:
    """Return the three hashes of a prepared run."""
    prepared = project.engine(ScriptedClient()).prepare("echo", **{"inputs": INPUTS, **options})
    return prepared.definition_hash, prepared.inputs_hash, prepared.rendered_hash


def test_the_same_request_has_the_same_hashes(project: Project) -> None:
    """In any engine, from a RunRequest or its short form."""
    engine = project.engine(ScriptedClient())
    prepared = engine.prepare(RunRequest("echo", INPUTS))
    assert prepared == engine.prepare("echo", inputs=dict(INPUTS))
    assert hashes(project) == (prepared.definition_hash, prepared.inputs_hash, prepared.rendered_hash)


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({"inputs": {"text": "u"}}, (True, False, False)),
        ({"override": ExecutionOverride(temperature=0)}, (True, True, False)),
        ({"override": ExecutionOverride(stop=[])}, (True, True, False)),
        ({"override": ExecutionOverride(model="m2")}, (True, True, False)),
        ({"override": ExecutionOverride(extra_body={"a": 1})}, (True, True, False)),
        ({"override": ExecutionOverride(timeout_s=3, retry={"budget": 0})}, (True, True, True)),
        ({"override": ExecutionOverride(headers={"X-A": "1"})}, (True, True, True)),
        ({"override": ExecutionOverride(endpoint="http://127.0.0.1:10/v1")}, (True, True, True)),
        ({"session_id": "s"}, (True, True, True)),
    ],
)
def test_what_a_difference_shows_in(project: Project, options: dict[str, Any], same: tuple[bool, ...]) -> None:
    """What the model is told is in the rendered hash; where it goes and how long it may take is not."""
    equal = [a == b for a, b in zip(hashes(project), hashes(project, **options), strict=True)]
    assert tuple(equal) == same


def test_the_prepared_run_holds_no_capacity_header_or_key(project: Project) -> None:
    """Nothing of the backend but its id and its address."""
    project.write("profiles/main.yaml", "backend: local\nmodel: m1\nheaders: {X-Title: billing}\n")
    backend = {"concurrency_limit": 7321987654, "queue_capacity": 8421798765, "api_key": "sk-secret"}
    prepared = project.engine(ScriptedClient(), backend=backend).prepare("echo", inputs=INPUTS)
    text = evolve(prepared, duration_s=0.0).to_json()
    for hidden in ("7321987654", "8421798765", "secret", "billing"):
        assert hidden not in text


# ----------------------------------------------------------------------------------- what preparing may not do


def test_preparing_admits_nothing_and_sends_nothing(project: Project) -> None:
    """On a backend without a free place, with a client that has no answer."""
    engine = project.engine(ScriptedClient(), backend={"concurrency_limit": 1, "queue_capacity": 0})
    from promptkit import CancelToken

    with engine._runner._manager.admit("local", CancelToken()):
        assert engine.prepare("echo", inputs=INPUTS).messages[0].content == "t"
        engine.prepare_execution("echo", inputs=INPUTS)


@pytest.mark.parametrize("call", ["run", "prepare", "prepare_execution"])
def test_all_three_ways_refuse_the_same_mistakes(project: Project, call: str) -> None:
    """One pipeline serves them, so they agree on class and text."""
    project.write("data/secret.txt", "x")
    project.prompt("doc", "profile: main\ninputs: {d: {type: file}}\nmessages: [{role: user, content: '{{ d }}'}]\n")
    project.prompt("wrong", "profile: main\nmessages: [{role: user, content: '{{ nobody }}'}]\n")
    engine = project.engine(ScriptedClient(always="x"))
    mistakes: list[tuple[str, dict[str, Any], type[Exception]]] = [
        ("nowhere", {}, UnknownNameError),
        ("echo", {"profile": "nowhere"}, UnknownNameError),
        ("echo", {"inputs": {}}, InputError),
        ("doc", {"inputs": {"d": Artifact("../profiles/main.yaml")}}, ArtifactError),
        ("doc", {"inputs": {"d": Artifact("nowhere.txt")}}, ArtifactError),
        ("wrong", {"inputs": {}}, DocumentError),
        ("echo", {"inputs": 3}, InvalidRequestError),
        ("echo", {"override": 3}, InvalidRequestError),
    ]
    for prompt, options, kind in mistakes:
        with pytest.raises(kind) as caught:
            getattr(engine, call)(prompt, **{"inputs": INPUTS, **options})
        assert type(caught.value) is kind
        with pytest.raises(kind) as again:
            engine.prepare(prompt, **{"inputs": INPUTS, **options})
        assert str(again.value) == str(caught.value)
        assert again.value is not caught.value


def test_artifacts_by_path_need_a_root(project: Project) -> None:
    """Without ``artifacts=`` a path is refused, and bytes are fine."""
    project.prompt("doc", "profile: main\ninputs: {d: {type: file}}\nmessages: [{role: user, content: '{{ d }}'}]\n")
    engine = Engine(
        prompts=project.root / "prompts",
        profiles=project.root / "profiles",
        backends=[Backend("local", endpoint="http://127.0.0.1:9/v1")],
    )
    with pytest.raises(ArtifactError):
        engine.prepare("doc", inputs={"d": Artifact("a.txt")})
    assert engine.prepare("doc", inputs={"d": Artifact(data=b"hello")}).messages[0].content == "hello"


def test_an_input_object_is_not_compared(project: Project) -> None:
    """Arguments beside a RunRequest are refused whatever their ``==`` does."""

    class Awkward:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

    with pytest.raises(InvalidRequestError, match="RunRequest alone"):
        project.engine(ScriptedClient()).run(RunRequest("echo", INPUTS), inputs=Awkward())  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------- building an engine


class AsyncClient:
    """Made for an event loop."""

    async def generate(self, request: Any, cancel: Any) -> Any:
        """Answer some day."""


class NoClient:
    """Has the name and not the method."""

    generate = "later"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"client": ScriptedClient}, "the class ScriptedClient"),
        ({"client": object()}, "generate"),
        ({"client": 3}, "an integer"),
        ({"client": AsyncClient()}, "a coroutine function"),
        ({"client": NoClient()}, "a NoClient"),
        ({"repairer": 3}, "repairer"),
        ({"backends": Backend("x", endpoint="http://h/v1")}, "a Backend"),
        ({"backends": 3}, "an integer"),
        ({"backends": ["x"]}, "a string"),
        ({"proxies": 3}, "proxies"),
        ({"proxies": {"http": 3}}, "proxies"),
        ({"ca_bundle": 3}, "ca_bundle"),
        ({"ca_bundle": "/nowhere/ca.pem"}, "ca_bundle"),
        ({"prompts": 3}, "prompts"),
        ({"prompts": b"prompts"}, "prompts"),
        ({"prompts": ""}, "prompts"),
        ({"prompts": "a\0b"}, "prompts"),
        ({"prompts": None}, "prompts"),
        ({"profiles": "nowhere"}, "profiles"),
        ({"schemas": "nowhere"}, "schemas"),
        ({"artifacts": "nowhere"}, "artifacts"),
    ],
)
def test_wrong_settings_of_an_engine_are_named(project: Project, options: dict[str, Any], match: str) -> None:
    """Each is a ConfigError that says which argument, what was given and what would be right."""
    folders = {"prompts": project.root / "prompts", "profiles": project.root / "profiles"}
    with pytest.raises(ConfigError, match=match):
        Engine(**{**folders, **options})


def test_a_folder_given_as_bytes_by_a_path_object_is_refused(project: Project) -> None:
    """``os.PathLike`` may give bytes; a folder of ours may not."""

    class BytesPath(os.PathLike[bytes]):
        def __fspath__(self) -> bytes:
            return b"prompts"

    with pytest.raises(ConfigError, match="prompts"):
        Engine(prompts=BytesPath(), profiles=project.root / "profiles")  # type: ignore[arg-type]  # the mistake


def test_the_environments_network_settings_do_not_touch_an_injected_client(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test suite with a scripted client runs behind any proxy, and without any bundle."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem")
    monkeypatch.setenv("HTTPS_PROXY", "nonsense://")
    assert project.engine(ScriptedClient(["x"])).run("echo", inputs=INPUTS).data == "x"
    with pytest.raises(ConfigError):
        project.engine()
