"""Failures that people have reported of YAML files, each by its id, in the syntax of prompt and profile files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from promptkit._definitions import MessageSpec, TemplateText
from promptkit._loading import _yaml
from promptkit._loading._profiles import ProfileStore
from promptkit._loading._prompts import PromptStore
from promptkit.errors import DocumentError, UnknownNameError
from support.threads import Worker

MESSAGES = "messages: [{role: user, content: hello}]\n"


def load_prompt(folder: Path, text: str | bytes) -> object:
    """Write a prompt file and load it."""
    (folder / "prompt.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return PromptStore(folder).load("prompt")


def told_of_prompt(folder: Path, text: str | bytes) -> str:
    """Return what is said of a prompt file, without the folder it is in."""
    with pytest.raises(DocumentError) as caught:
        load_prompt(folder, text)
    return str(caught.value).replace(f"{folder}/", "")


def told_of_profile(folder: Path, text: str) -> str:
    """Return what is said of a profile file, without the folder it is in."""
    (folder / "profile.yaml").write_text(text)
    with pytest.raises(DocumentError) as caught:
        ProfileStore(folder).load("profile")
    return str(caught.value).replace(f"{folder}/", "")


def content(folder: Path, block: str) -> TemplateText:
    """Return the template of a prompt whose content is written as ``block``."""
    load_prompt(folder, f"messages:\n- role: system\n  content: {block}")
    (message,) = PromptStore(folder).load("prompt").messages
    assert isinstance(message, MessageSpec)
    return message.content


@pytest.mark.parametrize("word", ["no", "yes", "on", "off", "No", "'true'", "1", "0"])
def test_y02_a_boolean_given_as_a_word(tmp_path: Path, word: str) -> None:
    """Only true and false are booleans; what was given is shown."""
    shown = word.replace("'", '"') if word[0] in "'10" else f'"{word}"'
    text = MESSAGES + f"output:\n  format: json\n  strict: {word}\n"
    assert told_of_prompt(tmp_path, text) == f"prompt.yaml:4:11: output.strict: expected true or false, got {shown}"


def test_y04_the_header_of_one_file_does_not_leak_into_the_next(tmp_path: Path) -> None:
    """A file that asks for YAML 1.1 is refused, and the next one is read by 1.2."""
    assert "files are read as YAML 1.2, not 1.1" in told_of_prompt(tmp_path, "%YAML 1.1\n---\na: yes\n")
    assert _yaml.load(b"a: yes\n", "f").value == {"a": "yes"}


def test_y05_threads_load_the_same_file(tmp_path: Path) -> None:
    """Six threads and ten loads each of a file of 200 lines: sixty right definitions."""
    lines = "".join(f"- {{role: user, content: 'line {number}: {{{{ x }}}}'}}\n" for number in range(200))
    (tmp_path / "prompt.yaml").write_text(f"messages:\n{lines}")

    def load_anew() -> list[int]:
        return [len(PromptStore(tmp_path).load("prompt").messages) for _ in range(10)]

    workers = [Worker(load_anew) for _ in range(6)]
    assert [worker.result(timeout=90) for worker in workers] == [[200] * 10] * 6  # a second's work, traced many more


@pytest.mark.parametrize("second", ["temperature: 1", '"temperature": 1', "'temperature': 0"])
def test_y06_duplicate_keys(tmp_path: Path, second: str) -> None:
    """Both lines are named, however the key is quoted and whatever its value."""
    assert told_of_profile(tmp_path, f"temperature: 0\nbackend: local\n{second}\n") == (
        "profile.yaml:3:1: duplicate key temperature: first on line 1, again on line 3"
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("messages:\n\t- role: user\n", "2:1"),
        ("messages:\n  - role: user\n\tcontent: x\n", "3:1"),
        ("messages:\n  - role: user\n  \tcontent: x\n", "3:3"),
        ("messages:\n  - role: user\n    content: |\n\t\ttext\n", "4:1"),
    ],
)
def test_y07_tabs_in_indentation(tmp_path: Path, text: str, place: str) -> None:
    """The word tab and the line are in the message."""
    assert told_of_prompt(tmp_path, text) == f"prompt.yaml:{place}: a tab is used for indentation; use spaces"


def test_y08_a_misspelt_field(tmp_path: Path) -> None:
    """The nearest known key is offered, with file and line."""
    told = told_of_profile(tmp_path, "backend: local\nmodel: m\ntemprature: 0.2\n")
    assert told == "profile.yaml:3:1: unknown key temprature; did you mean 'temperature'?"


def test_y08_a_known_field_at_the_wrong_level(tmp_path: Path) -> None:
    """It is told where it belongs."""
    told = told_of_prompt(tmp_path, MESSAGES + "repair: {max_attempts: 1}\noutput: {max_tokens: 3}\n")
    assert told == (
        "prompt.yaml:2:1: unknown key repair: repair belongs in output\n"
        "prompt.yaml:3:10: unknown key max_tokens in output: max_tokens belongs in execution"
    )


def test_y08_room_for_notes(tmp_path: Path) -> None:
    """Keys that begin with x- are nobody's business."""
    load_prompt(tmp_path, MESSAGES + "x-owner: billing\nx-todo: [a, {b: ~}]\n")


