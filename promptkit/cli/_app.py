"""The subcommands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from attrs import asdict

from promptkit import AttemptEvent, Engine, PreparedRun, RunRequest
from promptkit._types import NUMBER_FIELDS
from promptkit.cli._context import SETTABLE, foreign_code, open_engine, read_inputs, read_override
from promptkit.cli._exit import App, Exit, interruptible, out, tell
from promptkit.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

NOTABLE_S: Final = 0.1
"""A wait shorter than this is not worth a word."""


@click.group(cls=App, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="promptkit", message="%(prog)s %(version)s")
@click.option("--engine", "engine_spec", metavar="MODULE:ATTRIBUTE", help="The application's own engine.")
@click.pass_context
def app(context: click.Context, engine_spec: str | None) -> None:
    """Run prompts kept as files against OpenAI-compatible model servers.

    --engine may stand here or after the name of the command.
    """
    context.default_map = {name: {"engine_spec": engine_spec} for name in ("run", "render", "check")}


def engine_options(command: F) -> F:
    """Add the options that say which engine a command works on."""
    for option in (
        click.option(
            "--root",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="Folder that prompts/, profiles/ and schemas/ are in.  [default: the working directory]",
        ),
        click.option("--engine", "engine_spec", metavar="MODULE:ATTRIBUTE", help="The application's own engine."),
    ):
        command = option(command)
    return command


def request_options(command: F) -> F:
    """Add the arguments that make a request."""
    for option in (
        click.option("--session", "session_id", help="Session id; bypasses the prompt's own template."),
        click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help=f"One of {', '.join(SETTABLE)}."),
        click.option("-p", "--profile", help="Another profile than the prompt's own."),
        click.option(
            "-i",
            "--input",
            "pairs",
            multiple=True,
            metavar="NAME=VALUE",
            help="An input; NAME=@FILE reads a file, NAME=@- standard input, NAME=@@… means the @ itself. "
            "Values of other types than string are JSON.",
        ),
        click.argument("prompt"),
    ):
        command = option(command)
    return command


def _request(
    engine: Engine,
    prompt: str,
    pairs: tuple[str, ...],
    profile: str | None,
    session_id: str | None,
    settings: tuple[str, ...],
) -> RunRequest:
    definition = engine._definition(prompt)  # noqa: SLF001  # the command is a part of the library
    return RunRequest(
        prompt,
        read_inputs(definition, pairs),
        profile=profile,
        session_id=session_id,
        override=read_override(settings),
    )


@app.command()
@request_options
@engine_options
@click.option("--timeout", type=click.FloatRange(min=0), help="Seconds for the whole run.")
@click.option("--queue-timeout", type=click.FloatRange(min=0), help="Seconds that the first attempt may wait its turn.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole result, in its stable form.")
@click.option("--no-content", is_flag=True, help="With --json: leave messages and output out; their hashes stay.")
@click.option("--dry-run", is_flag=True, help="Send nothing; print what would be sent.")
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
def run(
    prompt: str,
    pairs: tuple[str, ...],
    profile: str | None,
    settings: tuple[str, ...],
    session_id: str | None,
    engine_spec: str | None,
    root: Path | None,
    timeout: float | None,
    queue_timeout: float | None,
    as_json: bool,
    no_content: bool,
    dry_run: bool,
    quiet: bool,
) -> None:
    """Run PROMPT and print its output: text as it is, data as JSON."""
    with open_engine(engine_spec, root) as engine:
        request = _request(engine, prompt, pairs, profile, session_id, settings)
        if dry_run:
            _print_prepared(engine.prepare(request), as_json=as_json, with_content=not no_content)
            return
        with interruptible() as token:
            result = engine.run(
                request,
                cancel=token,
                timeout=timeout,
                queue_timeout=queue_timeout,
                observer=None if quiet else _tell,
            )
        if as_json:
            out(result.to_json(with_content=not no_content))
        elif result.prepared.output_format == "text":
            out(result.data)
        else:
            out(json.dumps(result.data, ensure_ascii=False, indent=2))


def _tell(event: AttemptEvent) -> None:
    text = f"attempt {event.number} ({event.kind}): {event.outcome} after {event.generation_s:.1f} s"
    if event.queued_s >= NOTABLE_S:
        text += f", queued {event.queued_s:.1f} s"
    if event.usage is not None and event.usage.total_tokens is not None:
        text += f", {event.usage.total_tokens} tokens"
    if event.next_delay_s is not None:
        text += f", next in {event.next_delay_s:.1f} s"
    tell(text, style="dim")
    if event.error is not None:
        tell(f"  {event.error_type}: {event.error}", style="yellow")


@app.command()
@request_options
@engine_options
@click.option("--json", "as_json", is_flag=True, help="Print the prepared run in its stable form.")
@click.option("--no-content", is_flag=True, help="With --json: leave the messages out; their hashes stay.")
def render(
    prompt: str,
    pairs: tuple[str, ...],
    profile: str | None,
    settings: tuple[str, ...],
    session_id: str | None,
    engine_spec: str | None,
    root: Path | None,
    as_json: bool,
    no_content: bool,
) -> None:
    """Print what running PROMPT would send, with its hashes. Sends nothing."""
    with open_engine(engine_spec, root) as engine:
        request = _request(engine, prompt, pairs, profile, session_id, settings)
        _print_prepared(engine.prepare(request), as_json=as_json, with_content=not no_content)


def _print_prepared(prepared: PreparedRun, *, as_json: bool, with_content: bool) -> None:
    if as_json:
        out(prepared.to_json(with_content=with_content))
        return
    numbers = [
        f"{name}={value!r}" for name in NUMBER_FIELDS if (value := getattr(prepared.execution, name)) is not None
    ]
    lines = [
        f"prompt:      {prepared.prompt}  {prepared.definition_hash}",
        f"inputs:      {prepared.inputs_hash}",
        f"rendering:   {prepared.rendered_hash}",
        f"profile:     {prepared.profile}",
        f"target:      {prepared.model or '(the server chooses)'} at {prepared.endpoint}",
        *([] if prepared.session_id is None else [f"session:     {prepared.session_id}"]),
        f"numbers:     {', '.join(numbers) or '(none sent)'}",
        f"output:      {prepared.output_format}{', strict' if prepared.is_strict else ''}",
    ]
    for message in prepared.messages if with_content else ():
        lines += ["", f"--- {message.role} ---", message.content.removesuffix("\n")]
        lines += [f"[image: {image.media_type}, {image.sha256}]" for image in message.images]
    out("\n".join(lines))


@app.command()
@click.argument("root", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False)
@click.option("--engine", "engine_spec", metavar="MODULE:ATTRIBUTE", help="The application's own engine.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects with path, line, column and message.")
def check(root: Path | None, engine_spec: str | None, as_json: bool) -> None:
    """Load every prompt, profile and schema under ROOT and list all problems, one ``path:line:column`` a line.

    ROOT is the folder that prompts/, profiles/ and schemas/ are in, the working directory where it is left out.
    Exits with 1 when there are problems. Without --engine the application's backends are not known, so the names
    of backends are not checked.
    """
    with open_engine(engine_spec, root) as engine:
        problems = engine._check(are_backends_known=engine_spec is not None)  # noqa: SLF001  # part of the library
    if as_json:
        out(json.dumps([asdict(problem) for problem in problems], ensure_ascii=False, indent=2))
    elif problems:
        out("\n".join(map(str, problems)))
    if problems:
        tell(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}", style="red")
        sys.exit(Exit.PROBLEMS)
    tell("no problems", style="green")


@app.command()
@click.argument("before", metavar="A", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("after", metavar="B", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def diff(before: Path, after: Path) -> None:
    """Show what changed between two prepared or result files, by part. Exits with 1 when anything did.

    A and B are what ``render --json`` or ``run --json`` printed. The parts are definition, inputs, rendering and
    target.
    """
    from promptkit.cli._diff import differences, load_prepared

    found = differences(load_prepared(before), load_prepared(after))
    if found:
        out("\n".join(found))
        sys.exit(Exit.PROBLEMS)
    tell("no differences", style="green")


@app.group()
def schema() -> None:
    """Work with JSON Schemas."""


@schema.command()
@click.argument("spec", metavar="MODULE:CLASS")
def generate(spec: str) -> None:
    """Print the JSON Schema of an attrs class, a dataclass or a TypedDict, so that file and class cannot drift."""
    from promptkit._class_schemas import class_named, json_schema_of

    try:
        with foreign_code(f"importing the module of {spec!r}"):
            cls = class_named(spec)
    except ConfigError as exc:
        raise click.UsageError(str(exc)) from exc
    out(json.dumps(json_schema_of(cls), ensure_ascii=False, indent=2))
