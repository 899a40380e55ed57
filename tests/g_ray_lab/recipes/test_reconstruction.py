"""Reconstruction recipes: the paper's numbers, rows that differ in one name, steps that move every parameter."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from g_ray.models.reconstruction_config import RECONSTRUCTION_METHODS
from g_ray_lab.recipes import reconstruction_recipes
from g_ray_lab.sources.reconstruction_settings import ScenesViews
from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction
from g_ray_lab.sources.shaped_sets import MixtureReconstruction
from g_ray_lab.tables.ablation_tables import ReconAblation
from g_ray_lab.training.distributed import World
from g_ray_lab.training.engine import train
from g_ray_lab.training.learner import Learner
from g_ray_lab.training.recipe import OptimizerSettings, Run, Schedule
from g_ray_lab.training.run_files import list_differences


@pytest.mark.parametrize(
    "make",
    [
        reconstruction_recipes.tiny,
        reconstruction_recipes.stage1,
        reconstruction_recipes.stage2,
        reconstruction_recipes.ablation,
    ],
)
def test_methods_differ_in_one_name_only(make):
    for one, other in itertools.combinations(RECONSTRUCTION_METHODS, 2):
        (changed,) = list_differences(make(one).to_settings(), make(other).to_settings())
        assert changed.split(":")[0] == "model.method"


def test_the_papers_numbers():
    """Appendix "3D Reconstruction"; the ablation's 45 epochs are in the section "Ablation Studies"."""
    first, second, ablation = (
        make("gray")
        for make in (
            reconstruction_recipes.stage1,
            reconstruction_recipes.stage2,
            reconstruction_recipes.ablation,
        )
    )
    assert first.schedule == Schedule(lr=5e-5, steps=96_000, warmup=4_800, start=1e-8, final=1e-8)
    assert second.schedule == Schedule(lr=1e-7, steps=48_000, final=1e-10)
    assert ablation.schedule.steps == 45 * 800 and ablation.model.size == "small"
    assert first.precision == second.precision == "bf16"
    assert (first.optimizer.weight_decay, first.optimizer.clip) == (0.05, 1.0)
    assert (first.data.width, first.data.views, first.data.aspect) == (224, (2, 24), (0.33, 1.0))
    assert (first.data.images_max, second.data.images_max, second.data.width) == (240, 48, 518)
    assert (first.loss.camera, first.loss.quantile) == (5.0, 0.98)
    assert first.model.build_config().encoder == "vitl14"


