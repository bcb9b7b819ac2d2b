from __future__ import annotations

import os
from pathlib import Path

import pytest

from promptkit._definitions import PromptDefinition
from promptkit._render import _renderer
from promptkit._types import Problem
from promptkit.errors import DocumentError, RenderError
from support.prompts import Prompts, fault, problems
from support.threads import Worker


@pytest.fixture
def prompts(tmp_path: Path) -> Prompts:
    """An empty prompts folder; a file named ``secret.txt`` stands beside it."""
    (tmp_path / "secret.txt").write_text("planted secret")
    (tmp_path / "prompts").mkdir()
    return Prompts(tmp_path / "prompts")


def rewrite(path: Path, text: str) -> None:
    """Replace a file as an editor does, in one step."""
    fresh = path.with_name(path.name + "~")
    fresh.write_text(text)
    fresh.replace(path)


# ------------------------------------------------------------------------------ what files give to a template


def test_an_included_file_sees_the_inputs_and_ends_like_its_line(prompts: Prompts) -> None:
    """Its last newline is dropped, as the line with the tag has one of its own."""
    prompts.write("1. {{ name }}\n2. b\n", "parts/rules.txt")
    text = prompts.text("Rules:\n{% include 'parts/rules.txt' %}\nend", name="Ada")
    assert text == "Rules:\n1. Ada\n2. b\nend"


@pytest.mark.parametrize(("content", "text"), [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("", "")])
def test_one_newline_at_the_end_of_a_file_is_dropped(prompts: Prompts, content: str, text: str) -> None:
    """Whether the editor writes one or not."""
    prompts.write(content, "part.txt")
    assert prompts.text("[{% include 'part.txt' %}]") == f"[{text}]"


def test_a_byte_order_mark_is_dropped(prompts: Prompts) -> None:
    """Files of any suffix are UTF-8."""
    prompts.write("\ufeffé", "part.any")
    assert prompts.text("{% include 'part.any' %}") == "é"


def test_macros_are_imported(prompts: Prompts) -> None:
    """By module and by name; an imported file does not see the inputs unless it is told to."""
    prompts.write("{% macro hi(n) %}Hi {{ n }}{% endmacro %}\n{% set v = 3 %}\n", "lib.j2")
    prompts.write("{% macro me() %}I am {{ name }}{% endmacro %}", "me.j2")
    assert prompts.text("{% import 'lib.j2' as m %}\n{{ m.hi(name) }} {{ m.v }}", name="Ada") == "Hi Ada 3"
    assert prompts.text("{% from 'lib.j2' import hi as h, v %}{{ h(name) }}{{ v }}", name="Ada") == "Hi Ada3"
    assert prompts.text("{% from 'me.j2' import me with context %}{{ me() }}", name="Ada") == "I am Ada"
    assert "name is undefined" in str(fault(prompts, "{{ name }}{% from 'me.j2' import me %}{{ me() }}", name="Ada"))


def test_what_an_imported_file_keeps_is_gone_after_the_rendering(prompts: Prompts) -> None:
    """A namespace in a module carries nothing from one run into the next."""
    prompts.write(
        "{% set ns = namespace(seen='') %}{% macro add(x) %}{% set ns.seen = ns.seen ~ x %}{{ ns.seen }}{% endmacro %}",
        "lib.j2",
    )
    template = "{% import 'lib.j2' as m %}{{ m.add(x) }}{{ m.add(x) }}"
    assert [prompts.text(template, x="a"), prompts.text(template, x="b")] == ["aaa", "bbb"]


def test_a_template_extends_another(prompts: Prompts) -> None:
    """Blocks are filled; ``super`` is the parent's."""
    prompts.write("[{% block body %}base{% endblock %}]\n", "base.j2")
    template = "{% extends 'base.j2' %}\n{% block body %}{{ super() }}+{{ x }}{% endblock %}"
    assert prompts.text(template, x="a") == "[base+a]"


