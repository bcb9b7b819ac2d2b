"""``unevaluatedProperties`` and ``unevaluatedItems`` without them: a case distinction over what can evaluate something.

Guarantees: exact. Whenever every branch that may be valid has been asked about, what is evaluated is known, and
the keyword is an ``additionalProperties`` or ``items`` beside it. The tree of cases is bounded.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from attrs import evolve, frozen

from promptkit._loading._core import Node
from promptkit._loading._dialects import LATEST
from promptkit._loading._patterns import Pattern, translate
from promptkit._loading._references import REFERENCES, Registry, Schema, SchemaFaultError

MAX_CASES: Final = 512
"""Most combinations of branches in one translated schema."""

Scope = tuple[tuple[str, Schema], ...]
"""What dynamic references mean: for each name the outermost schema that has it."""

Place = tuple[Schema, Scope]
Case = tuple[list[tuple[Node, list[Place]]], list[Place]]
"""Branches asked about one after the other: the condition of each and what is valid with it; what is if none is."""


class Translator(Protocol):
    """What is asked of the translation that this is a part of."""

    registry: Registry

    def define(self, schema: Schema, scope: Scope) -> str:
        """Return the name of the definition for a schema in a dynamic scope."""

    def entered(self, schema: Schema, scope: Scope) -> Scope:
        """Return the dynamic scope inside a schema's resource."""

    def target(self, schema: Schema, keyword: str, scope: Scope) -> Place:
        """Return what a reference means in a dynamic scope, and the scope there."""


@frozen
class _Evaluated:
    """Which properties and items have been evaluated; everything, when ``is_all``."""

    is_all: bool = False
    names: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    count: int = 0
    contains: tuple[Node, ...] = ()


@frozen(eq=False)
class _Question:
    """An ``unevaluated…`` keyword: what it holds against the rest, and the schema that it stands in."""

    keyword: str
    below: Node
    origin: Schema


