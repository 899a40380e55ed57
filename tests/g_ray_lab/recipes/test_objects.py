"""Recipes on rendered objects: the paper's numbers, and nothing but the data differs from rooms."""

from dataclasses import replace

import pytest
import torch

from g_ray_lab.recipes import nvs_recipes
from g_ray_lab.recipes.stored_recipe import read_recipe
from g_ray_lab.sources.nvs_settings import ObjectsData
from g_ray_lab.sources.objects_nvs import TARGETS
from g_ray_lab.training.engine import train
from g_ray_lab.training.recipe import Run, Schedule
from g_ray_lab.training.run_files import list_differences


@pytest.mark.parametrize(
    ("ours", "rooms", "heads"),
    [
        (nvs_recipes.objects_tiny, nvs_recipes.tiny, {"model.heads"}),
        (nvs_recipes.objects_paper, nvs_recipes.paper, set()),
    ],
)
def test_data_and_heads_differ_from_rooms(ours, rooms, heads):
    changed = list_differences(ours("gta").to_settings(), rooms("gta").to_settings())
    names = {line.split(":")[0] for line in changed}
    assert {name for name in names if not name.startswith("data.")} == heads < names


def test_sizes():
    recipes = nvs_recipes.objects_tiny("gta"), nvs_recipes.objects_paper("gta")
    assert [recipe.model.head_dim for recipe in recipes] == [144, 144]
    small, large = (recipe.data for recipe in recipes)
    assert (small.width, small.height, small.batch, small.targets) == (48, 48, 2, "mixed")
    assert (large.width, large.height, large.batch, large.targets) == (256, 256, 4, "mixed")


@pytest.mark.parametrize("targets", TARGETS)
def test_every_choice_of_targets_is_a_setting(tmp_path, write_objects, targets):
    write_objects(tmp_path, ["a", "b", "c"], 12)
    data = ObjectsData(12, 12, 2, tmp_path, targets=targets)
    assert data.build_source(seed=1).make_batch(0).target_images.shape == (2, 1, 3, 12, 12)


def test_a_run_whose_weights_say_what_they_are(tmp_path, write_objects):
    root = write_objects(tmp_path / "objects", ["a", "b", "c", "d"], 24)
    recipe = nvs_recipes.objects_tiny("gta_gray", root)
    recipe = replace(
        recipe,
        model=replace(recipe.model, dim=48, layers=2, heads=1, ffn=48),
        data=replace(recipe.data, width=24, height=24, batch=2),
        schedule=Schedule(lr=1e-3, steps=4),
    )
    run = Run(out=tmp_path / "run", device="cpu", save_every=2, sample_every=3, tensorboard=False)
    outcome = train("nvs-objects-tiny-gta_gray", recipe, run)
    assert outcome.validation is not None and 0 < outcome.validation < 0.5
    assert read_recipe(outcome.weights) == recipe
    assert torch.isfinite(torch.tensor(outcome.validation))


def test_data_that_is_not_there_is_said_before_a_model_is_made(tmp_path):
    with pytest.raises(
        OSError, match="nowhere: no such folder of rendered objects; `g-ray data objects` makes one"
    ):
        nvs_recipes.objects_tiny("gta", tmp_path / "nowhere").build_task()
