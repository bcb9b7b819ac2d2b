"""Files below a root: never outside it, never more than allowed, read whole, and read again when they change.

Guarantees:

* A name is a relative path with ``/`` between its parts. One that could leave the root on any system (``..``,
  absolute, drive and UNC forms, ``~``, backslashes, NUL) is refused before the disk is asked.
* What is read is a regular file whose real place is inside the root's real place, checked once more on the
  file that was opened. Symlinks are followed as long as they stay inside; a root that is itself a symlink, and
  folders published by swapping one, work. A FIFO or a device is refused without blocking on it.
* A file's bytes are read once; everything said about them (hash, parsed form) is of those bytes.
* `FileCache` hands out a parsed form for the price of one ``stat`` while the file stays as it was. A change
  that leaves size and times alone is still seen: times as young as the clock they were taken from are not
  trusted (as in git's index), the bytes are compared instead.

The cache's lock guards its table alone; files are read and parsed outside it.
"""

# Descriptors and real paths are handled here, and a Path costs more than the call on the warm path.
# ruff: noqa: PTH112, PTH114, PTH116, PTH118

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from attrs import frozen

from promptkit._canonical import sha256_of_bytes
from promptkit._fields import describe
from promptkit._types import Problem
from promptkit.errors import ConfigError, DocumentError

MAX_NAME: Final = 1024
"""Longest relative name, in characters."""

_MAX_FOLDERS: Final = 10_000
_MAX_TRIES: Final = 5
"""How often a read starts again because the file was replaced under it."""

_SETTLED_NS: Final = 2_000_000_000
"""Times younger than this may change once more without showing: FAT keeps them to two seconds."""

_EMPTIED_NS: Final = 1_000_000_000
"""A file emptied less than this ago is taken to be under rewriting."""

_OPEN_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)


class FileRefusedError(Exception):
    """A file cannot be used; ``str()`` says why, without a place. Its catcher gives it a public class."""


class FileMissingError(FileRefusedError):
    """There is no such file."""


# ------------------------------------------------------------------------------------------------- names


_PLAIN_NAME: Final = re.compile(r"[\w-]+(?:[./ ][\w-]+)*")
"""Names that need no closer look."""

_NAME_FAULTS: Final = tuple(
    (re.compile(pattern), fault)
    for pattern, fault in (
        (r"\A\Z", "it is empty"),
        (r"[\x00-\x1f\x7f]", "it contains a NUL or another control character"),
        (r"[\ud800-\udfff]", "it contains half of a surrogate pair"),
        (r"\\", "it contains a backslash; write / between the parts"),
        (r"\A[A-Za-z]:" if os.name != "nt" else ":", "it names a drive"),
        (r"\A/", "it is an absolute path"),
        (r"\A~", "it begins with ~"),
        (r"(\A|/)\.\.(/|\Z)", "it contains .. and would lead outside"),
        (r"//|/\Z", "it has an empty part"),
        (r"[. ](/|\Z)", "a part of it ends in a dot or a space"),
    )
)


def name_fault(name: str) -> str | None:
    """Say what keeps ``name`` from being a relative path below some root, or None when nothing does."""
    if len(name) > MAX_NAME:
        return f"it is longer than {MAX_NAME} characters"
    if _PLAIN_NAME.fullmatch(name):
        return None
    return next((fault for pattern, fault in _NAME_FAULTS if pattern.search(name)), None)


# ------------------------------------------------------------------------------------------------- roots


@frozen
class Content:
    """The bytes of a file, and the signature it had when they were read."""

    data: bytes
    signature: Signature


