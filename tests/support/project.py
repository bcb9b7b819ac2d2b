"""A small application for tests: folders with prompts, profiles and schemas, and an engine on them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from promptkit import Backend, Engine

ECHO = """
profile: main
inputs:
  text: {type: string}
messages:
  - role: user
    content: "{{ text }}"
"""

EXTRACT = """
profile: main
inputs:
  text: {type: string}
messages:
  - role: system
    content: You extract.
  - role: user
    content: "{{ text }}"
output:
  format: json_schema
  schema:
    type: object
    properties: {n: {type: integer}, s: {type: string}}
    required: [n]
    additionalProperties: false
  repair: {max_attempts: 2}
"""

MAIN = """
backend: local
model: m1
"""


class Project:
    """Folders under ``root`` that tests write into, and engines on them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("prompts", "profiles", "schemas", "data"):
            (root / name).mkdir(parents=True)
        self.write("prompts/echo.yaml", ECHO)
        self.write("prompts/extract.yaml", EXTRACT)
        self.write("profiles/main.yaml", MAIN)

    def write(self, name: str, text: str | bytes) -> Path:
        """Write a file below the root, its text without common indentation."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(textwrap.dedent(text).lstrip("\n"), "utf-8")
        return path

    def prompt(self, name: str, text: str) -> str:
        """Write a prompt file and return its id."""
        self.write(f"prompts/{name}.yaml", text)
        return name

    def engine(self, client: Any = None, *, backend: dict[str, Any] | None = None, **options: Any) -> Engine:
        """Return an engine on the folders, with a backend called ``local``."""
        settings: dict[str, Any] = {"endpoint": "http://127.0.0.1:9/v1", **(backend or {})}
        options.setdefault("backends", [Backend("local", **settings)])
        return Engine(
            prompts=self.root / "prompts",
            profiles=self.root / "profiles",
            schemas=self.root / "schemas",
            artifacts=self.root / "data",
            client=client,
            **options,
        )
