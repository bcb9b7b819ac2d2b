"""How soon a run ends once its caller says so, in every phase, beside clients that have only a read timeout.

    python benchmarks/promptness.py [--tries N] [--peer-tries N]

For each phase a run is brought there, and then cancelled from another thread: measured is the time from the call of
``cancel`` to the exception in the blocked thread. And it is brought there with a deadline: measured is how much
later than the deadline the exception comes. The peers are given the same time as their ``timeout`` and are cancelled
by closing the session or the client from another thread; they are given up after ``CAP_S`` seconds, which is printed
with a ``>``. The faults come from the server of the test suite, in this process.

Limits, for ``engine.run`` on an idle machine: a median below 10 ms and a maximum below 100 ms, in every row. Missing
one is an exit status of 1.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import requests
from common.prompt import INPUTS, messages, write_files

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.server import Authority, Server, black_hole, hang, reply, trickle

MEDIAN_S = 0.010
MAXIMUM_S = 0.100
DEADLINE_S = 0.06
CAP_S = 2.0
QUEUED = "queued"
WAITING = "waiting to retry"
SETTLE_S = 0.01
"""Given to a thread to get from where the server has seen it to where it blocks."""


class Scene:
    """A phase: where to send, and what the server counts when a run gets there, if it can see that."""

    def __init__(self, url: str, count: Callable[[], int] | None = None, server: Server | None = None) -> None:
        self.url = url
        self._count = count
        self._server = server

    def watch(self) -> Callable[[], None]:
        """Return a wait for one more run to arrive than have until now."""
        count, server = self._count, self._server
        if count is None or server is None:
            return lambda: time.sleep(3 * SETTLE_S)
        seen = count()

        def arrive() -> None:
            server.wait_for(lambda _: count() > seen)
            time.sleep(SETTLE_S)

        return arrive


@contextlib.contextmanager
def scenes(authority: Authority) -> Iterator[dict[str, Scene]]:
    """Set every fault up."""
    with contextlib.ExitStack() as stack:

        def serve(*actions: Any, **options: Any) -> Server:
            return stack.enter_context(Server(*actions, **options))

        def requested(server: Server) -> Scene:
            return Scene(server.url, lambda: len(server.requests), server)

        hole = stack.enter_context(black_hole())
        greeting = serve(tls=authority.server_context(), handshake_hangs=True)
        yield {
            QUEUED: Scene(serve(hang()).url),
            "connecting": Scene(f"http://127.0.0.1:{hole}"),
            "TLS handshake": Scene(greeting.url, lambda: greeting.connections, greeting),
            "first byte": requested(serve(hang())),
            "first byte, TLS": requested(serve(hang(), tls=authority.server_context())),
            "headers trickle": requested(serve(trickle(part="headers"))),
            "body trickles": requested(serve(trickle())),
            "body trickles, chunked": requested(serve(trickle(framing="chunked"))),
            "body trickles, TLS": requested(serve(trickle(), tls=authority.server_context())),
            WAITING: requested(serve(reply(b"{}", status=503))),
        }


class Ours:
    """``engine.run``."""

    name = "promptkit"

    def __init__(self, phase: str, scene: Scene, folder: Path, bundle: str) -> None:
        from promptkit import Backend, CancelToken, Engine

        backend = Backend("local", endpoint=f"{scene.url}/v1", concurrency_limit=1 if phase == QUEUED else 4)
        self._token = CancelToken
        self._engine = Engine(
            prompts=folder / "prompts", profiles=folder / "profiles", backends=[backend], ca_bundle=bundle
        )
        self._blocker = CancelToken()
        if phase == QUEUED:
            self._first = threading.Thread(target=self._quietly, args=(self._blocker,))
            self._first.start()

    def _quietly(self, token: Any) -> None:
        from promptkit.errors import PromptKitError

        with contextlib.suppress(PromptKitError):
            self._engine.run("invoice", inputs=INPUTS, cancel=token)

    def start(self, timeout: float | None) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """Return a call that blocks, and what ends it from outside."""
        token = self._token()
        return (lambda: self._engine.run("invoice", inputs=INPUTS, cancel=token, timeout=timeout)), token.cancel

    def close(self) -> None:
        """Let go of everything."""
        self._blocker.cancel()
        self._engine.close()


class Requests:
    """``requests.Session.post`` with a timeout."""

    name = "requests"

    def __init__(self, _phase: str, scene: Scene, _folder: Path, bundle: str) -> None:
        self._url = f"{scene.url}/v1/chat/completions"
        self._bundle = bundle

    def start(self, timeout: float | None) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """Return a call that blocks, and what ends it from outside, if anything does."""
        session = requests.Session()
        return (lambda: session.post(self._url, json={}, timeout=timeout, verify=self._bundle)), session.close

    def close(self) -> None:
        """Nothing is shared."""


class OpenAI:
    """The OpenAI SDK with a timeout."""

    name = "openai"

    def __init__(self, _phase: str, scene: Scene, _folder: Path, bundle: str) -> None:
        import ssl

        import openai

        self._open = lambda timeout: openai.OpenAI(
            base_url=f"{scene.url}/v1",
            api_key="key-1",
            max_retries=0,
            timeout=timeout,
            http_client=openai.DefaultHttpxClient(verify=ssl.create_default_context(cafile=bundle)),
        )

    def start(self, timeout: float | None) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """Return a call that blocks, and what ends it from outside, if anything does."""
        client = self._open(timeout)
        turns: Any = messages()
        return (lambda: client.chat.completions.create(model="m1", messages=turns)), client.close

    def close(self) -> None:
        """Nothing is shared."""


def attempt(client: Any, scene: Scene, *, cancel: bool) -> float:
    """Return how long the end took, in seconds, ``CAP_S`` for too long."""
    call, end = client.start(None if cancel else DEADLINE_S)
    ended: list[float] = []

    def block() -> None:
        with contextlib.suppress(Exception):
            call()
        ended.append(time.monotonic())

    thread = threading.Thread(target=block, daemon=True)  # a peer that cannot be ended is left behind
    arrive = scene.watch()
    began = time.monotonic()
    thread.start()
    if cancel:
        arrive()
        assert thread.is_alive() or client.name != Ours.name, "it had ended before it was cancelled"
        due = time.monotonic()
        end()
    else:
        due = began + DEADLINE_S
    thread.join(due + CAP_S - time.monotonic())
    return max(0.0, ended[0] - due) if ended else CAP_S


def show(seconds: float) -> str:
    """Write milliseconds, or that it was given up."""
    return f"> {CAP_S * 1000:.0f}" if seconds >= CAP_S else f"{seconds * 1000:.1f}"


def measure(kind: type[Any], arguments: tuple[Path, str], authority: Authority, tries: int) -> bool:
    """Print one table; return whether it is within the limits."""
    is_prompt = True
    print(f"\n{kind.name}, {tries} tries, ms{'cancel':>28}{'':>12}{'deadline':>12}")
    print(f"{'':<26}{'median':>12}{'maximum':>12}{'median':>12}{'maximum':>12}")
    with scenes(authority) as places:
        for name, scene in places.items():
            if kind is not Ours and name in {QUEUED, WAITING}:
                continue
            client = kind(name, scene, *arguments)
            row = []
            for cancel in (True, False):
                times = [attempt(client, scene, cancel=cancel) for _ in range(tries)]
                row += [statistics.median(times), max(times)]
                is_prompt = is_prompt and row[-2] < MEDIAN_S and row[-1] < MAXIMUM_S
            client.close()
            print(f"{name:<26}" + "".join(f"{show(seconds):>12}" for seconds in row), flush=True)
    return is_prompt


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all tables; return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tries", type=int, default=200, help="tries for each figure of ours (200)")
    parser.add_argument("--peer-tries", type=int, default=3, help="tries for the peers, which take their time (3)")
    options = parser.parse_args(arguments)
    authority = Authority()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, budget=3)
        bundle = folder / "ca.pem"
        bundle.write_bytes(authority.pem)
        is_prompt = measure(Ours, (folder, str(bundle)), authority, options.tries)
        for peer in (Requests, OpenAI):
            if options.peer_tries:
                try:
                    measure(peer, (folder, str(bundle)), authority, options.peer_tries)
                except ImportError as error:
                    print(f"{peer.name}: not measured ({error})")
    print(
        f"\nlimits: median {MEDIAN_S * 1000:g} ms, maximum {MAXIMUM_S * 1000:g} ms: {'kept' if is_prompt else 'MISSED'}"
    )
    return 0 if is_prompt else 1


if __name__ == "__main__":
    sys.exit(main())
