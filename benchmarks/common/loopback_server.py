"""A model server that costs next to nothing, in a process of its own.

    python loopback_server.py [--latency SECONDS]

It prints its port, keeps connections open, and answers every POST with one prepared completion, at once or
``--latency`` seconds later, any number of them at a time. ``GET /stats`` answers with what it has counted since the
last time it was asked: ``peak``, the most requests in flight at once; ``count``; and ``order``, the numbers found
as ``"#N#"`` in the requests, in the order of their arrival.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
from typing import Any

ANSWER = {"total": 12.5, "currency": "EUR", "lines": [{"name": "paper", "count": 2}, {"name": "ink", "count": 1}]}
COMPLETION = json.dumps(
    {
        "id": "c1",
        "object": "chat.completion",
        "created": 1767225600,
        "model": "m1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": json.dumps(ANSWER)},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 50, "completion_tokens": 30, "total_tokens": 80},
    }
).encode()
RESPONSE = (
    b"HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nServer: loopback\r\n"
    b"Content-Type: application/json\r\nX-Request-Id: r1\r\nContent-Length: %d\r\n\r\n" % len(COMPLETION)
) + COMPLETION

_length = re.compile(rb"content-length: *(\d+)", re.IGNORECASE).search
_number = re.compile(rb"#(\d+)#").search


class Counts:
    """What has been seen; one event loop's."""

    def __init__(self) -> None:
        self.in_flight = self.peak = self.count = 0
        self.order: list[int] = []

    def take(self) -> dict[str, Any]:
        """Return the counts and begin anew."""
        seen = {"peak": self.peak, "count": self.count, "order": self.order}
        self.peak = self.count = 0
        self.order = []
        return seen


async def serve(latency: float) -> None:
    """Serve until the process is ended."""
    counts = Counts()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET"):
                    body = json.dumps(counts.take()).encode()
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                    continue
                length = _length(head)
                body = await reader.readexactly(int(length[1])) if length else b""
                counts.in_flight += 1
                counts.count += 1
                counts.peak = max(counts.peak, counts.in_flight)
                if number := _number(body):
                    counts.order.append(int(number[1]))
                if latency:
                    await asyncio.sleep(latency)
                counts.in_flight -= 1
                writer.write(RESPONSE)
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.0)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args().latency))
