"""Bounds and interrupts of one exchange."""

from __future__ import annotations

import types

import pytest

from promptkit import _exchange
from promptkit._cancel import CancelToken
from promptkit._exchange import Exchange, Stopped
from support.clock import FakeClock


def new_exchange(cancel: CancelToken | None = None, *, timeout_s: float = 20, connect_s: float = 20) -> Exchange:
    """Return an exchange with time enough."""
    return Exchange(cancel or CancelToken(), timeout_s=timeout_s, connect_s=connect_s)


# ---------------------------------------------------------------------------------------------- bounds


def test_a_wait_is_bounded_by_the_attempt() -> None:
    """Without a deadline it is timeout_s that counts."""
    exchange = new_exchange(timeout_s=5)
    assert 4 < exchange.wait_s() <= 5
    assert not exchange.is_connect_bound


def test_a_wait_is_bounded_by_the_token() -> None:
    """The nearer of the two ends counts."""
    assert new_exchange(CancelToken(timeout=3), timeout_s=5).wait_s() <= 3
    assert new_exchange(CancelToken(timeout=9), timeout_s=5).wait_s() <= 5


def test_connecting_has_a_bound_of_its_own() -> None:
    """It holds for that phase alone, and again when a second connection is needed."""
    exchange = new_exchange(timeout_s=500, connect_s=5)
    assert exchange.wait_s() <= 5
    assert exchange.is_connect_bound
    exchange.enter("send")
    assert exchange.wait_s() > 400
    exchange.enter("connect")
    assert exchange.wait_s() <= 5


@pytest.mark.parametrize(
    "exchange",
    [new_exchange(timeout_s=0), new_exchange(connect_s=0), new_exchange(CancelToken(timeout=0))],
    ids=["attempt", "connect", "token"],
)
def test_when_time_is_up_nothing_may_wait(exchange: Exchange) -> None:
    """Whichever bound it was."""
    assert exchange.is_over
    with pytest.raises(Stopped):
        exchange.wait_s()


def test_a_token_on_another_clock_is_asked_again() -> None:
    """Real time has passed, but by the token's clock there is time left: the exchange goes on."""
    clock = FakeClock()
    exchange = new_exchange(CancelToken(timeout=0.001, clock=clock))
    exchange.end = 0.0
    exchange.enter("send")
    exchange.end = 0.0
    assert 0 < exchange.wait_s() <= 0.001
    clock.advance(1)
    exchange.end = 0.0
    assert exchange.is_over


def test_a_token_that_polls_is_asked_and_slices_the_wait() -> None:
    """No wait is longer than the interval; once the poll says so, it is over."""
    answers = iter([False, False, True])
    exchange = new_exchange(CancelToken(poll=lambda: next(answers), poll_interval_s=0.25))
    assert exchange.wait_s() == 0.25
    assert not exchange.is_over
    assert exchange.is_over


def test_each_phase_is_charged_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What passes between two changes is the former phase's, added up when a phase comes again."""
    times = iter([0.0, 1.0, 3.0, 6.0, 10.0])
    monkeypatch.setattr(_exchange, "time", types.SimpleNamespace(monotonic=lambda: next(times)))
    exchange = new_exchange()
    for phase in ("send", "first byte", "connect", "send"):
        exchange.enter(phase)
    assert exchange.timings == {"connect": 1.0 + 4.0, "send": 2.0, "first byte": 3.0}


# ------------------------------------------------------------------------------------------- interrupts


def test_an_interrupt_wakes_once() -> None:
    """The waker is called by the first interrupt, and cannot be had back."""
    exchange = new_exchange()
    woken: list[int] = []
    exchange.arm(lambda: woken.append(1))
    exchange.interrupt()
    exchange.interrupt()
    assert woken == [1]
    assert exchange.is_over
    assert not exchange.disarm()


def test_a_waker_taken_back_is_not_called() -> None:
    """A late interrupt finds nothing to wake."""
    exchange = new_exchange()
    woken: list[int] = []
    exchange.arm(lambda: woken.append(1))
    assert exchange.disarm()
    exchange.interrupt()
    assert not woken


def test_arming_after_an_interrupt_stops() -> None:
    """An interrupt that came before there was anything to wake is not lost."""
    exchange = new_exchange()
    exchange.interrupt()
    with pytest.raises(Stopped):
        exchange.arm(lambda: None)
    assert exchange.disarm()