@pytest.mark.parametrize(
    "text", ["x-a: &a [*a]\n", "x-a: &a {b: *a}\n", "x-a: &a\n  - b: [*a]\n", "x-a: &a {<<: *a}\n"]
)
def test_y10_a_self_referencing_alias(tmp_path: Path, text: str) -> None:
    """It is refused where it stands, and nothing runs in circles."""
    told = told_of_prompt(tmp_path, text + MESSAGES)
    assert "recursive alias *a" in told
    assert told.startswith(f"prompt.yaml:{text[: text.index('*')].count(chr(10)) + 1}:")


def test_y11_anchors_and_merge_keys(tmp_path: Path) -> None:
    """Own keys win over merged ones, scratch values live under x-, and nothing shared can be changed."""
    for name, override in (("p1", "{<<: *b, model: m1}"), ("p2", "{<<: *b, temperature: 0.9}")):
        text = f"x-base: &b {{temperature: 0.2, stop: [X]}}\n{MESSAGES}execution: {override}\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    store = PromptStore(tmp_path)
    one, two = store.load("p1").execution, store.load("p2").execution
    assert (one.temperature, one.model, one.stop) == (0.2, "m1", ("X",))
    assert (two.temperature, two.model, two.stop) == (0.9, None, ("X",))


def test_y11_a_scratch_key_without_x_is_unknown(tmp_path: Path) -> None:
    """Without a rule a misspelt key could pass for one."""
    assert "unknown key base" in told_of_prompt(tmp_path, "base: &b {temperature: 0.2}\n" + MESSAGES)


def test_y12_numbers_that_look_like_something_else(tmp_path: Path) -> None:
    """An octal look, underscores and a version: three problems, each with what to write."""
    told = told_of_profile(tmp_path, "backend: local\nmax_tokens: 0100\nseed: 1_000\nmodel: 1.10\n")
    assert told.splitlines() == [
        (
            "profile.yaml:2:13: 0100 has a leading zero, which is read in different ways: write the number without "
            "it, or quote it if it is a string"
        ),
        'profile.yaml:3:7: seed: expected an integer, got "1_000"; write 1000 without quotes, underscores or commas',
        'profile.yaml:4:8: model must be a string, not a number: quote 1.10 as "1.10"',
    ]


@pytest.mark.parametrize("number", ["1.10", "3", "1e3", "0x10", "-1", ".5"])
def test_y12_a_number_where_a_string_is_wanted_is_shown_as_written(tmp_path: Path, number: str) -> None:
    """1.10 would become 1.1: the message shows the text, not the number."""
    told = told_of_profile(tmp_path, f"backend: local\nmodel: {number}\n")
    assert told.endswith(f'quote {number} as "{number}"')


