"""The pytest plugin, run by pytest in a project of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PLUGIN = "_promptkit_pytestplugin"
IS_INSTALLED = any(point.value == PLUGIN for point in entry_points(group="pytest11"))

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Run pytest on a test module and settings; the plugin is there as in an application's environment."""

    def run(code: str, ini: str = "", *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(code)
        pytester.makeini(f"[pytest]\naddopts = --strict-markers\n{ini}")
        return pytester.runpytest_inprocess(*([] if IS_INSTALLED else ["-p", PLUGIN]), *arguments)

    return run


ON_FILES = """
from promptkit.errors import DeadlineExceededError
from promptkit.testing import late

FILES = {
    "prompts/greet.yaml": '''
        profile: main
        inputs: {name: {type: string}}
        messages: [{role: user, content: "Greet {{ name }}."}]
    ''',
    "profiles/main.yaml": "backend: anything",
}

def test_answer(promptkit_engine, scripted_client):
    scripted_client.add("Hello, Ada.")
    engine = promptkit_engine(files=FILES)
    assert engine.run("greet", inputs={"name": "Ada"}).text == "Hello, Ada."
    assert scripted_client.requests[0].messages[0].content == "Greet Ada."

def test_deadline(promptkit_engine, scripted_client, fake_clock):
    fake_clock.is_jumping = True
    scripted_client.add(late(60, "too late"))
    engine = promptkit_engine(files=FILES)
    try:
        engine.run("greet", inputs={"name": "Ada"}, timeout=30)
    except DeadlineExceededError:
        pass
    else:
        raise AssertionError
    assert fake_clock.monotonic() == 1030

def test_no_answer_is_left_from_the_test_before(scripted_client):
    assert scripted_client.requests == ()
"""


def test_fixtures_make_engines_on_files(run: Run) -> None:
    """A test gives files and answers, and needs neither server nor time."""
    run(ON_FILES).assert_outcomes(passed=3)


def test_fixtures_make_engines_on_the_applications_folders(run: Run, pytester: pytest.Pytester) -> None:
    """By default they are in the rootdir; a setting names another folder. Schemas and data are found beside them."""
    root = pytester.mkdir("app")
    for name, text in {
        "prompts/p.yaml": "profile: main\ninputs: {doc: {type: file}}\nmessages: [{role: user, content: '{{ doc }}'}]\n"
        "output: {format: json_schema, schema: s.json}\n",
        "profiles/main.yaml": "backend: b",
        "profiles/broken.yaml": "colour: red",
        "profiles/direct.yaml": "endpoint: http://127.0.0.1:9/v1",
        "profiles/other.yaml": "backend: openrouter",
        "schemas/s.json": '{"type": "array"}',
        "data/d.txt": "content of the file",
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    code = """
    from promptkit import Artifact

    def test_it(promptkit_engine, scripted_client):
        scripted_client.add([1])
        assert promptkit_engine().run("p", inputs={"doc": Artifact("d.txt")}).data == [1]
        assert scripted_client.requests[0].messages[0].content == "content of the file"
        assert scripted_client.requests[0].endpoint.endswith(".invalid/v1")
    """
    run(code, "promptkit_root = app").assert_outcomes(passed=1)
    run(code, "", "--rootdir", str(root)).assert_outcomes(passed=1)


def test_engines_are_closed_and_options_replace_what_is_chosen(run: Run) -> None:
    """Every option of an engine may be given."""
    run(
        """
        import pytest
        from promptkit import Backend
        from promptkit.errors import ConfigError, EngineClosedError
        from promptkit.testing import ScriptedClient

        engines = []
        FILES = {"prompts/p.yaml": b"profile: main\\nmessages: [{role: user, content: x}]",
                 "profiles/main.yaml": "backend: b"}

        def test_options(promptkit_engine, scripted_client):
            mine = ScriptedClient(["mine"])
            engine = promptkit_engine(files=FILES, client=mine, backends=[Backend("b", endpoint="http://b.example/v1")])
            assert engine.run("p").text == "mine"
            assert mine.requests[0].endpoint == "http://b.example/v1"
            assert scripted_client.requests == ()
            engines.append(engine)

        def test_closed():
            with pytest.raises(EngineClosedError):
                engines[0].run("p")

        def test_a_path_may_not_leave_the_folder(promptkit_engine, tmp_path):
            with pytest.raises(ConfigError, match="below the test's folder"):
                promptkit_engine(files={"../x": ""})

        def test_a_missing_folder_is_told(promptkit_engine):
            with pytest.raises(ConfigError, match="is not a folder"):
                promptkit_engine(profiles="nowhere")
        """
    ).assert_outcomes(passed=4)


ASKING = """
import os
import pytest
from promptkit import Backend, Engine
from promptkit.errors import TransportError

def is_offline(tmp_path):
    for name in ("prompts", "profiles"):
        (tmp_path / name).mkdir()
    (tmp_path / "prompts/p.yaml").write_text("profile: main\\nmessages: [{role: user, content: x}]")
    (tmp_path / "profiles/main.yaml").write_text(
        "endpoint: http://127.0.0.1:9/v1\\nproxy: none\\nretry: {budget: 0}"
    )
    with Engine(prompts=tmp_path / "prompts", profiles=tmp_path / "profiles") as engine:
        with pytest.raises(TransportError) as caught:
            engine.run("p")
    return "offline: nothing was sent" in str(caught.value)
"""


def test_a_marked_test_sends_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says so; the test after it may send again; the marker may be on a class."""
    monkeypatch.delenv("PROMPTKIT_OFFLINE", raising=False)
    run(
        ASKING
        + """
@pytest.mark.promptkit_offline
def test_marked(tmp_path):
    assert is_offline(tmp_path)

def test_next(tmp_path):
    assert not is_offline(tmp_path)

@pytest.mark.promptkit_offline
class TestAll:
    def test_inherited(self, tmp_path):
        assert is_offline(tmp_path)

    @pytest.mark.promptkit_offline(False)
    def test_other(self, tmp_path):
        assert not is_offline(tmp_path)
"""
    ).assert_outcomes(passed=4)


def test_a_setting_keeps_all_tests_offline(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixtures of every scope too; a test may still ask to send."""
    monkeypatch.delenv("PROMPTKIT_OFFLINE", raising=False)
    code = """
@pytest.fixture(scope="session")
def in_a_fixture(tmp_path_factory):
    return is_offline(tmp_path_factory.mktemp("x"))

def test_unmarked(tmp_path, in_a_fixture):
    assert is_offline(tmp_path)
    assert in_a_fixture

@pytest.mark.promptkit_offline(is_offline=False)
def test_marked(tmp_path):
    assert not is_offline(tmp_path)
"""
    run(ASKING + code, "promptkit_offline = true").assert_outcomes(passed=2)


def test_the_environment_is_put_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the caller had set stays as it was, and False does not override it."""
    monkeypatch.setenv("PROMPTKIT_OFFLINE", "yes")
    run(
        ASKING
        + """
@pytest.mark.promptkit_offline
def test_marked():
    assert os.environ["PROMPTKIT_OFFLINE"] == "1"

@pytest.mark.promptkit_offline(False)
def test_next(tmp_path):
    assert os.environ["PROMPTKIT_OFFLINE"] == "yes"
    assert is_offline(tmp_path)
"""
    ).assert_outcomes(passed=2)


def code_of(name: str) -> str:
    """Return the block of the page on testing that begins with a file's name."""
    page = (Path(__file__).parents[2] / "docs/how-to/test-your-application.md").read_text("utf-8")
    (code,) = re.findall(rf"^```python\n# {re.escape(name)}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return str(code)


def test_the_tests_on_the_page_pass(run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Flask application and its tests, as documented, with no network and no sleep."""
    pytest.importorskip("flask")
    for folder in ("prompts/ticket", "profiles"):
        (pytester.path / folder).mkdir(parents=True)
    (pytester.path / "prompts/ticket/sort.yaml").write_text(
        "profile: main\ninputs: {text: {type: string}}\n"
        "messages: [{role: user, content: 'Sort this message: {{ text }}'}]\n"
        "output: {format: json_schema, schema: {type: object, required: [topic]}}\n"
    )
    (pytester.path / "profiles/main.yaml").write_text("backend: local")
    (pytester.path / "shop.py").write_text(code_of("shop.py"))
    monkeypatch.syspath_prepend(pytester.path)
    result = run(code_of("test_shop.py"), "promptkit_offline = true")
    result.assert_outcomes(passed=5)


def test_loading_the_plugin_imports_nothing_of_promptkit() -> None:
    """A project that does not use it pays nothing, and coverage is measured from the first import."""
    code = f"import sys, {PLUGIN}; print([name for name in sys.modules if name.partition('.')[0] == 'promptkit'])"
    root = Path(sys.modules[PLUGIN].__file__ or "").parent if PLUGIN in sys.modules else Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"


def test_the_plugin_is_announced() -> None:
    """An installed promptkit brings the plugin by its entry point."""
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    assert f'promptkit = "{PLUGIN}"' in pyproject.read_text("utf-8")
