"""Faults of servers and networks, under every kind of bound: plain and TLS, directly and through proxies."""

from __future__ import annotations

import signal
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from promptkit._cancel import CancelToken
from promptkit._transport import Transport
from promptkit.errors import (
    ConfigError,
    DeadlineExceededError,
    RunCancelledError,
    TransportError,
    TransportTimeoutError,
)
from support.clock import HANG_S
from support.http import late_in, on_phase, post, time_out_in
from support.server import (
    Authority,
    Server,
    SocksServer,
    black_hole,
    disconnect,
    hang,
    reply,
    reset,
    trickle,
    truncate,
    tunnel,
    unused_port,
)
from support.threads import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGE = b"x" * 50_000_000
"""More than the buffers of two sockets hold."""


@pytest.fixture(scope="module")
def authority() -> Authority:
    """The authority that signs the servers' certificates."""
    return Authority()


@pytest.fixture
def bundle(authority: Authority, tmp_path: Path) -> str:
    """The file with its certificate."""
    path = tmp_path / "ca.pem"
    path.write_bytes(authority.pem)
    return str(path)


@pytest.fixture
def transport(bundle: str) -> Iterator[Transport]:
    """A transport that trusts the authority and takes no proxy from the environment."""
    transport = Transport(pool_size=4, proxies={}, ca_bundle=bundle)
    yield transport
    transport.close()


@pytest.fixture(params=["plain", "tls"])
def is_tls(request: pytest.FixtureRequest) -> bool:
    """Run the test on a plain connection and under TLS."""
    return bool(request.param == "tls")


@pytest.fixture
def server(authority: Authority, *, is_tls: bool) -> Iterator[Server]:
    """A server of the wanted kind."""
    with Server(reply(), tls=authority.server_context() if is_tls else None) as server:
        yield server


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that says nothing about proxies and authorities yet."""
    names = (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "SSL_CERT_FILE",
    )
    for name in names:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


SLOW = {
    "silence": (hang(), "first byte"),
    "silence-after-a-byte": (hang(b"H"), "body"),
    "headers": (trickle(part="headers"), "body"),
    "length": (trickle(), "body"),
    "chunked": (trickle(framing="chunked"), "body"),
    "close": (trickle(framing="close"), "body"),
}


# ------------------------------------------------------------------------------------------ time and cancel


@pytest.mark.parametrize("kind", SLOW)
def test_c01_a_deadline_holds_however_slowly_it_comes(
    transport: Transport, server: Server, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """C01: each byte comes well within any read timeout; the run's time ends it, with the phase named."""
    action, phase = SLOW[kind]
    server.play(action)
    with pytest.raises(DeadlineExceededError, match=r"0\.03 s was up while (waiting for|reading) ") as caught:
        post(transport, server.url, cancel=late_in(monkeypatch, phase))
    assert caught.value.phase == phase


