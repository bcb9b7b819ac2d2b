"""What an output contract costs: from a model's text to validated data.

    python benchmarks/contracts.py [--rounds N]

Each figure is the best of N rounds in this process, and the things compared take turns, so that a busy machine slows
all of them alike: look at the ratios. The measure is what a careless program would do, ``json.loads`` and then the
check that fastjsonschema compiles from the same schema; it neither finds repeated keys, infinities and broken
surrogates, nor gives data that threads may share. With jsonschema installed, its figure is printed beside them.

Two limits are checked, and missing one is an exit status of 1: for a valid answer of 2 kB against a schema of 40
properties, `validate` takes at most 1.3 times the bare check, and `validate_output` at most 1.5 times ``json.loads``
and the bare check together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fastjsonschema

from promptkit._loading import _schemas
from promptkit._loading._schemas import SchemaStore
from promptkit._validate import validate_output

VALIDATE_LIMIT = 1.3
OUTPUT_LIMIT = 1.5


def scalars() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a schema of 40 strings, numbers, booleans and choices, and an answer of about 2 kB."""
    properties: dict[str, Any] = {}
    answer: dict[str, Any] = {}
    for number in range(40):
        name = f"field_{number}"
        properties[name], answer[name] = (
            ({"type": "integer", "minimum": 0}, number * 1000),
            ({"type": "number"}, number * 1.25),
            ({"type": "string", "maxLength": 200}, "the quick brown fox jumps over the lazy dog and runs on " * 2),
            ({"enum": ["low", "medium", "high"]}, "medium"),
            ({"type": "boolean"}, True),
        )[number % 5]
    return object_of(properties), answer


def nested() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a schema of 40 properties of which a third are lists and objects, and an answer of about 2 kB."""
    properties: dict[str, Any] = {}
    answer: dict[str, Any] = {}
    part = object_of({"name": {"type": "string"}, "is_new": {"type": "boolean"}})
    for number in range(40):
        name = f"field_{number}"
        properties[name], answer[name] = (
            ({"type": "integer", "minimum": 0}, number * 1000),
            ({"type": "number"}, number * 1.25),
            ({"type": "string", "maxLength": 200}, "the quick brown fox jumps over the lazy dog and runs on"),
            ({"type": "array", "items": {"type": "string"}}, ["alpha", "beta", "gamma"]),
            ({"type": "string"}, "a few words"),
            (part, {"name": "some name", "is_new": True}),
        )[number % 6]
    return object_of(properties), answer


def many() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a schema of a list of records, and an answer of about 200 kB."""
    row = object_of({"id": {"type": "integer"}, "name": {"type": "string"}, "score": {"type": "number"}})
    rows = [{"id": number, "name": "some name", "score": number * 1.5} for number in range(4000)]
    return object_of({"rows": {"type": "array", "items": row}}), {"rows": rows}


def object_of(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with just these properties, all required."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def best(rounds: int, calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the best time of each call in microseconds; they take turns in every round."""
    repeats = {}
    for name, call in calls.items():
        start = time.perf_counter()
        call()
        repeats[name] = max(1, round(0.004 / max(time.perf_counter() - start, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.perf_counter() - start) / repeats[name])
    return {name: min(found) * 1e6 for name, found in times.items()}


def measure(store: SchemaStore, title: str, schema: dict[str, Any], answer: dict[str, Any], rounds: int) -> list[float]:
    """Print the figures of one answer and return the two ratios that are limited."""
    text = json.dumps(answer)
    bare = fastjsonschema.compile({**schema, "$schema": "http://json-schema.org/draft-07/schema#"}, use_default=False)
    compiled = store.load(schema)
    options: dict[str, Any] = {"output_format": "json_schema", "schema": compiled, "is_cut": False}
    data = validate_output(text, **options).data
    plain = json.loads(text)
    calls: dict[str, Callable[[], object]] = {
        "json.loads": lambda: json.loads(text),
        "bare check": lambda: bare(plain),
        "both": lambda: bare(json.loads(text)),
        "validate": lambda: compiled.validate(data),
        "validate_output": lambda: validate_output(text, **options),
        "  in a code fence": lambda: validate_output(f"```json\n{text}\n```", **options),
        "  in prose": lambda: validate_output(f"Here you are: {text}\nBye!", **options),
    }
    try:
        import jsonschema  # a peer, for comparison, where it is installed
    except ImportError:
        pass
    else:
        judge = jsonschema.Draft7Validator(schema)
        calls["jsonschema"] = lambda: judge.is_valid(json.loads(text))
    found = best(rounds, calls)
    print(f"\n{title}: {len(text):,} characters")
    for name, value in found.items():
        print(f"  {name:18} {value:10.1f} us   {value / found['both']:5.2f} x json.loads and the bare check")
    ratios = [found["validate"] / found["bare check"], found["validate_output"] / found["both"]]
    print(f"  validate / bare check {ratios[0]:.2f}, validate_output / both {ratios[1]:.2f}")
    return ratios


def compile_once(store: SchemaStore, threads: int = 64) -> int:
    """Load one new schema in many threads at the same moment; return how often it was compiled."""
    compiled = []
    original = _schemas.compile_core

    def counting(*args: Any, **kwargs: Any) -> Any:
        compiled.append(threading.get_ident())
        return original(*args, **kwargs)

    schema = object_of({f"first_met_{number}": {"type": "string"} for number in range(40)})
    barrier = threading.Barrier(threads)

    def load() -> None:
        barrier.wait()
        store.load(schema)

    _schemas.compile_core = counting
    try:
        workers = [threading.Thread(target=load) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        _schemas.compile_core = original
    return len(compiled)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all figures; return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40, help="how often everything takes its turn (40)")
    rounds = parser.parse_args(arguments).rounds
    with tempfile.TemporaryDirectory() as root:
        store = SchemaStore(root)
        limited = [measure(store, name.__name__, *name(), rounds) for name in (scalars, nested)]
        measure(store, many.__name__, *many(), max(3, rounds // 8))
        times = compile_once(store)
    print(f"\none schema met first by 64 threads is compiled {times} time(s)")
    worst = [statistics.fmean(column) for column in zip(*limited, strict=True)]
    print(f"mean of the two 2 kB answers: validate {worst[0]:.2f} (limit {VALIDATE_LIMIT}), ", end="")
    print(f"validate_output {worst[1]:.2f} (limit {OUTPUT_LIMIT})")
    return 0 if worst[0] <= VALIDATE_LIMIT and worst[1] <= OUTPUT_LIMIT and times == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
