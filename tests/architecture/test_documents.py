"""The documents keep up with the code: examples compile, imports work, links lead somewhere."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from promptkit._loading._profiles import parse_profile
from promptkit._loading._prompts import parse_prompt
from promptkit._loading._yaml import load

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(path for path in ROOT.glob("docs/**/*.md") if "_build" not in path.parts)],
)
FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>```+)(?P<language>[\w-]*)[^\n]*\n(?P<code>.*?)^(?P=indent)(?P=ticks) *$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?P<target>[^)#\s]+)(?:#[^)]*)?\)")


def blocks(*languages: str) -> Iterator[object]:
    """Yield each fenced block of the given languages, with its page and line as id."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            if match["language"] in languages:
                line = text.count("\n", 0, match.start()) + 1
                indent = len(match["indent"])
                code = "".join(row[indent:] for row in match["code"].splitlines(keepends=True))
                yield pytest.param(code, id=f"{page.relative_to(ROOT)}:{line}")


@pytest.mark.parametrize("code", list(blocks("python")))
def test_python_in_the_documents_compiles(code: str) -> None:
    """Each Python block is valid; a block of a console session is not called python."""
    compile(code, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


@pytest.mark.parametrize("code", list(blocks("python")))
def test_what_the_documents_import_exists(code: str) -> None:
    """Each name that a block imports from promptkit is there."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "promptkit":
            module = importlib.import_module(str(node.module))
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            assert missing == []
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "promptkit":
                    importlib.import_module(alias.name)


@pytest.mark.parametrize("code", list(blocks("json")))
def test_json_in_the_documents_parses(code: str) -> None:
    """Each JSON block is JSON."""
    json.loads(code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    """Each relative link names a file that is there."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [match["target"] for match in LINK.finditer(text) if "://" not in match["target"]]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("code", list(blocks("yaml")))
def test_files_in_the_documents_load(code: str) -> None:
    """Each YAML block with messages is a prompt, each with a backend or an endpoint a profile; others are read."""
    if re.search(r"^messages:", code, re.MULTILINE):
        assert parse_prompt(code.encode(), "block.yaml", "block").messages
    elif re.search(r"^(backend|endpoint):", code, re.MULTILINE):
        assert parse_profile(code.encode(), "block.yaml", "block").name == "block"
    else:
        assert not load(code.encode(), "block.yaml").is_empty