@pytest.mark.parametrize("kind", SLOW)
def test_the_attempts_own_time_holds_too(
    transport: Transport, server: Server, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """timeout_s bounds the whole exchange in the same way; the answer may be paid for, so it is not asked again."""
    action, phase = SLOW[kind]
    server.play(action)
    time_out_in(monkeypatch, phase)
    with pytest.raises(TransportTimeoutError, match="no whole answer within timeout_s = 20 s") as caught:
        post(transport, server.url)
    assert caught.value.phase == phase
    assert not caught.value.is_retryable


@pytest.mark.parametrize("kind", SLOW)
def test_a_cancel_from_another_thread_ends_it(
    transport: Transport, server: Server, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The blocked call returns, its connection is closed, and the next call has a new one."""
    action, phase = SLOW[kind]
    server.play(action)
    is_there = threading.Event()
    on_phase(monkeypatch, phase, lambda _: is_there.set())
    token = CancelToken()
    worker = Worker(post, transport, server.url, cancel=token)
    assert is_there.wait(HANG_S)
    token.cancel("enough")
    with pytest.raises(RunCancelledError, match="enough") as caught:
        worker.result()
    assert caught.value.phase == phase
    server.wait_for(lambda seen: seen.connections == 1 and not seen.open)
    server.play(reply())
    assert post(transport, server.url).status == 200
    assert server.connections == 2


@pytest.mark.parametrize("kind", SLOW)
def test_a_poll_ends_it(transport: Transport, server: Server, kind: str) -> None:
    """A host that can only be asked is asked while the call blocks."""
    action, _ = SLOW[kind]
    server.play(action)
    token = CancelToken(poll=lambda: server.in_flight == 1, poll_interval_s=0.01)
    with pytest.raises(RunCancelledError):
        post(transport, server.url, cancel=token)


def test_a_server_that_does_not_read_is_left(
    transport: Transport, authority: Authority, monkeypatch: pytest.MonkeyPatch, *, is_tls: bool
) -> None:
    """Sending is bounded: by the deadline, by timeout_s, by a cancel and by a poll."""
    with Server(is_deaf=True, tls=authority.server_context() if is_tls else None) as server:
        with monkeypatch.context() as patch, pytest.raises(DeadlineExceededError) as late:
            post(transport, server.url, body=LARGE, cancel=late_in(patch, "send"))
        with monkeypatch.context() as patch:
            time_out_in(patch, "send")
            with pytest.raises(TransportTimeoutError, match="while sending the request"):
                post(transport, server.url, body=LARGE)
        deafened, token = server.deafened, CancelToken()
        worker = Worker(post, transport, server.url, body=LARGE, cancel=token)
        server.wait_for(lambda seen: seen.deafened > deafened)
        token.cancel()
        with pytest.raises(RunCancelledError) as cancelled:
            worker.result()
        deafened = server.deafened
        polled = CancelToken(poll=lambda: server.deafened > deafened, poll_interval_s=0.01)
        with pytest.raises(RunCancelledError):
            post(transport, server.url, body=LARGE, cancel=polled)
    assert late.value.phase == cancelled.value.phase == "send"


def test_a_connect_that_hangs_ends_in_time(transport: Transport) -> None:
    """A black hole costs no more than the time there is; trying again later may help."""
    with black_hole() as port:
        url = f"http://127.0.0.1:{port}/v1"
        with pytest.raises(TransportTimeoutError, match=r"no connection within timeout_s = 0\.1 s") as caught:
            post(transport, url, timeout_s=0.1)
        assert caught.value.is_retryable
        assert caught.value.phase == "connect"
        with pytest.raises(DeadlineExceededError) as late:
            post(transport, url, cancel=CancelToken(timeout=0.1))
        assert late.value.phase == "connect"
        asked = iter(range(5))
        with pytest.raises(RunCancelledError):
            post(transport, url, cancel=CancelToken(poll=lambda: next(asked, None) is None, poll_interval_s=0.01))


def test_connecting_has_a_limit_of_its_own() -> None:
    """A long timeout_s is for the answer, not for a server that cannot be reached."""
    with black_hole() as port:
        transport = Transport(pool_size=1, proxies={}, connect_s=0.1)
        for timeout_s in (600, 0.15):
            with pytest.raises(TransportTimeoutError, match=r"no connection within 0\.1 s") as caught:
                post(transport, f"http://127.0.0.1:{port}/v1", timeout_s=timeout_s)
            assert caught.value.is_retryable


def test_a_handshake_that_hangs_ends(transport: Transport, authority: Authority) -> None:
    """TLS greetings without an answer end by deadline, timeout, cancel and poll."""
    with Server(tls=authority.server_context(), handshake_hangs=True) as server:
        with pytest.raises(DeadlineExceededError) as late:
            post(transport, server.url, cancel=CancelToken(timeout=0.1))
        with pytest.raises(TransportTimeoutError):
            post(transport, server.url, timeout_s=0.1)
        with pytest.raises(RunCancelledError):
            post(
                transport,
                server.url,
                cancel=CancelToken(poll=lambda: server.connections == 3, poll_interval_s=0.01),
            )
        token = CancelToken()
        worker = Worker(post, transport, server.url, cancel=token)
        server.wait_for(lambda seen: seen.connections == 4)
        token.cancel()
        with pytest.raises(RunCancelledError) as cancelled:
            worker.result()
    assert late.value.phase == cancelled.value.phase == "connect"


def test_a_cancel_before_the_connection_stands_is_not_lost(
    transport: Transport, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled in the look-up, by that very thread: nothing is sent."""
    token = CancelToken()
    look_up = socket.getaddrinfo

    def cancel_meanwhile(*arguments: Any) -> Any:
        token.cancel()
        return look_up(*arguments)

    monkeypatch.setattr(socket, "getaddrinfo", cancel_meanwhile)
    with pytest.raises(RunCancelledError) as caught:
        post(transport, server.url, cancel=token)
    assert caught.value.phase == "connect"
    assert not server.requests


def test_c13_ctrl_c_comes_out_as_it_is(transport: Transport, server: Server) -> None:
    """C13: an interrupt from the keyboard ends the blocked call, and its connection with it."""
    server.play(hang(), reply())

    def press() -> None:
        server.wait_for(lambda seen: seen.in_flight == 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    worker = Worker(press)
    token = CancelToken()
    with pytest.raises(KeyboardInterrupt):
        post(transport, server.url, cancel=token)
    worker.result()
    server.wait_for(lambda seen: not seen.open)
    assert not token._watchers
    assert post(transport, server.url).status == 200


def test_a_signal_handler_may_cancel_the_thread_that_it_interrupts(
    transport: Transport, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler runs in the blocked thread itself; no lock of ours is in its way."""
    token = CancelToken()
    former = signal.signal(signal.SIGUSR1, lambda *_: token.cancel("signalled"))
    try:
        server.play(hang())

        def notify() -> None:
            server.wait_for(lambda seen: seen.in_flight == 1)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        worker = Worker(notify)
        with pytest.raises(RunCancelledError, match="signalled"):
            post(transport, server.url, cancel=token)
        worker.result()
    finally:
        signal.signal(signal.SIGUSR1, former)


# -------------------------------------------------------------------------------------------- broken off


@pytest.mark.parametrize(
    "action",
    [truncate(), truncate(framing="chunked"), reset(), reset(b"HTTP/1.1 200 OK\r\nContent-Le"), disconnect()],
    ids=["length", "chunked", "reset", "reset-head", "closed"],
)
def test_what_breaks_off_may_be_asked_for_again(transport: Transport, server: Server, action: Any) -> None:
    """Plain and under TLS alike."""
    server.play(action)
    with pytest.raises(TransportError, match=f"127.0.0.1:{server.port}") as caught:
        post(transport, server.url)
    assert caught.value.is_retryable


def test_a_kept_connection_is_replaced(transport: Transport, server: Server) -> None:
    """The server closes at the moment it is asked again, plain and under TLS."""
    server.play(reply(), disconnect(), reply())
    for _ in range(2):
        assert post(transport, server.url).status == 200
    assert len(server.requests) == 3


def test_many_calls_half_of_them_cancelled(transport: Transport, server: Server) -> None:
    """No call sees another's fate: those that are cancelled say so, those that are not have their answers."""
    held = threading.Event()

    def ask(number: int) -> None:
        for turn in range(6):
            if (number + turn) % 2:
                assert post(transport, f"{server.url}/ok").body == b"[]"
            else:
                token = CancelToken()
                timer = threading.Timer(0.005 * (turn + 1), token.cancel)
                timer.start()
                with pytest.raises(RunCancelledError):
                    post(transport, f"{server.url}/hang", cancel=token)
                timer.join()
        held.set()

    server.route("/ok", reply(b"[]"))
    server.route("/hang", hang())
    for worker in [Worker(ask, number) for number in range(6)]:
        worker.result()


# ----------------------------------------------------------------------------------------------------- TLS


def test_c26_a_certificate_of_a_private_authority(authority: Authority, environment: Any) -> None:
    """C26: the error is permanent, names the host and the option for the authority, and no way to look away."""
    transport = Transport(pool_size=1, proxies={})
    with (
        Server(reply(), tls=authority.server_context()) as server,
        pytest.raises(TransportError, match="certificate verify failed") as caught,
    ):
        post(transport, server.url)
    assert not caught.value.is_retryable
    for name in (f"127.0.0.1:{server.port}", "ca_bundle", "REQUESTS_CA_BUNDLE"):
        assert name in str(caught.value)
    assert not server.requests


def test_c26_with_the_bundle_it_is_trusted(bundle: str, authority: Authority, environment: Any) -> None:
    """C26: given as an option or by the environment."""
    environment.setenv("REQUESTS_CA_BUNDLE", bundle)
    with Server(reply(), tls=authority.server_context()) as server:
        for given in (bundle, None):
            transport = Transport(pool_size=1, ca_bundle=given)
            assert post(transport, server.url).status == 200
            transport.close()


def test_a_certificate_for_another_name_is_refused(transport: Transport, authority: Authority) -> None:
    """Trusted, but not for this host."""
    with (
        Server(reply(), tls=authority.server_context("other.example")) as server,
        pytest.raises(TransportError, match=r"certificate verify failed.*mismatch") as caught,
    ):
        post(transport, server.url)
    assert not caught.value.is_retryable


@pytest.mark.parametrize(
    ("words", "is_retryable"), [(b"HTTP/1.1 400 Bad Request\r\n\r\n", False), (b"", True)], ids=["plain", "closed"]
)
def test_a_handshake_that_fails(transport: Transport, words: bytes, *, is_retryable: bool) -> None:
    """A server that speaks plain HTTP is a permanent fault; one that just closes may be going away."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as sock:
                sock.recv(65536)
                sock.sendall(words)

        worker = Worker(answer)
        with pytest.raises(TransportError, match="does the server speak https") as caught:
            post(transport, f"https://127.0.0.1:{listener.getsockname()[1]}/")
        worker.result()
    assert caught.value.is_retryable is is_retryable
    assert caught.value.phase == "connect"


# -------------------------------------------------------------------------------------------------- names


def test_c28_a_look_up_that_fails_for_now(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    """C28: a temporary failure is retryable, and the next attempt gets the answer."""
    look_up, failures = socket.getaddrinfo, [socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")]

    def hiccup(host: str, *arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return look_up("127.0.0.1", *arguments)

    monkeypatch.setattr(socket, "getaddrinfo", hiccup)
    with Server(reply()) as server:
        url = f"http://models.example:{server.port}/v1"
        with pytest.raises(TransportError, match=r"models\.example.*temporary failure") as caught:
            post(transport, url)
        assert caught.value.is_retryable
        assert post(transport, url).status == 200


def test_c28_a_name_that_nobody_knows(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    """C28: the host is named; it may be tried again within the budget."""

    def unknown(*_: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(TransportError, match=r"no-such-host\.example:80: .*name is not known") as caught:
        post(transport, "http://no-such-host.example/v1")
    assert caught.value.is_retryable


def test_a_name_that_cannot_be_one(transport: Transport) -> None:
    """Labels longer than DNS allows are no crash."""
    with pytest.raises((TransportError, ConfigError)):
        post(transport, f"http://{'x' * 70}.example/v1")


# ------------------------------------------------------------------------------------------------ proxies


def test_c24_a_proxy_from_the_environment_in_the_way_of_a_local_server(environment: Any) -> None:
    """C24: the error names the proxy without its password, and both cures."""
    port = unused_port()
    environment.setenv("HTTP_PROXY", f"http://user:secret@127.0.0.1:{port}")
    with Server(reply()) as server:
        transport = Transport(pool_size=1)
        with pytest.raises(TransportError, match=f"127.0.0.1:{server.port} via proxy 127.0.0.1:{port}") as caught:
            post(transport, server.url)
    assert "add 127.0.0.1 to NO_PROXY" in str(caught.value)
    assert "proxy: none" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_c24_no_proxy_and_the_profile_go_around_it(environment: Any) -> None:
    """C24: NO_PROXY is honoured, and so is a profile that wants no proxy."""
    environment.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused_port()}")
    with Server(reply()) as server:
        around = Transport(pool_size=1)
        assert post(around, server.url, use_proxy=False).via is None
        around.close()
        environment.setenv("NO_PROXY", "127.0.0.0/8")
        excepted = Transport(pool_size=1)
        assert post(excepted, server.url).via is None
        excepted.close()


def test_c25_a_socks_proxy_without_its_extra(environment: Any) -> None:
    """C25: a matter of configuration, said when the transport is built."""
    environment.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    environment.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"socks.*pip install"):
        Transport(pool_size=1)


def test_a_plain_request_goes_through_the_proxy() -> None:
    """It gets the whole address and the credentials; the answer says by which way it came."""
    with Server(reply(b"[1]")) as proxy:
        transport = Transport(pool_size=1, proxies={"http": f"http://user:secret@127.0.0.1:{proxy.port}"})
        for path in ("/v1?a=1", "/v2"):
            answer = post(transport, f"http://api.example{path}")
            assert answer.body == b"[1]"
            assert answer.via == f"127.0.0.1:{proxy.port}"
        transport.close()
    assert [request.target for request in proxy.requests] == ["http://api.example/v1?a=1", "http://api.example/v2"]
    assert proxy.requests[0].headers["host"] == "api.example"
    assert proxy.requests[0].headers["proxy-authorization"] == "Basic dXNlcjpzZWNyZXQ="
    assert proxy.connections == 1


@pytest.mark.parametrize("proxy_scheme", ["http", "https"])
def test_tls_goes_through_a_tunnel(authority: Authority, bundle: str, proxy_scheme: str) -> None:
    """The proxy sees the address and its credentials, the server the request; bounds and cancels hold inside."""
    context = authority.server_context()
    with (
        Server(tunnel(), tls=authority.server_context() if proxy_scheme == "https" else None) as proxy,
        Server(reply(b"[1]"), tls=context) as server,
    ):
        address = f"{proxy_scheme}://user:secret@127.0.0.1:{proxy.port}"
        transport = Transport(pool_size=1, proxies={"https": address}, ca_bundle=bundle)
        for _ in range(2):
            assert post(transport, server.url).body == b"[1]"
        assert (proxy.connections, server.connections) == (1, 1)
        assert proxy.requests[0].target == f"127.0.0.1:{server.port}"
        assert proxy.requests[0].headers["proxy-authorization"] == "Basic dXNlcjpzZWNyZXQ="
        assert "proxy-authorization" not in server.requests[0].headers
        assert "authorization" not in proxy.requests[0].headers

        server.play(hang())
        with pytest.raises(DeadlineExceededError):
            post(transport, server.url, cancel=CancelToken(timeout=0.1))
        token = CancelToken()
        worker = Worker(post, transport, f"{server.url}/cancelled", cancel=token)
        server.wait_for(lambda seen: seen.requests[-1].target == "/cancelled")
        token.cancel()
        with pytest.raises(RunCancelledError):
            worker.result()
        transport.close()


@pytest.mark.parametrize(
    "case",
    [("socks5", "localhost", "127.0.0.1"), ("socks5h", "localhost", "localhost"), ("socks5", "127.0.0.1", "127.0.0.1")],
    ids=lambda case: f"{case[0]}-{case[1]}",
)
def test_a_socks_proxy_carries_it(server: Server, bundle: str, case: tuple[str, str, str]) -> None:
    """Plain and under TLS; the name is looked up here or there, as the scheme says, and a kept connection is used."""
    scheme, host, target = case
    with SocksServer(user="user") as proxy:
        transport = Transport(
            pool_size=1, proxies={"all": f"{scheme}://user:secret@127.0.0.1:{proxy.port}"}, ca_bundle=bundle
        )
        for _ in range(2):
            answer = post(transport, server.url.replace("127.0.0.1", host))
            assert (answer.status, answer.via) == (200, f"127.0.0.1:{proxy.port}")
        server.play(hang())
        with pytest.raises(DeadlineExceededError):
            post(transport, server.url.replace("127.0.0.1", host), cancel=CancelToken(timeout=0.1))
        transport.close()
        assert proxy.targets == [f"{target}:{server.port}"]
        assert proxy.users == ["user:secret"]
    assert server.requests[0].target == "/"


def test_a_socks_proxy_that_refuses_or_says_nothing() -> None:
    """Its reason is in the error, without its password; its silence is bounded and can be interrupted."""
    with SocksServer(status=5) as proxy:
        transport = Transport(pool_size=1, proxies={"all": f"socks5h://user:secret@127.0.0.1:{proxy.port}"})
        with pytest.raises(TransportError, match=r"via proxy .*refused") as refused:
            post(transport, "http://api.example/v1")
    assert refused.value.is_retryable
    assert "secret" not in str(refused.value)
    with SocksServer(is_silent=True) as proxy:
        transport = Transport(pool_size=1, proxies={"all": f"socks5h://127.0.0.1:{proxy.port}"})
        with pytest.raises(DeadlineExceededError) as caught:
            post(transport, "http://api.example/v1", cancel=CancelToken(timeout=0.1))
        token = CancelToken()
        worker = Worker(post, transport, "http://api.example/v1", cancel=token)
        proxy.wait_for(lambda seen: seen.connections == 2)
        token.cancel()
        with pytest.raises(RunCancelledError):
            worker.result()
    assert caught.value.phase == "connect"


@pytest.mark.parametrize(("status", "is_retryable"), [(403, False), (407, False), (502, True), (503, True)])
def test_a_proxy_that_refuses_the_tunnel(authority: Authority, status: int, *, is_retryable: bool) -> None:
    """What it said is in the error; a passing trouble may be tried again."""
    with Server(tunnel(status=status)) as proxy:
        transport = Transport(pool_size=1, proxies={"all": f"http://127.0.0.1:{proxy.port}"})
        with pytest.raises(TransportError, match=f"api.example:443 via proxy .*{status}") as caught:
            post(transport, "https://api.example/v1")
    assert caught.value.is_retryable is is_retryable


def test_a_proxy_that_says_nothing(authority: Authority) -> None:
    """Waiting for the tunnel is part of connecting, and bounded like it."""
    with Server(hang()) as proxy:
        transport = Transport(pool_size=1, proxies={"all": f"http://127.0.0.1:{proxy.port}"})
        with pytest.raises(DeadlineExceededError) as caught:
            post(transport, "https://api.example/v1", cancel=CancelToken(timeout=0.1))
    assert caught.value.phase == "connect"


@pytest.mark.parametrize("action", [disconnect(), reset()], ids=["closed", "reset"])
def test_a_proxy_that_breaks_off(action: Any) -> None:
    """It may be there again at the next attempt."""
    with Server(action) as proxy:
        transport = Transport(pool_size=1, proxies={"all": f"http://127.0.0.1:{proxy.port}"})
        with pytest.raises(TransportError, match="via proxy") as caught:
            post(transport, "https://api.example/v1")
    assert caught.value.is_retryable
