"""Recorded exchanges as files: one JSON file for each request, named by the hash of its rendering.

Guarantees: a file holds what was asked – messages, model, numbers, extra body, contract – and what was answered,
in the order of the answers; no credential, header, address or image is in it. It is replaced as a whole, so that a
reader never sees half of one. What it says was asked hashes to its name.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import asdict, fields, frozen

from promptkit._canonical import escape_surrogates
from promptkit._fields import Json
from promptkit._types import GenerateRequest, GenerateResponse, Usage
from promptkit.errors import ConfigError

KIND: Final = "promptkit.recording/1"
MAX_LINES: Final = 60
"""How many lines of a difference are shown."""
MAX_CHARS: Final = 200
"""How much of each line is shown."""


@frozen
class Recording:
    """One request, as `GenerateRequest.rendered_form` gives it, and its answers in order."""

    rendered_hash: str
    request: Mapping[str, Json]
    answers: tuple[GenerateResponse, ...]


class Folder:
    """A folder of recordings. Reads and writes files; keeps nothing."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def file(self, rendered_hash: str) -> Path:
        """Return where the recording of a request is, or would be."""
        return self.path / f"{rendered_hash.removeprefix('sha256:')}.json"

    def read(self, rendered_hash: str) -> Recording | None:
        """Return the recording of a request, None when there is none. Raises `ValueError` for a broken file."""
        return _read(self.file(rendered_hash))

    def all(self) -> Iterator[Recording]:
        """Yield every recording that can be read, by file name."""
        for file in sorted(self.path.glob("*.json")):
            with contextlib.suppress(ValueError, OSError):
                if (recording := _read(file)) is not None:
                    yield recording

    def write(self, recording: Recording) -> None:
        """Write a recording, in place of one of the same request. Makes the folder where it is missing."""
        self.path.mkdir(parents=True, exist_ok=True)
        form = {
            "kind": KIND,
            "rendered_hash": recording.rendered_hash,
            "request": recording.request,
            "answers": [_answer_form(answer) for answer in recording.answers],
        }
        text = json.dumps(form, ensure_ascii=False, allow_nan=False, indent=2, sort_keys=True) + "\n"
        target = self.file(recording.rendered_hash)
        scratch = target.with_name(f"{target.stem}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            scratch.write_bytes(escape_surrogates(text).encode())
            scratch.replace(target)
        finally:
            scratch.unlink(missing_ok=True)


def _answer_form(answer: GenerateResponse) -> dict[str, Json]:
    return {name: value for name, value in asdict(answer).items() if value is not None}


def _read(file: Path) -> Recording | None:
    try:
        form = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"{file} is no recording: it is not JSON ({exc})") from exc
    if not isinstance(form, dict) or form.get("kind") != KIND:
        raise ValueError(f"{file} is no recording: its kind is not {KIND!r}")
    request, answers = form.get("request"), form.get("answers")
    if not isinstance(request, dict) or not isinstance(answers, list) or not answers:
        raise ValueError(f"{file} is no recording: it needs a request and a list of answers")
    return Recording(
        f"sha256:{file.stem}",
        request,
        tuple(_answer(answer, f"{file}: answer {n}") for n, answer in enumerate(answers)),
    )


_ANSWER_FIELDS: Final = frozenset(attribute.name for attribute in fields(GenerateResponse))
_USAGE_FIELDS: Final = frozenset(attribute.name for attribute in fields(Usage))


def _answer(form: Json, where: str) -> GenerateResponse:
    if not isinstance(form, dict) or not _ANSWER_FIELDS.issuperset(form):
        raise ValueError(f"{where} must be a mapping of {', '.join(sorted(_ANSWER_FIELDS))}")
    usage = form.get("usage")
    if usage is not None and not (isinstance(usage, dict) and _USAGE_FIELDS.issuperset(usage)):
        raise ValueError(f"{where}: usage must be a mapping of {', '.join(sorted(_USAGE_FIELDS))}")
    try:
        return GenerateResponse(**{**form, "usage": None if usage is None else Usage(**usage)})
    except ConfigError as exc:
        raise ValueError(f"{where}: {exc}") from exc


# ------------------------------------------------------------------------------------------------- the nearest


def difference(request: GenerateRequest, recordings: Iterable[Recording]) -> str | None:
    """Return how ``request`` differs from the recorded one that shares most words with it, None without any.

    The text shows messages, since that is what a test's author has to see; it is cut to a bounded size.
    """
    asked = _lines(request.rendered_form())
    words = Counter(word for line in asked for word in line.split())
    nearest: tuple[int, Recording, list[str]] | None = None
    for recording in recordings:
        lines = _lines(recording.request)
        theirs = Counter(word for line in lines for word in line.split())
        apart = ((words - theirs) + (theirs - words)).total()
        if nearest is None or apart < nearest[0]:
            nearest = (apart, recording, lines)
    if nearest is None:
        return None
    _, recording, lines = nearest
    name = f"{recording.rendered_hash.removeprefix('sha256:')}.json"
    shown = list(difflib.unified_diff(lines, asked, name, "asked", n=1, lineterm=""))
    cut = [line if len(line) <= MAX_CHARS else line[:MAX_CHARS] + "…" for line in shown[:MAX_LINES]]
    return "\n".join(cut + (["…"] if len(shown) > MAX_LINES else []))


def _lines(form: Mapping[str, Any]) -> list[str]:
    """Return a request as lines that a person can compare; whatever a file holds gives some lines."""
    lines = [f"{key}: {json.dumps(form[key], sort_keys=True)}" for key in sorted(form) if key != "messages"]
    messages = form.get("messages")
    for message in messages if isinstance(messages, list) else []:
        if not isinstance(message, Mapping):
            continue
        lines.append(f"[{message.get('role')}]")
        lines += str(message.get("content", "")).split("\n")
        images = message.get("images")
        lines += [f"(image {image})" for image in images] if isinstance(images, list) else []
    return lines
