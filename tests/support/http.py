"""Posting through a `Transport`, as tests do it, and acting at the moment when an exchange enters a phase."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from promptkit._cancel import CancelToken
from promptkit._exchange import Exchange
from support.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from promptkit._transport import Answer, Transport

SOON_S = 0.03
"""How long a wait lasts whose end is what is tested."""


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


def on_phase(monkeypatch: pytest.MonkeyPatch, phase: str, act: Callable[[Exchange], object]) -> None:
    """Call ``act`` with each exchange that enters ``phase``, in its thread, however long it took to get there."""
    enter = Exchange.enter

    def enter_and_act(exchange: Exchange, entered: Any) -> None:
        was_there = exchange.phase == entered
        enter(exchange, entered)
        if entered == phase and not was_there:
            act(exchange)

    monkeypatch.setattr(Exchange, "enter", enter_and_act)


def late_in(monkeypatch: pytest.MonkeyPatch, phase: str) -> CancelToken:
    """Return a token whose time is up as soon as its exchange has entered ``phase``."""
    clock = FakeClock()
    on_phase(monkeypatch, phase, lambda _: clock.advance(1))
    return CancelToken(timeout=SOON_S, clock=clock)


def time_out_in(monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    """Let the attempt's own time be up soon after its exchange has entered ``phase``."""

    def shorten(exchange: Exchange) -> None:
        exchange.end = exchange._whole_end = time.monotonic() + SOON_S

    on_phase(monkeypatch, phase, shorten)
