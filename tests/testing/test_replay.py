"""Exchanges recorded once and played back without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from promptkit import Backend, CancelToken, GenerateRequest, GenerateResponse, Message, Usage
from promptkit._canonical import sha256_of
from promptkit.errors import ConfigError, GenerationError, ProviderError, RefusalError, RunCancelledError
from promptkit.testing import Gate, RecordingClient, ReplayClient, ReplayError, ScriptedClient, held
from support.project import Project
from support.threads import Worker


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An application's folders."""
    return Project(tmp_path / "app")


def request(content: str = "hello", **changes: object) -> GenerateRequest:
    """Return a request with one message."""
    values = {"messages": (Message("user", content),), "endpoint": "http://127.0.0.1:9/v1", "model": "m1", **changes}
    return GenerateRequest(**values)  # type: ignore[arg-type]  # the changes are the test's business


def record(folder: Path, *exchanges: tuple[GenerateRequest, object]) -> None:
    """Record each request with its answer, in order."""
    client = RecordingClient(ScriptedClient([answer for _, answer in exchanges]), folder)
    for asked, _ in exchanges:
        client.generate(asked, CancelToken())


def test_a_run_is_recorded_and_played_back_through_the_engine(project: Project, tmp_path: Path) -> None:
    """What a run gave comes back equal – answer, usage, repairs – from the folder alone, on any address."""
    answers = [
        GenerateResponse(text="{}", finish_reason="stop", usage=Usage(prompt_tokens=3), request_id="r1"),
        {"n": 1},
    ]
    recorded = project.engine(RecordingClient(ScriptedClient(answers), tmp_path / "tape")).run(
        "extract", inputs={"text": "x"}
    )
    elsewhere = project.engine(
        ReplayClient(tmp_path / "tape"), backends=[Backend("local", endpoint="https://else.example/v1")]
    )
    replayed = elsewhere.run("extract", inputs={"text": "x"})
    assert (replayed.data, replayed.text, replayed.usage) == (recorded.data, recorded.text, recorded.usage)
    assert [event.request_id for event in replayed.attempts] == ["r1", None]
    assert len(list((tmp_path / "tape").iterdir())) == 2


def test_a_file_is_named_by_the_hash_of_what_it_holds(tmp_path: Path) -> None:
    """Another program can check a recording, and a person can read it."""
    record(tmp_path, (request("größe"), "42"))
    (file,) = tmp_path.iterdir()
    form = json.loads(file.read_text("utf-8"))
    assert (
        sha256_of(form["request"]) == form["rendered_hash"] == f"sha256:{file.stem}" == request("größe").rendered_hash()
    )
    assert "größe" in file.read_text("utf-8")
    assert form["answers"] == [{"text": "42", "finish_reason": "stop", "model": "m1"}]


def test_nothing_secret_is_written(project: Project, tmp_path: Path) -> None:
    """No credential, header, address or session: a folder of recordings can be committed."""
    client = RecordingClient(ScriptedClient(["x"]), tmp_path / "tape")
    project.write("profiles/main.yaml", "backend: local\nmodel: m1\nheaders: {X-Planted: planted-1}\n")
    backend = {
        "api_key": "planted-2",
        "headers": {"X-Other": "planted-3"},
        "endpoint": "http://u.example/v1?k=planted-4",
        "concurrency_limit": 9876543219,
    }
    project.engine(client, backend=backend).run("echo", inputs={"text": "t"}, session_id="planted-5")
    text = next((tmp_path / "tape").iterdir()).read_text("utf-8")
    assert "planted" not in text
    assert "9876543219" not in text


def test_answers_to_one_request_keep_their_order_and_the_last_one_stays(tmp_path: Path) -> None:
    """Repeats are told apart by their order."""
    record(tmp_path, (request(), "one"), (request("other"), "x"), (request(), "two"))
    client = ReplayClient(tmp_path)
    texts = [client.generate(request(), CancelToken()).text for _ in range(4)]
    assert texts == ["one", "two", "two", "two"]


def test_recording_again_replaces_what_is_asked_again_only(tmp_path: Path) -> None:
    """A second session of recording does not add to the answers of the first."""
    record(tmp_path, (request(), "old"), (request(), "old"), (request("other"), "kept"))
    record(tmp_path, (request(), "new"))
    client = ReplayClient(tmp_path)
    assert [client.generate(request(), CancelToken()).text for _ in range(2)] == ["new", "new"]
    assert client.generate(request("other"), CancelToken()).text == "kept"


