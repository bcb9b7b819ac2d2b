"""`Engine.check`: every kind of file, every problem at its place, none hidden by another."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from promptkit import Backend, Engine, Problem
from promptkit.testing import ScriptedClient
from support.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An application's folders, all of it right."""
    return Project(tmp_path)


def problems(project: Project, **options: Any) -> list[str]:
    """Return what check says, paths without the root."""
    found = project.engine(ScriptedClient(), **options).check()
    assert all(isinstance(problem, Problem) for problem in found)
    assert found == sorted(found, key=lambda problem: (problem.path, problem.line, problem.column, problem.message))
    return [str(problem).replace(f"{project.root}/", "") for problem in found]


def test_a_project_that_is_right_has_no_problems(project: Project) -> None:
    """An empty list."""
    assert problems(project) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("prompts/p.yaml", "profile: [\n", "prompts/p.yaml:"),
        ("prompts/p.yaml", "profil: main\nmessages: [{role: user, content: x}]\n", "prompts/p.yaml:1:1: "),
        ("prompts/p.yaml", b"\xff\xfe\x00", "prompts/p.yaml:"),
        ("prompts/p.yml", "messages: []\n", "prompts/p.yml:1:"),
        ("prompts/deep/er.yaml", "messages: 3\n", "prompts/deep/er.yaml:1:"),
        ("prompts/p.yaml", "messages: [{role: user, content: '{{ nobody }}'}]\n", "prompts/p.yaml:1:"),
        ("prompts/p.yaml", "inputs: {a: {type: string}}\nmessages: [{role: user, content: x}]\n", "prompts/p.yaml:1:"),
        ("prompts/p.yaml", "messages: [{role: user, content: '{{ '}]\n", "prompts/p.yaml:1:"),
        ("profiles/q.yaml", "backend: local\ntemperatur: 1\n", "profiles/q.yaml:2:1: "),
        ("profiles/q.yaml", "model: m\n", "profiles/q.yaml:"),
        ("profiles/q.yaml", "backend: local\ntemperature: hot\n", "profiles/q.yaml:2:"),
        ("schemas/s.json", '{"type": "objekt"}', "schemas/s.json:1:"),
        ("schemas/s.json", "{", "schemas/s.json:1:"),
        ("schemas/s.yaml", "$ref: nowhere.json\n", "schemas/s.yaml:1:"),
        ("schemas/deep/s.json", '{"unevaluatedItems": 3}', "schemas/deep/s.json:1:"),
        ("schemas/s.json", b"\xff", "schemas/s.json"),
    ],
)
def test_each_kind_of_file_is_looked_at(project: Project, name: str, text: str | bytes, expected: str) -> None:
    """A broken file is told by its path, and alone."""
    project.write(name, text)
    (found,) = problems(project)
    assert found.startswith(expected), found


def test_an_unknown_profile_is_told_at_its_line_with_the_nearest(project: Project) -> None:
    """The place is that of the value in the prompt."""
    project.prompt("p", "description: d\nprofile: mian\nmessages: [{role: user, content: x}]\n")
    assert problems(project) == ["prompts/p.yaml:2:10: profile: no profile is called 'mian'; did you mean 'main'?"]


def test_an_unknown_backend_is_told_at_its_line_with_the_nearest(project: Project) -> None:
    """The place is that of the value in the profile."""
    project.write("profiles/q.yaml", "model: m\nbackend: lokal\n")
    assert problems(project) == ["profiles/q.yaml:2:10: backend: no backend is called 'lokal'; did you mean 'local'?"]


def test_a_wrong_endpoint_of_a_profile_is_told(project: Project) -> None:
    """Beside a backend and alone."""
    project.write("profiles/q.yaml", "backend: local\nendpoint: ftp://host/v1\n")
    project.write("profiles/r.yaml", "endpoint: host:80\n")
    found = problems(project)
    assert [line.partition(":")[0] for line in found] == ["profiles/q.yaml", "profiles/r.yaml"]
    assert all("endpoint" in line for line in found)


def test_a_broken_profile_is_not_an_unknown_one(project: Project) -> None:
    """Its prompts are not blamed: the profile's own problem is the only one."""
    project.write("profiles/main.yaml", "backend: local\nnonsense: 1\n")
    (found,) = problems(project)
    assert found.startswith("profiles/main.yaml:2:1: ")


def test_what_keeps_a_schema_from_being_strict_is_told_where_it_is_asked_for(project: Project) -> None:
    """The schema is right, and goes non-strict: that is worth a line, not a failure."""
    prompt = """
        profile: main
        messages: [{role: user, content: x}]
        output:
          format: json_schema
          strict: true
          schema: {type: object, properties: {n: {type: integer}}}
        """
    project.prompt("p", prompt)
    found = problems(project)
    assert found
    assert all(line.startswith("prompts/p.yaml:5:") and "strict" in line for line in found)
    project.prompt("p", prompt.replace("strict: true", "strict: false"))
    assert problems(project) == []


DRIFTED = '{"type": "object", "x-python-class": "promptkit:Problem", "properties": {"path": {"type": "string"}}}'


