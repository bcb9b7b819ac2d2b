"""YAML as promptkit's files use it: strict, bounded, and with the place of everything in it.

Guarantees:

* The result is JSON-like data (None, bool, int, finite float, str, and immutable lists and string-keyed
  mappings), read by the core schema of YAML 1.2: only ``true`` and ``false`` are booleans, dates are strings.
* Whatever the bytes are, the only exception is `DocumentError`, with line and column. Problems that do not
  keep the rest from being read are collected.
* Work and memory are bounded by the size of the file and by `MAX_NODES` values *after* aliases and merge keys
  have been filled in; nesting by `MAX_DEPTH`. An aliased part is shared, not copied, and cannot be changed.
* Every load has its own parser: a `ruamel.yaml.YAML` object keeps the state of one load and must be neither
  shared between threads nor used again (a ``%YAML 1.1`` line would change the next file's meaning).

Refused, because a reader would be misled or the meaning would not be JSON: duplicate keys, keys that are not
strings, tags, directives other than ``%YAML 1.2``, second documents, recursive aliases, numbers with leading
zeros (octal in YAML 1.1, decimal in 1.2), infinities and NaN.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from attrs import evolve, field, frozen
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from promptkit._definitions import Place
from promptkit._fields import FrozenDict, FrozenList, Json
from promptkit._loading._scalars import resolve
from promptkit._loading._syntax import explain_syntax
from promptkit._loading._text import TextFaultError, decode_text, line_and_column, quote
from promptkit._types import Problem
from promptkit.errors import DocumentError

MAX_BYTES: Final = 1024 * 1024
"""Largest file, in bytes."""
MAX_NODES: Final = 50_000
"""Most values in a file, aliases and merge keys filled in."""
MAX_DEPTH: Final = 64
"""Deepest nesting of mappings and lists."""
MAX_PROBLEMS: Final = 100
"""Most problems told of one file."""

Style = Literal["plain", "quoted", "literal", "folded", "mapping", "sequence"]
MAX_POINTERS: Final = 4 * 1024 * 1024
"""Most characters that the JSON Pointers of one value's parts have together."""
_STYLES: Final[Mapping[str, Style]] = {"|": "literal", ">": "folded", "'": "quoted", '"': "quoted"}

# YAML 1.2.2, section 5.1 (c-printable), without U+0085, U+2028 and U+2029: they are text in YAML 1.2, but the parser
# takes them for line breaks in some places, as YAML 1.1 did, so text and line numbers would be wrong.
_UNREADABLE: Final = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@frozen(kw_only=True, eq=False)
class Node:
    """One value of a file: what it is, where it stands and how it is written."""

    value: Json
    place: Place
    style: Style
    raw: str = ""
    """A scalar's text before it was resolved; ``""`` for mappings and lists."""
    text_line: int = 0
    """The line on which a block's text (``|`` or ``>``) begins; 0 for anything else."""
    has_comment: bool = False
    """A plain scalar that is followed by a comment on its last line."""
    is_bad: bool = False
    """A problem has been told of this value itself; ``value`` is then a placeholder."""
    keys: Mapping[str, Place] = field(factory=dict)
    """Of a mapping: where each key stands."""
    entries: Mapping[str, Node] = field(factory=dict)
    """Of a mapping: the value of each key, in file order, merged ones first."""
    items: tuple[Node, ...] = ()
    """Of a list: its items."""
    size: int = 1
    """How many values there are in it, itself included."""
    height: int = 1
    """How deep it nests, itself included."""

    @property
    def is_empty(self) -> bool:
        """True for null, written or implied."""
        return self.value is None and not self.is_bad

    def positions(self) -> dict[str, Place]:
        """Return the place of every value in it by JSON Pointer (RFC 6901); ``""`` is its own.

        Outer values come first; those whose pointers would not fit into `MAX_POINTERS` are left out.
        """
        found: dict[str, Place] = {}
        room = MAX_POINTERS
        left: deque[tuple[str, Node]] = deque([("", self)])
        while left:
            pointer, node = left.popleft()
            room -= len(pointer)
            if room < 0:
                break
            found[pointer] = node.place
            left.extend((f"{pointer}/{escape(key)}", child) for key, child in node.entries.items())
            left.extend((f"{pointer}/{number}", child) for number, child in enumerate(node.items))
        return found


