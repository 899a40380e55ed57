"""Weights that come with the package are what their cards say."""

import json
from pathlib import Path

import pytest

from g_ray.models.weights import (
    find_shipped,
    find_weights_folder,
    list_shipped,
    read_card,
    resolve_weights,
)

MEGABYTE = 10**6


@pytest.mark.parametrize("name", list_shipped())
def test_every_file_is_small_whole_and_documented(name):
    path = find_shipped(name)
    assert path.stat().st_size <= 60 * MEGABYTE
    known = read_card(name)
    assert {"recipe", "step", "command", "scores", "bytes", "provenance"} <= known.keys()
    assert known["bytes"] == path.stat().st_size
    steps = [
        json.loads(line)["step"]
        for line in (find_weights_folder() / f"{name}.log.jsonl").read_text().splitlines()
    ]
    assert steps == sorted(steps) and steps[-1] == known["step"]


def test_a_damaged_file_is_noticed(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"something")
    (tmp_path / "a.json").write_text(json.dumps({"sha256": "0" * 64}))
    with pytest.raises(OSError, match="is not the file that was shipped"):
        find_shipped("a", tmp_path)
    with pytest.raises(OSError, match=r"no weights named 'b' come with g-ray \(there are: a\)"):
        find_shipped("b", tmp_path)


def test_files_come_before_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("nvs-rooms").write_bytes(b"mine")
    assert resolve_weights(Path("nvs-rooms")) == Path("nvs-rooms")
    for path in ("missing.safetensors", "folder/missing"):
        assert resolve_weights(Path(path)) == Path(path)
    with pytest.raises(OSError, match="no weights named 'missing'"):
        resolve_weights(Path("missing"))