def test_failures_are_passed_on_and_not_recorded(tmp_path: Path) -> None:
    """A recording says what a model answered; failures are for scripts."""
    tape = tmp_path / "tape"
    strange = GenerateResponse(text="x", model=object())  # type: ignore[arg-type]  # a broken client
    client = RecordingClient(ScriptedClient([ProviderError("down", status=500), lambda _: 5, strange]), tape)
    with pytest.raises(ProviderError, match="down"):
        client.generate(request(), CancelToken())
    assert client.generate(request(), CancelToken()) == 5  # type: ignore[comparison-overlap]  # likewise
    assert client.generate(request(), CancelToken()) is strange
    assert not tape.exists()


def test_a_refusal_is_an_answer(project: Project, tmp_path: Path) -> None:
    """It is played back, and ends the run as it did when it was recorded."""
    refusal, tape = GenerateResponse(refusal="I would rather not.", finish_reason="stop"), tmp_path / "tape"
    for make in (lambda: RecordingClient(ScriptedClient([refusal]), tape), lambda: ReplayClient(tape)):
        with pytest.raises(RefusalError):
            project.engine(make()).run("echo", inputs={"text": "t"})


def test_a_request_without_a_recording_is_told_the_nearest(project: Project, tmp_path: Path) -> None:
    """The error of the run shows what has changed, and is a class of its own."""
    tape = tmp_path / "tape"
    record(
        tape,
        (request("Sort this message:\n\nMy parcel is late."), "a"),
        (request("Sort this message:\n\nMy bill is wrong."), "b"),
    )
    with pytest.raises(ReplayError) as caught:
        project.engine(ReplayClient(tape)).run("echo", inputs={"text": "Sort this message:\n\nMy bill is right."})
    text = str(caught.value)
    assert "-My bill is wrong." in text
    assert "+My bill is right." in text
    assert "parcel" not in text
    assert caught.value.rendered_hash in text
    assert caught.value.attempts[0].error_type == "ReplayError"


def test_a_difference_in_the_numbers_is_shown_too(tmp_path: Path) -> None:
    """The messages may be the same."""
    record(tmp_path, (request(temperature=0.1), "a"))
    with pytest.raises(ReplayError, match=r"-numbers: \{\"temperature\": 0.1\}\n\+numbers: \{\"temperature\": 0.2\}"):
        ReplayClient(tmp_path).generate(request(temperature=0.2), CancelToken())


def test_the_difference_is_bounded(tmp_path: Path) -> None:
    """A prompt of any size makes an error that can be read."""
    record(tmp_path, (request("\n".join(f"{n} old " + "x" * 1000 for n in range(500))), "a"))
    with pytest.raises(ReplayError) as caught:
        ReplayClient(tmp_path).generate(request("\n".join(f"{n} new " + "y" * 1000 for n in range(500))), CancelToken())
    assert len(str(caught.value)) < 20_000


def test_images_tell_requests_apart_and_are_not_written(tmp_path: Path) -> None:
    """They are known by their hash."""
    from promptkit._types import Image

    def seen(data: bytes) -> GenerateRequest:
        image = Image("image/png", data, sha256_of(data.hex()))
        return request(messages=(Message("user", "look", images=(image,)),))

    record(tmp_path, (seen(b"one"), "1"))
    assert ReplayClient(tmp_path).generate(seen(b"one"), CancelToken()).text == "1"
    with pytest.raises(ReplayError, match=r"\+\(image sha256:"):
        ReplayClient(tmp_path).generate(seen(b"two"), CancelToken())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"kind": "promptkit.recording/2"}',
        b'{"kind": "promptkit.recording/1"}',
        b'{"kind": "promptkit.recording/1", "request": {}, "answers": []}',
        b'{"kind": "promptkit.recording/1", "request": {}, "answers": [5]}',
        b'{"kind": "promptkit.recording/1", "request": {}, "answers": [{"colour": 1}]}',
        b'{"kind": "promptkit.recording/1", "request": {}, "answers": [{"usage": {"colour": 1}}]}',
        b'{"kind": "promptkit.recording/1", "request": {}, "answers": [{"usage": 5}]}',
        b'{"kind": "promptkit.recording/1", "request": {}, "answers": [{"usage": {"cost": "x"}}]}',
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    """Whatever the file holds, the error is a `ReplayError` with its name; others still find their own."""
    record(tmp_path, (request("other"), "x"))
    broken = tmp_path / f"{request().rendered_hash().removeprefix('sha256:')}.json"
    broken.write_bytes(content)
    client = ReplayClient(tmp_path)
    with pytest.raises(ReplayError, match=broken.name):
        client.generate(request(), CancelToken())
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ReplayError, match=r"\+third"):
        client.generate(request("third"), CancelToken())
    assert client.generate(request("other"), CancelToken()).text == "x"


