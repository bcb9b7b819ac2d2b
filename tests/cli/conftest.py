from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from promptkit.cli._app import app
from support.project import Project

_numbers = itertools.count(1)

APP = """
from promptkit import Backend, Engine
from promptkit.testing import Gate, ScriptedClient, held, late
from promptkit.errors import *

client = ScriptedClient({script})
engine = Engine(
    prompts="prompts",
    profiles="profiles",
    schemas="schemas",
    artifacts="data",
    backends=[Backend("local", endpoint="http://127.0.0.1:9/v1", {backend})],
    client=client,
)
"""

BUSY = """
from promptkit.testing import Worker

gate = Gate()
client.add(held(gate, "first"))
worker = Worker(engine.run, "echo", inputs={"text": "first"})
gate.wait_for(1)
"""


class Command:
    """The command in a project's folder, with an application whose engine plays a script."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.module = f"command_app_{next(_numbers)}"
        self.script("[]", always='"fine"')

    @property
    def engine(self) -> str:
        """What --engine takes."""
        return f"{self.module}:engine"

    def script(self, entries: str, *, always: str = "None", backend: str = "") -> None:
        """Write the application: ``entries`` and ``always`` are Python, what its client answers."""
        text = APP.format(script=f"{entries}, always={always}", backend=backend)
        self.project.write(f"{self.module}.py", text)

    @contextmanager
    def busy(self, backend: str) -> Iterator[None]:
        """Write an application whose only permit is held by another run as long as the block lasts."""
        self.script("[]", backend=f"concurrency_limit=1, {backend}")
        self.project.write(f"{self.module}.py", (self.project.root / f"{self.module}.py").read_text("utf-8") + BUSY)
        yield
        application = sys.modules[self.module]
        application.gate.open()
        assert application.worker.result().data == "first"

    def __call__(self, *arguments: str, stdin: str | bytes | None = None) -> Result:
        """Run the command in this process. Only an exit may come out of it, never another exception."""
        result = CliRunner().invoke(app, arguments, input=stdin, prog_name="promptkit")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        assert "Traceback" not in result.output
        return result

    def on_engine(self, name: str, *arguments: str, stdin: str | bytes | None = None) -> Result:
        """Run a subcommand on the application's engine."""
        return self(name, "--engine", self.engine, *arguments, stdin=stdin)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project that is the working directory; what is imported from it is forgotten afterwards."""
    project = Project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield project
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def command(project: Project) -> Command:
    """The command in the project's folder."""
    return Command(project)
