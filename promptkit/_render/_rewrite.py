"""Rewriting a template's syntax tree, so that all it does goes through the sandbox.

Guarantees: attributes, items, ``~``, printing, assignments and the items of literals become calls of private filters
(a space in their names keeps them out of a template's reach), which refuse what is undefined and charge for what is
made; each loop, macro, call and block begins with a charge. The names that errors speak of are taken from the source
here, while it is still to be seen.
"""

from __future__ import annotations

from typing import Any, Final

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from promptkit._render._analysis import constant_names
from promptkit._render._limits import FILE_STEPS

_MAX_SPELLED: Final = 100


def spelled(node: nodes.Node | None) -> str:
    """Return an expression as its author wrote it, as far as names go: ``user.ssn``, ``rows[…].x``."""
    text = _spelled(node, 8)
    return text if len(text) <= _MAX_SPELLED else text[:_MAX_SPELLED] + "…"


def _spelled(node: nodes.Node | None, depth: int) -> str:
    if depth == 0:
        return "…"
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        return f"{_spelled(node.node, depth - 1)}.{node.attr}"
    if isinstance(node, nodes.Getitem):
        key = repr(node.arg.value) if isinstance(node.arg, nodes.Const) else "…"
        return f"{_spelled(node.node, depth - 1)}[{key}]"
    if isinstance(node, nodes.Call):
        return f"{_spelled(node.node, depth - 1)}(…)"
    if isinstance(node, nodes.Filter) and node.node is not None:
        return f"{_spelled(node.node, depth - 1)}|{node.name}"
    return "the expression"


def _filter(name: str, node: nodes.Expr, *args: Any) -> nodes.Filter:
    constants: list[nodes.Expr] = [arg if isinstance(arg, nodes.Expr) else nodes.Const(arg) for arg in args]
    return nodes.Filter(node, name, constants, [], None, None, lineno=node.lineno)


def _tick(chars: int, line: int, *, steps: int = 1) -> nodes.Stmt:
    """Return the statement that charges for one pass through a body that prints so much plain text."""
    return nodes.ExprStmt(_filter(" tick", nodes.Const(chars, lineno=line), steps), lineno=line)


def tighten(tree: nodes.Template) -> nodes.Template:
    """Rewrite a tree so that what it does goes through the sandbox; see the module's docstring."""
    chars = _data_chars(tree.body)
    _Tightener().visit(tree)
    tree.body.insert(0, _tick(chars, 1, steps=FILE_STEPS))  # each time that it is included
    tree.set_environment(tree.environment)  # type: ignore[arg-type]  # the nodes that are new, too
    return tree


class _Tightener(NodeTransformer):
    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:
        path = spelled(node.node)
        return _filter(" attribute", self.visit(node.node), node.attr, path)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        if isinstance(node.arg, nodes.Slice):
            return self.generic_visit(node)
        path = spelled(node)
        return _filter(" item", self.visit(node.node), self.visit(node.arg), path)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        paths = tuple(map(spelled, node.nodes))
        return _filter(" concat", nodes.List([self.visit(part) for part in node.nodes], lineno=node.lineno), paths)

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        paths = list(map(spelled, node.nodes))
        node.nodes = [
            part if isinstance(part, nodes.TemplateData) else _filter(" text", self.visit(part), path)
            for part, path in zip(node.nodes, paths, strict=True)
        ]
        return node

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:
        node.node = _filter(" given", self.visit(node.node))
        return node

    def visit_List(self, node: nodes.List | nodes.Tuple) -> nodes.Node:
        if getattr(node, "ctx", "load") != "load":
            return node
        node.items = [
            part if isinstance(part, nodes.Const) else _filter(" given", self.visit(part)) for part in node.items
        ]
        return node

    visit_Tuple = visit_List

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        node.key = self.visit(node.key)
        node.value = _filter(" given", self.visit(node.value))
        return node

    def _visit_body(self, node: nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block) -> nodes.Node:
        chars = _data_chars(node.body)
        self.generic_visit(node)
        node.body.insert(0, _tick(chars, node.lineno))
        return node

    visit_For = visit_Macro = visit_CallBlock = visit_Block = _visit_body

    def _visit_reference(self, node: nodes.Include | nodes.Import | nodes.FromImport | nodes.Extends) -> nodes.Node:
        if constant_names(node.template) is None:
            node.template = _filter(" file", self.visit(node.template))
        return node

    visit_Include = visit_Import = visit_FromImport = visit_Extends = _visit_reference


def _data_chars(body: list[nodes.Node]) -> int:
    """Count the plain text that one pass through ``body`` prints, nested bodies apart: they count their own."""
    chars = 0
    for node in body:
        if isinstance(node, nodes.TemplateData):
            chars += len(node.data)
        elif not isinstance(node, (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)):
            chars += _data_chars(list(node.iter_child_nodes()))
    return chars