def test_the_first_file_that_exists_is_taken(prompts: Prompts) -> None:
    """And none, where missing files are ignored."""
    prompts.write("b", "b.txt")
    assert prompts.text("{% include ['a.txt', 'b.txt'] %}") == "b"
    assert prompts.text("[{% include 'a.txt' ignore missing %}]") == "[]"


def test_include_may_compute_the_name(prompts: Prompts) -> None:
    """From an input, inside the folder; a list of names works as well."""
    prompts.write("Hallo", "hello/de.txt")
    assert prompts.text("{% include 'hello/' ~ lang ~ '.txt' %}", lang="de") == "Hallo"
    assert prompts.text("{% include ['hello/' ~ lang, 'hello/de.txt'] %}", lang="xx") == "Hallo"


# ------------------------------------------------------------------------------------------------- examining them


def test_problems_of_an_included_file_stand_in_that_file(prompts: Prompts) -> None:
    """Syntax, filters and names, with the file's own lines."""
    path = prompts.write("one\n{{ nmae }}\n{{ name|uper }}\n", "a.txt")
    broken = prompts.write("ok\n{{ x ", "b.txt")
    text = problems(prompts, "{{ name }}{% include 'a.txt' %}", name="string")
    assert text == f"{path}:3:1: there is no filter 'uper'; did you mean 'upper'?"
    rewrite(path, "one\n{{ nmae }}\n")
    text = problems(prompts, "{{ name }}{% include 'a.txt' %}{% include 'b.txt' %}", name="string")
    assert text.splitlines() == [
        f"{path}:2:1: 'nmae' is no input of this prompt; did you mean 'name'? (declared: name)",
        f"{broken}:2:1: template: unexpected end of template, expected 'end of print statement'",
    ]


def test_names_are_shared_along_includes(prompts: Prompts) -> None:
    """A file may use what the template sets before it, and an input that only a file uses is used."""
    prompts.write("{{ greeting }} {{ name }}{% include 'c.txt' %}", "b.txt")
    prompts.write("{{ mark }}", "c.txt")
    template = "{% set greeting = 'Hi' %}{% set mark = '!' %}{% include 'b.txt' %}"
    assert prompts.text(template, name="Ada") == "Hi Ada!"


def test_an_import_is_no_use_of_an_input(prompts: Prompts) -> None:
    """An imported file does not see it."""
    prompts.write("{% macro m() %}{{ name }}{% endmacro %}", "lib.j2")
    assert "input 'name' is declared and never used" in problems(
        prompts, "{% import 'lib.j2' as m %}{{ m.m() }}", name="string"
    )


def test_a_computed_name_may_use_any_input(prompts: Prompts) -> None:
    """So none is called unused."""
    prompts.write("{{ other }}", "b.txt")
    assert prompts.text("{% include which %}", which="b.txt", other="o") == "o"


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{% include 'nope.txt' %}", "include: the prompts folder '{root}' has no file 'nope.txt'"),
        ("{% include ['a', 'b'] %}", "include: the prompts folder '{root}' has no file 'a' or 'b'"),
        ("{% from 'lib.j2' import hi, nope %}", "'lib.j2' has no macro or variable 'nope'"),
        ("{% from 'lib.j2' import hii %}", "'lib.j2' has no macro or variable 'hii'; did you mean 'hi'?"),
        ("{% include 'latin.txt' %}", "latin.txt:2:3: not UTF-8"),
        ("{% include 'folder' %}", "include 'folder': it is a folder"),
        ("{% include 'link.txt' %}", "include 'link.txt': 'link.txt' goes through a symlink that leads outside"),
        ("{% include 'links/secret.txt' %}", "goes through a symlink that leads outside"),
        ("{% include 'pipe' %}", "include 'pipe': it is not a regular file"),
        ("{% include 'large.txt' %}", "include 'large.txt': the file is larger than the limit of 1000000 bytes"),
        ("{% include '../prompts/lib.j2' %}", "it contains .. and would lead outside"),
    ],
)
def test_files_that_cannot_be_included_are_found_by_check(prompts: Prompts, template: str, told: str) -> None:
    """At the line of the tag, or in the file itself."""
    root = prompts.root
    prompts.write("{% macro hi() %}{% endmacro %}", "lib.j2")
    (root / "latin.txt").write_bytes(b"one\nca\xe9")
    (root / "folder").mkdir()
    (root / "link.txt").symlink_to(root.parent / "secret.txt")
    (root / "links").symlink_to(root.parent)
    os.mkfifo(root / "pipe")
    (root / "large.txt").write_text("x" * 1_000_001)
    text = problems(prompts, template)
    assert told.replace("{root}", str(root)) in text
    assert "planted" not in text


