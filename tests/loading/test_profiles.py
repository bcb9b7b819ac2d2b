"""Profile files: what each key says, and what is said of mistakes."""

# ruff: noqa: E501 - tables of mistakes, one line each

from __future__ import annotations

import pytest
from attrs import fields
from hypothesis import given
from hypothesis import strategies as st

from promptkit._definitions import Place, ProfileDefinition
from promptkit._loading import _execution
from promptkit._loading._profiles import parse_profile
from promptkit._types import ExecutionOverride, RetryPolicy
from promptkit.errors import ConfigError, DocumentError

BACKEND = "backend: local\n"


def parse(text: str) -> ProfileDefinition:
    """Return what a profile file says."""
    return parse_profile(text.encode(), "f.yaml", "f")


def problems(text: str) -> list[str]:
    """Return what is wrong with a profile file, each as ``line:column: message``."""
    with pytest.raises(DocumentError) as caught:
        parse(text)
    return [str(problem).removeprefix("f.yaml:") for problem in caught.value.problems]


def problem(text: str) -> str:
    """Return the only thing that is wrong with a profile file."""
    (found,) = problems(text)
    return found


def test_a_whole_file_is_read() -> None:
    """Every key arrives; the values of execution stand at the top level here."""
    profile = parse(
        """\
backend: openrouter
endpoint: https://eu.gateway.example/v1
model: vendor/model
api_key_env: MY_KEY
temperature: 0.2
top_p: 1
max_tokens: 100
seed: -1
stop: [a, b]
presence_penalty: -2
frequency_penalty: 0
timeout_s: 120
retry: {budget: 2, base_delay_s: 0.5, max_delay_s: 20, max_retry_after_s: 60}
headers: {X-Title: billing, X-Empty: ""}
extra_body: {provider: {order: [a, b]}}
max_tokens_field: max_completion_tokens
structured_output: prompt
proxy: none
x-note: mine
"""
    )
    assert (profile.name, profile.path, profile.backend, profile.backend_place) == (
        "f",
        "f.yaml",
        "openrouter",
        Place(1, 10),
    )
    assert (profile.api_key_env, profile.max_tokens_field) == ("MY_KEY", "max_completion_tokens")
    assert (profile.structured_output, profile.proxy) == ("prompt", "none")
    assert profile.execution == ExecutionOverride(
        endpoint="https://eu.gateway.example/v1",
        model="vendor/model",
        temperature=0.2,
        top_p=1,
        max_tokens=100,
        seed=-1,
        stop=("a", "b"),
        presence_penalty=-2,
        frequency_penalty=0,
        timeout_s=120,
        retry=RetryPolicy(budget=2, base_delay_s=0.5, max_delay_s=20, max_retry_after_s=60),
        headers={"X-Title": "billing", "X-Empty": ""},
        extra_body={"provider": {"order": ["a", "b"]}},
    )


@pytest.mark.parametrize("text", ["backend: local\n", "endpoint: http://127.0.0.1:8080/v1\n"])
def test_a_backend_or_an_endpoint_is_enough(text: str) -> None:
    """Everything else is absent, and absent is not zero."""
    profile = parse(text)
    assert (profile.api_key_env, profile.structured_output, profile.proxy) == (None, None, None)
    assert profile.max_tokens_field == "max_tokens"
    assert profile.execution == ExecutionOverride(endpoint=profile.execution.endpoint)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("model: m\n", "1:1: a profile needs a backend (its id) or an endpoint (an address), or both"),
        ("{}\n", "1:1: a profile needs a backend"),
        ("backend:\n", "1:1: backend is empty: give it a value or leave the key out"),
        ("endpoint: ''\n", "1:11: endpoint is empty"),
        ("endpoint: 3\n", "endpoint must be a string, not an integer"),
        ("endpoint: localhost:8080/v1\n", "1:11: endpoint: "),
        ("endpoint: ftp://host/v1\n", "1:11: endpoint: "),
        ("endpoint: https://user:hunter2@host/v1\n", "1:11: endpoint: "),
        (BACKEND + "temprature: 0.2\n", "2:1: unknown key temprature; did you mean 'temperature'?"),
        (BACKEND + "temperature: -1\n", "2:14: temperature: expected a number of at least 0, got -1"),
        (BACKEND + "base_url: http://x\n", "2:1: unknown key base_url: write endpoint"),
        (BACKEND + "execution: {temperature: 0}\n", "in a profile these values stand at the top level"),
        (BACKEND + "messages: []\n", "messages belong in a prompt"),
        (BACKEND + "concurrency_limit: 2\n", "concurrency_limit belongs to the Backend in code"),
        (BACKEND + "max_retries: 2\n", "write retry: {budget: …}"),
        (BACKEND + "max_tokens_field: max_output\n", "max_tokens_field: expected max_tokens or max_completion_tokens"),
        (BACKEND + "structured_output: json\n", 'structured_output: expected json_schema or json_object or prompt, got "json"'),
        (BACKEND + "proxy: http://p\n", 'proxy: expected none, got "http://p"'),
        (BACKEND + "proxy: ~\n", "proxy is empty"),
        (BACKEND + "headers: [a]\n", "headers: expected a mapping, got a list"),
        (BACKEND + "headers: {X-Version: 1.10}\n", 'headers.X-Version must be a string, not a number: quote 1.10 as "1.10"'),
        (BACKEND + "headers: {X A: b}\n", "2:11: headers: 'X A' is no header name"),
        (BACKEND + 'headers: {X-A: "b\\r\\nEvil: 1"}\n', "2:11: headers: the value of X-A must be one line"),
        (BACKEND + "headers: {X-A: é}\n", "headers: the value of X-A must be one line of ASCII"),
        (BACKEND + "headers: {Content-Length: '1'}\n", "2:11: headers: the header Content-Length is set by the client"),
        (BACKEND + "extra_body: {messages: []}\n", "2:14: extra_body: the field messages is set by the client"),
        (BACKEND + "api_key_env: ''\n", "api_key_env is empty"),
        (BACKEND + "api_key_env: 3\n", "api_key_env must be a string"),
    ],
)  # fmt: skip
def test_mistakes_are_told(text: str, told: str) -> None:
    """Each has a place, what was given, and what would be right."""
    assert told in problem(text)


