"""Engines for tests: on an application's own folders or on files written for one test, with nothing to connect to."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from promptkit._backends import OPENROUTER, Backend
from promptkit._clock import Clock
from promptkit._engine import Engine
from promptkit._loading._profiles import ProfileStore
from promptkit._ports import LLMClient
from promptkit.errors import ConfigError, DocumentError

ENDPOINT: Final = "http://promptkit.invalid/v1"
"""An address that is nobody's: RFC 6761, section 6.4, keeps the domain ``invalid`` for that."""

FOLDERS: Final = {"prompts": "prompts", "profiles": "profiles", "schemas": "schemas", "artifacts": "data"}
NEEDED: Final = ("prompts", "profiles")


class EngineFactory:
    """Makes engines for one test and closes them: what the fixture ``promptkit_engine`` is.

    ``root`` is the folder that has the application's ``prompts``, ``profiles``, ``schemas`` and ``data``;
    ``scratch`` is an empty one for files that a test writes. ``client`` and ``clock`` are every engine's unless it is
    given others.
    """

    def __init__(
        self, root: str | os.PathLike[str], scratch: str | os.PathLike[str], *, client: LLMClient, clock: Clock
    ) -> None:
        self._root = Path(root)
        self._scratch = Path(scratch)
        self._client = client
        self._clock = clock
        self._engines: list[Engine] = []

    def __call__(self, *, files: Mapping[str, str | bytes] | None = None, **options: Any) -> Engine:
        """Return an engine on the application's folders, or on ``files`` alone.

        ``files`` maps paths (``"prompts/greet.yaml"``) to contents, a text without its common indentation; they are
        written to a folder of the test's own. ``options`` are those of `Engine`. Without ``backends``, each one that
        a profile names is there, without a limit and at an address that is nobody's; without ``schemas`` and
        ``artifacts``, the folders ``schemas`` and ``data`` where they exist.

        Raises `ConfigError` as `Engine` does, and for a path in ``files`` that leaves the test's folder.
        """
        root = self._root if files is None else self._written(files)
        for name, folder in FOLDERS.items():
            if name in NEEDED or (root / folder).is_dir():
                options.setdefault(name, root / folder)
        if "backends" not in options and Path(options["profiles"]).is_dir():
            options["backends"] = _named_backends(options["profiles"])
        options.setdefault("client", self._client)
        options.setdefault("clock", self._clock)
        engine = Engine(**options)
        self._engines.append(engine)
        return engine

    def _written(self, files: Mapping[str, str | bytes]) -> Path:
        root = (self._scratch / f"engine-{len(self._engines) + 1}").resolve()
        for name in NEEDED:
            (root / FOLDERS[name]).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            path = (root / name).resolve()
            if not path.is_relative_to(root):
                raise ConfigError(f"files: {name!r} is no path below the test's folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                path.write_text(textwrap.dedent(content).lstrip("\n"), "utf-8", newline="")
            else:
                path.write_bytes(content)
        return root

    def close(self) -> None:
        """Close every engine that this has made."""
        for engine in self._engines:
            engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _named_backends(profiles: str | os.PathLike[str]) -> list[Backend]:
    """Return a backend for each one that a profile names; a profile that is wrong is told when it is used."""
    store = ProfileStore(profiles)
    names = set()
    for profile in store.names():
        try:
            name = store.load(profile).backend
        except DocumentError:
            continue
        if name is not None and name != OPENROUTER:
            names.add(name)
    return [Backend(name, endpoint=ENDPOINT) for name in sorted(names)]
