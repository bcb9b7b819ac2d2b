"""Aids for the tests of an application that uses promptkit: no network, no sleeping.

`ScriptedClient` plays answers, failures and latencies; `Gate` holds calls until a test lets them through.
`RecordingClient` writes real exchanges down and `ReplayClient` plays them back. `FakeClock` is time that a test moves,
`wait_until_queued` waits for runs to be queued, and `Worker` is a thread that gives its errors back.

The pytest plugin, which comes with the package, has the fixtures ``scripted_client``, ``fake_clock`` and
``promptkit_engine`` (an `EngineFactory`), and the marker ``promptkit_offline``.
"""

from __future__ import annotations

from promptkit.testing._clock import FakeClock, wait_until_queued
from promptkit.testing._engines import EngineFactory
from promptkit.testing._replay import RecordingClient, ReplayClient, ReplayError
from promptkit.testing._scripted import Gate, ScriptedClient, ScriptError, held, late
from promptkit.testing._threads import Worker

__all__ = [
    "EngineFactory",
    "FakeClock",
    "Gate",
    "RecordingClient",
    "ReplayClient",
    "ReplayError",
    "ScriptError",
    "ScriptedClient",
    "Worker",
    "held",
    "late",
    "wait_until_queued",
]
