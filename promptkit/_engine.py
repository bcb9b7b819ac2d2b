"""The engine: builds registry, pools, stores and client once, and lends them to every thread.

Guarantees: everything on an `Engine` is immutable after construction except the pools' counters, the caches
and the connections; two engines share nothing; no thread and no timer is ever started.
"""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from promptkit._backends import Backend, Registry
from promptkit._cancel import CancelToken
from promptkit._capacity import Manager
from promptkit._clock import SYSTEM_CLOCK
from promptkit._coordinator import Account, Coordinator
from promptkit._fields import describe, is_seconds
from promptkit._loading._artifacts import ArtifactReader
from promptkit._loading._profiles import ProfileStore
from promptkit._loading._prompts import PromptStore
from promptkit._loading._schemas import SchemaStore
from promptkit._openai import OpenAIClient
from promptkit._prepare import Preparer
from promptkit._render import Renderer
from promptkit._run import PreparedExecution, Runner
from promptkit._sockets import check_patching
from promptkit._types import NO_OVERRIDE, ExecutionOverride, RunRequest
from promptkit.errors import ConfigError, EngineClosedError, InvalidRequestError, PromptKitError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from promptkit._clock import Clock
    from promptkit._definitions import PromptDefinition
    from promptkit._ports import LLMClient, Observer, OutputRepairer
    from promptkit._results import PreparedRun, RunResult
    from promptkit._types import Problem

DEFAULT_POOL_SIZE: Final = 64
"""Connections kept per server where no backend's limit asks for more."""

Folder = str | os.PathLike[str]


