"""Every public name is documented: classes, functions, methods and properties."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import promptkit

NEEDS = {"promptkit.cli": "click", "promptkit.contrib.django": "django", "promptkit.contrib.flask": "flask"}


def public_modules() -> Iterator[str]:
    """Yield the names of all modules without an underscore in their path."""
    yield "promptkit"
    for info in pkgutil.walk_packages(promptkit.__path__, "promptkit."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            yield info.name


def public_objects(module: object, name: str) -> Iterator[tuple[str, object]]:
    """Yield what a module offers, and what its classes define, with their full names."""
    names = getattr(module, "__all__", None) or [key for key in vars(module) if not key.startswith("_")]
    for key in names:
        value = getattr(module, key)
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        if not (getattr(value, "__module__", None) or "").startswith(name):
            continue
        yield f"{name}.{key}", value
        if inspect.isclass(value):
            for member, thing in vars(value).items():
                if not member.startswith("_") and (inspect.isroutine(thing) or isinstance(thing, property)):
                    yield f"{name}.{key}.{member}", thing


@pytest.mark.parametrize("name", list(public_modules()))
def test_every_public_name_has_a_docstring(name: str) -> None:
    """The module and each public object in it say what they are for, in a sentence."""
    module = importlib.import_module(name)
    assert module.__doc__, name
    bare = [
        full
        for full, value in public_objects(module, "promptkit" if name == "promptkit" else name)
        if not (inspect.getdoc(value) or "").split("\n\n")[0].strip().endswith((".", ":", "?"))
    ]
    assert bare == []
