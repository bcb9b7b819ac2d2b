"""Aids for the tests of an application that uses promptkit: no network, no sleeping."""

from __future__ import annotations

from promptkit.testing._replay import RecordingClient, ReplayClient, ReplayError
from promptkit.testing._scripted import Gate, ScriptedClient, held, late

__all__ = ["Gate", "RecordingClient", "ReplayClient", "ReplayError", "ScriptedClient", "held", "late"]
