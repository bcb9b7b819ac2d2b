"""Runs over real connections: retries within one budget, deadlines, cancels, and what each error carries.

Time stands still where a run waits to retry: the fake clock says how long it would have been.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from promptkit import AttemptEvent, Backend, CancelToken, Engine, ExecutionOverride, RunResult, Usage
from promptkit.errors import (
    CapacityExceededError,
    ContentFilteredError,
    DeadlineExceededError,
    GenerationCancelledError,
    GenerationDeadlineError,
    GenerationError,
    MalformedResponseError,
    OutputTruncatedError,
    OutputValidationError,
    OverloadedError,
    ProviderError,
    QuotaExhaustedError,
    RateLimitedError,
    RefusalError,
    TransportError,
    TransportTimeoutError,
)
from support.clock import FakeClock
from support.project import Project
from support.server import (
    Gate,
    Server,
    completion,
    disconnect,
    hang,
    reply,
    trickle,
    truncate,
    unused_port,
)
from support.threads import Worker

INPUTS = {"text": "t"}
NO_WAIT = ExecutionOverride(retry={"base_delay_s": 0})
ERROR_429 = {"error": {"message": "slow down", "code": 429}}


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that plays what the test tells it."""
    with Server() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An application's folders."""
    return Project(tmp_path)


def engine_on(project: Project, server: Server, **options: Any) -> Engine:
    """Return an engine whose backend ``local`` is the server, limited to ``limit`` attempts in flight."""
    backend = {"endpoint": f"{server.url}/v1", **options.pop("backend", {})}
    return project.engine(backend=backend, proxies={}, **options)


def usage(total: int) -> dict[str, int]:
    """Return a usage as a server reports it."""
    return {"prompt_tokens": total - 1, "completion_tokens": 1, "total_tokens": total}


# --------------------------------------------------------------------------------------------- retries


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_transient_statuses_are_tried_again(project: Project, server: Server, status: int) -> None:
    """Each costs one retry of the budget, and the answer that follows is the result."""
    server.play(reply(status=status, json={"error": {"message": "later"}}), reply(json=completion("hi")))
    result = engine_on(project, server).run("echo", inputs=INPUTS, override=NO_WAIT)
    assert result.data == "hi"
    assert [event.outcome for event in result.attempts] == ["failed", "succeeded"]


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 413, 422])
def test_permanent_statuses_are_not(project: Project, server: Server, status: int) -> None:
    """One request, and an error that names the status."""
    server.play(reply(status=status, json={"error": {"message": "never"}}))
    with pytest.raises(ProviderError, match=str(status)) as caught:
        engine_on(project, server).run("echo", inputs=INPUTS, override=NO_WAIT)
    assert len(server.requests) == 1
    assert (caught.value.status, caught.value.backend, caught.value.model) == (status, "local", "m1")


def test_w02_an_error_inside_a_200_is_tried_again_like_its_code(project: Project, server: Server) -> None:
    """The permanent end of the retries carries the provider's own words."""
    body = {"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": "Too Many Requests"}}}
    server.play(reply(json={"choices": None, **body}))
    with pytest.raises(RateLimitedError, match="Too Many Requests") as caught:
        engine_on(project, server).run("echo", inputs=INPUTS, override=NO_WAIT)
    assert len(server.requests) == len(caught.value.attempts) == 3
    assert "3 attempts made" in str(caught.value)


def test_w04_empty_choices_are_tried_again_and_their_usage_counts(project: Project, server: Server) -> None:
    """What a useless answer cost is in the sum."""
    server.play(reply(json={"choices": [], "usage": usage(5)}), reply(json=completion("hi", usage=usage(7))))
    result = engine_on(project, server).run("echo", inputs=INPUTS, override=NO_WAIT)
    assert result.usage.total_tokens == 12
    assert [event.usage.total_tokens for event in result.attempts if event.usage] == [5, 7]


def test_w05_an_empty_body_is_tried_again(project: Project, server: Server) -> None:
    """An overloaded gateway's empty 200 is transient."""
    server.play(reply(body=""), reply(json=completion("hi")))
    assert engine_on(project, server).run("echo", inputs=INPUTS, override=NO_WAIT).data == "hi"


