"""What a preloading server's application module is like: it makes its manager when it is imported."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from promptkit._cancel import CancelToken
from promptkit._capacity import Manager
from promptkit._ledger import CapacityPolicy
from promptkit.errors import CapacityExceededError, QueueTimeoutError
from support.threads import Worker

MANAGER = Manager({"b": CapacityPolicy(1, 1)})


def use_everything(manager: Manager) -> None:
    """Find the pool of ``b`` (one permit, one place) empty, fill it, see it refuse, and empty it again."""
    token = CancelToken()
    assert manager.stats("b") == (0, 0, 0)
    leases = [manager.admit("b", token), manager.admit("b", token)]
    with pytest.raises(CapacityExceededError):
        manager.admit("b", token)
    permit = manager.acquire("b", token)
    with pytest.raises(QueueTimeoutError):
        manager.permit("b").acquire(token, token.clock.monotonic() + 0.01)
    worker = Worker(lambda: manager.acquire("b", token).release())
    permit.release()
    worker.result()
    for lease in leases:
        lease.release()
    assert manager.stats("b") == (0, 0, 0)


def use_the_modules_own(answers: Any) -> None:
    """Run in a child process of multiprocessing; answer with what it found."""
    try:
        use_everything(MANAGER)
        answers.put("good")
    except BaseException:
        answers.put(traceback.format_exc())
        raise
