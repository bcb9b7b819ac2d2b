"""`PreparedRun` and `RunResult`: what would be sent, what came back, and their stable JSON forms.

Guarantees: the forms are named by ``kind``, hold no credential, no header and no capacity number, and are described
by the JSON Schemas ``promptkit/schemas/prepared-run.schema.json`` and ``run-result.schema.json``; a form that keeps
its content comes back equal through ``from_dict``; one that leaves it out keeps its hashes, so that it still proves
what was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from attrs import evolve, field, frozen

from promptkit._canonical import sha256_of
from promptkit._fields import Json, describe, freeze, thaw, without_query_values
from promptkit._forms import (
    Part,
    event_form,
    event_of,
    execution_form,
    execution_of,
    json_text,
    message_form,
    message_of,
    text_hash,
    usage_form,
    usage_of,
)
from promptkit._types import (
    OUTPUT_FORMATS,
    STRUCTURED_OUTPUTS,
    AttemptEvent,
    ExecutionOverride,
    Message,
    OutputFormat,
    RetryPolicy,
    StructuredOutput,
    Usage,
    tuple_of_messages,
)
from promptkit.errors import ConfigError

PREPARED_RUN_KIND: Final = "promptkit.prepared-run/1"
RUN_RESULT_KIND: Final = "promptkit.run-result/1"

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")


def public_execution(execution: ExecutionOverride) -> ExecutionOverride:
    """Return execution values as a record may show them: without headers and address, whose secrets are their own."""
    is_public = execution.endpoint is None and execution.headers is None
    if is_public and execution.extra_body != {} and execution.retry is not None:
        return execution
    return evolve(
        execution,
        endpoint=None,
        headers=None,
        extra_body=execution.extra_body or None,
        retry=execution.retry or RetryPolicy(),
    )


@frozen(kw_only=True)
class PreparedRun:
    """What a run would send, with its hashes. It holds no credential, header or capacity number.

    ``prompt`` and ``profile`` are ids; ``backend`` is the backend's, None for a profile with an endpoint of its own.
    ``endpoint`` is the address with ``***`` for the values of a query string, where some servers take a key.
    ``execution`` has the merged values, ``timeout_s`` (seconds for one attempt) and ``retry`` resolved; a number that
    is None is not sent. ``output_schema`` is self-contained; ``is_strict`` says whether strict mode is asked for, and
    ``repair_max_attempts`` how often an invalid answer is asked about again. ``duration_s`` is the time that
    preparation took, in seconds; it does not count when two records are compared.

    ``definition_hash``, ``inputs_hash`` and ``rendered_hash`` are ``sha256:`` texts; the page on hashes says over what.
    """

    prompt: str
    description: str | None = None
    profile: str
    backend: str | None
    endpoint: str = field(converter=without_query_values)
    model: str | None
    messages: tuple[Message, ...] = field(converter=tuple_of_messages)
    session_id: str | None
    execution: ExecutionOverride = field(converter=public_execution)
    output_format: OutputFormat
    output_schema: Json = field(default=None, repr=False)
    is_strict: bool = False
    structured_output: StructuredOutput = "json_schema"
    repair_max_attempts: int = 1
    definition_hash: str
    inputs_hash: str
    rendered_hash: str
    duration_s: float = field(eq=False)

    def to_dict(self, *, with_content: bool = True, with_images: bool = False) -> dict[str, Json]:
        """Return the stable form ``promptkit.prepared-run/1`` as plain JSON data, the caller's own.

        ``with_content=False`` leaves out the text of messages and the session id, ``with_images=True`` puts the bytes
        of images in (base64); hashes and media types are always there. Does not block and does not fail.
        """
        form: dict[str, Json] = {
            "kind": PREPARED_RUN_KIND,
            "prompt": self.prompt,
            "description": self.description,
            "profile": self.profile,
            "backend": self.backend,
            "endpoint": self.endpoint,
            "model": self.model,
            "messages": [message_form(m, with_content=with_content, with_images=with_images) for m in self.messages],
            "execution": execution_form(self.execution),
            "output": {
                "format": self.output_format,
                "schema": thaw(self.output_schema),
                "strict": self.is_strict,
                "structured_output": self.structured_output,
                "repair_max_attempts": self.repair_max_attempts,
            },
            "hashes": {
                "definition": self.definition_hash,
                "inputs": self.inputs_hash,
                "rendered": self.rendered_hash,
            },
            "duration_s": self.duration_s,
        }
        if with_content:
            form["session_id"] = self.session_id
        return form

    def to_json(self, *, with_content: bool = True, with_images: bool = False) -> str:
        """Return the stable form as JSON text, keys sorted, ready to be written as UTF-8; see `to_dict`."""
        return json_text(self.to_dict(with_content=with_content, with_images=with_images))

    @classmethod
    def from_dict(cls, form: Mapping[str, Json]) -> PreparedRun:
        """Return the record that a form with content was made of, equal to it.

        Images come back without their bytes where the form was made without. Raises `ConfigError` for anything else
        than such a form: another kind, a field that is missing, unknown or of the wrong type, a form without
        content, and a text or image that is not what its hash was made of.
        """
        return _read(form, PREPARED_RUN_KIND, _prepared_of)


@frozen(kw_only=True)
class RunResult:
    """What a run gave: the parsed and validated output, and how it came about.

    ``data`` is the output by its contract (a str for ``text``), immutable and equal to the plain value; ``text`` is
    what the model wrote and ``reasoning`` what it thought before, where the server tells. ``prepared`` is what the
    first attempt sent. ``usage`` sums every answer of the run, repairs included; ``attempts`` has one `AttemptEvent`
    for each attempt, in order. ``finish_reason``, ``model`` and ``request_id`` are what the server said of the last
    answer, None where it said nothing. ``duration_s`` is seconds, starts when ``run`` is entered and includes waiting.
    """

    data: Any = field(converter=freeze)
    text: str = field(repr=False)
    prepared: PreparedRun
    usage: Usage
    attempts: tuple[AttemptEvent, ...]
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
        from promptkit._typed import structure  # noqa: PLC0415 – what knows classes is loaded for those who use it

        return structure(self.data, cls, converter=converter)

    def to_dict(self, *, with_content: bool = True, with_images: bool = False) -> dict[str, Json]:
        """Return the stable form ``promptkit.run-result/1`` as plain JSON data, the caller's own.

        ``with_content=False`` leaves out the text of messages, the session id, the answer, its data, the reasoning
        and the words of errors; ``with_images=True`` puts the bytes of images in. Hashes are always there.
        """
        form: dict[str, Json] = {
            "kind": RUN_RESULT_KIND,
            "prepared": self.prepared.to_dict(with_content=with_content, with_images=with_images),
            "usage": usage_form(self.usage),
            "attempts": [event_form(event, with_content=with_content) for event in self.attempts],
            "finish_reason": self.finish_reason,
            "model": self.model,
            "request_id": self.request_id,
            "duration_s": self.duration_s,
            "hashes": {"text": text_hash(self.text), "data": sha256_of(self.data)},
        }
        if with_content:
            form |= {"data": thaw(self.data), "text": self.text, "reasoning": self.reasoning}
        return form

    def to_json(self, *, with_content: bool = True, with_images: bool = False) -> str:
        """Return the stable form as JSON text, keys sorted, ready to be written as UTF-8; see `to_dict`."""
        return json_text(self.to_dict(with_content=with_content, with_images=with_images))

    @classmethod
    def from_dict(cls, form: Mapping[str, Json]) -> RunResult:
        """Return the record that a form with content was made of, equal to it.

        Raises `ConfigError` for anything else, as `PreparedRun.from_dict` does.
        """
        return _read(form, RUN_RESULT_KIND, _result_of)


# ---------------------------------------------------------------------------------------------------- reading


def _read(form: object, kind: str, read: Callable[[Part], T]) -> T:
    try:
        return read(_part_of_kind(form, kind))
    except (ConfigError, RecursionError) as exc:
        reason = exc if isinstance(exc, ConfigError) else "it is nested too deeply"
        raise ConfigError(f"this is no complete {kind!r} form: {reason}") from exc


def _part_of_kind(form: object, kind: str) -> Part:
    part = Part(form)
    said = part.get("kind")
    if said != kind:
        raise ConfigError(f"its kind is {said[:80]!r}" if isinstance(said, str) else f"its kind is {describe(said)}")
    return part


def _prepared_of(part: Part) -> PreparedRun:
    output, hashes, model = part.part("output"), part.part("hashes"), part.optional_text("model")
    messages = [message_of(message) for message in part.parts("messages")]
    prepared = PreparedRun(
        prompt=part.text("prompt"),
        description=part.optional_text("description"),
        profile=part.text("profile"),
        backend=part.optional_text("backend"),
        endpoint=part.text("endpoint"),
        model=model,
        messages=messages,
        session_id=part.optional_text("session_id"),
        execution=execution_of(part.part("execution"), model=model),
        output_format=output.choice("format", OUTPUT_FORMATS),
        output_schema=output.json("schema"),
        is_strict=output.flag("strict"),
        structured_output=output.choice("structured_output", STRUCTURED_OUTPUTS),
        repair_max_attempts=output.integer("repair_max_attempts"),
        definition_hash=hashes.hash("definition"),
        inputs_hash=hashes.hash("inputs"),
        rendered_hash=hashes.hash("rendered"),
        duration_s=part.seconds("duration_s"),
    )
    for finished in (output, hashes, part):
        finished.end()
    return prepared


def _result_of(part: Part) -> RunResult:
    prepared = _read(part.get("prepared"), PREPARED_RUN_KIND, _prepared_of)
    hashes, text = part.part("hashes"), part.text("text")
    if hashes.hash("text") != text_hash(text):
        raise ConfigError("text is not what hashes.text was made of")
    hashes.hash("data")
    result = RunResult(
        data=part.json("data"),
        text=text,
        prepared=prepared,
        usage=usage_of(part.part("usage")),
        attempts=tuple(event_of(event) for event in part.parts("attempts")),
        finish_reason=part.optional_text("finish_reason"),
        model=part.optional_text("model"),
        reasoning=part.optional_text("reasoning"),
        request_id=part.optional_text("request_id"),
        duration_s=part.seconds("duration_s"),
    )
    for finished in (hashes, part):
        finished.end()
    return result