def test_a_recording_with_strange_messages_can_be_the_nearest(tmp_path: Path) -> None:
    """What a person has edited is compared as far as it goes."""
    (tmp_path / "a.json").write_text(
        json.dumps({"kind": "promptkit.recording/1", "request": {"messages": [5, {"images": 5}]}, "answers": [{}]})
    )
    with pytest.raises(ReplayError, match=r"a\.json"):
        ReplayClient(tmp_path).generate(request(), CancelToken())


def test_folders_that_are_none(tmp_path: Path) -> None:
    """A missing folder is told when the client is made; an empty one at the first call."""
    with pytest.raises(ConfigError, match="is not a folder"):
        ReplayClient(tmp_path / "missing")
    with pytest.raises(ReplayError, match="has no recordings"):
        ReplayClient(tmp_path).generate(request(), CancelToken())
    with pytest.raises(ConfigError, match="method generate"):
        RecordingClient("http://x", tmp_path)  # type: ignore[arg-type]  # the mistake under test


def test_half_of_a_surrogate_pair_can_be_recorded(tmp_path: Path) -> None:
    """What a client of the application's own may give does not stop a recording."""
    record(tmp_path, (request(), GenerateResponse(text="a\ud800b", finish_reason="stop")))
    assert ReplayClient(tmp_path).generate(request(), CancelToken()).text == "a\ud800b"


def test_a_cancelled_replay_does_not_answer(tmp_path: Path) -> None:
    """A token counts here as with every client."""
    record(tmp_path, (request(), "x"))
    token = CancelToken()
    token.cancel()
    with pytest.raises(RunCancelledError):
        ReplayClient(tmp_path).generate(request(), token)


def test_many_threads_record_and_replay_one_request(tmp_path: Path) -> None:
    """No answer is lost in the file, and each is played once before the last one stays."""
    gate = Gate()
    client = RecordingClient(ScriptedClient([held(gate, str(n)) for n in range(8)]), tmp_path)
    workers = [Worker(client.generate, request(), CancelToken()) for _ in range(8)]
    gate.wait_for(8)
    gate.open()
    assert sorted(worker.result().text for worker in workers) == sorted(map(str, range(8)))
    replay = ReplayClient(tmp_path)
    replays = [Worker(replay.generate, request(), CancelToken()) for _ in range(8)]
    assert sorted(worker.result().text for worker in replays) == sorted(map(str, range(8)))
    assert [file.suffix for file in tmp_path.iterdir()] == [".json"]


def test_without_a_client_the_built_in_one_is_recorded(tmp_path: Path) -> None:
    """It sends over HTTP, and is closed with the recorder."""
    from support.server import Server, completion, reply

    with Server() as server, RecordingClient(None, tmp_path) as client:
        server.play(reply(json=completion("over http")))
        asked = request(endpoint=server.url + "/v1")
        assert client.generate(asked, CancelToken()).text == "over http"
    assert ReplayClient(tmp_path).generate(request(), CancelToken()).text == "over http"


def test_a_client_that_was_given_is_not_closed(tmp_path: Path) -> None:
    """It is the caller's."""
    with RecordingClient(ScriptedClient(always="x"), tmp_path) as client:
        client.generate(request(), CancelToken())
    assert client.generate(request(), CancelToken()).text == "x"


def test_the_error_is_a_generation_error(tmp_path: Path) -> None:
    """It ends a run as any failure of a client does."""
    assert issubclass(ReplayError, GenerationError)