def test_a_body_cut_short_is_tried_again(project: Project, server: Server) -> None:
    """So is a connection that breaks before the answer, on a fresh connection."""
    server.play(truncate(json.dumps(completion("no"))), disconnect(), reply(json=completion("hi")))
    result = engine_on(project, server).run("echo", inputs=INPUTS, override=NO_WAIT)
    assert (result.data, len(result.attempts)) == ("hi", 3)


def test_nobody_listening_ends_with_the_address(project: Project) -> None:
    """Connection failures use the budget up, and the error names host and port."""
    port = unused_port()
    engine = project.engine(backend={"endpoint": f"http://127.0.0.1:{port}/v1"}, proxies={})
    with pytest.raises(TransportError, match=str(port)) as caught:
        engine.run("echo", inputs=INPUTS, override=NO_WAIT)
    assert len(caught.value.attempts) == 3


def test_budget_zero_means_no_retry(project: Project, server: Server) -> None:
    """0 is a value: nothing is tried again."""
    server.play(reply(status=503, json={"error": {"message": "down"}}))
    with pytest.raises(OverloadedError):
        engine_on(project, server).run("echo", inputs=INPUTS, override=ExecutionOverride(retry={"budget": 0}))
    assert len(server.requests) == 1


def test_j36_retries_and_repairs_share_one_budget(project: Project, server: Server) -> None:
    """A repair that meets a 429 is tried again out of what the first generation has left over."""
    server.play(
        reply(json=completion('{"n": "x"}', usage=usage(100))),
        reply(status=429, json=ERROR_429),
        reply(json=completion('{"n": 1}', usage=usage(50))),
    )
    result = engine_on(project, server).run("extract", inputs=INPUTS, override=NO_WAIT)
    assert result.data == {"n": 1}
    assert result.usage.total_tokens == 150
    assert [(event.kind, event.outcome) for event in result.attempts] == [
        ("initial", "succeeded"),
        ("repair", "failed"),
        ("repair", "succeeded"),
    ]


def test_the_budget_of_a_repair_is_what_is_left(project: Project, server: Server) -> None:
    """Two retries of the first generation leave none to the repair."""
    failure = reply(status=503, json={"error": {"message": "down"}})
    server.play(failure, failure, reply(json=completion('{"n": "x"}')), failure)
    with pytest.raises(OverloadedError) as caught:
        engine_on(project, server).run("extract", inputs=INPUTS, override=NO_WAIT)
    assert [(event.kind, event.outcome) for event in caught.value.attempts] == [
        ("initial", "failed"),
        ("initial", "failed"),
        ("initial", "succeeded"),
        ("repair", "failed"),
    ]


def waits_of(project: Project, server: Server, clock: FakeClock, moves: list[float]) -> tuple[RunResult, list[float]]:
    """Run with time standing still; let each retry wait pass by ``moves``, and return the delays of the events."""
    seen: list[AttemptEvent] = []
    engine = engine_on(project, server, clock=clock)
    worker = Worker(engine.run, "echo", inputs=INPUTS, observer=seen.append)
    for seconds in moves:
        clock.wait_for_sleepers(1)
        clock.advance(seconds)
    return worker.result(), [event.next_delay_s for event in seen if event.next_delay_s is not None]


def test_w55_the_wait_is_at_least_the_hint(project: Project, server: Server) -> None:
    """1.5 s asked for, so 1.5 s and some jitter are waited, not less."""
    server.play(reply(status=429, headers={"Retry-After": "1.5"}, json=ERROR_429), reply(json=completion("hi")))
    result, delays = waits_of(project, server, FakeClock(), [10.0])
    assert result.data == "hi"
    assert 1.5 <= delays[0] <= 2.0


@pytest.mark.parametrize("value", ["30,120", "soon", "-5", "nan", "inf", "1e9", ""])
def test_w57_an_unusable_hint_leaves_the_wait_to_us(project: Project, server: Server, value: str) -> None:
    """No endless sleep and no broken comparison: the run's own backoff, at most the base delay the first time."""
    server.play(reply(status=429, headers={"Retry-After": value}, json=ERROR_429), reply(json=completion("hi")))
    _, delays = waits_of(project, server, FakeClock(), [10.0])
    assert 0 <= delays[0] <= 0.5


