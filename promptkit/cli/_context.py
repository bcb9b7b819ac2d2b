"""What every subcommand shares: finding the engine, reading inputs, and turning errors into exit codes."""

from __future__ import annotations

import importlib
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from promptkit import Artifact, CancelToken, Engine
from promptkit._definitions import PromptDefinition
from promptkit._fields import nearest
from promptkit.errors import (
    CapacityExceededError,
    ConfigError,
    CredentialError,
    GenerationError,
    InvalidRequestError,
    OutputValidationError,
    PromptKitError,
    RunCancelledError,
)

TEXT_TYPES = frozenset({"string"})
ARTIFACT_TYPES = frozenset({"file", "image"})


class Exit(IntEnum):
    """The exit codes; documented in `promptkit.cli`."""

    OK = 0
    PROBLEMS = 1
    USAGE = 2
    INVALID_REQUEST = 3
    GENERATION_FAILED = 4
    INVALID_OUTPUT = 5
    FULL = 6
    CANCELLED = 7


_CODES: tuple[tuple[type[PromptKitError], Exit], ...] = (
    # The first that fits counts: a cancelled generation is a cancel before it is a failed generation.
    (RunCancelledError, Exit.CANCELLED),
    (CapacityExceededError, Exit.FULL),
    (OutputValidationError, Exit.INVALID_OUTPUT),
    (GenerationError, Exit.GENERATION_FAILED),
    (InvalidRequestError, Exit.INVALID_REQUEST),
    (ConfigError, Exit.PROBLEMS),
    (CredentialError, Exit.PROBLEMS),
)


def exit_code(error: PromptKitError) -> Exit:
    """Return the exit code that stands for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.PROBLEMS)


def err() -> Console:
    """Return the console for people: stderr, as it is now."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def reported() -> Iterator[None]:
    """Turn an error of promptkit's into its text on stderr and its exit code."""
    try:
        yield
    except PromptKitError as error:
        err().print(f"{type(error).__name__}: {error}", style="red", markup=False)
        if isinstance(error, OutputValidationError) and error.text is not None:
            err().print(f"the last answer was: {error.text[:2000]}", markup=False)
        sys.exit(exit_code(error))


def open_engine(spec: str | None, root: Path) -> Engine:
    """Return the application's own engine, or one on the folders under ``root`` and the built-in backends."""
    return _engine_in_folders(root) if spec is None else _load_engine(spec)


def _load_engine(spec: str) -> Engine:
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise click.UsageError(f"--engine takes module:attribute, as in myapp.prompts:engine; not {spec!r}")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as exc:
        raise click.UsageError(
            f"--engine: there is no module {exc.name!r}; run the command where it can be imported"
        ) from exc
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise click.UsageError(f"--engine: {module_name!r} has no {attribute!r}{nearest(name, dir(found))}")
        found = getattr(found, name)
    if callable(found) and not isinstance(found, Engine):
        found = found()
    if not isinstance(found, Engine):
        raise click.UsageError(f"--engine: {spec} must be an Engine or a function that returns one")
    return found


def _engine_in_folders(root: Path) -> Engine:
    prompts, profiles, schemas = root / "prompts", root / "profiles", root / "schemas"
    for folder in (prompts, profiles):
        if not folder.is_dir():
            raise click.UsageError(
                f"there is no folder {str(folder)!r}; run the command beside prompts/ and profiles/, "
                "or name the application's engine with --engine module:attribute"
            )
    return Engine(prompts=prompts, profiles=profiles, schemas=schemas if schemas.is_dir() else None, artifacts=root)


def read_inputs(definition: PromptDefinition, pairs: tuple[str, ...]) -> dict[str, Any]:
    """Return the inputs that ``-i name=value`` and ``-i name=@file`` give, as their declared types ask.

    A string is taken as it is; a file or an image becomes an `Artifact`; everything else is read as JSON. ``@-``
    is standard input.
    """
    inputs: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"-i takes name=value or name=@file, not {pair[:40]!r}")
        if name in inputs:
            raise click.UsageError(f"-i {name}: given twice")
        spec = definition.inputs.get(name)
        inputs[name] = _value(name, value, "string" if spec is None else spec.type)
    return inputs


def _value(name: str, value: str, kind: str) -> Any:
    if value.startswith("@"):
        data = _read(name, value[1:])
        if kind in ARTIFACT_TYPES:
            return Artifact(data=data, name=value[1:])
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            raise click.UsageError(f"-i {name}: {value[1:]!r} is not UTF-8 text (byte {exc.start})") from exc
    else:
        if kind in ARTIFACT_TYPES:
            raise click.UsageError(f"-i {name}: this input is of type {kind}; name a file with {name}=@path")
        text = value
    if kind in TEXT_TYPES:
        return text
    try:
        return json.loads(text)
    except ValueError as exc:
        raise click.UsageError(
            f"-i {name}: this input is of type {kind}, so its value is read as JSON, and it is none: {exc}"
        ) from exc


def _read(name: str, path: str) -> bytes:
    try:
        if path == "-":
            return sys.stdin.buffer.read()
        return Path(path).read_bytes()
    except OSError as exc:
        raise click.UsageError(f"-i {name}: {path!r} cannot be read: {exc.strerror}") from exc


@contextmanager
def interruptible() -> Iterator[CancelToken]:
    """Give a token that the first Ctrl-C or SIGTERM cancels; a second one ends the process as usual."""
    token = CancelToken()
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def cancel(number: int, _frame: object) -> None:
        for each, handler in previous.items():
            signal.signal(each, handler)
        token.cancel(signal.Signals(number).name)

    for number in previous:
        signal.signal(number, cancel)
    try:
        yield token
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
