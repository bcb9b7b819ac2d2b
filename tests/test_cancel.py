"""Cancel tokens: reasons, deadlines, parents, polls, callbacks, and waiting."""

import gc
import logging
import math
import signal
import threading
import weakref

import pytest

from promptkit._cancel import CancelToken, wait_until
from promptkit._clock import SystemClock
from promptkit.errors import DeadlineExceededError, InvalidRequestError, RunCancelledError
from support.clock import FakeClock
from support.threads import Worker, rescued

# ------------------------------------------------------------------------------------------ cancelled or not


def test_a_new_token_is_not_cancelled() -> None:
    """No reason, no deadline, nothing to raise."""
    token = CancelToken()
    assert not token.cancelled
    assert token.reason is None
    assert token.deadline is None
    assert token.remaining() is None
    assert token.poll_interval_s is None
    token.raise_if_cancelled()


def test_the_first_reason_stays() -> None:
    """Cancelling again is harmless."""
    token = CancelToken()
    token.cancel("first")
    token.cancel("second")
    assert token.cancelled
    assert token.reason == "first"


def test_cancelling_without_a_reason_counts_as_the_first() -> None:
    """A later reason does not explain an earlier cancel."""
    token = CancelToken()
    token.cancel()
    token.cancel("too late")
    assert token.cancelled
    assert token.reason is None


@pytest.mark.parametrize(
    ("reason", "doing", "message"),
    [
        ("client gone", "reading the answer", "the run was cancelled while reading the answer: client gone"),
        ("client gone", None, "the run was cancelled: client gone"),
        (None, "reading the answer", "the run was cancelled while reading the answer"),
        (None, None, "the run was cancelled"),
    ],
)
def test_the_error_says_what_was_cancelled_and_why(reason: str | None, doing: str | None, message: str) -> None:
    """The reason is an attribute too."""
    token = CancelToken()
    token.cancel(reason)
    with pytest.raises(RunCancelledError) as caught:
        token.raise_if_cancelled(doing)
    assert str(caught.value) == message
    assert caught.value.reason == reason
    assert not isinstance(caught.value, DeadlineExceededError)


def test_a_repr_says_whether_it_is_cancelled_and_asks_nobody() -> None:
    """It is printed by debuggers, in any thread."""
    token = CancelToken(poll=lambda: pytest.fail("asked"))
    assert repr(token) == "<CancelToken deadline=None>"
    token.cancel("why")
    assert repr(token) == "<CancelToken cancelled reason='why' deadline=None>"


# ------------------------------------------------------------------------------------------------- deadlines


def test_a_token_is_over_when_its_time_is_up() -> None:
    """At the deadline itself, not after it; remaining never goes below zero."""
    clock = FakeClock()
    token = CancelToken(timeout=5, clock=clock)
    assert token.deadline == clock.monotonic() + 5
    clock.advance(4.5)
    assert token.remaining() == 0.5
    assert not token.cancelled
    clock.advance(0.5)
    assert token.cancelled
    assert token.remaining() == 0.0
    clock.advance(100)
    assert token.remaining() == 0.0
    assert token.reason is None


def test_the_deadline_error_says_the_seconds_allowed() -> None:
    """C04: "5 s", and what was being done."""
    clock = FakeClock()
    token = CancelToken(timeout=5, clock=clock)
    clock.advance(5)
    with pytest.raises(DeadlineExceededError) as caught:
        token.raise_if_cancelled("waiting for a permit")
    assert str(caught.value) == "the run's time of 5 s was up while waiting for a permit"
    assert caught.value.timeout_s == 5.0
    assert caught.value.reason is None


def test_zero_seconds_are_over_at_once() -> None:
    """0 means do not wait; it is not "no limit"."""
    token = CancelToken(timeout=0)
    assert token.cancelled
    with pytest.raises(DeadlineExceededError, match=r"the run's time of 0 s was up$"):
        token.raise_if_cancelled()


def test_being_cancelled_comes_before_being_late() -> None:
    """The caller's own reason says more."""
    clock = FakeClock()
    token = CancelToken(timeout=1, clock=clock)
    token.cancel("stop")
    clock.advance(2)
    with pytest.raises(RunCancelledError, match="stop") as caught:
        token.raise_if_cancelled()
    assert type(caught.value) is RunCancelledError


