"""What a subcommand works on: the engine, the inputs and the numbers that its arguments name.

Guarantees: whatever is wrong with an argument, be it a module that fails when imported or a file that cannot be
read, is a usage error that names the option; no message shows the value of an input.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from promptkit import Artifact, Engine, ExecutionOverride
from promptkit._definitions import PromptDefinition
from promptkit._fields import Json, nearest
from promptkit._loading._text import TextFaultError, decode_text
from promptkit._strict_json import NotJsonError, UnsafeJsonError, parse_json
from promptkit._types import NO_OVERRIDE, NUMBER_FIELDS
from promptkit.errors import ConfigError, InvalidRequestError, PromptKitError

TEXT_TYPE: Final = "string"
ARTIFACT_TYPES: Final = frozenset({"file", "image"})

MAX_INPUT_BYTES: Final = 64 * 1024 * 1024
"""Most that is read for one input; what a prompt allows is checked against its declaration afterwards."""

SETTABLE: Final = (*NUMBER_FIELDS, "model", "timeout_s")


# ------------------------------------------------------------------------------------------------- the engine


@contextlib.contextmanager
def open_engine(spec: str | None, root: Path | None) -> Iterator[Engine]:
    """Give the application's own engine, or one on the folders under ``root`` and the built-in backends.

    What is made here is closed afterwards; an engine that the application has made is the application's to close.
    """
    if spec is None:
        with _engine_in_folders(Path() if root is None else root) as engine:
            yield engine
    elif root is not None:
        raise click.UsageError("give --engine or a folder, not both: the application's engine has its own folders")
    else:
        yield _application_engine(spec)


def _engine_in_folders(root: Path) -> Engine:
    prompts, profiles, schemas = root / "prompts", root / "profiles", root / "schemas"
    for folder in (prompts, profiles):
        if not folder.is_dir():
            raise click.UsageError(
                f"there is no folder {str(folder)!r}; run the command beside prompts/ and profiles/, "
                "or name the application's engine with --engine module:attribute"
            )
    return Engine(prompts=prompts, profiles=profiles, schemas=schemas if schemas.is_dir() else None, artifacts=root)


def _application_engine(spec: str) -> Engine:
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise click.UsageError(f"--engine takes module:attribute, as in myapp.prompts:engine; not {spec!r}")
    with foreign_code(f"--engine: importing {module_name!r}"):
        found: Any = importlib.import_module(module_name)
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise click.UsageError(f"--engine: {module_name!r} has no {attribute!r}{nearest(name, dir(found))}")
        found = getattr(found, name)
    if callable(found) and not isinstance(found, Engine):
        with foreign_code(f"--engine: calling {spec}"):
            found = found()
    if not isinstance(found, Engine):
        raise click.UsageError(f"--engine: {spec} must be an Engine or a function that returns one")
    return found


@contextlib.contextmanager
def foreign_code(doing: str) -> Iterator[None]:
    """Run an application's code: found from the working directory, its prints on stderr, its failure a usage error."""
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (PromptKitError, click.ClickException):
        raise
    except (Exception, SystemExit) as exc:
        # Whatever the application raises is its own; the command can only say what and where.
        frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if not frame.filename.startswith("<")]
        where = f" ({frames[-1].filename}:{frames[-1].lineno})" if len(frames) > 1 else ""
        raise click.UsageError(f"{doing} failed with {type(exc).__name__}: {exc}{where}") from exc


# ------------------------------------------------------------------------------------------------- the inputs


def read_inputs(definition: PromptDefinition, pairs: tuple[str, ...]) -> dict[str, Any]:
    """Return the inputs that ``-i name=value`` and ``-i name=@file`` give, as their declared types ask.

    A string is taken as it is; a file or an image becomes an `Artifact`; everything else is read as JSON. ``@-``
    is standard input, and ``@@`` at the beginning stands for one ``@`` that is meant.
    """
    inputs: dict[str, Any] = {}
    from_stdin: str | None = None
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError("-i takes name=value, name=@file or name=@-; one of them has no name or no =")
        if name in inputs:
            raise click.UsageError(f"-i {name}: given twice")
        if value == "@-":
            if from_stdin is not None:
                raise click.UsageError(f"-i {name}: standard input can be read once, and {from_stdin} has it")
            from_stdin = name
        spec = definition.inputs.get(name)
        inputs[name] = _input(name, value, TEXT_TYPE if spec is None else spec.type)
    return inputs


def _input(name: str, value: str, kind: str) -> Any:
    if value.startswith("@") and not value.startswith("@@"):
        data = _read(name, value[1:])
        if kind in ARTIFACT_TYPES:
            return Artifact(data=data, name="standard input" if value == "@-" else value[1:])
        try:
            text = decode_text(data)
        except TextFaultError as exc:
            raise click.UsageError(f"-i {name}: {value[1:]!r}, line {exc.line}: {exc}") from exc
    else:
        if kind in ARTIFACT_TYPES:
            raise click.UsageError(f"-i {name}: this input is of type {kind}; name a file with {name}=@path")
        text = value[1:] if value.startswith("@@") else value
    return text if kind == TEXT_TYPE else _json(f"-i {name}: this input is of type {kind}, so its value", text)


def _read(name: str, path: str) -> bytes:
    try:
        if path == "-":
            if sys.stdin is None:
                raise click.UsageError(f"-i {name}: standard input is closed")
            data = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
        elif not path:
            raise click.UsageError(f"-i {name}: after @ comes the path of a file, or - for standard input")
        else:
            with Path(path).open("rb") as file:
                data = file.read(MAX_INPUT_BYTES + 1)
    except OSError as exc:
        raise click.UsageError(f"-i {name}: {path!r} cannot be read: {exc.strerror}") from exc
    if len(data) > MAX_INPUT_BYTES:
        raise click.UsageError(f"-i {name}: {path!r} is larger than {MAX_INPUT_BYTES:,} bytes")
    return data


def read_override(settings: tuple[str, ...]) -> ExecutionOverride:
    """Return the execution values that ``--set name=value`` gives."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if name not in SETTABLE:
            hint = nearest(name, SETTABLE) or f"; there are {', '.join(SETTABLE)}"
            raise click.UsageError(f"--set: there is no setting {name[:40]!r}{hint}")
        if not equals:
            raise click.UsageError(f"--set {name}: takes {name}=VALUE")
        values[name] = text if name == "model" else _json(f"--set {name}: the value", text)
    try:
        return ExecutionOverride(**values) if values else NO_OVERRIDE
    except (ConfigError, InvalidRequestError) as exc:
        raise click.UsageError(f"--set: {exc}") from exc


def _json(what: str, text: str) -> Json:
    try:
        return parse_json(text)
    except NotJsonError as exc:
        raise click.UsageError(f"{what} must be JSON: {exc} (character {exc.position + 1})") from exc
    except UnsafeJsonError as exc:
        raise click.UsageError(
            f"{what} must be JSON without repeated keys, NaN, numbers beyond a double and very deep nesting"
        ) from exc
