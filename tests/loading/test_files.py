"""Files below a root: names, containment, what kind of file may be read, and how much of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._loading import _files
from promptkit._loading._files import FileMissingError, FileRefusedError, Root, name_fault
from promptkit.errors import ConfigError

LIMIT = 1000


def read(root: Path | str, name: str, *, max_bytes: int = LIMIT) -> bytes:
    """Return the bytes of a file under a root."""
    return Root(root, kind="prompt").read(name, max_bytes=max_bytes).data


def refusal(root: Path | str, name: str) -> str:
    """Return why a file cannot be used."""
    with pytest.raises(FileRefusedError) as caught:
        read(root, name)
    return str(caught.value)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a file in it, beside a folder that has a secret."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.yaml").write_text("secret")
    inside = tmp_path / "prompts"
    inside.mkdir()
    (inside / "a.yaml").write_text("a")
    return inside


# ------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "empty"),
        ("../secret", ".."),
        ("a/../../secret", ".."),
        ("..", ".."),
        ("a/..", ".."),
        ("/etc/passwd", "absolute"),
        ("//server/share", "absolute"),
        ("\\\\server\\share", "backslash"),
        ("a\\b", "backslash"),
        ("C:/x", "drive"),
        ("c:x", "drive"),
        ("~/x", "~"),
        ("~root", "~"),
        ("a\0b", "NUL"),
        ("a\nb", "control character"),
        ("a//b", "empty part"),
        ("a/", "empty part"),
        (".", "is . alone"),
        ("a.", "ends in a dot"),
        ("a /b", "ends in a dot or a space"),
        ("./a", "is . alone; leave that out"),
        ("a/./b", "is . alone"),
        ("https://h/a", "an address, and nothing is fetched"),
        ("file:///a", "an address"),
        ("...", "ends in a dot"),
        ("\ud800", "surrogate"),
        ("a" * 1025, "longer than 1024"),
    ],
)
def test_a_name_that_could_leave_the_root_is_refused(root: Path, name: str, fault: str) -> None:
    """The forms of every system are refused on every system, before the disk is asked."""
    assert fault in (name_fault(name) or "")
    assert fault in refusal(root, name)


@pytest.mark.parametrize("name", ["a", "a/b-c_d.e", "größe", "v1.2/x", ".hidden", "a b", "-x", "a'b", "ab:c", "{x}"])
def test_an_ordinary_name_is_fine(name: str) -> None:
    """Unicode, blanks inside and punctuation are part of file names."""
    assert name_fault(name) is None


@given(st.text(max_size=30))
def test_no_name_that_passes_leads_outside(name: str) -> None:
    """Whatever passes is a relative path without a step up, by the rules of POSIX and Windows."""
    if name_fault(name) is not None:
        return
    parts = name.split("/")
    assert all(parts)
    assert not {".", ".."} & set(parts)
    assert not name.startswith(("/", "~"))
    assert "\\" not in name
    assert "\0" not in name


@given(st.from_regex(_files._PLAIN_NAME, fullmatch=True))
def test_the_short_cut_for_plain_names_agrees_with_the_rules(name: str) -> None:
    """No name that needs no closer look would fail it."""
    assert not any(pattern.search(name) for pattern, _ in _files._NAME_FAULTS)


# ------------------------------------------------------------------------------------------- containment


def test_a_file_inside_is_read(root: Path) -> None:
    """The plain case."""
    assert read(root, "a.yaml") == b"a"


def test_a_missing_file_is_missing(root: Path) -> None:
    """Nothing under that name, a part that is a file, and a name too long for the disk are all the same."""
    for name in ("b.yaml", "x/b.yaml", "a.yaml/b", "n" * 300):
        with pytest.raises(FileMissingError, match="there is no file"):
            read(root, name)


def test_a_symlink_out_is_refused_by_name(root: Path) -> None:
    """Whether the file or a folder on the way is the link."""
    (root / "link.yaml").symlink_to(root.parent / "outside" / "secret.yaml")
    (root / "folder").symlink_to(root.parent / "outside")
    for name in ("link.yaml", "folder/secret.yaml"):
        told = refusal(root, name)
        assert "symlink that leads outside the prompt root" in told
        assert str(root) in told
        assert name in told


def test_a_sibling_with_a_longer_name_is_outside(root: Path) -> None:
    """Containment is by whole parts of the path."""
    sibling = root.parent / "prompts-old"
    sibling.mkdir()
    (sibling / "x.yaml").write_text("old")
    (root / "x.yaml").symlink_to(sibling / "x.yaml")
    assert "leads outside" in refusal(root, "x.yaml")


def test_a_symlink_inside_is_followed(root: Path) -> None:
    """Links that stay under the root are a way to share a file."""
    (root / "same.yaml").symlink_to("a.yaml")
    assert read(root, "same.yaml") == b"a"


def test_a_root_that_is_a_symlink_works(root: Path) -> None:
    """The root's real place is what counts."""
    link = root.parent / "current"
    link.symlink_to(root)
    assert read(link, "a.yaml") == b"a"


