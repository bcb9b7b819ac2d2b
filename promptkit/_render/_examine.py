"""Examining a whole prompt: all its templates, the files they include, and the inputs it declares.

Guarantees: all problems are found in one go, each with its place in the file it stands in; a problem is something
that cannot work, or that was certainly not meant.
"""

from __future__ import annotations

from attrs import define, field
from jinja2 import Template

from promptkit._definitions import HistorySpec, Place, PromptDefinition, TemplateText
from promptkit._fields import nearest
from promptkit._loading._files import FileMissingError, FileRefusedError
from promptkit._render._analysis import Findings, Reference
from promptkit._render._compiler import Compiler, IncludedFile
from promptkit._render._limits import MAX_FILES
from promptkit._types import Problem
from promptkit.errors import DocumentError


@define
class Examination:
    """What is wrong with a prompt, or else what it takes to render it."""

    problems: list[Problem] = field(factory=list)
    templates: dict[TemplateText, Template] = field(factory=dict)
    """The compiled templates; a text without tags has none."""
    files: dict[str, IncludedFile] = field(factory=dict)
    """The files that the templates name, by name."""


def place_in(text: TemplateText, line: int) -> Place:
    """Return the place in the file of a template's line."""
    if text.is_block and text.first_line:
        return Place(text.first_line + line - 1, 1)
    return text.place


def examine(definition: PromptDefinition, compiler: Compiler) -> Examination:
    """Return all that is wrong with the templates of a prompt, its own file first and in order, or its templates."""
    work = _Work(definition, compiler)
    if definition.session is not None:
        work.template(definition.session)
    for entry in definition.messages:
        if isinstance(entry, HistorySpec):
            work.used.add(entry.input)
        else:
            work.used.update(entry.images)
            work.template(entry.content)
    work.report_unused()
    work.result.problems.sort(key=lambda problem: (problem.path != definition.path, problem.path, problem.line))
    return work.result


class _Work:
    """One examination under way."""

    def __init__(self, definition: PromptDefinition, compiler: Compiler) -> None:
        self.definition = definition
        self.compiler = compiler
        self.result = Examination()
        self.used: set[str] = set()
        self.is_all_known = True
        """False when something may use inputs that cannot be looked into."""

    def complain(self, place: Place, message: str, path: str | None = None) -> None:
        self.add(Problem(path or self.definition.path, place.line, place.column, message))

    def add(self, problem: Problem) -> None:
        if problem not in self.result.problems:
            self.result.problems.append(problem)

    def template(self, text: TemplateText) -> None:
        """Examine the template of a message or a session id, and what it includes."""
        understood = self.compiler.understand(text.source, self.definition.path)
        for fault in understood.faults:
            self.complain(place_in(text, fault.line), fault.message)
        if understood.findings is None:
            self.is_all_known = False
            return
        family = self.family(understood.findings, text)
        names = frozenset().union(*(findings.sets for _, findings in family))
        for path, findings in family:
            for name, line in findings.uses.items():
                if name in self.definition.inputs:
                    self.used.add(name)
                elif name not in names:
                    self.complain(place_in(text, line) if path is None else Place(line, 1), self.unknown(name), path)
        if understood.template is not None:
            self.result.templates[text] = understood.template

    def unknown(self, name: str) -> str:
        inputs = self.definition.inputs
        declared = f"declared: {', '.join(inputs)}" if inputs else "no input is declared"
        return f"{name!r} is no input of this prompt{nearest(name, inputs)} ({declared})"

    def family(self, findings: Findings, text: TemplateText) -> list[tuple[str | None, Findings]]:
        """Return the findings of a template and of all files that see its names, each with its path."""
        family: list[tuple[str | None, Findings]] = [(None, findings)]
        seen: set[tuple[str, bool]] = set()
        queue: list[tuple[str | None, Reference, bool]] = [(None, reference, True) for reference in findings.references]
        while queue:
            origin, reference, sees_inputs = queue.pop()
            sees_inputs = sees_inputs and reference.sees_inputs
            if reference.names is None:
                self.is_all_known = False
                continue
            place = place_in(text, reference.line) if origin is None else Place(reference.line, 1)
            for file in self.named(reference, place, origin):
                if (file.name, sees_inputs) in seen:
                    continue
                seen.add((file.name, sees_inputs))
                if sees_inputs:
                    family.append((file.path, file.findings))
                queue += [(file.path, nested, sees_inputs) for nested in file.findings.references]
        return family

    def named(self, reference: Reference, place: Place, origin: str | None) -> list[IncludedFile]:
        """Return the files that a reference names; complain of those that cannot be used, and when none is there."""
        found: list[IncludedFile] = []
        is_broken = False
        for name in reference.names or ():
            try:
                if len(self.result.files) >= MAX_FILES and name not in self.result.files:
                    raise FileRefusedError(f"a prompt includes at most {MAX_FILES} files")  # noqa: TRY301 - as below
                file = self.result.files[name] = self.compiler.file(name)
            except FileMissingError:
                continue
            except FileRefusedError as exc:
                self.complain(
                    place, f"{reference.tag} {name!r}: {exc}; files are named relative to the prompts folder", origin
                )
            except DocumentError as exc:
                for problem in exc.problems:
                    self.add(problem)
            else:
                found.append(file)
                self.check_imports(reference, file, place, origin)
                continue
            is_broken = True
        if is_broken:
            self.is_all_known = False
        elif not found and not reference.may_be_missing:
            names = " or ".join(map(repr, reference.names or ()))
            root = self.compiler.root.path
            self.complain(place, f"{reference.tag}: the prompts folder {root!r} has no file {names}", origin)
        return found

    def check_imports(self, reference: Reference, file: IncludedFile, place: Place, origin: str | None) -> None:
        for name in reference.imports:
            if name not in file.findings.sets:
                near = nearest(name, file.findings.sets)
                self.complain(place, f"{file.name!r} has no macro or variable {name!r}{near}", origin)

    def report_unused(self) -> None:
        """Complain of declared inputs that nothing uses, unless something may use them that is not known."""
        for name, spec in self.definition.inputs.items():
            if self.is_all_known and name not in self.used:
                self.complain(spec.place, f"input {name!r} is declared and never used; use it, or take it out")
