"""Named model servers, and the frozen registry that owns their numbers.

Guarantees: a `Backend` is checked when it is made and never changes; a `Registry` has the built-in backends
and the application's, ids unique and the built-in ones reserved; capacity leaves it only through
`Registry.capacity_policies`, a fresh mapping with the limited backends alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from attrs import evolve, field, frozen

from promptkit._fields import (
    FrozenDict,
    Secret,
    describe,
    freeze_headers,
    is_integer,
    nearest,
    optional_text,
    shown_endpoint,
)
from promptkit._ledger import CapacityPolicy
from promptkit._types import STRUCTURED_OUTPUTS, StructuredOutput
from promptkit._wire import target_url
from promptkit.errors import ConfigError, UnknownNameError

DEFAULT_QUEUE_CAPACITY: Final = 1024


def _secret(value: object) -> Secret | None:
    if value is None or isinstance(value, Secret):
        return value
    if isinstance(value, str) or callable(value):
        return Secret(value)
    raise ConfigError(f"Backend.api_key must be a string or a function that returns one, not {describe(value)}")


def _headers(value: object) -> FrozenDict[str, str]:
    return freeze_headers(value, "Backend.headers")


@frozen
class Backend:
    """A named model server.

    ``id`` names it in profiles and errors. ``endpoint`` is the address that ``/chat/completions`` is added
    to, ``http://127.0.0.1:8080/v1`` for example. The credential is ``api_key``, a string or a function called
    at each run, or else the environment variable named by ``api_key_env``; with neither, none is sent.
    ``session_field`` names the body field that takes a session id; None sends none. ``structured_output``
    says how a contract travels: as a JSON Schema, as "some JSON object", or in the prompt alone.

    ``concurrency_limit`` bounds attempts in flight and ``queue_capacity`` the runs that wait beyond them:

    ===========  ==============  ==========================================
    limit        queue           meaning
    ===========  ==============  ==========================================
    None or 0    None            unlimited
    n > 0        None            n in flight, 1024 waiting
    n > 0        q >= 0          exactly that, 0 included
    otherwise                    `ConfigError`
    ===========  ==============  ==========================================

    Limits hold for one engine in one process. Raises `ConfigError` for anything that is not as described.
    The credential is not shown by ``repr`` and not carried by a pickle, and neither are headers with names as
    credentials have them.
    """

    id: str
    endpoint: str = field(kw_only=True, repr=shown_endpoint)
    api_key_env: str | None = field(default=None, kw_only=True, validator=optional_text())
    api_key: Secret | None = field(default=None, kw_only=True, repr=False, eq=False, converter=_secret)
    headers: FrozenDict[str, str] = field(factory=FrozenDict, kw_only=True, repr=False, converter=_headers)
    session_field: str | None = field(default=None, kw_only=True, validator=optional_text())
    structured_output: StructuredOutput = field(default="json_schema", kw_only=True)
    concurrency_limit: int | None = field(default=None, kw_only=True)
    queue_capacity: int | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if not is_name(self.id):
            raise ConfigError(f"Backend.id must be a name without outer spaces, not {self.id!r}")
        if not isinstance(self.endpoint, str):
            raise ConfigError(f"backend {self.id!r}: endpoint must be a string, not {describe(self.endpoint)}")
        target_url(self.endpoint)
        if self.api_key is not None and self.api_key_env is not None:
            raise ConfigError(f"backend {self.id!r}: give api_key or api_key_env, not both")
        if self.structured_output not in STRUCTURED_OUTPUTS:
            raise ConfigError(
                f"backend {self.id!r}: structured_output must be one of {', '.join(STRUCTURED_OUTPUTS)}, "
                f"not {self.structured_output!r}"
            )
        _check_capacity(self)


def is_name(value: object) -> bool:
    """True for a string that is not blank and has no spaces around it."""
    return isinstance(value, str) and bool(value.strip()) and value == value.strip()


def _check_capacity(backend: Backend) -> None:
    for name in ("concurrency_limit", "queue_capacity"):
        value = getattr(backend, name)
        if value is None:
            continue
        if not is_integer(value):
            raise ConfigError(f"backend {backend.id!r}: {name} must be an integer or None, not {describe(value)}")
        if value < 0:
            raise ConfigError(f"backend {backend.id!r}: {name} must be 0 or more, or None, not {value}")
    if backend.queue_capacity is not None and not backend.concurrency_limit:
        raise ConfigError(
            f"backend {backend.id!r}: queue_capacity {backend.queue_capacity} without a concurrency_limit "
            "means nothing; set concurrency_limit, or leave queue_capacity out"
        )
    _policy(backend)


def _policy(backend: Backend) -> CapacityPolicy | None:
    if not backend.concurrency_limit:
        return None
    queue = DEFAULT_QUEUE_CAPACITY if backend.queue_capacity is None else backend.queue_capacity
    return CapacityPolicy(backend.concurrency_limit, queue)


OPENROUTER: Final = "openrouter"


def _built_in() -> tuple[Backend, ...]:
    # Source of the address, the key's usual name and the session field: OpenRouter's API reference.
    return (
        Backend(
            OPENROUTER,
            endpoint="https://openrouter.ai/api/v1",
            api_key_env="OPENROUTER_API_KEY",
            session_field="session_id",
            concurrency_limit=16,
            queue_capacity=1024,
        ),
    )


class Registry:
    """The backends of one engine, immutable.

    ``backends`` are the application's. Raises `ConfigError` for an id given twice, for a reserved one, and
    for anything that is not a `Backend`.
    """

    __slots__ = ("_backends",)

    def __init__(self, backends: Iterable[Backend] = ()) -> None:
        given: object = backends
        if not isinstance(given, Iterable):
            raise ConfigError(f"backends must be a list of Backend objects, not {describe(given)}")
        known = {backend.id: _normalised(backend) for backend in _built_in()}
        reserved = frozenset(known)
        for backend in given:
            if not isinstance(backend, Backend):
                raise ConfigError(f"backends must be Backend objects, not {describe(backend)}")
            if backend.id in reserved:
                raise ConfigError(f"the backend id {backend.id!r} is built in and reserved; use another id")
            if backend.id in known:
                raise ConfigError(f"two backends have the id {backend.id!r}; ids must be unique")
            known[backend.id] = _normalised(backend)
        self._backends: Mapping[str, Backend] = MappingProxyType(known)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids, sorted."""
        return tuple(sorted(self._backends))

    def resolve(self, backend_id: str, *, where: str) -> Backend:
        """Return the backend. Raises `UnknownNameError` that names ``where`` it was asked for."""
        try:
            return self._backends[backend_id]
        except KeyError:
            raise UnknownNameError(
                f"{where}: no backend is called {backend_id!r}{nearest(backend_id, self._backends)}; "
                f"known are {', '.join(map(repr, self.ids))}"
            ) from None

    def capacity_policies(self) -> dict[str, CapacityPolicy]:
        """Return the policies of the limited backends, in a mapping of the caller's own."""
        return {name: policy for name, backend in self._backends.items() if (policy := _policy(backend))}


def _normalised(backend: Backend) -> Backend:
    """Return the backend with its capacity spelled out: None for unlimited, never 0 and never a default."""
    policy = _policy(backend)
    return evolve(
        backend,
        concurrency_limit=policy.concurrency_limit if policy else None,
        queue_capacity=policy.queue_capacity if policy else None,
    )


__all__ = ["DEFAULT_QUEUE_CAPACITY", "OPENROUTER", "Backend", "Registry"]