@pytest.mark.parametrize("word", ["2024-01-02", "2024-01-02T03:04:05Z", "1:30", "v1.10", "no", "null-1"])
def test_y13_ids_that_look_like_dates_stay_as_written(tmp_path: Path, word: str) -> None:
    """A string field keeps the text; there are no dates in YAML 1.2's core."""
    (tmp_path / "profile.yaml").write_text(f"backend: local\nmodel: {word}\n")
    assert ProfileStore(tmp_path).load("profile").execution.model == word


def test_y13_nan_is_no_value(tmp_path: Path) -> None:
    """Not a number and the infinities are told where they stand."""
    told = told_of_profile(tmp_path, "backend: local\ntemperature: .nan\n")
    assert told.startswith("profile.yaml:2:14: .nan is not a number that JSON has")


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("", "an empty file"),
        ("# todo", "an empty file"),
        ("\n\n  \n", "an empty file"),
        ("---\n", "null"),
        ("hello", "a string"),
        ("- a", "a list"),
        ("42", "an integer"),
        ("true", "a boolean"),
    ],
)
def test_y16_a_file_without_a_mapping(tmp_path: Path, text: str, got: str) -> None:
    """Empty, comments alone, a word, a list."""
    expected = f":1:1: expected a mapping of keys to values, got {got}"
    assert told_of_prompt(tmp_path, text).removeprefix("prompt.yaml").replace(":2:1:", ":1:1:") == expected
    assert told_of_profile(tmp_path, text).removeprefix("profile.yaml").replace(":2:1:", ":1:1:") == expected