@frozen(kw_only=True, eq=False)
class Document:
    """A file that could be read."""

    path: str
    root: Node
    is_empty: bool
    """The file has nothing in it but white space and comments."""

    @property
    def value(self) -> Json:
        """What the file says, as immutable JSON-like data."""
        return self.root.value

    def place_of(self, pointer: str, *, key: bool = False) -> Place:
        """Return where the value at a JSON Pointer stands, or its key; the nearest parent's if there is none."""
        node = self.root
        place = node.place
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if name in node.entries:
                place, node = node.keys[name], node.entries[name]
            elif name.isdecimal() and int(name) < len(node.items):
                node = node.items[int(name)]
                place = node.place
            else:
                return node.place
        return place if key else node.place


def escape(key: str) -> str:
    """Return ``key`` as a part of a JSON Pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def load(data: bytes, path: str, *, max_bytes: int = MAX_BYTES, problems: list[Problem] | None = None) -> Document:
    """Read the bytes of a file whose name in messages is ``path``.

    With ``problems``, those that leave the rest of the file readable are appended to it, for the caller to
    raise together with its own. Raises `DocumentError` otherwise, and always when the file cannot be read on
    (the error then has the collected ones too).
    """
    collected: list[Problem] = [] if problems is None else problems
    if len(data) > max_bytes:
        raise DocumentError([Problem(path, 0, 0, f"the file is larger than the limit of {max_bytes} bytes")])
    try:
        text = decode_text(data)
    except TextFaultError as error:
        raise DocumentError([Problem(path, error.line, error.column, str(error))]) from error
    if fault := _UNREADABLE.search(text):
        line, column = line_and_column(text[: fault.start()])
        message = (
            f"the character U+{ord(fault.group()):04X} cannot stand in a file; remove it, "
            f'or write it as an escape in double quotes ("\\u{ord(fault.group()):04X}")'
        )
        raise DocumentError([Problem(path, line, column, message)])
    document = _Loader(text, path, collected).document()
    if problems is None and collected:
        raise DocumentError(sorted_problems(collected))
    return document


def sorted_problems(problems: list[Problem]) -> list[Problem]:
    """Return the problems of one file in file order, at most `MAX_PROBLEMS` of them."""
    return sorted(problems, key=lambda problem: (problem.line, problem.column))[:MAX_PROBLEMS]


class _Loader:
    """One load: builds nodes from the parser's events, never deeper in its own calls than `MAX_DEPTH`."""

    def __init__(self, text: str, path: str, problems: list[Problem]) -> None:
        self._lines = re.split("\r\n|\n|\r", text)
        self._path = path
        self._problems = problems
        self._left = MAX_NODES
        self._anchors: dict[str, Node | None] = {}
        """None for an anchor whose value is still being read."""
        self._reached = Place(1, 1)
        # No plug-ins: they would be looked for on the disk, for every file.
        self._events: Iterator[Any] = iter(YAML(typ="safe", pure=True, plug_ins=[]).parse(text))

    def document(self) -> Document:
        root: Node | None = None
        while not isinstance(event := self._next(), StreamEndEvent):
            if isinstance(event, DocumentStartEvent):
                place = _place(event.start_mark)
                if root is not None:
                    raise self._stop(place, "a second document begins here; a file holds one")
                self._check_directives(event, place)
            elif not isinstance(event, (StreamStartEvent, DocumentEndEvent)):
                root = self._node(event, 1)
        if root is None:
            return Document(path=self._path, root=Node(value=None, place=Place(1, 1), style="plain"), is_empty=True)
        return Document(path=self._path, root=root, is_empty=False)

    # -------------------------------------------------------------------------------------------- values

    def _node(self, event: Any, depth: int) -> Node:
        place = _place(event.start_mark)
        if depth > MAX_DEPTH:
            raise self._stop(place, f"nested deeper than {MAX_DEPTH}")
        if isinstance(event, AliasEvent):
            return self._alias(event, place, depth)
        self._spend(1, place)
        anchor = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        if isinstance(event, ScalarEvent):
            node = self._scalar(event, place)
        elif isinstance(event, SequenceStartEvent):
            node = self._sequence(place, depth)
        else:
            node = self._mapping(event, place, depth)
        if event.ctag is not None:
            self._tell(
                place, f"tag {quote(_as_written(str(event.ctag)))} is not allowed; write plain values, and quote text"
            )
            node = _bad(place)
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _scalar(self, event: ScalarEvent, place: Place) -> Node:
        raw: str = event.value
        style = _STYLES.get(event.style or "", "plain")
        end = event.end_mark
        if style != "plain":
            if _SURROGATE.search(raw):  # JSON writes characters above U+FFFF as two escapes
                try:
                    raw = raw.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
                except UnicodeDecodeError:
                    return self._bad_scalar(place, "half of a surrogate pair is not a character")
            is_block = style in {"literal", "folded"}
            return Node(value=raw, place=place, style=style, raw=raw, text_line=place.line + 1 if is_block else 0)
        rest = self._lines[end.line][end.column :]
        value, fault = resolve(raw)
        if fault is not None:
            return self._bad_scalar(place, fault)
        has_comment = bool(raw) and rest.lstrip(" \t").startswith("#")
        return Node(value=value, place=place, style="plain", raw=raw, has_comment=has_comment)

    def _sequence(self, place: Place, depth: int) -> Node:
        items = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return Node(
            value=FrozenList([item.value for item in items]),
            place=place,
            style="sequence",
            items=tuple(items),
            size=1 + sum(item.size for item in items),
            height=1 + max((item.height for item in items), default=0),
        )

    def _mapping(self, start: MappingStartEvent, place: Place, depth: int) -> Node:
        keys: dict[str, Place] = {}
        entries: dict[str, Node] = {}
        merged: Node | None = None
        merged_at: Place | None = None
        while not isinstance(event := self._next(), MappingEndEvent):
            key_place = _place(event.start_mark)
            key = self._key(event, key_place, start)
            if key == "<<" and not event.style:
                value = self._node(self._next(), depth)
                if merged_at is not None:
                    self._tell(
                        key_place, f"duplicate key <<: first on line {merged_at.line}, again on line {key_place.line}"
                    )
                else:
                    merged, merged_at = value, key_place
                continue
            value = self._node(self._next(), depth + 1)
            if key is None:
                continue
            if value.is_empty and not value.raw:  # the parser sees it where the next thing begins
                value = evolve(value, place=key_place)
            if key in keys:
                first = keys[key].line
                self._tell(
                    key_place, f"duplicate key {key[:60]}: first on line {first}, again on line {key_place.line}"
                )
                continue
            keys[key], entries[key] = key_place, value
        if merged is not None and merged_at is not None:
            keys, entries = self._merge(merged, merged_at, keys, entries)
        return Node(
            value=FrozenDict({key: node.value for key, node in entries.items()}),
            place=place,
            style="mapping",
            keys=keys,
            entries=entries,
            size=1 + sum(node.size for node in entries.values()),
            height=1 + max((node.height for node in entries.values()), default=0),
        )

    def _key(self, event: Any, place: Place, start: MappingStartEvent) -> str | None:
        """Return a key's text; None, with the problem told, for a scalar that is not a string."""
        if not isinstance(event, ScalarEvent):
            hint = ""
            if start.flow_style and isinstance(event, MappingStartEvent):
                hint = '; text that begins with {{ must be quoted: "{{ name }}"'
            raise self._stop(place, f"a key must be a string, not a list, a mapping or an alias{hint}")
        if event.anchor is not None or event.ctag is not None:
            self._tell(place, "a key can have neither an anchor nor a tag; put the anchor on the value")
            return None
        node = self._scalar(event, place)
        if node.is_bad:
            return None
        if not isinstance(node.value, str):
            self._tell(place, f"a key must be a string; quote {node.raw}" if node.raw else "a key is empty")
            return None
        return node.value

    def _alias(self, event: AliasEvent, place: Place, depth: int) -> Node:
        name = event.anchor
        if name not in self._anchors:
            self._tell(place, f"alias *{quote(name)[1:-1]} has no anchor before it; quote text that begins with *")
            return _bad(place)
        node = self._anchors[name]
        if node is None:
            self._tell(place, f"recursive alias *{quote(name)[1:-1]}: it stands inside the value it repeats")
            return _bad(place)
        self._spend(node.size, place)
        if depth - 1 + node.height > MAX_DEPTH:
            raise self._stop(place, f"nested deeper than {MAX_DEPTH}, aliases filled in")
        return node

    def _merge(
        self, merged: Node, place: Place, keys: dict[str, Place], entries: dict[str, Node]
    ) -> tuple[dict[str, Place], dict[str, Node]]:
        """Lay a mapping's own entries over those that ``<<`` brings; of several, the first one wins.

        The work is bounded: each source has been paid for, entry by entry, when its node was made or repeated.
        """
        sources = merged.items if merged.style == "sequence" else (merged,)
        all_keys: dict[str, Place] = {}
        all_entries: dict[str, Node] = {}
        for source in sources:
            if source.is_bad:
                continue
            if source.style != "mapping":
                self._tell(place, "<< takes a mapping or a list of mappings, most often an alias such as *base")
                continue
            for key, node in source.entries.items():
                if key not in all_keys:
                    all_keys[key], all_entries[key] = source.keys[key], node
        return {**all_keys, **keys}, {**all_entries, **entries}

    # ------------------------------------------------------------------------------------------ problems

    def _spend(self, count: int, place: Place) -> None:
        self._left -= count
        if self._left < 0:
            raise self._stop(place, f"more than {MAX_NODES} values, aliases filled in")

    def _tell(self, place: Place, message: str) -> None:
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(Problem(self._path, place.line, place.column, message))

    def _stop(self, place: Place, message: str) -> DocumentError:
        fatal = Problem(self._path, place.line, place.column, message)
        return DocumentError(sorted_problems([*self._problems, fatal]))

    def _bad_scalar(self, place: Place, message: str) -> Node:
        self._tell(place, message)
        return _bad(place)

    def _check_directives(self, event: DocumentStartEvent, place: Place) -> None:
        if event.version is not None and tuple(event.version) != (1, 2):
            found = ".".join(map(str, event.version))
            raise self._stop(Place(1, 1), f"files are read as YAML 1.2, not {found}; remove the %YAML line")
        if event.tags:
            raise self._stop(place, "%TAG lines are not allowed; remove it")

    def _next(self) -> Any:
        try:
            event = next(self._events)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place, message = explain_syntax(
                self._lines,
                error.problem or error.context or "not YAML",
                _place(mark) if mark else Place(1, 1),
                _place(error.context_mark) if error.context_mark else None,
            )
            raise self._stop(place, message) from error
        except Exception as error:  # the parser's own slips on malformed input; nothing else runs in there
            told = f"what follows here is not valid YAML (the parser failed with {type(error).__name__})"
            raise self._stop(self._reached, told) from error
        self._reached = _place(event.end_mark)
        return event


def _as_written(tag: str) -> str:
    """Return a tag as authors write it: ``!!python/name`` for the long form that the parser gives."""
    return tag.replace("tag:yaml.org,2002:", "!!", 1)


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)


def _bad(place: Place) -> Node:
    return Node(value=None, place=place, style="plain", is_bad=True)
