"""Parts of a measurement: computed once, again after a change or damage."""

import pytest

from g_ray_lab.scoring.store import Store, hash_file, hash_key


@pytest.fixture
def parts(tmp_path):
    return Store(tmp_path / "parts")


def test_a_part_is_computed_once_per_key(parts):
    calls = []

    def compute():
        calls.append(1)
        return {"values": [0.5, None], "calls": len(calls)}

    first = parts.measure("a", {"views": 2, "size": 24}, compute)
    assert parts.measure("a", {"size": 24, "views": 2}, compute) == first and len(calls) == 1
    assert parts.measure("a", {"views": 3, "size": 24}, compute)["calls"] == 2
    assert parts.measure("b", {"views": 3, "size": 24}, compute)["calls"] == 3


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"key": 1}', "null", "[" * 100_000])
def test_a_damaged_part_is_computed_again(parts, damage):
    parts.measure("a", {}, lambda: 1)
    (parts.folder / "a.json").write_text(damage)
    assert parts.measure("a", {}, lambda: 2) == 2
    assert parts.measure("a", {}, lambda: 3) == 2


def test_a_failed_part_is_not_stored(parts):
    with pytest.raises(ValueError, match="no"):
        parts.measure("a", {}, lambda: (_ for _ in ()).throw(ValueError("no")))
    assert not list(parts.folder.glob("*")) and parts.measure("a", {}, lambda: 1) == 1


def test_digests(tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    assert hash_file(tmp_path / "a") != hash_file(tmp_path / "b")
    assert hash_key({"a": 1}) != hash_key({"a": 2})