def test_y17_a_byte_order_mark_is_fine(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    load_prompt(tmp_path, b"\xef\xbb\xbf" + MESSAGES.replace("\n", "\r\n").encode())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_y17_utf_16_is_refused_by_name(tmp_path: Path, encoding: str) -> None:
    """With a mark or without."""
    told = told_of_prompt(tmp_path, MESSAGES.encode(encoding))
    assert "not UTF-8: the file " in told
    assert f"UTF-{encoding[4:6]}" in told


def test_y17_latin_1_is_refused_with_the_byte(tmp_path: Path) -> None:
    """The offset counts bytes, the line and column are those of the character."""
    told = told_of_prompt(tmp_path, "description: ä\nprofile: caf".encode() + b"\xe9\n")
    assert told == "prompt.yaml:2:13: not UTF-8: byte 0xE9 at offset 28; save the file as UTF-8"


def test_y19_folded_text_is_marked(tmp_path: Path) -> None:
    """YAML joins its lines; the template says so, for the lint that warns of it."""
    found = content(tmp_path, ">\n    Rules:\n    1. a\n    2. b\n\n    Answer\n")
    assert found.source == "Rules: 1. a 2. b\nAnswer\n"
    assert (found.is_folded, found.is_block) == (True, False)


@pytest.mark.parametrize(
    ("block", "text"), [("|\n    hi\n", "hi\n"), ("|-\n    hi\n", "hi"), ("|+\n    hi\n\n\n", "hi\n\n\n")]
)
def test_y20_line_ends_of_a_block(tmp_path: Path, block: str, text: str) -> None:
    """The template's source is what YAML says, to the last newline."""
    assert content(tmp_path, block).source == text


def test_y21_block_text_whose_first_line_is_indented_more(tmp_path: Path) -> None:
    """The line, the reason and the indicator that helps."""
    told = told_of_prompt(tmp_path, "messages:\n- role: user\n  content: |\n      code\n    rest\n")
    assert told == (
        "prompt.yaml:5:5: indentation of block text: this line is indented less than the text's first line (line 4); "
        "indent it as far, or use |2 instead of | on line 3"
    )


def test_y23_text_cut_by_a_comment_is_marked(tmp_path: Path) -> None:
    """YAML drops what follows a blank and #; the template says so, for the lint that warns of it."""
    found = content(tmp_path, "Write C# code and use issue #12\n")
    assert (found.source, found.has_comment) == ("Write C# code and use issue", True)
    assert not content(tmp_path, "Write C# code\n").has_comment


@pytest.mark.parametrize("empty", ["", "~", "null", "# nothing"])
def test_y24_an_empty_value(tmp_path: Path, empty: str) -> None:
    """Null is told, at its key or where it is written, and never becomes the word None."""
    told = told_of_profile(tmp_path, f"backend: local\nmodel: {empty}\n")
    assert "model is empty: give it a value or leave the key out" in told
    assert told.startswith("profile.yaml:2:")
    told = told_of_prompt(tmp_path, f"messages:\n- role: system\n  content: {empty}\n")
    assert "messages[0].content is empty" in told
    assert told.startswith("prompt.yaml:3:")


@pytest.mark.parametrize(
    "tagged",
    ['!!python/object/apply:os.system ["true"]', "!secret k", "!!binary aGk=", "!!set {x, y}", "!!str 1", "!include x"],
)
def test_y26_tags(tmp_path: Path, tagged: str) -> None:
    """Nothing is constructed, whatever the tag."""
    told = told_of_prompt(tmp_path, MESSAGES + f"x-a: {tagged}\n")
    assert told.startswith("prompt.yaml:2:6: tag ")
    assert "is not allowed" in told


def test_y29_a_huge_file(tmp_path: Path) -> None:
    """200 MB are refused without being read."""
    with (tmp_path / "prompt.yaml").open("wb") as stream:
        stream.truncate(200_000_000)
    with pytest.raises(DocumentError, match="the file is larger than the limit of 1048576 bytes"):
        PromptStore(tmp_path).load("prompt")


@pytest.mark.parametrize(
    "name",
    ["../../../../etc/passwd", "/etc/passwd", "a/../../b", "~/x", "C:\\x", "\\\\host\\share", "C:/x", "a\\..\\b"],
)
def test_y30_a_path_that_climbs_out(tmp_path: Path, name: str) -> None:
    """As a schema, as a prompt's id and as a profile's name."""
    told = told_of_prompt(tmp_path, MESSAGES + f"output:\n  format: json_schema\n  schema: '{name}'\n")
    assert told.startswith("prompt.yaml:4:11: output.schema: ")
    assert "cannot be a file under the schema root" in told
    for load in (PromptStore(tmp_path).load, ProfileStore(tmp_path).load):
        with pytest.raises(UnknownNameError, match="cannot name a p"):
            load(name)


def test_y30_a_nul_in_a_path(tmp_path: Path) -> None:
    """It is refused before the system sees it."""
    told = told_of_prompt(tmp_path, MESSAGES + 'output:\n  format: json_schema\n  schema: "a\\0b"\n')
    assert "it contains a NUL or another control character" in told


def test_y31_a_symlink_that_leads_out(tmp_path: Path) -> None:
    """The word symlink and the root are in the message; nothing of the file is."""
    root = tmp_path / "prompts"
    root.mkdir()
    (tmp_path / "secret.yaml").write_text("secret: words")
    (root / "out.yaml").symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(DocumentError) as caught:
        PromptStore(root).load("out")
    told = f"{root}/out.yaml: 'out.yaml' goes through a symlink that leads outside the prompt root '{root}'"
    assert str(caught.value) == told


def test_y31_a_mounted_config_map_loads(tmp_path: Path) -> None:
    """The layout of Kubernetes: every file is a link through ..data into a dated folder."""
    (tmp_path / "..2024_01_02").mkdir()
    (tmp_path / "..2024_01_02" / "greet.yaml").write_text(MESSAGES)
    (tmp_path / "..data").symlink_to("..2024_01_02")
    (tmp_path / "greet.yaml").symlink_to("..data/greet.yaml")
    store = PromptStore(tmp_path)
    assert store.ids() == ["greet"]
    assert store.load("greet").id == "greet"


def test_y32_a_definition_stays_what_it_was(tmp_path: Path) -> None:
    """What a run has loaded does not change with the file; the next load sees the new one."""
    store = PromptStore(tmp_path)
    path = tmp_path / "p.yaml"
    path.write_text(MESSAGES)
    before = store.load("p")
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
    assert store.load("p") == before  # emptied for rewriting
    os.write(descriptor, MESSAGES.replace("hello", "good-bye").encode())
    os.close(descriptor)
    after = store.load("p")
    assert [message.content.source for message in before.messages if isinstance(message, MessageSpec)] == ["hello"]
    assert [message.content.source for message in after.messages if isinstance(message, MessageSpec)] == ["good-bye"]


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("0,2", "; write 0.2 without quotes, with a point"),
        ("'0.2'", "; write 0.2 without quotes, with a point"),
        ("'1'", "; write 1 without quotes, underscores or commas"),
        ("1,000", "; write 1000 without quotes, underscores or commas"),
        ("1_0", "; write 10 without quotes, underscores or commas"),
        ("-0,5", "; write -0.5 without quotes, with a point"),
        ("0,2,3", ""),
        ("30s", ""),
    ],
)
def test_y12_a_number_written_as_text_is_told_how_to_write_it(tmp_path: Path, written: str, hint: str) -> None:
    """A comma for a point, quotes and separators each get the number that was most likely meant."""
    shown = written.strip("'")
    assert told_of_profile(tmp_path, f"backend: local\ntemperature: {written}\n") == (
        f'profile.yaml:2:14: temperature: expected a number of at least 0, got "{shown}"{hint}'
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("| text\n    more\n", "3:14: a text after | or > begins on the next line, indented; or leave the | out"),
        ("|\n  text\n", "4:3: the text after | must be indented further than its key on the line above"),
        (">-\n\n  text\n", "5:3: the text after > must be indented further than its key on the line above"),
    ],
)
def test_y21_a_block_whose_text_is_elsewhere(tmp_path: Path, content: str, told: str) -> None:
    """The text stands beside the mark, or no further in than its key."""
    assert told_of_prompt(tmp_path, f"messages:\n- role: user\n  content: {content}") == f"prompt.yaml:{told}"


