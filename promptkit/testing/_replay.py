"""Two model clients for tests without a server: one records real exchanges, the other plays them back.

Guarantees: both are safe for any number of threads. A recording is found again by the hash of what was asked –
messages, contract, model, numbers, extra body – so that it serves on any machine, against any address, on any
credential; a prompt that has changed finds none, and is told what has changed.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Self

from promptkit._cancel import CancelToken
from promptkit._openai import OpenAIClient
from promptkit._ports import LLMClient
from promptkit._types import GenerateRequest, GenerateResponse
from promptkit._wire import check_response
from promptkit.errors import ConfigError, GenerationError, MalformedResponseError
from promptkit.testing._recordings import Folder, Recording, difference


class ReplayError(GenerationError):
    """No recording answers a request, or the one that should cannot be read. Recording again may help.

    ``rendered_hash`` is the request's. Unlike every other error of promptkit its text shows what was asked, as a
    difference from the recorded request that is nearest: it is for the eyes of a test's author.
    """

    def __init__(self, message: str, *, rendered_hash: str) -> None:
        super().__init__(message)
        self.rendered_hash = rendered_hash


class RecordingClient:
    """An `LLMClient` that passes each call on and writes down what was asked and what was answered.

    ``client`` is the one that answers; None takes the engine's own over HTTP, which `close` then closes. ``folder``
    is made when the first answer comes. Each request has a file of its own there (see the page on testing); a request
    that comes again adds its answer to it. A new `RecordingClient` writes afresh what it sees, and leaves the
    rest as it is. Raises `ConfigError` for a client that is none.

    What the client raises is passed on and not recorded, and neither is anything that is no response: a server's bad
    day is for `ScriptedClient` to play. As every client of your own it is called once for each attempt, without
    retries.
    """

    def __init__(self, client: LLMClient | None, folder: str | os.PathLike[str]) -> None:
        self._own_client: OpenAIClient | None = None
        if client is None:
            client = self._own_client = OpenAIClient()
        elif not isinstance(client, LLMClient):
            raise ConfigError(f"RecordingClient: client must have a method generate(request, cancel), not {client!r}")
        self._client: LLMClient = client
        self._folder = Folder(folder)
        # Held while a file is written: of two answers to one request the file with both must be the later one.
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[GenerateResponse, ...]] = {}

    def generate(self, request: GenerateRequest, cancel: CancelToken) -> GenerateResponse:
        """Return what the client answers, once it has been written down. Blocks; raises what the client raises."""
        response = self._client.generate(request, cancel)
        if _is_answer(response, request):
            name = request.rendered_hash()
            with self._lock:
                answers = self._answers[name] = (*self._answers.get(name, ()), response)
                self._folder.write(Recording(name, request.rendered_form(), answers))
        return response

    def close(self) -> None:
        """Close the built-in client, where it is in use."""
        if self._own_client is not None:
            self._own_client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _is_answer(response: object, request: GenerateRequest) -> bool:
    """Say whether a response can be written down: a refusal can, what is none of the right types cannot."""
    try:
        check_response(response, request)
    except MalformedResponseError:
        return False
    except GenerationError:
        return True
    return True


class ReplayClient:
    """An `LLMClient` that answers from what a `RecordingClient` has written into ``folder``, and never connects.

    A request that was recorded several times gets its answers in the same order, and from then on the last one.
    One that was not recorded raises `ReplayError` with the difference from the nearest one. Files are read
    when they are needed; an answer may be edited by hand.

    Raises `ConfigError` when there is no such folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Folder(folder)
        if not self._folder.path.is_dir():
            raise ConfigError(
                f"ReplayClient: {str(self._folder.path)!r} is not a folder; record something into it first"
            )
        self._lock = threading.Lock()
        self._played: dict[str, int] = {}
        self._recordings: dict[str, Recording] = {}

    def generate(self, request: GenerateRequest, cancel: CancelToken) -> GenerateResponse:
        """Return the next recorded answer to ``request``. Raises `ReplayError`, and the token's own errors."""
        cancel.raise_if_cancelled()
        name = request.rendered_hash()
        recording = self._recordings.get(name) or self._load(request, name)
        with self._lock:
            self._recordings.setdefault(name, recording)
            turn = self._played.get(name, 0)
            self._played[name] = turn + 1
        return recording.answers[min(turn, len(recording.answers) - 1)]

    def _load(self, request: GenerateRequest, name: str) -> Recording:
        try:
            recording = self._folder.read(name)
        except (ValueError, OSError) as exc:
            raise ReplayError(str(exc), rendered_hash=name) from exc
        if recording is not None:
            return recording
        text = f"nothing in {str(self._folder.path)!r} answers the request {name}"
        nearest = difference(request, self._folder.all())
        if nearest is None:
            raise ReplayError(f"{text}: the folder has no recordings", rendered_hash=name)
        raise ReplayError(
            f"{text}; record it, or undo what has changed since the nearest recording:\n{nearest}\n", rendered_hash=name
        )
