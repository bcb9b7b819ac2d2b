"""Prompt files: the messages, what may be put into them, and what the answer must be.

Guarantees: in a prompt that loads, every name that one part uses of another is declared there, every default
fits its input, and everything that a template or a schema may be complained of knows its place.
Templates are not compiled and schemas not read here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from promptkit._canonical import sha256_of_bytes
from promptkit._definitions import (
    HistorySpec,
    InputSpec,
    MessageSpec,
    OutputSpec,
    PromptDefinition,
    TemplateText,
)
from promptkit._fields import FrozenDict, nearest
from promptkit._loading import _yaml
from promptkit._loading._execution import COMMON_KEYS, MISNAMED, read_execution
from promptkit._loading._files import name_fault
from promptkit._loading._input_specs import read_inputs
from promptkit._loading._shape import Item, Range, Report, Section, as_schema, as_string, schema_positions
from promptkit._loading._store import DefinitionStore
from promptkit._loading._text import MAX_SHOWN, quote
from promptkit._types import NO_OVERRIDE, OUTPUT_FORMATS, ROLES, ExecutionOverride, Problem

PROMPT_KEYS: Final = ("description", "profile", "inputs", "session", "messages", "output", "execution")
OUTPUT_KEYS: Final = ("format", "schema", "strict", "repair")
MESSAGE_KEYS: Final = ("role", "content", "images")
REPAIR_ATTEMPTS: Final = Range(at_least=0, at_most=10, is_integer=True)

_IN_PROFILE: Final = "belongs in a profile"
_CREDENTIAL: Final = "a prompt holds no credential; a profile names one's environment variable with api_key_env"
_NOT_IN_PROMPT: Final[dict[str, str]] = {
    **MISNAMED,
    **dict.fromkeys(("api_key", "apikey", "key", "token", "secret", "password"), _CREDENTIAL),
    **{
        key: f"{key} {_IN_PROFILE}"
        for key in ("endpoint", "backend", "headers", "api_key_env", "max_tokens_field", "structured_output", "proxy")
    },
}
_MISPLACED: Final[dict[str, str]] = {
    **_NOT_IN_PROMPT,
    **{key: f"{key} belongs in execution" for key in COMMON_KEYS},
    **{key: f"{key} belongs in output" for key in OUTPUT_KEYS},
    **{key: f"{key} belongs in an entry of messages" for key in (*MESSAGE_KEYS, "history")},
    "max_attempts": "max_attempts belongs in output, under repair",
    "response": "write output",
    "response_format": "write output: {format: …}",
    "schema_file": "write output: {format: json_schema, schema: …}",
    "input": "write inputs",
    "variables": "write inputs",
    "parameters": "write inputs, or execution for the model's numbers",
    "session_id": "write session",
    "template": "write messages: [{role: user, content: …}]",
    "prompt": "write messages: [{role: user, content: …}]",
    **{role: f"write messages: [{{role: {role}, content: …}}]" for role in ROLES},
    "id": "a prompt is named by its file's path; a note goes under a key that begins with x-",
    "name": "a prompt is named by its file's path; a note goes under a key that begins with x-",
    "version": "a note goes under a key that begins with x-, such as x-version",
    "metadata": "notes go under keys that begin with x-",
}
_IN_EXECUTION: Final[dict[str, str]] = {
    **_NOT_IN_PROMPT,
    **{key: f"{key} belongs at the top level" for key in ("profile", "session")},
    "repair": "repair belongs in output",
}
_IN_OUTPUT: Final[dict[str, str]] = {
    **_NOT_IN_PROMPT,
    **{key: f"{key} belongs in execution" for key in COMMON_KEYS},
    "max_attempts": "max_attempts belongs in repair",
    "schema_file": "write schema; it takes a file's name or a schema in place",
    "type": "write format",
}
_OTHER_ROLES: Final[dict[str, str]] = {"developer": "system", "human": "user", "ai": "assistant", "model": "assistant"}
"""What other tools call a role, and what it is called here."""
_IN_MESSAGE: Final[dict[str, str]] = {
    **{role: f"write role: {role}, content: …" for role in ROLES},
    "text": "write content",
    "prompt": "write content",
    "template": "write content",
    "image": "write images: [NAME]",
    "history": "history is an entry of its own: - history: NAME",
}


class PromptStore:
    """The prompt files below a root. Safe for any number of threads."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._store: DefinitionStore[PromptDefinition] = DefinitionStore(root, kind="prompt", parse=parse_prompt)

    def load(self, prompt_id: str) -> PromptDefinition:
        """Return the prompt called ``prompt_id``; see `DefinitionStore.load`."""
        return self._store.load(prompt_id)

    def ids(self) -> list[str]:
        """Return the ids of all prompts, sorted."""
        return self._store.names()


def parse_prompt(data: bytes, path: str, prompt_id: str) -> PromptDefinition:
    """Return what a prompt file says. Raises `DocumentError` with every problem."""
    problems: list[Problem] = []
    document = _yaml.load(data, path, problems=problems)
    report = Report(path, problems)
    top = Section(report, Item("", document.root), PROMPT_KEYS, misplaced=_MISPLACED, document=document)
    inputs = read_inputs(report, top)
    names = _Names(inputs, top)
    definition = PromptDefinition(
        id=prompt_id,
        path=path,
        hash=sha256_of_bytes(data),
        description=top.string("description"),
        profile=_profile(report, top),
        inputs=FrozenDict(inputs),
        session=_template(report, top.item("session")),
        messages=_messages(report, top, names),
        output=_output(report, top),
        execution=_execution(report, top),
        profile_place=top.place_of("profile"),
    )
    report.raise_if_any()
    return definition


