"""Artifacts: where they may be read from, how large they may be, and what their content shows them to be."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._loading import _artifacts
from promptkit._loading._artifacts import ArtifactReader, LoadedFile, sniff
from promptkit._types import Artifact
from promptkit.errors import ArtifactError

PNG = b"\x89PNG\r\n\x1a\n" + b"rest of it"
WEBP = b"RIFF\x24\x00\x00\x00WEBPVP8 "
BMP = b"BM" + (26).to_bytes(4, "little") + b"\0\0\0\0" + b"\x1a\0\0\0" + b"\x0c\0\0\0" + b"\0" * 8


def read(artifact: Artifact, root: Path | None = None, **more: Any) -> LoadedFile:
    """Return an artifact given for the input ``scan``."""
    return ArtifactReader(root).read(artifact, name="scan", **more)


def refusal(artifact: Artifact, root: Path | None = None, **more: Any) -> str:
    """Return why an artifact cannot be used."""
    with pytest.raises(ArtifactError) as caught:
        read(artifact, root, **more)
    return str(caught.value)


# ------------------------------------------------------------------------------------------------ reading


def test_bytes_are_taken_as_they_are() -> None:
    """Data needs no root; its digest and media type come from the bytes."""
    loaded = read(Artifact(data=PNG, name="page.txt"))
    assert (loaded.data, loaded.media_type, loaded.name) == (PNG, "image/png", "page.txt")
    assert loaded.sha256 == f"sha256:{hashlib.sha256(PNG).hexdigest()}"
    assert read(Artifact(data=b"")).media_type == "text/plain"


def test_a_path_is_read_below_the_root(tmp_path: Path) -> None:
    """The name in messages is the file's, unless the artifact has one."""
    (tmp_path / "2024").mkdir()
    (tmp_path / "2024" / "scan 01.dat").write_bytes(PNG)
    loaded = read(Artifact("2024/scan 01.dat"), tmp_path)
    assert (loaded.data, loaded.media_type, loaded.name) == (PNG, "image/png", "scan 01.dat")
    assert read(Artifact("2024/scan 01.dat", name="front page"), tmp_path).name == "front page"


def test_without_a_root_no_path_is_read(tmp_path: Path) -> None:
    """The message says how an engine gets a root."""
    told = refusal(Artifact(str(tmp_path / "x")))
    assert "this engine reads no files: build it with artifacts=FOLDER" in told
    assert told.startswith("input 'scan': ")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("../secret", "it contains .. and would lead outside"),
        ("/etc/passwd", "it is an absolute path"),
        ("~/x", "it begins with ~"),
        ("a\\b", "backslash"),
        ("a\0b", "NUL"),
        ("", "it is empty"),
        ("none.png", "there is no file 'none.png' under the artifacts root"),
        ("link.png", "goes through a symlink that leads outside the artifacts root"),
        ("pipe", "it is not a regular file"),
        ("folder", "it is a folder"),
    ],
)
def test_what_is_not_a_file_below_the_root_is_refused(tmp_path: Path, path: str, told: str) -> None:
    """Names, symlinks and kinds of files are judged as for all other files."""
    root = tmp_path / "data"
    (root / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (root / "link.png").symlink_to(tmp_path / "secret")
    os.mkfifo(root / "pipe")
    found = refusal(Artifact(path), root)
    assert told in found
    assert found.startswith("input 'scan': the artifact ")


def test_size_is_bounded(tmp_path: Path) -> None:
    """By the input's own limit, or 20 MiB; at the limit is fine."""
    (tmp_path / "a").write_bytes(b"12345")
    assert read(Artifact("a"), tmp_path, max_bytes=5).data == b"12345"
    assert "the file is larger than the limit of 4 bytes" in refusal(Artifact("a"), tmp_path, max_bytes=4)
    assert "has 5 bytes, more than the limit of 4" in refusal(Artifact(data=b"12345"), max_bytes=4)
    with (tmp_path / "huge").open("wb") as stream:
        stream.truncate(_artifacts.MAX_BYTES + 1)
    assert "larger than the limit of 20971520 bytes" in refusal(Artifact("huge"), tmp_path)


# -------------------------------------------------------------------------------------------- media types


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF87a...", "image/gif"),
        (b"GIF89a...", "image/gif"),
        (WEBP, "image/webp"),
        (BMP, "image/bmp"),
        (b"II*\x00rest", "image/tiff"),
        (b"MM\x00*rest", "image/tiff"),
        (b"\0\0\0\x1cftypavif", "image/avif"),
        (b"\0\0\0\x1cftypheic", "image/heic"),
        (b"\0\0\0\x1cftypmp42", "application/octet-stream"),
        (b"%PDF-1.7\n", "application/pdf"),
        (b"PK\x03\x04rest", "application/zip"),
        (b"\x1f\x8brest", "application/gzip"),
        (b"plain text", "text/plain"),
        ("größe".encode(), "text/plain"),
        (b"\xef\xbb\xbfwith a mark", "text/plain"),
        (b"", "text/plain"),
        (b"BMW is a maker of cars", "text/plain"),
        (b"RIFF and raff", "text/plain"),
        (b"caf\xe9", "application/octet-stream"),
        (b"a\0b\0c", "application/octet-stream"),
        ("text".encode("utf-16"), "application/octet-stream"),
    ],
)
def test_the_content_shows_what_it_is(data: bytes, media_type: str) -> None:
    """Formats are known by their first bytes, text by being UTF-8."""
    assert sniff(data) == media_type