def test_c32_a_jump_of_the_wall_clock_moves_no_deadline() -> None:
    """Deadlines are on the monotonic clock."""
    clock = FakeClock()
    token = CancelToken(timeout=30, clock=clock)
    clock.set_wall(clock.wall() - 3600)
    assert token.remaining() == 30
    clock.set_wall(clock.wall() + 7200)
    assert not token.cancelled


@pytest.mark.parametrize("timeout", [-1, -0.001, math.nan, math.inf, True, "5", [5]])
def test_a_wrong_timeout_is_refused(timeout: object) -> None:
    """By a token and by a child alike."""
    with pytest.raises(InvalidRequestError, match="timeout must be a finite number of seconds, at least 0, or None"):
        CancelToken(timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="timeout must be a finite number of seconds, at least 0, or None"):
        CancelToken().child(timeout=timeout)  # type: ignore[arg-type]


@pytest.mark.parametrize("interval", [0, -1, math.nan, math.inf, True, "5", None])
def test_a_wrong_poll_interval_is_refused(interval: object) -> None:
    """Zero would be a busy loop."""
    with pytest.raises(InvalidRequestError, match=r"CancelToken.poll_interval_s must be a finite number .* above 0"):
        CancelToken(poll=bool, poll_interval_s=interval)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "shown"),
    [(-1, "-1"), (-0.5, "-0.5"), (math.nan, "NaN"), (True, "a boolean"), ("5", "a string"), ([5], "a list")],
)
def test_a_refusal_shows_a_number_of_seconds_and_the_kind_of_anything_else(given: object, shown: str) -> None:
    """What is no number may be anything, also what should not be in a log."""
    with pytest.raises(InvalidRequestError, match=f"or None for no limit, not {shown}$"):
        CancelToken(timeout=given)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match=f"above 0, not {shown}$"):
        CancelToken(poll=bool, poll_interval_s=given)  # type: ignore[arg-type]


def test_a_poll_is_asked_ten_times_a_second_unless_told_otherwise() -> None:
    """And a child's waits ask as often."""
    token = CancelToken(poll=bool)
    assert token.poll_interval_s == token.child().poll_interval_s == 0.1


def test_a_poll_that_is_no_function_is_refused() -> None:
    """When the token is made, not when it is asked."""
    with pytest.raises(InvalidRequestError, match=r"CancelToken.poll must be a function or None, not a boolean"):
        CancelToken(poll=True)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------- parents


def test_a_child_ends_with_its_parent() -> None:
    """Over any number of generations, with the parent's reason."""
    parent = CancelToken()
    grandchild = parent.child().child()
    parent.cancel("all of you")
    assert grandchild.cancelled
    assert grandchild.reason == "all of you"
    with pytest.raises(RunCancelledError, match="all of you"):
        grandchild.raise_if_cancelled()


def test_a_parent_does_not_end_with_its_child() -> None:
    """Nor do the child's siblings."""
    parent = CancelToken()
    child, sibling = parent.child(), parent.child()
    child.cancel("only me")
    assert child.cancelled
    assert not parent.cancelled
    assert not sibling.cancelled


def test_the_nearest_reason_is_the_childs_own() -> None:
    """Whatever order they were cancelled in."""
    parent = CancelToken()
    child = parent.child()
    parent.cancel("parent")
    child.cancel("child")
    assert child.reason == "child"


def test_of_two_deadlines_at_one_moment_the_parents_seconds_are_named() -> None:
    """They are the ones that the caller gave first."""
    clock = FakeClock()
    parent = CancelToken(timeout=10, clock=clock)
    clock.advance(4)
    child = parent.child(timeout=6)
    clock.advance(6)
    with pytest.raises(DeadlineExceededError) as caught:
        child.raise_if_cancelled()
    assert caught.value.timeout_s == 10


@pytest.mark.parametrize(
    ("parent_s", "child_s", "expected"),
    [(10, None, 10), (10, 5, 5), (10, 20, 10), (None, 5, 5), (None, None, None), (10, 10, 10), (10, 0, 0)],
)
def test_the_earliest_deadline_counts(parent_s: float | None, child_s: float | None, expected: float | None) -> None:
    """The error says the seconds of the deadline that passed."""
    clock = FakeClock()
    child = CancelToken(timeout=parent_s, clock=clock).child(timeout=child_s)
    assert child.remaining() == expected
    assert child.clock is clock
    if expected is not None:
        clock.advance(expected)
        with pytest.raises(DeadlineExceededError) as caught:
            child.raise_if_cancelled()
        assert caught.value.timeout_s == expected


