"""A checked walk over a file: each key by name, type and range, every problem told where it stands.

Guarantees: a getter returns None for what is absent and for what is wrong, the latter after telling the
`Report`; nothing is told twice of one value; no message shows more of a value than a number, a word where
one of a few words is expected, or its kind. A file is right when its report is empty at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import frozen

from promptkit._definitions import NOWHERE, Place
from promptkit._fields import FrozenDict, Json, describe, is_integer, is_number, nearest
from promptkit._loading._files import name_fault
from promptkit._loading._text import MAX_SHOWN, quote
from promptkit._loading._yaml import MAX_PROBLEMS, Document, Node, sorted_problems
from promptkit._types import Problem
from promptkit.errors import DocumentError


class Report:
    """The problems of one file."""

    def __init__(self, path: str, problems: list[Problem] | None = None) -> None:
        self.path = path
        self.problems: list[Problem] = [] if problems is None else problems

    def tell(self, place: Place, message: str) -> None:
        """Add a problem."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(self.path, place.line, place.column, message))

    def raise_if_any(self) -> None:
        """Raise `DocumentError` with all of them, in file order."""
        if self.problems:
            raise DocumentError(sorted_problems(self.problems))


@frozen
class Item:
    """A value with the name that messages give it: ``output.strict``, ``messages[2].images[0]``."""

    label: str
    node: Node