class Engine:
    """Runs prompts kept as files. Build one per process and share it among all threads.

    ``prompts`` and ``profiles`` are folders. ``schemas`` is the root of schema references, by default the
    prompts folder. ``artifacts`` is the root that `Artifact` paths are read under; None forbids reading by
    path. ``backends`` are added to the built-in ``openrouter``. ``client`` replaces the built-in HTTP client;
    it is then called once per attempt and never closed by the engine. ``repairer`` writes the turns that
    re-ask after invalid output. ``proxies`` (scheme to URL, as ``requests`` takes them) and ``ca_bundle`` (a
    file) are for the built-in client and replace what the environment says, which is read once, here;
    ``proxies={}`` means none. ``clock`` is for tests.

    Raises `ConfigError` for a folder that is not there and for anything else that is wrong. After ``fork``
    the child's pools start empty and its connections are new. Limits hold for one engine in one process.
    """

    __slots__ = ("_checked", "_clock", "_has_schema_root", "_is_closed", "_own_client", "_prompts", "_runner")

    def __init__(
        self,
        *,
        prompts: Folder,
        profiles: Folder,
        schemas: Folder | None = None,
        artifacts: Folder | None = None,
        backends: Iterable[Backend] = (),
        client: LLMClient | None = None,
        repairer: OutputRepairer | None = None,
        proxies: Mapping[str, str] | None = None,
        ca_bundle: Folder | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        registry = Registry(backends)
        policies = registry.capacity_policies()
        manager = Manager(policies, clock=clock)
        prompt_store = PromptStore(_folder("prompts", prompts))
        profile_store = ProfileStore(_folder("profiles", profiles))
        schema_store = SchemaStore(_folder("schemas", prompts if schemas is None else schemas))
        renderer = Renderer(_folder("prompts", prompts))
        preparer = Preparer(
            prompts=prompt_store,
            profiles=profile_store,
            schemas=schema_store,
            artifacts=ArtifactReader(None if artifacts is None else _folder("artifacts", artifacts)),
            renderer=renderer,
            registry=registry,
            clock=clock,
        )
        _check_callable("repairer", repairer, ConfigError)
        own_client = None
        if client is None:
            limits = [policy.concurrency_limit for policy in policies.values()]
            client = own_client = OpenAIClient(
                pool_size=max([DEFAULT_POOL_SIZE, *limits]),
                proxies=proxies,
                ca_bundle=None if ca_bundle is None else _path("ca_bundle", ca_bundle),
                clock=clock,
            )
        else:
            _check_client(client)
            check_patching()
        self._own_client = own_client
        self._clock = clock
        self._is_closed = False
        self._prompts = prompt_store
        self._checked = (prompt_store, profile_store, schema_store, renderer, registry)
        self._has_schema_root = schemas is not None
        self._runner = Runner(
            preparer=preparer,
            manager=manager,
            coordinator=Coordinator(client, manager, may_retry=own_client is not None, clock=clock),
            repairer=repairer,
            clock=clock,
        )

    # ------------------------------------------------------------------------------------------- running

    def run(
        self,
        request: RunRequest | str,
        *,
        inputs: Mapping[str, Any] | None = None,
        profile: str | None = None,
        session_id: str | None = None,
        override: ExecutionOverride | None = None,
        cancel: CancelToken | None = None,
        timeout: float | None = None,
        queue_timeout: float | None = None,
        observer: Observer | None = None,
    ) -> RunResult:
        """Run a prompt and return its validated output. Blocks; safe from any thread.

        ``request`` is a `RunRequest`, or a prompt id with the request's other fields as keywords. ``timeout``
        is seconds for the whole run – queue, every attempt, retry waits and repairs; ``queue_timeout`` is
        seconds that the first attempt may wait for its permit. None sets no limit, 0 does not wait at all.
        ``cancel`` ends the run from elsewhere. ``observer`` hears of each attempt, in this thread.

        Raises, each with ``attempts`` and ``usage``:

        * `InvalidRequestError` (`UnknownNameError`, `InputError`, `RenderError`, `ArtifactError`),
          `ConfigError` (`DocumentError`), `CredentialError`: the request or a file is wrong; nothing was sent;
        * `CapacityExceededError`: the backend is full; at once, nothing was sent;
        * `RunCancelledError`, `DeadlineExceededError`: before admission; later they are also `GenerationError`;
        * `QueueTimeoutError`: ``queue_timeout`` passed; nothing was sent;
        * `GenerationError`: the server failed, or the answer was cut, filtered or refused;
        * `OutputValidationError`: the output was still invalid after the last repair;
        * `EngineClosedError`.
        """
        account = Account()
        try:
            self._open(account, cancel, timeout, queue_timeout, observer)
            return self._runner.run(_request(request, inputs, profile, session_id, override), account)
        except PromptKitError as error:
            account.settle(error)
            raise

    def prepare(
        self,
        request: RunRequest | str,
        *,
        inputs: Mapping[str, Any] | None = None,
        profile: str | None = None,
        session_id: str | None = None,
        override: ExecutionOverride | None = None,
    ) -> PreparedRun:
        """Return what `run` would send, with its hashes. No admission and no network; reads files.

        Raises what `run` raises before anything is sent, except `CapacityExceededError`.
        """
        self._check_open()
        return self._runner.prepare(_request(request, inputs, profile, session_id, override))

    def prepare_execution(
        self,
        request: RunRequest | str,
        *,
        inputs: Mapping[str, Any] | None = None,
        profile: str | None = None,
        session_id: str | None = None,
        override: ExecutionOverride | None = None,
    ) -> PreparedExecution:
        """Return a handle on a frozen run that `run_prepared` executes once, now or hours later.

        What will be sent is fixed: files that change or vanish afterwards change nothing. No admission, no
        network. Raises as `prepare` does.
        """
        self._check_open()
        return self._runner.prepare_execution(_request(request, inputs, profile, session_id, override))

    def run_prepared(
        self,
        handle: PreparedExecution,
        *,
        cancel: CancelToken | None = None,
        timeout: float | None = None,
        queue_timeout: float | None = None,
        observer: Observer | None = None,
    ) -> RunResult:
        """Claim a handle and run it; keywords and errors as for `run`, and blocks as it does.

        The first claim wins, from however many threads; every other raises `AlreadyClaimedError`, also after
        a run that failed or was cancelled. A `CapacityExceededError`, or a `CredentialError` because the
        credential is not there any more, gives the claim back: nothing was sent. A handle of another engine
        raises `InvalidRequestError`.
        """
        account = Account()
        try:
            self._open(account, cancel, timeout, queue_timeout, observer)
            if not isinstance(handle, PreparedExecution):
                raise InvalidRequestError(f"run_prepared takes a PreparedExecution, not {describe(handle)}")
            if not self._runner.owns(handle):
                raise InvalidRequestError("this handle was prepared by another engine; run it there")
            return self._runner.run_prepared(handle, account)
        except PromptKitError as error:
            account.settle(error)
            raise

    def check(self) -> list[Problem]:
        """Load every prompt, profile and schema and return all problems, by file and place. Reads files."""
        return self._check(are_backends_known=True)

    def _check(self, *, are_backends_known: bool) -> list[Problem]:
        from promptkit._check import Checker  # noqa: PLC0415 – a run has no use for what compares schemas with classes

        self._check_open()
        checker = Checker(*self._checked, has_schema_root=self._has_schema_root)
        return checker.check(are_backends_known=are_backends_known)

    def _definition(self, prompt_id: str) -> PromptDefinition:
        """Return a prompt's definition; for the command, which reads inputs as their declared types ask."""
        return self._prompts.load(prompt_id)

    # ------------------------------------------------------------------------------------------ life cycle

    def close(self) -> None:
        """Close the kept connections. Later calls raise `EngineClosedError`; runs under way finish. Idempotent."""
        self._is_closed = True
        if self._own_client is not None:
            self._own_client.close()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineClosedError("this engine has been closed; build a new one")

    def _open(
        self,
        account: Account,
        cancel: CancelToken | None,
        timeout: float | None,
        queue_timeout: float | None,
        observer: Observer | None,
    ) -> None:
        """Check the options of a run and enter them into its account."""
        self._check_open()
        _check_seconds("timeout", timeout)
        _check_seconds("queue_timeout", queue_timeout)
        _check_callable("observer", observer, InvalidRequestError)
        if cancel is None:
            account.cancel = CancelToken(timeout=timeout, clock=self._clock)
        elif not isinstance(cancel, CancelToken):
            raise InvalidRequestError(f"cancel must be a CancelToken, not {describe(cancel)}")
        else:
            account.cancel = cancel if timeout is None else cancel.child(timeout=timeout)
        account.queue_timeout = queue_timeout
        account.observer = observer


def _check_client(value: object) -> None:
    method = getattr(value, "generate", None)
    if isinstance(value, type) or not callable(method):
        given = f"the class {value.__name__}" if isinstance(value, type) else describe(value)
        raise ConfigError(f"client must be an object with generate(request, cancel), as LLMClient says, not {given}")
    if inspect.iscoroutinefunction(method):
        raise ConfigError("client.generate must block until the answer is there; this one is a coroutine function")


def _check_callable(name: str, value: object, error: type[ConfigError | InvalidRequestError]) -> None:
    if value is not None and not callable(value):
        raise error(f"{name} must be callable, or None, not {describe(value)}")


def _check_seconds(name: str, value: float | None) -> None:
    if value is None:
        return
    if not is_seconds(value):
        raise InvalidRequestError(f"{name} must be a finite number of seconds or None, not {describe(value)}")
    if value < 0:
        raise InvalidRequestError(f"{name} must be 0 or more seconds, or None, not {value!r}")


def _request(
    request: RunRequest | str,
    inputs: Mapping[str, Any] | None,
    profile: str | None,
    session_id: str | None,
    override: ExecutionOverride | None,
) -> RunRequest:
    if isinstance(request, RunRequest):
        if any(field is not None for field in (inputs, profile, session_id, override)):
            raise InvalidRequestError(
                "give a RunRequest alone, or a prompt id with inputs=, profile=, session_id= and override="
            )
        return request
    return RunRequest(
        request,
        {} if inputs is None else inputs,
        profile=profile,
        session_id=session_id,
        override=NO_OVERRIDE if override is None else override,
    )


def _folder(name: str, value: Folder) -> str:
    path = _path(name, value)
    if not Path(path).is_dir():
        raise ConfigError(f"Engine({name}=…): {path!r} is not a folder; paths are relative to the working directory")
    return path


def _path(name: str, value: object) -> str:
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str) or not path.strip():
        given = "a blank one" if isinstance(path, str) else describe(path)
        raise ConfigError(f"Engine({name}=…) must be a path, as a string or a PathLike of one, not {given}")
    return path
