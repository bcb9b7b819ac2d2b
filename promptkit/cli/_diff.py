"""What changed between two prepared or result files, part by part. Works on forms with and without content."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from promptkit._results import PREPARED_RUN_KIND, RUN_RESULT_KIND
from promptkit._strict_json import NotJsonError, UnsafeJsonError, parse_json
from promptkit.errors import ConfigError

Form = Mapping[str, Any]


def load_prepared(path: Path) -> Form:
    """Return the prepared part of a file that ``render --json`` or ``run --json`` wrote. Raises `ConfigError`."""
    try:
        form = parse_json(path.read_text("utf-8-sig"))
    except OSError as exc:
        raise ConfigError(f"{path}: it cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: it is not UTF-8 text (byte {exc.start})") from exc
    except (NotJsonError, UnsafeJsonError) as exc:
        raise ConfigError(f"{path}: it is not JSON: {exc}") from exc
    kind = _kind(form)
    if kind == RUN_RESULT_KIND:
        form = form.get("prepared")
        kind = _kind(form)
    if kind != PREPARED_RUN_KIND:
        raise ConfigError(f"{path}: its kind must be {PREPARED_RUN_KIND!r} or {RUN_RESULT_KIND!r}, not {kind!r}")
    for part in ("hashes", "execution", "output"):
        if not isinstance(form.get(part), dict):
            raise ConfigError(f"{path}: the part {part!r} is missing or is no object")
    messages = form.get("messages")
    if not isinstance(messages, list) or not all(map(_is_message, messages)):
        raise ConfigError(f"{path}: the part 'messages' is missing or is no list of messages")
    return dict(form)


def _kind(form: object) -> object:
    return form.get("kind") if isinstance(form, dict) else None


def _is_message(form: object) -> bool:
    return isinstance(form, dict) and isinstance(form.get("content", ""), str)


def differences(before: Form, after: Form) -> list[str]:
    """Return the lines that tell what changed, under the part that it belongs to; empty when nothing did."""
    parts = {
        "definition": [
            *_changed(before, after, ("prompt", "description")),
            *_changed(before["hashes"], after["hashes"], ("definition",), "hash "),
        ],
        "inputs": list(_changed(before["hashes"], after["hashes"], ("inputs",), "hash ")),
        "rendering": [
            *_changed(before["hashes"], after["hashes"], ("rendered",), "hash "),
            *_messages(before["messages"], after["messages"]),
            *_changed(before["output"], after["output"], _keys(before["output"], after["output"]), "output."),
        ],
        "target": [
            *_changed(before, after, ("profile", "backend", "endpoint", "model", "session_id")),
            *_changed(before["execution"], after["execution"], _keys(before["execution"], after["execution"])),
        ],
    }
    lines: list[str] = []
    for name, found in parts.items():
        if found:
            lines.append(f"{name}:")
            lines += [f"  {line}" for line in found]
    return lines


def _keys(before: Form, after: Form) -> tuple[str, ...]:
    return tuple(sorted({*before, *after}))


def _changed(before: Form, after: Form, names: tuple[str, ...], label: str = "") -> Iterator[str]:
    for name in names:
        old, new = before.get(name), after.get(name)
        if old != new or type(old) is not type(new):
            yield f"{label}{name}: {_shown(before, name)} -> {_shown(after, name)}"


def _shown(form: Form, name: str) -> str:
    return json.dumps(form[name], ensure_ascii=False, sort_keys=True) if name in form else "(absent)"


def _messages(before: list[Form], after: list[Form]) -> Iterator[str]:
    if len(before) != len(after):
        yield f"{len(before)} messages -> {len(after)} messages"
    for number, (old, new) in enumerate(zip(before, after, strict=False), start=1):
        yield from _changed(old, new, ("role", "images"), f"message {number} ")
        if old.get("content_hash") == new.get("content_hash"):
            continue
        if "content" not in old or "content" not in new:
            yield from _changed(old, new, ("content_hash",), f"message {number} ")
            continue
        yield f"message {number} ({new.get('role')}):"
        diff = difflib.unified_diff(
            old["content"].splitlines(), new["content"].splitlines(), "a", "b", n=1, lineterm=""
        )
        yield from (f"  {line}" for line in list(diff)[2:])
