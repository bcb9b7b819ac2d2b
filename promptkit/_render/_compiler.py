"""Templates understood: parsed, searched for mistakes, compiled; and the files that templates include.

Guarantees: an included file lies inside the prompts folder, links followed; it is read again when it has changed
and compiled again when its content has. Compiling raises nothing: what is wrong is in the result, with its line.
Safe for any number of threads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, MutableMapping
from typing import Any, Final

from attrs import frozen
from jinja2 import Environment, Template, TemplateNotFound, TemplateSyntaxError
from jinja2.loaders import BaseLoader

from promptkit._fields import is_unicode
from promptkit._loading._cache import FileCache
from promptkit._loading._files import FileMissingError, FileRefusedError, Root, name_fault
from promptkit._loading._text import TextFaultError, decode_text
from promptkit._render._analysis import Analyst, Fault, Findings, find_faults
from promptkit._render._limits import MAX_FILE_BYTES
from promptkit._render._sandbox import Sandbox
from promptkit._types import Problem
from promptkit.errors import DocumentError

_RAW_HINT: Final = "; braces that are meant literally go between {% raw %} and {% endraw %}"

_MAY_BE_TEXT: Final = re.compile(
    "(expected token|missing end|unexpected (?!end)|encountered unknown tag|expected an expression|tag name expected)",
    re.IGNORECASE,
)
"""Jinja's messages about braces that perhaps are none of a template's."""

_TOO_DEEP: Final = (RecursionError, MemoryError, SyntaxError, ValueError, OverflowError)
"""What Jinja's parser and Python's compiler raise for nesting that is too deep and numbers that are too long."""


@frozen(eq=False)
class Understood:
    """A template's mistakes, or what it uses and its compiled form."""

    faults: tuple[Fault, ...] = ()
    findings: Findings | None = None
    """None when the template cannot be parsed."""
    template: Template | None = None
    """None when there are faults, and for a text without tags."""


_TAGS: Final = ("{{", "{%", "{#")
_PLAIN: Final = Understood((), Findings({}, frozenset(), ()))


@frozen(eq=False)
class IncludedFile:
    """A file of the prompts folder, as a template; one object for as long as its content stays the same."""

    name: str
    path: str
    findings: Findings
    template: Template


class Compiler:
    """Understands the templates of one prompts folder."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Root(root, kind="prompt")
        self._files = FileCache(self.root, self._parse_file, max_bytes=MAX_FILE_BYTES)
        self.sandbox = Sandbox(_Loader(self.file))
        self._analyst = Analyst(self.sandbox)

    def understand(self, source: str, name: str, *, is_plain_allowed: bool = True) -> Understood:
        """Return what there is to know about a template. ``name`` stands in Python's tracebacks.

        A text without tags gets a template only where plain text is not allowed: it gives itself.
        """
        if not is_unicode(source) or "\0" in source:
            return Understood((Fault(1, "the text has a NUL or half of a surrogate pair in it"),))
        if is_plain_allowed and not any(tag in source for tag in _TAGS):
            return _PLAIN
        findings = None
        try:
            tree = self.sandbox.tree(source, name)
            faults = find_faults(tree, self.sandbox.filters, self.sandbox.tests)
            findings = self._analyst.findings(tree)
            template = None if faults else self.sandbox.build(tree, name)
        except TemplateSyntaxError as exc:
            return Understood((_syntax_fault(exc),), findings)
        except _TOO_DEEP:
            return Understood((Fault(1, "the template nests too deeply, or has a number that is too long"),), findings)
        return Understood(tuple(faults), findings, template)

    def file(self, name: str) -> IncludedFile:
        """Return a file of the prompts folder as it is now; costs one stat while it stays the same.

        Raises `FileMissingError`, `FileRefusedError`, or `DocumentError` with the mistakes in it.
        """
        if fault := name_fault(name):
            raise FileRefusedError(f"the name cannot be used: {fault}")
        return self._files.get(name)

    def _parse_file(self, data: bytes, name: str) -> IncludedFile:
        path = self.root.shown(name)
        try:
            text = decode_text(data)
        except TextFaultError as exc:
            raise DocumentError([Problem(path, exc.line, exc.column, str(exc))]) from exc
        # the line with the tag ends by itself, so the file's last newline would be one too many
        understood = self.understand(text.removesuffix("\n").removesuffix("\r"), name, is_plain_allowed=False)
        if understood.template is None or understood.findings is None:
            raise DocumentError([Problem(path, fault.line, 1, fault.message) for fault in understood.faults])
        return IncludedFile(name, path, understood.findings, understood.template)


class FileFaultError(Exception):
    """A file that a template includes while rendering cannot be used."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(what)
        self.name = name


class _Loader(BaseLoader):
    """Gives Jinja the compiled templates of files."""

    def __init__(self, file: Callable[[str], IncludedFile]) -> None:
        self._file = file

    def load(
        self,
        environment: Environment,  # noqa: ARG002 - Jinja's signature
        name: str,
        globals: MutableMapping[str, Any] | None = None,  # noqa: A002, ARG002 - likewise
    ) -> Template:
        """Return the compiled template of a file."""
        try:
            return self._file(name).template
        except FileMissingError as exc:
            raise TemplateNotFound(name) from exc
        except FileRefusedError as exc:
            raise FileFaultError(name, str(exc)) from exc
        except DocumentError as exc:
            raise FileFaultError(name, str(exc.problems[0])) from exc


def _syntax_fault(exc: TemplateSyntaxError) -> Fault:
    message = (exc.message or "it cannot be parsed").rstrip(".")
    return Fault(exc.lineno, f"template: {message}" + (_RAW_HINT if _MAY_BE_TEXT.match(message) else ""))
