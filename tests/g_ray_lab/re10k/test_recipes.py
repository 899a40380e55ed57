"""Trainings on RealEstate10K and along its camera paths, and what they refuse before a model is made."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from g_ray_lab.recipes import nvs_recipes
from g_ray_lab.sources.nvs_settings import CAMERA_PATHS
from g_ray_lab.training.engine import train
from g_ray_lab.training.recipe import Run, Schedule


def small(root, **changes):
    """The paper's recipe with a network and pictures of a few kilobytes."""
    recipe = nvs_recipes.re10k_paper("gta_gray")
    data = replace(recipe.data, width=36, height=24, batch=2, root=root, check=3, zoom_max=2.0, **changes)
    return replace(
        nvs_recipes.tiny("gta_gray"),
        model=replace(nvs_recipes.tiny("gta_gray").model, layers=2),
        data=data,
        schedule=Schedule(lr=1e-3, steps=3),
    )


def quick(out):
    return Run(out=out, device="cpu", save_every=2, sample_every=3, tensorboard=False)


def test_the_papers_numbers():
    recipe = nvs_recipes.re10k_paper("rayrope_gray")
    assert replace(recipe, data=nvs_recipes.paper("rayrope_gray").data) == nvs_recipes.paper("rayrope_gray")
    data = recipe.data
    assert (data.width, data.height, data.batch, data.contexts, data.targets) == (256, 256, 4, 2, 1)
    assert (data.zoom_max, data.gap, data.axes) == (1.0, (25, 100), "opencv")


@pytest.mark.parametrize("layout", ["chunks", "folders"])
def test_a_few_steps(miniature, tmp_path, layout):
    recipe = small(miniature.root(layout))
    outcome = train("nvs-re10k", recipe, quick(tmp_path / "run"))
    assert outcome.skipped == 0 and 0 < outcome.validation < 1
    assert (tmp_path / "run" / "samples" / "step-00000003.png").exists()


def test_a_corrupt_picture_is_named(miniature, tmp_path):
    shutil.copytree(miniature.folders / "train", tmp_path / "train")
    for picture in (tmp_path / "train" / "images").rglob("*.png"):
        if int(picture.stem) > 20:
            picture.write_bytes(b"")
    data = replace(small(tmp_path).data, check=0, gap=(28, 31)).build_source(0)
    with pytest.raises(ValueError, match=r"\d{5}\.png, clip \w{6}: the picture cannot be read"):
        data.make_batch(0)


def test_wrong_axes_are_refused_before_training(miniature):
    """The miniature's files hold OpenCV axes: to read them as Blender's is the mistake that released loaders make."""
    small(miniature.chunks).build_task()
    recipe = small(miniature.chunks, axes="blender")
    with pytest.raises(ValueError, match=r"--data.axes blender: .*axes turned by 180° about x") as refused:
        recipe.build_task()
    assert "\n" not in str(refused.value)
    replace(recipe, data=replace(recipe.data, check=0)).build_task()


def test_a_missing_root_is_one_line(tmp_path):
    with pytest.raises(ValueError, match=r"no RealEstate10K at .*expected train/index\.json"):
        small(tmp_path / "nowhere").build_task()


# Camera paths


def test_steps_along_real_paths(shared_data, tmp_path):
    recipe = nvs_recipes.paths_tiny("rayrope_gray")
    data = replace(recipe.data, batch=2, paths=shared_data / CAMERA_PATHS)
    recipe = replace(
        recipe, model=replace(recipe.model, layers=2), data=data, schedule=Schedule(lr=1e-3, steps=3)
    )
    outcome = train("nvs-paths", recipe, quick(tmp_path / "run"))
    assert outcome.skipped == 0 and math.isfinite(outcome.validation)


def test_paths_are_looked_for_among_the_shared_data(tmp_path, monkeypatch):
    monkeypatch.setenv("G_RAY_SHARED_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"no camera paths at .*--data\.paths") as refused:
        nvs_recipes.paths_tiny("gta").build_task()
    assert "\n" not in str(refused.value)
    (tmp_path / "re10k_cameras").mkdir()
    rows = np.zeros((40, 16), np.float32)
    rows[:, :4] = 0.48, 0.853, 0.5, 0.5
    rows[:, 4:] = torch.eye(4)[:3].flatten()
    rows[:, 15] = -np.linspace(0, 1, 40)
    np.savez(tmp_path / CAMERA_PATHS, **{f"clip{n}": rows for n in range(60)})
    batch = nvs_recipes.paths_tiny("gta").data.build_source(0).make_batch(0)
    assert batch.target_images.shape == (2, 1, 3, 42, 42)


# The command


def check(capsys, *words):
    from g_ray.cli.main import main

    code = main(["data", "re10k-check", *(str(word) for word in words)])
    said = capsys.readouterr()
    return code, said.out.splitlines(), said.err


@pytest.mark.parametrize("layout", ["chunks", "folders"])
def test_the_command_counts_compares_and_checks(miniature, capsys, layout):
    code, lines, _ = check(capsys, miniature.root(layout), "--index", miniature.index, "--clips", 3)
    assert code == 0
    assert lines[0] == "train: 3 clips with 72 frames, 1 too short to train on"
    assert lines[1].startswith("train: axes opencv confirmed: ")
    assert lines[2] == "test: 2 clips with 64 frames, 0 too short to train on"
    assert lines[3].startswith("test: 2 of 3 indexed scenes are on disk, 1 are missing")
    assert lines[4].startswith("test: axes opencv ") and "refused" not in lines[4] and len(lines) == 5


def test_the_command_refuses_wrong_axes(miniature, capsys):
    code, lines, error = check(capsys, miniature.chunks, "--axes", "blender", "--clips", 3)
    assert code == 2 and error.count("\n") == 1 and "contradict" in error
    assert "axes blender refused" in lines[1] and "axes turned by 180° about x" in lines[1]


def test_the_command_names_what_cannot_be_read(miniature, tmp_path, capsys):
    shutil.copytree(miniature.folders / "test", tmp_path / "test")
    (tmp_path / "test" / "metadata" / "7e57aa.json").write_text(json.dumps({"frames": []}))
    code, lines, error = check(capsys, tmp_path, "--clips", 3)
    assert "1 cannot be read, the first: " in lines[0] and "7e57aa.json" in lines[0]
    assert code == 2 and "7e57aa.json" in error
    code, lines, error = check(capsys, tmp_path / "nowhere")
    assert (code, lines) == (2, []) and "no RealEstate10K at" in error