@pytest.mark.parametrize(
    ("headers", "least"),
    [
        ({"retry-after-ms": "750"}, 0.75),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6s"}, 6.0),
        ({"Retry-After": "2", "retry-after-ms": "1"}, 0.0),
    ],
)
def test_w59_hints_in_other_headers_count(
    project: Project, server: Server, headers: dict[str, str], least: float
) -> None:
    """Milliseconds and reset times are hints like Retry-After."""
    server.play(reply(status=429, headers=headers, json=ERROR_429), reply(json=completion("hi")))
    _, delays = waits_of(project, server, FakeClock(), [100.0])
    assert delays[0] >= least


def test_w58_a_hint_past_the_deadline_fails_at_once(project: Project, server: Server) -> None:
    """3600 s asked for and 60 s left: the error names both, and nothing is waited for."""
    server.play(reply(status=429, headers={"Retry-After": "50"}, json=ERROR_429))
    override = ExecutionOverride(retry={"max_retry_after_s": 3600})
    with pytest.raises(RateLimitedError, match=r"50 s.*s are left") as caught:
        engine_on(project, server).run("echo", inputs=INPUTS, timeout=40, override=override)
    assert caught.value.retry_after_s == 50
    assert caught.value.attempts[0].next_delay_s is None


def test_a_hint_above_the_longest_wait_fails_at_once(project: Project, server: Server) -> None:
    """``max_retry_after_s`` bounds what is waited for even without a deadline."""
    server.play(reply(status=429, headers={"Retry-After": "3600"}, json=ERROR_429))
    with pytest.raises(RateLimitedError, match=r"3600 s.*at most 60 s"):
        engine_on(project, server).run("echo", inputs=INPUTS)
    assert len(server.requests) == 1


def test_backoff_grows_with_full_jitter(project: Project, server: Server) -> None:
    """The n-th wait lies between 0 and base * 2^(n-1)."""
    failure = reply(status=503, json={"error": {"message": "down"}})
    server.play(failure, failure, reply(json=completion("hi")))
    _, delays = waits_of(project, server, FakeClock(), [1.0, 2.0])
    assert 0 <= delays[0] <= 0.5
    assert 0 <= delays[1] <= 1.0


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}, QuotaExhaustedError),
        (402, {"error": {"message": "more credits", "code": 402}}, QuotaExhaustedError),
        (
            429,
            {
                "error": {
                    "message": "Request too large on TPM: Limit 8000, Requested 20449.",
                    "code": "rate_limit_exceeded",
                }
            },
            ProviderError,
        ),
    ],
)
def test_what_can_never_succeed_is_not_tried_again(
    project: Project, server: Server, status: int, body: dict[str, Any], kind: type[ProviderError]
) -> None:
    """W60, W61, W63: an empty wallet and a request above the limit are told at once."""
    server.play(reply(status=status, json=body))
    with pytest.raises(kind):
        engine_on(project, server).run("echo", inputs=INPUTS, override=NO_WAIT)
    assert len(server.requests) == 1


def test_c08_a_stale_connection_costs_nothing(project: Project, server: Server) -> None:
    """An idle connection that the server has closed is replaced once, without an attempt or a retry."""
    server.play(reply(json=completion("one")), reply(json=completion("two")))
    engine = engine_on(project, server)
    engine.run("echo", inputs=INPUTS)
    server.close_idle()
    result = engine.run("echo", inputs=INPUTS, override=ExecutionOverride(retry={"budget": 0}))
    assert (result.data, len(result.attempts)) == ("two", 1)


# ---------------------------------------------------------------------------------- answers and contracts


