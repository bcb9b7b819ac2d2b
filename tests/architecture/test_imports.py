"""What importing promptkit does to a process: next to nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXTRAS = [
    "cattr",
    "cattrs",
    "click",
    "django",
    "flask",
    "opentelemetry",
    "pytest",
    "rich",
    "xllamacpp",
    "promptkit.batch",
    "promptkit.cli",
    "promptkit.contrib",
    "promptkit.local",
    "promptkit.testing",
]

BELATED = [
    "requests",
    "charset_normalizer",
    "certifi",
    "socks",
    "html.entities",
    "difflib",
    "fractions",
    "urllib.request",
    "promptkit._check",
    "promptkit._class_schemas",
]

SCRIPT = """
import json, sys, threading

made = []
def watch(module, name):
    real = getattr(module, name)
    def make(*args, **kwargs):
        caller = sys._getframe(1)
        if caller.f_globals.get("__name__", "").partition(".")[0] == "promptkit":
            made.append(f"{caller.f_globals['__name__']}:{caller.f_lineno} {name}")
        return real(*args, **kwargs)
    setattr(module, name, make)

for name in ("Lock", "RLock"):
    watch(threading, name)

def opened(event, arguments):
    if event not in ("socket.__new__", "socket.connect", "socket.getaddrinfo", "subprocess.Popen"):
        return
    caller = sys._getframe(1)
    while caller.f_globals.get("__name__") == "socket":
        caller = caller.f_back
    # urllib3 makes one socket, without connecting it, to see whether this machine has IPv6.
    if (event, caller.f_globals.get("__name__")) != ("socket.__new__", "urllib3.util.connection"):
        made.append(f"{caller.f_globals.get('__name__')}:{caller.f_lineno} {event}")

before = threading.active_count()
loaded = set(sys.modules)  # where coverage is measured, what measures it
sys.addaudithook(opened)
import promptkit
print(json.dumps({
    "modules": sorted(set(sys.modules) - loaded),
    "made": made,
    "threads": threading.active_count() - before,
    "handlers": __import__("logging").root.handlers != [],
}))
"""


@pytest.fixture(scope="module")
def after_import() -> dict[str, object]:
    """What ``import promptkit`` alone does to a fresh interpreter."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, object] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("name", BELATED)
def test_what_few_runs_need_is_not_imported(after_import: dict[str, object], name: str) -> None:
    """Proxies, TLS, Python classes, advice about misspelt names: their modules are loaded when they are asked for."""
    assert name not in after_import["modules"]  # type: ignore[operator]  # a list of str


@pytest.mark.parametrize("name", EXTRAS)
def test_no_module_of_an_extra_is_imported(after_import: dict[str, object], name: str) -> None:
    """The core loads nothing that an extra brings, even where it is installed."""
    assert name not in after_import["modules"]  # type: ignore[operator]  # a list of str


def test_nothing_is_locked_started_or_connected(after_import: dict[str, object]) -> None:
    """Importing makes no lock, thread, socket or process, and configures no logging."""
    assert after_import["made"] == []
    assert after_import["threads"] == 0
    assert after_import["handlers"] is False


def test_the_type_marker_is_installed() -> None:
    """Type checkers look for ``py.typed`` beside the package."""
    spec = find_spec("promptkit")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (folder,) = spec.submodule_search_locations
    assert (Path(folder) / "py.typed").read_bytes() == b""
