"""What one call costs in CPU time, beside the libraries that do a part of it, or the same.

    python benchmarks/overhead.py [--rounds N] [--calls N]

A server in another process answers at once on a connection that stays open, so what is measured is this side alone:
the CPU time of the process, user and system, per call. The callers take turns, and each figure is the best of all
rounds; 1.00 is a bare ``requests.Session.post`` of a body that has been built before. Peers are measured when they
are installed (openai, instructor, pydantic-ai, litellm).

The limit is checked: a whole ``engine.run`` – files looked at, template rendered, admitted, sent, read, validated –
costs at most 0.75 of the bare post. Missing it is an exit status of 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fastjsonschema
import jinja2
import requests
from common.loopback import running
from common.prompt import INPUTS, SCHEMA, TEMPLATE, messages, write_files

LIMIT = 0.75
WARM_UP = 50

Call = Callable[[], Any]


def build_body(text: str | None = None) -> bytes:
    """Return a request as a careful program would send it."""
    turns = messages()
    if text is not None:
        turns[1]["content"] = text
    return json.dumps({"model": "m1", "messages": turns, "temperature": 0, "max_tokens": 800}).encode()


def headers() -> dict[str, str]:
    """Return what every request carries."""
    return {"Content-Type": "application/json", "Authorization": "Bearer key-1"}


def bare_post(address: str, stack: contextlib.ExitStack) -> Call:
    """``requests.Session.post`` with a body built before."""
    session = stack.enter_context(requests.Session())
    url, body, fields = f"{address}/v1/chat/completions", build_body(), headers()
    return lambda: session.post(url, data=body, headers=fields, timeout=60).content


def composition(address: str, stack: contextlib.ExitStack) -> Call:
    """The same, with a compiled template before it and a compiled validator after it."""
    session = stack.enter_context(requests.Session())
    url, fields = f"{address}/v1/chat/completions", headers()
    template = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False).from_string(TEMPLATE)  # noqa: S701 – prompts are no HTML
    validate = fastjsonschema.compile(SCHEMA)

    def call() -> Any:
        body = build_body(template.render(INPUTS))
        answer = session.post(url, data=body, headers=fields, timeout=60).json()
        return validate(json.loads(answer["choices"][0]["message"]["content"]))

    return call


def transport(address: str, stack: contextlib.ExitStack) -> Call:
    """The transport of promptkit alone, with a body built before."""
    from promptkit._cancel import CancelToken
    from promptkit._transport import Transport

    transport = stack.enter_context(contextlib.closing(Transport(pool_size=1, proxies={})))
    url, body, fields, token = f"{address}/v1/chat/completions", build_body(), headers(), CancelToken()
    return lambda: (
        transport.post(
            url, body=body, headers=fields, timeout_s=60, cancel=token, max_bytes=1 << 24, use_proxy=True
        ).body
    )


def engine_run(address: str, stack: contextlib.ExitStack) -> Call:
    """The whole of ``engine.run`` on the same prompt."""
    from promptkit import Backend, Engine, RunRequest

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    write_files(folder)
    engine = stack.enter_context(
        Engine(
            prompts=folder / "prompts",
            profiles=folder / "profiles",
            backends=[Backend("local", endpoint=f"{address}/v1", api_key="key-1", concurrency_limit=16)],
        )
    )
    return lambda: engine.run(RunRequest("invoice", inputs=INPUTS)).data


def openai_sdk(address: str, stack: contextlib.ExitStack) -> Call:
    """The OpenAI SDK."""
    import openai

    client = stack.enter_context(openai.OpenAI(base_url=f"{address}/v1", api_key="key-1", max_retries=0))
    turns: Any = messages()
    return lambda: client.chat.completions.create(model="m1", messages=turns, temperature=0, max_tokens=800)


def instructor_client(address: str, stack: contextlib.ExitStack) -> Call:
    """Instructor over the OpenAI SDK, with a model class as the contract."""
    import instructor
    import openai
    import pydantic

    line = pydantic.create_model("Line", name=(str, ...), count=(int, ...))
    invoice = pydantic.create_model("Invoice", total=(float, ...), currency=(str, ...), lines=(list[line], ...))  # type: ignore[valid-type]
    inner = stack.enter_context(openai.OpenAI(base_url=f"{address}/v1", api_key="key-1", max_retries=0))
    client = instructor.from_openai(inner, mode=instructor.Mode.JSON_SCHEMA)
    turns: Any = messages()
    return lambda: client.chat.completions.create(
        model="m1", messages=turns, response_model=invoice, temperature=0, max_tokens=800, max_retries=1
    )


def pydantic_ai(address: str, _: contextlib.ExitStack) -> Call:
    """pydantic-ai, run synchronously."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    agent = Agent(OpenAIChatModel("m1", provider=OpenAIProvider(base_url=f"{address}/v1", api_key="key-1")))
    text = messages()[1]["content"]
    return lambda: agent.run_sync(text).output


def litellm_completion(address: str, _: contextlib.ExitStack) -> Call:
    """The ``completion`` of litellm."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch a price list otherwise
    import litellm

    turns = messages()
    return lambda: litellm.completion(
        model="openai/m1", api_base=f"{address}/v1", api_key="key-1", messages=turns, temperature=0, max_tokens=800
    )


OURS = {"promptkit: engine.run": engine_run, "promptkit: transport alone": transport}
CALLERS: dict[str, Callable[[str, contextlib.ExitStack], Call]] = {
    "requests.Session.post": bare_post,
    "requests + jinja2 + fastjsonschema": composition,
    **OURS,
    "openai": openai_sdk,
    "instructor": instructor_client,
    "pydantic-ai": pydantic_ai,
    "litellm": litellm_completion,
}


def measure(calls: dict[str, Call], rounds: int, count: int) -> dict[str, float]:
    """Return the best CPU time per call of each caller, in seconds; they take turns."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        for _ in range(WARM_UP):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.process_time()
            for _ in range(count):
                call()
            best[name] = min(best[name], (time.process_time() - began) / count)
    return best


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 when the limit is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, help="how often everybody takes a turn (10)")
    parser.add_argument("--calls", type=int, default=300, help="calls in one turn (300)")
    options = parser.parse_args(arguments)
    with running() as address, contextlib.ExitStack() as stack:
        calls: dict[str, Call] = {}
        for name, build in CALLERS.items():
            try:
                calls[name] = build(address, stack)
            except ImportError as error:
                print(f"{name}: not measured ({error})")
        best = measure(calls, options.rounds, options.calls)
    base = best["requests.Session.post"]
    print(f"\n{'CPU per call':<38}{'us':>9}{'ratio':>8}")
    for name, seconds in best.items():
        print(f"{name:<38}{seconds * 1e6:>9.0f}{seconds / base:>8.2f}")
    if "promptkit: engine.run" not in best:
        return 1
    ratio = best["promptkit: engine.run"] / base
    print(f"\nengine.run costs {ratio:.2f} of a bare post (limit {LIMIT})")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
