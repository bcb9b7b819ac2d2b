"""Names and the files they mean, behind `PromptStore` and `ProfileStore`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from promptkit._loading._profiles import ProfileStore
from promptkit._loading._prompts import PromptStore
from promptkit.errors import ConfigError, DocumentError, InvalidRequestError, UnknownNameError
from support.threads import Worker

PROMPT = "messages:\n  - {role: user, content: hello}\n"


def write(path: Path, text: str) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def unknown(store: PromptStore, name: str) -> str:
    """Return what is said of a name that no file has."""
    with pytest.raises(UnknownNameError) as caught:
        store.load(name)
    return str(caught.value)


def test_a_prompt_is_named_by_its_path_without_the_suffix(tmp_path: Path) -> None:
    """Folders become parts of the id; both suffixes count."""
    write(tmp_path / "invoice" / "extract.yaml", PROMPT)
    write(tmp_path / "greet.v1.yml", PROMPT)
    store = PromptStore(tmp_path)
    assert store.ids() == ["greet.v1", "invoice/extract"]
    assert store.load("invoice/extract").id == "invoice/extract"
    assert store.load("greet.v1").path == f"{tmp_path}/greet.v1.yml"


def test_the_hash_is_that_of_the_bytes_as_written(tmp_path: Path) -> None:
    """``sha256sum`` of the file gives the same."""
    write(tmp_path / "a.yaml", PROMPT)
    assert PromptStore(tmp_path).load("a").hash == f"sha256:{hashlib.sha256(PROMPT.encode()).hexdigest()}"


def test_loading_again_gives_the_same_definition_until_the_file_changes(tmp_path: Path) -> None:
    """A warm load is not a parse; a change is seen at once."""
    path = write(tmp_path / "a.yaml", PROMPT)
    store = PromptStore(tmp_path)
    first = store.load("a")
    assert store.load("a") is first
    write(path, PROMPT.replace("hello", "adieu"))
    assert store.load("a") != first


def test_a_warm_load_opens_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once settled, a definition costs stat calls alone."""
    path = write(tmp_path / "a.yaml", PROMPT)
    store = PromptStore(tmp_path)
    monkeypatch.setattr("time.time_ns", lambda: path.stat().st_ctime_ns + 10**10)
    first = store.load("a")

    def fail(*_: object) -> int:
        raise AssertionError("a warm load opened a file")

    monkeypatch.setattr(os, "open", fail)
    assert store.load("a") is first


def test_an_unknown_name_offers_the_nearest(tmp_path: Path) -> None:
    """A slip in a name is answered with the name that was meant."""
    write(tmp_path / "fast.yaml", "backend: openrouter\n")
    with pytest.raises(UnknownNameError, match=r"no profile is called 'fsat'.*did you mean 'fast'"):
        ProfileStore(tmp_path).load("fsat")


def test_a_name_with_its_suffix_is_told_to_leave_it_out(tmp_path: Path) -> None:
    """A path is not a name."""
    write(tmp_path / "a.yaml", PROMPT)
    assert "did you mean 'a'? A name has no suffix" in unknown(PromptStore(tmp_path), "a.yaml")


def test_an_unknown_name_lists_what_there_is(tmp_path: Path) -> None:
    """When nothing is near, some of the known names help; an empty and a missing folder are told as such."""
    store = PromptStore(tmp_path / "prompts")
    assert "there is no such folder" in unknown(store, "x")
    (tmp_path / "prompts").mkdir()
    assert "the folder has no such files" in unknown(store, "x")
    for number in range(12):
        write(tmp_path / "prompts" / f"p{number:02}.yaml", PROMPT)
    assert "there are p00, p01, " in unknown(store, "zebra")
    assert unknown(store, "zebra").endswith("p09, …")


def test_a_name_with_a_suffix_that_has_no_file_is_unknown(tmp_path: Path) -> None:
    """Whatever else of that name is broken."""
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    write(tmp_path / "a.yaml", PROMPT)
    assert "did you mean 'loop'" in unknown(PromptStore(tmp_path), "loop.yaml")
    assert "no prompt is called 'zebra.yaml'" in unknown(PromptStore(tmp_path), "zebra.yaml")