@pytest.mark.parametrize(
    "line",
    [
        "api_key: sk-hunter2",
        "api-key: sk-hunter2",
        "API_KEY: sk-hunter2",
        "key: sk-hunter2",
        "token: sk-hunter2",
        "authorization: Bearer sk-hunter2",
        "api_key_env: sk-hunter2",
        "headers: {Authorization: Bearer sk-hunter2}",
        "headers: {x-api-key: sk-hunter2}",
        "headers: {Cookie: sk-hunter2}",
        "endpoint: https://sk-hunter2@host/v1",
        "backend: [sk-hunter2]",
        "api_key: {value: sk-hunter2}",
        "api_key: 'sk-hunter2",
    ],
)
def test_a_credential_in_a_file_is_refused_and_never_shown(line: str) -> None:
    """Wherever it stands, the message says where it belongs and does not repeat it."""
    text = line if line.startswith(("backend", "endpoint")) else BACKEND + line
    found = problem(text + "\n")
    assert "hunter2" not in found
    if "key" in line and "'" not in line:
        assert "api_key_env" in found


NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, 1, 86400, 86400.5, 100, 101, 3600, 3601, 0.0, -1]),
)


@given(st.sampled_from(sorted(_execution.NUMBERS)), NUMBERS)
def test_files_and_code_allow_the_same_numbers(name: str, number: float) -> None:
    """A value that `ExecutionOverride` takes is fine in a file, and no other."""
    try:
        in_code = ExecutionOverride(**{name: number})  # type: ignore[arg-type]  # names and types are the table's
    except ConfigError:
        in_code = None
    try:
        in_file = parse(f"{BACKEND}{name}: {number!r}\n").execution
    except DocumentError:
        in_file = None
    assert in_file == in_code


@given(st.sampled_from(sorted(_execution.RETRY_NUMBERS)), NUMBERS)
def test_files_and_code_allow_the_same_retries(name: str, number: float) -> None:
    """The same for the numbers of ``retry``."""
    try:
        in_code = RetryPolicy(**{name: number})  # type: ignore[arg-type]  # names and types are the table's
    except ConfigError:
        in_code = None
    try:
        in_file = parse(f"{BACKEND}retry: {{{name}: {number!r}}}\n").execution.retry
    except DocumentError:
        in_file = None
    assert in_file == in_code


def test_files_know_every_value_that_code_knows() -> None:
    """A new field of `ExecutionOverride` or `RetryPolicy` must find its way into the files."""
    in_files = {*_execution.COMMON_KEYS, "endpoint", "headers"}
    assert {attribute.name for attribute in fields(ExecutionOverride)} == in_files
    assert {attribute.name for attribute in fields(RetryPolicy)} == set(_execution.RETRY_NUMBERS)


def loaded(line: str) -> ProfileDefinition:
    """Return a profile with one more line."""
    return parse_profile(f"backend: local\n{line}\n".encode(), "p.yaml", "p")


@pytest.mark.parametrize(
    "line",
    [
        "openai_api_key: SECRET",
        "access-token: SECRET",
        "endpoint: https://h/v1?key=SECRET",
        "headers: {Ocp-Apim-Subscription-Key: SECRET}",
        "headers: {X-Title: Bearer SECRET}",
        "headers: {X-Title: sk-SECRET-12345}",
        "extra_body: {api_key: SECRET}",
        "extra_body: {provider: [{X-Api-Key: SECRET}]}",
    ],
)
def test_a_credential_in_a_file_is_refused_wherever_it_stands(line: str) -> None:
    """Under any spelling of its name, in an address, a header or the request body; and it is never shown."""
    with pytest.raises(DocumentError, match="api_key_env") as caught:
        loaded(line)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "headers: {Idempotency-Key: a}",
        "headers: {X-Title: basic}",
        "extra_body: {prompt_cache_key: a, stop_token_ids: [1], eos_token: x}",
        "endpoint: https://h/v1?api-version=1",
    ],
)
def test_what_is_no_credential_is_taken(line: str) -> None:
    """Names that only look like a key's."""
    assert loaded(line).backend == "local"
