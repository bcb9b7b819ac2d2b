"""The two phases of preparation, the one pipeline that every public call goes through.

Guarantees: `Preparer.route` reads the prompt and the profile and decides the target, and touches nothing else;
`Preparer.complete` does all the rest – schema, artifacts, inputs, rendering. Neither holds a permit, sends anything,
or keeps a credential: a `Plan` can wait for hours and is frozen all the way down.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, frozen

from promptkit._canonical import sha256_of
from promptkit._fields import FrozenDict, Json, Secret, merge_headers, session_fault
from promptkit._inputs import check_inputs
from promptkit._openai import bearer
from promptkit._results import PreparedRun, public_execution
from promptkit._types import NO_OVERRIDE, NUMBER_FIELDS, ExecutionOverride, GenerateRequest, RetryPolicy
from promptkit._wire import target_url
from promptkit.errors import ConfigError, CredentialError, InvalidRequestError

if TYPE_CHECKING:
    from promptkit._backends import Backend, Registry
    from promptkit._clock import Clock
    from promptkit._definitions import ProfileDefinition, PromptDefinition
    from promptkit._loading._artifacts import ArtifactReader
    from promptkit._loading._profiles import ProfileStore
    from promptkit._loading._prompts import PromptStore
    from promptkit._loading._schemas import CompiledSchema, SchemaStore
    from promptkit._render import Renderer
    from promptkit._types import RunRequest, StructuredOutput

MAX_TARGETS: Final = 1024
"""How many targets are kept ready."""

DEFAULT_TIMEOUT_S: Final = 600.0
"""Long enough for a slow local model on a long prompt, short enough that a dead server is noticed."""

DEFAULT_RETRY: Final = RetryPolicy(budget=2, base_delay_s=0.5, max_delay_s=20.0, max_retry_after_s=60.0)
DEFAULTS: Final = ExecutionOverride(timeout_s=DEFAULT_TIMEOUT_S, retry=DEFAULT_RETRY)


@frozen(kw_only=True)
class CredentialRule:
    """Where the credential of a target comes from. Holds no credential that came from the environment."""

    where: str
    variable: str | None = None
    secret: Secret | None = None

    def resolve(self) -> Secret | None:
        """Return the credential as it is now, or None where none is needed.

        Raises `CredentialError` when it should be there and is not, and when no header can carry it. A key
        function is called here, once for each run.
        """
        if self.secret is not None:
            value = self._called(self.secret)
        elif self.variable is None:
            return None
        elif (found := os.environ.get(self.variable)) is not None:
            value = found
        else:
            raise CredentialError(
                f"{self.where}: the environment variable {self.variable!r}, which holds the credential, is not set",
                variable=self.variable,
            )
        bearer(value, self.variable)
        return Secret(value)

    def _called(self, secret: Secret) -> str:
        try:
            return secret.reveal()
        except ConfigError as exc:
            raise CredentialError(f"{self.where}: {exc}") from exc
        except Exception as exc:
            # The function is the application's own; whatever it raises means that there is no credential.
            raise CredentialError(f"{self.where}: the api_key function raised {type(exc).__name__}") from exc


@frozen(kw_only=True)
class Target:
    """Where a prompt on a profile goes, and with which numbers: all that does not change from run to run."""

    profile: str
    backend_id: str | None
    """The pool that a run is admitted to; None for an endpoint-only profile, which has none."""
    execution: ExecutionOverride
    """The merged values, headers left out."""
    retry: RetryPolicy
    structured_output: StructuredOutput
    credential_rule: CredentialRule
    settings: FrozenDict[str, Any]
    """The fields that all its requests have in common, by name; those that are not set are left out."""


@frozen(kw_only=True)
class Route:
    """What the first phase decided: which prompt, on which target, under which contract."""

    request: RunRequest
    prompt: PromptDefinition
    target: Target
    credential: Secret | None
    session_id: str | None
    started: float
    """When preparation began, on the engine's clock."""


