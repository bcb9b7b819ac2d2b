"""`PreparedRun` and `RunResult`: what would be sent, what came back, and their stable JSON forms.

Guarantees: the forms are named by ``kind``, have sorted keys, hold no credential, no header and no capacity
number, and are described by the JSON Schemas ``promptkit/schemas/prepared-run.schema.json`` and
``run-result.schema.json``; a form that keeps its content comes back equal through ``from_dict``; one that
leaves it out keeps its hashes, so that it still proves what was sent.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from attrs import asdict, field, frozen

from promptkit._canonical import sha256_of, sha256_of_bytes
from promptkit._fields import Json, describe, freeze, thaw
from promptkit._typed import structure
from promptkit._types import (
    NUMBER_FIELDS,
    AttemptEvent,
    ExecutionOverride,
    Image,
    Message,
    OutputFormat,
    RetryPolicy,
    StructuredOutput,
    Usage,
    tuple_of_messages,
)
from promptkit.errors import ConfigError, PromptKitError

PREPARED_RUN_KIND: Final = "promptkit.prepared-run/1"
RUN_RESULT_KIND: Final = "promptkit.run-result/1"

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")


@frozen(kw_only=True)
class PreparedRun:
    """What a run would send, with its hashes. It holds no credential, header or capacity number.

    ``execution`` has the merged values, ``timeout_s`` and ``retry`` resolved and headers left out; a number
    that is None is not sent. ``output_schema`` is self-contained. ``duration_s`` is the time that preparation
    took. Hashes are ``sha256:`` texts; the hashes reference says over what.
    """

    prompt: str
    description: str | None = None
    profile: str
    backend: str | None
    endpoint: str
    model: str | None
    messages: tuple[Message, ...] = field(converter=tuple_of_messages)
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

    def to_dict(self, *, with_content: bool = True, with_images: bool = False) -> dict[str, Json]:
        """Return the stable form as plain data, the caller's own.

        ``with_content=False`` leaves the text of messages out, ``with_images=True`` puts the bytes of images
        in (base64); hashes and media types are always there.
        """
        execution = self.execution
        retry = execution.retry or RetryPolicy()
        return {
            "kind": PREPARED_RUN_KIND,
            "prompt": self.prompt,
            "description": self.description,
            "profile": self.profile,
            "backend": self.backend,
            "endpoint": self.endpoint,
            "model": self.model,
            "session_id": self.session_id,
            "messages": [
                _message_to_dict(m, with_content=with_content, with_images=with_images) for m in self.messages
            ],
            "execution": {
                **{
                    name: list(value) if isinstance(value, tuple) else value
                    for name in NUMBER_FIELDS
                    if (value := getattr(execution, name)) is not None
                },
                "timeout_s": execution.timeout_s,
                "retry": {name: value for name, value in asdict(retry).items() if value is not None},
                "extra_body": thaw(execution.extra_body or {}),
            },
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

    def to_json(self, *, with_content: bool = True, with_images: bool = False) -> str:
        """Return the stable form as JSON text, keys sorted."""
        return _json_text(self.to_dict(with_content=with_content, with_images=with_images))

    @classmethod
    def from_dict(cls, form: Mapping[str, Json]) -> PreparedRun:
        """Return the record that a form with content was made of. Raises `ConfigError` for anything else."""
        try:
            _check_kind(form, PREPARED_RUN_KIND)
            output, hashes, execution = form["output"], form["hashes"], dict(form["execution"])
            return cls(
                prompt=form["prompt"],
                description=form["description"],
                profile=form["profile"],
                backend=form["backend"],
                endpoint=form["endpoint"],
                model=form["model"],
                session_id=form["session_id"],
                messages=[_message_from_dict(m) for m in form["messages"]],
                execution=ExecutionOverride(
                    model=form["model"], extra_body=execution.pop("extra_body") or None, **execution
                ),
                output_format=output["format"],
                output_schema=freeze(output["schema"]),
                is_strict=output["strict"],
                structured_output=output["structured_output"],
                repair_max_attempts=output["repair_max_attempts"],
                definition_hash=hashes["definition"],
                inputs_hash=hashes["inputs"],
                rendered_hash=hashes["rendered"],
                duration_s=form["duration_s"],
            )
        except (KeyError, TypeError, ValueError, AttributeError, PromptKitError) as exc:
            _refuse(exc, PREPARED_RUN_KIND)


@frozen(kw_only=True)
class RunResult:
    """What a run gave: the parsed and validated output, and how it came about.

    ``data`` is the output by its contract (a str for ``text``), immutable and equal to the plain value;
    ``text`` is what the model wrote. ``usage`` sums every answer of the run, repairs included. ``model`` is
    what the server said had answered. ``duration_s`` starts when ``run`` is entered and includes waiting.
    """

    data: Any
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
        return structure(self.data, cls, converter=converter)

    def to_dict(self, *, with_content: bool = True, with_images: bool = False) -> dict[str, Json]:
        """Return the stable form as plain data, the caller's own.

        ``with_content=False`` leaves out the text of messages, the answer, its data and the reasoning;
        ``with_images=True`` puts the bytes of images in. Hashes are always there.
        """
        form: dict[str, Json] = {
            "kind": RUN_RESULT_KIND,
            "prepared": self.prepared.to_dict(with_content=with_content, with_images=with_images),
            "usage": asdict(self.usage),
            "attempts": [asdict(event, filter=_not_usage) | {"usage": _usage(event)} for event in self.attempts],
            "finish_reason": self.finish_reason,
            "model": self.model,
            "request_id": self.request_id,
            "duration_s": self.duration_s,
            "hashes": {
                "text": sha256_of_bytes(self.text.encode("utf-8", "surrogatepass")),
                "data": sha256_of(self.data),
            },
        }
        if with_content:
            form |= {"data": thaw(self.data), "text": self.text, "reasoning": self.reasoning}
        return form

    def to_json(self, *, with_content: bool = True, with_images: bool = False) -> str:
        """Return the stable form as JSON text, keys sorted."""
        return _json_text(self.to_dict(with_content=with_content, with_images=with_images))

    @classmethod
    def from_dict(cls, form: Mapping[str, Json]) -> RunResult:
        """Return the record that a form with content was made of. Raises `ConfigError` for anything else."""
        try:
            _check_kind(form, RUN_RESULT_KIND)
            return cls(
                data=freeze(form["data"]),
                text=form["text"],
                prepared=PreparedRun.from_dict(form["prepared"]),
                usage=Usage(**form["usage"]),
                attempts=tuple(
                    AttemptEvent(**{**event, "usage": None if event["usage"] is None else Usage(**event["usage"])})
                    for event in form["attempts"]
                ),
                finish_reason=form["finish_reason"],
                model=form["model"],
                reasoning=form["reasoning"],
                request_id=form["request_id"],
                duration_s=form["duration_s"],
            )
        except (KeyError, TypeError, ValueError, AttributeError, PromptKitError) as exc:
            _refuse(exc, RUN_RESULT_KIND)


# ------------------------------------------------------------------------------------------------- helpers


def _json_text(form: dict[str, Json]) -> str:
    return json.dumps(form, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=2)


def _not_usage(attribute: Any, _value: object) -> bool:
    return str(attribute.name) != "usage"


def _usage(event: AttemptEvent) -> Json:
    return None if event.usage is None else asdict(event.usage)


def _message_to_dict(message: Message, *, with_content: bool, with_images: bool) -> dict[str, Json]:
    form: dict[str, Json] = {
        "role": message.role,
        "content_hash": sha256_of_bytes(message.content.encode()),
        "images": [_image_to_dict(image, with_images=with_images) for image in message.images],
    }
    if with_content:
        form["content"] = message.content
    return form


def _image_to_dict(image: Image, *, with_images: bool) -> dict[str, Json]:
    form: dict[str, Json] = {"media_type": image.media_type, "sha256": image.sha256}
    if with_images and image.data is not None:
        form["data"] = base64.b64encode(image.data).decode("ascii")
    return form


def _message_from_dict(form: Mapping[str, Json]) -> Message:
    if "content" not in form:
        raise ConfigError("its content was left out, and only the hashes are there")
    images = []
    for image in form["images"]:
        try:
            data = base64.b64decode(image["data"], validate=True) if "data" in image else None
        except binascii.Error as exc:
            raise ConfigError("the data of an image is not base64") from exc
        images.append(Image(image["media_type"], data, image["sha256"]))
    return Message(form["role"], form["content"], images=images)


def _check_kind(form: Mapping[str, Json], kind: str) -> None:
    if not isinstance(form, Mapping):
        raise ConfigError(f"it must be a mapping, not {describe(form)}")
    if form.get("kind") != kind:
        raise ConfigError(f"its kind is {form.get('kind')!r}")


def _refuse(exc: Exception, kind: str) -> NoReturn:
    reason = f"the field {exc} is missing" if isinstance(exc, KeyError) else str(exc)
    raise ConfigError(f"this is no complete {kind!r} form: {reason}") from exc