def test_a_child_made_later_has_what_is_left_of_its_parents_time() -> None:
    """A deadline is a moment; it does not start again."""
    clock = FakeClock()
    parent = CancelToken(timeout=10, clock=clock)
    clock.advance(4)
    assert parent.child(timeout=60).remaining() == 6


def test_a_parent_keeps_no_child_alive() -> None:
    """A token that lives as long as the process may have any number of them."""
    parent = CancelToken()
    child = parent.child(timeout=60)
    gone = weakref.ref(child)
    del child
    assert gone() is None


def test_tokens_are_freed_without_the_garbage_collector() -> None:
    """They are in no reference cycle, not even with a poll, a registration and a child."""
    gc.disable()
    try:
        token = CancelToken(poll=bool, timeout=5)
        child = token.child()
        registration = child.on_cancel(bool)
        assert not child.cancelled
        registration.remove()
        gone = weakref.ref(token)
        del token, child, registration
        assert gone() is None
    finally:
        gc.enable()


# ----------------------------------------------------------------------------------------------------- polls


def test_a_poll_is_asked_by_whoever_looks() -> None:
    """Once it has said yes, it is not asked again."""
    answers = iter([False, False, True])
    token = CancelToken(poll=lambda: next(answers), poll_interval_s=0.25)
    assert token.poll_interval_s == 0.25
    assert not token.cancelled
    token.raise_if_cancelled()
    assert token.cancelled
    assert token.cancelled
    assert token.reason == "its poll function returned true"


def test_a_polled_parent_ends_its_children_and_calls_back() -> None:
    """The token that has the function is cancelled, and so everything below it."""
    called: list[str] = []
    is_gone: list[bool] = []
    parent = CancelToken(poll=lambda: bool(is_gone), poll_interval_s=0.5)
    child = parent.child()
    sibling = parent.child()
    sibling.on_cancel(lambda: called.append("sibling"))
    assert child.poll_interval_s == 0.5
    assert not child.cancelled
    is_gone.append(True)
    assert child.cancelled
    assert called == ["sibling"]
    assert parent.reason == child.reason == "its poll function returned true"


def test_the_poll_error_names_the_poll() -> None:
    """Nobody called cancel, so the message says who did."""
    with pytest.raises(RunCancelledError, match=r"the run was cancelled: its poll function returned true$"):
        CancelToken(poll=lambda: True).raise_if_cancelled()


def test_a_poll_that_raises_is_logged_once_and_not_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """A broken host call must not end a run that is going well."""
    calls: list[int] = []

    def poll() -> bool:
        calls.append(1)
        raise OSError("the socket is gone")

    token = CancelToken(poll=poll)
    with caplog.at_level(logging.ERROR, "promptkit"):
        assert not token.cancelled
        assert not token.child().cancelled
    assert len(calls) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "the poll function of a CancelToken raised; it will not be asked again"
    ]
    assert caplog.records[0].exc_info is not None
    token.cancel()
    assert token.cancelled


def test_a_token_that_is_over_asks_nobody() -> None:
    """Cancelled or late: the answer is known."""
    clock = FakeClock()
    token = CancelToken(poll=lambda: pytest.fail("asked"), timeout=1, clock=clock)
    clock.advance(1)
    assert token.cancelled
    other = CancelToken(poll=lambda: pytest.fail("asked"))
    other.cancel()
    assert other.cancelled
    assert other.child().cancelled


# ------------------------------------------------------------------------------------------------- callbacks


def test_a_callback_is_called_once() -> None:
    """In the order of registration, by the cancelling call."""
    token = CancelToken()
    called: list[str] = []
    token.on_cancel(lambda: called.append("a"))
    token.on_cancel(lambda: called.append("b"))
    assert called == []
    token.cancel()
    assert called == ["a", "b"]
    token.cancel()
    assert called == ["a", "b"]


@pytest.mark.parametrize(("callback", "kind"), [(None, "null"), (5, "an integer"), ("stop", "a string")])
def test_what_cannot_be_called_is_no_callback(callback: object, kind: str) -> None:
    """The mistake is told where it is made, not when somebody cancels."""
    token = CancelToken()
    with pytest.raises(InvalidRequestError, match=f"^on_cancel takes a function without arguments, not {kind}$"):
        token.on_cancel(callback)  # type: ignore[arg-type]
    assert not token._watchers


