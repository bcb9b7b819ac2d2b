"""`PreparedRun` and `RunResult`: what would be sent, what came back, and their stable JSON forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from attrs import field, frozen

from promptkit._fields import Json
from promptkit._typed import structure
from promptkit._types import AttemptEvent, ExecutionOverride, Message, OutputFormat, StructuredOutput, Usage

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")


@frozen(kw_only=True)
class PreparedRun:
    """What a run would send, with its hashes. It holds no credential, header or capacity number.

    ``execution`` has the merged values (``timeout_s`` and ``retry`` resolved, headers left out);
    ``duration_s`` is the time that preparation took. Hashes are ``sha256:`` texts; see the hashes reference.
    """

    prompt: str
    description: str | None = None
    profile: str
    backend: str | None
    endpoint: str
    model: str | None
    messages: tuple[Message, ...] = field(converter=tuple)
    session_id: str | None
    execution: ExecutionOverride
    output_format: OutputFormat
    output_schema: Json = field(default=None, repr=False)
    is_strict: bool = False
    structured_output: StructuredOutput = "json_schema"
    repair_max_attempts: int = 1
    definition_hash: str
    inputs_hash: str
    rendered_hash: str
    duration_s: float = field(eq=False)


@frozen(kw_only=True)
class RunResult:
    """What a run gave: the parsed and validated output, and how it came about.

    ``data`` is the output by its contract (a str for ``text``), immutable; ``text`` is what the model wrote.
    ``usage`` sums every answer of the run, repairs included. ``duration_s`` starts when ``run`` is entered.
    """

    data: Any
    text: str = field(repr=False)
    prepared: PreparedRun
    usage: Usage
    attempts: tuple[AttemptEvent, ...] = field(converter=tuple)
    finish_reason: str | None = None
    model: str | None = None
    reasoning: str | None = field(default=None, repr=False)
    request_id: str | None = None
    duration_s: float = 0.0

    def structure(self, cls: type[T], *, converter: Converter | None = None) -> T:
        """Return ``data`` as an object of ``cls``, an attrs class, a dataclass or a TypedDict (extra ``typed``).

        Nothing is coerced. ``converter`` is a ``cattrs`` converter of your own, for types that JSON does not have.
        Raises `ConfigError` where the data satisfies its schema and does not fit the class all the same.
        """
        return structure(self.data, cls, converter=converter)
