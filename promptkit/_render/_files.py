"""Files that templates include and import: inside the prompts folder, and nowhere else.

Guarantees: what is opened is the resolved path, after it has been found to lie under the resolved root, so that
neither ``..``, an absolute name nor a link leads out (a root that is itself a link, or holds links that stay
inside, is fine); only regular files, of bounded size, in UTF-8. A file that has changed is read again.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from jinja2 import TemplateNotFound, TemplateSyntaxError
from jinja2.environment import Environment, Template
from jinja2.loaders import BaseLoader

from promptkit._render._analysis import find_faults
from promptkit._render._limits import MAX_TEMPLATE_CHARS, TemplateFaultError

if TYPE_CHECKING:
    from promptkit._render._sandbox import Sandbox

_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Stamp(NamedTuple):
    """What tells one version of a file from the next."""

    path: str
    size: int
    modified_ns: int
    inode: int

    def is_current(self) -> bool:
        """True while the file on disk is the one that was read."""
        try:
            return self == _stamp(self.path, Path(self.path).stat())
        except OSError:
            return False


def _stamp(path: str, status: os.stat_result) -> Stamp:
    return Stamp(path, status.st_size, status.st_mtime_ns, status.st_ino)


class FolderLoader(BaseLoader):
    """Gives Jinja the templates of one folder. Thread-safe: it keeps nothing but the root."""

    def __init__(self, root: str) -> None:
        self.root = root

    def read(self, name: str) -> tuple[str, Stamp]:
        """Return a file's text, its last newline dropped, and its stamp.

        Raises `TemplateNotFound` when there is no such file, and `TemplateFaultError` when it may not be read.
        """
        path = self._path(name)
        try:
            descriptor = os.open(os.path.realpath(path), _FLAGS)
        except (FileNotFoundError, NotADirectoryError):
            raise TemplateNotFound(name) from None
        except (OSError, ValueError) as exc:
            raise TemplateFaultError(f"the file cannot be read ({type(exc).__name__})") from exc
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise TemplateFaultError("what the name leads to is not a file")
            data = file.read(MAX_TEMPLATE_CHARS + 1)
        if len(data) > MAX_TEMPLATE_CHARS:
            raise TemplateFaultError(f"the file is larger than {MAX_TEMPLATE_CHARS} bytes")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            raise TemplateFaultError(f"the file is not UTF-8 (byte {exc.start})") from exc
        return text.removesuffix("\n").removesuffix("\r"), _stamp(path, status)

    def _path(self, name: str) -> str:
        """Return the path of a file whose resolved path lies under the resolved root."""
        parts = name.replace("\\", "/").split("/")
        if "\0" in name or not name.strip() or ":" in parts[0] or not parts[0] or ".." in parts:
            raise TemplateFaultError("included files are named by their path inside the prompts folder, without '..'")
        path = str(Path(self.root, *parts))
        try:
            root = os.path.realpath(self.root)
            is_inside = os.path.commonpath([root, os.path.realpath(path)]) == root
        except (OSError, ValueError) as exc:
            raise TemplateFaultError("the name of an included file is no usable path") from exc
        if not is_inside:
            raise TemplateFaultError("a link leads out of the prompts folder; included files lie inside it")
        return path

    def load(self, environment: Environment, name: str, globals: object = None) -> Template:  # noqa: A002, ARG002
        """Return the compiled template of a file; Jinja calls this when it has none, or an old one."""
        sandbox = cast("Sandbox", environment)
        text, stamp = self.read(name)
        tree = sandbox.tree(text, name)
        for fault in find_faults(tree, sandbox.filters, sandbox.tests):
            raise TemplateSyntaxError(fault.message, fault.line, name, stamp.path)
        return sandbox.build(tree, name, stamp.path, stamp.is_current)
