"""The prompt that the benchmarks run: one template, one JSON contract, no files but these."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

TEMPLATE = """\
Extract the fields of this invoice, number #{{ number }}#, and answer in JSON.
{% for line in lines %}- {{ line }}
{% endfor %}{{ text }}
"""
INPUTS: dict[str, Any] = {"number": 1, "text": "paper and ink, 12.50 EUR " * 10, "lines": ["2 paper", "1 ink"]}
SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["total", "currency", "lines"],
    "additionalProperties": False,
    "properties": {
        "total": {"type": "number", "minimum": 0},
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "count"],
                "additionalProperties": False,
                "properties": {"name": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
            },
        },
    },
}
PROMPT = """\
profile: local
inputs:
  number: {type: integer}
  text: {type: string}
  lines: {type: array}
messages:
  - role: system
    content: You extract invoices.
  - role: user
    content: |
%s
output: {format: json_schema, schema: invoice.json, repair: {max_attempts: 0}}
execution: {temperature: 0, max_tokens: 800}
"""
PROFILE = """\
backend: local
model: m1
timeout_s: 60
retry: {budget: %d, base_delay_s: 20, max_delay_s: 20}
"""


SETTLE_S = 2.1
"""Files younger than two seconds are read again each time, since their times may not tell of a change yet."""


def write_files(folder: Path, *, budget: int = 0) -> None:
    """Write ``prompts/invoice.yaml`` with its schema, and ``profiles/local.yaml``."""
    prompts, profiles = folder / "prompts", folder / "profiles"
    prompts.mkdir()
    profiles.mkdir()
    content = "".join(f"      {line}\n" for line in TEMPLATE.splitlines())
    (prompts / "invoice.yaml").write_text(PROMPT % content)
    (prompts / "invoice.json").write_text(json.dumps(SCHEMA))
    (profiles / "local.yaml").write_text(PROFILE % budget)
    time.sleep(SETTLE_S)


def messages(number: int = 1) -> list[dict[str, str]]:
    """Return what the prompt renders to, for clients that take messages."""
    text = TEMPLATE.replace("{{ number }}", str(number)).replace("{{ text }}", str(INPUTS["text"]))
    return [{"role": "system", "content": "You extract invoices."}, {"role": "user", "content": text}]