@pytest.mark.parametrize(
    ("choice", "kind"),
    [
        ({"finish_reason": "content_filter", "message": {"content": ""}}, ContentFilteredError),
        ({"finish_reason": "stop", "message": {"content": None, "refusal": "I can't"}}, RefusalError),
        ({"finish_reason": "length", "message": {"content": '{"n": 1, "s": "x'}}, OutputTruncatedError),
        ({"finish_reason": "error", "message": {"content": "x"}}, ProviderError),
    ],
)
def test_answers_that_are_their_own_errors_are_neither_retried_nor_repaired(
    project: Project, server: Server, choice: dict[str, Any], kind: type[GenerationError]
) -> None:
    """W48, W52 and their kind: one request, and the usage of that answer on the error."""
    server.play(reply(json={"choices": [{"index": 0, **choice}], "usage": usage(9)}))
    with pytest.raises(kind) as caught:
        engine_on(project, server).run("extract", inputs=INPUTS, override=NO_WAIT)
    assert len(server.requests) == 1
    assert caught.value.usage is not None
    assert caught.value.usage.total_tokens == 9


def test_w48_the_message_names_the_token_limit(project: Project, server: Server) -> None:
    """A cut answer says which limit cut it."""
    server.play(reply(json=completion('{"items":[{"n":1},{"n":2', finish_reason="length")))
    with pytest.raises(OutputTruncatedError, match=r"length.*77") as caught:
        engine_on(project, server).run("extract", inputs=INPUTS, override=ExecutionOverride(max_tokens=77))
    assert caught.value.text == '{"items":[{"n":1},{"n":2'


def test_w49_a_complete_answer_that_ends_at_the_limit_is_taken(project: Project, server: Server) -> None:
    """Strictly parsed and valid, with the finish reason there to see."""
    server.play(reply(json=completion('{"n": 1}', finish_reason="length")))
    result = engine_on(project, server).run("extract", inputs=INPUTS)
    assert (result.data, result.finish_reason) == ({"n": 1}, "length")


def test_w15_an_unfinished_thought_is_no_answer(project: Project, server: Server) -> None:
    """The object inside the thought is not taken for the answer."""
    server.play(reply(json=completion('<think>We need {"n": 1} and then', finish_reason="length")))
    with pytest.raises(OutputTruncatedError, match="reasoning not finished"):
        engine_on(project, server).run("extract", inputs=INPUTS)


def test_w69_usage_is_told_for_each_attempt(project: Project, server: Server) -> None:
    """A caller can compare the prompt tokens with the prompt, and notice a server that cuts it."""
    server.play(
        reply(json=completion("hi", usage={"prompt_tokens": 2050, "completion_tokens": 1, "total_tokens": 2051}))
    )
    result = engine_on(project, server).run("echo", inputs=INPUTS)
    assert result.attempts[0].usage == Usage(prompt_tokens=2050, completion_tokens=1, total_tokens=2051)


def test_w76_a_servers_own_json_check_leads_to_a_repair(project: Project, server: Server) -> None:
    """A 400 about the model's output is an invalid output, not a bad request."""
    failed = {
        "error": {
            "message": "Failed to generate JSON",
            "code": "json_validate_failed",
            "failed_generation": '{"n": 1,,}',
        }
    }
    server.play(reply(status=400, json=failed), reply(json=completion('{"n": 1}')))
    assert engine_on(project, server).run("extract", inputs=INPUTS).data == {"n": 1}
    server.play(reply(status=400, json=failed))
    with pytest.raises(OutputValidationError, match="json_validate_failed"):
        engine_on(project, server).run("extract", inputs=INPUTS)


def test_j29_a_blank_answer_is_asked_for_again_as_it_was(project: Project, server: Server) -> None:
    """Blank text is a glitch: the same messages go out again, out of the retry budget."""
    server.play(reply(json=completion("  \n")), reply(json=completion('{"n": 1}')))
    result = engine_on(project, server).run("extract", inputs=INPUTS, override=NO_WAIT)
    assert result.data == {"n": 1}
    assert server.requests[0].json == server.requests[1].json


def test_j32_the_conversation_does_not_grow(project: Project, server: Server) -> None:
    """200 kB of invalid output is cut in the repair, and the second repair is no longer than the first."""
    server.play(*[reply(json=completion(letter * 200_000)) for letter in "abc"])
    with pytest.raises(OutputValidationError) as caught:
        engine_on(project, server).run("extract", inputs=INPUTS)
    first, second = (len(request.body) for request in server.requests[1:3])
    assert first == second < 20_000
    assert len(caught.value.tries) == 3


