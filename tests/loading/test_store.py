"""Names, files and the cache behind `PromptStore` and `ProfileStore`."""

from __future__ import annotations

from pathlib import Path

import pytest

from promptkit._loading._profiles import ProfileStore
from promptkit._loading._prompts import PromptStore
from promptkit.errors import DocumentError, UnknownNameError

PROMPT = "messages:\n  - {role: user, content: hello}\n"


def write(path: Path, text: str) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_prompt_is_named_by_its_path_without_the_suffix(tmp_path: Path) -> None:
    """Folders become parts of the id; both suffixes count."""
    write(tmp_path / "invoice" / "extract.yaml", PROMPT)
    write(tmp_path / "greet.yml", PROMPT)
    store = PromptStore(tmp_path)
    assert store.ids() == ["greet", "invoice/extract"]
    assert store.load("invoice/extract").id == "invoice/extract"
    assert store.load("greet").path == f"{tmp_path}/greet.yml"


def test_an_unknown_name_offers_the_nearest(tmp_path: Path) -> None:
    """A slip in a name is answered with the name that was meant."""
    write(tmp_path / "fast.yaml", "backend: openrouter\n")
    with pytest.raises(UnknownNameError, match="did you mean fast"):
        ProfileStore(tmp_path).load("fsat")


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    """Which of x.yaml and x.yml is meant is not guessed."""
    write(tmp_path / "x.yaml", PROMPT)
    write(tmp_path / "x.yml", PROMPT)
    with pytest.raises(DocumentError, match=r"x\.yml"):
        PromptStore(tmp_path).load("x")
