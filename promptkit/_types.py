"""The frozen records that go in and come out: requests, messages, what was sent, what it cost.

Guarantees: every record is immutable all the way down, comparable by value and picklable; a constructor
copies what it is given and refuses what the field does not allow with a `ConfigError` (an
`InvalidRequestError` where it is part of a request); ``None`` always means absent, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, get_args

from attrs import evolve, field, fields, frozen

from promptkit._canonical import sha256_of
from promptkit._fields import (
    FrozenDict,
    Json,
    Secret,
    describe,
    freeze,
    freeze_headers,
    freeze_json,
    is_unicode,
    merge_headers,
    optional_number,
    optional_text,
    shown_endpoint,
    thaw,
)
from promptkit.errors import ConfigError, InputError, InvalidRequestError

Role = Literal["system", "user", "assistant"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

OutputFormat = Literal["text", "json", "json_schema"]
StructuredOutput = Literal["json_schema", "json_object", "prompt"]
OUTPUT_FORMATS: Final[tuple[OutputFormat, ...]] = get_args(OutputFormat)
STRUCTURED_OUTPUTS: Final[tuple[StructuredOutput, ...]] = get_args(StructuredOutput)
AttemptKind = Literal["initial", "repair"]
AttemptOutcome = Literal["succeeded", "failed", "cancelled"]


# ------------------------------------------------------------------------------------------- small records


@frozen
class Problem:
    """Something wrong in a file. ``str()`` is ``path:line:column: message``, which editors jump to.

    ``line`` and ``column`` are 1-based; 0 when the problem has no place in the file.
    """

    path: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        return f"{place}: {self.message}"


@frozen
class Issue:
    """One thing wrong with a model's output.

    ``pointer`` is a JSON Pointer (RFC 6901) to the offending value, ``""`` for the whole; ``keyword`` is the
    schema keyword or the rule that it breaks; ``expected`` says what would be right, where that is known.
    """

    pointer: str
    keyword: str
    message: str
    expected: str | None = None

    def __str__(self) -> str:
        return f"{self.pointer or '(root)'}: {self.message}"


def _add(left: Any, right: Any) -> Any:
    if left is None:
        return right
    return left if right is None else left + right


@frozen(kw_only=True)
class Usage:
    """Tokens spent, and the provider's cost where it gives one; a number nobody reported is None.

    ``cached_tokens`` are part of ``prompt_tokens`` and ``reasoning_tokens`` part of ``completion_tokens``:
    neither is added to ``total_tokens``. ``cost`` is in the provider's own unit (OpenRouter: US dollars).
    Two usages add up field by field. Raises `ConfigError` for what is no number, and for a negative count.
    """

    prompt_tokens: int | None = field(default=None, validator=optional_number(minimum=0, integer=True))
    completion_tokens: int | None = field(default=None, validator=optional_number(minimum=0, integer=True))
    total_tokens: int | None = field(default=None, validator=optional_number(minimum=0, integer=True))
    cached_tokens: int | None = field(default=None, validator=optional_number(minimum=0, integer=True))
    reasoning_tokens: int | None = field(default=None, validator=optional_number(minimum=0, integer=True))
    cost: float | None = field(default=None, validator=optional_number())

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompt_tokens=_add(self.prompt_tokens, other.prompt_tokens),
            completion_tokens=_add(self.completion_tokens, other.completion_tokens),
            total_tokens=_add(self.total_tokens, other.total_tokens),
            cached_tokens=_add(self.cached_tokens, other.cached_tokens),
            reasoning_tokens=_add(self.reasoning_tokens, other.reasoning_tokens),
            cost=_add(self.cost, other.cost),
        )


# ------------------------------------------------------------------------------------ inputs and messages


def _artifact_data(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise InvalidRequestError(f"Artifact.data must be bytes or None, not {describe(value)}")


@frozen
class Artifact:
    """A file or bytes given as an input: exactly one of ``path`` and ``data``.

    ``path`` is read when the run is completed, and must lie under the engine's ``artifacts`` root; ``data``
    is used as it is. ``name`` is shown in errors. The media type is found from the content, never from the
    name; ``media_type`` may say what it is expected to be, and a difference is refused then, as an
    `ArtifactError`. Raises `InvalidRequestError` for both or neither of the two, and for other types. ::

        engine.run("invoice/extract", inputs={"scan": Artifact("2026/07.png"), "text": Artifact(data=upload.read())})
    """

    path: str | None = None
    data: bytes | None = field(default=None, kw_only=True, repr=False, converter=_artifact_data)
    name: str | None = field(default=None, kw_only=True)
    media_type: str | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if (self.path is None) == (self.data is None):
            raise InvalidRequestError("an Artifact takes either a path or data, and one of them is needed")
        for field_name in ("path", "name", "media_type"):
            value = getattr(self, field_name)
            if value is not None and not isinstance(value, str):
                raise InvalidRequestError(f"Artifact.{field_name} must be a string or None, not {describe(value)}")


@frozen
class Image:
    """An image that a message carries: its bytes, and the media type its bytes have.

    ``data`` is None only in a record that was read back from a form without the bytes. ``sha256`` is
    ``sha256:`` and the hexadecimal digest of the bytes; it stands for them when two images are compared.
    """

    media_type: str
    data: bytes | None = field(repr=False, eq=False)
    sha256: str


def _images(images: Iterable[Image]) -> tuple[Image, ...]:
    given: object = images
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping)):
        raise InvalidRequestError(f"a Message's images must be a list of Image records, not {describe(given)}")
    several = tuple(given)
    for image in several:
        if not isinstance(image, Image):
            raise InvalidRequestError(
                f"a Message's images must be Image records, as earlier messages have them, not {describe(image)}; "
                "give an Artifact to an input of the type image instead"
            )
    return several


@frozen
class Message:
    """One turn: who speaks, the text, and the images that go with it (in order, after the text).

    ``role`` is ``"system"``, ``"user"`` or ``"assistant"``; ``content`` is sent as it is and is never a template.
    ``images`` are those of another message: what a run has prepared, to be sent again as history. Raises
    `InvalidRequestError` for another role or type.
    """

    role: Role
    content: str = field(repr=False)
    images: tuple[Image, ...] = field(default=(), converter=_images, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.role not in ROLES:
            raise InvalidRequestError(f"a Message's role must be one of {', '.join(ROLES)}, not {self.role!r}")
        if not isinstance(self.content, str):
            raise InvalidRequestError(f"a Message's content must be a string, not {describe(self.content)}")


# --------------------------------------------------------------------------------------- execution values


@frozen(kw_only=True)
class RetryPolicy:
    """How often and how patiently one run tries again. ``None`` leaves a number to the layer below.

    ``budget``: retries of a whole run, repairs' retries included (default 2; 0 turns retrying off).
    ``base_delay_s``, ``max_delay_s``: of the exponential wait with full jitter (0.5, 20).
    ``max_retry_after_s``: a server's hint above this fails at once (60).
    """

    budget: int | None = field(default=None, validator=optional_number(minimum=0, maximum=100, integer=True))
    base_delay_s: float | None = field(default=None, validator=optional_number(minimum=0, maximum=3600))
    max_delay_s: float | None = field(default=None, validator=optional_number(minimum=0, maximum=3600))
    max_retry_after_s: float | None = field(default=None, validator=optional_number(minimum=0, maximum=86400))


def _retry(value: object) -> object:
    if isinstance(value, Mapping):
        known = [a.name for a in fields(RetryPolicy)]
        for name in value:
            if name not in known:
                raise ConfigError(f"retry has no field {name!r}; known are {', '.join(known)}")
        return RetryPolicy(**value)
    if value is None or isinstance(value, RetryPolicy):
        return value
    raise ConfigError(f"retry must be a mapping, not {describe(value)}")


def _stop(value: object) -> object:
    if value is None:
        return None
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
        raise ConfigError(f"stop must be a string or a list of strings, not {describe(value)}")
    if not all(map(is_unicode, items)):
        raise ConfigError("stop has half of a surrogate pair in it, which no encoding of Unicode takes")
    return tuple(items)


def _headers(value: object) -> object:
    return None if value is None else freeze_headers(value, "ExecutionOverride.headers")


def _extra_body(value: object) -> object:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ConfigError(f"ExecutionOverride.extra_body must be a mapping, not {describe(value)}")
    return freeze_json(value, "ExecutionOverride.extra_body")


@frozen(kw_only=True)
class ExecutionOverride:
    """Execution values: of a profile, of a prompt's ``execution``, or of one request; later ones win.

    Every field is optional and ``None`` means *absent*: nothing is sent and the layer below decides, while
    0, 0.0, "" and [] are values and are sent. ``temperature`` is 0 or more, ``top_p`` from 0 to 1,
    ``max_tokens`` 1 or more; ``stop`` is a string or a list of strings; what else a model takes is for its server
    to say. ``timeout_s`` bounds one attempt in seconds (above 0, at most a day), connect, headers and body
    together; ``retry`` is a mapping of ``budget``, ``base_delay_s``, ``max_delay_s`` and ``max_retry_after_s``.
    ``headers`` and ``extra_body`` are merged key by key, ``headers`` whatever the case of their names.
    ``endpoint`` changes the address only: the backend, its pool and its credential rules stay. Raises
    `ConfigError` for a value that its field does not allow. ::

        engine.run("ticket/sort", inputs={"text": text}, override=ExecutionOverride(temperature=0, max_tokens=200))
    """

    model: str | None = field(default=None, validator=optional_text())
    endpoint: str | None = field(default=None, validator=optional_text(), repr=shown_endpoint)
    temperature: float | None = field(default=None, validator=optional_number(minimum=0))
    top_p: float | None = field(default=None, validator=optional_number(minimum=0, maximum=1))
    max_tokens: int | None = field(default=None, validator=optional_number(minimum=1, integer=True))
    seed: int | None = field(default=None, validator=optional_number(integer=True))
    stop: tuple[str, ...] | None = field(default=None, converter=_stop)
    presence_penalty: float | None = field(default=None, validator=optional_number())
    frequency_penalty: float | None = field(default=None, validator=optional_number())
    timeout_s: float | None = field(default=None, validator=optional_number(above=0, maximum=86400))
    retry: RetryPolicy | None = field(default=None, converter=_retry)
    headers: FrozenDict[str, str] | None = field(default=None, converter=_headers, repr=False)
    extra_body: FrozenDict[str, Json] | None = field(default=None, converter=_extra_body, repr=False)

    def merged_with(self, later: ExecutionOverride) -> ExecutionOverride:
        """Return these values with those that ``later`` has laid over them."""
        changes: dict[str, Any] = {}
        for attribute in fields(ExecutionOverride):
            value = getattr(later, attribute.name)
            if value is None:
                continue
            mine = getattr(self, attribute.name)
            if attribute.name == "headers":
                value = merge_headers(mine or {}, value)
            elif attribute.name == "extra_body":
                value = FrozenDict({**(mine or {}), **value})
            elif isinstance(value, RetryPolicy) and mine is not None:
                value = evolve(
                    mine, **{a.name: v for a in fields(RetryPolicy) if (v := getattr(value, a.name)) is not None}
                )
            changes[attribute.name] = value
        return evolve(self, **changes) if changes else self


NUMBER_FIELDS: Final = (
    "temperature",
    "top_p",
    "max_tokens",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
)
"""The execution values that are sent to the model under their own names."""

NO_OVERRIDE: Final = ExecutionOverride()


def _inputs(value: object) -> object:
    if not isinstance(value, Mapping):
        raise InvalidRequestError(f"RunRequest.inputs must be a mapping of names to values, not {describe(value)}")
    if isinstance(value, FrozenDict):
        return value
    inputs = {}
    for name, item in value.items():
        try:
            inputs[name] = freeze(item)
        except RecursionError as exc:
            raise InputError(f"input {name!r} is nested too deeply, or contains itself", name=name) from exc
    return FrozenDict(inputs)


@frozen
class RunRequest:
    """What is asked of an engine: which prompt, with which inputs, on which profile.

    ``prompt`` is a prompt id: its path below the prompts folder without the suffix, with ``/`` between
    parts. ``inputs`` maps names to JSON-like values, `Artifact` and, for type ``messages``, lists of turns.
    ``profile`` names another profile than the prompt's own. ``session_id`` bypasses the prompt's session
    template. ``override`` is the last layer of execution values. What the prompt asks of its inputs is checked when
    it is prepared; here, `InvalidRequestError` is raised for other types, and for a blank name.
    """

    prompt: str
    inputs: FrozenDict[str, Any] = field(factory=FrozenDict, converter=_inputs, repr=False)
    profile: str | None = field(default=None, kw_only=True)
    session_id: str | None = field(default=None, kw_only=True)
    override: ExecutionOverride = field(default=NO_OVERRIDE, kw_only=True)

    def __attrs_post_init__(self) -> None:
        for name in ("prompt", "profile", "session_id"):
            value = getattr(self, name)
            if value is None and name != "prompt":
                continue
            if not isinstance(value, str) or not value.strip():
                given = "a blank one" if isinstance(value, str) else describe(value)
                raise InvalidRequestError(f"RunRequest.{name} must be a string that is not blank, not {given}")
        if not isinstance(self.override, ExecutionOverride):
            raise InvalidRequestError(
                f"RunRequest.override must be an ExecutionOverride, not {describe(self.override)}"
            )


# --------------------------------------------------------------------------- what a model client is given


def tuple_of_messages(value: Iterable[Message]) -> tuple[Message, ...]:
    """Copy messages into a tuple. Raises `ConfigError` for anything else."""
    given: object = value
    if not isinstance(given, Iterable):
        raise ConfigError(f"messages must be a list of Message records, not {describe(given)}")
    several = tuple(given)
    for message in several:
        if not isinstance(message, Message):
            raise ConfigError(f"messages must be Message records, not {describe(message)}")
    return several


@frozen(kw_only=True)
class GenerateRequest:
    """One attempt as a model client sees it: complete, provider-neutral, without any capacity number.

    ``endpoint`` is the address that ``/chat/completions`` belongs below. A number that is None is not to be sent;
    ``max_tokens_field`` is the name that ``max_tokens`` goes under. ``extra_body`` is merged into the body and
    ``headers`` into the headers, by the author's wish. ``session_id`` goes into the body field ``session_field``,
    where there is one. ``output_schema`` is a self-contained JSON Schema, ``output_schema_name`` its name on the wire,
    and ``is_strict`` asks for strict mode; ``structured_output`` says how the contract travels: as a
    ``json_schema`` response format, as ``json_object``, or in the ``prompt`` alone. ``timeout_s`` bounds the attempt,
    in seconds. ``credential`` is None for a server that needs none (``credential.reveal()`` gives it); it does not
    survive a pickle, and shows in no repr.
    """

    messages: tuple[Message, ...] = field(converter=tuple_of_messages)
    endpoint: str = field(repr=shown_endpoint)
    model: str | None = None
    backend_id: str | None = None
    profile: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_tokens_field: str = "max_tokens"
    extra_body: FrozenDict[str, Json] = field(factory=FrozenDict, repr=False)
    headers: FrozenDict[str, str] = field(factory=FrozenDict, repr=False)
    session_id: str | None = None
    session_field: str | None = None
    output_format: OutputFormat = "text"
    output_schema: Json = field(default=None, repr=False)
    output_schema_hash: str | None = None
    """``sha256:`` of the canonical form of ``output_schema``."""
    output_schema_name: str = "output"
    is_strict: bool = False
    structured_output: StructuredOutput = "json_schema"
    timeout_s: float = 600.0
    proxy: str | None = None
    """None takes the engine's proxies; ``"none"`` sends directly."""
    credential: Secret | None = field(default=None, repr=False, eq=False)
    credential_variable: str | None = None
    """Where the credential came from (an environment variable's name), for messages."""

    def rendered_form(self) -> dict[str, Json]:
        """Return what `rendered_hash` is over, as plain data: the caller's own, and small enough to read.

        Images and the schema stand in it by their hashes.
        """
        return {
            "messages": [
                {"role": m.role, "content": m.content, "images": [image.sha256 for image in m.images]}
                for m in self.messages
            ],
            "model": self.model,
            "numbers": {name: thaw(value) for name in NUMBER_FIELDS if (value := getattr(self, name)) is not None},
            "extra_body": thaw(self.extra_body),
            "output": {
                "format": self.output_format,
                "schema": self.output_schema_hash,
                "strict": self.is_strict,
                "structured_output": self.structured_output if self.output_format != "text" else None,
            },
        }

    def rendered_hash(self) -> str:
        """Return the hash of what this request says: messages, contract, model, numbers and extra body.

        Where it goes, on whose credential, and how long it may take are not part of it.
        """
        return sha256_of(self.rendered_form())