@frozen(kw_only=True)
class Plan:
    """A fully prepared run: everything that generation needs, and no credential of its own."""

    prompt: PromptDefinition
    target: Target
    generate: GenerateRequest
    """The first attempt's request; its credential is there only while the plan is executed."""
    schema: CompiledSchema | None
    hashable_inputs: Json
    """What the inputs hash is over."""
    duration_s: float
    """How long preparation took."""

    def with_credential(self, credential: Secret | None) -> Plan:
        """Return this plan for one execution, on the credential as it is now."""
        return evolve(self, generate=evolve(self.generate, credential=credential))

    def record(self) -> PreparedRun:
        """Return what is sent, with its hashes; equal each time.

        It is made when somebody is to see it: a run that waits in a queue needs no record yet. Writing canonical JSON
        takes more stack than the rest of preparation, and each waiting thread would keep it.
        """
        generate, output = self.generate, self.prompt.output
        return PreparedRun(
            prompt=self.prompt.id,
            description=self.prompt.description,
            profile=self.target.profile,
            backend=self.target.backend_id,
            endpoint=generate.endpoint,
            model=generate.model,
            messages=generate.messages,
            session_id=generate.session_id,
            execution=self.target.execution,
            output_format=output.format,
            output_schema=generate.output_schema,
            is_strict=generate.is_strict,
            structured_output=generate.structured_output,
            repair_max_attempts=output.repair_max_attempts,
            definition_hash=self.prompt.hash,
            inputs_hash=sha256_of(self.hashable_inputs),
            rendered_hash=generate.rendered_hash(),
            duration_s=self.duration_s,
        )


