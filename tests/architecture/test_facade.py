"""The package's one door: what it names, and what it takes to open it."""

from __future__ import annotations

import inspect
import types
from importlib.metadata import PackageNotFoundError, version

import pytest

import promptkit

NAMES = [
    "Artifact",
    "AttemptEvent",
    "Backend",
    "CancelToken",
    "Engine",
    "ExecutionOverride",
    "GenerateRequest",
    "GenerateResponse",
    "Issue",
    "LLMClient",
    "Message",
    "Observer",
    "OutputRepairer",
    "PreparedExecution",
    "PreparedRun",
    "Problem",
    "PromptKitError",
    "RunRequest",
    "RunResult",
    "Usage",
]


def test_all_is_the_agreed_list() -> None:
    """The facade offers what the design names, sorted, and nothing more."""
    assert list(promptkit.__all__) == sorted(NAMES)


def test_every_name_of_all_can_be_had() -> None:
    """A star import gives each name of ``__all__``."""
    space: dict[str, object] = {}
    exec("from promptkit import *", space)  # a star import is allowed at module level only
    assert sorted(set(space) - {"__builtins__"}) == sorted(NAMES)


def test_dir_shows_no_more_than_the_public_names() -> None:
    """Completion in a shell offers the public names, the errors and the version."""
    shown = [name for name in dir(promptkit) if not name.startswith("_")]
    assert sorted(shown) == sorted([*NAMES, "errors"])
    assert "__version__" in dir(promptkit)


def test_nothing_else_is_exposed() -> None:
    """The module's namespace holds no public name beside ``__all__``, submodules left aside."""
    exposed = {
        name
        for name, value in vars(promptkit).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert exposed == set(NAMES)


def test_version_is_the_installed_one() -> None:
    """``__version__`` says what the package's metadata says."""
    try:
        installed = version("promptkit")
    except PackageNotFoundError:
        pytest.skip("promptkit is not installed here")
    assert promptkit.__version__ == installed


@pytest.mark.parametrize("name", NAMES)
def test_public_names_are_classes_that_can_be_found_again(name: str) -> None:
    """Each public object is a class whose own module has it under the same name, as pickle needs."""
    value = getattr(promptkit, name)
    assert inspect.isclass(value)
    assert value.__name__ == name
