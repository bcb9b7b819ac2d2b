"""The parts of the stable JSON forms – messages, execution values, usage, attempts – written and read back.

Guarantees: what is read is checked field by field, nothing is coerced or ignored, and whatever it is, the error is a
`ConfigError` that names the place; a text or image whose hash stands beside it has that hash.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from typing import Any, Final

from attrs import asdict, fields

from promptkit._canonical import escape_surrogates, sha256_of_bytes, utf8
from promptkit._fields import MAX_NUMBER, FrozenDict, FrozenList, Json, describe, is_integer, is_number, nearest, thaw
from promptkit._types import (
    NUMBER_FIELDS,
    ROLES,
    AttemptEvent,
    ExecutionOverride,
    Image,
    Message,
    RetryPolicy,
    Usage,
)
from promptkit.errors import ConfigError

MAX_DEPTH: Final = 128
"""How deep data may be nested that is read: more than an answer or a schema may be."""

TOO_LONG: Final = 10**4300
"""The first integer that Python refuses to write, and the JSON parser of an answer to read."""


def json_text(form: Json) -> str:
    """Return JSON text with sorted keys, ready to be encoded: half of a surrogate pair is escaped."""
    return escape_surrogates(json.dumps(form, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=2))


def text_hash(text: str) -> str:
    """Return the hash of a text's UTF-8 bytes."""
    return sha256_of_bytes(utf8(text))


# ---------------------------------------------------------------------------------------------------- written


def message_form(message: Message, *, with_content: bool, with_images: bool) -> dict[str, Json]:
    """Return a message; its text is left out without content, and the bytes of its images unless asked for."""
    form: dict[str, Json] = {
        "role": message.role,
        "content_hash": text_hash(message.content),
        "images": [_image_form(image, with_images=with_images) for image in message.images],
    }
    if with_content:
        form["content"] = message.content
    return form


def _image_form(image: Image, *, with_images: bool) -> dict[str, Json]:
    form: dict[str, Json] = {"media_type": image.media_type, "sha256": image.sha256}
    if with_images and image.data is not None:
        form["data"] = base64.b64encode(image.data).decode("ascii")
    return form


def execution_form(execution: ExecutionOverride) -> dict[str, Json]:
    """Return the values of an execution; a number that is not sent is absent."""
    retry = execution.retry or RetryPolicy()
    return {
        **{
            name: list(value) if isinstance(value, tuple) else value
            for name in NUMBER_FIELDS
            if (value := getattr(execution, name)) is not None
        },
        "timeout_s": execution.timeout_s,
        "retry": {name: value for name, value in asdict(retry).items() if value is not None},
        "extra_body": thaw(execution.extra_body or {}),
    }


def event_form(event: AttemptEvent, *, with_content: bool) -> dict[str, Json]:
    """Return an attempt; the words of its error, which may quote the prompt, are content."""
    form = {attribute.name: getattr(event, attribute.name) for attribute in fields(AttemptEvent)}
    form["usage"] = None if event.usage is None else usage_form(event.usage)
    if not with_content:
        del form["error"]
    return form


def usage_form(usage: Usage) -> dict[str, Json]:
    """Return the numbers of a usage, null where nobody reported one."""
    return asdict(usage)


# ------------------------------------------------------------------------------------------------------- read


