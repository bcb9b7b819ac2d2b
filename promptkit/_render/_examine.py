"""Examining a whole prompt: all its templates, the files they include, and the inputs it declares."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from attrs import define, field
from jinja2 import Template, TemplateNotFound, TemplateSyntaxError, nodes

from promptkit._definitions import HistorySpec, Place, PromptDefinition, TemplateText
from promptkit._fields import nearest
from promptkit._render._analysis import Analyst, Fault, Findings, Reference, find_faults
from promptkit._render._files import FolderLoader, Stamp
from promptkit._render._limits import MAX_FILES, TemplateFaultError
from promptkit._render._sandbox import Sandbox
from promptkit._types import Problem

_TAGS: Final = ("{{", "{%", "{#")
_RAW_HINT: Final = "; braces that are meant literally go between {% raw %} and {% endraw %}"
_NO_TREE: Final = (RecursionError, MemoryError, SyntaxError, ValueError, OverflowError)
"""What Jinja's parser and Python's compiler raise for nesting that is too deep and numbers that are too long."""


@define
class Examination:
    """What is wrong with a prompt, or else what it takes to render it."""

    problems: list[Problem] = field(factory=list)
    templates: dict[TemplateText, Template] = field(factory=dict)
    """The compiled templates; a text without tags has none."""
    files: tuple[Stamp, ...] = ()


def place_in(text: TemplateText, line: int) -> Place:
    """Return the place in the file of a template's line."""
    if text.is_block and text.first_line:
        return Place(text.first_line + line - 1, 1)
    return text.place


class Examiner:
    """Examines prompts. Thread-safe: each call keeps its findings to itself."""

    def __init__(self, sandbox: Sandbox, loader: FolderLoader) -> None:
        self._sandbox = sandbox
        self._loader = loader
        self._analyst = Analyst(sandbox)

    def examine(self, definition: PromptDefinition) -> Examination:
        """Return all that is wrong with the templates of a prompt, in the order of the file, or its templates."""
        work = _Work(definition, self._sandbox, self._loader, self._analyst)
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
        work.result.files = tuple(stamp for _, stamp in work.files.values() if stamp is not None)
        return work.result