@frozen
class Signature:
    """What ``stat`` tells of a file's state; equal while the file stays as it was."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def from_stat(cls, found: os.stat_result) -> Signature:
        """Return the part of a stat result that changes with the content."""
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    @property
    def age_reference_ns(self) -> int:
        """The younger of the two times, nanoseconds since the epoch."""
        return max(self.modified_ns, self.changed_ns)


class Root:
    """A folder that files may be read from. ``kind`` (``"prompt"``, ``"schema"`` …) is used in messages."""

    def __init__(self, path: str | os.PathLike[str], *, kind: str) -> None:
        given: object = path
        if isinstance(path, os.PathLike):
            given = os.fspath(path)
        if not isinstance(given, str) or not given.strip() or "\0" in given:
            raise ConfigError(f"the {kind} root must be the path of a folder, not {describe(given)}")
        self.path = given
        self.kind = kind

    def shown(self, name: str) -> str:
        """Return ``name`` as messages show it: below the root as it was given."""
        return name if self.path == "." else f"{self.path.rstrip('/')}/{name}"

    def exists(self) -> bool:
        """True when the root is a folder."""
        return os.path.isdir(self.path)

    def stat(self, name: str) -> os.stat_result | None:
        """Return the state of what stands under ``name``, symlinks followed; None when nothing does.

        Raises `FileRefusedError` when the system does not tell.
        """
        try:
            return os.stat(self._join(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise FileRefusedError(_reason(error)) from error

    def read(self, name: str, *, max_bytes: int) -> Content:
        """Return the bytes of the file ``name``, read once and consistent.

        Raises `FileMissingError`, or `FileRefusedError` for a name or a symlink that leads outside the root,
        a file larger than ``max_bytes``, a folder, a FIFO, a device, and a file that may not be read.
        """
        if fault := name_fault(name):
            raise FileRefusedError(f"{name[:80]!r} cannot be a file under the {self.kind} root: {fault}")
        for _ in range(_MAX_TRIES):
            try:
                content = self._read_once(name, max_bytes)
            except FileNotFoundError as error:
                # A symlinked folder may be swapped between two steps; a second look finds the new one.
                if self.stat(name) is None:
                    raise self._missing(name) from error
            except OSError as error:
                raise FileRefusedError(_reason(error)) from error
            else:
                if content is not None:
                    return content
        raise FileRefusedError("it is being rewritten all the time; replace it in one step (rename a new file over it)")

    def walk(self, suffixes: tuple[str, ...]) -> Iterator[str]:
        """Yield the names of the files that end in one of ``suffixes``, in no order.

        Hidden entries (``.`` first) are left out and folders that really lie outside the root, or that have
        been seen already, are not entered. A root that does not exist has no files.
        """
        top = os.path.realpath(self.path)
        seen = {top}
        folders = [""]
        while folders and len(seen) <= _MAX_FOLDERS:
            folder = folders.pop()
            try:
                entries = list(os.scandir(os.path.join(top, folder)))
            except OSError:
                continue
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name.startswith(".") or name_fault(name):
                    continue
                try:
                    is_folder = entry.is_dir()
                except OSError:
                    is_folder = False
                if not is_folder:
                    if entry.name.endswith(suffixes):
                        yield name
                    continue
                real = os.path.realpath(entry.path)
                if real not in seen and _is_inside(real, top):
                    seen.add(real)
                    folders.append(name)

    def _join(self, name: str) -> str:
        return f"{self.path}/{name}"  # both separators are taken where they differ

    def _missing(self, name: str) -> FileRefusedError:
        if os.path.islink(self._join(name)):
            return FileRefusedError("it is a symlink that leads nowhere")
        return FileMissingError(f"there is no file {name!r} under the {self.kind} root {self.path!r}")

    def _real(self, name: str) -> str:
        top = os.path.realpath(self.path)
        real = os.path.realpath(os.path.join(top, *name.split("/")))
        if not _is_inside(real, top):
            raise FileRefusedError(
                f"{name!r} goes through a symlink that leads outside the {self.kind} root {self.path!r}"
            )
        return real

    def _read_once(self, name: str, max_bytes: int) -> Content | None:
        """Return the file's content, or None when the file was replaced or rewritten meanwhile."""
        real = self._real(name)
        _check_regular(os.stat(real))
        descriptor = os.open(real, _OPEN_FLAGS)
        try:
            found = os.fstat(descriptor)
            _check_regular(found)
            if not os.path.samestat(found, os.stat(self._real(name))):
                return None
            if found.st_size > max_bytes:
                raise _too_large(max_bytes)
            with open(descriptor, "rb", closefd=False) as stream:
                data = stream.read(max_bytes + 1)
            if len(data) > max_bytes:
                raise _too_large(max_bytes)
            signature = Signature.from_stat(found)
            if Signature.from_stat(os.fstat(descriptor)) != signature:
                return None
            return Content(data, signature)
        finally:
            os.close(descriptor)


def _is_inside(real: str, top: str) -> bool:
    return real.startswith(top if top.endswith(os.sep) else top + os.sep)


def _check_regular(found: os.stat_result) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    kind = "a folder" if stat.S_ISDIR(found.st_mode) else "not a regular file"
    raise FileRefusedError(f"it is {kind}")


def _too_large(max_bytes: int) -> FileRefusedError:
    return FileRefusedError(f"the file is larger than the limit of {max_bytes} bytes")


def _reason(error: OSError) -> str:
    return f"it cannot be read: {error.strerror or type(error).__name__}"


# -------------------------------------------------------------------------------------------------- text


class TextFaultError(Exception):
    """Bytes are not the text they should be. ``offset`` counts bytes from 0; ``line``, ``column`` from 1."""

    def __init__(self, message: str, offset: int, line: int, column: int) -> None:
        super().__init__(message)
        self.offset = offset
        self.line = line
        self.column = column


def decode_text(data: bytes) -> str:
    """Return UTF-8 bytes as text, a byte order mark dropped. Raises `TextFaultError`; never shows the content."""
    for mark, encoding in ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"), (b"\x00\x00\xfe\xff", "UTF-32")):
        if data.startswith(mark):
            raise TextFaultError(f"not UTF-8: the file is {encoding}; save it as UTF-8", 0, 1, 1)
    if _is_bare_utf16(data):
        raise TextFaultError(
            "not UTF-8: the file looks like UTF-16 without a byte order mark; save it as UTF-8", 0, 1, 1
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The offset counts from what follows a byte order mark.
        start = error.start + (3 if data.startswith(b"\xef\xbb\xbf") else 0)
        line, column = line_and_column(data[:start].decode("utf-8-sig"))
        message = f"not UTF-8: byte 0x{data[start]:02X} at offset {start}; save the file as UTF-8"
        raise TextFaultError(message, start, line, column) from error


def _is_bare_utf16(data: bytes) -> bool:
    """Tell UTF-16 without a mark by its zeros: every other byte of mostly ASCII text is one."""
    head = data[:64]
    return len(head) > 1 and len(data) % 2 == 0 and (not any(head[0::2]) or not any(head[1::2])) and any(head)


def line_and_column(before: str) -> tuple[int, int]:
    """Return the 1-based line and column of the character that follows the text ``before``."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


# ------------------------------------------------------------------------------------------------- cache

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
        content = self.root.read(name, max_bytes=self._max_bytes)
        age = now - content.signature.age_reference_ns
        if not content.data and known is not None and 0 <= age < _EMPTIED_NS:
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


def refusal(root: Root, name: str, error: Exception) -> DocumentError:
    """Return the `DocumentError` for a file that is there and cannot be used."""
    return DocumentError([Problem(root.shown(name), 0, 0, str(error))])