class Part:
    """One mapping of a form, read field by field. ``where`` names it in errors, ``""`` for the whole form."""

    def __init__(self, value: object, where: str = "") -> None:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where or 'it'} must be a mapping, not {describe(value)}")
        self._value = value
        self._where = where
        self._read: set[str] = set()

    def place(self, name: str) -> str:
        """Return the path of a field, for messages."""
        return f"{self._where}.{name}" if self._where else name

    def has(self, name: str) -> bool:
        """Say whether there is such a field."""
        return name in self._value

    def get(self, name: str) -> Any:
        """Return a field as it is; it must be there."""
        self._read.add(name)
        if name not in self._value:
            raise ConfigError(f"{self.place(name)} is missing")
        return self._value[name]

    def wrong(self, name: str, wanted: str) -> ConfigError:
        """Return the error for a field that is something else than ``wanted``."""
        return ConfigError(f"{self.place(name)} must be {wanted}, not {describe(self._value[name])}")

    def text(self, name: str) -> str:
        """Return a field that is a string."""
        value = self.get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a field that is a string or null."""
        return None if self.get(name) is None else self.text(name)

    def choice(self, name: str, choices: tuple[str, ...]) -> Any:
        """Return a field that is one of some strings."""
        if (value := self.text(name)) not in choices:
            raise ConfigError(f"{self.place(name)} must be one of {', '.join(choices)}")
        return value

    def flag(self, name: str) -> bool:
        """Return a field that is true or false."""
        value = self.get(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def integer(self, name: str) -> int:
        """Return a field that is an integer from 0."""
        value = self.get(name)
        if not is_integer(value) or not 0 <= value <= MAX_NUMBER:
            raise self.wrong(name, "an integer from 0")
        return int(value)

    def seconds(self, name: str) -> float:
        """Return a field that is a number from 0."""
        value = self.get(name)
        if not is_number(value) or not 0 <= value <= MAX_NUMBER:
            raise self.wrong(name, "a number of seconds")
        number: float = value
        return number

    def hash(self, name: str) -> str:
        """Return a field that is a hash."""
        value = self.text(name)
        digits = value.removeprefix("sha256:")
        if len(value) != 71 or len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):  # noqa: PLR2004  # 256 bits
            raise ConfigError(f"{self.place(name)} must be sha256: and 64 hexadecimal digits in lower case")
        return value

    def json(self, name: str) -> Json:
        """Return an immutable copy of a field that is any JSON value."""
        return _frozen(self.get(name), self.place(name), MAX_DEPTH)

    def part(self, name: str) -> Part:
        """Return a field that is a mapping."""
        return Part(self.get(name), self.place(name))

    def parts(self, name: str) -> list[Part]:
        """Return a field that is a list of mappings."""
        value = self.get(name)
        if not isinstance(value, (list, tuple)):
            raise self.wrong(name, "a list")
        return [Part(item, f"{self.place(name)}[{index}]") for index, item in enumerate(value)]

    def end(self) -> None:
        """Refuse what has not been read."""
        for key in self._value:
            if key not in self._read:
                if not isinstance(key, str):
                    raise ConfigError(f"{self._where or 'it'} must have strings for keys, not {describe(key)}")
                name = key[:80]
                raise ConfigError(f"{self._where or 'it'} has the unknown field {name!r}{nearest(name, self._read)}")


def message_of(part: Part) -> Message:
    """Return the message that a part says."""
    role = part.choice("role", ROLES)
    if not part.has("content"):
        raise ConfigError("its content was left out, and only the hashes are there")
    content = part.text("content")
    if part.hash("content_hash") != text_hash(content):
        raise ConfigError(f"{part.place('content')} is not the text that content_hash was made of")
    images = [_image_of(image) for image in part.parts("images")]
    part.end()
    return Message(role, content, images=images)


def _image_of(part: Part) -> Image:
    data = None
    sha256 = part.hash("sha256")
    if part.has("data"):
        try:
            data = base64.b64decode(part.text("data"), validate=True)
        except (binascii.Error, ValueError) as exc:
            raise ConfigError(f"{part.place('data')} must be base64") from exc
        if sha256_of_bytes(data) != sha256:
            raise ConfigError(f"{part.place('data')} is not the image that sha256 was made of")
    image = Image(part.text("media_type"), data, sha256)
    part.end()
    return image


def execution_of(part: Part, *, model: str | None) -> ExecutionOverride:
    """Return the execution values that a part says; what a value may be is the record's own business."""
    retry_part = part.part("retry")
    retry = RetryPolicy(**{a.name: retry_part.get(a.name) for a in fields(RetryPolicy) if retry_part.has(a.name)})
    retry_part.end()
    extra_body = part.get("extra_body")
    if not isinstance(extra_body, Mapping):
        raise part.wrong("extra_body", "a mapping")
    execution = ExecutionOverride(
        model=model,
        timeout_s=part.get("timeout_s"),
        retry=retry,
        extra_body=extra_body or None,
        **{name: part.get(name) for name in NUMBER_FIELDS if part.has(name)},
    )
    part.end()
    return execution


def event_of(part: Part) -> AttemptEvent:
    """Return the attempt that a part says."""
    event = AttemptEvent(
        number=part.integer("number"),
        kind=part.choice("kind", ("initial", "repair")),
        outcome=part.choice("outcome", ("succeeded", "failed", "cancelled")),
        is_dispatched=part.flag("is_dispatched"),
        queued_s=part.seconds("queued_s"),
        generation_s=part.seconds("generation_s"),
        backend=part.optional_text("backend"),
        model=part.optional_text("model"),
        usage=None if part.get("usage") is None else usage_of(part.part("usage")),
        finish_reason=part.optional_text("finish_reason"),
        request_id=part.optional_text("request_id"),
        phase=part.optional_text("phase"),
        error_type=part.optional_text("error_type"),
        error=part.optional_text("error"),
        next_delay_s=None if part.get("next_delay_s") is None else part.seconds("next_delay_s"),
    )
    part.end()
    return event


def usage_of(part: Part) -> Usage:
    """Return the usage that a part says; what a number may be is the record's own business."""
    usage = Usage(**{attribute.name: part.get(attribute.name) for attribute in fields(Usage)})
    part.end()
    return usage


def _frozen(value: object, where: str, depth: int) -> Json:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int) and -TOO_LONG < value < TOO_LONG:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if depth == 0:
        raise ConfigError(f"{where} is nested too deeply")
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ConfigError(f"{where} must have strings for keys")
        return FrozenDict({key: _frozen(item, where, depth - 1) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return FrozenList([_frozen(item, where, depth - 1) for item in value])
    raise ConfigError(f"{where} must be a JSON value, not {describe(value)}")
