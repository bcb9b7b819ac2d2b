"""A loopback HTTP server that plays scripted answers and faults, for tests of the wire.

::

    with Server() as server:
        server.play(reply(status=429, json={"error": {}}), reply(json=completion("hi")))
        client.post(server.url + "/v1/chat/completions", ...)
    assert server.requests[0].headers["authorization"] == "Bearer k"

Each request takes the next action of the script; the last one stays and answers all that follow. An action
is a function of the `Connection` and the `Received` request that writes to the connection and says whether
it may stay open. `Server.route` gives a path a script of its own.

Guarantees: binds 127.0.0.1 alone; one thread a connection, all joined by `close`; no action outlives
`close`, whatever it waits for. ``requests``, ``connections``, ``open``, ``in_flight`` and ``peak`` are guarded by
one condition; read them once the calls under test have returned, or through `wait_for`.
"""

from __future__ import annotations

import contextlib
import gzip
import json as json_module
import select
import socket
import ssl
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self
from urllib.parse import urlsplit

import attrs

WAIT_S = 20.0
"""How long a test may wait for something that is bound to happen, seconds."""


@attrs.frozen
class Received:
    """One request as it arrived; header names are in lower case, repeated ones joined by a comma."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection: int
    """Which connection brought it: 1 for the first one accepted."""

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json_module.loads(self.body)


class Connection:
    """One accepted connection: what an action writes to."""

    def __init__(self, server: Server, sock: socket.socket, number: int) -> None:
        self.server = server
        self.number = number
        self._sock = sock
        self._buffer = b""

    def send(self, data: bytes) -> None:
        """Send all of ``data``."""
        self._sock.sendall(data)

    def pause(self, seconds: float) -> None:
        """Wait, unless the server is closed first, which ends the action."""
        if self.server.stopping.wait(seconds):
            raise ConnectionAbortedError

    def hang(self) -> None:
        """Wait, without reading, until the client has gone or the server is closed."""
        poller = select.poll()
        poller.register(self._sock, select.POLLRDHUP)
        poller.register(self.server.waker, select.POLLIN)
        poller.poll()
        if not self.server.stopping.is_set():
            self.server.note_departure()

    def reset(self) -> None:
        """Close so that the client gets a reset."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    def read_line(self) -> bytes:
        """Return the next line without its end, or nothing at the end of the stream."""
        while b"\n" not in self._buffer:
            data = self._sock.recv(65536)
            if not data:
                return b""
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.rstrip(b"\r")

    def read(self, size: int) -> bytes:
        """Return exactly ``size`` bytes."""
        while len(self._buffer) < size:
            data = self._sock.recv(1 << 20)
            if not data:
                raise ConnectionAbortedError
            self._buffer += data
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def read_request(self) -> Received | None:
        """Return the next request, or None when the client has closed."""
        line = self.read_line()
        if not line:
            return None
        method, target, _ = line.decode("latin-1").split(" ", 2)
        headers: dict[str, str] = {}
        while field := self.read_line():
            name, _, value = field.decode("latin-1").partition(":")
            name = name.strip().lower()
            headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
        if self.server.is_deaf:
            self.server.note_deafened()
            self.hang()
            return None
        body = self.read(int(headers.get("content-length", 0)))
        return Received(method, target, headers, body, self.number)

    def tunnel(self, host: str, port: int) -> None:
        """Copy bytes between the client and ``host:port`` until either side is done."""
        with socket.create_connection((host, port), timeout=WAIT_S) as other:
            other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.server.track(other)
            pairs = {self._sock: other, other: self._sock}
            while True:
                for ready in select.select(list(pairs), [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    pairs[ready].sendall(data)

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()


Action = Callable[[Connection, Received], bool]


class Gate:
    """Holds answers back: each held request reports here, and waits until the gate is open."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._arrived = 0
        self._is_open = False

    def wait_arrived(self, count: int = 1) -> None:
        """Return once ``count`` requests in all have arrived."""
        with self._condition:
            assert self._condition.wait_for(lambda: self._arrived >= count, WAIT_S), f"only {self._arrived} arrived"

    def open(self) -> None:
        """Let everything through, now and later."""
        with self._condition:
            self._is_open = True
            self._condition.notify_all()

    def pass_through(self, server: Server) -> None:
        """Report an arrival and wait; called by actions."""
        with self._condition:
            self._arrived += 1
            self._condition.notify_all()
            server.on_close(self.open)
            self._condition.wait_for(lambda: self._is_open)


class Server:
    """The server; see the module. ``tls`` is a context made by `Authority.server_context`.

    ``handshake_hangs``: accept and never answer the TLS greeting. ``is_deaf``: read no request body and never
    answer.
    """

    def __init__(
        self,
        *actions: Action,
        tls: ssl.SSLContext | None = None,
        handshake_hangs: bool = False,
        is_deaf: bool = False,
        host: str = "127.0.0.1",
    ) -> None:
        self.is_deaf = is_deaf
        self.requests: list[Received] = []
        self.connections = 0
        self.in_flight = 0
        self.peak = 0
        self.departures = 0
        self.deafened = 0
        self.open: set[socket.socket] = set()
        self.stopping = threading.Event()
        self._tls = tls
        self._handshake_hangs = handshake_hangs
        self._changed = threading.Condition()
        self._scripts: dict[str | None, list[Action]] = {None: list(actions)}
        self._closers: list[Callable[[], None]] = []
        self._threads: list[threading.Thread] = []
        self.waker, self._wake = socket.socketpair()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=1024)
        self.host = f"[{host}]" if ":" in host else host
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, name="server-accept")
        self._accepting.start()

    # ------------------------------------------------------------------ what tests use

    @property
    def url(self) -> str:
        """The server's address without a path."""
        return f"{'https' if self._tls else 'http'}://{self.host}:{self.port}"

    def play(self, *actions: Action) -> Self:
        """Set the script of every path that has none of its own."""
        return self.route(None, *actions)

    def route(self, path: str | None, *actions: Action) -> Self:
        """Set the script of one path (the request target as it arrives)."""
        with self._changed:
            self._scripts[path] = list(actions)
        return self

    def wait_for(self, condition: Callable[[Server], bool]) -> None:
        """Return once ``condition`` of the server's counters holds."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), WAIT_S), "the server has not seen it"

    def close_idle(self) -> None:
        """Close every open connection from the server's side, as a server does with idle ones."""
        with self._changed:
            connections = list(self.open)
        for connection in connections:
            _shut(connection)

    def close(self) -> None:
        """Stop accepting, end every connection, and join every thread."""
        self.stopping.set()
        with self._changed:
            closers = list(self._closers)
        for closer in closers:
            closer()
        self._wake.send(b"x")
        _shut(self._listener)
        self._listener.close()
        self._accepting.join(WAIT_S)
        self.close_idle()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "a connection's thread did not end"
        self._wake.close()
        self.waker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ what actions use

    def on_close(self, closer: Callable[[], None]) -> None:
        """Have ``closer`` called when the server is closed, or now when it has been."""
        with self._changed:
            self._closers.append(closer)
        if self.stopping.is_set():
            closer()

    def track(self, sock: socket.socket) -> None:
        """Close ``sock`` with the server."""
        with self._changed:
            self.open.add(sock)

    def note_departure(self) -> None:
        """Count a client that left while its answer was held."""
        with self._changed:
            self.departures += 1
            self._changed.notify_all()

    def note_deafened(self) -> None:
        """Count a request whose body is not read."""
        with self._changed:
            self.deafened += 1
            self._changed.notify_all()

    # ------------------------------------------------------------------ threads

    def _accept(self) -> None:
        while not self.stopping.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._changed:
                self.connections += 1
                self.open.add(sock)
                self._changed.notify_all()
            thread = threading.Thread(target=self._serve, args=(sock, self.connections), name="server-connection")
            self._threads.append(thread)
            thread.start()

    def _serve(self, raw: socket.socket, number: int) -> None:
        sock = raw
        try:
            if self._handshake_hangs:
                Connection(self, raw, number).hang()
                return
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                raw.settimeout(WAIT_S)
                sock = self._tls.wrap_socket(raw, server_side=True)
                sock.settimeout(None)
                with self._changed:
                    self.open.discard(raw)
                    self.open.add(sock)
            self._converse(Connection(self, sock, number))
        except (OSError, ValueError):
            pass  # the client went away, or the server is being closed
        finally:
            with self._changed:
                self.open.discard(raw)
                self.open.discard(sock)
                self._changed.notify_all()
            sock.close()

    def _converse(self, connection: Connection) -> None:
        while (request := connection.read_request()) is not None and self._answer(connection, request):
            pass

    def _answer(self, connection: Connection, request: Received) -> bool:
        with self._changed:
            self.requests.append(request)
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
            script = self._scripts.get(request.target) or self._scripts[None]
            action = script.pop(0) if len(script) > 1 else script[0]
            self._changed.notify_all()
        try:
            return action(connection, request)
        finally:
            with self._changed:
                self.in_flight -= 1
                self._changed.notify_all()


class SocksServer(Server):
    """A SOCKS 5 proxy (RFC 1928). ``targets`` has the ``host:port`` that were asked for, ``users`` who asked.

    ``status`` is its answer to a request, 0 for "granted"; ``is_silent``: it never answers the greeting.
    """

    def __init__(self, *, status: int = 0, user: str | None = None, is_silent: bool = False) -> None:
        self.targets: list[str] = []
        self.users: list[str] = []
        self._status = status
        self._method = 2 if user else 0
        self._is_silent = is_silent
        super().__init__()

    def _converse(self, connection: Connection) -> None:
        _, methods = connection.read(2)
        connection.read(methods)
        if self._is_silent:
            connection.hang()
            return
        connection.send(bytes([5, self._method]))
        if self._method:
            connection.read(1)
            self.users.append(":".join(connection.read(connection.read(1)[0]).decode() for _ in range(2)))
            connection.send(b"\x01\x00")
        kind = connection.read(4)[3]
        if kind == 3:
            host = connection.read(connection.read(1)[0]).decode()
        else:
            family, size = (socket.AF_INET, 4) if kind == 1 else (socket.AF_INET6, 16)
            host = socket.inet_ntop(family, connection.read(size))
        port = int.from_bytes(connection.read(2))
        self.targets.append(f"{host}:{port}")
        connection.send(bytes([5, self._status, 0, 1, 0, 0, 0, 0, 0, 0]))
        if not self._status:
            connection.tunnel("127.0.0.1", port)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


# ------------------------------------------------------------------------------------------- what to say


def completion(text: str | None = "hi", *, finish_reason: str = "stop", **changes: Any) -> dict[str, Any]:
    """Return a chat completion with ``text``; ``changes`` replace its top-level fields."""
    return {
        "id": "c1",
        "object": "chat.completion",
        "model": "m1",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason},
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        **changes,
    }


def _body(body: bytes | str | None, json: Any) -> bytes:
    if body is None:
        return json_module.dumps(completion() if json is None else json, ensure_ascii=False).encode()
    return body.encode() if isinstance(body, str) else body


def _head(status: int, headers: Iterable[tuple[str, str]]) -> bytes:
    lines = [f"HTTP/1.1 {status} Said So", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def _fields(headers: Mapping[str, str] | Iterable[tuple[str, str]] | None) -> list[tuple[str, str]]:
    fields = list(headers.items() if isinstance(headers, Mapping) else headers or ())
    if not any(name.lower() == "content-type" for name, _ in fields):
        fields.insert(0, ("Content-Type", "application/json"))
    return fields


def _encode(data: bytes, encoding: str | None) -> bytes:
    if encoding == "gzip":
        return gzip.compress(data)
    if encoding == "deflate":
        return zlib.compress(data)
    if encoding == "raw-deflate":
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        return packer.compress(data) + packer.flush()
    return data


def reply(
    body: bytes | str | None = None,
    *,
    status: int = 200,
    json: Any = None,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
    encoding: str | None = None,
    framing: str = "length",
    is_kept: bool = True,
    gate: Gate | None = None,
    delay_s: float = 0.0,
) -> Action:
    """Answer at once, or when ``gate`` opens. Without a body: ``json``, or a completion.

    ``encoding``: ``gzip``, ``deflate`` or ``raw-deflate``, applied and named. ``framing``: ``length``,
    ``chunked`` or ``close``. ``is_kept`` False closes the connection without having said so.
    """
    data = _encode(_body(body, json), encoding)
    fields = _fields(headers)
    if encoding:
        fields.append(("Content-Encoding", encoding.removeprefix("raw-")))
    if framing == "length":
        fields.append(("Content-Length", str(len(data))))
    elif framing == "chunked":
        fields.append(("Transfer-Encoding", "chunked"))
        half = len(data) // 2
        parts = [part for part in (data[:half], data[half:]) if part]
        data = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    else:
        fields.append(("Connection", "close"))
    answer = _head(status, fields) + data

    def act(connection: Connection, _: Received) -> bool:
        if gate is not None:
            gate.pass_through(connection.server)
        if delay_s:
            connection.pause(delay_s)
        connection.send(answer)
        return is_kept and framing != "close"

    return act


def events(*data: Any, done: bool = True) -> Action:
    """Answer with server-sent events, one for each of ``data`` (text as it is, anything else as JSON)."""
    items = [item if isinstance(item, str) else json_module.dumps(item) for item in data]
    text = "".join(f"data: {item}\n\n" for item in [*items, *(["[DONE]"] if done else [])])
    return reply(text, headers={"Content-Type": "text/event-stream"}, framing="chunked")


def redirect(location: str, status: int = 307) -> Action:
    """Answer with a redirection."""
    return reply(b"", status=status, headers={"Location": location})


def raw(*parts: bytes, is_kept: bool = False) -> Action:
    """Send exactly these bytes, and close unless ``is_kept``."""

    def act(connection: Connection, _: Received) -> bool:
        for part in parts:
            connection.send(part)
        return is_kept

    return act


def hang(before: bytes = b"") -> Action:
    """Send ``before``, then nothing until the client leaves."""

    def act(connection: Connection, _: Received) -> bool:
        if before:
            connection.send(before)
        connection.hang()
        return False

    return act


def trickle(
    body: bytes | str | None = None,
    *,
    json: Any = None,
    framing: str = "length",
    padding: int = 10_000,
    every_s: float = 0.02,
    part: str = "body",
) -> Action:
    """Send ``padding`` blanks, one at a time, and then the body; or, with ``part="headers"``, header lines.

    ``framing``: ``length``, ``chunked`` or ``close``.
    """
    data = _body(body, json)
    fields = _fields(None)
    if framing == "length":
        fields.append(("Content-Length", str(padding + len(data))))
    elif framing == "chunked":
        fields.append(("Transfer-Encoding", "chunked"))
    else:
        fields.append(("Connection", "close"))

    def frame(piece: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(piece), piece) if framing == "chunked" else piece

    def act(connection: Connection, _: Received) -> bool:
        if part == "headers":
            connection.send(b"HTTP/1.1 200 OK\r\n")
            for number in range(padding):
                connection.send(b"X-%d: y\r\n" % number)
                connection.pause(every_s)
        else:
            connection.send(_head(200, fields))
            for _number in range(padding):
                connection.send(frame(b" "))
                connection.pause(every_s)
            connection.send(frame(data) + (b"0\r\n\r\n" if framing == "chunked" else b""))
        return framing != "close"

    return act


def truncate(body: bytes | str | None = None, *, keep: int = 20, framing: str = "length", status: int = 200) -> Action:
    """Promise the whole body, send ``keep`` bytes of it, and close."""
    data = _body(body, None)
    if framing == "length":
        head = _head(status, [*_fields(None), ("Content-Length", str(len(data)))])
        return raw(head + data[:keep])
    if framing == "chunked":
        head = _head(status, [*_fields(None), ("Transfer-Encoding", "chunked")])
        return raw(head + b"%x\r\n" % len(data) + data[:keep])
    return raw(_head(status, [*_fields(None), ("Connection", "close")]) + data[:keep])


def reset(before: bytes = b"") -> Action:
    """Send ``before``, then reset the connection."""

    def act(connection: Connection, _: Received) -> bool:
        if before:
            connection.send(before)
        connection.reset()
        return False

    return act


def disconnect() -> Action:
    """Close without a word."""
    return raw()


def flood(*, chunk: bytes = b"x" * 65536) -> Action:
    """Send a chunked body without end."""

    def act(connection: Connection, _: Received) -> bool:
        connection.send(_head(200, [*_fields(None), ("Transfer-Encoding", "chunked")]))
        while True:
            connection.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    return act


def bomb(size: int = 50_000_000) -> Action:
    """Answer with a small gzip body that unpacks to ``size`` blanks and an object."""
    return reply(b" " * size + b"{}", encoding="gzip")


def tunnel(*, status: int = 200) -> Action:
    """Play a proxy: answer CONNECT with ``status``, and copy bytes when that is 200."""

    def act(connection: Connection, request: Received) -> bool:
        connection.send(f"HTTP/1.1 {status} Said So\r\nContent-Length: 0\r\n\r\n".encode())
        if status == 200:
            host, _, port = request.target.rpartition(":")
            connection.tunnel(host, int(port))
        return False

    return act


# --------------------------------------------------------------------------------------- around a server


class Authority:
    """A certificate authority of the test's own."""

    def __init__(self) -> None:
        import trustme

        self._authority = trustme.CA()
        self.pem: bytes = self._authority.cert_pem.bytes()

    def server_context(self, *names: str) -> ssl.SSLContext:
        """Return a server's context with a certificate for ``names`` (default: 127.0.0.1 and localhost)."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert(*(names or ("127.0.0.1", "localhost"))).configure_cert(context)
        return context


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """Give a port on 127.0.0.1 where connecting never ends: its queue of connections is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port: int = listener.getsockname()[1]
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0)
            filler.connect_ex(("127.0.0.1", port))
        yield port


def unused_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def target_path(url: str) -> str:
    """Return the path and query of ``url`` as they appear in a request."""
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path
