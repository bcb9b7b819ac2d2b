"""What prompt and profile files say, once they have been read and found right.

Guarantees: built by the loaders only, frozen all the way down, shared by all threads; every part that a
later step may complain of knows its place in its file.
"""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen

from promptkit._fields import FrozenDict, Json
from promptkit._types import ExecutionOverride, OutputFormat, Role, StructuredOutput

InputType = Literal["string", "integer", "number", "boolean", "array", "object", "file", "image", "messages"]
INPUT_TYPES: tuple[InputType, ...] = (
    "string",
    "integer",
    "number",
    "boolean",
    "array",
    "object",
    "file",
    "image",
    "messages",
)


@frozen
class Place:
    """A place in a file: 1-based line and column."""

    line: int
    column: int


NOWHERE = Place(0, 0)


@frozen(kw_only=True)
class TemplateText:
    """A template as written, and where its text begins.

    ``first_line`` is the file's line on which the text's first line stands, so that line ``n`` of the
    template is line ``first_line + n - 1`` of the file when ``is_block`` (a ``|`` block); for other scalars
    every line is reported as ``place``.
    """

    source: str
    place: Place = NOWHERE
    first_line: int = 0
    is_block: bool = False
    is_folded: bool = False
    """Written as a ``>`` block, which joins lines."""
    has_comment: bool = False
    """Written plainly and followed by `` #`` and more on its last line, which YAML takes for a comment."""


@frozen(kw_only=True)
class InputSpec:
    """The declaration of one input."""

    name: str
    type: InputType
    is_required: bool
    """False when ``required: false`` or a default is given."""
    has_default: bool = False
    default: Json = None
    choices: tuple[Json, ...] | None = None
    max_chars: int | None = None
    """Longest string allowed, in characters (type string, and the text of a file)."""
    max_bytes: int | None = None
    """Largest artifact allowed, in bytes (types file and image)."""
    schema: Json = None
    """A JSON Schema that refines the type: a mapping in place or a file name under the schema root."""
    description: str | None = None
    place: Place = NOWHERE
    schema_place: Place = NOWHERE
    schema_positions: FrozenDict[str, Place] = field(factory=FrozenDict, repr=False)
    """Places within a schema that stands in the prompt file, by JSON Pointer into the schema."""


@frozen(kw_only=True)
class MessageSpec:
    """One entry of ``messages``: a role, its template, and the image inputs that go with it."""

    role: Role
    content: TemplateText
    images: tuple[str, ...] = ()
    place: Place = NOWHERE


@frozen(kw_only=True)
class HistorySpec:
    """``- history: NAME``: the turns of an input of type ``messages``, spliced in as data."""

    input: str
    place: Place = NOWHERE


@frozen(kw_only=True)
class OutputSpec:
    """The ``output`` section."""

    format: OutputFormat = "text"
    schema: Json = None
    """A mapping (or boolean) in place, or a file name under the schema root; None without ``json_schema``."""
    is_strict: bool = False
    repair_max_attempts: int = 1
    strict_place: Place = NOWHERE
    schema_place: Place = NOWHERE
    positions: FrozenDict[str, Place] = field(factory=FrozenDict, repr=False)
    """Places within a schema that stands in the prompt file, by JSON Pointer into the schema."""


@frozen(kw_only=True)
class PromptDefinition:
    """A prompt file."""

    id: str
    path: str
    """As shown in messages: the root as it was given to the engine, joined with the relative path."""
    hash: str
    """``sha256:`` of the file as written (its bytes)."""
    description: str | None = None
    profile: str | None = None
    inputs: FrozenDict[str, InputSpec]
    session: TemplateText | None = None
    messages: tuple[MessageSpec | HistorySpec, ...]
    output: OutputSpec
    execution: ExecutionOverride
    profile_place: Place = NOWHERE


@frozen(kw_only=True)
class ProfileDefinition:
    """A profile file. At least one of ``backend`` and ``execution.endpoint`` is there."""

    name: str
    path: str
    hash: str
    backend: str | None = None
    api_key_env: str | None = None
    execution: ExecutionOverride
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    structured_output: StructuredOutput | None = None
    """How a contract travels; None takes the backend's setting (``json_schema`` for an endpoint of its own)."""
    proxy: Literal["none"] | None = None
    backend_place: Place = NOWHERE