def test_the_longest_name_is_unknown_like_any_other(tmp_path: Path) -> None:
    """The suffix counts, so that a name which passes can be looked up."""
    longest = "a/" * 509 + "x"
    assert "no prompt is called" in unknown(PromptStore(tmp_path), longest)
    assert "it is longer than 1019 characters" in unknown(PromptStore(tmp_path), longest + "x")


def test_a_link_to_nothing_is_told_with_either_suffix(tmp_path: Path) -> None:
    """It is listed, and wrong."""
    (tmp_path / "a.yaml").symlink_to("gone")
    (tmp_path / "b.yml").symlink_to("gone")
    store = PromptStore(tmp_path)
    for name in store.ids():
        with pytest.raises(DocumentError, match="it is a symlink that leads nowhere"):
            store.load(name)


def test_names_are_case_exact(tmp_path: Path) -> None:
    """Another spelling is another name, and is offered."""
    write(tmp_path / "Invoice.yaml", PROMPT)
    assert "did you mean 'Invoice'" in unknown(PromptStore(tmp_path), "invoice")


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../x", "..\\x", "C:x", "~/x", "a\0b", "", "a//b", "a.", "x" * 2000]
)
def test_a_name_that_could_leave_the_root_is_unknown(tmp_path: Path, name: str) -> None:
    """Such a name is refused as one that no prompt can have, and is named in the message."""
    told = unknown(PromptStore(tmp_path), name)
    assert told.startswith(f"{name[:80]!r} cannot name a prompt: ")


@pytest.mark.parametrize("name", [None, 3, b"a", ["a"], Path("a")])
def test_a_name_that_is_no_string_is_an_invalid_request(tmp_path: Path, name: Any) -> None:
    """It is told by its kind."""
    with pytest.raises(InvalidRequestError, match="a prompt is named by a string, not"):
        PromptStore(tmp_path).load(name)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    """Which of x.yaml and x.yml is meant is not guessed, even when one was loaded before."""
    write(tmp_path / "x.yaml", PROMPT)
    store = PromptStore(tmp_path)
    store.load("x")
    write(tmp_path / "x.yml", PROMPT)
    with pytest.raises(DocumentError, match=r"x\.yaml: 'x\.yml' beside it has the same name; keep one of them"):
        store.load("x")
    assert store.ids() == ["x"]


def test_a_file_that_cannot_be_used_is_a_document_error(tmp_path: Path) -> None:
    """A pipe, a folder, and a file that is too large have a name and are wrong."""
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "folder.yml").mkdir()
    with (tmp_path / "huge.yaml").open("wb") as stream:
        stream.truncate(200_000_000)
    store = PromptStore(tmp_path)
    for name, told in (
        ("pipe", "pipe.yaml: it is not a regular file"),
        ("folder", "folder.yml: it is a folder"),
        ("loop", "loop.yaml: it cannot be read: Too many levels of symbolic links"),
        ("huge", "huge.yaml: the file is larger than the limit of 1048576 bytes"),
    ):
        with pytest.raises(DocumentError) as caught:
            store.load(name)
        assert str(caught.value) == f"{tmp_path}/{told}"
        assert caught.value.line == 0


def test_a_root_must_be_a_path() -> None:
    """What is no path is a mistake in the configuration, told when the store is built."""
    with pytest.raises(ConfigError, match="the profile root must be"):
        ProfileStore(3)  # type: ignore[arg-type]  # the mistake under test


def test_names_of_profiles_are_listed(tmp_path: Path) -> None:
    """As those of prompts are."""
    write(tmp_path / "eu" / "fast.yaml", "backend: openrouter\n")
    assert ProfileStore(tmp_path).names() == ["eu/fast"]


def test_threads_share_one_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Y05: many threads and many loads give the same, right definition."""
    path = write(tmp_path / "a.yaml", PROMPT + "".join(f"  - {{role: user, content: line {n}}}\n" for n in range(40)))
    monkeypatch.setattr("time.time_ns", lambda: path.stat().st_ctime_ns + 10**10)
    store = PromptStore(tmp_path)
    expected = PromptStore(tmp_path).load("a")

    def load() -> None:
        for _ in range(10):
            assert store.load("a") == expected

    for worker in [Worker(load) for _ in range(6)]:
        worker.result()
