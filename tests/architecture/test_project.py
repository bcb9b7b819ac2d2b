"""What the project promises about itself: dependencies, sessions, files that belong together."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NOXFILE = (ROOT / "noxfile.py").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SESSIONS = re.findall(r"^@nox\.session.*\ndef (\w+)\(", NOXFILE, re.MULTILINE)


def is_installed() -> bool:
    """Return whether a built promptkit is tested, as in the test session, and not a bare source tree."""
    try:
        metadata("promptkit")
    except PackageNotFoundError:
        return False
    return True


installed_only = pytest.mark.skipif(not is_installed(), reason="reads the metadata of the installed package")


def name_of(requirement: str) -> str:
    """Return the project's name in a requirement, in its normal form (PEP 503)."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    return re.sub(r"[._-]+", "-", match.group()).lower()


@installed_only
def test_the_core_needs_five_packages() -> None:
    """Nothing but the five is installed with promptkit; everything else is behind an extra."""
    core = {name_of(item) for item in requires("promptkit") or [] if "extra ==" not in item}
    assert core == {"attrs", "fastjsonschema", "jinja2", "requests", "ruamel-yaml"}


def test_what_is_tested_is_what_an_extra_asks_for() -> None:
    """The test group has at least each package of each extra, except the model server, which is optional there."""
    extras = PYPROJECT["project"]["optional-dependencies"]
    wanted = {name_of(item) for name, items in extras.items() if name != "local" for item in items}
    assert wanted <= {name_of(item) for item in PYPROJECT["dependency-groups"]["test"]}


@installed_only
def test_the_metadata_says_which_python() -> None:
    """The wheel refuses older interpreters and names the licence."""
    assert metadata("promptkit")["Requires-Python"] == ">=3.11"
    assert metadata("promptkit")["License-Expression"] == "MIT"


@pytest.mark.parametrize("name", SESSIONS)
def test_contributors_are_told_of_each_session(name: str) -> None:
    """CONTRIBUTING lists every nox session."""
    assert f"`nox -s {name}" in CONTRIBUTING


def test_contributors_are_told_of_no_other_session() -> None:
    """CONTRIBUTING lists no session that is not there."""
    assert set(re.findall(r"nox -s (\w+)", CONTRIBUTING)) <= set(SESSIONS)


@installed_only
def test_every_tested_python_is_classified() -> None:
    """The interpreters that nox looks for are those that the metadata claims."""
    supported = re.search(r"^SUPPORTED = \((.*)\)$", NOXFILE, re.MULTILINE)
    assert supported
    claimed = {
        item.rpartition(" :: ")[2]
        for item in metadata("promptkit").get_all("Classifier") or []
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", item)
    }
    assert set(re.findall(r"[\d.]+", supported[1])) == claimed


def test_every_module_has_its_place_in_the_drawing() -> None:
    """The layers that are drawn for people are the layers that are checked."""
    page = (ROOT / "docs/development/architecture.md").read_text(encoding="utf-8")
    drawing = page.split("```")[1].splitlines()
    drawn = [sorted(re.findall(r"\w+", line)) for line in drawing if line.strip()]
    (contract,) = (item for item in PYPROJECT["tool"]["importlinter"]["contracts"] if item["id"] == "layers")
    checked = [sorted(re.findall(r"\w+", layer)) for layer in contract["layers"]]
    assert drawn == checked


def test_the_changelog_is_open_for_the_next_change() -> None:
    """The changelog has an Unreleased section at its top."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## .*$", text, re.MULTILINE)[0] == "## [Unreleased]"
