"""Stands in for the embedded model while the tutorial is followed: Python imports this module when it starts.

What promptkit would send over HTTP is answered from recordings, with a check that the model is never asked for more
than two answers at a time; the server itself is a stub. With ``TUTORIAL_RECORD=1`` the real model answers, and is
recorded.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Any, Self

import promptkit._engine
import promptkit.local
from promptkit import CancelToken, GenerateRequest, GenerateResponse
from promptkit._openai import OpenAIClient
from promptkit.testing import RecordingClient, ReplayClient

RECORDINGS = os.environ["TUTORIAL_RECORDINGS"]
IS_RECORDING = os.environ.get("TUTORIAL_RECORD") == "1"
LIMIT = 2


class Client:
    """What the engine takes for its built-in client."""

    def __init__(self, **options: Any) -> None:
        self._client: Any = (
            RecordingClient(OpenAIClient(**options), RECORDINGS) if IS_RECORDING else ReplayClient(RECORDINGS)
        )
        self._lock = threading.Lock()
        self._in_flight = 0

    def generate(self, request: GenerateRequest, cancel: CancelToken) -> GenerateResponse:
        """Answer, and fail when more calls are in flight than the tutorial's backend takes."""
        with self._lock:
            self._in_flight += 1
            if self._in_flight > LIMIT:
                raise AssertionError(f"{self._in_flight} requests at a time")
        try:
            response: GenerateResponse = self._client.generate(request, cancel)
            return response
        finally:
            with self._lock:
                self._in_flight -= 1

    def close(self) -> None:
        """Do nothing: recordings have no connections."""


class LocalServer:
    """The stub of an embedded server, with what the tutorial uses of it."""

    def __init__(self, *, parallel: int) -> None:
        if parallel != LIMIT:
            raise AssertionError("the tutorial says two at a time")
        self._is_running = False

    @property
    def endpoint(self) -> str:
        """An address that is nobody's."""
        if not self._is_running:
            raise AssertionError("the server has not been started")
        return "http://promptkit.invalid/v1"

    def start(self) -> None:
        """Pretend to listen."""
        self._is_running = True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_running = False


promptkit._engine.OpenAIClient = Client  # type: ignore[misc, assignment]  # the engine's own door to the network
if not IS_RECORDING:
    promptkit.local.LocalServer = LocalServer  # type: ignore[misc, assignment]  # likewise
