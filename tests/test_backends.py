"""Backends and the registry: numbers, names and secrets."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest

from promptkit import Backend
from promptkit._backends import Registry
from promptkit._ledger import CapacityPolicy
from promptkit.errors import ConfigError, UnknownNameError

ENDPOINT = "http://127.0.0.1:8080/v1"


@pytest.mark.parametrize(
    ("limit", "queue", "expected"),
    [
        (None, None, None),
        (0, None, None),
        (3, None, CapacityPolicy(3, 1024)),
        (3, 0, CapacityPolicy(3, 0)),
        (3, 7, CapacityPolicy(3, 7)),
        (1, sys.maxsize - 1, CapacityPolicy(1, sys.maxsize - 1)),
    ],
)
def test_capacity_numbers_mean_what_the_table_says(
    limit: int | None, queue: int | None, expected: CapacityPolicy | None
) -> None:
    """Unlimited backends have no policy; an omitted queue is 1024, and 0 is 0."""
    registry = Registry([Backend("b", endpoint=ENDPOINT, concurrency_limit=limit, queue_capacity=queue)])
    assert registry.capacity_policies().get("b") == expected


@pytest.mark.parametrize(
    ("limit", "queue", "named"),
    [
        (None, 0, "queue_capacity"),
        (None, 5, "queue_capacity"),
        (0, 0, "queue_capacity"),
        (-1, None, "concurrency_limit"),
        (True, None, "concurrency_limit"),
        (1.0, None, "concurrency_limit"),
        ("1", None, "concurrency_limit"),
        (1, -1, "queue_capacity"),
        (1, True, "queue_capacity"),
        (1, 1.5, "queue_capacity"),
        (1, sys.maxsize, "maxsize"),
        (sys.maxsize + 1, None, "maxsize"),
        (sys.maxsize, None, "maxsize"),
    ],
)
def test_capacity_numbers_that_mean_nothing_are_refused(limit: Any, queue: Any, named: str) -> None:
    """Each is a ConfigError that names the number."""
    with pytest.raises(ConfigError, match=named):
        Backend("b", endpoint=ENDPOINT, concurrency_limit=limit, queue_capacity=queue)


@pytest.mark.parametrize(
    "settings",
    [
        {"id": ""},
        {"id": " b"},
        {"id": 3},
        {"endpoint": "ftp://h/v1"},
        {"endpoint": 3},
        {"api_key": 3},
        {"api_key": "k", "api_key_env": "K"},
        {"headers": {"a": 1}},
        {"headers": "a"},
        {"structured_output": "xml"},
        {"session_field": ""},
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    """Names, addresses, keys and headers are checked when the backend is made."""
    with pytest.raises(ConfigError):
        Backend(**{"id": "b", "endpoint": ENDPOINT, **settings})


def test_openrouter_is_built_in_with_its_numbers() -> None:
    """The registry, and nothing else, owns 16 in flight and 1024 waiting."""
    registry = Registry()
    backend = registry.resolve("openrouter", where="profile x")
    assert (backend.endpoint, backend.api_key_env, backend.session_field) == (
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        "session_id",
    )
    assert registry.capacity_policies() == {"openrouter": CapacityPolicy(16, 1024)}


def test_reserved_and_repeated_ids_are_refused() -> None:
    """An application cannot redefine a built-in backend, nor one of its own."""
    with pytest.raises(ConfigError, match="reserved"):
        Registry([Backend("openrouter", endpoint=ENDPOINT)])
    with pytest.raises(ConfigError, match="two backends"):
        Registry([Backend("b", endpoint=ENDPOINT), Backend("b", endpoint=ENDPOINT)])
    with pytest.raises(ConfigError, match="Backend objects"):
        Registry(["b"])  # type: ignore[list-item]  # the mistake under test


def test_an_unknown_backend_offers_the_nearest() -> None:
    """The error names where it was asked for, and what there is."""
    with pytest.raises(UnknownNameError, match=r"profile x.*did you mean 'openrouter'"):
        Registry().resolve("openruter", where="profile x")


def test_policies_are_the_callers_own() -> None:
    """Changing the mapping changes no registry."""
    registry = Registry()
    registry.capacity_policies().clear()
    assert registry.capacity_policies()


def test_a_key_shows_nowhere() -> None:
    """Not in repr and not in a pickle; a backend that went through one says so when its key is asked for."""
    backend = Backend("b", endpoint=ENDPOINT, api_key="sk-very-secret")
    assert "very-secret" not in repr(backend)
    data = pickle.dumps(backend)
    assert b"very-secret" not in data
    copy = pickle.loads(data)
    assert copy == backend
    assert copy.api_key is not None
    with pytest.raises(ConfigError, match="pickle"):
        copy.api_key.reveal()