class _Work:
    """One examination under way."""

    def __init__(self, definition: PromptDefinition, sandbox: Sandbox, loader: FolderLoader, analyst: Analyst) -> None:
        self.definition = definition
        self.sandbox = sandbox
        self.loader = loader
        self.analyst = analyst
        self.result = Examination()
        self.used: set[str] = set()
        self.sees_everything = False
        self.files: dict[str, tuple[Findings | None, Stamp | None]] = {}

    def complain(self, place: Place, message: str, path: str | None = None) -> None:
        problem = Problem(path or self.definition.path, place.line, place.column, message)
        if problem not in self.result.problems:
            self.result.problems.append(problem)

    # ------------------------------------------------------------------------------------- one template

    def template(self, text: TemplateText) -> None:
        """Examine the template of a message or a session id, and what it includes."""
        if not any(tag in text.source for tag in _TAGS):
            return
        tree, faults = self.tree(text.source, self.definition.path)
        findings, more = self.findings(tree)
        for fault in faults + more:
            self.complain(place_in(text, fault.line), fault.message)
        if tree is None or findings is None:
            self.sees_everything = True  # what it would have used is not known
            return
        family = self.family(findings, text)
        names = frozenset().union(*(member.sets for _, member in family))
        for path, member in family:
            for name, line in member.uses.items():
                if name in self.definition.inputs:
                    self.used.add(name)
                elif name not in names:
                    place = place_in(text, line) if path is None else Place(line, 1)
                    self.complain(place, self.unknown(name), path)
        if not faults:
            try:
                self.result.templates[text] = self.sandbox.build(tree, self.definition.path, self.definition.path)
            except _NO_TREE:
                self.complain(place_in(text, 1), "the template nests too deeply")

    def tree(self, source: str, name: str) -> tuple[nodes.Template | None, list[Fault]]:
        """Parse ``source``; return its tree, None where it has none, and the mistakes in it."""
        try:
            tree = self.sandbox.tree(source, name)
            return tree, find_faults(tree, self.sandbox.filters, self.sandbox.tests)
        except TemplateSyntaxError as exc:
            return None, [_syntax_fault(exc)]
        except _NO_TREE:
            return None, [Fault(1, "the template nests too deeply, or has a number that is too long")]

    def findings(self, tree: nodes.Template | None) -> tuple[Findings | None, list[Fault]]:
        if tree is None:
            return None, []
        try:
            return self.analyst.findings(tree), []
        except TemplateSyntaxError as exc:
            return None, [_syntax_fault(exc)]
        except _NO_TREE:
            return None, [Fault(1, "the template nests too deeply")]

    def unknown(self, name: str) -> str:
        inputs = self.definition.inputs
        declared = f"declared: {', '.join(inputs)}" if inputs else "no input is declared"
        return f"{name!r} is no input of this prompt{nearest(name, inputs)} ({declared})"

    # ---------------------------------------------------------------------------------- files it includes

    def family(self, findings: Findings, text: TemplateText) -> list[tuple[str | None, Findings]]:
        """Return the findings of a template and of all files that share its names, each with its path."""
        family: list[tuple[str | None, Findings]] = [(None, findings)]
        seen: set[tuple[str, bool]] = set()
        queue: list[tuple[str | None, Reference, bool]] = [(None, reference, True) for reference in findings.references]
        while queue:
            origin, reference, sees_inputs = queue.pop()
            sees_inputs = sees_inputs and reference.sees_inputs
            if reference.names is None:
                self.sees_everything = True
                continue
            place = place_in(text, reference.line) if origin is None else Place(reference.line, 1)
            for name in self.existing(reference, place, origin):
                file_findings, _ = self.files[name]
                if file_findings is None or (name, sees_inputs) in seen:
                    continue
                seen.add((name, sees_inputs))
                path = self.shown(name)
                if sees_inputs:
                    family.append((path, file_findings))
                queue += [(path, nested, sees_inputs) for nested in file_findings.references]
        return family

    def shown(self, name: str) -> str:
        return str(Path(self.loader.root, name))

    def existing(self, reference: Reference, place: Place, origin: str | None) -> list[str]:
        """Read the files that a reference names; return those that are there, and complain where none is."""
        found: list[str] = []
        for name in reference.names or ():
            try:
                self.load(name)
            except TemplateNotFound:
                continue
            except TemplateFaultError as exc:
                self.complain(place, f"{{% {reference.tag} {name!r} %}}: {exc}", origin)
                return found
            found.append(name)
        if not found and not reference.may_be_missing:
            names = " or ".join(map(repr, reference.names or ()))
            self.complain(place, f"{{% {reference.tag} %}}: the prompts folder has no file {names}", origin)
        return found

    def load(self, name: str) -> None:
        if name in self.files:
            return
        if len(self.files) >= MAX_FILES:
            raise TemplateFaultError(f"a prompt may include at most {MAX_FILES} files")
        source, stamp = self.loader.read(name)
        tree, faults = self.tree(source, name)
        findings, more = self.findings(tree)
        self.files[name] = (findings, stamp)
        if findings is None:
            self.sees_everything = True
        for fault in faults + more:
            self.complain(Place(fault.line, 1), fault.message, self.shown(name))

    def report_unused(self) -> None:
        """Complain of declared inputs that nothing uses, unless something may use them that is not known."""
        if self.sees_everything:
            return
        for name, spec in self.definition.inputs.items():
            if name not in self.used:
                self.complain(spec.place, f"input {name!r} is declared and never used; use it, or take it out")


def _syntax_fault(exc: TemplateSyntaxError) -> Fault:
    message = exc.message or "broken template"
    ends_early = message.lower().startswith("unexpected end of template")
    return Fault(exc.lineno, f"template: {message.rstrip('.')}" + ("" if ends_early else _RAW_HINT))
