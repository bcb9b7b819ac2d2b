"""Sockets that wait no longer than their exchange allows, and connecting."""

from __future__ import annotations

import errno
import select
import socket
import ssl
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import _sockets
from promptkit._cancel import CancelToken
from promptkit._exchange import Exchange, Stopped
from promptkit._sockets import BoundedSocket, Line, check_patching, client_context, connect
from promptkit.errors import ConfigError
from support.server import Authority, Server, black_hole, reply, unused_port
from support.threads import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def new_exchange(cancel: CancelToken | None = None, *, timeout_s: float = 20, connect_s: float = 20) -> Exchange:
    """Return an exchange with time enough."""
    return Exchange(cancel or CancelToken(), timeout_s=timeout_s, connect_s=connect_s)


# --------------------------------------------------------------------------------------------- sockets


@pytest.fixture
def pair() -> Iterator[tuple[BoundedSocket, socket.socket]]:
    """A bounded socket and its peer, on a polled token whose poll says no."""
    ours, theirs = socket.socketpair()
    bounded = BoundedSocket(ours.family, ours.type, ours.proto, fileno=ours.detach())
    bounded.line = Line(new_exchange(CancelToken(poll=lambda: False, poll_interval_s=0.01)), bounded.dup())
    yield bounded, theirs
    bounded.line.handle.close()
    bounded.close()
    theirs.close()


def test_receiving_goes_on_over_slices(pair: tuple[BoundedSocket, socket.socket]) -> None:
    """What comes after several slices is received, either way of asking for it."""
    ours, theirs = pair
    buffer = bytearray(2)
    for receive, expected in ((lambda: ours.recv(2), b"hi"), (lambda: ours.recv_into(buffer), 2)):
        asked = threading.Event()
        answers = iter([False, False, False])

        def poll(answers: Any = answers, asked: Any = asked) -> bool:
            if next(answers, None) is None:
                asked.set()
            return False

        ours.line.exchange = new_exchange(CancelToken(poll=poll, poll_interval_s=0.01))
        worker = Worker(receive)
        assert asked.wait(20)
        theirs.send(b"hi")
        assert worker.result() == expected
    assert buffer == b"hi"


def test_the_first_byte_begins_the_body(pair: tuple[BoundedSocket, socket.socket]) -> None:
    """The phase changes with what arrives, and the end of the stream is noted."""
    ours, theirs = pair
    exchange = ours.line.exchange
    exchange.enter("first byte")
    theirs.send(b"x")
    ours.recv(1)
    assert exchange.phase == "body"
    theirs.close()
    assert ours.recv(1) == b""
    assert exchange.has_ended_stream


def test_sending_goes_on_over_slices(pair: tuple[BoundedSocket, socket.socket]) -> None:
    """A peer that reads late still gets everything."""
    ours, theirs = pair
    data = bytes(range(256)) * 8000
    worker = Worker(ours.sendall, data)
    received = bytearray()
    while len(received) < len(data):
        received += theirs.recv(1 << 20)
    worker.result()
    assert received == data


def test_sending_to_a_peer_that_does_not_read_ends(pair: tuple[BoundedSocket, socket.socket]) -> None:
    """The deadline holds for sending, too."""
    ours, _ = pair
    ours.line.exchange = new_exchange(CancelToken(timeout=0.05))
    with pytest.raises(Stopped):
        ours.sendall(b"x" * 50_000_000)


# ------------------------------------------------------------------------------------------- connecting


def test_the_first_address_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with several addresses is tried one by one."""
    with Server(reply()) as server:
        places = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in (unused_port(), server.port)
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: places)
        exchange = new_exchange()
        sock = connect("several.example", 80, exchange)
        assert sock.getpeername()[1] == server.port
        assert exchange.disarm()
        sock.line.kill()
        sock.close()


def test_an_address_that_swallows_everything_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is shared, so that one black hole does not use it all."""
    with black_hole() as hole, Server(reply()) as server:
        places = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in (hole, server.port)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: places)
        exchange = new_exchange(timeout_s=2)
        sock = connect("several.example", 80, exchange)
        assert sock.getpeername()[1] == server.port
        assert exchange.disarm()
        sock.line.kill()
        sock.close()


def test_a_name_without_addresses_cannot_be_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty list is an error, not a crash."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [])
    with pytest.raises(OSError, match="no address"):
        connect("none.example", 80, new_exchange())


def test_a_connect_that_hangs_is_interrupted() -> None:
    """An interrupt from another thread ends it, and the socket is closed."""
    with black_hole() as hole:
        exchange = new_exchange()
        worker = Worker(connect, "127.0.0.1", hole, exchange)
        while not exchange._wakers and worker.thread.is_alive():
            select.select([], [], [], 0)
        exchange.interrupt()
        with pytest.raises(Stopped):
            worker.result()


