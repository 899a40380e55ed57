"""Files are whole or not there."""

import json
import os
import stat

import pytest

from g_ray.runtime.files import atomic_path, write_atomically, write_json


def test_what_was_written_is_there_and_nothing_else(tmp_path):
    write_json(tmp_path / "deep" / "a.json", {"é": 1})
    write_atomically(tmp_path / "deep" / "b.bin", b"\x00\x01")
    assert json.loads((tmp_path / "deep" / "a.json").read_text(encoding="utf-8")) == {"é": 1}
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["a.json", "b.bin"]


def test_a_failure_keeps_the_old_file_and_leaves_no_scratch(tmp_path):
    path = tmp_path / "a.txt"
    write_atomically(path, "old")
    with pytest.raises(OSError, match="disk"), atomic_path(path) as scratch:
        scratch.write_text("half")
        raise OSError("disk full")
    assert path.read_text() == "old"
    assert [child.name for child in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("letter", ["x", "é", "𝑥"])
def test_the_longest_name(tmp_path, letter):
    """A name may have 255 bytes; a scratch name that contained it would have more."""
    name = letter * ((255 - len(".png")) // len(letter.encode())) + ".png"
    with atomic_path(tmp_path / name) as scratch:
        assert scratch.suffix == ".png"
        scratch.write_bytes(b"x")
    assert [child.name for child in tmp_path.iterdir()] == [name]


def test_suffix_and_rights(tmp_path):
    path = tmp_path / "a.npz"
    with atomic_path(path) as scratch:
        assert scratch.suffix == ".npz"
        assert scratch.parent == tmp_path
        scratch.write_bytes(b"x")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
