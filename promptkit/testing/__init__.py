"""Aids for the tests of an application that uses promptkit: no network, no sleeping."""

from __future__ import annotations

from promptkit.testing._scripted import Gate, ScriptedClient, held, late

__all__ = ["Gate", "ScriptedClient", "held", "late"]
