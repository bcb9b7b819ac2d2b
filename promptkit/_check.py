"""Looks at every file before anything runs: all problems of all prompts, profiles and schemas at once.

Guarantees: reads files and nothing else; a wrong file never hides the problems of another; the result is in
the order of path, line and column.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from promptkit._definitions import NOWHERE
from promptkit._fields import nearest
from promptkit._schema_drift import drift
from promptkit._types import Problem
from promptkit.errors import ConfigError, DocumentError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit._backends import Registry
    from promptkit._definitions import Place, ProfileDefinition, PromptDefinition
    from promptkit._loading._profiles import ProfileStore
    from promptkit._loading._prompts import PromptStore
    from promptkit._loading._schemas import CompiledSchema, SchemaStore
    from promptkit._render import Renderer


T = TypeVar("T")


class Checker:
    """`Engine.check`, over the stores of one engine. Safe for any number of threads."""

    __slots__ = ("_has_schema_root", "_profiles", "_prompts", "_registry", "_renderer", "_schemas")

    def __init__(
        self,
        prompts: PromptStore,
        profiles: ProfileStore,
        schemas: SchemaStore,
        renderer: Renderer,
        registry: Registry,
        *,
        has_schema_root: bool,
    ) -> None:
        """``has_schema_root`` is True when schemas have a folder of their own, all of whose files are schemas."""
        self._prompts = prompts
        self._profiles = profiles
        self._schemas = schemas
        self._renderer = renderer
        self._registry = registry
        self._has_schema_root = has_schema_root

    def check(self, *, are_backends_known: bool = True) -> list[Problem]:
        """Return every problem of every file; names of backends are judged only where those are known."""
        problems: set[Problem] = set()
        names = self._profiles.names()
        for name in names:
            profile = _collected(problems, name, partial(self._profiles.load, name))
            if profile is not None and are_backends_known:
                problems.update(self._profile_problems(profile))
        told: set[object] = set()
        for prompt_id in self._prompts.ids():
            prompt = _collected(problems, prompt_id, partial(self._prompts.load, prompt_id))
            if prompt is not None:
                problems.update(self._prompt_problems(prompt, names))
                told.update(schema for schema in _schemas_of(prompt) if isinstance(schema, str))
        if self._has_schema_root:
            for name in self._schemas.names():
                if name not in told:  # by the prompts that refer to it, at their own lines
                    path = self._schemas.shown(name)
                    self._schema(problems, partial(self._schemas.load, name, path=path), path, NOWHERE, "")
        return sorted(problems, key=lambda p: (p.path, p.line, p.column, p.message))

    def _profile_problems(self, profile: ProfileDefinition) -> list[Problem]:
        known = self._registry.ids
        if profile.backend is None or profile.backend in known:
            return []
        message = f"backend: no backend is called {profile.backend!r}{nearest(profile.backend, known)}"
        return [_problem(profile.path, profile.backend_place, message)]

    def _prompt_problems(self, prompt: PromptDefinition, profiles: list[str]) -> list[Problem]:
        found = self._renderer.check(prompt)
        if prompt.profile is not None and prompt.profile not in profiles:
            hint = nearest(prompt.profile, profiles)
            message = f"profile: no profile is called {prompt.profile!r}{hint}"
            found.append(_problem(prompt.path, prompt.profile_place, message))
        output, problems = prompt.output, set(found)
        if output.format == "json_schema":
            load = partial(self._schemas.load, output.schema, path=prompt.path)
            load = partial(load, place=output.schema_place, positions=output.positions)
            schema = self._schema(problems, load, prompt.path, output.schema_place, "output.schema: ")
            if schema is not None and output.is_strict:
                for obstacle in schema.strict_obstacles:
                    message = f"output.strict: the schema cannot be sent as strict, and goes non-strict: {obstacle}"
                    problems.add(_problem(prompt.path, output.strict_place, message))
        for name, spec in prompt.inputs.items():
            if spec.schema is not None:
                load = partial(self._schemas.load, spec.schema, path=prompt.path)
                load = partial(load, place=spec.schema_place, positions=spec.schema_positions)
                schema = self._schema(problems, load, prompt.path, spec.schema_place, f"inputs.{name}.schema: ")
                if schema is not None and spec.has_default and (issues := schema.validate(spec.default)):
                    message = f"inputs.{name}.default does not fit the input's own schema: {issues[0]}"
                    problems.add(_problem(prompt.path, spec.place, message))
        return list(problems)

    @staticmethod
    def _schema(
        problems: set[Problem], load: Callable[[], CompiledSchema], path: str, place: Place, label: str
    ) -> CompiledSchema | None:
        """Return what ``load`` gives, or None; add its problems, and what has drifted from the class it names."""
        schema = _collected(problems, path, load)
        if schema is not None:
            problems.update(schema.notes)
            problems.update(
                _problem(path, place, f"{label}{line}") for line in drift(schema.source, schema.wire_schema)
            )
        return schema


def _schemas_of(prompt: PromptDefinition) -> list[object]:
    return [prompt.output.schema, *(spec.schema for spec in prompt.inputs.values())]


def _collected(problems: set[Problem], path: str, load: Callable[[], T]) -> T | None:
    """Return what ``load`` gives, or None with its problems added."""
    try:
        return load()
    except DocumentError as exc:
        problems.update(exc.problems)
    except (ConfigError, InvalidRequestError) as exc:
        problems.add(Problem(path, 0, 0, str(exc)))
    return None


def _problem(path: str, place: Place, message: str) -> Problem:
    return Problem(path, place.line, place.column, message)