def test_a_callback_registered_too_late_is_called_at_once() -> None:
    """In the registering thread, and nothing of it stays in the token."""
    token = CancelToken()
    token.cancel()
    called: list[threading.Thread] = []
    token.on_cancel(lambda: called.append(threading.current_thread()))
    assert called == [threading.current_thread()]
    assert not token._watchers


def test_a_callback_registered_with_a_child_of_a_cancelled_parent_is_called_at_once() -> None:
    """The whole chain is looked at."""
    parent = CancelToken()
    child = parent.child()
    parent.cancel()
    called: list[str] = []
    child.on_cancel(lambda: called.append("x"))
    assert called == ["x"]
    assert not parent._watchers
    assert not child._watchers


def test_a_callback_hears_of_a_parent_and_of_its_own_token_only_once() -> None:
    """Whichever is cancelled first."""
    parent = CancelToken()
    child = parent.child()
    called: list[str] = []
    child.on_cancel(lambda: called.append("x"))
    parent.cancel()
    child.cancel()
    assert called == ["x"]


def test_a_callback_called_before_it_was_entered_everywhere_leaves_nothing_behind() -> None:
    """The child is cancelled while the registration is still on its way to the parent."""
    parent = CancelToken()
    child = parent.child()
    called: list[str] = []
    registration = child.on_cancel(lambda: called.append("x"))
    child.cancel()
    child.watch(registration, type(registration)._fire)  # what is left of the registering call
    assert called == ["x"]
    assert not child._watchers
    assert not parent._watchers


def test_a_removed_callback_is_not_called() -> None:
    """Removing it again, or after the cancel, is harmless."""
    token = CancelToken()
    called: list[str] = []
    registration = token.on_cancel(lambda: called.append("x"))
    registration.remove()
    registration.remove()
    token.cancel()
    registration.remove()
    assert called == []


def test_a_callback_may_remove_the_next_one() -> None:
    """Callbacks may do what they like with the token."""
    token = CancelToken()
    called: list[str] = []
    token.on_cancel(lambda: second.remove())  # noqa: PLW0108  # there is no second yet
    second = token.on_cancel(lambda: called.append("second"))
    token.cancel()
    assert called == []


def test_a_callback_that_was_just_removed_is_not_even_tried(caplog: pytest.LogCaptureFixture) -> None:
    """The cancel had it on its list already."""
    token = CancelToken()
    token.on_cancel(lambda: second.remove())  # noqa: PLW0108  # there is no second yet
    second = token.on_cancel(lambda: None)
    token.cancel()
    assert not caplog.records
    assert not token._watchers


def test_a_deadline_alone_calls_nobody_back() -> None:
    """There is no timer: whoever waits bounds its wait."""
    clock = FakeClock()
    token = CancelToken(timeout=1, clock=clock)
    called: list[str] = []
    token.on_cancel(lambda: called.append("x"))
    clock.advance(5)
    assert token.cancelled
    assert called == []


def test_a_callback_that_raises_is_logged_and_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    """And the canceller hears nothing of it."""
    token = CancelToken()
    called: list[str] = []

    def bad() -> None:
        raise ValueError("broken")

    token.on_cancel(bad)
    token.on_cancel(lambda: called.append("good"))
    with caplog.at_level(logging.ERROR, "promptkit"):
        token.cancel()
    assert called == ["good"]
    assert [record.getMessage() for record in caplog.records] == [
        "a callback registered with CancelToken.on_cancel raised"
    ]
    token.cancel()
    assert len(caplog.records) == 1


def test_an_interrupted_cancel_is_finished_by_the_next_one() -> None:
    """Ctrl-C in a callback: it and those after it are called when cancel is called again."""
    token = CancelToken()
    called: list[str] = []

    def interrupted() -> None:
        called.append("interrupted")
        if len(called) == 1:
            raise KeyboardInterrupt

    token.on_cancel(interrupted)
    token.on_cancel(lambda: called.append("later"))
    with pytest.raises(KeyboardInterrupt):
        token.cancel("stop")
    assert token.cancelled
    token.cancel()
    assert called == ["interrupted", "interrupted", "later"]
    token.cancel()
    assert len(called) == 3
    assert token.reason == "stop"