def test_j34_the_same_invalid_answer_ends_the_repairs(project: Project, server: Server) -> None:
    """Asking a third time would get it a third time; usage of both is summed."""
    server.play(reply(json=completion('{"n": "x"}', usage=usage(10))))
    with pytest.raises(OutputValidationError, match="must be integer") as caught:
        engine_on(project, server).run("extract", inputs=INPUTS)
    assert caught.value.usage is not None
    assert caught.value.usage.total_tokens == 20
    assert caught.value.text == '{"n": "x"}'


def test_s29_the_schema_is_enforced_whatever_the_server_does(project: Project, server: Server) -> None:
    """A server that takes the schema and does not keep to it is found out here."""
    project.prompt(
        "p",
        """
        profile: main
        messages: [{role: user, content: x}]
        output: {format: json_schema, schema: {type: array, minItems: 2, maxItems: 2}, repair: {max_attempts: 0}}
        """,
    )
    server.play(reply(json=completion("[1, 2, 3, 4]")))
    with pytest.raises(OutputValidationError, match="4"):
        engine_on(project, server).run("p")
    assert server.requests[0].json["response_format"]["type"] == "json_schema"


# ------------------------------------------------------------------------------- deadlines and cancelling


def test_c01_a_trickle_cannot_outlast_the_run(project: Project, server: Server) -> None:
    """The run's own time ends a body that dribbles, and the error names the time and the phase."""
    server.play(trickle(json=completion("hi")))
    with pytest.raises(GenerationDeadlineError, match=r"0\.3 s.*reading the response") as caught:
        engine_on(project, server).run("echo", inputs=INPUTS, timeout=0.3)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.phase == "body"


def test_one_attempt_is_bounded_by_its_own_timeout(project: Project, server: Server) -> None:
    """``timeout_s`` covers the whole exchange; waiting for an answer is not tried again."""
    server.play(hang())
    with pytest.raises(TransportTimeoutError, match=r"0\.1 s") as caught:
        engine_on(project, server).run("echo", inputs=INPUTS, override=ExecutionOverride(timeout_s=0.1))
    assert len(caught.value.attempts) == 1


def test_c04_time_in_the_queue_counts(project: Project, server: Server) -> None:
    """A run that is queued past its deadline never reaches the wire, and frees its place."""
    clock, gate = FakeClock(), Gate()
    server.play(reply(json=completion("one"), gate=gate))
    engine = engine_on(project, server, clock=clock, backend={"concurrency_limit": 1, "queue_capacity": 1})
    first = Worker(engine.run, "echo", inputs=INPUTS)
    gate.wait_arrived()
    second = Worker(engine.run, "echo", inputs=INPUTS, timeout=5)
    clock.wait_for_sleepers(1)
    clock.advance(6)
    with pytest.raises(GenerationDeadlineError, match=r"5 s.*waiting for a permit") as caught:
        second.result()
    assert caught.value.phase == "queue"
    gate.open()
    assert first.result().data == "one"
    assert len(server.requests) == 1


