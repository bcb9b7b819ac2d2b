"""What is wrong with a value, in words for a person and for a model: several issues at once, each with its place.

Guarantees: pure; at most `MAX_ISSUES` issues and `MAX_STEPS` steps, however large the value and the schema;
excerpts of values are short and on one line; pointers are JSON Pointers (RFC 6901). The verdict is not made
here: this reads the core language only to explain what the compiled check has found invalid, and may find
less than there is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from promptkit._fields import Json, closest
from promptkit._loading._compilation import ValueFaultError, is_multiple, too_long
from promptkit._loading._core import Core, Node
from promptkit._loading._excerpts import (
    Path,
    as_json,
    cut,
    excerpt,
    inside,
    listed,
    pointer_of,
    quoted,
    shown_name,
    subject,
)
from promptkit._loading._formats import FORMATS
from promptkit._types import Issue

MAX_ISSUES: Final = 20
MAX_STEPS: Final = 20_000
_MAX_DEPTH: Final = 150
_MAX_BRANCHES: Final = 6
_MAX_FAULT: Final = 240
_MAX_PATTERN: Final = 120


class _OutOfStepsError(Exception):
    pass


def explain(core: Core, value: Json, fault: str) -> tuple[Issue, ...]:
    """Return the issues of an invalid value, in the schema's order; the check's own words when none is found."""
    explainer = _Explainer(core)
    issues: list[Issue] = []
    try:
        for issue in explainer.issues(core.root, value, ()):
            if issue not in issues:
                issues.append(issue)
            if len(issues) >= MAX_ISSUES:
                break
    except (_OutOfStepsError, RecursionError, ValueFaultError):
        pass
    return tuple(issues) or (Issue("", "schema", f"the value does not fit the schema: {cut(fault, _MAX_FAULT)}"),)


def _is_equal(left: Json, right: Json) -> bool:
    """Equality as JSON Schema has it: 1 is 1.0, and true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_is_equal(item, right[name]) for name, item in left.items())
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(_is_equal, left, right))
    is_same_kind = type(left) is type(right) or (_is_number(left) and _is_number(right))
    return is_same_kind and bool(left == right)


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _has_type(value: Json, name: str) -> bool:
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, (list, tuple))
        case "string":
            return isinstance(value, str)
        case "number":
            return _is_number(value)
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case _:
            return _is_number(value) and (isinstance(value, int) or value.is_integer())


def _type_hint(names: list[str], value: str) -> str:
    """Say what to do about a value that was sent as a string."""
    text = value.strip().lower()
    for kind, start in (("array", "["), ("object", "{")):
        if kind in names and text.startswith(start):
            return f"; send an {kind}, not a quoted string"
    is_number = {"integer", "number"} & set(names) and re.fullmatch(r"-?[0-9.]+(e[+-]?[0-9]+)?", text)
    if is_number or ("boolean" in names and text in ("true", "false")):
        return "; send it without quotation marks"
    return "; send null without quotation marks" if "null" in names and text in ("null", "none") else ""


