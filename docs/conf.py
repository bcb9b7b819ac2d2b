"""How Sphinx builds these pages: Markdown through MyST, the reference from the docstrings."""

from collections.abc import Iterator
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import click

from promptkit.cli._app import app as command

project = "promptkit"
author = "The promptkit developers"
copyright = f"2026, {author}"  # noqa: A001  # Sphinx's own name for it
version = release = installed_version("promptkit")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxcontrib.mermaid"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_fence_as_directive = ["mermaid"]  # diagrams, as GitHub shows them too
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"promptkit {version}"

# A name in single backquotes in a docstring is a Python object.
default_role = "py:obj"
nitpicky = True  # such a name leads somewhere; the types of signatures need not
nitpick_ignore_regex = [("py:class", ".*")]
add_module_names = False
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100


def command_help(context: click.Context) -> Iterator[str]:
    """Yield what ``--help`` says of a command, and then of each of its subcommands."""
    yield context.get_help()
    if isinstance(context.command, click.Group):
        for name, subcommand in sorted(context.command.commands.items()):
            yield from command_help(click.Context(subcommand, context, info_name=name, terminal_width=100))


BUILD = Path(__file__).parent / "_build"
BUILD.mkdir(exist_ok=True)
HELP = command_help(click.Context(command, info_name="promptkit", terminal_width=100))
(BUILD / "command-help.txt").write_text("\n\n\n".join(HELP) + "\n", encoding="utf-8")


PUBLIC = ("promptkit", "promptkit.errors", "promptkit.testing", "promptkit.local")


def resolve_public_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Return the link for a name that stands bare in a docstring, from whichever public module it is."""
    domain = env.get_domain("py")
    name = node.get("reftarget", "").rpartition(".")[2]
    for target in (f"{module}.{name}" for module in PUBLIC):
        if node.get("refdomain") == "py" and target in domain.objects:
            return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, content)
    return None


def setup(app: Any) -> None:
    """Connect what Sphinx calls."""
    app.connect("missing-reference", resolve_public_name)
