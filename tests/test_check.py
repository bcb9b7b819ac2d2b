"""`Engine.check` tells of mistakes that no single file has on its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from promptkit.testing import ScriptedClient
from support.project import Project


@pytest.mark.parametrize(
    ("default", "told"),
    [
        ("5", ["inputs.n.default does not fit the input's own schema: (root): the value must be at least 10"]),
        ("10", []),
    ],
)
def test_a_default_must_fit_its_inputs_schema(tmp_path: Path, default: str, told: list[str]) -> None:
    """A default that the schema refuses would go out with every request that leaves the input out."""
    project = Project(tmp_path)
    project.prompt(
        "p",
        f"""
        profile: main
        inputs:
          n: {{type: integer, default: {default}, schema: {{minimum: 10}}}}
        messages: [{{role: user, content: "{{{{ n }}}}"}}]
        """,
    )
    found = project.engine(ScriptedClient()).check()
    assert [problem.message.partition(",")[0] for problem in found] == told
    assert all((problem.line, problem.path.endswith("p.yaml")) == (3, True) for problem in found)
