"""The inputs of one run, checked against their declarations: plain data, files and images read, history as turns.

Guarantees: nothing reaches a template but immutable copies of JSON-like data, so that no object of the caller
is called, changed or shown by a template; types are exact, nothing is converted; null is refused, an optional
input is left out instead; an error names the input and the place in it and says what kind of thing stands
there, never the value. Recursion and size are bounded before anything is copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, Protocol

from attrs import field, frozen

from promptkit._definitions import InputSpec, Place
from promptkit._fields import FrozenDict, FrozenList, Json, describe, is_integer, is_number, nearest
from promptkit._types import Artifact, Image, Issue, Message
from promptkit.errors import InputError

MAX_DEPTH: Final = 64
"""Deepest nesting of one input; lists that contain themselves end here too."""
MAX_ITEMS: Final = 100_000
"""Most list items and mapping entries of one run's inputs together."""
MAX_CHARS: Final = 10_000_000
"""Most characters of one run's inputs together."""
_MAX_POINTER: Final = 200
_MAX_SHOWN: Final = 5
_MAX_INTEGER_BITS: Final = 4096  # far above any number in a prompt, far below what Python refuses to print


@frozen(kw_only=True)
class CheckedInputs:
    """The inputs of one run as the later steps use them; deeply immutable.

    ``values`` is what templates see: every input that was given or has a default. A ``file`` is its text,
    an ``image`` a list of ``{name, media_type}``, ``messages`` a list of ``{role, content}``. ``images`` and
    ``histories`` hold the same inputs as records. ``hashable`` is the JSON value that the inputs hash is made
    of: all values in effect, defaults included, artifacts by the digest of their bytes.
    """

    values: FrozenDict[str, Json] = field(factory=FrozenDict, repr=False)
    images: FrozenDict[str, tuple[Image, ...]] = field(factory=FrozenDict, repr=False)
    histories: FrozenDict[str, tuple[Message, ...]] = field(factory=FrozenDict, repr=False)
    hashable: Json = field(factory=FrozenDict, repr=False)


class LoadedFile(Protocol):
    """What an `ArtifactReader` gives."""

    @property
    def sha256(self) -> str:
        """``sha256:`` and the digest of the bytes."""
        ...

    @property
    def name(self) -> str:
        """What the file is called in messages."""
        ...

    def text(self) -> str:
        """Return the content as text; raises `ArtifactError` when it is none."""
        ...

    def image(self) -> Image:
        """Return the content as an image; raises `ArtifactError` when it is none."""
        ...


class ArtifactReader(Protocol):
    """Reads artifacts, within their root and their bounds."""

    def read(self, artifact: Artifact, *, name: str, max_bytes: int | None) -> LoadedFile:
        """Return the artifact's bytes; raises `ArtifactError`."""
        ...


class CompiledSchema(Protocol):
    """A schema that is ready to judge values."""

    def validate(self, value: Json, /) -> tuple[Issue, ...]:
        """Return what is wrong with ``value``, nothing when it fits."""
        ...


class SchemaStore(Protocol):
    """Loads and caches schemas."""

    def load(self, schema: Json, *, path: str, place: Place, positions: Mapping[str, Place]) -> CompiledSchema:
        """Return the compiled schema; raises `DocumentError`."""
        ...


def check_inputs(
    specs: Mapping[str, InputSpec],
    given: Mapping[str, Any],
    *,
    prompt: str,
    reader: ArtifactReader,
    schemas: SchemaStore,
    path: str,
) -> CheckedInputs:
    """Return the inputs ``given`` for ``prompt`` as `CheckedInputs`, defaults filled in.

    Reads artifacts and loads schemas, so it blocks on files. ``path`` is the prompt file, for messages about
    a schema. Raises `InputError` for a name that is not declared, a missing input, and a value that its
    declaration does not allow; `ArtifactError` for a file that cannot be used; `DocumentError` for a schema
    that cannot.
    """
    unknown = [name for name in given if name not in specs]
    if unknown:
        _refuse_unknown(unknown, specs, prompt)
    missing = [name for name, spec in specs.items() if spec.is_required and name not in given]
    if missing:
        names = ", ".join(map(repr, missing))
        raise InputError(
            f"prompt {prompt!r} needs the input{'s' if missing[1:] else ''} {names}, which {_be(missing)} not given",
            name=missing[0],
        )
    check = _Check(prompt, reader, schemas, path)
    for name, spec in specs.items():
        if name in given:
            check.take(spec, given[name])
        elif spec.has_default:
            check.take(spec, spec.default)
    return CheckedInputs(
        values=FrozenDict(check.values),
        images=FrozenDict(check.images),
        histories=FrozenDict(check.histories),
        hashable=FrozenDict(check.hashable),
    )