class _Explainer:
    def __init__(self, core: Core) -> None:
        self.core = core
        self.steps = 0
        self.depth = 0

    def is_valid(self, node: Node, value: Json, path: Path) -> bool:
        return next(self.issues(node, value, path), None) is None

    def issues(self, node: Node, value: Json, path: Path) -> Iterator[Issue]:
        while not isinstance(node, bool) and "$ref" in node:
            node = self.core.definitions[node["$ref"]]
        self.steps += 1
        if self.steps > MAX_STEPS or self.depth > _MAX_DEPTH:
            raise _OutOfStepsError
        if node is True:
            return
        if node is False:
            yield Issue(pointer_of(path), "false", f"{subject(path)} is not allowed here", "leave it out")
            return
        self.depth += 1
        try:
            yield from self.of_keywords(node, value, path)
        finally:
            self.depth -= 1

    def of_keywords(self, node: dict[str, Node], value: Json, path: Path) -> Iterator[Issue]:
        if "type" in node and not any(_has_type(value, name) for name in node["type"]):
            yield self.of_type(node["type"], value, path)
            return
        yield from self.of_values(node, value, path)
        if isinstance(value, str):
            yield from self.of_text(node, value, path)
        elif _is_number(value):
            yield from self.of_number(node, value, path)
        elif isinstance(value, (list, tuple)):
            yield from self.of_array(node, value, path)
        elif isinstance(value, dict):
            yield from self.of_object(node, value, path)
        yield from self.of_branches(node, value, path)

    @staticmethod
    def issue(path: Path, keyword: str, predicate: str, expected: str | None = None) -> Issue:
        return Issue(pointer_of(path), keyword, f"{subject(path)} {predicate}", expected)

    # ----------------------------------------------------------------------------------- one value

    def of_type(self, types: list[str], value: Json, path: Path) -> Issue:
        names = ["integer" if name == "int" else name for name in types]
        wanted = " or ".join(names)
        hint = _type_hint(names, value) if isinstance(value, str) else ""
        return self.issue(path, "type", f"must be {wanted}, got {excerpt(value)}{hint}", wanted)

    def of_values(self, node: dict[str, Node], value: Json, path: Path) -> Iterator[Issue]:
        if "const" in node and not _is_equal(value, node["const"]):
            wanted = as_json(node["const"])
            yield self.issue(path, "const", f"must be {wanted}, got {excerpt(value)}", wanted)
        if "enum" in node and not any(_is_equal(value, item) for item in node["enum"]):
            wanted = listed(list(map(as_json, node["enum"])))
            near = ""
            if isinstance(value, str):
                texts = {item.lower(): item for item in node["enum"] if isinstance(item, str)}
                found = closest(value[:200].strip().lower(), list(texts)[:200], cutoff=0.8)
                near = f"; did you mean {quoted(texts[found])}?" if found is not None else ""
            yield self.issue(path, "enum", f"must be one of {wanted}; got {excerpt(value)}{near}", wanted)

    def of_text(self, node: dict[str, Node], value: str, path: Path) -> Iterator[Issue]:
        size = len(value)
        if size < node.get("minLength", 0):
            low = node["minLength"]
            yield self.issue(path, "minLength", f"must have at least {low} characters, got {size}", f"minLength {low}")
        if size > node.get("maxLength", size):
            high = node["maxLength"]
            yield self.issue(path, "maxLength", f"must have at most {high} characters, got {size}", f"maxLength {high}")
        pattern = node.get("pattern")
        if pattern is not None:
            if size > pattern.max_length:
                raise too_long(pattern)
            if not pattern.is_match(value):
                shown = cut(pattern.source, _MAX_PATTERN)
                yield self.issue(path, "pattern", f"must match the pattern {shown}, got {excerpt(value)}", shown)
        if "format" in node and not FORMATS[node["format"]](value):
            name = node["format"]
            yield self.issue(path, "format", f"must be a valid {name}, got {excerpt(value)}", f"format {name}")

    def of_number(self, node: dict[str, Node], value: float, path: Path) -> Iterator[Issue]:
        for keyword, is_broken, words in (
            ("minimum", lambda bound: value < bound, "at least"),
            ("exclusiveMinimum", lambda bound: value <= bound, "more than"),
            ("maximum", lambda bound: value > bound, "at most"),
            ("exclusiveMaximum", lambda bound: value >= bound, "less than"),
            ("multipleOf", lambda bound: not is_multiple(value, bound), "a multiple of"),
        ):
            if keyword in node and is_broken(node[keyword]):
                bound = as_json(node[keyword])
                yield self.issue(path, keyword, f"must be {words} {bound}, got {excerpt(value)}", f"{keyword} {bound}")

    # -------------------------------------------------------------------------------------- arrays

    def of_array(self, node: dict[str, Node], value: list[Json] | tuple[Json, ...], path: Path) -> Iterator[Issue]:
        size = len(value)
        if size < node.get("minItems", 0):
            low = node["minItems"]
            yield self.issue(
                path, "minItems", f"must have at least {low} items (minItems {low}), got {size}", f"minItems {low}"
            )
        if size > node.get("maxItems", size):
            high = node["maxItems"]
            yield self.issue(
                path, "maxItems", f"must have at most {high} items (maxItems {high}), got {size}", f"maxItems {high}"
            )
        if node.get("uniqueItems") and (pair := self.equal_items(value)):
            yield self.issue(
                path, "uniqueItems", f"must not have equal items, but items {pair[0]} and {pair[1]} are", None
            )
        items = node.get("items", True)
        if isinstance(items, list):
            for index, item in enumerate(value[: len(items)]):
                yield from self.issues(items[index], item, (*path, index))
            start, items = len(items), node.get("additionalItems", True)
        else:
            start = 0
        if items is False and size > start:
            label = node.get("label", "items")
            allowed = f"at most {start}" if start else "no"
            yield self.issue(path, label, f"must have {allowed} items, got {size}", f"{allowed} items")
        elif items is not True:
            for index in range(start, size):
                yield from self.issues(items, value[index], (*path, index))
        if "contains" in node:
            yield from self.of_contains(node, value, path)

    def equal_items(self, value: list[Json] | tuple[Json, ...]) -> tuple[int, int] | None:
        for later in range(1, len(value)):
            for earlier in range(later):
                self.steps += 1
                if self.steps > MAX_STEPS:
                    raise _OutOfStepsError
                if _is_equal(value[earlier], value[later]):
                    return earlier, later
        return None

    def of_contains(self, node: dict[str, Node], value: Any, path: Path) -> Iterator[Issue]:
        low, high = node["minContains"], node["maxContains"]
        count = sum(self.is_valid(node["contains"], item, (*path, index)) for index, item in enumerate(value))
        if count < low:
            reason = ""
            if value and isinstance(value, (list, tuple)):
                first = next(self.issues(node["contains"], value[0], (*path, 0)), None)
                reason = f"; the first is not: {first.message}" if first else ""
            keyword = "contains" if low == 1 else "minContains"
            yield self.issue(path, keyword, f"must contain at least {low} fitting items, got {count}{reason}", None)
        if high is not None and count > high:
            yield self.issue(path, "maxContains", f"must contain at most {high} fitting items, got {count}", None)

    # ------------------------------------------------------------------------------------- objects

    def of_object(self, node: dict[str, Node], value: dict[str, Json], path: Path) -> Iterator[Issue]:
        size = len(value)
        for name in node.get("required", ()):
            if name not in value:
                message = f"missing {shown_name(name)}{inside(path)}"
                yield Issue(pointer_of(path), "required", message, f"a property {shown_name(name)}")
        if size < node.get("minProperties", 0):
            low = node["minProperties"]
            yield self.issue(
                path, "minProperties", f"must have at least {low} properties, got {size}", f"minProperties {low}"
            )
        if size > node.get("maxProperties", size):
            high = node["maxProperties"]
            yield self.issue(
                path, "maxProperties", f"must have at most {high} properties, got {size}", f"maxProperties {high}"
            )
        properties = node.get("properties", {})
        for name, below in properties.items():
            if name in value:
                yield from self.issues(below, value[name], (*path, name))
        known = set(properties)
        for pattern, below in node.get("patternProperties", {}).items():
            for name, item in value.items():
                if len(name) > pattern.max_length:
                    raise too_long(pattern)
                if pattern.is_match(name):
                    known.add(name)
                    yield from self.issues(below, item, (*path, name))
        yield from self.of_rest(node, value, [name for name in value if name not in known], path)
        yield from self.of_names(node, value, path)
        yield from self.of_dependencies(node, value, path)

    def of_names(self, node: dict[str, Node], value: dict[str, Json], path: Path) -> Iterator[Issue]:
        if "propertyNames" in node:
            for name in value:
                first = next(self.issues(node["propertyNames"], name, (*path, name)), None)
                if first is not None:
                    message = f"the name {first.message}{inside(path)}"
                    yield Issue(pointer_of((*path, name)), "propertyNames", message, first.expected)

    def of_dependencies(self, node: dict[str, Node], value: dict[str, Json], path: Path) -> Iterator[Issue]:
        for name, needed in node.get("dependencies", {}).items():
            if name not in value:
                continue
            if not isinstance(needed, list):
                yield from self.issues(needed, value, path)
                continue
            for other in needed:
                if other not in value:
                    why = f"which is needed because {shown_name(name)} is there"
                    message = f"missing {shown_name(other)}{inside(path)}, {why}"
                    yield Issue(pointer_of(path), "dependentRequired", message, f"a property {shown_name(other)}")

    def of_rest(self, node: dict[str, Node], value: dict[str, Json], rest: list[str], path: Path) -> Iterator[Issue]:
        below = node.get("additionalProperties", True)
        if below is False and rest:
            known = list(node.get("properties", ()))
            missing = [name for name in known if name not in value]
            near = ""
            if len(rest) == 1 and (found := closest(rest[0][:200], missing)) is not None:
                near = f"; did you mean {shown_name(found)}?"
            what = "unexpected property" if len(rest) == 1 else "unexpected properties"
            allowed = f"only {listed(list(map(shown_name, known)))}" if known else "no properties"
            yield Issue(
                pointer_of(path),
                node.get("label", "additionalProperties"),
                f"{what} {listed(list(map(shown_name, rest)))}{inside(path)}{near or f'; allowed: {allowed}'}",
                allowed,
            )
        elif below is not False and below is not True:
            for name in rest:
                yield from self.issues(below, value[name], (*path, name))

    # ------------------------------------------------------------------------------------ branches

    def of_branches(self, node: dict[str, Node], value: Json, path: Path) -> Iterator[Issue]:
        for below in node.get("allOf", ()):
            yield from self.issues(below, value, path)
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                yield from self.of_alternatives(keyword, node[keyword], value, path)
        if "not" in node and self.is_valid(node["not"], value, path):
            yield self.issue(path, "not", f"is what the schema excludes, got {excerpt(value)}", None)
        if "if" in node:
            branch = "then" if self.is_valid(node["if"], value, path) else "else"
            if branch in node:
                yield from self.issues(node[branch], value, path)

    def of_alternatives(self, keyword: str, branches: list[Node], value: Json, path: Path) -> Iterator[Issue]:
        found = [self.some_issues(branch, value, path) for branch in branches]
        fitting = [index + 1 for index, issues in enumerate(found) if not issues]
        if fitting and (keyword == "anyOf" or len(fitting) == 1):
            return
        if fitting:
            which = listed(list(map(str, fitting)))
            yield self.issue(
                path, keyword, f"fits alternatives {which} of {len(branches)}, and must fit exactly one", "exactly one"
            )
            return
        meant = self.meant(branches, found, path)
        if meant is not None:
            yield from meant
            return
        reasons = [" and ".join(self.reason(issue, path) for issue in issues[:3]) for issues in found[:_MAX_BRANCHES]]
        reasons = list(dict.fromkeys(reasons))
        more = f" (and {len(found) - _MAX_BRANCHES} more)" if len(found) > _MAX_BRANCHES else ""
        expected = list(dict.fromkeys(issues[0].expected or "" for issues in found))
        yield self.issue(
            path,
            keyword,
            f"fits none of {len(branches)} alternatives: {', or '.join(reasons)}{more}",
            " or ".join(expected[:_MAX_BRANCHES]) if all(expected) else None,
        )

    def some_issues(self, node: Node, value: Json, path: Path) -> list[Issue]:
        found: list[Issue] = []
        for issue in self.issues(node, value, path):
            found.append(issue)
            if len(found) >= MAX_ISSUES:
                break
        return found

    def meant(self, branches: list[Node], found: list[list[Issue]], path: Path) -> list[Issue] | None:
        """Return the issues of the one branch that was meant, if one stands out.

        It does when all others fail by the kind of the value itself, or by a constant that tells them apart.
        """
        here = pointer_of(path)
        close = [
            issues
            for issues in found
            if not any(
                (issue.keyword in ("type", "false") and issue.pointer == here)
                or (issue.keyword in ("const", "enum") and issue.pointer.count("/") <= here.count("/") + 1)
                for issue in issues
            )
        ]
        return close[0] if len(close) == 1 and len(branches) > 1 else None

    @staticmethod
    def reason(issue: Issue, path: Path) -> str:
        message = issue.message
        return message.removeprefix(subject(path) + " ") if issue.pointer == pointer_of(path) else message
