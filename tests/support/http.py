"""Posting through a `Transport`, as tests do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptkit._cancel import CancelToken

if TYPE_CHECKING:
    from promptkit._transport import Answer, Transport


def post(transport: Transport, url: str, **changes: Any) -> Answer:
    """Post a small body, with more patience than any test needs; ``changes`` replace arguments of `post`."""
    arguments: dict[str, Any] = {
        "body": b'{"model": "m1"}',
        "headers": {"Authorization": "Bearer key-1"},
        "timeout_s": 20,
        "cancel": CancelToken(),
        "max_bytes": 1 << 20,
        "use_proxy": True,
    }
    return transport.post(url, **{**arguments, **changes})
