"""What an error body says, read out of any of the shapes in use.

Guarantees: `read_error` takes any JSON value and returns; nothing that echoes the caller's input (FastAPI's
``input``, Pydantic's ``input_value``, OpenRouter's ``flagged_input``) is read. Its texts are the server's own: clean
them before they are shown. Names of fields count in any case: gateways write ``Message`` and ``statusCode``. Pure.

Sources: the error references of OpenAI, Azure OpenAI, OpenRouter, Groq, Google's OpenAI endpoint, vLLM,
llama.cpp, Ollama, FastAPI, AWS API Gateway, Apigee, Baidu and MiniMax.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress

from attrs import define, field

from promptkit._fields import Json, describe

_DEEPEST = 6
"""How many levels of nesting are read; two are in use."""
_LONGEST = 400
"""Characters of a name that are kept: more than any name has, and room for `clean` to find a whole key in."""


@define
class ErrorFacts:
    """What an error body says, whatever its shape."""

    words: list[str] = field(factory=list)
    code: str | None = None
    """The server's own code, as text; its ``type`` where there is no code."""
    number: int | None = None
    """The HTTP status that the body itself claims."""
    names: set[str] = field(factory=set)
    """Codes, types and states by name, in lower case."""
    param: str | None = None
    provider: str | None = None
    reasons: list[str] = field(factory=list)
    """Why a filter acted: category and severity."""
    failed_generation: str | None = None

    @property
    def message(self) -> str:
        """All the words, in the order met."""
        return ": ".join(self.words)

    def add_words(self, text: str) -> None:
        """Add a sentence, unless it has been said already."""
        text = _ECHO.sub("…", text).strip()
        if text and not any(text in known for known in self.words):
            self.words.append(text)

    def add_code(self, value: Json, *, is_main: bool) -> None:
        """Note a code, type or state; the first main one gives ``code``, and the first HTTP status ``number``."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, (int, str)) or not str(value)[:_LONGEST].strip():
            return
        name = str(value)[:_LONGEST].strip()
        name = name.rpartition("#")[2] or name  # AWS: "namespace#Name"
        self.names.add(name.lower())
        if is_main and self.code is None:
            self.code = name
        if self.number is None and re.fullmatch(r"[1-5]\d\d", name, re.ASCII):
            self.number = int(name)


_CODE_KEYS = ("code", "status", "status_code", "statuscode", "error_code", "type", "__type")
_MAIN_CODE_KEYS = frozenset({"code", "error_code", "type", "__type"})
_WORD_KEYS = (
    "message",
    "msg",
    "detail",
    "errors",
    "error_description",
    "error_message",
    "error_msg",
    "errmsg",
    "status_msg",
    "faultstring",
    "title",
    "reason",
)
_HOLDERS = ("fault", "base_resp", "data")
"""Objects that some gateways put the error into."""

# What Pydantic says of a value, when a server passes its text on: the value itself is the caller's own.
_ECHO = re.compile(
    r"""(?:(['"])input\1:|\binput_value=).*?(?=,\ (['"])(?:ctx|url|type)\2:|,\ input_type=|\}\]?\Z|\},\ \{|\Z)""",
    re.DOTALL,
)


def _folded(node: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of ``node`` under their names in lower case; the first of two that differ in case counts."""
    fields: dict[str, Json] = {}
    for name, value in node.items():
        fields.setdefault(str(name).lower(), value)
    return fields


def is_error_body(body: Json) -> bool:
    """True when a body that came with a success status is an error all the same."""
    if not isinstance(body, Mapping):
        return False
    error = body.get("error")
    if body.get("choices"):
        return any(error.values()) if isinstance(error, Mapping) else bool(error)
    if error:
        return True
    if body.get("object") == "error" or body.get("detail") or body.get("errors"):
        return True
    fields = _folded(body)
    status = fields.get("base_resp")  # MiniMax sends it with every answer, 0 for a good one
    if isinstance(status, Mapping) and status.get("status_code"):
        return True
    if any(isinstance(fields.get(name), str) and fields[name] for name in ("message", "error_msg", "errmsg", "msg")):
        return True
    return "message" in fields and any(name in fields for name in _CODE_KEYS if name != "type")


def read_error(body: Json) -> ErrorFacts:
    """Read an error body: an object under ``error``, a string, a list, ``detail``, or a flat object."""
    facts = ErrorFacts()
    _collect(body, facts, 0)
    node = body.get("error", body) if isinstance(body, Mapping) else None
    if not facts.words and isinstance(node, Mapping):
        # Their values may be anything, the caller's input too; their names tell a person where to look.
        fields = [str(name)[:40] for name in node if str(name).lower() not in _CODE_KEYS][:8]
        if fields:
            facts.add_words(f"no message, only the fields {', '.join(fields)}")
    return facts


def _collect(node: Json, facts: ErrorFacts, depth: int) -> None:
    if depth > _DEEPEST:
        return
    if isinstance(node, str):
        facts.add_words(node[:5000])
    elif isinstance(node, list):
        for item in node[:5]:
            _collect(item, facts, depth + 1)
    elif isinstance(node, Mapping):
        node = _folded(node)
        if "msg" in node and isinstance(node.get("loc"), list):
            # FastAPI: what failed and where. Its "input" has the caller's own value, and is left alone.
            place = ".".join(str(part) for part in node["loc"][:20] if isinstance(part, (str, int)))
            facts.add_words(f"{place}: {node['msg'] if isinstance(node['msg'], str) else describe(node['msg'])}"[:1000])
            return
        _collect_object(node, facts, depth)


def _collect_object(node: Mapping[str, Json], facts: ErrorFacts, depth: int) -> None:
    if isinstance(node.get("error"), str) and ("message" in node or "error_description" in node):
        facts.add_code(node["error"], is_main=True)
    _collect(node.get("error"), facts, depth + 1)
    for name in _CODE_KEYS:
        facts.add_code(node.get(name), is_main=name in _MAIN_CODE_KEYS)
    words_before = len(facts.words)
    for name in _WORD_KEYS:
        _collect(node.get(name), facts, depth + 1)
    for name in _HOLDERS:
        if isinstance(node.get(name), Mapping):
            _collect(node[name], facts, depth + 1)
    errors = node.get("errors")
    if isinstance(errors, Mapping) and len(facts.words) == words_before:
        _collect_by_field(errors, facts)
    status = node.get("status")
    if isinstance(status, str) and status.isupper():  # Google's INVALID_ARGUMENT says more than its 400
        facts.add_words(status[:_LONGEST])
    if facts.param is None and isinstance(node.get("param"), str):
        facts.param = node["param"][:_LONGEST]
    if isinstance(node.get("failed_generation"), str):
        facts.failed_generation = node["failed_generation"]
    metadata = node.get("metadata")
    if isinstance(metadata, Mapping):
        _collect_metadata(metadata, facts, depth)
    _collect_inner(node, facts)


def _collect_inner(node: Mapping[str, Json], facts: ErrorFacts) -> None:
    """Read Google's ``details``, and Azure's ``innererror`` and filter results."""
    details = node.get("details")
    for detail in details[:10] if isinstance(details, list) else ():
        if isinstance(detail, Mapping):
            facts.add_code(detail.get("reason"), is_main=False)
    inner = node.get("innererror") or node.get("inner_error")
    if isinstance(inner, Mapping):
        facts.add_code(inner.get("code"), is_main=False)
    for holder in (node, inner):
        if isinstance(holder, Mapping):
            for name in ("content_filter_result", "content_filter_results"):
                facts.reasons += filter_reasons(holder.get(name))


def _collect_by_field(errors: Mapping[str, Json], facts: ErrorFacts) -> None:
    """Read the complaints of form validators: each field with a list of sentences."""
    for name, said in list(errors.items())[:5]:
        sentences = said if isinstance(said, list) else [said]
        words = [sentence for sentence in sentences[:3] if isinstance(sentence, str)]
        if words:
            facts.add_words(f"{name[:80]}: {', '.join(words)}"[:1000])


def _collect_metadata(metadata: Mapping[str, Json], facts: ErrorFacts, depth: int) -> None:
    """Read OpenRouter's ``metadata``; its ``flagged_input`` has the caller's own text, and is left alone."""
    provider = metadata.get("provider_name")
    if isinstance(provider, str):
        facts.provider = provider[:_LONGEST]
    reasons = metadata.get("reasons")
    if isinstance(reasons, list):
        facts.reasons += [reason[:_LONGEST] for reason in reasons[:10] if isinstance(reason, str)]
    raw = metadata.get("raw")
    if isinstance(raw, str):
        with suppress(ValueError, RecursionError):  # plain words, then
            raw = json.loads(raw)
    _collect(raw, facts, depth + 1)


def filter_reasons(results: Json) -> list[str]:
    """Return "category severity" of each of Azure's filter results that acted."""
    if not isinstance(results, Mapping):
        return []
    return [
        f"{str(category)[:_LONGEST]} {str(result.get('severity') or '')[:40]}".strip()
        for category, result in list(results.items())[:20]
        if isinstance(result, Mapping) and result.get("filtered") is True
    ]