def test_a_mounted_config_map_works_and_follows_its_swap(tmp_path: Path) -> None:
    """Files link to ..data, which links to a dated folder that is replaced in one step."""
    for version in ("one", "two"):
        (tmp_path / f"..{version}").mkdir()
        (tmp_path / f"..{version}" / "p.yaml").write_text(version)
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "p.yaml").symlink_to("..data/p.yaml")
    assert read(tmp_path, "p.yaml") == b"one"
    assert list(Root(tmp_path, kind="prompt").walk((".yaml",))) == ["p.yaml"]
    (tmp_path / "..new").symlink_to("..two")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert read(tmp_path, "p.yaml") == b"two"


def test_a_link_to_nothing_and_a_loop_are_told(root: Path) -> None:
    """Neither is a missing file: something is there, and broken."""
    (root / "dangling.yaml").symlink_to("nothing.yaml")
    (root / "loop.yaml").symlink_to("loop.yaml")
    assert refusal(root, "dangling.yaml") == "it is a symlink that leads nowhere"
    assert "cannot be read" in refusal(root, "loop.yaml")


def test_a_file_that_is_swapped_for_a_link_while_it_is_opened_is_not_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that was opened is compared with what the name means afterwards."""
    real_open = os.open

    def swap_then_open(path: str, flags: int) -> int:
        (root / "a.yaml").unlink()
        (root / "a.yaml").symlink_to(root.parent / "outside" / "secret.yaml")
        return real_open(root.parent / "outside" / "secret.yaml", flags)

    monkeypatch.setattr(os, "open", swap_then_open)
    assert "leads outside" in refusal(root, "a.yaml")


def test_a_file_replaced_while_it_is_opened_is_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is returned is one file's content: the new one's."""
    real_open = os.open
    left = [b"b", b"c"]

    def open_then_replace(path: str, flags: int) -> int:
        descriptor = real_open(path, flags)
        if left:
            (root / "new").write_bytes(left.pop(0))
            (root / "new").rename(root / "a.yaml")
        return descriptor

    monkeypatch.setattr(os, "open", open_then_replace)
    assert read(root, "a.yaml") == b"c"


def test_a_file_that_never_stays_is_given_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that never stops does not hold the reader for ever."""
    real_open = os.open

    def open_then_append(path: str, flags: int) -> int:
        descriptor = real_open(path, flags)
        (root / "new").write_bytes(b"x")
        (root / "new").rename(root / "a.yaml")
        return descriptor

    monkeypatch.setattr(os, "open", open_then_append)
    assert "being rewritten all the time" in refusal(root, "a.yaml")


def test_a_file_written_to_while_it_is_read_is_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the old and half of the new content never come out together."""
    real_fstat = os.fstat
    calls: list[int] = []

    def append_after_first(descriptor: int) -> os.stat_result:
        found = real_fstat(descriptor)
        calls.append(descriptor)
        if len(calls) == 1:
            (root / "a.yaml").write_text("longer")
        return found

    monkeypatch.setattr(os, "fstat", append_after_first)
    assert read(root, "a.yaml") == b"longer"
    assert len(calls) > 2


