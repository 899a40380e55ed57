"""Checkpoints: whole or absent, rotated, safe to load, able to tell damage."""

import json

import pytest
import torch
from safetensors import safe_open

from g_ray.models.weights import CheckpointError, read_weights
from g_ray_lab.training import run_files as module
from g_ray_lab.training.run_files import CheckpointStore

WEIGHTS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(3, dtype=torch.bfloat16)}
DOCUMENTS = {"recipe": {"name": "x", "settings": {"seed": 1}}, "provenance": {"commit": "abc"}}


def save(store, step, validation=None):
    return store.save(step, WEIGHTS, {"step": step, "moments": {"a": torch.ones(2)}}, DOCUMENTS, validation)


def steps(store):
    return [checkpoint.step for checkpoint in store.list_checkpoints()]


def test_round_trip(tmp_path):
    saved = save(CheckpointStore(tmp_path), 7, 0.5)
    assert saved.find_damage() is None and saved.step == 7 and saved.read_validation() == 0.5
    weights = saved.load_weights()
    assert all(torch.equal(weights[name], WEIGHTS[name]) for name in WEIGHTS)
    assert weights["b"].dtype == torch.bfloat16
    assert saved.load_state()["moments"]["a"].tolist() == [1.0, 1.0]
    assert saved.read_document("provenance") == {"commit": "abc"}
    with safe_open(saved.weights, framework="pt") as file:
        assert json.loads(file.metadata()["recipe"]) == DOCUMENTS["recipe"]


def test_tied_and_transposed_weights_can_be_saved(tmp_path):
    shared = torch.arange(6.0).view(2, 3)
    saved = CheckpointStore(tmp_path).save(1, {"a": shared, "b": shared, "c": shared.T}, {}, {})
    weights = saved.load_weights()
    assert torch.equal(weights["a"], weights["b"]) and torch.equal(weights["c"], shared.T)


def test_the_newest_the_best_and_the_milestones_stay(tmp_path):
    store = CheckpointStore(tmp_path, keep=2, milestone_every=40)
    for step, score in zip(range(10, 110, 10), [9, 8, 1, 7, 6, 5, 4, 3, 2.5, 2], strict=True):
        save(store, step, float(score))
    assert steps(store) == [30, 40, 80, 90, 100]
    assert {path.name for path in tmp_path.iterdir()} == {f"step-{s:08d}" for s in (30, 40, 80, 90, 100)}


def test_without_validation_only_the_newest_stay(tmp_path):
    store = CheckpointStore(tmp_path, keep=3)
    for step in range(1, 6):
        save(store, step)
    assert steps(store) == [3, 4, 5]


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt", "recipe.json", "manifest.json"])
@pytest.mark.parametrize("how", ["cut", "flipped", "gone"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path, name, how):
    store = CheckpointStore(tmp_path)
    save(store, 1)
    path = save(store, 2).path / name
    content = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 0x55
        path.write_bytes(content)
    if (name, how) == ("manifest.json", "flipped"):
        path.write_text("{}")
    newest, notes = store.find_newest()
    assert newest is not None and newest.step == 1
    assert len(notes) == 1 and "step-00000002 is damaged" in notes[0]
    save(store, 2)
    assert store.find_newest()[0].step == 2 and store.find_newest()[1] == []


def test_leftovers_are_not_checkpoints_and_are_removed(tmp_path):
    (tmp_path / ".tmp-step-00000009").mkdir()
    (tmp_path / "step-oops").mkdir()
    store = CheckpointStore(tmp_path)
    assert store.list_checkpoints() == [] and store.find_newest() == (None, [])
    store.clean()
    assert [path.name for path in tmp_path.iterdir()] == ["step-oops"]


@pytest.mark.parametrize("function", ["save_file", "_write_json", "_compute_fingerprint", "_flush"])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, function):
    store = CheckpointStore(tmp_path)
    save(store, 1)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, function, full)
    with pytest.raises(
        CheckpointError, match=r"step 2 .*No space left on device.*step 1 is intact"
    ) as caught:
        save(store, 2)
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    assert steps(store) == [1] and store.find_newest()[0].find_damage() is None
    assert not list(tmp_path.glob(".tmp-*"))


def test_state_cannot_run_code(tmp_path):
    saved = save(CheckpointStore(tmp_path), 1)
    torch.save({"surprise": print}, saved.path / "state.pt")
    with pytest.raises(Exception, match=r"[Ww]eights"):
        saved.load_state()


def test_a_file_that_is_not_weights_is_one_line(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"no")
    with pytest.raises(CheckpointError, match=r"x\.safetensors cannot be read"):
        read_weights(tmp_path / "x.safetensors")
