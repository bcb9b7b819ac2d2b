"""Definitions by name: which file a name means, read through the cache.

Guarantees: a name is case-exact and never leads outside its root; one name has one file (``.yaml`` or
``.yml``); a definition that has not changed on disk costs two ``stat`` calls. Safe for any number of threads.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from promptkit._fields import describe, nearest
from promptkit._loading._cache import FileCache
from promptkit._loading._files import MAX_NAME, FileMissingError, FileRefusedError, Root, name_fault
from promptkit._loading._yaml import MAX_BYTES
from promptkit._types import Problem
from promptkit.errors import DocumentError, InvalidRequestError, UnknownNameError

SUFFIXES: Final = (".yaml", ".yml")
_MAX_NAME: Final = MAX_NAME - max(map(len, SUFFIXES))
_MAX_LISTED: Final = 10

_DefinitionT = TypeVar("_DefinitionT")


class DefinitionStore(Generic[_DefinitionT]):
    """The files of one kind below a root. ``parse(data, path, name)`` makes a definition or `DocumentError`."""

    def __init__(
        self, root: str | os.PathLike[str], *, kind: str, parse: Callable[[bytes, str, str], _DefinitionT]
    ) -> None:
        self._root = Root(root, kind=kind)
        self._kind = kind

        def parse_file(data: bytes, file: str) -> _DefinitionT:
            return parse(data, self._root.shown(file), file.rpartition(".")[0])

        self._cache: FileCache[_DefinitionT] = FileCache(self._root, parse_file, max_bytes=MAX_BYTES)

    def load(self, name: str) -> _DefinitionT:
        """Return the definition called ``name`` as its file is now.

        Raises `InvalidRequestError` for what cannot be a name, `UnknownNameError` when there is no such file
        and `DocumentError`, with every problem, when the file is wrong.
        """
        if not isinstance(name, str):
            raise InvalidRequestError(f"a {self._kind} is named by a string, not {describe(name)}")
        if fault := name_fault(name, limit=_MAX_NAME):
            raise UnknownNameError(
                f"{name[:80]!r} cannot name a {self._kind}: {fault}; a name is the file's path below the "
                f"{self._kind} root {self._root.path!r} without its suffix"
            )
        file = name
        states: dict[str, os.stat_result | None] = {}
        try:
            for suffix in SUFFIXES:
                file = name + suffix
                states[file] = self._root.stat(file)
            found = [file for file, state in states.items() if state is not None]
            if len(found) > 1:
                raise self._wrong(found[0], f"{found[1]!r} beside it has the same name; keep one of them")
            for file in found or states:
                with contextlib.suppress(FileMissingError):
                    return self._cache.get(file, states[file])
        except FileRefusedError as error:
            raise self._wrong(file, str(error)) from error
        raise self._unknown(name)

    def names(self) -> list[str]:
        """Return every name that has a file, sorted; the files themselves are not read."""
        return sorted({file.rpartition(".")[0] for file in self._root.walk(SUFFIXES)})

    def _wrong(self, file: str, reason: str) -> DocumentError:
        return DocumentError([Problem(self._root.shown(file), 0, 0, reason)])

    def _unknown(self, name: str) -> UnknownNameError:
        told = f"no {self._kind} is called {name!r} under {self._root.path!r}"
        if not self._root.exists():
            return UnknownNameError(f"{told}: there is no such folder")
        known = self.names()
        if name.endswith(SUFFIXES) and name.rpartition(".")[0] in known:
            return UnknownNameError(f"{told}; did you mean {name.rpartition('.')[0]!r}? A name has no suffix")
        if hint := nearest(name, known):
            return UnknownNameError(told + hint)
        some = ", ".join(known[:_MAX_LISTED]) + (", …" if len(known) > _MAX_LISTED else "")
        return UnknownNameError(f"{told}; there are {some}" if known else f"{told}: the folder has no such files")
