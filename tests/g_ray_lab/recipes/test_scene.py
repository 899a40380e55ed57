"""Training on a user's own folder by the command line, from shipped or other weights."""

import json

import pytest

from g_ray.cli.main import main
from g_ray.models import weights
from g_ray_lab.recipes.nvs_recipes import scene
from g_ray_lab.recipes.stored_recipe import read_recipe

QUICK = [
    "--device", "cpu", "--no-tensorboard", "--sample-every", "2", "--log-every", "1",
    "--schedule.steps", "2", "--schedule.warmup", "0", "--data.batch", "2", "--data.width", "24", "--data.height", "24",
    "--model.dim", "48", "--model.layers", "2", "--model.ffn", "48",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory, room_scenes):
    place = tmp_path_factory.mktemp("scene")
    room_scenes.write_colmap(place, room_scenes.shots(6, ("pinhole", "fisheye"), 48, 36))
    return place


def test_a_run_on_a_folder(folder, tmp_path, capsys):
    words = ["train", "nvs-scene", "--data.folder", str(folder), "--out", str(tmp_path / "run"), *QUICK]
    assert main(words) == 0
    assert "2 steps, validation" in capsys.readouterr().out
    assert (tmp_path / "run" / "samples" / "step-00000002.png").exists()
    recipe = read_recipe(tmp_path / "run" / "model.safetensors")
    assert recipe.data.folder == (folder,) and recipe.data.KIND == "scene"


def test_without_a_folder_it_says_what_to_give(tmp_path, capsys):
    assert main(["train", "nvs-scene", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "give --data.folder DIR" in error and error.count("\n") == 1


def test_start_from_shipped_weights_and_refuse_those_of_another_network(
    folder, tmp_path, capsys, room_scenes, monkeypatch
):
    """With weights of the recipe's own size standing in for the shipped ones."""
    import hashlib

    path = room_scenes.write_weights(tmp_path / "nvs-test.safetensors", scene())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "nvs-test.json").write_text(json.dumps({"sha256": digest}))
    monkeypatch.setattr(weights, "find_weights_folder", lambda: tmp_path)
    words = ["train", "nvs-scene", "--data.folder", str(folder), "--init", "nvs-test", *QUICK]
    assert main([*words[:-6], "--out", str(tmp_path / "fits")]) == 0
    assert main([*words, "--out", str(tmp_path / "other")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "does not fit the model of this recipe" in error and "size mismatch" in error
