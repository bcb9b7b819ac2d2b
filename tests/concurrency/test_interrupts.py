"""An exception raised into a thread, wherever it lands, leaves the pool right: every point is tried.

Each scenario is run once for every point of the code where CPython can deliver an asynchronous exception, in the thread
that acts. Afterwards everything must have come back, every other thread must have been served, and what came out must
be the exception itself.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from promptkit._cancel import CancelToken, wait_until
from promptkit._capacity import Held, Lease, Manager, Permit
from promptkit._ledger import CapacityPolicy
from promptkit._pool import USED
from promptkit.errors import CapacityExceededError, QueueTimeoutError, RunCancelledError
from support.clock import AnnouncingClock
from support.inject import InjectedError, Interrupted, be_interrupted, points
from support.threads import Worker

if TYPE_CHECKING:
    from collections.abc import Callable


class Scene:
    """One permit, two places in the queue, and what the scenarios need of other threads."""

    def __init__(self) -> None:
        self.clock = AnnouncingClock()
        self.manager = Manager({"b": CapacityPolicy(1, 2)}, clock=self.clock)
        self.pool = self.manager._pools["b"]
        self.token = CancelToken(clock=self.clock)
        self.others: list[Worker] = []
        self.claims: list[Lease | Permit] = []

    def use(self, token: CancelToken | None = None) -> None:
        """Acquire and release in the safe shape."""
        permit = self.manager.permit("b")
        self.claims.append(permit)  # kept alive, so that nothing comes back by itself
        try:
            try:
                permit.acquire(token or self.token)
            finally:
                permit.release()
        finally:
            permit.release()

    def when_asleep(self, do: Callable[[], object]) -> None:
        """Let another thread do something as soon as the acting one waits (or has ended without waiting)."""

        def run() -> None:
            self.clock.wait_for_sleeper()
            do()

        self.others.append(Worker(run))

    def queue_another(self, token: CancelToken | None = None) -> None:
        """Let another thread wait in the queue, and return when it does."""
        self.others.append(Worker(self.use, token or CancelToken()))
        self.clock.wait_for_sleeper()

    def check(self, run: Interrupted) -> None:
        """Everything is back, everybody has been served, nothing was hidden."""
        self.clock.announce()
        for other in self.others:
            other.result()
        gc.collect()
        assert Worker(self.manager.stats, "b").result() == (0, 0, 0)
        assert not self.pool.intents
        assert not self.token._watchers
        assert run.error is None or type(run.error) is InjectedError, repr(run.error)
        assert (run.error is None) == (run.place is None), "the exception was swallowed"


def use_alone(scene: Scene) -> Callable[[], None]:
    """A permit that is free."""
    return scene.use


def wait_for_a_grant(scene: Scene) -> Callable[[], None]:
    """A permit that another thread gives back while this one waits for it."""
    held = scene.manager.acquire("b", scene.token)
    scene.when_asleep(held.release)
    return scene.use


def wait_until_cancelled(scene: Scene) -> Callable[[], None]:
    """A wait that another thread cancels, with a third one behind in the queue."""
    held = scene.manager.acquire("b", CancelToken())
    token = scene.token.child()

    def cancel() -> None:
        token.cancel()
        scene.others.append(Worker(scene.use, CancelToken()))
        held.release()

    def act() -> None:
        with pytest.raises(RunCancelledError):
            scene.use(token)

    scene.when_asleep(cancel)
    return act


def wait_until_out_of_time(scene: Scene) -> Callable[[], None]:
    """A wait whose deadline passes."""
    held = scene.manager.acquire("b", CancelToken())
    scene.when_asleep(bool)

    def act() -> None:
        permit = scene.manager.permit("b")
        scene.claims.append(permit)
        try:
            try:
                with pytest.raises(QueueTimeoutError):
                    permit.acquire(scene.token, scene.clock.monotonic() + 0.002)
            finally:
                permit.release()
        finally:
            permit.release()
            held.release()

    return act


def wait_with_a_poll(scene: Scene) -> Callable[[], None]:
    """A wait that looks at the token from time to time, and is granted in the end."""
    held = scene.manager.acquire("b", CancelToken())
    asked: list[int] = []

    def poll() -> bool:
        asked.append(1)
        if len(asked) == 3:
            held.release()
        return False

    scene.when_asleep(bool)
    token = CancelToken(poll=poll, poll_interval_s=0.001, clock=scene.clock)

    def act() -> None:
        try:
            scene.use(token)
        finally:
            held.release()

    return act


def give_back_to_a_waiter(scene: Scene) -> Callable[[], None]:
    """A release with somebody in the queue."""

    def act() -> None:
        permit = scene.manager.permit("b")
        scene.claims.append(permit)
        try:
            try:
                permit.acquire(scene.token)
                scene.queue_another()
            finally:
                permit.release()
        finally:
            permit.release()

    return act


def release_what_another_waits_for(scene: Scene) -> Callable[[], None]:
    """A permit that is released while its own thread waits for it: that thread is told, whatever happens here."""
    held, permit = scene.manager.permit("b"), scene.manager.permit("b")
    held.acquire(CancelToken())
    scene.claims.extend([held, permit])

    def wait() -> None:
        try:
            with pytest.raises(RunCancelledError):
                permit.acquire(CancelToken())
        finally:
            permit.release()

    scene.others.append(Worker(wait))
    scene.clock.wait_for_sleeper()

    def act() -> None:
        try:
            try:
                permit.release()
                held.release()
            finally:
                permit.release()
                held.release()
        finally:
            permit.release()
            held.release()

    return act


def use_with_a_with_block(scene: Scene) -> Callable[[], None]:
    """The convenient shape: what is lost between two instructions comes back with the traceback."""

    def act() -> None:
        with scene.manager.admit("b", scene.token), scene.manager.acquire("b", scene.token):
            pass

    return act


def wait_with_a_with_block(scene: Scene) -> Callable[[], None]:
    """The convenient shape, queued, and with somebody behind it who must be served whatever happens."""
    held = scene.manager.acquire("b", CancelToken())

    def give_way() -> None:
        scene.others.append(Worker(scene.use, CancelToken()))
        held.release()

    scene.when_asleep(give_way)

    def act() -> None:
        with scene.manager.acquire("b", scene.token):
            pass

    return act


def be_admitted(scene: Scene) -> Callable[[], None]:
    """A lease."""

    def act() -> None:
        lease = scene.manager.lease("b")
        scene.claims.append(lease)
        try:
            try:
                lease.admit(scene.token)
            finally:
                lease.release()
        finally:
            lease.release()

    return act


def be_refused(scene: Scene) -> Callable[[], None]:
    """A lease of a backend that is full."""
    leases = [scene.manager.admit("b", scene.token) for _ in range(3)]

    def act() -> None:
        lease = scene.manager.lease("b")
        scene.claims.append(lease)
        try:
            try:
                with pytest.raises(CapacityExceededError):
                    lease.admit(scene.token)
            finally:
                lease.release()
        finally:
            lease.release()
            for each in leases:
                each.release()

    return act


def ask_how_it_stands(scene: Scene) -> Callable[[], object]:
    """The gauges."""
    return lambda: scene.manager.stats("b")


SCENARIOS = [
    use_alone,
    wait_for_a_grant,
    wait_until_cancelled,
    wait_until_out_of_time,
    wait_with_a_poll,
    give_back_to_a_waiter,
    release_what_another_waits_for,
    use_with_a_with_block,
    wait_with_a_with_block,
    be_admitted,
    be_refused,
    ask_how_it_stands,
]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_c11_an_exception_at_every_point_leaves_the_pool_right(scenario: Callable[[Scene], Callable[[], None]]) -> None:
    """Admission, acquiring, waiting, releasing: nothing is lost, nobody hangs, and the exception comes out."""
    tried = 0
    for point in points():
        scene = Scene()
        run = Interrupted(scenario(scene), point)
        try:
            scene.check(run)
        except AssertionError as error:
            raise AssertionError(f"after an exception at {run.place}: {error}") from error
        if run.place is None:
            break
        tried += 1
    assert tried > 5, "the search is empty"


HANDLERS = ["cancels", "releases", "releases what is waited for", "cancels another", "releases another's"]


@pytest.mark.parametrize("raises", [False, True], ids=["and returns", "and raises"])
@pytest.mark.parametrize("handler", HANDLERS)
def test_a_handler_at_every_point_leaves_the_pool_right(handler: str, raises: bool) -> None:  # noqa: FBT001  # a parameter
    """It gives up this wait or another one in the middle of anything, and may raise then; the others are served."""
    tried = 0
    for point in points():
        scene = Scene()
        held, mine, others = (scene.manager.permit("b") for _ in range(3))
        held.acquire(CancelToken())
        token, others_token = CancelToken(), CancelToken()
        deeds = {
            "cancels": token.cancel,
            "releases": mine.release,
            "releases what is waited for": held.release,
            "cancels another": others_token.cancel,
            "releases another's": others.release,
        }

        def use_other(others: Permit = others, others_token: CancelToken = others_token) -> None:
            try:
                with suppress(RunCancelledError):
                    others.acquire(others_token)
            finally:
                others.release()

        def when_asleep(scene: Scene = scene, held: Permit = held) -> None:
            scene.others.append(Worker(scene.use, CancelToken()))  # it queues behind, or comes later
            held.release()

        def act(mine: Permit = mine, token: CancelToken = token) -> None:
            try:
                try:
                    with suppress(RunCancelledError):
                        mine.acquire(token)
                finally:
                    mine.release()
            finally:
                mine.release()

        def handle(do: Callable[[], object] = deeds[handler]) -> None:
            do()
            if raises:
                be_interrupted()

        if "another" in handler:
            scene.others.append(Worker(use_other))
            scene.clock.wait_for_sleeper()
        scene.token = token
        scene.claims.extend([held, mine, others])
        scene.when_asleep(when_asleep)
        run = Interrupted(act, point, do=handle)
        if run.place is None:
            deeds[handler]()
        scene.clock.announce()
        for worker in scene.others:
            worker.join()
        held.release()
        assert Worker(scene.manager.stats, "b").result() == (0, 0, 0), run.place
        assert not scene.pool.intents, run.place
        assert not token._watchers, run.place
        for worker in scene.others:
            worker.result()
        assert (type(run.error) is InjectedError) == (raises and run.place is not None), (run.place, run.error)
        if run.place is None:
            break
        tried += 1
    assert tried > 20, "the search is empty"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_a_forgotten_permit_has_logged_is_done_by_whoever_comes_next() -> None:
    """The interpreter swallows an exception in the callback, and nobody calls it again."""
    unlogged = tried = 0
    for point in points():
        scene = Scene()
        forgotten = [scene.manager.permit("b")]
        forgotten[0].acquire(CancelToken())
        owners = [Held(forgotten[0])]
        scene.queue_another()
        run = Interrupted(owners.clear, point)
        if forgotten[0] in scene.pool.ledger.held and not scene.pool.intents:
            unlogged += 1
            forgotten[0].stage = USED  # give it back all the same
            forgotten[0].release()
        scene.others.append(Worker(scene.use, CancelToken()))
        for other in scene.others:
            other.result()
        assert scene.manager.stats("b") == (0, 0, 0), run.place
        if run.place is None:
            break
        tried += 1
    assert tried > 10, "the search is empty"
    assert unlogged <= 4, "the first instructions, as the module says"


def test_an_interrupted_cancel_is_finished_by_calling_it_again() -> None:
    """Wherever it was interrupted, the waiters hear of it at the latest then."""
    tried = 0
    for point in points():
        scene = Scene()
        held = scene.manager.acquire("b", CancelToken())
        token = CancelToken()
        scene.queue_another(token)
        run = Interrupted(token.cancel, point)
        token.cancel("again")
        with pytest.raises(RunCancelledError):
            scene.others.pop().result()
        held.release()
        scene.check(run)
        if run.place is None:
            break
        tried += 1
    assert tried > 5


def test_an_interrupted_sleep_leaves_nothing_in_the_token() -> None:
    """Waiting to retry, ended by another thread's cancel or by an exception of its own."""
    tried = 0
    for point in points():
        clock = AnnouncingClock()
        token = CancelToken(clock=clock)

        def cancel(token: CancelToken = token, clock: AnnouncingClock = clock) -> None:
            clock.wait_for_sleeper()
            token.cancel()

        def act(token: CancelToken = token, clock: AnnouncingClock = clock) -> None:
            try:
                with pytest.raises(RunCancelledError):
                    wait_until(token, clock.monotonic() + 20)
            finally:
                clock.announce()

        canceller = Worker(cancel)
        run = Interrupted(act, point)
        canceller.result()
        assert run.error is None or type(run.error) is InjectedError, f"{run.place}: {run.error!r}"
        if run.place is None:
            assert not token._watchers
            break
        tried += 1
    assert tried > 5