def test_y21_a_colon_without_a_blank(tmp_path: Path) -> None:
    """The line that the parser stops at is right; the one above it is not."""
    assert told_of_prompt(tmp_path, "messages:\n- role:user\n  content: a\n") == (
        "prompt.yaml:3:10: the line above has no blank after its colon, so it is no key; write key: value"
    )


@pytest.mark.parametrize("tag", ["!!binary", "!!python/name:os.system", "!secret"])
def test_y26_a_tag_is_shown_as_it_was_written(tmp_path: Path, tag: str) -> None:
    """An author looks for what stands in the file, not for its long form."""
    assert f'1:14: tag "{tag}" is not allowed' in told_of_prompt(tmp_path, f"description: {tag} x\n{MESSAGES}")


@pytest.mark.parametrize(
    ("word", "meant"),
    [("float", "number"), ("list", "array"), ("Dict", "object"), ("text", "string"), ("path", "file")],
)
def test_y08_a_type_that_other_tools_call_otherwise(tmp_path: Path, word: str, meant: str) -> None:
    """Near in meaning counts as near."""
    told = told_of_prompt(tmp_path, f"{MESSAGES}inputs:\n  a: {{type: {word}}}\n")
    assert told.endswith(f'got "{word}"; write {meant}')


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("role: human, content: x", 'expected system or user or assistant, got "human"; write user'),
        ("role: developer, content: x", "; write system"),
        ("user: x", "unknown key user in messages[0]: write role: user, content: …"),
    ],
)
def test_y08_a_message_as_other_tools_write_it(tmp_path: Path, message: str, told: str) -> None:
    """The role's name here, and where the text goes."""
    assert told in told_of_prompt(tmp_path, f"messages: [{{{message}}}]\n")


def test_y08_a_number_as_other_tools_call_it(tmp_path: Path) -> None:
    """A short form that is no near name."""
    assert told_of_profile(tmp_path, "backend: local\ntemp: 1\n").endswith("unknown key temp: write temperature")