def test_a_file_that_goes_while_it_is_opened_is_missing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleting is not an error of the reader."""
    real_open = os.open

    def unlink_then_open(path: str, flags: int) -> int:
        Path(path).unlink()
        return real_open(path, flags)

    monkeypatch.setattr(os, "open", unlink_then_open)
    with pytest.raises(FileMissingError):
        read(root, "a.yaml")


def test_a_folder_swapped_while_it_is_resolved_is_looked_at_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step finds the old folder gone; the next one finds the new."""
    real_open = os.open
    calls: list[str] = []

    def fail_once(path: str, flags: int) -> int:
        calls.append(path)
        if len(calls) == 1:
            raise FileNotFoundError(2, "gone", path)
        return real_open(path, flags)

    monkeypatch.setattr(os, "open", fail_once)
    assert read(root, "a.yaml") == b"a"


# ----------------------------------------------------------------------------- what kind, and how much


def test_a_folder_is_no_file(root: Path) -> None:
    """A folder with a file's name is told as such."""
    (root / "x.yaml").mkdir()
    assert refusal(root, "x.yaml") == "it is a folder"


def test_a_pipe_is_refused_at_once(root: Path) -> None:
    """Opening a FIFO without a writer would block for ever."""
    os.mkfifo(root / "pipe.yaml")
    assert refusal(root, "pipe.yaml") == "it is not a regular file"


def test_a_file_that_becomes_a_pipe_is_refused_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor is looked at, not only the name; opening does not wait for a writer."""
    os.mkfifo(root / "pipe")
    real_open = os.open
    monkeypatch.setattr(os, "open", lambda _, flags: real_open(root / "pipe", flags))
    assert refusal(root, "a.yaml") == "it is not a regular file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_told(root: Path) -> None:
    """The system's reason is passed on."""
    (root / "a.yaml").chmod(0)
    assert "cannot be read: Permission denied" in refusal(root, "a.yaml")


def test_what_the_system_refuses_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any error of the system becomes a refusal with its reason."""

    def refuse(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "open", refuse)
    assert refusal(root, "a.yaml") == "it cannot be read: Permission denied"


def test_size_is_checked_before_reading(root: Path) -> None:
    """A sparse file of a terabyte is refused in no time; one byte over the limit as well."""
    with (root / "huge.yaml").open("wb") as stream:
        stream.truncate(10**12)
    assert refusal(root, "huge.yaml") == "the file is larger than the limit of 1000 bytes"
    (root / "a.yaml").write_bytes(b"x" * LIMIT)
    assert len(read(root, "a.yaml")) == LIMIT
    (root / "a.yaml").write_bytes(b"x" * (LIMIT + 1))
    assert "larger than the limit" in refusal(root, "a.yaml")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs a /proc")
def test_a_file_whose_size_is_not_told_is_bounded_too() -> None:
    """Files of /proc say that they are empty and are not."""
    assert refusal_of_proc("status", 10) == "the file is larger than the limit of 10 bytes"


def refusal_of_proc(name: str, limit: int) -> str:
    """Return why a file of /proc/self cannot be used."""
    with pytest.raises(FileRefusedError) as caught:
        Root("/proc/self", kind="prompt").read(name, max_bytes=limit)
    return str(caught.value)


def test_no_descriptor_is_left_open(root: Path) -> None:
    """Neither after reading nor after refusing."""
    os.mkfifo(root / "pipe.yaml")
    before = os.open(root / "a.yaml", os.O_RDONLY)
    os.close(before)
    for _ in range(20):
        read(root, "a.yaml")
        refusal(root, "pipe.yaml")
    after = os.open(root / "a.yaml", os.O_RDONLY)
    os.close(after)
    assert after == before


# ------------------------------------------------------------------------------------------------ roots


@pytest.mark.parametrize("path", ["", "  ", "a\0b", "\ud800", 3, None, b"x", object()])
def test_a_root_that_is_no_path_is_refused(path: object) -> None:
    """What cannot be a folder's path is a mistake in the configuration."""
    with pytest.raises(ConfigError, match="the schema root must be the path of a folder"):
        Root(path, kind="schema")  # type: ignore[arg-type]  # the mistake under test


