"""The cache of parsed files: when it reads again, when it parses again, and what it hands out meanwhile."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from promptkit._loading import _cache
from promptkit._loading._cache import FileCache
from promptkit._loading._files import FileMissingError, FileRefusedError, FileUnsettledError, Root
from promptkit._types import Problem
from promptkit.errors import DocumentError
from support.threads import Worker

SECOND = 1_000_000_000


class Shelf:
    """A cache over a folder, with a clock that the test moves and counts of what the cache does."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.now = 1_700_000_000 * SECOND
        self.parsed: list[str] = []
        self.reads = 0
        monkeypatch.setattr(time, "time_ns", lambda: self.now)
        real_open = os.open

        def counting_open(path: str, flags: int) -> int:
            self.reads += 1
            return real_open(path, flags)

        monkeypatch.setattr(os, "open", counting_open)
        self.cache: FileCache[list[str]] = FileCache(
            Root(folder, kind="prompt"), self._parse, max_bytes=100, capacity=3
        )

    def _parse(self, data: bytes, name: str) -> list[str]:
        self.parsed.append(data.decode())
        if b"wrong" in data:
            raise DocumentError([Problem(name, 1, 1, data.decode())])
        return [data.decode()]

    def write(self, text: str, *, name: str = "a", age: int = 0) -> None:
        """Write a file ``age`` nanoseconds ago."""
        path = self.folder / name
        path.write_text(text)
        os.utime(path, ns=(self.now - age, self.now - age))


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """A shelf whose clock is far from the machine's, so that only the times set by a test count.

    The time of the last change of an inode cannot be set: it is left out of signatures here.
    """
    real = _cache.Signature.from_stat

    def without_ctime(found: os.stat_result) -> _cache.Signature:
        signature = real(found)
        return _cache.Signature(signature.device, signature.inode, signature.size, signature.modified_ns, 0)

    monkeypatch.setattr(_cache.Signature, "from_stat", without_ctime)
    return Shelf(tmp_path, monkeypatch)


def test_a_file_that_stays_is_read_and_parsed_once(shelf: Shelf) -> None:
    """Warm loads hand out the same object for a stat."""
    shelf.write("one", age=10 * SECOND)
    first = shelf.cache.get("a")
    assert [shelf.cache.get("a") for _ in range(5)] == [["one"]] * 5
    assert shelf.cache.get("a") is first
    assert (shelf.reads, shelf.parsed) == (1, ["one"])


def test_a_changed_file_is_read_again(shelf: Shelf) -> None:
    """Another time or another size is another file."""
    shelf.write("one", age=20 * SECOND)
    shelf.cache.get("a")
    shelf.write("two", age=10 * SECOND)
    assert shelf.cache.get("a") == ["two"]
    shelf.write("three", age=10 * SECOND)
    assert shelf.cache.get("a") == ["three"]


def test_a_file_that_was_touched_is_read_but_not_parsed_again(shelf: Shelf) -> None:
    """The same bytes are the same definition."""
    shelf.write("one", age=20 * SECOND)
    first = shelf.cache.get("a")
    shelf.write("one", age=10 * SECOND)
    assert shelf.cache.get("a") is first
    assert (shelf.reads, shelf.parsed) == (2, ["one"])


def test_a_change_within_the_same_tick_is_seen(shelf: Shelf) -> None:
    """Same size, same time: while the time is young, the bytes are compared."""
    shelf.write("one")
    assert shelf.cache.get("a") == ["one"]
    shelf.write("two")
    assert shelf.cache.get("a") == ["two"]


def test_a_young_file_settles(shelf: Shelf) -> None:
    """Once its time is two seconds old at reading, it is trusted."""
    shelf.write("one")
    shelf.cache.get("a")
    shelf.cache.get("a")
    assert shelf.reads == 2
    shelf.now += 3 * SECOND
    shelf.cache.get("a")
    shelf.cache.get("a")
    assert shelf.reads == 3


def test_a_file_from_the_future_is_read_each_time(shelf: Shelf) -> None:
    """A file server whose clock is ahead costs reads, never a stale prompt."""
    shelf.write("one", age=-60 * SECOND)
    shelf.cache.get("a")
    shelf.write("two", age=-60 * SECOND)
    assert shelf.cache.get("a") == ["two"]


def test_a_wrong_file_is_told_each_time_and_parsed_once(shelf: Shelf) -> None:
    """Every caller has an error of its own, so tracebacks do not pile up on a shared one."""
    shelf.write("wrong", age=10 * SECOND)
    errors = []
    for _ in range(3):
        with pytest.raises(DocumentError, match="a:1:1: wrong") as caught:
            shelf.cache.get("a")
        errors.append(caught.value)
    assert len({id(error) for error in errors}) == 3
    assert shelf.parsed == ["wrong"]