def test_a_registration_in_the_middle_of_being_called_is_not_called_by_another_thread() -> None:
    """Two cancels at once: one of them calls, the other passes by."""
    token = CancelToken()
    entered, leave = threading.Event(), threading.Event()
    called: list[str] = []

    def slow() -> None:
        called.append("x")
        entered.set()
        assert leave.wait(20)

    token.on_cancel(slow)
    first = Worker(token.cancel)
    assert entered.wait(20)
    Worker(token.cancel).result()
    leave.set()
    first.result()
    assert called == ["x"]


def test_a_callback_may_register_cancel_and_look() -> None:
    """No lock is held while it runs."""
    token = CancelToken()
    called: list[object] = []

    def callback() -> None:
        token.cancel("again")
        called.append(token.cancelled)
        token.on_cancel(lambda: called.append("nested"))

    token.on_cancel(callback)
    token.cancel("first")
    assert called == [True, "nested"]
    assert token.reason == "first"


def test_a_token_that_outlives_many_waits_holds_none_of_them() -> None:
    """Registrations of children are taken out of the parents."""
    parent = CancelToken()
    kept = []
    for _ in range(1000):
        child = parent.child(timeout=60)
        owner = threading.Event()
        registration = child.on_cancel(owner.set)
        registration.remove()
        kept.append(weakref.ref(owner))
        del owner
        assert kept[-1]() is None
    assert not parent._watchers


def test_a_watcher_is_called_with_its_key_and_taken_out_by_it() -> None:
    """What the library's own waiters use: a callback that may be called again, and costs a dict entry."""
    parent = CancelToken()
    child = parent.child()
    called: list[object] = []
    child.watch("key", called.append)
    parent.cancel()
    child.unwatch("key")
    child.unwatch("key")
    parent.cancel()
    assert called == ["key"]
    child.watch("late", called.append)
    assert called == ["key", "late"]
    child.unwatch("late")
    assert not parent._watchers
    assert not child._watchers


@pytest.mark.parametrize("who", ["same", "another"])
def test_cancel_works_in_a_signal_handler(who: str) -> None:
    """Also one that interrupts a cancel of the same token."""
    token = CancelToken()
    called: list[str] = []

    def raise_signal() -> None:
        called.append("outer")
        signal.raise_signal(signal.SIGUSR1)

    target = token if who == "same" else CancelToken()
    target.on_cancel(lambda: called.append("inner"))
    before = signal.signal(signal.SIGUSR1, lambda *_: target.cancel("signal"))
    try:
        token.on_cancel(raise_signal)
        token.cancel("first")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert sorted(called) == ["inner", "outer"]
    assert target.reason == ("first" if who == "same" else "signal")


# --------------------------------------------------------------------------------------------------- waiting


def test_wait_until_returns_at_the_deadline() -> None:
    """On the token's clock, and not before."""
    clock = FakeClock()
    token = CancelToken(clock=clock)
    sleeper = Worker(wait_until, token, clock.monotonic() + 10)
    clock.wait_for_sleepers(1)
    clock.advance(9)
    clock.wait_for_sleepers(1)
    assert sleeper.thread.is_alive()
    clock.advance(1)
    sleeper.result()
    assert not token._watchers


def test_wait_until_a_moment_that_has_passed_returns_at_once() -> None:
    """Zero seconds are no seconds."""
    clock = FakeClock()
    wait_until(CancelToken(clock=clock), clock.monotonic())
    wait_until(CancelToken(clock=clock), clock.monotonic() - 5)


def test_wait_until_ends_at_once_when_it_is_cancelled() -> None:
    """With what was being done, and without leaving anything in the token."""
    clock = FakeClock()
    parent = CancelToken(clock=clock)
    sleeper = Worker(wait_until, parent.child(), clock.monotonic() + 10, "waiting to retry")
    clock.wait_for_sleepers(1)
    parent.cancel("enough")
    with pytest.raises(RunCancelledError, match=r"the run was cancelled while waiting to retry: enough"):
        sleeper.result()
    assert not parent._watchers


def test_wait_until_with_a_cancelled_token_does_not_wait() -> None:
    """Even when the deadline has passed as well."""
    clock = FakeClock()
    token = CancelToken(clock=clock)
    token.cancel()
    with pytest.raises(RunCancelledError):
        wait_until(token, clock.monotonic() + 10)
    with pytest.raises(RunCancelledError):
        wait_until(token, clock.monotonic())
    assert not token._watchers


def test_wait_until_ends_at_the_tokens_own_deadline() -> None:
    """The wait is bounded by both."""
    clock = FakeClock()
    token = CancelToken(timeout=3, clock=clock)
    sleeper = Worker(wait_until, token, clock.monotonic() + 10)
    clock.wait_for_sleepers(1)
    clock.advance(3)
    with pytest.raises(DeadlineExceededError, match="3 s"):
        sleeper.result()