class Unevaluated:
    """The case distinctions of one translation, which share one bound."""

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self._cases = 0

    def node(self, schema: Schema, scope: Scope, keyword: str, below: Node) -> Node:
        """Return the node that holds ``below`` against what nothing beside ``keyword`` in ``schema`` evaluates."""
        return self._cases_of(_Question(keyword, below, schema), [(schema, scope)], [], _Evaluated(), frozenset())

    def _cases_of(
        self,
        question: _Question,
        passed: list[Place],
        open_cases: list[Case],
        evaluated: _Evaluated,
        seen: frozenset[Any],
    ) -> Node:
        """Return the node that asks ``question`` of what is not evaluated, once all in ``passed`` are valid.

        Every branch that may or may not be valid is asked about in turn: the tree of ``if`` nodes that comes
        out has a leaf for each combination, with what is evaluated in it.
        """
        passed, open_cases = list(passed), list(open_cases)
        while passed:
            schema, scope = passed.pop()
            scope = self._translator.entered(schema, scope)
            mark = schema.key, tuple((name, target.key) for name, target in scope)
            if isinstance(schema.value, bool) or mark in seen:
                continue
            seen |= {mark}
            evaluated = self._own(question, schema, scope, evaluated)
            always, sometimes = self._in_place(schema, scope)
            passed += always
            open_cases += sometimes
            if evaluated.is_all:
                return True
        if open_cases:
            branches, otherwise = open_cases.pop()
            node = self._cases_of(question, otherwise, open_cases, evaluated, seen)
            for condition, places in reversed(branches):
                then = self._cases_of(question, places, open_cases, evaluated, seen)
                node = then if then == node else {"if": condition, "then": then, "else": node}
            return node
        self._cases += 1
        if self._cases > MAX_CASES:
            told = f"{question.keyword} depends on more than {MAX_CASES} combinations of branches"
            hint = "use additionalProperties or items in the branches instead"
            raise SchemaFaultError(question.origin, question.keyword, f"{told}; {hint}")
        return self._leaf(question, evaluated)

    def _own(self, question: _Question, schema: Schema, scope: Scope, evaluated: _Evaluated) -> _Evaluated:
        """Return ``evaluated`` with what the keywords of one valid schema, its applicators aside, evaluate."""
        value, keyword, is_origin = schema.value, question.keyword, schema is question.origin
        if keyword == "unevaluatedProperties":
            if "additionalProperties" in value or (keyword in value and not is_origin):
                return evolve(evaluated, is_all=True)
            names = dict.fromkeys((*evaluated.names, *value.get("properties", ())))
            patterns = dict.fromkeys((*evaluated.patterns, *map(translate, value.get("patternProperties", ()))))
            return evolve(evaluated, names=tuple(names), patterns=tuple(patterns))
        is_latest = schema.dialect is LATEST
        prefix = value.get("prefixItems" if is_latest else "items", ())
        is_list = isinstance(prefix, (list, tuple))
        if (
            (keyword in value and not is_origin)
            or ("items" in value if is_latest else not is_list)
            or (not is_latest and "items" in value and "additionalItems" in value)
        ):
            return evolve(evaluated, is_all=True)
        contains = evaluated.contains
        if is_latest and "contains" in value:
            contains = (
                *contains,
                {"$ref": self._translator.define(self._translator.registry.child(schema, "contains"), scope)},
            )
        return evolve(evaluated, count=max(evaluated.count, len(prefix)), contains=contains)

    def _in_place(self, schema: Schema, scope: Scope) -> tuple[list[Place], list[Case]]:
        """Return the schemas that are valid for the value whenever ``schema`` is, and those that may be."""
        value, child = schema.value, self._translator.registry.child
        always = [self._translator.target(schema, keyword, scope) for keyword in REFERENCES if keyword in value]
        if schema.dialect.is_ref_alone and "$ref" in value:
            return always, []
        always += [(child(schema, "allOf", str(i)), scope) for i in range(len(value.get("allOf", ())))]
        sometimes: list[Case] = []
        branches = {
            keyword: [child(schema, keyword, str(i)) for i in range(len(value.get(keyword, ())))]
            for keyword in ("anyOf", "oneOf")
        }
        asked = {
            keyword: [({"$ref": self._translator.define(branch, scope)}, [(branch, scope)]) for branch in found]
            for keyword, found in branches.items()
        }
        sometimes += [([case], []) for case in asked["anyOf"]]
        if asked["oneOf"]:
            # Where two are valid the whole is not, whatever is evaluated: the first that is decides.
            sometimes.append((asked["oneOf"], []))
        if "if" in value:
            condition = child(schema, "if")
            then, other = (
                [(child(schema, keyword), scope)] if keyword in value else [] for keyword in ("then", "else")
            )
            sometimes.append(
                ([({"$ref": self._translator.define(condition, scope)}, [(condition, scope), *then])], other)
            )
        for name in value.get("dependentSchemas", ()):
            has_it = {"type": ["object"], "required": [name]}
            sometimes.append(([(has_it, [(child(schema, "dependentSchemas", name), scope)])], []))
        return always, sometimes

    @staticmethod
    def _leaf(question: _Question, evaluated: _Evaluated) -> Node:
        keyword, below = question.keyword, question.below
        node: dict[str, Node] = {"label": keyword}
        if keyword == "unevaluatedProperties":
            if evaluated.names:
                node["properties"] = dict.fromkeys(evaluated.names, True)
            if evaluated.patterns:
                node["patternProperties"] = dict.fromkeys(evaluated.patterns, True)
            return {**node, "additionalProperties": below}
        if evaluated.contains:
            below = {"anyOf": [*evaluated.contains, *([] if below is False else [below])]}
        if evaluated.count:
            return {**node, "items": [True] * evaluated.count, "additionalItems": below}
        return {**node, "items": below}
