"""JSON Schemas of any dialect, said again in one small core language, exactly.

Guarantees: the core accepts precisely what the author's dialect accepts. Keywords that need no translation
are copied; references become names of definitions; ``unevaluatedProperties`` and ``unevaluatedItems`` become
case distinctions over the branches that can evaluate something; a dynamic reference becomes a plain one by
translating a schema once for every dynamic scope in which it can be reached. What would grow beyond bounds,
or never come to an end, is refused.

The core language is that of draft-07 with these differences. ``$ref`` has the name of a definition and stands
alone. ``type`` knows ``"int"``, a number written without a fraction. ``pattern`` and the keys of
``patternProperties`` are `Pattern` objects. ``format`` is a name of `FORMATS` and is checked. ``minContains``
and ``maxContains`` stand beside ``contains``. ``multipleOf`` is exact. ``label`` on a node is the keyword that
an issue found there is to be reported under.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import evolve, frozen

from promptkit._fields import Json
from promptkit._loading._dialects import DRAFT_04, LATEST
from promptkit._loading._formats import FORMATS
from promptkit._loading._patterns import Pattern, PatternFaultError, translate
from promptkit._loading._references import Registry, Schema

Node = Any
"""A schema of the core language: a bool, or a dict of its keywords."""

MAX_DEFINITIONS: Final = 20_000
MAX_CASES: Final = 512
MAX_EVALUATIONS: Final = 100_000
"""Most schemas that checking one value, its parts aside, may evaluate."""

_COPIED: Final = ("enum", "const", "minimum", "maximum", "multipleOf", "uniqueItems")
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLES: Final = ("not", "if", "then", "else")

MAX_UNCOUNTED: Final = 16
"""Most definitions that may go uncounted: two to this power evaluations are quick."""

Scope = tuple[tuple[str, Schema], ...]
"""What dynamic references mean: for each name the outermost schema that has it."""

Place = tuple[Schema, Scope]
Case = tuple[list[tuple[Node, list[Place]]], list[Place]]
"""Branches asked about one after the other: the condition of each and what is valid with it; what is if none is."""

Key = tuple[tuple[str, tuple[str, ...]], tuple[tuple[str, tuple[str, tuple[str, ...]]], ...]]


class TranslationFaultError(ValueError):
    """A schema cannot be translated; ``schema`` and ``keyword`` say where, ``str()`` why."""

    def __init__(self, schema: Schema, keyword: str, message: str) -> None:
        super().__init__(message)
        self.schema = schema
        self.keyword = keyword


@frozen(eq=False)
class Core:
    """A translated schema: its root, and the definitions that references name."""

    root: Node
    definitions: dict[str, Node]
    counted: frozenset[str]
    """The definitions whose evaluations are to be counted: a value can make them multiply."""
    notes: tuple[str, ...]


def check_patterns(registry: Registry) -> None:
    """Note every pattern that cannot be used."""
    for schema in registry.schemas():
        if not isinstance(schema.value, Mapping):
            continue
        pattern, properties = schema.value.get("pattern"), schema.value.get("patternProperties")
        sources: list[tuple[str, ...]] = [("pattern", pattern)] if isinstance(pattern, str) else []
        if isinstance(properties, Mapping):
            sources += [("patternProperties", name) for name in properties]
        for keyword, source in sources:
            try:
                translate(source)
            except PatternFaultError as error:
                path = (keyword,) if keyword == "pattern" else (keyword, source)
                registry.problems.append(schema.document.problem((*schema.path, *path), str(error)))


def translate_schema(registry: Registry, root: Schema) -> Core:
    """Return ``root`` in the core language. Raises `TranslationFaultError`; needs a registry without problems."""
    translator = _Translator(registry)
    name = translator.define(root, ())
    translator.finish()
    _check_evaluations(translator, name)
    definitions = translator.definitions
    return Core({"$ref": name}, definitions, _counted(definitions), tuple(dict.fromkeys(translator.notes)))


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


class _Translator:
    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.definitions: dict[str, Node] = {}
        self.origins: dict[str, Schema] = {}
        self.notes: list[str] = []
        self._names: dict[Key, str] = {}
        self._waiting: list[tuple[str, Schema, Scope]] = []
        self._cases = 0

    def define(self, schema: Schema, scope: Scope) -> str:
        """Return the name of the definition for a schema in a dynamic scope, to be filled in by `finish`."""
        scope = self.entered(schema, scope)
        key = schema.key, tuple((name, target.key) for name, target in scope)
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= MAX_DEFINITIONS:
                raise TranslationFaultError(schema, "$ref", f"more than {MAX_DEFINITIONS} definitions are needed")
            name = self._names[key] = f"d{len(self._names)}"
            self.origins[name] = schema
            self._waiting.append((name, schema, scope))
        return name

    def finish(self) -> None:
        while self._waiting:
            name, schema, scope = self._waiting.pop()
            self.definitions[name] = self.lowered(schema, scope)

    def entered(self, schema: Schema, scope: Scope) -> Scope:
        """Return the dynamic scope inside ``schema``'s resource: an outer name hides an inner one."""
        anchors = self.registry.dynamic_anchors(schema.base)
        if not anchors:
            return scope
        return tuple(sorted({**anchors, **dict(scope)}.items(), key=lambda item: item[0]))

    def target(self, schema: Schema, keyword: str, scope: Scope) -> tuple[Schema, Scope]:
        """Return what a reference means in a dynamic scope, and the scope there."""
        found = self.registry.target(schema, keyword)
        if keyword != "$ref":
            fragment = "" if keyword == "$recursiveRef" else schema.value[keyword].partition("#")[2]
            anchors = self.registry.dynamic_anchors(found.base)
            if fragment in anchors and anchors[fragment].key == found.key:
                return dict(self.entered(found, scope))[fragment], scope
        return found, scope

    # ---------------------------------------------------------------------------------------- one schema

    def lowered(self, schema: Schema, scope: Scope) -> Node:
        value = schema.value
        if isinstance(value, bool):
            return value
        scope = self.entered(schema, scope)
        dialect = schema.dialect
        if dialect.is_ref_alone and "$ref" in value:
            self._note_ignored(schema)
            return {"$ref": self.define(*self.target(schema, "$ref", scope))}
        node: dict[str, Node] = {key: value[key] for key in _COPIED if key in value}
        node.update((key, int(value[key])) for key in _COUNTS if key in value)
        if node.get("uniqueItems") is False:
            del node["uniqueItems"]
        if "type" in value:
            node["type"] = self._types(value["type"], is_strict=dialect is DRAFT_04)
        if value.get("required"):
            node["required"] = list(value["required"])
        self._bounds(schema, node)
        self._texts(schema, node)
        for keyword in _LISTS:
            if keyword in value:
                node[keyword] = [self.sub(schema, scope, keyword, str(i)) for i in range(len(value[keyword]))]
        for keyword in ("not", "if", "then", "else", "propertyNames"):
            if keyword in value:
                node[keyword] = self.sub(schema, scope, keyword)
        if "if" not in node:
            for keyword in ("then", "else"):
                if node.pop(keyword, None) is not None:
                    self.note(schema, keyword, f"{keyword} has no effect without if")
        self._arrays(schema, scope, node)
        self._objects(schema, scope, node)
        extra = [
            {"$ref": self.define(*self.target(schema, keyword, scope))}
            for keyword in ("$ref", "$dynamicRef", "$recursiveRef")
            if keyword in value
        ]
        extra += self._unevaluated(schema, scope)
        if extra and not node:
            return extra[0] if len(extra) == 1 else {"allOf": extra}
        if extra:
            node["allOf"] = [*node.get("allOf", ()), *extra]
        return node or True

    def sub(self, schema: Schema, scope: Scope, *path: str) -> Node:
        """Return a subschema in the core language."""
        return self.lowered(self.registry.child(schema, *path), scope)

    @staticmethod
    def _types(value: Json, *, is_strict: bool) -> list[str]:
        names = [value] if isinstance(value, str) else list(value)
        if "number" in names:
            names = [name for name in names if name != "integer"]
        return ["int" if is_strict and name == "integer" else name for name in names]

    @staticmethod
    def _bounds(schema: Schema, node: dict[str, Node]) -> None:
        for keyword, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if keyword not in schema.value:
                continue
            if schema.dialect is not DRAFT_04:
                node[keyword] = schema.value[keyword]
            elif schema.value[keyword]:
                node[keyword] = node.pop(bound)

    def _texts(self, schema: Schema, node: dict[str, Node]) -> None:
        value = schema.value
        if "pattern" in value:
            node["pattern"] = translate(value["pattern"])
        if "format" in value:
            name = value["format"]
            if schema.is_format_checked and name in FORMATS:
                node["format"] = name
            elif name in FORMATS:
                self.note(schema, "format", f"format {name} is not checked: in a declared {schema.dialect} it is an "
                          "annotation; leave $schema out to have it checked")  # fmt: skip
            else:
                self.note(schema, "format", f"format {name[:40]} is not known, so it is not checked")

    def _arrays(self, schema: Schema, scope: Scope, node: dict[str, Node]) -> None:
        value = schema.value
        prefix = "prefixItems" if schema.dialect is LATEST else "items"
        rest = "items" if schema.dialect is LATEST else "additionalItems"
        if isinstance(value.get(prefix), (list, tuple)):
            if value[prefix]:
                node["items"] = [self.sub(schema, scope, prefix, str(i)) for i in range(len(value[prefix]))]
            if rest in value:
                node["additionalItems" if value[prefix] else "items"] = self.sub(schema, scope, rest)
        elif "items" in value:
            node["items"] = self.sub(schema, scope, "items")
            if "additionalItems" in value:
                self.note(schema, "additionalItems", "additionalItems has no effect unless items is a list")
        elif rest in value:
            self.note(schema, rest, f"{rest} has no effect unless items is a list")
        if "contains" in value:
            low = int(value.get("minContains", 1)) if not schema.dialect.is_ref_alone else 1
            high = int(value["maxContains"]) if "maxContains" in value and not schema.dialect.is_ref_alone else None
            if low or high is not None:
                node["contains"] = self.sub(schema, scope, "contains")
                node["minContains"], node["maxContains"] = low, high
        elif "minContains" in value or "maxContains" in value:
            self.note(schema, "minContains", "minContains and maxContains have no effect without contains")

    def _objects(self, schema: Schema, scope: Scope, node: dict[str, Node]) -> None:
        value = schema.value
        if value.get("properties"):
            node["properties"] = {name: self.sub(schema, scope, "properties", name) for name in value["properties"]}
        if value.get("patternProperties"):
            node["patternProperties"] = {
                translate(name): self.sub(schema, scope, "patternProperties", name)
                for name in value["patternProperties"]
            }
        if "additionalProperties" in value:
            node["additionalProperties"] = self.sub(schema, scope, "additionalProperties")
        dependencies: dict[str, Node] = {}
        for name, item in value.get("dependencies", {}).items():
            is_names = isinstance(item, (list, tuple))
            dependencies[name] = list(item) if is_names else self.sub(schema, scope, "dependencies", name)
        for name, item in value.get("dependentRequired", {}).items():
            dependencies[name] = list(item)
        for name in value.get("dependentSchemas", {}):
            below = self.sub(schema, scope, "dependentSchemas", name)
            if name in dependencies:
                below = {"allOf": [{"required": dependencies[name]}, below]} if dependencies[name] else below
            dependencies[name] = below
        if dependencies:
            node["dependencies"] = dependencies

    # ---------------------------------------------------------------------- unevaluatedProperties and -Items

    def _unevaluated(self, schema: Schema, scope: Scope) -> Iterator[Node]:
        for keyword in ("unevaluatedProperties", "unevaluatedItems"):
            if keyword not in schema.value:
                continue
            below = self.sub(schema, scope, keyword)
            if below is not True:
                if not isinstance(below, bool):
                    below = {"$ref": self.define(self.registry.child(schema, keyword), scope)}
                yield self._cases_of(
                    _Question(keyword, below, schema), [(schema, scope)], [], _Evaluated(), frozenset()
                )

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
            scope = self.entered(schema, scope)
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
            raise TranslationFaultError(question.origin, question.keyword, f"{told}; {hint}")
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
            contains = (*contains, {"$ref": self.define(self.registry.child(schema, "contains"), scope)})
        return evolve(evaluated, count=max(evaluated.count, len(prefix)), contains=contains)

    def _in_place(self, schema: Schema, scope: Scope) -> tuple[list[Place], list[Case]]:
        """Return the schemas that are valid for the value whenever ``schema`` is, and those that may be."""
        value, child = schema.value, self.registry.child
        references = ("$ref", "$dynamicRef", "$recursiveRef")
        always = [self.target(schema, keyword, scope) for keyword in references if keyword in value]
        if schema.dialect.is_ref_alone and "$ref" in value:
            return always, []
        always += [(child(schema, "allOf", str(i)), scope) for i in range(len(value.get("allOf", ())))]
        sometimes: list[Case] = []
        branches = {
            keyword: [child(schema, keyword, str(i)) for i in range(len(value.get(keyword, ())))]
            for keyword in ("anyOf", "oneOf")
        }
        asked = {
            keyword: [({"$ref": self.define(branch, scope)}, [(branch, scope)]) for branch in found]
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
            sometimes.append(([({"$ref": self.define(condition, scope)}, [(condition, scope), *then])], other))
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

    # ------------------------------------------------------------------------------------------- notes

    def note(self, schema: Schema, keyword: str, message: str) -> None:
        self.notes.append(str(schema.document.problem((*schema.path, keyword), message)))

    def _note_ignored(self, schema: Schema) -> None:
        harmless = ("$ref", "definitions", "$schema", "title", "description", "default", "examples", "$comment")
        ignored = [key for key in schema.value if key not in harmless and not key.startswith("x-")]
        if ignored:
            self.note(
                schema, ignored[0], f"{', '.join(ignored)} beside $ref has no effect in {schema.dialect}; use allOf"
            )


def _counted(definitions: dict[str, Node]) -> frozenset[str]:
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


def _check_evaluations(translator: _Translator, root: str) -> None:
    """Refuse schemas that come back to themselves without going down, and those that branch without bounds."""
    costs: dict[str, int] = {}
    under_way: set[str] = set()

    def cost(node: Node) -> int:
        if not isinstance(node, bool) and "$ref" in node:
            return 1 + named(node["$ref"])
        total = 1
        for below in in_place(node):
            total += cost(below)
        return total

    def named(name: str) -> int:
        if name in costs:
            return costs[name]
        schema = translator.origins[name]
        if name in under_way:
            raise TranslationFaultError(
                schema, "$ref", "recursive reference: this schema refers to itself without going into a property or "
                "an item, so that checking it would never end"
            )  # fmt: skip
        under_way.add(name)
        costs[name] = cost(translator.definitions[name])
        under_way.discard(name)
        if costs[name] > MAX_EVALUATIONS:
            raise TranslationFaultError(
                schema, "$ref", f"checking one value would take more than {MAX_EVALUATIONS} steps: references that "
                "branch into each other multiply"
            )  # fmt: skip
        return costs[name]

    try:
        for name in translator.definitions:
            named(name)
    except RecursionError as error:
        raise TranslationFaultError(
            translator.origins[root], "$ref", "references that follow each other in too long a chain"
        ) from error