def test_a_relative_root_stays_where_it_was(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changing the working directory later changes nothing."""
    monkeypatch.chdir(root.parent)
    relative = Root("prompts", kind="prompt")
    monkeypatch.chdir("/")
    assert relative.read("a.yaml", max_bytes=LIMIT).data == b"a"
    assert relative.shown("a.yaml") == "prompts/a.yaml"
    assert relative.exists()


def test_a_working_directory_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative root has nothing to be relative to."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="working directory that is gone"):
        Root("prompts", kind="prompt")


def test_the_current_folder_is_not_shown() -> None:
    """A name under ``.`` is shown as it is, one under another root joined to it."""
    assert Root(".", kind="prompt").shown("a.yaml") == "a.yaml"
    assert Root("x/", kind="prompt").shown("a.yaml") == "x/a.yaml"


# ------------------------------------------------------------------------------------------------ walking


def test_walking_finds_files_in_folders_and_leaves_out_hidden_ones(root: Path) -> None:
    """Only names with the suffix, in every folder, nothing that begins with a dot."""
    for name in ("b/c.yaml", "b/d.yml", "b/e.txt", ".git/f.yaml", ".g.yaml", "h..yaml", "bad\\name.yaml"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x")
    assert sorted(Root(root, kind="prompt").walk((".yaml", ".yml"))) == ["a.yaml", "b/c.yaml", "b/d.yml", "h..yaml"]


def test_walking_does_not_leave_the_root_or_run_in_circles(root: Path) -> None:
    """Folders that are really elsewhere, or that contain themselves, are not entered again."""
    (root / "b").mkdir()
    (root / "b" / "c.yaml").write_text("x")
    (root / "b" / "up").symlink_to(root)
    (root / "b" / "same").symlink_to(root / "b")
    (root / "out").symlink_to(root.parent / "outside")
    (root / "loop").symlink_to("loop")
    found = sorted(Root(root, kind="prompt").walk((".yaml",)))
    assert found == ["a.yaml", "b/c.yaml"]


def test_walking_a_root_that_is_not_there_finds_nothing(tmp_path: Path) -> None:
    """An engine may be built before its folders are."""
    assert list(Root(tmp_path / "none", kind="prompt").walk((".yaml",))) == []


def test_walking_passes_over_a_folder_that_cannot_be_listed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One folder without permission does not hide the others."""
    (root / "b").mkdir()
    real_scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied")
        return real_scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert list(Root(root, kind="prompt").walk((".yaml",))) == ["a.yaml"]


# ------------------------------------------------------------------------------------------------- case


def test_names_are_case_exact_where_the_disk_folds_case(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On such a disk ``A.yaml`` opens ``a.yaml``; it is not that file's name."""
    real_stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **more: real_stat(str(path).replace("A.YAML", "a.yaml"), **more))
    assert read(root, "a.yaml") == b"a"
    with pytest.raises(FileMissingError):
        read(root, "A.YAML")


def test_a_broken_neighbour_of_another_case_does_no_harm(root: Path) -> None:
    """Only the file that is asked for is judged."""
    (root / "A.YAML").symlink_to("A.YAML")
    assert read(root, "a.yaml") == b"a"


def test_two_files_that_differ_in_case_are_two_files(root: Path) -> None:
    """Where the disk tells them apart, so do we."""
    (root / "A.YAML").write_text("A")
    assert (read(root, "a.yaml"), read(root, "A.YAML")) == (b"a", b"A")


def test_a_folder_that_cannot_be_listed_does_not_hide_its_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading needs no permission to list."""
    (root / "A.YAML").write_text("A")

    def refuse(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "listdir", refuse)
    assert read(root, "a.yaml") == b"a"