def test_a_link_that_stays_inside_is_followed(prompts: Prompts) -> None:
    """As folders that are published by swapping a link need."""
    prompts.write("inside", "v1/a.txt")
    (prompts.root / "current").symlink_to("v1")
    assert prompts.text("{% include 'current/a.txt' %}") == "inside"


def test_the_number_of_files_is_bounded(prompts: Prompts) -> None:
    """A chain without an end is refused by check."""
    for number in range(202):
        prompts.write(f"{{% include '{number + 1}.txt' %}}", f"{number}.txt")
    assert "a prompt includes at most 200 files" in problems(prompts, "{% include '0.txt' %}")


# ---------------------------------------------------------------------------------------------- while rendering


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("planted.txt", "the prompts folder has no file of the name that is included"),
        ("../planted.txt", "the file that is included cannot be used"),
        ("/planted", "the file that is included cannot be used"),
        ("planted\\x", "the file that is included cannot be used"),
        ("link.txt", "the file that is included cannot be used"),
        ("planted-broken.txt", "the file that is included cannot be used"),
        ("planted-failing.txt", "the included file, line 2: d has no attribute nope"),
    ],
)
def test_a_computed_name_is_bounded_and_never_shown(prompts: Prompts, name: str, told: str) -> None:
    """It may hold an input's value."""
    (prompts.root / "link.txt").symlink_to(prompts.root.parent / "secret.txt")
    prompts.write("{{ x ", "planted-broken.txt")
    prompts.write("\n{{ d.nope }}", "planted-failing.txt")
    text = str(fault(prompts, "{% if d %}{% endif %}{% include name %}", name=name, d={"a": 1}))
    assert text.endswith(told)
    assert "planted" not in text


@pytest.mark.parametrize("name", [3, [1], []])
def test_a_computed_name_is_a_string(prompts: Prompts, name: object) -> None:
    """Or a list of strings."""
    assert "must be a string, or a list of strings" in str(fault(prompts, "{% include name %}", name=name))


def test_an_error_in_an_included_file_names_both_places(prompts: Prompts) -> None:
    """The line of the tag, and the file's own line."""
    prompts.write("\n\n{{ d.nope }}", "a.txt")
    error = fault(prompts, "\n{% include 'a.txt' %}", d={})
    assert str(error).endswith("p.yaml:101: 'a.txt', line 3: d has no attribute nope")


def test_a_file_that_includes_itself(prompts: Prompts) -> None:
    """Ends as an error, also when each level includes it twice."""
    prompts.write("{% include 'a.txt' %}", "a.txt")
    assert "endlessly" in str(fault(prompts, "{% include 'a.txt' %}"))
    prompts.write(
        "{% if n > 0 %}{% set n = n - 1 %}{% include 'b.txt' %}{% include 'b.txt' %}{% endif %}" + "y" * 5000, "b.txt"
    )
    assert "more than 10000000 characters" in str(fault(prompts, "{% set n = 60 %}{% include 'b.txt' %}"))


def test_a_file_that_vanishes_after_the_check(prompts: Prompts) -> None:
    """Is an error of the rendering that began before."""
    path = prompts.write("a", "a.txt")
    prompts.write_template("{% include 'a.txt' %}")
    compiled = prompts.compile()
    path.unlink()
    with pytest.raises(RenderError, match="has no file of the name"):
        prompts.renderer.render(compiled, prompts.inputs({}))
    path.write_text("{{ x ")
    with pytest.raises(RenderError, match=r"'a.txt': .*a.txt:1:1: template: unexpected end"):
        prompts.renderer.render(compiled, prompts.inputs({}))


