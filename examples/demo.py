"""The main job, end to end: a dozen receipts, eight threads, one small embedded model limited to two permits.

Run it with ``python -m nox -s demo``. It needs no network, no key and no server of its own. With ``--record`` it
writes what was asked and answered into ``recordings/``, from where the tests replay it without any model.
"""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from promptkit import AttemptEvent, Backend, Engine, LLMClient, PromptKitError, RunResult
from promptkit.errors import OutputValidationError
from promptkit.local import LocalServer
from promptkit.testing import RecordingClient

HERE = Path(__file__).parent
THREADS = 8
PERMITS = 2
LOG_WIDTH = 132
"""Columns where no terminal says how many it has: a log keeps every column of the table on one line."""

NARROW = 110
"""Columns below which the table leaves out what it can do without."""

Outcome = RunResult | PromptKitError


def main(*arguments: str) -> int:
    """Run every document and print what came of it. Returns 0 when at least one answer was valid."""
    client = RecordingClient(None, HERE / "recordings") if "--record" in arguments else None
    console = Console()
    if not console.is_terminal:
        console = Console(width=LOG_WIDTH, no_color=True, highlight=False)
    documents = sorted((HERE / "data").glob("*.txt"))
    console.print(f"Loading the embedded model; {len(documents)} documents, {THREADS} threads, {PERMITS} permits.")
    started = time.monotonic()
    # One thread computes: fast enough for so small a model, and on a busy machine two would wait for each other.
    with LocalServer(parallel=PERMITS, threads=1) as server, engine_on(server.endpoint, client) as engine:
        outcomes = run_all(engine, documents, console)
    report(documents, outcomes, console, time.monotonic() - started)
    return 0 if any(isinstance(outcome, RunResult) for outcome in outcomes) else 1


def engine_on(endpoint: str, client: LLMClient | None = None) -> Engine:
    """Return an engine whose backend is limited to what the embedded server takes."""
    return Engine(
        prompts=HERE / "prompts",
        profiles=HERE / "profiles",
        schemas=HERE / "schemas",
        backends=[Backend("local", endpoint=endpoint, concurrency_limit=PERMITS, queue_capacity=64)],
        client=client,
        proxies={},  # the server is in this process: no proxy can be on the way
    )


def run_all(engine: Engine, documents: list[Path], console: Console) -> list[Outcome]:
    """Run one document per call, from eight threads, and show how far they are."""
    with Board(documents, console) as board, ThreadPoolExecutor(THREADS) as threads:

        def run(document: Path) -> Outcome:
            def seen(event: AttemptEvent) -> None:
                board.attempted(document, event)

            outcome: Outcome
            try:
                text = document.read_text("utf-8")
                outcome = engine.run("receipt/extract", inputs={"receipt": text}, observer=seen)
            except PromptKitError as error:
                outcome = error
            board.finished(document, outcome)
            return outcome

        return list(threads.map(run, documents))


class Board:
    """Shows how far the documents are: a live bar in a terminal, a line per document in a log. Thread-safe."""

    def __init__(self, documents: list[Path], console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._progress.add_task("extracting", total=len(documents))
        self._console = console
        self._lock = threading.Lock()
        self._attempts = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def attempted(self, document: Path, event: AttemptEvent) -> None:
        """Take note of one answer of the model; called in the thread that asked."""
        with self._lock:
            self._attempts += 1
            description = f"extracting, {self._attempts} answers; last: {document.stem} ({event.kind})"
            self._progress.update(self._task, description=description)

    def finished(self, document: Path, outcome: Outcome) -> None:
        """Take note of a document that is done."""
        with self._lock:
            self._progress.advance(self._task)
            if not self._console.is_terminal:
                self._console.print(f"  {document.stem}: {verdict(outcome)}")


def report(documents: list[Path], outcomes: list[Outcome], console: Console, seconds: float) -> None:
    """Print the closing table, why each failed document failed, and the sums."""
    console.print(table(documents, outcomes, is_narrow=console.width < NARROW))
    for document, outcome in zip(documents, outcomes, strict=True):
        if not isinstance(outcome, RunResult):
            console.print(Text(f"{document.stem}: {outcome}"))
    valid = [outcome for outcome in outcomes if isinstance(outcome, RunResult)]
    repaired = [outcome for outcome in valid if is_repaired(outcome)]
    console.print(
        f"{len(valid)} of {len(outcomes)} answers satisfy the schema, {len(repaired)} of them after a repair; "
        f"{seconds:.1f} s in all."
    )
    console.print("Valid means that the schema holds. A model of 135 million parameters may still read wrongly.")


def table(documents: list[Path], outcomes: list[Outcome], *, is_narrow: bool) -> Table:
    """Return the closing table: what was read, and what it took. A narrow one has numbers in place of names."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0) if is_narrow else (0, 1))
    made.add_column("" if is_narrow else "document", no_wrap=True)
    if not is_narrow:
        made.add_column("outcome", no_wrap=True)
    made.add_column("merchant")  # the one that may give way
    made.add_column("date", no_wrap=True)
    for name in ("total", "", "attempts", "queued s", "model s", "tokens"):
        made.add_column(name, justify="right", no_wrap=True)
    for document, outcome in zip(documents, outcomes, strict=True):
        queued = sum(event.queued_s for event in outcome.attempts)
        spent = sum(event.generation_s for event in outcome.attempts)
        tokens = outcome.usage.total_tokens if outcome.usage is not None else None
        fields = ["", "", "", ""]
        if isinstance(outcome, RunResult):
            data = outcome.data
            fields = [data["merchant"], data["date"], f"{data['total']:.2f}", data["currency"]]
        numbers = [str(len(outcome.attempts)), f"{queued:.1f}", f"{spent:.1f}", "" if tokens is None else str(tokens)]
        style = "green" if isinstance(outcome, RunResult) else "red"
        names = [Text(document.stem[:2], style)] if is_narrow else [Text(document.stem), Text(verdict(outcome), style)]
        # Text, not str: what a model wrote is shown and never read as rich's markup.
        made.add_row(*names, *map(Text, fields), *numbers)
    return made


def verdict(outcome: Outcome) -> str:
    """Return in a word what came of a document."""
    if isinstance(outcome, RunResult):
        return "repaired" if is_repaired(outcome) else "valid"
    return "invalid" if isinstance(outcome, OutputValidationError) else "failed"


def is_repaired(outcome: RunResult) -> bool:
    """Say whether a valid answer took a repair; a retry after a failed connection is none."""
    return any(event.kind == "repair" for event in outcome.attempts)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
