"""`Renderer`: prompts in, messages out.

Guarantees: a prompt is examined as a whole before it is rendered, and compiled once per content; each message is
rendered on its own into the role that its file gives it, so no input can open another; what a template does wrong
is a `RenderError` at its line of the file, which names what the template says and never holds a value.

Thread rule: one renderer serves all threads. ``_lock`` guards ``_entries``, the table of compiled prompts, and is
held for look-ups only; each entry's own lock is held while its prompt is compiled, so that a prompt that many
threads want at once is compiled by one of them, and nobody waits for another prompt.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen
from jinja2 import Template, TemplateNotFound, TemplateRuntimeError
from jinja2.runtime import Context

from promptkit._definitions import HistorySpec, MessageSpec, Place, PromptDefinition, TemplateText
from promptkit._fields import session_fault
from promptkit._loading._files import FileRefusedError
from promptkit._render._compiler import Compiler, FileFaultError, IncludedFile
from promptkit._render._examine import Examination, examine, place_in
from promptkit._render._limits import MAX_OUTPUT_CHARS, TemplateFaultError
from promptkit._types import Message, Problem
from promptkit.errors import DocumentError, RenderError

if TYPE_CHECKING:
    from promptkit._inputs import CheckedInputs

_MAX_PROMPTS: Final = 512
"""Compiled prompts kept; beyond that, the one unused for longest is forgotten."""


@frozen(eq=False)
class _Part:
    """One template of a prompt: compiled, or, when it has no tags, the text it always gives."""

    text: TemplateText
    plain: str | None
    template: Template | None


@frozen(eq=False)
class _MessagePart:
    spec: MessageSpec
    part: _Part
    fixed: Message | None
    """The message itself, when it is the same for all inputs."""


@frozen(eq=False)
class CompiledPrompt:
    """A prompt that is ready to be rendered. Immutable; made by `Renderer.compile`."""

    definition: PromptDefinition
    messages: tuple[_MessagePart | HistorySpec, ...]
    session: _Part | None
    absent: Mapping[str, Any]
    """What optional inputs without a default are when they are not given."""
    files: Mapping[str, IncludedFile]
    """The files that its templates name, by name, as they were when it was examined."""


class _Entry:
    __slots__ = ("compiled", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.compiled: CompiledPrompt | None = None


class Renderer:
    """Compiles and renders prompts whose templates may include files below ``prompts_root``."""

    def __init__(self, prompts_root: str | os.PathLike[str]) -> None:
        self._compiler = Compiler(prompts_root)
        self._sandbox = self._compiler.sandbox
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()

    # ------------------------------------------------------------------------------------------- compiling

    def check(self, definition: PromptDefinition) -> list[Problem]:
        """Return what is wrong with a prompt's templates and names, in the order of the file.

        Syntax errors, unknown filters and tests, names that are no inputs, declared inputs that nothing uses,
        included files that are missing or lie outside the prompts folder. Last come two ways of writing a text
        that YAML allows and hardly anybody means: ``compile`` lets them pass. Reads included files.
        """
        problems = examine(definition, self._compiler).problems
        texts = [entry.content for entry in definition.messages if isinstance(entry, MessageSpec)]
        return problems + [
            Problem(definition.path, text.place.line, text.place.column, message)
            for text in texts
            for message in _doubts(text)
        ]

    def compile(self, definition: PromptDefinition) -> CompiledPrompt:
        """Return the compiled prompt, from the cache while neither it nor a file that it includes has changed.

        Raises `DocumentError` with all the problems that `check` finds. Blocks while another thread compiles the
        same prompt.
        """
        key = (definition.path, definition.hash)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry()
                if len(self._entries) > _MAX_PROMPTS:
                    self._entries.popitem(last=False)
            else:
                self._entries.move_to_end(key)
        compiled = entry.compiled
        if compiled is not None and self._is_current(compiled):
            return compiled
        with entry.lock:
            compiled = entry.compiled
            if compiled is None or not self._is_current(compiled):
                compiled = entry.compiled = self._compile(definition)
        return compiled

    def _is_current(self, compiled: CompiledPrompt) -> bool:
        try:
            return all(self._compiler.file(name) is file for name, file in compiled.files.items())
        except (FileRefusedError, DocumentError):
            return False

    def _compile(self, definition: PromptDefinition) -> CompiledPrompt:
        examination = examine(definition, self._compiler)
        if examination.problems:
            raise DocumentError(examination.problems)
        absent = {
            name: self._sandbox.undefined(
                f"the optional input {name!r} was not given; test it with {{% if {name} is defined %}}, "
                "use |default('…'), or declare a default",
                name=name,
            )
            for name, spec in definition.inputs.items()
            if not spec.is_required and not spec.has_default
        }
        return CompiledPrompt(
            definition,
            tuple(
                entry if isinstance(entry, HistorySpec) else _message_part(entry, examination)
                for entry in definition.messages
            ),
            None if definition.session is None else _part(definition.session, examination),
            absent,
            examination.files,
        )

    # ------------------------------------------------------------------------------------------- rendering

    def render(self, compiled: CompiledPrompt, inputs: CheckedInputs) -> tuple[Message, ...]:
        """Return the messages of a prompt with these inputs, one for each entry, histories spliced in.

        Raises `RenderError`.
        """
        variables: dict[str, Any] | None = None
        messages: list[Message] = []
        for entry in compiled.messages:
            if isinstance(entry, HistorySpec):
                messages += inputs.histories.get(entry.input, ())
                continue
            if entry.fixed is not None:
                messages.append(entry.fixed)
                continue
            if variables is None:
                variables = self._variables(compiled, inputs)
            images = [image for name in entry.spec.images for image in inputs.images.get(name, ())]
            messages.append(Message(entry.spec.role, self._text(compiled, entry.part, variables), images=images))
        return tuple(messages)

    def render_session(self, compiled: CompiledPrompt, inputs: CheckedInputs) -> str | None:
        """Return the session id that the prompt's ``session`` template gives, or None when it has none.

        White space around it is dropped. Raises `RenderError` when nothing is left, and when it has several
        lines, control characters, or more than 256 characters.
        """
        part = compiled.session
        if part is None:
            return None
        text = self._text(compiled, part, self._variables(compiled, inputs)).strip()
        if fault := session_fault(text):
            raise _error(compiled, part, 1, f"the session id {fault}")
        return text

    def _variables(self, compiled: CompiledPrompt, inputs: CheckedInputs) -> dict[str, Any]:
        return {**self._sandbox.globals, **compiled.absent, **inputs.values}

    def _text(self, compiled: CompiledPrompt, part: _Part, variables: dict[str, Any]) -> str:
        template = part.template
        if template is None:
            return part.plain or ""
        budget = self._sandbox.budget
        outer = budget.begin()
        try:
            context = Context(self._sandbox, variables, template.name, template.blocks)
            text = "".join(template.root_render_func(context))
            _check_text(text)
        except Exception as exc:  # noqa: BLE001 - an expression may raise anything; all of it is the template's fault
            raise self._translated(compiled, part, exc) from (exc if isinstance(exc, _SAFE) else None)
        finally:
            budget.end(outer)
        return text

    def _translated(self, compiled: CompiledPrompt, part: _Part, exc: Exception) -> RenderError:
        """Return the error for what ``exc`` tells. The text of a foreign error may hold a value: it is not used."""
        line, inner = 1, ""
        traceback = exc.__traceback__
        while traceback is not None:
            template: Template | None = traceback.tb_frame.f_globals.get("__jinja_template__")
            if template is not None and template is part.template:
                line = template.get_corresponding_lineno(traceback.tb_lineno)
            elif template is not None:
                name = repr(template.name) if template.name in compiled.files else "the included file"
                inner = f"{name}, line {template.get_corresponding_lineno(traceback.tb_lineno)}: "
            traceback = traceback.tb_next
        if isinstance(exc, RecursionError):
            inner = ""
        return _error(compiled, part, line, inner + _explained(exc, compiled.files))


def _check_text(text: str) -> None:
    if len(text) > MAX_OUTPUT_CHARS:
        raise TemplateFaultError(f"the message is longer than {MAX_OUTPUT_CHARS} characters")
    if "\0" in text:
        raise TemplateFaultError("the text has a NUL in it")
    if not text.isascii():
        text.encode()  # raises for a lone surrogate that the template itself has written


_SAFE: Final = (TemplateFaultError, TemplateRuntimeError)
"""Errors whose text speaks of the template alone."""


def _doubts(text: TemplateText) -> Iterator[str]:
    if text.is_folded:
        yield "a text after > has its lines joined, which ruins lists and code; write | to keep them"
    if text.has_comment:
        yield "the text ends where YAML sees a comment, at ' #'; quote it, or write it after |"


def _part(text: TemplateText, examination: Examination) -> _Part:
    template = examination.templates.get(text)
    plain = re.sub(r"\r\n?", "\n", text.source) if template is None else None
    return _Part(text, plain, template)


def _message_part(spec: MessageSpec, examination: Examination) -> _MessagePart:
    part = _part(spec.content, examination)
    fixed = Message(spec.role, part.plain) if part.plain is not None and not spec.images else None
    return _MessagePart(spec, part, fixed)


def _error(compiled: CompiledPrompt, part: _Part, line: int, what: str) -> RenderError:
    path = compiled.definition.path
    place: Place = place_in(part.text, line)
    where = f"{path}:{place.line}" if place.line else path
    return RenderError(f"{where}: {what}", path=path, line=place.line)


_HARMLESS: Final = re.compile(
    r"'\w+' object is not (iterable|callable|subscriptable)"
    r"|unsupported operand type\(s\) for .{1,6}: '\w+' and '\w+'"
    r"|'.{1,2}' not supported between instances of '\w+' and '\w+'"
    r"|not (enough arguments for format string|all arguments converted during string formatting)"
    r"|format requires a mapping|%\w format: a(n integer| real number) is required, not \w+"
    r"|can only concatenate \w+ \(not \"\w+\"\) to \w+"
    r"|macro '\w+' (takes no keyword argument '\w+'|takes not more than \d+ argument\(s\)|was invoked with .*)"
)
"""Messages of Python's and Jinja's type errors that name types and nothing else."""


def _explained(exc: Exception, files: Container[str | None]) -> str:
    """Say what ``exc`` means; a file's name is shown if it stands in the template, for else it may be an input."""
    if isinstance(exc, TemplateNotFound):
        return "the prompts folder has no file of the name that is included"
    if isinstance(exc, FileFaultError):
        return f"{exc.name!r}: {exc}" if exc.name in files else "the file that is included cannot be used"
    if isinstance(exc, RecursionError):
        return "it calls or includes itself endlessly, or nests too deeply"
    if isinstance(exc, UnicodeEncodeError):
        return "the text has a lone surrogate, which cannot be encoded"
    if isinstance(exc, ZeroDivisionError):
        return "a division by zero"
    if isinstance(exc, OverflowError):
        return "a number or a range is too large"
    if isinstance(exc, _SAFE) or (isinstance(exc, TypeError) and _HARMLESS.fullmatch(str(exc))):
        return str(exc).replace("Frozen", "")  # FrozenDict and FrozenList are a dict and a list to the author
    return f"an expression failed ({type(exc).__name__})"