@pytest.mark.parametrize(
    ("timeout_s", "poll_interval_s", "expected_s"),
    [(None, None, 10), (3, None, 3), (20, None, 10), (None, 0.5, 0.5), (3, 5, 3), (20, 15, 10)],
)
def test_wait_until_sleeps_until_the_first_moment_that_matters(
    timeout_s: float | None, poll_interval_s: float | None, expected_s: float
) -> None:
    """Its own end, ten seconds away; the token's deadline; or the next time to ask the poll."""
    slept_until: list[float | None] = []

    class Noting(FakeClock):
        def wait(self, condition: threading.Condition, deadline: float | None) -> None:
            slept_until.append(deadline)
            token.cancel()

    clock = Noting()
    token = CancelToken(timeout=timeout_s, clock=clock)
    token.poll_interval_s = poll_interval_s
    with pytest.raises(RunCancelledError):
        wait_until(token, clock.monotonic() + 10)
    assert slept_until == [clock.monotonic() + expected_s]


def test_wait_until_asks_the_poll_at_every_interval() -> None:
    """A host that can only be asked ends the wait within one interval."""
    clock = FakeClock()
    is_gone: list[bool] = []
    token = CancelToken(poll=lambda: bool(is_gone), poll_interval_s=0.5, clock=clock)
    sleeper = Worker(wait_until, token, clock.monotonic() + 10)
    clock.wait_for_sleepers(1)
    clock.advance(0.5)
    clock.wait_for_sleepers(1)
    is_gone.append(True)
    clock.advance(0.5)
    with pytest.raises(RunCancelledError, match="poll"):
        sleeper.result()


def test_wait_until_really_waits_on_the_system_clock() -> None:
    """The default clock is the machine's."""
    token = CancelToken()
    start = token.clock.monotonic()
    wait_until(token, start + 0.02)
    assert token.clock.monotonic() >= start + 0.02


def test_a_sleeper_that_nobody_wakes_sleeps_on() -> None:
    """It does not wake itself when it gives the lock up."""
    waits: list[float | None] = []

    class Counting(SystemClock):
        def wait(self, condition: threading.Condition, deadline: float | None) -> None:
            waits.append(deadline)
            super().wait(condition, deadline)

    token = CancelToken(clock=Counting())
    wait_until(token, token.clock.monotonic() + 0.02)
    assert len(waits) <= 3  # a machine's timers may be early


def test_a_cancel_between_the_look_and_the_sleep_is_not_slept_through() -> None:
    """What the sleeper is told before it sleeps is remembered."""

    class Late(FakeClock):
        """Cancels when the sleeper, having looked at its token, asks for the time."""

        def monotonic(self) -> float:
            token.cancel("just now")
            return super().monotonic()

    clock = Late()
    token = CancelToken(clock=clock)
    with rescued(lambda: clock.advance(1000)), pytest.raises(RunCancelledError, match="just now"):
        wait_until(token, 2000.0)


def test_a_signal_handler_that_cancels_ends_the_wait_of_the_thread_it_interrupts() -> None:
    """Also between that thread's last look and its sleep, where a notification would find nobody."""

    class Interrupting(FakeClock):
        """Delivers the signal when the sleeper holds its lock and is about to sleep."""

        def wait(self, condition: threading.Condition, deadline: float | None) -> None:
            signal.raise_signal(signal.SIGUSR1)
            super().wait(condition, deadline)

    clock = Interrupting()
    token = CancelToken(clock=clock)
    before = signal.signal(signal.SIGUSR1, lambda *_: token.cancel("signal"))
    try:
        with rescued(lambda: clock.advance(10)), pytest.raises(RunCancelledError, match="signal"):
            wait_until(token, clock.monotonic() + 10)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_exception_out_of_the_wait_is_not_hidden() -> None:
    """Condition.wait may come out without its lock; what comes out of wait_until is the exception itself."""

    class Losing(FakeClock):
        def wait(self, condition: threading.Condition, deadline: float | None) -> None:
            condition.release()
            raise KeyboardInterrupt

    clock = Losing()
    token = CancelToken(clock=clock)
    with pytest.raises(KeyboardInterrupt):
        wait_until(token, clock.monotonic() + 10)
    assert not token._watchers
