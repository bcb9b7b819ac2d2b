"""The pytest plugin of promptkit: fixtures for the tests of an application, and a switch that keeps them offline.

Guarantees: loading it imports nothing of promptkit, so that it costs nothing where it is not used and a coverage tool
sees promptkit being imported; that is why it stands beside the package and not in it. The fixtures are those of
`promptkit.testing`, whose page documents them.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from promptkit.testing import EngineFactory, FakeClock, ScriptedClient

MARKER = "promptkit_offline"
VARIABLE = "PROMPTKIT_OFFLINE"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings."""
    parser.addini(MARKER, "keep promptkit from sending requests in every test (default: false)", "bool", False)  # noqa: FBT003  # pytest's own signature
    parser.addini(
        "promptkit_root", "the folder that has prompts/ and profiles/, from the rootdir (default: it)", default="."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(is_offline=True): keep promptkit's built-in client from sending requests in this test, or let it"
        f" with False where the setting {MARKER} keeps it from that in all tests",
    )


@pytest.hookimpl(hookwrapper=True)  # not the newer wrapper=True: whatever pytest an application has must load this
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None]:
    """Run a test, with its fixtures, under the switch that it asks for; processes that it starts inherit it."""
    marker = item.get_closest_marker(MARKER)
    asked = [item.config.getini(MARKER)] if marker is None else [*marker.args, *marker.kwargs.values(), True]
    before = os.environ.get(VARIABLE)
    if asked[0]:
        os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        if asked[0]:
            os.environ.pop(VARIABLE, None)
            os.environ.update({} if before is None else {VARIABLE: before})


@pytest.fixture
def scripted_client() -> ScriptedClient:
    """A `ScriptedClient` with an empty script: ``scripted_client.add("an answer", …)``."""
    from promptkit.testing import ScriptedClient

    return ScriptedClient()


@pytest.fixture
def fake_clock() -> FakeClock:
    """A `FakeClock`: ``fake_clock.advance(5)``, or ``fake_clock.is_jumping = True`` in a test of one thread."""
    from promptkit.testing import FakeClock

    return FakeClock()


@pytest.fixture
def promptkit_engine(
    scripted_client: ScriptedClient, fake_clock: FakeClock, tmp_path: Path, pytestconfig: pytest.Config
) -> Generator[EngineFactory]:
    """An `EngineFactory`: engines on the application's folders, on ``scripted_client`` and ``fake_clock``."""
    from promptkit.testing import EngineFactory

    root = pytestconfig.rootpath / pytestconfig.getini("promptkit_root")
    with EngineFactory(root, tmp_path / "promptkit", client=scripted_client, clock=fake_clock) as factory:
        yield factory
