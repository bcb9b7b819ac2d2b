"""The main job, end to end: a dozen receipts, eight threads, one small embedded model limited to two permits.

Run it with ``python -m nox -s demo``. It needs no network, no key and no server of its own.
"""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from promptkit import AttemptEvent, Engine, PromptKitError, RunResult
from promptkit.errors import OutputValidationError
from promptkit.local import LocalServer

HERE = Path(__file__).parent
THREADS = 8
PERMITS = 2


def main() -> int:
    """Run every document and print what came of it. Returns 0 when at least one answer was valid."""
    console = Console()
    documents = sorted((HERE / "data").glob("*.txt"))
    console.print(f"Loading the embedded model; {len(documents)} documents, {THREADS} threads, {PERMITS} permits.")
    started = time.monotonic()
    with LocalServer(parallel=PERMITS) as server, engine_on(server) as engine:
        outcomes = run_all(engine, documents, console)
    console.print(summary(documents, outcomes))
    valid = sum(isinstance(outcome, RunResult) for outcome in outcomes)
    repaired = sum(is_repaired(outcome) for outcome in outcomes)
    console.print(
        f"{valid} of {len(documents)} answers satisfy the schema, {repaired} of them after a repair; "
        f"{time.monotonic() - started:.1f} s in all."
    )
    console.print("Valid means that the schema holds. A model of 135 million parameters may still read wrongly.")
    return 0 if valid else 1


def engine_on(server: LocalServer) -> Engine:
    """Return an engine whose backend is limited to what the embedded server takes."""
    return Engine(
        prompts=HERE / "prompts",
        profiles=HERE / "profiles",
        schemas=HERE / "schemas",
        backends=[server.backend(concurrency_limit=PERMITS, queue_capacity=64)],
        proxies={},  # the server is in this process: no proxy can be on the way
    )


def run_all(engine: Engine, documents: list[Path], console: Console) -> list[RunResult | PromptKitError]:
    """Run one document per call, from eight threads, and show how far they are."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress, ThreadPoolExecutor(THREADS) as threads:
        task = progress.add_task("extracting", total=len(documents))
        attempts = Counter()

        def run(document: Path) -> RunResult | PromptKitError:
            def seen(_event: AttemptEvent) -> None:
                progress.update(task, description=f"extracting, {attempts.next()} attempts")

            try:
                return engine.run("receipt/extract", inputs={"receipt": document.read_text("utf-8")}, observer=seen)
            except PromptKitError as error:
                return error
            finally:
                progress.advance(task)

        return list(threads.map(run, documents))


class Counter:
    """A number that many threads count up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def next(self) -> int:
        """Return the next number, beginning with 1."""
        with self._lock:
            self._count += 1
            return self._count


def summary(documents: list[Path], outcomes: list[RunResult | PromptKitError]) -> Table:
    """Return the closing table: what was read, and what it took."""
    table = Table("document", "merchant", "date", "total", "attempts", "queued s", "model s", "tokens")
    for document, outcome in zip(documents, outcomes, strict=True):
        queued = sum(event.queued_s for event in outcome.attempts)
        spent = sum(event.generation_s for event in outcome.attempts)
        tokens = outcome.usage.total_tokens if outcome.usage is not None else None
        if isinstance(outcome, RunResult):
            data = outcome.data
            fields = [data["merchant"], data["date"], f"{data['total']:.2f} {data['currency']}"]
        else:
            fields = [f"[red]{type(outcome).__name__}[/red]", first_reason(outcome), ""]
        numbers = [str(len(outcome.attempts)), f"{queued:.1f}", f"{spent:.1f}", "" if tokens is None else str(tokens)]
        table.add_row(document.stem, *fields, *numbers)
    return table


def first_reason(error: PromptKitError) -> str:
    """Return why a document failed, in a few words."""
    if isinstance(error, OutputValidationError):
        return str(error.issues[0])
    return str(error).partition(" (")[0]


def is_repaired(outcome: RunResult | PromptKitError) -> bool:
    """Say whether a valid answer took a repair."""
    return isinstance(outcome, RunResult) and any(event.kind == "repair" for event in outcome.attempts)


if __name__ == "__main__":
    sys.exit(main())