def test_shapes_of_the_papers_batches():
    """As many sets as images allow: two views come in 120 sets, 24 views in ten."""
    rooms = reconstruction_recipes.stage1("gray").data.build_source(0, 14)
    assert isinstance(rooms, RoomsReconstruction)
    drawn = [rooms.draw_shape(step) for step in range(300)]
    assert {shape.views for shape in drawn} == set(range(2, 25))
    assert all(shape.sets == 240 // shape.views and shape.height % 14 == 0 for shape in drawn)


def test_the_shipped_recipe_sees_pinholes_of_every_shape():
    recipe = reconstruction_recipes.rooms()
    rooms = recipe.data.build_source(0, recipe.model.build_config().patch)
    assert isinstance(rooms, RoomsReconstruction)
    assert rooms.lens == "pinhole" and rooms.settings.width == recipe.model.build_config().long_side
    drawn = [rooms.draw_shape(step) for step in range(100)]
    assert {shape.views for shape in drawn} == set(range(2, 9))
    assert {shape.height for shape in drawn} == {32, 40, 48}
    assert all(8 < shape.sets * shape.views <= 16 for shape in drawn)


def test_scenes_continue_what_was_shipped():
    ours, scenes = reconstruction_recipes.rooms(), reconstruction_recipes.scenes_rooms()
    assert scenes.model == ours.model and isinstance(scenes.data, ScenesViews)
    assert (scenes.data.width, scenes.data.views, scenes.data.images_max) == (48, (2, 8), 16)


def miniature(method, **changes):
    recipe = reconstruction_recipes.tiny(method)
    return replace(
        recipe,
        data=replace(recipe.data, batch=2, views=(2, 2)),
        schedule=Schedule(lr=1e-3, steps=2),
        optimizer=OptimizerSettings(clip=1.0),
        **changes,
    )


@pytest.mark.parametrize("method", RECONSTRUCTION_METHODS)
def test_a_step_of_every_method(method):
    torch.manual_seed(0)
    recipe = miniature(method)
    learner = Learner(recipe.build_task(), recipe, Run(), World(0, 1, torch.device("cpu")))
    before = {name: weight.clone() for name, weight in learner.get_weights().items()}
    for step in range(2):
        assert learner.update(learner.task.make_batch(step, 0, 1), step) is None
    after = learner.get_weights()
    still = {name for name in before if torch.equal(before[name], after[name])}
    assert not still, still
    assert learner.meter.pop_means()["loss"] > 0


def test_training_makes_weights_and_pictures(tmp_path):
    outcome = train("tiny", miniature("gray"), Run(out=tmp_path, sample_every=1, tensorboard=False))
    assert outcome.weights.is_file() and outcome.validation is not None
    assert list(tmp_path.rglob("*.png"))


def test_the_head_sees_pixels_apart_from_the_start():
    """Without variance-preserving weights all pixels come out alike and rays are not learned for thousands of steps."""
    task = miniature("gray").build_task()
    torch.manual_seed(0)
    model, batch = task.build_model(), task.make_batch(0, 0, 1)
    features: list[torch.Tensor] = []
    model.camera_head.scratch.output_conv2[1].register_forward_hook(lambda *io: features.append(io[-1]))
    first = model(batch.images, batch.views)
    assert first.camera_points.abs().max() < 10 and first.camera_confidence.max() < 30
    across = features[0].std((-2, -1)).mean() / features[0].abs().mean()
    assert across > 0.2, float(across)


def test_scenes_and_rooms_in_one_training(shared_data):
    """Real photographs with depth, mixed with rooms: both come, as often as asked for, in one shape."""
    data = ScenesViews(24, 24, 2, (2, 2), folders=(shared_data / "7scenes_redkitchen100",), rooms=0.5)
    source = data.build_source(0, 4)
    assert isinstance(source, MixtureReconstruction)
    assert 60 < sum(source.choose_source(step) for step in range(200)) < 140
    step = next(n for n in range(20) if {source.choose_source(2 * n), source.choose_source(2 * n + 1)} == {0})
    batch = source.make_batch(step)
    assert batch.images.shape == (2, 2, 3, 24, 24) and float(batch.valid.float().mean()) > 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "--data.folders"),
        ({"folders": (Path("a"), Path("b")), "weights": (1.0,)}, "one number per folder"),
        ({"folders": (Path("a"),), "rooms": 1.0}, "share of the sets"),
    ],
)
def test_scenes_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ScenesViews(24, 24, 2, (2, 2), **changes).build_source(0, 4)


def test_an_encoder_with_or_without_registers(shared_data):
    network = reconstruction_recipes.ablation("gray").model
    assert network.build_config().encoder == "vits14"
    assert replace(network, registers=False).build_config().encoder == "vits14_noreg"
    assert (
        replace(reconstruction_recipes.dino("gray").model, registers=True).build_config().encoder == "vits14"
    )
    with pytest.raises(ValueError, match="size tiny has no DINOv2"):
        replace(reconstruction_recipes.tiny("gray").model, registers=False).build_config()
    file = next((shared_data / "dinov2_vits14").glob("*.safetensors"))
    recipe = replace(reconstruction_recipes.ablation("gray"), model=replace(network, encoder=file))
    with pytest.raises(
        ValueError, match=r"is vits14_noreg, but .* vits14; for this file set registers to False"
    ):
        recipe.build_task().build_model()
    replace(recipe, model=replace(recipe.model, registers=False)).build_task().build_model()


def test_the_papers_ablation_on_folders_that_are_given(tmp_path):
    file = tmp_path / "encoder.safetensors"
    folders = (tmp_path / "one", tmp_path / "two")
    table = ReconAblation(
        tmp_path, scale="paper", data=folders, weights=(1.0, 2.0), encoder=file, registers=False
    )
    for recipe in table.build_study().methods.values():
        assert recipe.data == ScenesViews(
            **reconstruction_recipes.ablation("gray").data.get_shape(), folders=folders, weights=(1.0, 2.0)
        )
        assert recipe.model.encoder == file and recipe.model.registers is False
    with pytest.raises(ValueError, match="belong to --scale paper"):
        ReconAblation(tmp_path, registers=False).build_study()