def test_a_connect_that_hangs_ends_in_time() -> None:
    """Nobody interrupts; the bound does."""
    with black_hole() as hole, pytest.raises(Stopped):
        connect("127.0.0.1", hole, new_exchange(timeout_s=0.05))


def hanging_look_up(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Replace the resolver by one that hangs; return events: it has begun, it may end."""
    begun, may_end = threading.Event(), threading.Event()

    def look_up(*_: object) -> list[Any]:
        begun.set()
        may_end.wait(20)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return begun, may_end


def helper_threads() -> list[threading.Thread]:
    """Return the look-ups that are under way."""
    return [thread for thread in threading.enumerate() if thread.name == "promptkit-lookup"]


def test_a_look_up_that_hangs_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver cannot be interrupted; whoever waits for it can, and its thread ends with it."""
    begun, may_end = hanging_look_up(monkeypatch)
    exchange = new_exchange()
    worker = Worker(connect, "slow.example", 80, exchange)
    assert begun.wait(20)
    exchange.interrupt()
    with pytest.raises(Stopped):
        worker.result()
    (helper,) = helper_threads()
    may_end.set()
    helper.join(20)
    assert not helper_threads()


def test_a_look_up_that_hangs_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline holds, with and without slices."""
    for token in (CancelToken(timeout=0.05), CancelToken(timeout=0.05, poll=lambda: False, poll_interval_s=0.01)):
        _, may_end = hanging_look_up(monkeypatch)
        with pytest.raises(Stopped):
            connect("slow.example", 80, new_exchange(token))
        may_end.set()
        for helper in helper_threads():
            helper.join(20)


def test_what_the_resolver_raises_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the caller's thread, as it was."""
    _, may_end = hanging_look_up(monkeypatch)
    may_end.set()
    with pytest.raises(socket.gaierror, match="Temporary failure"):
        connect("slow.example", 80, new_exchange())


def test_a_literal_address_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked up, so nothing can hang."""
    monkeypatch.setattr(threading, "Thread", None)
    with pytest.raises(ConnectionRefusedError):
        connect("127.0.0.1", unused_port(), new_exchange())


def test_when_no_thread_can_be_started_that_is_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process at its limit of threads is a failure to connect, not a crash."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(OSError, match="no thread could be started"):
        connect("some.example", 80, new_exchange())


def test_a_network_that_cannot_be_reached_is_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may refuse without any waiting."""
    monkeypatch.setattr(BoundedSocket, "connect_ex", lambda *_: errno.ENETUNREACH)
    exchange = new_exchange()
    with pytest.raises(OSError, match="Network is unreachable"):
        connect("127.0.0.1", 80, exchange)
    assert not exchange.disarm()


def test_a_process_without_descriptors_fails_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the socket nor its duplicate is left open."""

    def refuse(_: socket.socket) -> socket.socket:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(BoundedSocket, "dup", refuse)
    exchange = new_exchange()
    with pytest.raises(OSError, match="Too many open files"):
        connect("127.0.0.1", unused_port(), exchange)
    assert not exchange.disarm()


# -------------------------------------------------------------------------------------------- TLS, gevent


def test_authorities_may_be_a_folder(tmp_path: Path) -> None:
    """As OpenSSL keeps them, by hash; checking and names are on."""
    context = client_context(str(tmp_path))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_authorities_may_be_a_file(tmp_path: Path) -> None:
    """A PEM file of any number of them."""
    (tmp_path / "ca.pem").write_bytes(Authority().pem)
    assert client_context(str(tmp_path / "ca.pem")).cert_store_stats()["x509_ca"] == 1


@pytest.mark.parametrize("name", ["gevent", "eventlet"])
def test_c10_monkey_patching_that_came_too_late_is_said(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C10: sockets replaced after the import would block the hub; the error says what to do."""
    is_patched = lambda module: module == "socket"  # noqa: E731
    parts = {
        "gevent": ("gevent.monkey", types.SimpleNamespace(is_module_patched=is_patched)),
        "eventlet": ("eventlet.patcher", types.SimpleNamespace(is_monkey_patched=is_patched)),
    }
    module, stand_in = parts[name]
    monkeypatch.setitem(sys.modules, module, stand_in)
    check_patching()
    monkeypatch.setattr(_sockets.socket, "socket", type("Patched", (socket.socket,), {}))
    with pytest.raises(ConfigError, match=f"monkey patching came too late: {name}"):
        check_patching()


def test_sockets_replaced_by_something_else_are_not_our_concern(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test tool may guard the sockets; ours still work."""
    monkeypatch.setattr(_sockets.socket, "socket", type("Guarded", (socket.socket,), {}))
    check_patching()