# -------------------------------------------------------------------------------------------------- the cache


def test_a_prompt_is_compiled_once(prompts: Prompts) -> None:
    """The same object for as long as nothing changes; a change of the prompt gives a new one."""
    prompts.write_template("{{ 1 }}")
    compiled = prompts.compile()
    assert prompts.compile() is compiled
    prompts.write_template("{{ 2 }}")
    assert prompts.compile() is not compiled


def test_a_changed_file_is_noticed(prompts: Prompts) -> None:
    """At the next compile, with its problems; what has not changed is compiled no more."""
    path = prompts.write("one", "a.txt")
    prompts.write_template("{% include 'a.txt' %}")
    compiled = prompts.compile()
    assert prompts.compile() is compiled
    rewrite(path, "two")
    assert prompts.render()[0].content == "two"
    rewrite(path, "{{ nope }}")
    with pytest.raises(DocumentError, match=r"a.txt:1:1: 'nope' is no input"):
        prompts.render()
    path.unlink()
    with pytest.raises(DocumentError, match=r"has no file 'a.txt'"):
        prompts.render()
    path.write_text("three")
    assert prompts.render()[0].content == "three"


def test_a_file_that_appears_is_noticed(prompts: Prompts) -> None:
    """Where it was allowed to be missing."""
    prompts.write_template("[{% include 'a.txt' ignore missing %}]")
    assert prompts.render()[0].content == "[]"
    prompts.write("now", "a.txt")
    assert prompts.render()[0].content == "[now]"


def test_the_cache_is_bounded(prompts: Prompts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt that is unused for longest is forgotten."""
    monkeypatch.setattr(_renderer, "_MAX_PROMPTS", 2)
    compiled = {}
    for name in ("a", "b"):
        prompts.write("messages: [{role: user, content: '{{ 1 }}'}]\n", f"{name}.yaml")
        compiled[name] = prompts.compile(name)
    assert prompts.compile("a") is compiled["a"]
    prompts.write("messages: [{role: user, content: '{{ 1 }}'}]\n", "c.yaml")
    prompts.compile("c")
    assert prompts.compile("a") is compiled["a"]
    assert prompts.compile("b") is not compiled["b"]


def test_many_threads_compile_a_prompt_once(prompts: Prompts, monkeypatch: pytest.MonkeyPatch) -> None:
    """One compiles, the others wait for it and get the same."""
    calls = []
    original = _renderer.examine

    def counted(definition: PromptDefinition, *rest: object) -> object:
        calls.append(definition.id)
        return original(definition, *rest)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(_renderer, "examine", counted)
    prompts.write_template("{{ x }}" + "{% if true %}{% endif %}" * 50, {"x": "string"})
    definition = prompts.store.load("p")
    workers = [Worker(prompts.renderer.compile, definition) for _ in range(8)]
    compiled = {id(worker.result()) for worker in workers}
    assert len(compiled) == 1
    assert calls == ["p"]


def test_threads_do_not_share_what_they_render(prompts: Prompts) -> None:
    """Each rendering has its own names and its own budget."""
    prompts.write("{% for i in xs %}{{ tag }}{{ i }}{% endfor %}", "a.txt")
    prompts.write_template(
        "{% set tag = name %}{% include 'a.txt' %}{{ 'x' * 900000 }}", {"name": "string", "xs": "array"}
    )
    compiled = prompts.compile()

    def work(name: str) -> set[str]:
        inputs = prompts.inputs({"name": name, "xs": list(range(20))})
        return {prompts.renderer.render(compiled, inputs)[0].content for _ in range(20)}

    workers = {name: Worker(work, name) for name in "abcd"}
    for name, worker in workers.items():
        (text,) = worker.result()
        assert text == "".join(f"{name}{i}" for i in range(20)) + "x" * 900_000


def test_a_failed_compile_is_tried_again(prompts: Prompts) -> None:
    """Nothing of it stays."""
    prompts.write_template("{{ x ")
    for _ in range(2):
        with pytest.raises(DocumentError) as caught:
            prompts.compile()
        assert isinstance(caught.value.problems[0], Problem)
