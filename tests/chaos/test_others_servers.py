"""Runs against model servers that others wrote to misbehave; ``nox -s chaos`` installs them.

They are processes of their own on loopback ports that the system chooses, and are asked through a plain profile: what
they send, from headers to error bodies, was made up by people who have not seen this library.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from promptkit import Engine, ExecutionOverride
from promptkit.errors import (
    GenerationDeadlineError,
    OutputValidationError,
    OverloadedError,
    ProviderError,
    RateLimitedError,
    TransportTimeoutError,
)
from promptkit.testing import Worker
from support.project import Project

START_S = 30.0
INPUTS = {"text": "hello"}
QUICK = ExecutionOverride(retry={"base_delay_s": 0})
NO_RETRY = ExecutionOverride(retry={"budget": 0})
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))

CONTRACT = """
profile: main
messages: [{role: user, content: extract}]
output:
  format: json_schema
  schema:
    type: object
    properties: {code: {type: string, PATTERN}, count: {type: integer, minimum: 3}}
    required: [code, count]
    additionalProperties: false
"""


class Process:
    """A server of somebody else's, running; ``url`` is its address."""

    def __init__(self, *command: str, folder: Path) -> None:
        found = shutil.which(command[0], path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
        if found is None:
            pytest.skip(f"{command[0]} is not installed; nox -s chaos installs it")
        self._process = subprocess.Popen(
            [found, *command[1:], "--host", "127.0.0.1", "--port", "0"],
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "COVERAGE_PROCESS_START": "", "COVERAGE_PROCESS_CONFIG": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        self._lines: list[str] = []
        self._is_up = threading.Event()
        self.url = ""
        self._reader = Worker(self._read)  # the pipe is read to its end, so that the server never blocks on it
        if not self._is_up.wait(START_S) or not self.url:
            self.stop()
            pytest.fail(f"{command[0]} did not start:\n{''.join(self._lines)}")

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.append(line)
            if match := re.search(r"running on (http://127\.0\.0\.1:[1-9]\d*)", line):
                self.url = match[1]
                self._is_up.set()
        self._is_up.set()

    def stop(self) -> None:
        """End the process, and wait until it has."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An application's folders."""
    return Project(tmp_path)


def engine_on(project: Project, url: str, **backend: Any) -> Engine:
    """Return an engine whose backend is a server."""
    return project.engine(backend={"endpoint": f"{url}/v1", "api_key": "sk-test", **backend}, proxies={})


# ------------------------------------------------------------------------------------------------------ llmock


class Llmock:
    """``llmock``, told through its control address what to do next."""

    def __init__(self, url: str) -> None:
        self.url = url

    def play(self, *behaviours: dict[str, Any]) -> None:
        """Forget what was asked, and behave so; each ``times`` once unless it says otherwise."""
        self._call("reset", {})
        if behaviours:
            self._call("scenario", {"behaviors": list(behaviours)})

    def requests(self) -> int:
        """Return how many requests have come since."""
        found = self._call("requests")
        return len(found["requests"] if isinstance(found, dict) else found)

    def _call(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/_llmock/{path}", data=data, headers={"Content-Type": "application/json"}
        )
        with DIRECT.open(request, timeout=10) as answer:
            return json.loads(answer.read() or b"null")


@pytest.fixture(scope="module")
def llmock_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running ``llmock``."""
    server = Process("llmock", "serve", folder=tmp_path_factory.mktemp("llmock"))
    yield server.url
    server.stop()


@pytest.fixture
def llmock(llmock_url: str) -> Llmock:
    """``llmock`` without a scenario."""
    server = Llmock(llmock_url)
    server.play()
    return server


def test_llmock_answers(project: Project, llmock: Llmock) -> None:
    """The plain case: text, usage, finish reason."""
    result = engine_on(project, llmock.url).run("echo", inputs=INPUTS)
    assert result.text
    assert result.finish_reason == "stop"
    assert result.usage.total_tokens
    assert len(result.attempts) == llmock.requests() == 1


def test_llmock_429_is_waited_for_as_it_says(project: Project, llmock: Llmock) -> None:
    """Its Retry-After is the least that is waited."""
    llmock.play({"type": "fail", "status": 429, "retry_after": 1, "times": 1})
    result = engine_on(project, llmock.url).run("echo", inputs=INPUTS, override=QUICK)
    assert [event.outcome for event in result.attempts] == ["failed", "succeeded"]
    assert result.attempts[0].error_type == "RateLimitedError"
    assert (result.attempts[0].next_delay_s or 0) >= 1
    assert result.duration_s >= 1


def test_llmock_a_hint_beyond_the_run_fails_at_once(project: Project, llmock: Llmock) -> None:
    """Thirty seconds asked for, five allowed: nobody waits for nothing."""
    llmock.play({"type": "fail", "status": 429, "retry_after": 30, "times": 1})
    with pytest.raises(RateLimitedError, match="30 s") as caught:
        engine_on(project, llmock.url).run("echo", inputs=INPUTS, timeout=5)
    assert caught.value.retry_after_s == 30
    assert llmock.requests() == 1


@pytest.mark.parametrize("status", [500, 502, 503])
def test_llmock_an_outage_ends_with_the_budget(project: Project, llmock: Llmock, status: int) -> None:
    """Two retries, then the provider's own error; a shorter outage is survived."""
    llmock.play({"type": "fail", "status": status, "times": None})
    with pytest.raises(ProviderError) as caught:
        engine_on(project, llmock.url).run("echo", inputs=INPUTS, override=QUICK)
    assert caught.value.status == status
    assert isinstance(caught.value, OverloadedError) == (status != 500)
    assert len(caught.value.attempts) == llmock.requests() == 3
    llmock.play({"type": "fail", "status": status, "times": 2})
    assert len(engine_on(project, llmock.url).run("echo", inputs=INPUTS, override=QUICK).attempts) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_llmock_what_cannot_succeed_is_asked_once(project: Project, llmock: Llmock, status: int) -> None:
    """No retry, and the status in the error."""
    llmock.play({"type": "fail", "status": status, "times": None})
    with pytest.raises(ProviderError, match=str(status)):
        engine_on(project, llmock.url).run("echo", inputs=INPUTS, override=QUICK)
    assert llmock.requests() == 1


def test_llmock_a_late_answer_is_bounded_twice(project: Project, llmock: Llmock) -> None:
    """By the attempt's own time, and by the run's: two classes."""
    llmock.play({"type": "delay", "seconds": 5, "times": None})
    engine = engine_on(project, llmock.url)
    with pytest.raises(TransportTimeoutError):
        engine.run("echo", inputs=INPUTS, override=ExecutionOverride(timeout_s=0.3, retry={"budget": 0}))
    with pytest.raises(GenerationDeadlineError) as caught:
        engine.run("echo", inputs=INPUTS, timeout=0.3)
    assert caught.value.phase == "first byte"


def test_llmock_fills_a_schema_validly(project: Project, llmock: Llmock) -> None:
    """Structured output as the server understands it satisfies the contract."""
    project.prompt("p", CONTRACT.replace("PATTERN", "minLength: 1"))
    result = engine_on(project, llmock.url).run("p")
    assert result.data["count"] >= 3
    assert [event.kind for event in result.attempts] == ["initial"]


def test_llmock_is_asked_again_for_what_it_does_not_keep_to(project: Project, llmock: Llmock) -> None:
    """It pays no heed to ``pattern``: found out here, asked again, and told as invalid in the end."""
    project.prompt("p", CONTRACT.replace("PATTERN", "pattern: '^Q[0-9]{7}$'"))
    with pytest.raises(OutputValidationError) as caught:
        engine_on(project, llmock.url).run("p")
    assert {issue.pointer for issue in caught.value.issues} == {"/code"}
    assert [event.kind for event in caught.value.attempts][:2] == ["initial", "repair"]
    assert caught.value.usage is not None
    assert caught.value.usage.total_tokens


def test_llmock_a_broken_answer_is_repaired(project: Project, llmock: Llmock) -> None:
    """Text that is no JSON first, the schema's own example then."""
    project.prompt("p", CONTRACT.replace("PATTERN", "minLength: 1"))
    llmock.play({"type": "reply", "text": "not json {", "times": 1})
    result = engine_on(project, llmock.url).run("p")
    assert [event.kind for event in result.attempts] == ["initial", "repair"]
    assert result.data["count"] >= 3


def test_llmock_under_load_everybody_is_answered(project: Project, llmock: Llmock) -> None:
    """Twenty threads on a limit of four, every fifth request failing once."""
    llmock.play(*[{"type": "fail", "status": 503, "times": 1}] * 4)
    engine = engine_on(project, llmock.url, concurrency_limit=4)
    override = ExecutionOverride(retry={"budget": 5, "base_delay_s": 0})
    workers = [Worker(engine.run, "echo", inputs=INPUTS, override=override) for _ in range(20)]
    results = [worker.result() for worker in workers]
    assert all(result.text for result in results)
    assert sum(len(result.attempts) for result in results) == llmock.requests() == 24


# ----------------------------------------------------------------------------------------------------- fakellm

FAKELLM = """
rules:
  - {name: limit, when: {messages_contain: too many}, respond: {status: 429, error: slow down}}
  - {name: down, when: {messages_contain: broken}, respond: {status: 500, error: boom}}
  - {name: wrong, when: {messages_contain: bad}, respond: {status: 400, error: no such thing}}
  - {name: again, when: {messages_contain: corrected JSON}, respond: {content: '{"n": 7}'}}
  - {name: fence, when: {messages_contain: fenced}, respond: {content: "```json\\n{\\"n\\": 5}\\n```"}}
  - {name: prose, when: {messages_contain: extract}, respond: {content: 'It is {"n": "seven"}, I think.'}}
  - {name: hello, when: {messages_contain: hello}, respond: {content: Hello yourself.}}
"""


@pytest.fixture(scope="module")
def fakellm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running ``fakellm`` with rules by what a message says."""
    folder = tmp_path_factory.mktemp("fakellm")
    (folder / "fakellm.yaml").write_text(FAKELLM, "utf-8")
    server = Process("fakellm", "serve", folder=folder)
    yield server.url
    server.stop()


def test_fakellm_answers(project: Project, fakellm: str) -> None:
    """Text and usage."""
    result = engine_on(project, fakellm).run("echo", inputs=INPUTS)
    assert result.text == "Hello yourself."
    assert result.usage.total_tokens


@pytest.mark.parametrize(
    ("text", "kind", "attempts"),
    [("too many", RateLimitedError, 3), ("broken", ProviderError, 3), ("bad", ProviderError, 1)],
)
def test_fakellm_errors_are_what_they_mean(
    project: Project, fakellm: str, text: str, kind: type[ProviderError], attempts: int
) -> None:
    """A 429 without a hint, a 500 and a 400: tried again, or not."""
    with pytest.raises(kind) as caught:
        engine_on(project, fakellm).run("echo", inputs={"text": text}, override=QUICK)
    assert len(caught.value.attempts) == attempts
    with pytest.raises(kind) as caught:
        engine_on(project, fakellm).run("echo", inputs={"text": text}, override=NO_RETRY)
    assert len(caught.value.attempts) == 1


def test_fakellm_a_wrong_answer_in_prose_is_repaired(project: Project, fakellm: str) -> None:
    """The value in the prose has the wrong type; the repair gets the right one."""
    result = engine_on(project, fakellm).run("extract", inputs={"text": "extract"})
    assert result.data == {"n": 7}
    assert [event.kind for event in result.attempts] == ["initial", "repair"]


def test_fakellm_a_fence_comes_off(project: Project, fakellm: str) -> None:
    """A known wrapping costs no repair."""
    result = engine_on(project, fakellm).run("extract", inputs={"text": "fenced"})
    assert result.data == {"n": 5}
    assert len(result.attempts) == 1
