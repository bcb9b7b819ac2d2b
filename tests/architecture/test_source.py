"""Rules of the source that no linter has: how primitives are reached, how large a module may be."""

from __future__ import annotations

import ast
from pathlib import Path

import planted_faults
import pytest

import promptkit

PACKAGE = Path(promptkit.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 600
REPLACED = {"threading", "time"}
"""Modules whose functions a test may replace, which it can only where they are looked up when they are used."""


def name_of(path: Path) -> str:
    """Use a module's path below the package as a test's id."""
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_threads_and_time_are_reached_through_their_modules(path: Path) -> None:
    """``threading.Lock()``, never ``from threading import Lock``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert [node.lineno for node in imported if node.module in REPLACED] == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_module_is_too_long_to_read(path: Path) -> None:
    """Beyond this many lines a module is two."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    """A module's docstring opens with a sentence; what is nothing but a package may be empty."""
    source = path.read_text(encoding="utf-8")
    if source.strip():
        assert (ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0].endswith((".", ":")), path


@pytest.mark.parametrize("fault", planted_faults.FAULTS, ids=lambda fault: fault.name)
def test_the_place_of_each_planted_fault_is_there_once(fault: planted_faults.Fault) -> None:
    """A change of the source that moves one is told at once, and not by the long session that plants them."""
    source = (PACKAGE / f"{fault.module}.py").read_text(encoding="utf-8")
    assert source.count(fault.right) == 1
    assert all((Path(planted_faults.ROOT) / path.partition("::")[0]).is_file() for path in fault.tests)
