"""The small language that schemas of every dialect are translated into, and how much work it can make.

It is that of draft-07 with these differences. ``$ref`` has the name of a definition and stands
alone. ``type`` knows ``"int"``, a number written without a fraction. ``pattern`` and the keys of
``patternProperties`` are `Pattern` objects. ``format`` is a name of `FORMATS` and is checked. ``minContains``
and ``maxContains`` stand beside ``contains``. ``multipleOf`` is exact. ``label`` on a node is the keyword that
an issue found there is to be reported under.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import frozen

Node = Any
"""A schema of the core language: a bool, or a dict of its keywords."""

MAX_EVALUATIONS: Final = 100_000
"""Most schemas that checking one value, its parts aside, may evaluate."""

MAX_UNCOUNTED: Final = 16
"""Most definitions that may go uncounted: two to this power evaluations are quick."""

_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLES: Final = ("not", "if", "then", "else")


Note = tuple[str, tuple[str, ...], str]
"""A remark for the author: the address of a document, a path in it, and what has no effect there."""


@frozen(eq=False)
class Core:
    """A translated schema: its root, and the definitions that references name."""

    root: Node
    definitions: dict[str, Node]
    counted: frozenset[str]
    """The definitions whose evaluations are to be counted: a value can make them multiply."""
    notes: tuple[Note, ...]


def counted(definitions: Mapping[str, Node]) -> frozenset[str]:
    """Return the definitions whose evaluations a value can multiply, () when none can.

    That takes references that come back to themselves, or follow each other for long, and somewhere among them
    a value whose parts are held against more than one of them.
    """
    if len(definitions) > MAX_UNCOUNTED:
        suspects = frozenset(definitions)
    else:
        edges = {name: set(_references(node)) for name, node in definitions.items()}
        reached = {name: set(targets) for name, targets in edges.items()}
        for _ in definitions:
            for targets in reached.values():
                targets.update(*(edges[target] for target in targets))
        suspects = frozenset(name for name, targets in reached.items() if name in targets)
    is_multiplying = any(max(_spread(definitions[name], suspects)) > 1 for name in suspects)
    return suspects if is_multiplying else frozenset()


def _spread(node: Node, names: frozenset[str]) -> tuple[int, int]:
    """Return how often at most one evaluation of ``node`` holds its value, and any part of it, against ``names``."""
    if isinstance(node, bool):
        return 0, 0
    if "$ref" in node:
        return int(node["$ref"] in names), 0
    here = below = 0
    for item in in_place(node):
        item_here, item_below = _spread(item, names)
        here, below = here + item_here, below + item_below

    def on(items: Iterable[Node]) -> list[int]:
        return [max(_spread(item, names)) for item in items]

    def one(keyword: str) -> list[Node]:
        return [node[keyword]] if keyword in node else []

    items = node.get("items", [])
    below += max(on([*(items if isinstance(items, list) else [items]), *one("additionalItems")]), default=0)
    below += max(on([*node.get("properties", {}).values(), *one("additionalProperties")]), default=0)
    below += sum(on([*node.get("patternProperties", {}).values(), *one("contains")]))
    return here, below


def _references(node: Any) -> Iterator[str]:
    """Yield the names of the definitions that a node refers to, wherever in it."""
    if isinstance(node, list):
        for item in node:
            yield from _references(item)
    elif isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for keyword, below in node.items():
            if keyword not in ("enum", "const"):
                yield from _references(below)


def in_place(node: Node) -> Iterator[Node]:
    """Yield the nodes that are held against the same value as ``node``."""
    if isinstance(node, bool):
        return
    for keyword in _LISTS:
        yield from node.get(keyword, ())
    for keyword in _SINGLES:
        if keyword in node:
            yield node[keyword]
    for item in node.get("dependencies", {}).values():
        if not isinstance(item, list):
            yield item


def evaluation_fault(definitions: Mapping[str, Node]) -> tuple[str, str] | None:
    """Return a definition that cannot be evaluated in bounds, and why; None when there is none.

    That is one that comes back to itself without going into the value, or branches beyond `MAX_EVALUATIONS`.
    """
    costs: dict[str, int] = {}
    under_way: list[str] = []

    def cost(node: Node) -> int:
        if isinstance(node, bool):
            return 1
        if "$ref" in node:
            return 1 + named(node["$ref"])
        return 1 + sum(map(cost, in_place(node)))

    def named(name: str) -> int:
        if name not in costs:
            if name in under_way:
                raise _EvaluationFaultError(
                    name,
                    "recursive reference: this schema refers to itself without going into a property or an item, "
                    "so that checking it would never end",
                )
            under_way.append(name)
            costs[name] = cost(definitions[name])
            under_way.pop()
            if costs[name] > MAX_EVALUATIONS:
                raise _EvaluationFaultError(
                    name,
                    f"checking one value would take more than {MAX_EVALUATIONS} steps: references that branch into "
                    "each other multiply",
                )
        return costs[name]

    try:
        for name in definitions:
            named(name)
    except _EvaluationFaultError as fault:
        return fault.args
    except RecursionError:
        return under_way[0], "references follow each other in too long a chain"
    return None


class _EvaluationFaultError(Exception):
    args: tuple[str, str]
