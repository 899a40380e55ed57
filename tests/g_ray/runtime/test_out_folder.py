"""Which folders a command may write to: new, empty or its own; nothing else is touched."""

import json
from pathlib import Path

import pytest

from g_ray.runtime.out_folder import MARKER, check_out, check_out_file, claim_out


def test_new_and_empty_folders_are_taken(tmp_path):
    check_out(tmp_path / "a" / "b")
    check_out(tmp_path)
    (tmp_path / ".lock").touch()
    check_out(tmp_path)


def test_foreign_files_are_named_and_kept(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"did not make \(notes.txt\)"):
        check_out(tmp_path)
    with pytest.raises(ValueError, match=r"notes\.txt"):
        claim_out(tmp_path, "rays")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_command_may_repeat_itself_but_not_take_the_folder_of_another(tmp_path):
    claim_out(tmp_path / "out", "rays")
    (tmp_path / "out" / "a.png").touch()
    claim_out(tmp_path / "out", "rays")
    with pytest.raises(ValueError, match="a folder of g-ray rays"):
        claim_out(tmp_path / "out", "demo")


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"format": 3}', "not JSON", '{"format": "other"}', "[" * 99999]
)
def test_a_foreign_file_is_no_mark(tmp_path, content):
    (tmp_path / MARKER).write_text(content)
    with pytest.raises(ValueError, match="did not make"):
        claim_out(tmp_path, "rays")
    assert (tmp_path / MARKER).read_text() == content


def test_links_files_and_locked_folders_are_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for path, reason in (("file", "is a file"), ("link", "link to nothing"), ("file/below", "is a file")):
        with pytest.raises(ValueError, match=reason):
            check_out(tmp_path / path)
    monkeypatch.setattr(
        "os.access", lambda path, mode: False
    )  # tests may run as root, who may write everywhere
    with pytest.raises(ValueError, match="cannot be written"):
        check_out(tmp_path / "a" / "b")


def test_a_file_is_not_replaced(tmp_path):
    check_out_file(tmp_path / "new.png")
    (tmp_path / "old.png").touch()
    (tmp_path / "folder").mkdir()
    for name, reason in (("old.png", "there already"), ("folder", "a folder")):
        with pytest.raises(ValueError, match=reason):
            check_out_file(tmp_path / name)


def test_marks_say_who_made_them(tmp_path):
    claim_out(tmp_path, "demo")
    assert json.loads((tmp_path / MARKER).read_text()) == {"format": "g-ray-output", "command": "demo"}


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that nobody may write to")
def test_a_folder_without_permission_is_one_line():
    with pytest.raises(
        ValueError, match=r"--out /proc/self/a: /proc/self cannot be written to; choose another"
    ):
        check_out(Path("/proc/self/a"))
