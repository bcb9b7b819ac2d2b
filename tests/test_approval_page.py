"""The approval flow of docs/how-to/approve-then-run.md, its own code, in a real Django on a real database."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("django") is None:
    pytest.skip("the page is about Django", allow_module_level=True)

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/how-to/approve-then-run.md"

PROMPT = """
profile: main
inputs: {letter: {type: string, max_chars: 100}}
messages: [{role: user, content: "Answer: {{ letter }}"}]
output:
  format: json_schema
  schema: {type: object, properties: {answer: {type: string}}, required: [answer]}
  repair: {max_attempts: 0}
"""

PROMPTS = """
from pathlib import Path

from promptkit import Backend, Engine
from promptkit.testing import ScriptedClient

client = ScriptedClient()
folder = Path(__file__).parent
engine = Engine(
    prompts=folder / "prompts",
    profiles=folder / "profiles",
    client=client,
    backends=[Backend("local", endpoint="http://127.0.0.1:9/v1", concurrency_limit=1, queue_capacity=0)],
)
"""

# Django's settings belong to a process, so the flow has one of its own. It prints what the test looks at, as JSON.
DRIVER = """
import json, sys

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {
        "ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1], "OPTIONS": {"timeout": 20},
    }},
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "letters"],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
    ROOT_URLCONF="letters.urls",
    SECRET_KEY="of a test",
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    ALLOWED_HOSTS=["testserver"],
)
django.setup()

from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection
from django.test import Client

from letters import prompts
from letters.models import PendingRun
from promptkit import PreparedRun, RunResult
from promptkit.errors import OverloadedError
from promptkit.testing import Gate, Worker, held

call_command("migrate", run_syncdb=True, verbosity=0)
user = User.objects.create_user("ada")
user.user_permissions.add(
    Permission.objects.create(codename="approve", content_type=ContentType.objects.get_for_model(PendingRun))
)
visitor, approver = Client(), Client()
approver.force_login(user)
seen = {}


def propose(letter="Dear all"):
    return visitor.post("/propose", {"letter": letter}).json()["id"]


def approve(pk, client=approver):
    response = client.post(f"/approve/{pk}")
    body = json.loads(response.content) if response["Content-Type"] == "application/json" else None
    return [response.status_code, body]


def in_thread(pk):
    try:
        return approve(pk)
    finally:
        connection.close()


prompt = prompts.folder / "prompts/letter/answer.yaml"
text = prompt.read_text()

# proposed, read, approved, proved
response = visitor.post("/propose", {"letter": "Dear all"})
pk = response.json()["id"]
pending = PendingRun.objects.get(pk=pk)
seen["proposed"] = [
    response.status_code,
    response.json()["hash"] == pending.rendered_hash,
    PreparedRun.from_dict(pending.prepared).messages[0].content,
    len(prompts.client.requests),
]
seen["too long"] = visitor.post("/propose", {"letter": "x" * 200}).status_code
seen["anonymous"] = approve(pk, visitor)[0]
seen["asked so far"] = len(prompts.client.requests)
prompts.client.add({"answer": "Yes"})
seen["approved"] = approve(pk)
pending.refresh_from_db()
result = RunResult.from_dict(pending.result)
seen["proof"] = [
    pending.approved_by,
    result.data,
    result.prepared.rendered_hash == pending.rendered_hash,
    result.prepared == PreparedRun.from_dict(pending.prepared),
]
seen["again"] = approve(pk)[0]

# changed in between
pk = propose()
prompt.write_text(text.replace("Answer:", "Reply:"))
seen["changed"] = approve(pk)
prompt.unlink()
seen["gone"] = approve(pk)[0]
prompt.write_text(text)
prompts.client.add({"answer": "Now"})
seen["changed back"] = approve(pk)

# failed
pk = propose()
prompts.client.add(OverloadedError("too busy", status=503))
seen["failed"] = approve(pk)[0]
pending = PendingRun.objects.get(pk=pk)
seen["failure"] = [pending.approved_by, pending.failure.partition(" (")[0], pending.result]
seen["failed again"] = approve(pk)[0]

