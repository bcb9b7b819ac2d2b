"""What a template's syntax tree tells before anything is rendered: mistakes, names used and set, files included.

Guarantees: pure; a fault is reported only where rendering would certainly fail or silently print nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, cast

from jinja2 import meta, nodes, pass_context
from jinja2.sandbox import SandboxedEnvironment

from promptkit._fields import nearest

LEFT_OUT: Final = {
    "safe": "nothing is escaped here, so leave it out",
    "forceescape": "use escape",
    "striptags": "clean HTML before it becomes an input",
    "urlize": "it makes HTML",
    "xmlattr": "it makes HTML",
    "random": "the same inputs must give the same prompt",
    "pprint": "use tojson(indent=2)",
    "attr": "write x.name or x['name']",
}
"""Filters of Jinja's that are not here, and why."""

_BY_NAME: Final = {"map": "filter", "select": "test", "reject": "test", "selectattr": "test", "rejectattr": "test"}
"""Filters whose argument is the name of another filter or test."""


class Fault(NamedTuple):
    """A mistake, and the template's line it stands on."""

    line: int
    message: str


class Reference(NamedTuple):
    """An ``include``, ``import``, ``from`` or ``extends``."""

    line: int
    tag: str
    names: tuple[str, ...] | None
    """The files named, the first of which is taken that exists; None when known only while rendering."""
    sees_inputs: bool
    may_be_missing: bool
    imports: tuple[str, ...]
    """The names that ``from`` takes out of the file."""


class Findings(NamedTuple):
    """What one template uses."""

    uses: dict[str, int]
    """Names that it looks up outside itself, with the line of the first use."""
    sets: frozenset[str]
    """Names that it sets somewhere: variables, loop variables, macros and their arguments, imports."""
    references: tuple[Reference, ...]


def find_faults(tree: nodes.Template, filters: Iterable[str], tests: Iterable[str]) -> list[Fault]:
    """Return the mistakes in a tree that has been parsed, in the order of their lines."""
    known = {"filter": frozenset(filters), "test": frozenset(tests)}
    faults = []
    for node in tree.find_all((nodes.Filter, nodes.Test)):
        kind = "filter" if isinstance(node, nodes.Filter) else "test"
        names = [(kind, node.name)]
        if kind == "filter" and node.name in _BY_NAME:
            position = 1 if node.name.endswith("attr") else 0
            argument = node.dyn_args or (node.args[position] if len(node.args) > position else None)
            if isinstance(argument, nodes.Const) and isinstance(argument.value, str):
                names.append((_BY_NAME[node.name], argument.value))
            elif argument is not None:
                faults.append(Fault(node.lineno, f"the name that |{node.name} is given must be written out"))
        for kind_named, name in names:
            if name not in known[kind_named]:
                cure = nearest(name, (n for n in known[kind_named] if " " not in n))
                if kind_named == "filter" and name in LEFT_OUT:
                    cure = f" here: {LEFT_OUT[name]}"
                faults.append(Fault(node.lineno, f"there is no {kind_named} {name!r}{cure}"))
    faults += [
        Fault(node.lineno, "an inline if needs an else: {{ a if b else '' }}")
        for node in tree.find_all(nodes.CondExpr)
        if node.expr2 is None
    ]
    faults += [
        Fault(node.lineno, "a number that is not finite")
        for node in tree.find_all(nodes.Const)
        if isinstance(node.value, float) and not math.isfinite(node.value)
    ]
    faults += [
        Fault(node.lineno, "nothing is escaped here, so {% autoescape %} has no meaning; use the filter e where needed")
        for node in tree.find_all(nodes.ScopedEvalContextModifier)
    ]
    faults += [
        Fault(node.lineno, "the file that import, from and extends name must be written out; include may compute it")
        for node in tree.find_all((nodes.Import, nodes.FromImport, nodes.Extends))
        if constant_names(cast("_Referring", node).template) is None
    ]
    return sorted(faults)


def _never(*_args: object, **_kwargs: object) -> object:
    raise NotImplementedError  # nothing is rendered, and constants cannot be worked out with it


class _AnyName(dict[str, Any]):
    """Filters or tests of which every name is one."""

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ARG002 - dict's signature
        return _never


class Analyst:
    """Finds out which names and files templates use. Thread-safe."""

    def __init__(self, sandbox: SandboxedEnvironment) -> None:
        # Jinja finds names by a dry run of its compiler, which stops at a filter that it does not know, and works
        # out constants unless an operator is intercepted
        environment = SandboxedEnvironment(autoescape=False, finalize=pass_context(_never))
        environment.intercepted_binops = sandbox.intercepted_binops
        environment.filters = _AnyName()
        environment.tests = _AnyName()
        environment.globals = sandbox.globals
        self._environment = environment

    def findings(self, tree: nodes.Template) -> Findings:
        """Return what ``tree`` uses. Raises `TemplateSyntaxError` for what only the compiler finds wrong."""
        environment = tree.environment
        tree.set_environment(self._environment)
        try:
            undeclared = meta.find_undeclared_variables(tree)
        finally:
            tree.set_environment(environment)  # type: ignore[arg-type]  # a parsed tree has one
        lines: dict[str, int] = {}
        sets = set()
        for name in tree.find_all(nodes.Name):
            if name.ctx != "load":
                sets.add(name.name)
            elif name.name in undeclared:
                lines[name.name] = min(name.lineno, lines.get(name.name, name.lineno))
        sets.update(node.name for node in tree.find_all(nodes.Macro))
        sets.update(node.target for node in tree.find_all(nodes.Import))
        for node in tree.find_all(nodes.FromImport):
            sets.update(name if isinstance(name, str) else name[1] for name in node.names)
        uses = {name: lines.get(name, 1) for name in sorted(undeclared)}
        return Findings(uses, frozenset(sets), tuple(_references(tree)))


_Referring = nodes.Include | nodes.Import | nodes.FromImport | nodes.Extends
_TAGS: Final[dict[type[nodes.Node], str]] = {
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "from",
    nodes.Extends: "extends",
}


def _references(tree: nodes.Template) -> Iterable[Reference]:
    for kind, tag in _TAGS.items():
        for node in tree.find_all(kind):
            names = constant_names(cast("_Referring", node).template)
            yield Reference(
                node.lineno,
                tag,
                None if names is None else tuple(names),
                getattr(node, "with_context", True),
                getattr(node, "ignore_missing", False),
                tuple(name if isinstance(name, str) else name[0] for name in getattr(node, "names", ())),
            )


def constant_names(node: nodes.Expr) -> list[str] | None:
    """Return the file names that ``{% include %}`` and its like are given, or None if they are known only later."""
    items = node.items if isinstance(node, (nodes.List, nodes.Tuple)) else [node]
    names = [item.value for item in items if isinstance(item, nodes.Const)]
    return names if len(names) == len(items) and all(isinstance(name, str) for name in names) else None