def _profile(report: Report, top: Section) -> str | None:
    name = top.string("profile")
    if name is not None and (fault := name_fault(name)):
        report.tell(top.place_of("profile"), f"profile: {quote(name)} cannot name a profile: {fault}")
    return name


def _template(report: Report, item: Item | None) -> TemplateText | None:
    if item is None:
        return None
    source = as_string(report, item)
    if source is None:
        return None
    node = item.node
    is_block = node.style == "literal"
    return TemplateText(
        source=source,
        place=node.place,
        first_line=node.text_line if is_block else node.place.line,
        is_block=is_block,
        is_folded=node.style == "folded",
        has_comment=node.has_comment,
    )


# -------------------------------------------------------------------------------------------- messages


class _Names:
    """The inputs that messages may name: those that are right, and the names of those that have been complained of."""

    def __init__(self, specs: Mapping[str, InputSpec], top: Section) -> None:
        item = top.item("inputs")
        self.specs = specs
        self.flawed: AbstractSet[str] = frozenset() if item is None else item.node.entries.keys() - specs.keys()


def _messages(report: Report, top: Section, names: _Names) -> tuple[MessageSpec | HistorySpec, ...]:
    if top.is_usable and top.item("messages") is None:
        report.tell(top.place, "messages is missing: a prompt has at least one, such as {role: user, content: …}")
    items = top.list("messages", "messages")
    if items is None:
        return ()
    if not items:
        report.tell(top.place_of("messages"), "messages is empty: a prompt has at least one")
    read = [_message(report, item, names) for item in items]
    return tuple(message for message in read if message is not None)


def _message(report: Report, item: Item, names: _Names) -> MessageSpec | HistorySpec | None:
    if "history" in item.node.entries and not {"role", "content"} & set(item.node.entries):
        return _history(report, Section(report, item, ("history",)), names)
    section = Section(report, item, MESSAGE_KEYS, misplaced=_IN_MESSAGE)
    if not section.is_usable:
        return None
    role = section.choice("role", ROLES, elsewhere=_OTHER_ROLES)
    content = _template(report, section.item("content"))
    images = _images(report, section, names)
    for key in ("role", "content"):
        if section.item(key) is None and not (key == "content" and images):
            report.tell(section.place, f"{section.label(key)} is missing")
    if images and role not in {None, "user"}:
        report.tell(section.place_of("images"), f"{section.label('images')}: only messages of role user carry images")
    if role is None:
        return None
    return MessageSpec(role=role, content=content or TemplateText(source=""), images=images, place=section.place)


def _history(report: Report, section: Section, names: _Names) -> HistorySpec | None:
    name = _input_name(report, section.item("history"), names, "messages")
    return None if name is None else HistorySpec(input=name, place=section.place)


def _images(report: Report, section: Section, names: _Names) -> tuple[str, ...]:
    items = section.list("images", "names of image inputs") or ()
    found = [_input_name(report, item, names, "image") for item in items]
    return tuple(name for name in found if name is not None)


def _input_name(report: Report, item: Item | None, names: _Names, wanted: str) -> str | None:
    name = None if item is None else as_string(report, item)
    if item is None or name is None:
        return None
    spec = names.specs.get(name)
    if spec is not None and spec.type == wanted:
        return name
    if spec is not None:
        told = f"the input {name} is of type {spec.type}; expected one of type {wanted}"
    elif name in names.flawed:
        return None
    else:
        hint = nearest(name[:MAX_SHOWN], names.specs) or f"; declare it in inputs with type: {wanted}"
        told = f"there is no input called {name[:MAX_SHOWN]}{hint}"
    report.tell(item.node.place, f"{item.label}: {told}")
    return None


# ------------------------------------------------------------------------------- output and execution


def _output(report: Report, top: Section) -> OutputSpec:
    section = top.section("output", OUTPUT_KEYS, misplaced=_IN_OUTPUT)
    if section is None:
        return OutputSpec()
    given = section.choice("format", OUTPUT_FORMATS)
    is_strict = bool(section.boolean("strict"))
    schema = as_schema(report, section.item("schema"))
    repair = section.section("repair", ("max_attempts",))
    attempts = None if repair is None else repair.number("max_attempts", REPAIR_ATTEMPTS)
    is_known = given is not None or "format" not in section.entries
    if is_known and given == "json_schema" and "schema" not in section.entries:
        report.tell(section.place_of("format"), "output.schema is missing: format json_schema needs one")
    if is_known and given != "json_schema":
        for key in ("schema", "strict"):
            if key in section.entries and (key == "schema" or is_strict):
                told = f"output.{key} needs format: json_schema, not {given or 'text (the default)'}"
                report.tell(section.keys[key], told)
    return OutputSpec(
        format=given or "text",
        schema=schema,
        is_strict=is_strict,
        repair_max_attempts=1 if attempts is None else attempts,
        strict_place=section.place_of("strict"),
        schema_place=section.place_of("schema"),
        positions=schema_positions(section.item("schema")),
    )


def _execution(report: Report, top: Section) -> ExecutionOverride:
    section = top.section("execution", COMMON_KEYS, misplaced=_IN_EXECUTION)
    return NO_OVERRIDE if section is None else read_execution(report, section)
