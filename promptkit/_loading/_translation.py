"""JSON Schemas of any dialect, said again in one small core language, exactly.

Guarantees: the core accepts precisely what the author's dialect accepts. Keywords that need no translation
are copied; references become names of definitions; ``unevaluatedProperties`` and ``unevaluatedItems`` become
case distinctions over the branches that can evaluate something; a dynamic reference becomes a plain one by
translating a schema once for every dynamic scope in which it can be reached. What would grow beyond bounds,
or never come to an end, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from promptkit._fields import Json
from promptkit._loading._core import Core, Node, Note, counted, evaluation_fault
from promptkit._loading._dialects import DRAFT_04, LATEST
from promptkit._loading._formats import FORMATS
from promptkit._loading._patterns import PatternFaultError, translate
from promptkit._loading._references import REFERENCES, Registry, Schema, SchemaFaultError
from promptkit._loading._unevaluated import Scope, Unevaluated

MAX_DEFINITIONS: Final = 20_000

_COPIED: Final = ("enum", "const", "minimum", "maximum", "multipleOf", "uniqueItems")
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_LISTS: Final = ("allOf", "anyOf", "oneOf")

Key = tuple[tuple[str, tuple[str, ...]], tuple[tuple[str, tuple[str, tuple[str, ...]]], ...]]


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
    """Return ``root`` in the core language. Raises `SchemaFaultError`; needs a registry without problems."""
    translator = _Translator(registry)
    name = translator.define(root, ())
    translator.finish()
    definitions = translator.definitions
    if fault := evaluation_fault(definitions):
        raise SchemaFaultError(translator.origins[fault[0]], "$ref", fault[1])
    return Core({"$ref": name}, definitions, counted(definitions), tuple(dict.fromkeys(translator.notes)))


class _Translator:
    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.definitions: dict[str, Node] = {}
        self.origins: dict[str, Schema] = {}
        self.notes: list[Note] = []
        self._names: dict[Key, str] = {}
        self._waiting: list[tuple[str, Schema, Scope]] = []
        self._unevaluated = Unevaluated(self)

    def define(self, schema: Schema, scope: Scope) -> str:
        """Return the name of the definition for a schema in a dynamic scope, to be filled in by `finish`."""
        scope = self.entered(schema, scope)
        key = schema.key, tuple((name, target.key) for name, target in scope)
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= MAX_DEFINITIONS:
                raise SchemaFaultError(schema, "$ref", f"more than {MAX_DEFINITIONS} definitions are needed")
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
        extra = self._beside(schema, scope)
        if extra and not node:
            return extra[0] if len(extra) == 1 else {"allOf": extra}
        if extra:
            node["allOf"] = [*node.get("allOf", ()), *extra]
        return node or True

    def _beside(self, schema: Schema, scope: Scope) -> list[Node]:
        """Return the nodes that stand for references with siblings and for the ``unevaluated…`` keywords."""
        value = schema.value
        found: list[Node] = [
            {"$ref": self.define(*self.target(schema, keyword, scope))} for keyword in REFERENCES if keyword in value
        ]
        for keyword in ("unevaluatedProperties", "unevaluatedItems"):
            if keyword in value and (below := self.sub(schema, scope, keyword)) is not True:
                if not isinstance(below, bool):
                    below = {"$ref": self.define(self.registry.child(schema, keyword), scope)}
                found.append(self._unevaluated.node(schema, scope, keyword, below))
        return found

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

    # ------------------------------------------------------------------------------------------- notes

    def note(self, schema: Schema, keyword: str, message: str) -> None:
        self.notes.append((schema.document.uri, (*schema.path, keyword), message))

    def _note_ignored(self, schema: Schema) -> None:
        harmless = ("$ref", "definitions", "$schema", "title", "description", "default", "examples", "$comment")
        ignored = [key for key in schema.value if key not in harmless and not key.startswith("x-")]
        if ignored:
            self.note(
                schema, ignored[0], f"{', '.join(ignored)} beside $ref has no effect in {schema.dialect}; use allOf"
            )
