"""Parsed files, kept while they stay as they are on disk.

Guarantees: a form that is handed out was made of one consistent reading of the file; while the file stays as
it was, handing it out costs one ``stat``; every change is seen, one that leaves size and times alone
included: times as young as the clock they were taken from are not trusted (as in git's index), and the
bytes are compared instead. A file that cannot be parsed is remembered like any other, and looked at again.
While a file is seen to be rewritten (just emptied, or changed each time it is looked at) its last form stands.

The lock guards the table alone; files are read and parsed outside it, so two threads may parse one file at
the same moment. Entries never change.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from attrs import frozen

from promptkit._canonical import sha256_of_bytes
from promptkit._loading._files import FileUnsettledError, Root, Signature
from promptkit.errors import DocumentError

_SETTLED_NS: Final = 2_000_000_000
"""Times younger than this may change once more without showing: FAT keeps them to two seconds."""

_EMPTIED_NS: Final = 1_000_000_000
"""A file emptied less than this ago is taken to be under rewriting."""

_ParsedT = TypeVar("_ParsedT")


@frozen(eq=False)
class _Entry(Generic[_ParsedT]):
    signature: Signature
    is_settled: bool
    """The times were old enough when the bytes were read: an equal signature means equal bytes."""
    digest: str
    outcome: _ParsedT | DocumentError


class FileCache(Generic[_ParsedT]):
    """Parsed files of one root, by name. Safe for any number of threads.

    ``parse(data, name)`` gets the bytes and raises `DocumentError` for what is wrong with them; that is
    remembered too, and looked at again like everything else.
    """

    def __init__(
        self, root: Root, parse: Callable[[bytes, str], _ParsedT], *, max_bytes: int, capacity: int = 1024
    ) -> None:
        self.root = root
        self._parse = parse
        self._max_bytes = max_bytes
        self._capacity = capacity
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry[_ParsedT]] = {}

    def get(self, name: str, found: os.stat_result | None = None) -> _ParsedT:
        """Return the parsed form of the file ``name`` as it is now; ``found`` spares the stat.

        Raises `DocumentError`, `FileMissingError` or `FileRefusedError`.
        """
        known = self._entries.get(name)
        found = found or self.root.stat(name)
        if known is None or found is None or not known.is_settled or Signature.from_stat(found) != known.signature:
            known = self._refresh(name, known)
        if isinstance(known.outcome, DocumentError):
            raise DocumentError(known.outcome.problems)
        return known.outcome

    def _refresh(self, name: str, known: _Entry[_ParsedT] | None) -> _Entry[_ParsedT]:
        now = time.time_ns()
        try:
            content = self.root.read(name, max_bytes=self._max_bytes)
        except FileUnsettledError:
            if known is None:
                raise
            return known
        age = now - content.signature.age_reference_ns
        if not content.data and known is not None and abs(age) < _EMPTIED_NS:
            return known
        digest = sha256_of_bytes(content.data)
        outcome: _ParsedT | DocumentError
        if known is not None and known.digest == digest:
            outcome = known.outcome
        else:
            try:
                outcome = self._parse(content.data, name)
            except DocumentError as error:
                outcome = DocumentError(error.problems)
        entry = _Entry(content.signature, age > _SETTLED_NS, digest, outcome)
        with self._lock:
            self._entries.pop(name, None)
            while len(self._entries) >= self._capacity:
                del self._entries[next(iter(self._entries))]
            self._entries[name] = entry
        return entry
