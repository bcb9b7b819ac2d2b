"""The transport across ``fork``, and under gevent: each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.server import Authority, Server, reply

if TYPE_CHECKING:
    from collections.abc import Iterator

PREAMBLE = """
import os, sys
from promptkit._cancel import CancelToken
from promptkit._transport import Transport

transport = Transport(pool_size=4, proxies={}, ca_bundle=sys.argv[2] or None)

def post(path, host="127.0.0.1"):
    url = sys.argv[1].replace("127.0.0.1", host) + path
    return transport.post(
        url, body=b"{}", headers={}, timeout_s=20, cancel=CancelToken(), max_bytes=9999, use_proxy=True
    )
"""


def run_script(script: str, *arguments: str, warnings: str = "error") -> None:
    """Run ``script`` in a new interpreter; fail if it does, or if it warns."""
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-X", "dev", "-W", warnings, "-c", script, *arguments],
        check=True,
        timeout=60,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


@pytest.fixture(params=["plain", "tls"])
def server_and_bundle(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, str]]:
    """A server, and the file of authorities that trusts it."""
    if request.param == "plain":
        with Server(reply()) as server:
            yield server, ""
        return
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    with Server(reply(), tls=authority.server_context()) as server:
        yield server, str(tmp_path / "ca.pem")


FORK = """
post("/before")
child = os.fork()
if child == 0:
    post("/child")
    post("/child")
    transport.close()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
post("/after")
transport.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_connections_of_its_own(server_and_bundle: tuple[Server, str]) -> None:
    """The child opens a new one and keeps it; the parent's goes on, unhurt by the child's end."""
    server, bundle = server_and_bundle
    run_script(PREAMBLE + FORK, server.url, bundle)
    by_path = [(request.target, request.connection) for request in server.requests]
    assert by_path == [("/before", 1), ("/child", 2), ("/child", 2), ("/after", 1)]


IN_TIME = """
import gevent.monkey
gevent.monkey.patch_all()
import gevent
"""

COOPERATE = """
import time
ticks = []

def tick():
    while True:
        ticks.append(1)
        gevent.sleep(0.01)

ticker = gevent.spawn(tick)
assert post("/slow").status == 200
assert post("/slow", "localhost").status == 200
assert len(ticks) > 3, ticks
ticker.kill()
token = CancelToken()
gevent.spawn_later(0.05, token.cancel)
try:
    transport.post(sys.argv[1] + "/slow", body=b"", headers={}, timeout_s=20, cancel=token, max_bytes=9, use_proxy=True)
except Exception as error:
    assert type(error).__name__ == "RunCancelledError", error
else:
    raise AssertionError("not cancelled")
transport.close()
"""


def test_under_gevent_a_wait_lets_others_run(server_and_bundle: tuple[Server, str]) -> None:
    """With patching in time, every wait of an exchange is cooperative, and a cancel from a greenlet ends it."""
    pytest.importorskip("gevent")
    server, bundle = server_and_bundle
    server.route("/slow", reply(delay_s=0.2))
    run_script(IN_TIME + PREAMBLE + COOPERATE, server.url, bundle)


TOO_LATE = """
import gevent.monkey
gevent.monkey.patch_all()
from promptkit.errors import ConfigError
try:
    post("/")
except ConfigError as error:
    assert "monkey patching came too late" in str(error)
else:
    raise AssertionError("not noticed")
transport.close()
"""


def test_c10_gevent_patched_too_late_is_said() -> None:
    """C10: an import of promptkit before the patching is named as what is wrong."""
    pytest.importorskip("gevent")
    with Server(reply()) as server:
        run_script(PREAMBLE + TOO_LATE, server.url, "", warnings="ignore")  # gevent warns, too
    assert not server.requests
