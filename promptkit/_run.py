"""One run, as a straight read: route, admit, complete, generate, validate, repair.

Guarantees: nothing but the prompt and the profile is read before the backend has admitted the run; the lease
is held through everything after that and is back on every way out; a run returns a whole `RunResult` or
raises, and then its `Account` has the attempts made and the usage so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from attrs import evolve

from promptkit._coordinator import Account, explain
from promptkit._repair import Repairs
from promptkit._results import RunResult
from promptkit._validate import validate_output
from promptkit.errors import (
    AlreadyClaimedError,
    CapacityExceededError,
    CredentialError,
    OutputTruncatedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit._capacity import Manager
    from promptkit._clock import Clock
    from promptkit._coordinator import Coordinator
    from promptkit._ports import OutputRepairer
    from promptkit._prepare import Plan, Preparer
    from promptkit._results import PreparedRun
    from promptkit._types import AttemptKind, GenerateRequest, RunRequest
    from promptkit.errors import OutputValidationError


class PreparedExecution:
    """A frozen, fully prepared run that can be executed once, by `Engine.run_prepared` of its own engine.

    ``prepared`` is what will be sent, with its hashes. A handle holds no lease, no permit and no credential,
    may wait for hours, and lets go of its content when it is dropped. It cannot be copied or pickled: that
    would make one approval into two runs. Claiming is safe from any number of threads; the first wins.
    """

    __slots__ = ("__weakref__", "_claims", "_plan", "_prepared", "_runner")

    def __init__(self, plan: Plan, runner: Runner) -> None:
        self._plan = plan
        self._prepared = plan.record()
        self._runner = runner
        self._claims: list[None] = [None]

    @property
    def prepared(self) -> PreparedRun:
        """What will be sent."""
        return self._prepared

    @property
    def is_claimed(self) -> bool:
        """True once it has been claimed; only a refusal before anything was sent gives a claim back."""
        return not self._claims

    def _claim(self) -> None:
        # list.pop is one atomic operation of the interpreter: of any number of threads one gets the item.
        try:
            self._claims.pop()
        except IndexError:
            raise AlreadyClaimedError(
                f"this prepared execution of prompt {self.prepared.prompt!r} has been claimed before; "
                "prepare another one to run it again"
            ) from None

    def _give_back(self) -> None:
        self._claims.append(None)

    def __repr__(self) -> str:
        state = "claimed" if self.is_claimed else "unclaimed"
        return f"<PreparedExecution of {self.prepared.prompt!r}, {self.prepared.rendered_hash}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a PreparedExecution runs once and cannot be copied or pickled; keep its .prepared instead")


class Runner:
    """Everything that happens between a request and its result, for one engine. Safe for any number of threads."""

    __slots__ = ("_clock", "_coordinator", "_manager", "_preparer", "_repairer")

    def __init__(
        self,
        *,
        preparer: Preparer,
        manager: Manager,
        coordinator: Coordinator,
        repairer: OutputRepairer | None,
        clock: Clock,
    ) -> None:
        self._preparer = preparer
        self._manager = manager
        self._coordinator = coordinator
        self._repairer = repairer
        self._clock = clock

    def prepare(self, request: RunRequest) -> PreparedRun:
        """Both phases, and nothing else."""
        return self._preparer.complete(self._preparer.route(request)).record()

    def prepare_execution(self, request: RunRequest) -> PreparedExecution:
        """Both phases, kept for later."""
        return PreparedExecution(self._preparer.complete(self._preparer.route(request)), self)

    def owns(self, handle: PreparedExecution) -> bool:
        """Say whether this runner's engine prepared the handle."""
        return handle._runner is self  # noqa: SLF001 - the two classes are one piece

    def run(self, request: RunRequest, account: Account) -> RunResult:
        """Run a request from the start. Blocks; see `Engine.run`."""
        started = self._clock.monotonic()
        route = self._preparer.route(request)
        return self._admitted(
            route.target.backend_id, lambda: self._preparer.complete(route, route.credential), account, started
        )

    def run_prepared(self, handle: PreparedExecution, account: Account) -> RunResult:
        """Run a handle that this runner owns. Blocks; see `Engine.run_prepared`."""
        started = self._clock.monotonic()
        handle._claim()  # noqa: SLF001 - the two classes are one piece
        plan = handle._plan  # noqa: SLF001 - likewise
        try:
            credential = plan.target.credential_rule.resolve()
            return self._admitted(plan.target.backend_id, lambda: plan.with_credential(credential), account, started)
        except (CapacityExceededError, CredentialError):
            if not account.is_admitted:
                handle._give_back()  # noqa: SLF001 - likewise
            raise

    def _admitted(
        self, backend_id: str | None, complete: Callable[[], Plan], account: Account, started: float
    ) -> RunResult:
        """Hold a lease around all that follows admission."""
        lease = self._manager.lease(backend_id)
        is_released = False
        # As with permits: the object exists before it owns anything, its release is idempotent, and the outer
        # `finally` covers an exception raised into the thread at the entry of the inner one's release.
        try:
            try:
                lease.admit(account.cancel)
                account.is_admitted = True
                return self._generated(complete(), account, started)
            finally:
                lease.release()
                is_released = True
        finally:
            if not is_released:
                lease.release()

    def _generated(self, plan: Plan, account: Account, started: float) -> RunResult:
        """Generate, validate, and repair until the output is valid or may not be repaired any more."""
        request, retry, output = plan.generate, plan.target.retry, plan.prompt.output
        account.budget = retry.budget or 0
        repairs: Repairs | None = None
        kind: AttemptKind = "initial"
        while True:
            response = self._coordinator.generate(request, kind, account, retry)
            text = response.text or ""
            try:
                verdict = validate_output(
                    text,
                    output_format=output.format,
                    schema=plan.schema,
                    is_cut=response.finish_reason == "length",
                    rejection=response.rejection,
                    max_tokens=request.max_tokens,
                )
            except OutputTruncatedError as error:
                explain(error, request, account)
                raise
            if not verdict.issues:
                return RunResult(
                    data=verdict.data,
                    text=text,
                    prepared=plan.record(),
                    usage=account.usage,
                    attempts=account.attempts,
                    finish_reason=response.finish_reason,
                    model=response.model,
                    reasoning=response.reasoning,
                    request_id=response.request_id,
                    duration_s=self._clock.monotonic() - started,
                )
            if repairs is None:
                repairs = Repairs(
                    request.messages,
                    prompt=plan.prompt.id,
                    max_attempts=output.repair_max_attempts,
                    repairer=self._repairer,
                )
            messages = repairs.next_turn(text, verdict.issues)
            if messages is None:
                raise _invalid(repairs, request, account)
            request = evolve(request, messages=messages)
            kind = "repair"


def _invalid(repairs: Repairs, request: GenerateRequest, account: Account) -> OutputValidationError:
    # Not in the method that raises it: no frame of the error's traceback may hold the error.
    error = repairs.error()
    explain(error, request, account)
    return error
