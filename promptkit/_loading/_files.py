"""Files below a root: never outside it, never more than allowed, read whole.

Guarantees:

* A name is a relative path with ``/`` between its parts. One that could leave the root on any system (``..``,
  absolute, drive and UNC forms, ``~``, backslashes, NUL) is refused before the disk is asked.
* What is read is a regular file whose real place is inside the root's real place, checked once more on the
  file that was opened. Symlinks are followed as long as they stay inside; a root that is itself a symlink, and
  folders published by swapping one, work. A FIFO or a device is refused without blocking on it.
* The bytes are read once, and are those of one state of the file.
* A relative root stays where it was when it was named, whatever becomes of the working directory.
"""

# Descriptors and real paths are handled here, and a Path costs more than the call on the warm path.
# ruff: noqa: PTH109, PTH110, PTH112, PTH114, PTH116, PTH117, PTH118, PTH208

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple

from attrs import frozen

from promptkit._fields import describe
from promptkit.errors import ConfigError

MAX_NAME: Final = 1024
"""Longest relative name, in characters."""

_MAX_TRIES: Final = 20
"""How often a read starts again because the file was replaced under it."""

_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
"""What the system says of a name that has no file."""

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


class FileUnsettledError(FileRefusedError):
    """The file was being rewritten each time it was looked at."""


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
        (r"\A[A-Za-z][A-Za-z0-9+.\-]+://", "it is an address, and nothing is fetched"),
        (r"\\", "it contains a backslash; write / between the parts"),
        (r"\A[A-Za-z]:" if os.name != "nt" else ":", "it names a drive"),
        (r"\A/", "it is an absolute path"),
        (r"\A~", "it begins with ~"),
        (r"(\A|/)\.\.(/|\Z)", "it contains .. and would lead outside"),
        (r"//|/\Z", "it has an empty part"),
        (r"(\A|/)\.(/|\Z)", "it has a part that is . alone; leave that out"),
        (r"[. ](/|\Z)", "a part of it ends in a dot or a space"),
    )
)


def name_fault(name: str, *, limit: int = MAX_NAME) -> str | None:
    """Say what keeps ``name`` from being a relative path below some root, or None when nothing does."""
    if len(name) > limit:
        return f"it is longer than {limit} characters"
    if _PLAIN_NAME.fullmatch(name):
        return None
    return next((fault for pattern, fault in _NAME_FAULTS if pattern.search(name)), None)


# ------------------------------------------------------------------------------------------------- roots


@frozen
class Content:
    """The bytes of a file, and the signature it had when they were read."""

    data: bytes
    signature: Signature


class Signature(NamedTuple):
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
        if not isinstance(given, str) or not given.strip() or not _is_encodable(given):
            raise ConfigError(f"the {kind} root must be the path of a folder, not {describe(given)}")
        self.path = given
        """The root as it was given, for messages."""
        self.kind = kind
        try:
            self._base = given if os.path.isabs(given) else os.path.join(os.getcwd(), given)
        except OSError as error:
            raise ConfigError(f"the {kind} root {given!r} is relative to a working directory that is gone") from error

    def shown(self, name: str) -> str:
        """Return ``name`` as messages show it: below the root as it was given."""
        return name if self.path == "." else f"{self.path.rstrip('/')}/{name}"

    def exists(self) -> bool:
        """True when the root is a folder."""
        return os.path.isdir(self._base)

    def stat(self, name: str) -> os.stat_result | None:
        """Return the state of what stands under ``name``, symlinks followed; None when nothing does.

        Raises `FileRefusedError` when the system does not tell.
        """
        try:
            return os.stat(self._join(name))
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise FileRefusedError(_reason(error)) from error

    def read(self, name: str, *, max_bytes: int) -> Content:
        """Return the bytes of the file ``name``, read once and consistent.

        Raises `FileMissingError`, or `FileRefusedError` for a name or a symlink that leads outside the root,
        a file larger than ``max_bytes``, a folder, a FIFO, a device, and a file that may not be read.
        """
        if fault := name_fault(name):
            raise FileRefusedError(f"{name[:80]!r} cannot be a file under the {self.kind} root: {fault}")
        if not self._is_spelt_so(name):
            raise self._missing(name)
        for _ in range(_MAX_TRIES):
            try:
                content = self._read_once(name, max_bytes)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise FileRefusedError(_reason(error)) from error
                # A symlinked folder may be swapped between two steps; then a second look finds the new one.
                if self.stat(name) is None:
                    raise self._missing(name) from error
                continue
            if content is not None:
                return content
        raise FileUnsettledError(
            "it is being rewritten all the time; replace it in one step (rename a new file over it)"
        )

    def walk(self, suffixes: tuple[str, ...]) -> Iterator[str]:
        """Yield the names of the files that end in one of ``suffixes``, in no order.

        Hidden entries (``.`` first) are left out and folders that really lie outside the root, or that have
        been seen already, are not entered. A root that does not exist has no files.
        """
        top = os.path.realpath(self._base)
        seen = {top}
        folders = [""]
        while folders:
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
        return f"{self._base}/{name}"  # both separators are taken where they differ

    def _is_spelt_so(self, name: str) -> bool:
        """False when a file system that folds case would find ``name`` under another spelling."""
        if not os.path.exists(self._join(name.swapcase())):
            return True
        folder = self._base
        for part in name.split("/"):
            try:
                if part not in os.listdir(folder):
                    return False
            except OSError:
                return True  # what is wrong with the folder is found, and told, by reading
            folder = os.path.join(folder, part)
        return True

    def _missing(self, name: str) -> FileRefusedError:
        if os.path.islink(self._join(name)):
            return FileRefusedError("it is a symlink that leads nowhere")
        return FileMissingError(f"there is no file {name!r} under the {self.kind} root {self.path!r}")

    def _real(self, name: str) -> str:
        top = os.path.realpath(self._base)
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
            # Times move in steps of the system's tick: a file cut off and written again between the two looks may
            # show the same ones, and the same size, while what was read in between is shorter.
            if len(data) != found.st_size or Signature.from_stat(os.fstat(descriptor)) != signature:
                return None
            return Content(data, signature)
        finally:
            os.close(descriptor)


def _is_encodable(path: str) -> bool:
    """True for a path that the system can be asked for."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


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