# full, then free
gate = Gate()
prompts.client.add(held(gate, {"answer": "first"}))
first, pk = propose("one"), propose("two")
worker = Worker(in_thread, first)
gate.wait_for(1)
seen["twice at once"] = approve(first)[0]
seen["full"] = approve(pk)
seen["still unapproved"] = PendingRun.objects.get(pk=pk).approved_by
gate.open()
seen["first"] = worker.result()
prompts.client.add({"answer": "second"})
seen["full, again"] = approve(pk)

# two approvals that have both read the row before either was let through
pk, gate = propose("race"), Gate()
both, prepare = Gate(), prompts.engine.prepare_execution
prompts.client.add({"answer": "once"})

class Slow:
    run_prepared = prompts.engine.run_prepared

    @staticmethod
    def prepare_execution(*args, **kwargs):
        from promptkit import CancelToken

        both.pass_through(CancelToken(timeout=20))
        return prepare(*args, **kwargs)

from letters import views

views.engine = Slow
workers = [Worker(in_thread, pk) for _ in range(2)]
both.wait_for(2)
both.open()
seen["race"] = sorted(worker.result()[0] for worker in workers)
seen["asked"] = len(prompts.client.requests)
connection.close()
print(json.dumps(seen))
"""

URLS = """
from django.urls import path

from letters import views

urlpatterns = [path("propose", views.propose), path("approve/<int:pk>", views.approve)]
"""


def code_of(name: str) -> str:
    """Return the block of the page that begins with a file's name."""
    (code,) = re.findall(
        rf"^```python\n# {re.escape(name)}\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    return str(code)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the flow once, on the code of the page."""
    root = tmp_path_factory.mktemp("project")
    files = {
        "letters/__init__.py": "",
        "letters/models.py": code_of("models.py"),
        "letters/views.py": code_of("views.py"),
        "letters/prompts.py": PROMPTS,
        "letters/urls.py": URLS,
        "letters/prompts/letter/answer.yaml": PROMPT,
        "letters/profiles/main.yaml": "backend: local\nmodel: m1\n",
        "driver.py": DRIVER,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    paths = [str(root), *([str(ROOT)] if "PYTHONSAFEPATH" not in os.environ else [])]
    done = subprocess.run(
        [sys.executable, "-W", "error", "driver.py", str(root / "letters.sqlite3")],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_proposal_is_stored_as_it_will_be_read_and_sends_nothing(seen: dict[str, Any]) -> None:
    """The approver sees the messages; an input that cannot be is refused at once."""
    assert seen["proposed"] == [200, True, "Answer: Dear all", 0]
    assert seen["too long"] == 400


def test_nobody_without_the_permission_approves(seen: dict[str, Any]) -> None:
    """An anonymous visitor is led to the login, and nothing is sent."""
    assert seen["anonymous"] == 302
    assert seen["asked so far"] == 0


def test_an_approval_runs_it_once_and_keeps_the_proof(seen: dict[str, Any]) -> None:
    """The stored result reads back, and what was sent is what was proposed."""
    assert seen["approved"] == [200, {"answer": "Yes"}]
    assert seen["proof"] == ["ada", {"answer": "Yes"}, True, True]
    assert seen["again"] == 404


def test_what_has_changed_since_is_not_sent(seen: dict[str, Any]) -> None:
    """A changed or deleted prompt leaves the proposal unapproved; put back, it runs."""
    assert seen["changed"][0] == 409
    assert "changed since" in seen["changed"][1]["error"]
    assert seen["gone"] == 409
    assert seen["changed back"] == [200, {"answer": "Now"}]


def test_a_failure_is_kept_and_uses_the_approval_up(seen: dict[str, Any]) -> None:
    """Something was sent: it is not sent again without a new proposal."""
    assert seen["failed"] == 502
    assert seen["failure"] == ["ada", "OverloadedError: too busy", None]
    assert seen["failed again"] == 404


def test_a_full_backend_leaves_it_to_be_approved_again(seen: dict[str, Any]) -> None:
    """Nothing was sent, so the row is as it was."""
    assert seen["full"] == [503, {"error": "not possible now"}]
    assert seen["still unapproved"] == ""
    assert seen["full, again"] == [200, {"answer": "second"}]


def test_of_two_approvals_one_runs(seen: dict[str, Any]) -> None:
    """Whether the second one comes while the first one runs, or both have read the row before."""
    assert seen["twice at once"] == 404
    assert seen["first"] == [200, {"answer": "first"}]
    assert seen["race"] == [200, 409]
    assert seen["asked"] == 6
