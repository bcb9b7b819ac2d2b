"""The model server of the benchmarks, started and asked from the process that calls it.

The server's own modules stay out of that process: its memory is measured.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def running(latency: float = 0.0) -> Iterator[str]:
    """Start the server; give its address, as an ``endpoint`` without ``/v1``."""
    command = [sys.executable, str(Path(__file__).with_name("loopback_server.py")), "--latency", str(latency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def stats(address: str) -> dict[str, Any]:
    """Return what the server has counted since the last time."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"))
    with contextlib.closing(connection):
        connection.request("GET", "/stats")
        counts: dict[str, Any] = json.load(connection.getresponse())
    return counts