@pytest.mark.parametrize("phase", ["first byte", "body"])
def test_c21_a_cancel_ends_a_blocked_read(project: Project, server: Server, phase: str) -> None:
    """The socket is shut down under the blocked call, the connection is not kept, and the server sees it go."""
    server.play(hang(b"" if phase == "first byte" else b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"x'))
    engine, token = engine_on(project, server), CancelToken()
    worker = Worker(engine.run, "echo", inputs=INPUTS, cancel=token)
    server.wait_for(lambda s: s.in_flight == 1)
    token.cancel("left")
    with pytest.raises(GenerationCancelledError, match="left") as caught:
        worker.result()
    assert [event.outcome for event in caught.value.attempts] == ["cancelled"]
    server.wait_for(lambda s: s.in_flight == 0)


def test_a_cancel_ends_a_retry_wait(project: Project, server: Server) -> None:
    """The wait ends at once; the cause is what the provider had said."""
    clock = FakeClock()
    token = CancelToken(clock=clock)
    server.play(reply(status=503, headers={"Retry-After": "30"}, json={"error": {"message": "down"}}))
    worker = Worker(engine_on(project, server, clock=clock).run, "echo", inputs=INPUTS, cancel=token)
    clock.wait_for_sleepers(1)
    token.cancel()
    with pytest.raises(GenerationCancelledError) as caught:
        worker.result()
    assert caught.value.phase == "backoff"
    assert isinstance(caught.value.__cause__, OverloadedError)


def test_a_deadline_ends_a_retry_wait(project: Project, server: Server) -> None:
    """Time that is up while waiting to retry is told as that, with the failed attempt on the error."""
    clock = FakeClock()
    server.play(reply(status=503, headers={"Retry-After": "30"}, json={"error": {"message": "down"}}))
    token = CancelToken(timeout=60, clock=clock)
    worker = Worker(engine_on(project, server, clock=clock).run, "echo", inputs=INPUTS, cancel=token)
    clock.wait_for_sleepers(1)
    clock.advance(61)
    with pytest.raises(GenerationDeadlineError, match="waiting to retry") as caught:
        worker.result()
    assert caught.value.phase == "backoff"
    assert isinstance(caught.value.__cause__, OverloadedError)
    assert len(caught.value.attempts) == 1


def test_c32_the_deadline_is_on_the_monotonic_clock(project: Project, server: Server) -> None:
    """A wall clock that jumps back an hour changes nothing."""
    clock = FakeClock()
    clock.set_wall(1_700_000_000.0)
    server.play(
        reply(status=503, headers={"Retry-After": "20"}, json={"error": {"message": "down"}}),
        reply(json=completion("hi")),
    )
    engine = engine_on(project, server, clock=clock)
    worker = Worker(engine.run, "echo", inputs=INPUTS, timeout=100)
    clock.wait_for_sleepers(1)
    clock.set_wall(1_700_000_000.0 - 3600)
    clock.advance(25)
    assert worker.result().data == "hi"


# --------------------------------------------------------------------------- capacity over real connections


def test_a_retry_wait_frees_the_permit_and_keeps_the_lease(project: Project, server: Server) -> None:
    """While one run waits to retry another is served, and a third is refused: two leases, one permit."""
    clock = FakeClock()
    server.play(
        reply(status=503, headers={"Retry-After": "30"}, json={"error": {"message": "down"}}),
        reply(json=completion("second")),
        reply(json=completion("first")),
    )
    engine = engine_on(project, server, clock=clock, backend={"concurrency_limit": 1, "queue_capacity": 0})
    first = Worker(engine.run, "echo", inputs=INPUTS)
    clock.wait_for_sleepers(1)
    with pytest.raises(CapacityExceededError):
        engine.run("echo", inputs=INPUTS)
    clock.advance(100)
    assert first.result().data == "second"


def test_two_backends_do_not_share_anything(project: Project, server: Server) -> None:
    """A full backend refuses; another one of the same engine serves."""
    gate = Gate()
    server.route("/v1/chat/completions", reply(json=completion("a"), gate=gate))
    server.route("/other/chat/completions", reply(json=completion("b")))
    project.write("profiles/other.yaml", "backend: other\n")
    engine = project.engine(
        proxies={},
        backends=[
            Backend("local", endpoint=f"{server.url}/v1", concurrency_limit=1, queue_capacity=0),
            Backend("other", endpoint=f"{server.url}/other", concurrency_limit=1, queue_capacity=0),
        ],
    )
    first = Worker(engine.run, "echo", inputs=INPUTS)
    gate.wait_arrived()
    with pytest.raises(CapacityExceededError):
        engine.run("echo", inputs=INPUTS)
    assert engine.run("echo", inputs=INPUTS, profile="other").data == "b"
    gate.open()
    assert first.result().data == "a"


def test_repairs_take_no_second_lease(project: Project, server: Server) -> None:
    """With room for one run alone, a repair is served under the lease that the run has."""
    server.play(reply(json=completion('{"n": "x"}')), reply(json=completion('{"n": 1}')))
    engine = engine_on(project, server, backend={"concurrency_limit": 1, "queue_capacity": 0})
    assert engine.run("extract", inputs=INPUTS).data == {"n": 1}


def test_the_server_never_sees_more_than_the_limit(project: Project, server: Server) -> None:
    """Forty threads on a limit of three: at most three in flight, everybody answered."""
    server.play(reply(json=completion("hi")))
    engine = engine_on(project, server, backend={"concurrency_limit": 3})
    workers = [Worker(engine.run, "echo", inputs=INPUTS) for _ in range(40)]
    assert [worker.result().data for worker in workers] == ["hi"] * 40
    assert server.peak <= 3


def test_c29_cookies_and_keys_stay_where_they_belong(project: Project, server: Server) -> None:
    """A cookie is not sent back, and each call carries its own key."""
    server.play(reply(json=completion("hi"), headers={"Set-Cookie": "lb=1"}))
    engine = engine_on(project, server, backend={"api_key": "sk-one"})
    engine.run("echo", inputs=INPUTS)
    engine.run("echo", inputs=INPUTS)
    assert all("cookie" not in request.headers for request in server.requests)
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer sk-one"}


# ------------------------------------------------------------------------------------------- what errors say


def test_errors_say_where_the_time_went(project: Project, server: Server) -> None:
    """Backend, model, attempts and seconds by phase are in the text; the key and the prompt are not."""
    server.play(reply(status=500, json={"error": {"message": "boom sk-very-secret-key"}}))
    engine = engine_on(project, server, backend={"api_key": "sk-very-secret-key"})
    with pytest.raises(ProviderError) as caught:
        engine.run("echo", inputs={"text": "a private matter"}, override=NO_WAIT)
    text = str(caught.value)
    for part in ("'local'", "'m1'", "3 attempts made", "queued", "generating", "waiting to retry", "boom"):
        assert part in text
    assert "secret" not in text
    assert "private" not in text
    assert all("secret" not in (event.error or "") for event in caught.value.attempts)


def test_every_error_of_a_run_carries_attempts_and_usage(project: Project, server: Server) -> None:
    """A deadline in the second attempt carries what the first one cost."""
    server.play(reply(json=completion('{"n": "x"}', usage=usage(100))), hang())
    with pytest.raises(GenerationDeadlineError) as caught:
        engine_on(project, server).run("extract", inputs=INPUTS, timeout=0.5)
    assert [event.outcome for event in caught.value.attempts] == ["succeeded", "cancelled"]
    assert caught.value.usage is not None
    assert caught.value.usage.total_tokens == 100


def test_an_unusable_key_is_found_before_anything_is_sent(
    project: Project, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W80: a key with a line break inside is named by its variable and never shown."""
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", "sk-first\r\nsk-second")
    engine = engine_on(project, server, backend={"api_key_env": "PROMPTKIT_TEST_KEY"})
    with pytest.raises(Exception, match=r"PROMPTKIT_TEST_KEY.*line break") as caught:
        engine.run("echo", inputs=INPUTS)
    assert "sk-" not in str(caught.value)
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", "sk-good\r\n")
    server.play(reply(json=completion("hi")))
    assert engine.run("echo", inputs=INPUTS).data == "hi"
    assert server.requests[0].headers["authorization"] == "Bearer sk-good"


def test_a_malformed_answer_after_all_retries_is_told(project: Project, server: Server) -> None:
    """Not an IndexError and not a JSONDecodeError."""
    server.play(reply(body="<html>nothing here</html>", headers={"Content-Type": "text/html"}))
    with pytest.raises(MalformedResponseError):
        engine_on(project, server).run("echo", inputs=INPUTS, override=NO_WAIT)


def test_a_deadline_before_admission_is_not_a_generation_error(project: Project, server: Server) -> None:
    """Nothing was admitted and nothing sent."""
    with pytest.raises(DeadlineExceededError) as caught:
        engine_on(project, server).run("echo", inputs=INPUTS, timeout=0)
    assert not isinstance(caught.value, GenerationError)
    assert server.requests == []
