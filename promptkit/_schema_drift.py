"""Where a schema and the class that it names have drifted apart.

Guarantees: `differences` is empty only if everything that satisfies the schema fits the class as well and every
field of the class can be filled. A schema may be narrower than its class (``minLength``, fewer ``enum`` values,
no null where the class allows None); keywords that only narrow are therefore left aside. Pure, but for the import
of the class in `drift`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from promptkit._class_schemas import class_named, fits, json_schema_of
from promptkit._fields import CLASS_KEY, Json
from promptkit.errors import ConfigError

_ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})


def differences(schema: Json, cls: type) -> list[str]:
    """Return where ``schema`` lets something through that ``cls`` does not hold, in words; empty when nowhere.

    ``schema`` is plain JSON without references to other files. Each line begins with a JSON Pointer into the data,
    ``*`` standing for any item. Raises `ConfigError` for a class that has no schema.
    """
    ours = json_schema_of(cls)
    return list(dict.fromkeys(_Comparison(schema, ours, cls.__name__).compare(schema, ours, "")))


def drift(source: Json, document: Json) -> list[str]:
    """Return where a schema has drifted from the class that it names, in words; empty when it names none.

    ``source`` is the schema as written, with the name under `CLASS_KEY`; ``document`` is the same with the files that
    it refers to. The class's module is imported; a name that leads to no class, or to one without a schema, is
    told like a difference.
    """
    name = source.get(CLASS_KEY) if isinstance(source, Mapping) else None
    if name is None:
        return []
    try:
        return differences(document, class_named(name if isinstance(name, str) else ""))
    except ConfigError as exc:
        return [str(exc)]


class _Comparison:
    def __init__(self, their_root: Json, our_root: Json, class_name: str) -> None:
        self._their_root = their_root
        self._our_root = our_root
        self._class = class_name
        self._seen: set[tuple[int, int]] = set()

    def compare(self, theirs: Json, ours: Json, where: str) -> Iterator[str]:
        """Yield what ``theirs`` allows and ``ours`` does not. Pairs met before are being compared already."""
        pair = (id(theirs), id(ours))
        if isinstance(theirs, dict) and pair in self._seen:
            return
        self._seen.add(pair)
        allowed = _alternatives(ours, self._our_root)
        if any("type" not in node and "enum" not in node for node in allowed):
            return  # the class takes anything here
        for node in _alternatives(theirs, self._their_root):
            yield from self._compare_alternative(node, ours, allowed, where)

    def _compare_alternative(self, node: Json, ours: Json, allowed: list[Json], where: str) -> Iterator[str]:
        place = where or "(root)"
        wanted = " or ".join(sorted({_words(a) for a in allowed}))
        if "enum" in node:
            for choice in node["enum"]:
                if not fits(choice, ours, self._our_root):
                    yield f"{place}: the schema allows {str(choice)[:40]!r}, {self._class} takes {wanted}"
            return
        kind = node.get("type")
        fitting = [a for a in allowed if a.get("type") in ((kind, "number") if kind == "integer" else (kind,))]
        if not fitting:
            found = "any type" if kind is None else _words(node)
            yield f"{place}: the schema allows {found}, {self._class} takes {wanted}"
        elif kind == "object":
            yield from min((list(self._objects(node, a, where)) for a in fitting), key=len)
        elif kind == "array":
            yield from min((list(self._arrays(node, a, where)) for a in fitting), key=len)

    def _objects(self, theirs: Json, ours: Json, where: str) -> Iterator[str]:
        properties: Mapping[str, Json] = theirs.get("properties", {})
        others = theirs.get("additionalProperties", theirs.get("unevaluatedProperties", True))
        place = where or "(root)"
        if "properties" not in ours:  # a dict: all values are of one type
            values = ours.get("additionalProperties", True)
            for name, part in properties.items():
                yield from self.compare(part, values, f"{where}/{name}")
            for part in (*theirs.get("patternProperties", {}).values(), others):
                yield from self.compare(part, values, f"{where}/*")
            return
        for name in ours["properties"]:
            if name not in properties:
                yield f"{place}: {self._class} has the field {name!r}, which is not in the schema"
            elif name in ours["required"] and name not in theirs.get("required", ()):
                yield f"{place}: {self._class} needs {name!r}, which the schema does not require"
        for name, part in properties.items():
            if name in ours["properties"]:
                yield from self.compare(part, ours["properties"][name], f"{where}/{name}")
            elif part is not False:
                yield f"{place}: the schema has {name!r}, which is no field of {self._class}"
        if others is not False or theirs.get("patternProperties"):
            yield f"{place}: the schema allows other properties than the fields; add additionalProperties: false"

    def _arrays(self, theirs: Json, ours: Json, where: str) -> Iterator[str]:
        parts, rest = _items(theirs)
        place = where or "(root)"
        if "prefixItems" in ours:
            length = len(ours["prefixItems"])
            is_exact = theirs.get("minItems", 0) >= length and (rest is False or theirs.get("maxItems") == length)
            if len(parts) != length or not is_exact:
                yield (
                    f"{place}: {self._class} takes exactly {length} items; the schema has to say so "
                    "(prefixItems, items: false and minItems)"
                )
                return
            for index, (part, ours_part) in enumerate(zip(parts, ours["prefixItems"], strict=True)):
                yield from self.compare(part, ours_part, f"{where}/{index}")
            return
        if ours.get("uniqueItems") and theirs.get("uniqueItems") is not True:
            yield f"{place}: {self._class} has a set, and the schema does not say uniqueItems: true"
        for part in (*parts, rest):
            yield from self.compare(part, ours.get("items", True), f"{where}/*")


def _items(schema: Json) -> tuple[list[Json], Json]:
    """Return the schemas of the first items and that of all others, in either spelling of the drafts."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return schema.get("prefixItems", []), items


