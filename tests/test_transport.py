from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from promptkit._cancel import CancelToken
from promptkit._transport import Answer, Transport
from promptkit.errors import DeadlineExceededError
from support.server import Server, completion, hang, reply


@pytest.fixture
def transport() -> Iterator[Transport]:
    """A transport that takes nothing from the environment."""
    transport = Transport(pool_size=4, proxies={})
    yield transport
    transport.close()


def post(transport: Transport, url: str, **changes: Any) -> Answer:
    """Post a small body with an amount of patience that no test should need."""
    arguments: dict[str, Any] = {
        "body": b"{}",
        "headers": {"Authorization": "Bearer key-1"},
        "timeout_s": 20,
        "cancel": CancelToken(),
        "max_bytes": 1 << 20,
        "use_proxy": True,
    }
    return transport.post(url, **{**arguments, **changes})


def test_an_answer_comes_back_whole(transport: Transport) -> None:
    """Status, headers and body are the server's, and the connection is used again."""
    with Server(reply(json=completion("hi"), headers={"X-Request-Id": "r1"})) as server:
        for _ in range(2):
            answer = post(transport, f"{server.url}/v1/chat/completions?a=1")
            assert (answer.status, answer.headers["x-request-id"]) == (200, "r1")
        assert server.connections == 1
        request = server.requests[0]
    assert (request.method, request.target) == ("POST", "/v1/chat/completions?a=1")
    assert request.headers["authorization"] == "Bearer key-1"
    assert request.body == b"{}"


def test_a_deadline_ends_a_silent_wait(transport: Transport) -> None:
    """A server that never answers is left when the token's time is up."""
    with Server(hang()) as server, pytest.raises(DeadlineExceededError) as caught:
        post(transport, server.url, cancel=CancelToken(timeout=0.1))
    assert caught.value.phase == "first byte"