def _be(names: list[str]) -> str:
    return "were" if names[1:] else "was"


def _refuse_unknown(unknown: list[Any], specs: Mapping[str, InputSpec], prompt: str) -> NoReturn:
    first = unknown[0]
    if not isinstance(first, str):
        raise InputError(f"prompt {prompt!r}: names of inputs are strings, not {describe(first)}")
    declared = ", ".join(specs) if specs else "none"
    shown = ", ".join(repr(name[:_MAX_POINTER]) for name in unknown[:_MAX_SHOWN] if isinstance(name, str))
    raise InputError(
        f"prompt {prompt!r} does not declare the input{'s' if unknown[1:] else ''} {shown}"
        f"{nearest(first, specs)} (declared: {declared})",
        name=first,
    )


class _FlawError(Exception):
    """Something wrong inside an input; each level adds its key on the way out."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.keys: list[object] = []

    def pointer(self) -> str:
        steps = (str(key).replace("~", "~0").replace("/", "~1") for key in reversed(self.keys))
        return _shortened("".join(f"/{step}" for step in steps))


def _shortened(pointer: str) -> str:
    return pointer if len(pointer) <= _MAX_POINTER else pointer[:_MAX_POINTER] + "…"


class _Check:
    """One call of `check_inputs`: what has been taken so far, and what is left of the bounds."""

    def __init__(self, prompt: str, reader: ArtifactReader, schemas: SchemaStore, path: str) -> None:
        self.prompt = prompt
        self.reader = reader
        self.schemas = schemas
        self.path = path
        self.values: dict[str, Json] = {}
        self.images: dict[str, tuple[Image, ...]] = {}
        self.histories: dict[str, tuple[Message, ...]] = {}
        self.hashable: dict[str, Json] = {}
        self.items_left = MAX_ITEMS
        self.chars_left = MAX_CHARS

    def take(self, spec: InputSpec, value: object) -> None:
        """Check one input and add it to what has been taken."""
        name = spec.name
        if value is None:
            cure = "" if spec.is_required else "; leave it out instead, it is optional"
            raise self.error(spec, f"is null, and must be {_wanted(spec)}{cure}")
        try:
            if spec.type == "file":
                self.take_file(spec, value)
            elif spec.type == "image":
                self.take_images(spec, value)
            elif spec.type == "messages":
                self.take_history(spec, value)
            else:
                is_right, _ = _TYPES[spec.type]
                if not is_right(value):
                    raise self.error(spec, f"must be {_wanted(spec)}, not {describe(value)}{_hint(spec, value)}")
                self.values[name] = self.hashable[name] = self.plain(value, MAX_DEPTH)
        except _FlawError as flaw:
            raise self.error(spec, str(flaw), at=flaw.pointer()) from None
        checked = self.values[name]
        if spec.choices is not None and checked not in spec.choices:
            choices = ", ".join(map(repr, spec.choices[:20])) + (", …" if spec.choices[20:] else "")
            raise self.error(spec, f"is not one of its choices ({choices})")
        if spec.max_chars is not None and isinstance(checked, str) and len(checked) > spec.max_chars:
            raise self.error(spec, f"has {len(checked)} characters, and max_chars is {spec.max_chars}")
        if spec.schema is not None:
            self.fit_schema(spec, checked)

    def error(self, spec: InputSpec, what: str, *, at: str = "") -> InputError:
        """Return the error whose text is "prompt P: input NAME at POINTER ``what``"."""
        where = f" at {at!r}" if at else ""
        return InputError(f"prompt {self.prompt!r}: input {spec.name!r}{where} {what}", name=spec.name)

    # ------------------------------------------------------------------------------------------- plain data

    def plain(self, value: object, depth: int) -> Json:
        """Return an immutable copy of a JSON-like value; subclasses of str, int and float become the plain type."""
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            if value.bit_length() > _MAX_INTEGER_BITS:
                raise _FlawError("is an integer of more than 1200 digits, which is too long to print")
            return int.__int__(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise _FlawError("is not a finite number, and JSON has no other")
            return float.__float__(value)
        if not isinstance(value, (list, tuple, Mapping)):
            raise _FlawError(f"is {describe(value)}{_only_json(value)}")
        if depth == 0:
            raise _FlawError(f"is nested deeper than {MAX_DEPTH} levels, or contains itself")
        self.items_left -= len(value)
        if self.items_left < 0:
            raise _FlawError(f"is too large: the inputs of a run hold at most {MAX_ITEMS} items")
        return self.mapping(value, depth) if isinstance(value, Mapping) else self.list(value, depth)

    def mapping(self, value: Mapping[Any, Any], depth: int) -> FrozenDict[str, Json]:
        copy = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise _FlawError(f"has a key that is {describe(key)}; keys are strings")
            name = self.text(key)
            try:
                copy[name] = self.plain(item, depth - 1)
            except _FlawError as flaw:
                flaw.keys.append(name)
                raise
        return FrozenDict(copy)

    def list(self, value: Sequence[Any], depth: int) -> FrozenList[Json]:
        copy = []
        for index, item in enumerate(value):
            try:
                copy.append(self.plain(item, depth - 1))
            except _FlawError as flaw:
                flaw.keys.append(index)
                raise
        return FrozenList(copy)

    def text(self, value: str) -> str:
        """Return ``value`` as a plain str that can be sent: encodable, without NUL."""
        self.chars_left -= len(value)
        if self.chars_left < 0:
            raise _FlawError(f"is too long: the inputs of a run hold at most {MAX_CHARS} characters")
        if "\0" in value:
            raise _FlawError(f"has a NUL (U+0000) at position {value.index(chr(0))}, which is no text")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as exc:
                raise _FlawError(
                    f"has a lone surrogate (U+{ord(value[exc.start]):04X}) at position {exc.start}, which cannot be "
                    "encoded; decode bytes as UTF-8 with errors='strict' or 'replace'"
                ) from None
        return value if type(value) is str else str.__str__(value)

    # ------------------------------------------------------------------------------- files, images, history

    def read(self, spec: InputSpec, value: object) -> LoadedFile:
        if isinstance(value, (bytes, bytearray, memoryview)):
            value = Artifact(data=bytes(value))
        if not isinstance(value, Artifact):
            raise _FlawError(
                f"must be {_wanted(spec)}, not {describe(value)}: pass Artifact('path') or the file's bytes"
            )
        return self.reader.read(value, name=spec.name, max_bytes=spec.max_bytes)

    def take_file(self, spec: InputSpec, value: object) -> None:
        loaded = self.read(spec, value)
        self.values[spec.name] = self.text(loaded.text())
        self.hashable[spec.name] = FrozenDict({"artifact": loaded.sha256})

    def take_images(self, spec: InputSpec, value: object) -> None:
        images, shown = [], []
        several = isinstance(value, (list, tuple))
        for index, item in enumerate(value if isinstance(value, (list, tuple)) else (value,)):
            try:
                loaded = self.read(spec, item)
            except _FlawError as flaw:
                flaw.keys += [index] if several else []
                raise
            image = loaded.image()
            images.append(image)
            shown.append(FrozenDict({"name": self.text(loaded.name), "media_type": image.media_type}))
        if not images and spec.is_required:
            raise _FlawError("is an empty list, and needs at least one image")
        self.images[spec.name] = tuple(images)
        self.values[spec.name] = FrozenList(shown)
        self.hashable[spec.name] = FrozenList([FrozenDict({"artifact": image.sha256}) for image in images])

    def take_history(self, spec: InputSpec, value: object) -> None:
        if not isinstance(value, (list, tuple)):
            raise _FlawError(f"must be {_wanted(spec)}, not {describe(value)}")
        self.items_left -= len(value)
        if self.items_left < 0:
            raise _FlawError(f"is too large: the inputs of a run hold at most {MAX_ITEMS} items")
        turns, shown, hashable = [], [], []
        for index, item in enumerate(value):
            try:
                turn = self.turn(item)
            except _FlawError as flaw:
                flaw.keys.append(index)
                raise
            turns.append(turn)
            plain = FrozenDict({"role": turn.role, "content": turn.content})
            shown.append(plain)
            pictures = [image.sha256 for image in turn.images]
            hashable.append(FrozenDict({**plain, "images": FrozenList(pictures)}) if pictures else plain)
        self.histories[spec.name] = tuple(turns)
        self.values[spec.name] = FrozenList(shown)
        self.hashable[spec.name] = FrozenList(hashable)

    def turn(self, item: object) -> Message:
        """Return one turn of a history; the text of an earlier turn is data and is never rendered."""
        if isinstance(item, Message):
            role, content, images = item.role, item.content, item.images
        elif isinstance(item, Mapping):
            extra = [key for key in item if key not in ("role", "content")]
            if extra:
                raise _FlawError(f"has the key {extra[0]!r}; a turn is a mapping of role and content")
            if "role" not in item or "content" not in item:
                raise _FlawError("lacks role or content; a turn is a mapping of both")
            role, content, images = item["role"], item["content"], ()
        else:
            raise _FlawError(f"is {describe(item)}; a turn is a mapping of role and content, or a Message")
        if role not in ("user", "assistant"):
            kind = "the role 'system'" if role == "system" else "another role"
            raise _FlawError(f"has {kind}; earlier turns are of the roles user and assistant")
        if not isinstance(content, str):
            raise _FlawError(f"has a content that is {describe(content)}; it must be a string")
        return Message(role, self.text(content), images=images)

    def fit_schema(self, spec: InputSpec, value: Json) -> None:
        schema = self.schemas.load(
            spec.schema, path=self.path, place=spec.schema_place, positions=spec.schema_positions
        )
        issues = schema.validate(value)
        if issues:
            # an issue's own message may quote the value, so it is not repeated here
            shown = [
                f"{repr(_shortened(issue.pointer)) if issue.pointer else 'the value'} breaks {issue.keyword!r}"
                + (f" (expected {issue.expected})" if issue.expected else "")
                for issue in issues[:_MAX_SHOWN]
            ]
            raise self.error(spec, f"does not fit its schema: {'; '.join(shown)}")


_CURES: Final = (
    ("isoformat", "its isoformat()"),
    ("model_dump", "its model_dump(mode='json')"),
    ("tolist", "its tolist()"),
    ("__dataclass_fields__", "dataclasses.asdict() of it"),
)


def _only_json(value: object) -> str:
    """Say what inputs are, and what to pass for an object whose class gives its data in a well-known way."""
    cure = next((f"; pass {cure}" for name, cure in _CURES if hasattr(type(value), name)), "")
    return f"; inputs are JSON-like values only: strings, numbers, booleans, and lists and mappings of them{cure}"


def _wanted(spec: InputSpec) -> str:
    return _TYPES[spec.type][1]


def _hint(spec: InputSpec, value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "; NaN and infinities are no numbers of JSON"
    if spec.type == "integer" and isinstance(value, float):
        return "; numbers are not rounded, pass an int"
    if spec.type == "string" and isinstance(value, (bytes, bytearray, Artifact)):
        return "; decode bytes first, or declare the input's type as file"
    return "" if isinstance(value, (str, int, float, list, tuple, Mapping)) else _only_json(value)


def _never(_: object) -> bool:
    return False  # these types are taken by methods of their own


_TYPES: Final[dict[str, tuple[Callable[[object], bool], str]]] = {
    "string": (lambda value: isinstance(value, str), "a string"),
    "integer": (is_integer, "an integer"),
    "number": (is_number, "a finite number"),
    "boolean": (lambda value: isinstance(value, bool), "true or false"),
    "array": (lambda value: isinstance(value, (list, tuple)), "a list"),
    "object": (lambda value: isinstance(value, Mapping), "a mapping"),
    "file": (_never, "a file"),
    "image": (_never, "an image or a list of images"),
    "messages": (_never, "a list of turns"),
}