def test_a_schema_that_has_drifted_from_its_class_is_told_once(project: Project) -> None:
    """At the prompt that refers to it; at the file itself where no prompt does; for inputs as for outputs."""
    project.write("schemas/out.json", DRIFTED)
    alone = problems(project)
    assert alone
    assert all(line.startswith("schemas/out.json: ") for line in alone)
    project.prompt(
        "p",
        """
        profile: main
        inputs: {given: {type: object, schema: out.json}}
        messages: [{role: user, content: "{{ given }}"}]
        output: {format: json_schema, schema: out.json}
        """,
    )
    found = problems(project)
    assert all(line.startswith("prompts/p.yaml:") for line in found)
    labels = {line.split(": ")[1] for line in found if "schema" in line.split(": ")[1]}
    assert labels == {"inputs.given.schema", "output.schema"}


def test_a_class_that_cannot_be_imported_is_told(project: Project) -> None:
    """Like a difference, by its name."""
    project.write("schemas/out.json", '{"type": "object", "x-python-class": "nowhere_at_all:Thing"}')
    (found,) = problems(project)
    assert "nowhere_at_all" in found


def test_remarks_on_schema_files_are_told_without_a_prompt_too(project: Project) -> None:
    """A format that nothing checks, in a file of the schema root."""
    project.write("schemas/s.json", '{"type": "string", "format": "no-such-format"}')
    (found,) = problems(project)
    assert found.startswith("schemas/s.json:1:")
    assert "no-such-format" in found


def test_a_problem_that_many_prompts_share_is_told_once(project: Project) -> None:
    """A schema file that five prompts refer to is wrong once."""
    project.write("schemas/out.json", '{"type": "objekt"}')
    for n in range(5):
        project.prompt(
            f"p{n}",
            """
            profile: main
            messages: [{role: user, content: x}]
            output: {format: json_schema, schema: out.json}
            """,
        )
    (found,) = problems(project)
    assert found.startswith("schemas/out.json:1:")


def test_everything_is_told_at_once_in_order(project: Project) -> None:
    """Several mistakes in each of several files; nothing hides anything."""
    project.prompt("a", "profile: nowhere\nnonsense: 1\nmessages: 3\n")
    project.prompt("b", "messages: [{role: user, content: '{{ x }} {{ y }}'}]\n")
    project.write("profiles/q.yaml", "nonsense: 1\nmore: 2\n")
    project.write("schemas/s.json", '{"type": "objekt", "minimum": "x"}')
    found = problems(project)
    for name, least in (("prompts/a.yaml", 2), ("prompts/b.yaml", 2), ("profiles/q.yaml", 2), ("schemas/s.json", 2)):
        assert sum(line.startswith(f"{name}:") for line in found) >= least, found


def test_schemas_below_the_prompts_are_looked_at_where_they_are_used(project: Project) -> None:
    """Without a schema root of its own the prompts folder is it, where not every file is a schema."""
    project.write("prompts/used.json", '{"type": "objekt"}')
    project.write("prompts/data.json", '{"type": "objekt"}')
    project.prompt("p", "messages: [{role: user, content: x}]\noutput: {format: json_schema, schema: used.json}\n")
    engine = Engine(
        prompts=project.root / "prompts",
        profiles=project.root / "profiles",
        backends=[Backend("local", endpoint="http://127.0.0.1:9/v1")],
    )
    assert [Path(problem.path).name for problem in engine.check()] == ["used.json"]


def test_a_schema_that_is_not_there_is_told_at_the_prompt(project: Project) -> None:
    """With the place of its name."""
    project.prompt("p", "messages: [{role: user, content: x}]\noutput: {format: json_schema, schema: nowhere.json}\n")
    (found,) = problems(project)
    assert found.startswith("prompts/p.yaml:2:39: ")
    assert "nowhere.json" in found


def test_checking_reads_files_and_does_nothing_else(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """No client is called, no place is taken, no credential is needed."""
    monkeypatch.delenv("PROMPTKIT_TEST_KEY", raising=False)
    client = ScriptedClient()
    engine = project.engine(
        client, backend={"api_key_env": "PROMPTKIT_TEST_KEY", "concurrency_limit": 1, "queue_capacity": 0}
    )
    assert engine.check() == []
    assert client.requests == ()


def test_files_that_change_are_looked_at_again(project: Project) -> None:
    """The same engine sees what has been mended."""
    engine = project.engine(ScriptedClient())
    project.prompt("p", "messages: 3\n")
    assert len(engine.check()) == 1
    project.prompt("p", "messages: [{role: user, content: x}]\n")
    assert engine.check() == []


def test_files_that_lead_nowhere_hide_nothing(project: Project) -> None:
    """A link to nothing among the prompts and one among the profiles; what else is wrong is told as well."""
    (project.root / "prompts/gone.yaml").symlink_to("nowhere.yaml")
    (project.root / "profiles/gone.yaml").symlink_to("nowhere.yaml")
    project.prompt("p", "messages: 3\n")
    found = problems(project)
    assert len(found) == 3
    assert sum("gone" in line for line in found) == 2


def test_a_file_that_goes_while_it_is_checked_is_told(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name was there a moment ago."""
    engine = project.engine(ScriptedClient())
    monkeypatch.setattr(type(engine._prompts), "ids", lambda store: ["echo", "gone"])
    (found,) = engine.check()
    assert (found.path, found.line) == ("gone", 0)
    assert "no prompt is called 'gone'" in found.message


def test_folders_that_have_gone_have_no_files(project: Project) -> None:
    """Nothing is raised; the prompts that are left are told what they miss."""
    engine = project.engine(ScriptedClient())
    shutil.rmtree(project.root / "profiles")
    shutil.rmtree(project.root / "schemas")
    assert {"no profile is called" in problem.message for problem in engine.check()} == {True}
    shutil.rmtree(project.root / "prompts")
    assert engine.check() == []


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