@given(st.binary(max_size=40))
def test_any_bytes_are_something(data: bytes) -> None:
    """Looking at content never fails."""
    assert "/" in sniff(data)


@pytest.mark.parametrize(
    ("declared", "data"),
    [
        ("image/png", PNG),
        ("IMAGE/PNG", PNG),
        ("image/jpg", b"\xff\xd8\xff\xe0"),
        ("text/plain; charset=utf-8", b"a"),
        ("text/markdown", b"# a"),
        ("application/json", b"{}"),
        ("application/ld+json", b"{}"),
        ("image/svg+xml", b"<svg/>"),
        ("application/octet-stream", PNG),
        ("application/octet-stream", b"\0\1"),
    ],
)
def test_a_declared_type_that_fits_is_fine(declared: str, data: bytes) -> None:
    """Texts of any kind look alike; common second names are known."""
    assert read(Artifact(data=data, media_type=declared)).media_type == sniff(data)


@pytest.mark.parametrize(
    ("declared", "data", "found"),
    [
        ("image/png", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("image/png", b"<html>", "text/plain"),
        ("text/plain", PNG, "image/png"),
        ("application/pdf", b"\0\1", "application/octet-stream"),
        ("png", PNG, "image/png"),
        ("", PNG, "image/png"),
    ],
)
def test_a_declared_type_that_the_content_does_not_have_is_refused(declared: str, data: bytes, found: str) -> None:
    """Both are named; the content is not shown."""
    told = refusal(Artifact(data=data, name="x", media_type=declared))
    assert told == f"input 'scan': the content of 'x' is {found}, not {declared!r} as declared"


# ------------------------------------------------------------------------------------- text and images


def test_a_file_as_text() -> None:
    """UTF-8, a byte order mark dropped, line ends as they are."""
    assert read(Artifact(data=b"\xef\xbb\xbfa\r\nb")).text() == "a\r\nb"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"secret caf\xe9", "byte 0xE9 at offset 10"),
        (b"\xef\xbb\xbfsecret \xff", "byte 0xFF at offset 10"),
        ("secret".encode("utf-16"), "the file is UTF-16"),
        ("secret".encode("utf-16-le"), "looks like UTF-16 without a byte order mark"),
        ("secret".encode("utf-32"), "the file is UTF-32"),
        (b"secret\0", "NUL at offset 6"),
    ],
)
def test_a_file_that_is_not_text_is_told_without_showing_it(data: bytes, told: str) -> None:
    """By the offset of the first byte that is wrong."""
    loaded = read(Artifact(data=data, name="letter.txt"))
    with pytest.raises(ArtifactError) as caught:
        loaded.text()
    assert told in str(caught.value)
    assert "input 'scan': the file 'letter.txt'" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("data", [PNG, b"\xff\xd8\xff\xe0", b"GIF89a", WEBP])
def test_an_image_that_servers_take(data: bytes) -> None:
    """The image carries the type of its bytes and their digest."""
    image = read(Artifact(data=data, name="x.bmp")).image()
    assert (image.data, image.media_type) == (data, sniff(data))
    assert image.sha256 == f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.mark.parametrize(
    ("data", "found"),
    [(BMP, "image/bmp"), (b"%PDF-1", "application/pdf"), (b"words", "text"), (b"\0\1", "of no known kind")],
)
def test_what_servers_do_not_take_is_no_image(data: bytes, found: str) -> None:
    """The message names what it is and what would be taken."""
    with pytest.raises(ArtifactError, match=f"'x.png' is {found}; an image must be one of png, jpeg, gif, webp"):
        read(Artifact(data=data, name="x.png")).image()


def test_content_does_not_show_itself() -> None:
    """A repr in a log has no data in it."""
    assert "secret" not in repr(read(Artifact(data=b"secret")))
