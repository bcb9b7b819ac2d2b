"""Artifacts: files and bytes given as inputs, read from their root and known by their content.

Guarantees: nothing outside the artifacts root is read, and nothing larger than allowed; the media type is
what the bytes are, whatever a name or a caller says; no message shows any of the content. Reading blocks on
the disk alone. Safe for any number of threads: nothing is kept.
"""

from __future__ import annotations

import os
import posixpath
from typing import Final

from attrs import field, frozen

from promptkit._canonical import sha256_of_bytes
from promptkit._loading._files import FileRefusedError, Root, name_fault
from promptkit._loading._text import TextFaultError, decode_text
from promptkit._types import Artifact, Image
from promptkit.errors import ArtifactError

MAX_BYTES: Final = 20 * 1024 * 1024
"""Largest artifact when its input sets no ``max_bytes``."""

IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""What chat completion servers take as image parts (OpenAI, guide "Images and vision", supported file types)."""

TEXT: Final = "text/plain"
UNKNOWN: Final = "application/octet-stream"

# The first bytes of a file, by format: the format's own specification; "file" and the WHATWG MIME Sniffing
# Standard, section 6.1, agree on them.
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
)
_BRANDS: Final = {
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heif",
}
_ALIASES: Final = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "image/x-ms-bmp": "image/bmp",
}
_TEXTUAL: Final = frozenset(
    {"json", "xml", "yaml", "x-yaml", "javascript", "toml", "sql", "csv", "x-ndjson", "jsonl", "markdown"}
)


@frozen(kw_only=True)
class LoadedFile:
    """An artifact's bytes and what they are. ``input`` is the input it was given for, for messages."""

    data: bytes = field(repr=False)
    media_type: str
    sha256: str
    """``sha256:`` and the hexadecimal digest of ``data``."""
    name: str
    input: str

    def text(self) -> str:
        """Return the content as text, a byte order mark dropped. Raises `ArtifactError` when it is not UTF-8."""
        try:
            text = decode_text(self.data)
        except TextFaultError as error:
            raise ArtifactError(
                f"input {self.input!r}: the file {self.name!r} cannot be read as text: {error}"
            ) from error
        if "\0" in text:
            offset = self.data.index(b"\0")
            raise ArtifactError(f"input {self.input!r}: the file {self.name!r} is not text: NUL at offset {offset}")
        return text

    def image(self) -> Image:
        """Return the content as an image for a message. Raises `ArtifactError` unless it is one servers take."""
        if self.media_type not in IMAGE_TYPES:
            found = {TEXT: "text", UNKNOWN: "of no known kind"}.get(self.media_type, self.media_type)
            raise ArtifactError(
                f"input {self.input!r}: the file {self.name!r} is {found}; "
                f"an image must be one of {', '.join(kind.removeprefix('image/') for kind in IMAGE_TYPES)}"
            )
        return Image(self.media_type, self.data, self.sha256)


class ArtifactReader:
    """Reads artifacts below ``root``; with None, only those given as bytes."""

    def __init__(self, root: str | os.PathLike[str] | None) -> None:
        self._root = None if root is None else Root(root, kind="artifacts")

    def read(self, artifact: Artifact, *, name: str, max_bytes: int | None = None) -> LoadedFile:
        """Return the artifact given for the input ``name``.

        ``max_bytes`` None allows `MAX_BYTES`. Raises `ArtifactError` for a path that is missing or leads
        outside the root, for any path when there is no root, for content that is too large, and for a
        ``media_type`` that the content does not have.
        """
        limit = MAX_BYTES if max_bytes is None else max_bytes
        if artifact.data is not None:
            data, shown = artifact.data, artifact.name or "data"
            if len(data) > limit:
                raise ArtifactError(f"input {name!r}: {shown!r} has {len(data)} bytes, more than the limit of {limit}")
        else:
            path = artifact.path or ""
            shown = artifact.name or posixpath.basename(path) or path
            data = self._read_path(path, name, limit)
        media_type = sniff(data)
        _check_declared(artifact.media_type, media_type, name, shown)
        return LoadedFile(data=data, media_type=media_type, sha256=sha256_of_bytes(data), name=shown, input=name)

    def _read_path(self, path: str, name: str, limit: int) -> bytes:
        told = f"input {name!r}: the artifact {path[:200]!r}"
        if self._root is None:
            raise ArtifactError(
                f"{told} is given by path, and this engine reads no files: build it with artifacts=FOLDER, "
                "or give the content with Artifact(data=…)"
            )
        if fault := name_fault(path):
            raise ArtifactError(f"{told} cannot be used: {fault}; give its path relative to {self._root.path!r}")
        try:
            return self._root.read(path, max_bytes=limit).data
        except FileRefusedError as error:
            raise ArtifactError(f"{told} cannot be used: {error}") from error


def sniff(data: bytes) -> str:
    """Return the media type that the content shows: an image or document format, `TEXT`, or `UNKNOWN`."""
    for magic, media_type in _MAGIC:
        if data.startswith(magic):
            if media_type == "image/bmp" and not _is_bitmap(data):
                continue
            return media_type
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data[4:8] == b"ftyp" and data[8:12] in _BRANDS:
        return _BRANDS[data[8:12]]
    try:
        text = decode_text(data)
    except TextFaultError:
        return UNKNOWN
    return UNKNOWN if "\0" in text else TEXT


def _is_bitmap(data: bytes) -> bool:
    """Tell a bitmap from a text that begins with BM: its header has the file's size, then four zero bytes."""
    return int.from_bytes(data[2:6], "little") == len(data) and data[6:10] == b"\0\0\0\0"


def _check_declared(declared: str | None, found: str, name: str, shown: str) -> None:
    if declared is None:
        return
    wanted = declared.partition(";")[0].strip().lower()
    wanted = _ALIASES.get(wanted, wanted)
    if wanted in {found, UNKNOWN}:
        return
    kind, _, subtype = wanted.partition("/")
    is_textual = kind == "text" or subtype in _TEXTUAL or subtype.endswith(("+json", "+xml", "+yaml"))
    if found == TEXT and is_textual:
        return
    raise ArtifactError(f"input {name!r}: the content of {shown!r} is {found}, not {declared[:80]!r} as declared")