class Preparer:
    """Both phases, over the stores of one engine. Safe for any number of threads."""

    __slots__ = ("_artifacts", "_clock", "_profiles", "_prompts", "_registry", "_renderer", "_schemas", "_targets")

    def __init__(
        self,
        *,
        prompts: PromptStore,
        profiles: ProfileStore,
        schemas: SchemaStore,
        artifacts: ArtifactReader,
        renderer: Renderer,
        registry: Registry,
        clock: Clock,
    ) -> None:
        self._prompts = prompts
        self._profiles = profiles
        self._schemas = schemas
        self._artifacts = artifacts
        self._renderer = renderer
        self._registry = registry
        self._clock = clock
        # Without an override a target depends on two immutable definitions alone. They stay the same objects
        # until their files change, so identity is the key; a lost race computes the same target twice.
        self._targets: dict[tuple[int, int], tuple[PromptDefinition, ProfileDefinition, Target]] = {}

    def route(self, request: RunRequest) -> Route:
        """Decide where a request goes. Reads the prompt and the profile file, and nothing else.

        Raises `InvalidRequestError`, `UnknownNameError`, `DocumentError`, `ConfigError`, `CredentialError`.
        """
        started = self._clock.monotonic()
        session_id = None if request.session_id is None else checked_session(request.session_id)
        prompt = self._prompts.load(request.prompt)
        name = request.profile or prompt.profile
        if name is None:
            raise InvalidRequestError(
                f"prompt {prompt.id!r} names no profile; name one in its file ({prompt.path}) or in the request"
            )
        target = self._target(prompt, self._profiles.load(name), request.override)
        return Route(
            request=request,
            prompt=prompt,
            target=target,
            credential=target.credential_rule.resolve(),
            session_id=session_id,
            started=started,
        )

    def _target(self, prompt: PromptDefinition, profile: ProfileDefinition, override: ExecutionOverride) -> Target:
        if override is not NO_OVERRIDE:
            return self._resolved(prompt, profile, override)
        key = (id(prompt), id(profile))
        known = self._targets.get(key)
        if known is not None and known[0] is prompt and known[1] is profile:
            return known[2]
        target = self._resolved(prompt, profile, override)
        if len(self._targets) >= MAX_TARGETS:
            self._targets.clear()
        self._targets[key] = (prompt, profile, target)
        return target

    def _resolved(self, prompt: PromptDefinition, profile: ProfileDefinition, override: ExecutionOverride) -> Target:
        backend = None
        if profile.backend is not None:
            where = f"{profile.path}:{profile.backend_place.line}:{profile.backend_place.column}"
            backend = self._registry.resolve(profile.backend, where=where)
        execution = DEFAULTS.merged_with(profile.execution).merged_with(prompt.execution).merged_with(override)
        endpoint = execution.endpoint or (backend.endpoint if backend is not None else None)
        if endpoint is None:  # the profile loader refuses this; an override cannot take an endpoint away
            raise ConfigError(f"{profile.path}: the profile has neither a backend nor an endpoint")
        target_url(endpoint)
        rule = credential_rule(profile, backend)
        mode = profile.structured_output or (backend.structured_output if backend else "json_schema")
        settings = {
            "endpoint": endpoint,
            "model": execution.model,
            "backend_id": backend.id if backend else None,
            "profile": profile.name,
            **{name: getattr(execution, name) for name in NUMBER_FIELDS},
            "max_tokens_field": profile.max_tokens_field,
            "extra_body": execution.extra_body,
            "headers": merge_headers(backend.headers if backend else {}, execution.headers or {}),
            "session_field": backend.session_field if backend else None,
            "output_schema_name": _schema_name(prompt.id),
            "structured_output": mode,
            "timeout_s": execution.timeout_s,
            "proxy": profile.proxy,
            "credential_variable": rule.variable,
        }
        return Target(
            profile=profile.name,
            backend_id=backend.id if backend else None,
            execution=public_execution(execution),
            retry=execution.retry or DEFAULT_RETRY,
            structured_output=mode,
            credential_rule=rule,
            settings=FrozenDict({name: value for name, value in settings.items() if value is not None}),
        )

    def complete(self, route: Route, credential: Secret | None = None) -> Plan:
        """Do what may only be done after admission: read, check and render.

        ``credential`` is for a plan that is executed at once; without it the plan can be kept.

        Raises `DocumentError`, `InputError`, `ArtifactError`, `RenderError`.
        """
        prompt, target, output = route.prompt, route.target, route.prompt.output
        schema = None
        if output.format == "json_schema":
            schema = self._schemas.load(
                output.schema, path=prompt.path, place=output.schema_place, positions=output.positions
            )
        inputs = check_inputs(
            prompt.inputs,
            route.request.inputs,
            prompt=prompt.id,
            reader=self._artifacts,
            schemas=self._schemas,
            path=prompt.path,
        )
        compiled = self._renderer.compile(prompt)
        messages = self._renderer.render(compiled, inputs)
        session_id = route.session_id
        if session_id is None and prompt.session is not None:
            session_id = self._renderer.render_session(compiled, inputs)
        is_strict = (
            output.is_strict
            and schema is not None
            and target.structured_output == "json_schema"
            and not schema.strict_obstacles
        )
        generate = GenerateRequest(
            messages=messages,
            session_id=session_id,
            output_format=output.format,
            output_schema=schema.wire_schema if schema else None,
            output_schema_hash=schema.hash if schema else None,
            is_strict=is_strict,
            credential=credential,
            **target.settings,
        )
        return Plan(
            prompt=prompt,
            target=target,
            generate=generate,
            schema=schema,
            hashable_inputs=inputs.hashable,
            duration_s=self._clock.monotonic() - route.started,
        )


def credential_rule(profile: ProfileDefinition, backend: Backend | None) -> CredentialRule:
    """Say where the credential comes from: the profile's variable, else the backend's key, else its variable."""
    if profile.api_key_env is not None:
        return CredentialRule(where=profile.path, variable=profile.api_key_env)
    if backend is None:
        return CredentialRule(where=profile.path)
    return CredentialRule(where=f"backend {backend.id!r}", variable=backend.api_key_env, secret=backend.api_key)


def checked_session(session_id: str) -> str:
    """Return a session id without outer spaces. Raises `InvalidRequestError` for one that cannot be sent."""
    text = session_id.strip()
    if fault := session_fault(text):
        raise InvalidRequestError(f"the session id {fault}")
    return text


def _schema_name(prompt_id: str) -> str:
    """Return a name that OpenAI's ``json_schema.name`` allows: letters, digits, ``_`` and ``-``, at most 64."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in prompt_id)[-64:]