@frozen(kw_only=True)
class GenerateResponse:
    """What a model client gives back for one attempt.

    ``text`` is what the model wrote; None when it wrote none. ``finish_reason`` is the server's word
    (``"stop"``, ``"length"``, ``"content_filter"``, ``"error"`` …). ``refusal`` is the model's own refusal.
    ``rejection`` is set when the server itself found its model's output invalid; ``text`` is then that output.
    ``reasoning`` is what the model thought before it answered, ``model`` and ``request_id`` the server's own names.
    A response of other types is refused by the run, as a `MalformedResponseError`.
    """

    text: str | None = field(default=None, repr=False)
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None
    reasoning: str | None = field(default=None, repr=False)
    refusal: str | None = field(default=None, repr=False)
    rejection: str | None = None
    request_id: str | None = None


@frozen(kw_only=True)
class AttemptEvent:
    """One attempt, as an observer hears of it once its permit has been released.

    ``number`` counts from 1 over the run, repairs included. ``is_dispatched`` is False when it was ended
    while still waiting to be sent. ``queued_s`` is the wait for a permit and ``generation_s`` the time with
    it, in seconds. ``phase`` is where it failed (see `GenerationError`). ``error`` is the error's message and
    ``error_type`` its class name, None on success. ``usage`` is what this one answer reported.
    ``next_delay_s`` is the wait before the next attempt of the same turn, None when there is none.
    """

    number: int
    kind: AttemptKind
    outcome: AttemptOutcome
    is_dispatched: bool
    queued_s: float
    generation_s: float
    backend: str | None = None
    model: str | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    request_id: str | None = None
    phase: str | None = None
    error_type: str | None = None
    error: str | None = None
    next_delay_s: float | None = None