@frozen(kw_only=True)
class Range:
    """Bounds of a number, each included unless ``above``; None is no bound."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    is_integer: bool = False

    def __str__(self) -> str:
        kind = "an integer" if self.is_integer else "a number"
        if self.at_least is not None and self.at_most is not None:
            return f"{kind} from {self.at_least} to {self.at_most}"
        parts = [f"above {self.above}"] if self.above is not None else []
        parts += [f"of at least {self.at_least}"] if self.at_least is not None else []
        parts += [f"at most {self.at_most}"] if self.at_most is not None else []
        return " ".join([kind, " and ".join(parts)]).strip()

    def __contains__(self, value: float) -> bool:
        return (
            (self.above is None or value > self.above)
            and (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
        )


# ------------------------------------------------------------------------------------------- one value


def shown(node: Node) -> str:
    """Say what ``node`` is: the value itself where it is a number or a word, its kind otherwise."""
    if isinstance(node.value, str):
        return quote(node.value) if len(node.value) <= MAX_SHOWN else f"a string of {len(node.value)} characters"
    if isinstance(node.value, (bool, int, float)):
        return node.raw[:MAX_SHOWN]
    return describe(node.value)


def is_given(report: Report, item: Item) -> bool:
    """Tell of an empty value. False when there is nothing more to check."""
    if item.node.is_empty:
        report.tell(item.node.place, f"{item.label} is empty: give it a value or leave the key out")
    return not item.node.is_empty and not item.node.is_bad


def as_string(report: Report, item: Item, *, may_be_blank: bool = False) -> str | None:
    """Return a string."""
    if not is_given(report, item):
        return None
    value = item.node.value
    if isinstance(value, str):
        if may_be_blank or value.strip():
            return value
        report.tell(item.node.place, f"{item.label} is empty: give it a value or leave the key out")
    elif isinstance(value, (bool, int, float)):
        raw = item.node.raw[:MAX_SHOWN]
        report.tell(item.node.place, f'{item.label} must be a string, not {describe(value)}: quote {raw} as "{raw}"')
    else:
        report.tell(item.node.place, f"{item.label} must be a string, not {describe(value)}")
    return None


def as_boolean(report: Report, item: Item) -> bool | None:
    """Return a boolean."""
    if not is_given(report, item):
        return None
    if isinstance(item.node.value, bool):
        return item.node.value
    report.tell(item.node.place, f"{item.label}: expected true or false, got {shown(item.node)}")
    return None


def as_number(report: Report, item: Item, bounds: Range) -> Any:
    """Return an int, or where ``bounds`` allow it a float, within the bounds."""
    if not is_given(report, item):
        return None
    value = item.node.value
    if (is_integer if bounds.is_integer else is_number)(value) and value in bounds:
        return value
    hint = _plainer(value) if isinstance(value, str) else ""
    report.tell(item.node.place, f"{item.label}: expected {bounds}, got {shown(item.node)}{hint}")
    return None


_DIGITS: Final = re.compile(r"[-+]?\d[\d_]*|[-+]?\d{1,3}(?:,\d{3})+", re.ASCII)
_DECIMAL: Final = re.compile(r"([-+]?\d+)[.,](\d+)", re.ASCII)


def _plainer(text: str) -> str:
    """Say how a number that is written as a string would be written as a number."""
    text = text.strip()[:MAX_SHOWN]
    if _DIGITS.fullmatch(text):
        return f"; write {text.replace('_', '').replace(',', '')} without quotes, underscores or commas"
    if decimal := _DECIMAL.fullmatch(text):
        return f"; write {decimal[1]}.{decimal[2]} without quotes, with a point"
    return ""


def as_choice(
    report: Report, item: Item, options: Iterable[str], *, elsewhere: Mapping[str, str] | None = None
) -> str | None:
    """Return one of a few words; ``elsewhere`` maps what other tools write to what is meant by it."""
    if not is_given(report, item):
        return None
    words = list(options)
    value = item.node.value
    if value in words:
        return str(value)
    hint = ""
    if isinstance(value, str):
        meant = (elsewhere or {}).get(value[:MAX_SHOWN].casefold())
        hint = f"; write {meant}" if meant else nearest(value[:MAX_SHOWN], words)
    report.tell(item.node.place, f"{item.label}: expected {' or '.join(words)}, got {shown(item.node)}{hint}")
    return None


def as_list(report: Report, item: Item, of: str) -> tuple[Item, ...] | None:
    """Return the items of a list; ``of`` says in messages what it should hold."""
    if not is_given(report, item):
        return None
    if item.node.style != "sequence":
        report.tell(item.node.place, f"{item.label}: expected a list of {of}, got {describe(item.node.value)}")
        return None
    return tuple(Item(f"{item.label}[{number}]", child) for number, child in enumerate(item.node.items))


def as_schema(report: Report, item: Item | None) -> Json:
    """Return a schema in place (a mapping or a boolean), or the name of a schema file; neither is looked into."""
    if item is None or not is_given(report, item):
        return None
    value = item.node.value
    if isinstance(value, str):
        if fault := name_fault(value):
            told = f"{item.label}: {quote(value)} cannot be a file under the schema root: {fault}"
            report.tell(item.node.place, told)
    elif not isinstance(value, (bool, Mapping)):
        told = f"{item.label}: expected a schema in place or the name of a schema file, got {describe(item.node.value)}"
        report.tell(item.node.place, told)
    return value


def schema_positions(item: Item | None) -> FrozenDict[str, Place]:
    """Return the places within a schema that stands in the file, by JSON Pointer into the schema."""
    if item is None or not isinstance(item.node.value, (bool, Mapping)):
        return FrozenDict()
    return FrozenDict(item.node.positions())


# ------------------------------------------------------------------------------------------- a mapping


class Section:
    """A mapping whose keys are known. What it holds is asked for key by key; unknown keys are told at once.

    ``misplaced`` maps keys that do not belong here to what an author should do instead. Keys that begin with
    ``x-`` are the author's own at the top level.
    """

    def __init__(
        self,
        report: Report,
        item: Item,
        known: Iterable[str],
        *,
        misplaced: Mapping[str, str] | None = None,
        document: Document | None = None,
    ) -> None:
        self._report = report
        self._label = item.label
        self.place = item.node.place
        self.entries: Mapping[str, Node] = {}
        self.keys: Mapping[str, Place] = {}
        self.is_usable = False
        if document is not None and item.node.style != "mapping" and not item.node.is_bad:
            got = "an empty file" if document.is_empty else describe(item.node.value)
            report.tell(self.place, f"expected a mapping of keys to values, got {got}")
            return
        if not is_given(report, item):
            return
        if item.node.style != "mapping":
            report.tell(self.place, f"{item.label}: expected a mapping, got {describe(item.node.value)}")
            return
        self.is_usable = True
        self.entries, self.keys = item.node.entries, item.node.keys
        names = list(known)
        for key in self.entries:
            if key not in names and not (document is not None and key.startswith("x-")):
                report.tell(self.keys[key], self._unknown(key, names, misplaced or {}, is_top=document is not None))

    def _unknown(self, key: str, names: list[str], misplaced: Mapping[str, str], *, is_top: bool) -> str:
        where = f" in {self._label}" if self._label else ""
        told = f"unknown key {key[:60]}{where}"
        if advice := misplaced.get(key) or misplaced.get(key.casefold().replace("-", "_")):
            return f"{told}: {advice}"
        if hint := nearest(key[:MAX_SHOWN], names):
            return told + hint
        notes = "; a key for your own notes begins with x-" if is_top else ""
        return f"{told}; known are {', '.join(names)}{notes}"

    def item(self, key: str) -> Item | None:
        """Return what stands under ``key``, unchecked; None when the key is absent."""
        node = self.entries.get(key)
        return None if node is None else Item(self.label(key), node)

    def label(self, key: str) -> str:
        """Return the name of a key in messages."""
        return f"{self._label}.{key}" if self._label else key

    def place_of(self, key: str) -> Place:
        """Return where the value of ``key`` stands, `NOWHERE` when it is absent."""
        node = self.entries.get(key)
        return NOWHERE if node is None else node.place

    def string(self, key: str, *, may_be_blank: bool = False) -> str | None:
        """Return a string."""
        item = self.item(key)
        return None if item is None else as_string(self._report, item, may_be_blank=may_be_blank)

    def boolean(self, key: str) -> bool | None:
        """Return a boolean."""
        item = self.item(key)
        return None if item is None else as_boolean(self._report, item)

    def number(self, key: str, bounds: Range) -> Any:
        """Return a number within the bounds."""
        item = self.item(key)
        return None if item is None else as_number(self._report, item, bounds)

    def choice(self, key: str, options: Iterable[str], *, elsewhere: Mapping[str, str] | None = None) -> Any:
        """Return one of a few words; see `as_choice`."""
        item = self.item(key)
        return None if item is None else as_choice(self._report, item, options, elsewhere=elsewhere)

    def list(self, key: str, of: str) -> tuple[Item, ...] | None:
        """Return the items of a list."""
        item = self.item(key)
        return None if item is None else as_list(self._report, item, of)

    def mapping(self, key: str) -> Json:
        """Return a mapping with any content, as immutable data."""
        item = self.item(key)
        if item is None or not is_given(self._report, item):
            return None
        if item.node.style != "mapping":
            self._report.tell(item.node.place, f"{item.label}: expected a mapping, got {describe(item.node.value)}")
            return None
        return item.node.value

    def section(self, key: str, known: Iterable[str], *, misplaced: Mapping[str, str] | None = None) -> Section | None:
        """Return a mapping with known keys; None when the key is absent or its value is no mapping."""
        item = self.item(key)
        if item is None:
            return None
        section = Section(self._report, item, known, misplaced=misplaced)
        return section if section.is_usable else None
