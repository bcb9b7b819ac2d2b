"""From a model's text to data that satisfies its contract, or to the list of what is wrong with it.

Guarantees: data comes back only when the text held exactly one JSON value and the schema accepts it; that data
equals what ``json.loads`` makes of the value and cannot be changed. Invalid output is an answer of this module,
never an exception; the one exception it raises is `OutputTruncatedError`, because an answer that was cut is
neither valid nor worth a repair. Nothing is closed, coerced, unwrapped or filled in.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from attrs import frozen

from promptkit._strict_json import NotJsonError, UnsafeJsonError, parse_json
from promptkit._types import Issue, OutputFormat
from promptkit._unwrap import has_open_reasoning, parse_wrapped
from promptkit.errors import OutputTruncatedError

_EXCERPT: Final = 24
_REJECTION: Final = 500


class Schema(Protocol):
    """What is needed of a compiled schema."""

    def validate(self, value: Any, /) -> tuple[Issue, ...]:
        """Return what is wrong with ``value``; empty when nothing is. Never raises for any JSON value."""
        ...


@frozen
class Verdict:
    """The parsed output and what is wrong with it. ``data`` means nothing while there are issues."""

    data: Any
    issues: tuple[Issue, ...] = ()

    @property
    def is_valid(self) -> bool:
        """True when there is no issue."""
        return not self.issues


def validate_output(
    text: str,
    *,
    output_format: OutputFormat,
    schema: Schema | None,
    is_cut: bool,
    rejection: str | None = None,
    max_tokens: int | None = None,
) -> Verdict:
    """Judge one answer by its contract.

    ``is_cut`` says that the server stopped at the token limit (``finish_reason`` ``length``); ``max_tokens`` is
    that limit, for the message. ``rejection`` is the server's own complaint about the output, which makes it
    invalid whatever it holds. ``schema`` is used by the format ``json_schema``.

    Raises `OutputTruncatedError` when ``is_cut``, unless the whole text is a JSON value that cannot go on (no
    bare number), needs no clean-up and satisfies the schema.
    """
    if output_format == "text":
        if is_cut:
            raise _truncated(text, max_tokens)
        return Verdict(text, _refused(rejection))
    data: Any = None
    issues: tuple[Issue, ...] = ()
    try:
        data = parse_json(text)
    except UnsafeJsonError as exc:
        issues = exc.issues
    except NotJsonError as exc:
        if is_cut:
            raise _truncated(text, max_tokens) from exc
        data, issues = _clean_up(text)
    if not issues and schema is not None:
        issues = schema.validate(data)
    if is_cut and (issues or (isinstance(data, (int, float)) and not isinstance(data, bool))):
        raise _truncated(text, max_tokens)
    if rejection is not None:
        issues = (*_refused(rejection), *issues)
    return Verdict(data, issues)


def _clean_up(text: str) -> tuple[Any, tuple[Issue, ...]]:
    try:
        return parse_wrapped(text), ()
    except UnsafeJsonError as exc:
        return None, exc.issues
    except NotJsonError as exc:
        return None, (_syntax_issue(text, exc),)


def _syntax_issue(text: str, error: NotJsonError) -> Issue:
    position = error.position
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    follows = text[position : position + _EXCERPT].rstrip()
    where = f"before {follows!a}" if follows else "where the text ends"
    return Issue(
        "",
        "json",
        f"not JSON: {error.reason} at line {line} column {column} (position {position}), {where}",
        "one JSON value and nothing else",
    )


def _refused(rejection: str | None) -> tuple[Issue, ...]:
    if rejection is None:
        return ()
    return (Issue("", "provider", f"the server refused the output of its model: {rejection[:_REJECTION]}"),)


def _truncated(text: str, max_tokens: int | None) -> OutputTruncatedError:
    limit = "" if max_tokens is None else f", max_tokens {max_tokens}"
    thoughts = "; reasoning not finished, so there is no answer yet" if has_open_reasoning(text) else ""
    error = OutputTruncatedError(
        f"the output was cut at the token limit (finish_reason 'length'{limit}) after {len(text):,} characters"
        f"{thoughts}; allow more tokens (max_tokens), or ask for less"
    )
    error.text = text
    error.phase = "answer"
    return error
