"""Schemas as the engine's check sees them: told at their place in the prompt file, remarks included."""

from __future__ import annotations

from pathlib import Path

from promptkit import Engine

PROMPT = """\
profile: p
inputs:
  day: {type: string, schema: {format: weekday}}
messages: [{role: user, content: "{{ day }}"}]
output:
  format: json_schema
  schema:
    type: object
    properties:
      phone: {type: string, format: phone}
"""


def problems(tmp_path: Path, prompt: str) -> list[str]:
    """Return what check says of one prompt, without the folder's name."""
    for folder, text in (("prompts", prompt), ("profiles", "endpoint: http://127.0.0.1:9/v1\nmodel: m\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p.yaml").write_text(text, encoding="utf-8")
    with Engine(prompts=tmp_path / "prompts", profiles=tmp_path / "profiles") as engine:
        return [str(problem).replace(f"{tmp_path}/prompts/", "") for problem in engine.check()]


def test_check_points_out_what_is_not_checked(tmp_path: Path) -> None:
    """Formats without a check are named where they stand, in an output and in an input."""
    assert problems(tmp_path, PROMPT) == [
        "p.yaml:3:40: #/format: format weekday is not known, so it is not checked",
        "p.yaml:10:37: #/properties/phone/format: format phone is not known, so it is not checked",
    ]


def test_check_tells_every_slip_of_a_schema(tmp_path: Path) -> None:
    """All problems of a schema in place come with their own line and column."""
    text = PROMPT.replace("format: phone", "nullable: true").replace("    type: object", "    requried: [phone]")
    found = problems(tmp_path, text.replace("weekday", "date"))
    assert [line.partition(" ")[0] for line in found] == ["p.yaml:8:15:", "p.yaml:10:39:"]
    assert "did you mean required?" in found[0]
    assert "use type: [string, null]" in found[1]