def test_a_mended_file_is_fine_and_a_broken_one_is_not(shelf: Shelf) -> None:
    """The last good form never hides what the file says now."""
    shelf.write("wrong", age=30 * SECOND)
    with pytest.raises(DocumentError):
        shelf.cache.get("a")
    shelf.write("one", age=20 * SECOND)
    assert shelf.cache.get("a") == ["one"]
    shelf.write("wrong again", age=10 * SECOND)
    with pytest.raises(DocumentError, match="wrong again"):
        shelf.cache.get("a")


def test_a_file_just_emptied_is_under_rewriting(shelf: Shelf) -> None:
    """Editors empty a file before they write it; for a second, the last content stands."""
    shelf.write("one", age=10 * SECOND)
    shelf.cache.get("a")
    shelf.write("")
    assert shelf.cache.get("a") == ["one"]
    shelf.now += 2 * SECOND
    assert shelf.cache.get("a") == [""]


def test_a_file_that_is_rewritten_all_the_time_keeps_its_last_content(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be read whole, and the last whole content is known; without one, it is refused."""
    shelf.write("one", age=10 * SECOND)
    shelf.cache.get("a")
    real_open = os.open

    def open_then_replace(path: str, flags: int) -> int:
        descriptor = real_open(path, flags)
        shelf.write("two", name="new")
        (shelf.folder / "new").rename(shelf.folder / "a")
        return descriptor

    shelf.write("two")
    monkeypatch.setattr(os, "open", open_then_replace)
    assert shelf.cache.get("a") == ["one"]
    fresh: FileCache[str] = FileCache(Root(shelf.folder, kind="prompt"), lambda data, _: data.decode(), max_bytes=9)
    with pytest.raises(FileUnsettledError, match="rewritten all the time"):
        fresh.get("a")


def test_an_empty_file_is_read_as_it_is_at_first(shelf: Shelf) -> None:
    """Without an earlier content there is nothing else to hand out."""
    shelf.write("")
    assert shelf.cache.get("a") == [""]


def test_a_file_that_goes_and_comes_back_is_read_again(shelf: Shelf) -> None:
    """What was known of it is no answer while it is gone."""
    shelf.write("one", age=10 * SECOND)
    shelf.cache.get("a")
    (shelf.folder / "a").unlink()
    with pytest.raises(FileMissingError):
        shelf.cache.get("a")
    shelf.write("two", age=5 * SECOND)
    assert shelf.cache.get("a") == ["two"]


def test_what_cannot_be_read_is_not_remembered(shelf: Shelf) -> None:
    """A file that has become too large, and small again."""
    shelf.write("x" * 101, age=10 * SECOND)
    with pytest.raises(FileRefusedError):
        shelf.cache.get("a")
    shelf.write("one", age=10 * SECOND)
    assert shelf.cache.get("a") == ["one"]


def test_the_table_is_bounded(shelf: Shelf) -> None:
    """Beyond its capacity the entry that was read longest ago goes."""
    for name in "abcd":
        shelf.write(name, name=name, age=10 * SECOND)
        shelf.cache.get(name)
    for name in "dcb":
        shelf.cache.get(name)
    assert shelf.reads == 4
    shelf.cache.get("a")
    assert shelf.reads == 5


def test_a_change_that_keeps_size_and_time_is_seen_by_the_inode(tmp_path: Path) -> None:
    """Copying the old time back does not hide a change: the inode's own time moves."""
    path = tmp_path / "a"
    cache: FileCache[str] = FileCache(Root(tmp_path, kind="prompt"), lambda data, _: data.decode(), max_bytes=100)
    path.write_text("one")
    os.utime(path, ns=(1, 1))
    assert cache.get("a") == "one"
    path.write_text("two")
    os.utime(path, ns=(1, 1))
    assert cache.get("a") == "two"


def test_readers_beside_a_writer_see_whole_contents_only(tmp_path: Path) -> None:
    """Y32: a file cut off and written again while others load it is one version or the other, never a mix.

    Each version fits in one page of memory, so that the system shows it empty or whole. Of a longer one it may show
    the first pages as a file of its own, which no reader can tell from a finished file.
    """
    path = tmp_path / "a"
    versions = ["a" * 2000, "b" * 3000]
    path.write_text(versions[0])
    cache: FileCache[str] = FileCache(Root(tmp_path, kind="prompt"), lambda data, _: data.decode(), max_bytes=10_000)
    cache.get("a")

    def rewrite() -> None:
        for number in range(60):
            path.write_text(versions[number % 2])

    def check() -> None:
        for _ in range(150):
            assert cache.get("a") in versions

    workers = [Worker(rewrite), *[Worker(check) for _ in range(3)]]
    for worker in workers:
        worker.result()
    assert cache.get("a") == versions[1]