def _words(node: Json) -> str:
    if "enum" in node:
        return "one of " + ", ".join(str(choice)[:40] for choice in node["enum"][:10])
    return str(node["type"])


def _alternatives(schema: Json, root: Json, seen: frozenset[str] = frozenset()) -> list[Json]:
    """Return the schema as a list of alternatives, each with one ``type``, an ``enum``, or neither (anything)."""
    if isinstance(schema, bool):
        return [{}] if schema else []
    base = {key: value for key, value in schema.items() if key not in _ANNOTATIONS}
    for part in base.pop("allOf", ()):
        base = _merged(base, part)
    if (reference := base.pop("$ref", None)) is not None:
        if reference in seen:
            return [{}]
        target = _target(reference, root)
        return [_merged(base, node) for node in _alternatives(target, root, seen | {reference})]
    for keyword in ("anyOf", "oneOf"):
        if keyword in base:
            parts = base.pop(keyword)
            return [found for part in parts for found in _alternatives(_merged(base, part), root, seen)]
    if "const" in base:
        return [{"enum": [base["const"]]}]
    if "enum" in base or not isinstance(base.get("type"), list):
        return [base]
    return [{**base, "type": kind} for kind in base["type"]]


def _merged(left: Json, right: Json) -> Json:
    """Return both schemas as one that allows no less than both together."""
    if isinstance(right, bool):
        return left if right else {"enum": []}
    merged = {**left, **right}
    if "properties" in left and "properties" in right:
        merged["properties"] = {**left["properties"], **right["properties"]}
    if "required" in left and "required" in right:
        merged["required"] = [*left["required"], *right["required"]]
    return merged


def _target(reference: str, root: Json) -> Json:
    """Return what a reference within the document points at; anything (True) when it points nowhere."""
    node = root
    for token in reference.removeprefix("#").split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or key not in node:
            return True
        node = node[key]
    return node if reference.startswith("#") else True
