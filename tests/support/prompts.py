"""A prompts folder that a test fills, and the way from its files to messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from promptkit._inputs import CheckedInputs, check_inputs
from promptkit._loading._artifacts import ArtifactReader
from promptkit._loading._prompts import PromptStore
from promptkit._render import CompiledPrompt, Renderer
from promptkit._types import Issue, Message, Problem
from promptkit.errors import DocumentError, RenderError


class NoSchemas:
    """A schema store of which nothing is asked."""

    def load(self, schema: Any, **where: Any) -> Any:
        """Refuse."""
        raise AssertionError(f"no schema was expected, and {schema!r} was asked for ({where})")


class FixedIssues:
    """A schema store whose schemas find the same issues in every value, and remember what they were shown."""

    def __init__(self, *issues: Issue) -> None:
        self.issues = issues
        self.loaded: list[tuple[Any, dict[str, Any]]] = []
        self.seen: list[Any] = []

    def load(self, schema: Any, **where: Any) -> FixedIssues:
        """Return itself."""
        self.loaded.append((schema, where))
        return self

    def validate(self, value: Any, /) -> tuple[Issue, ...]:
        """Return the issues."""
        self.seen.append(value)
        return self.issues


class Prompts:
    """Prompt files below ``root``, loaded, checked and rendered by the real parts."""

    def __init__(self, root: Path, *, schemas: Any = None) -> None:
        self.root = root
        self.schemas = schemas or NoSchemas()
        self.store = PromptStore(root)
        self.reader = ArtifactReader(root)
        self.renderer = Renderer(root)

    def write(self, text: str, name: str = "p.yaml") -> Path:
        """Write a file below the root."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        return path

    def write_template(self, template: str, types: dict[str, str] | None = None, *, extra: str = "") -> None:
        """Write a prompt of one user message, a ``|`` block whose first line is line 100 of the file.

        ``types`` maps the inputs' names to what stands after their colon: a type, or a mapping in YAML's
        flow style. ``extra`` is more YAML.
        """
        inputs = "".join(
            f"  {name}: {kind if kind.startswith('{') else '{type: ' + kind + '}'}\n"
            for name, kind in (types or {}).items()
        )
        head = extra + (f"inputs:\n{inputs}" if inputs else "")
        head += "#\n" * (96 - head.count("\n"))
        chomping = "+" if template.endswith("\n") else "-"
        lines = template.removesuffix("\n").split("\n")
        body = "".join(f"      {line}\n" if line else "\n" for line in lines)
        self.write(f"{head}messages:\n  - role: user\n    content: |2{chomping}\n{body}")

    def compile(self, name: str = "p") -> CompiledPrompt:
        """Load and compile a prompt."""
        return self.renderer.compile(self.store.load(name))

    def check(self, name: str = "p") -> list[Problem]:
        """Return what is wrong with a prompt's templates."""
        return self.renderer.check(self.store.load(name))

    def inputs(self, given: dict[str, Any], name: str = "p") -> CheckedInputs:
        """Check inputs against a prompt's declarations."""
        definition = self.store.load(name)
        return check_inputs(
            definition.inputs, given, prompt=name, reader=self.reader, schemas=self.schemas, path=definition.path
        )

    def render(self, name: str = "p", /, **given: Any) -> tuple[Message, ...]:
        """Return the messages of a prompt."""
        compiled = self.compile(name)
        return self.renderer.render(compiled, self.inputs(given, name))

    def text(self, template: str, types: dict[str, str] | None = None, /, **given: Any) -> str:
        """Return what a template gives as the only message."""
        self.write_template(template, types or {name: kind_of(value) for name, value in given.items()})
        (message,) = self.render(**given)
        return message.content


def problems(prompts: Prompts, template: str, **types: str) -> str:
    """Return what compiling a template says; it must refuse it, and ``check`` must say the same."""
    prompts.write_template(template, types)
    with pytest.raises(DocumentError) as caught:
        prompts.compile()
    assert [*prompts.check()] == [*caught.value.problems]
    return str(caught.value)


def fault(prompts: Prompts, template: str, **given: Any) -> RenderError:
    """Return the error of rendering a template."""
    with pytest.raises(RenderError) as caught:
        prompts.text(template, **given)
    assert caught.value.path is not None
    assert str(caught.value).startswith(f"{caught.value.path}:{caught.value.line}: ")
    return caught.value


def kind_of(value: object) -> str:
    """Return the input type that a value is of."""
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return kinds[type(value)]
