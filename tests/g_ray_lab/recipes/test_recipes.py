"""Every recipe builds; the six synthesis recipes differ in nothing but what they know of cameras."""

import itertools
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from g_ray.encodings import ENCODINGS, encoding
from g_ray.models.lvsm_config import METHODS
from g_ray_lab.losses import NVSLossSettings
from g_ray_lab.recipes import RECIPES, get_recipe, list_names, nvs_recipes, split_name
from g_ray_lab.recipes.stored_recipe import parse_recipe, read_recipe
from g_ray_lab.training.distributed import World
from g_ray_lab.training.engine import train
from g_ray_lab.training.learner import Learner
from g_ray_lab.training.recipe import OptimizerSettings, Run, Schedule
from g_ray_lab.training.run_files import list_differences


def document(recipe):
    return {"kind": type(recipe).__name__, "settings": recipe.to_settings()}


@pytest.mark.parametrize("name", list_names())
def test_every_recipe_comes_back_from_its_json(name):
    recipe = get_recipe(name)
    assert parse_recipe(document(recipe)) == recipe


def test_names_are_families_with_their_methods():
    assert split_name("nvs-tiny-gta") == ("nvs-tiny", "gta")
    assert split_name("nvs-tiny") == ("nvs-tiny", "gta_gray")
    assert split_name("recon-rooms") == ("recon-rooms", None)
    assert split_name("recon-tiny-rope_normalized") == ("recon-tiny", "rope_normalized")
    assert get_recipe("nvs-objects-tiny-plucker") == nvs_recipes.objects_tiny("plucker")
    for name in ("nonsense", "nvs-tiny-gray", "recon-rooms-gray", "nvs-tiny-"):
        with pytest.raises(ValueError, match="unknown recipe"):
            split_name(name)


def test_families_refuse_methods_of_others():
    with pytest.raises(ValueError, match="unknown method 'gray': choose one of plucker"):
        RECIPES["nvs-tiny"].build("gray")
    with pytest.raises(ValueError, match="no choice of methods"):
        RECIPES["recon-rooms"].build("gray")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_registered_encoding(method):
    assert METHODS[method].encoding in ENCODINGS


FAMILIES = {"tiny": nvs_recipes.tiny, "objects": nvs_recipes.objects_tiny, "paper": nvs_recipes.paper}


@pytest.mark.parametrize("family", FAMILIES)
def test_methods_differ_in_names_and_the_frequency_scale_only(family):
    for one, other in itertools.combinations(METHODS, 2):
        changed = list_differences(FAMILIES[family](one).to_settings(), FAMILIES[family](other).to_settings())
        names = {line.split(":")[0].removesuffix(".scale") for line in changed}
        alpha = {"model.encoding_options"} if "gta_gray" in (one, other) and family != "paper" else set()
        assert names <= {"model.conditioning", "model.encoding"} | alpha and alpha <= names


@pytest.mark.parametrize(
    ("make", "patches"), [(nvs_recipes.tiny, 7), (nvs_recipes.quick, 7), (nvs_recipes.objects_tiny, 8)]
)
def test_small_recipes_have_the_papers_phase_per_patch(make, patches):
    """α · field of view / patches is that of the paper: 10 with 32 patches; the paper's own recipe keeps 10."""

    def get_phase_per_patch(recipe):
        alpha = encoding("gta_gray", 72, **recipe.model.encoding_options).scale
        return alpha * recipe.model.patch / recipe.data.width

    recipe = make("gta_gray")
    assert recipe.data.width // recipe.model.patch == patches
    assert get_phase_per_patch(recipe) == pytest.approx(get_phase_per_patch(nvs_recipes.paper("gta_gray")))
    assert nvs_recipes.paper("gta_gray").model.encoding_options == {}
    assert make("rayrope_gray").model.encoding_options == {}


def test_the_papers_numbers():
    """Appendix "Novel View Synthesis"."""
    recipe = nvs_recipes.paper("gta_gray")
    assert recipe.schedule == Schedule(lr=4e-4, steps=80_000, warmup=2_500, start=4e-6)
    assert recipe.optimizer == OptimizerSettings(betas=(0.9, 0.95), weight_decay=0.5, clip=None)
    assert (recipe.precision, recipe.data.batch, recipe.loss.lpips) == ("fp16", 4, 0.5)
    assert (recipe.data.width, recipe.data.height, recipe.data.contexts, recipe.data.targets) == (
        256,
        256,
        2,
        1,
    )


def small(method, **changes):
    """The tiny recipe in two layers and three scenes."""
    recipe = nvs_recipes.tiny(method)
    return replace(
        recipe,
        model=replace(recipe.model, layers=2),
        data=replace(recipe.data, batch=3),
        schedule=Schedule(lr=1e-3, steps=3),
        **changes,
    )


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("method", METHODS)
def test_steps_of_every_method(method, precision):
    """Every parameter moves, nothing breaks, in both precisions that are trained with."""
    recipe = small(method, precision=precision)
    torch.manual_seed(0)
    learner = Learner(recipe.build_task(), recipe, Run(), World(0, 1, torch.device("cpu")))
    before = {name: weight.clone() for name, weight in learner.get_weights().items()}
    for step in range(2):
        assert learner.update(learner.task.make_batch(step, 0, 1), step) is None
    after = learner.get_weights()
    still = {name for name in before if torch.equal(before[name], after[name])}
    assert not still, still
    logged = learner.meter.pop_means()
    assert logged["loss"] == logged["mse"] and 5 < logged["psnr"] < 30


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_run_with_samples_validation_and_weights_that_say_what_they_are(tmp_path, precision):
    recipe = small("gta_gray", precision=precision)
    run = Run(out=tmp_path / "run", device="cpu", save_every=2, sample_every=3, tensorboard=False)
    outcome = train("nvs-tiny-gta_gray", recipe, run)
    assert 0 < outcome.validation < 0.5
    assert (run.out / "samples" / "step-00000003.png").exists()
    again = read_recipe(outcome.weights)
    assert again == recipe
    again.build_task().build_model().load_state_dict(load_file(outcome.weights))


def test_validation_scenes_are_never_trained_on():
    task = small("plucker").build_task()
    held_out = task._get_held_out(task.build_model())  # pyright: ignore[reportAttributeAccessIssue]
    for step, rank in itertools.product(range(3), range(3)):
        batch = task.make_batch(step, rank, 3)
        assert not torch.equal(batch.target_images, held_out.target_images)


def test_lpips_without_weights_is_an_error_that_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("G_RAY_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="g-ray weights lpips"):
        nvs_recipes.paper("gta").build_task()


def test_lpips_joins_the_loss(tmp_path):
    """With weights of the right shapes; their values do not matter here."""
    import numpy as np

    from g_ray_lab.metrics.lpips import CHANNELS, HEADS, LPIPS, _build_alexnet

    assert LPIPS is not None
    weights = {f"features.{name}": value.numpy() for name, value in _build_alexnet().state_dict().items()}
    weights |= {name: np.full((1, c, 1, 1), 0.1, np.float32) for name, c in zip(HEADS, CHANNELS, strict=True)}
    np.savez(tmp_path / "lpips.npz", **weights)
    recipe = small("gta", loss=NVSLossSettings(lpips=0.5, lpips_weights=tmp_path / "lpips.npz"))
    task = recipe.build_task()
    loss, logged = task.compute_loss(task.build_model(), task.make_batch(0, 0, 1))
    assert float(loss) == pytest.approx(float(logged["mse"] + 0.5 * logged["lpips"]), rel=1e-5)
    assert float(logged["lpips"]) > 0


def test_patches_that_do_not_fit_are_refused_in_words():
    recipe = small("gta")
    with pytest.raises(ValueError, match=r"42×42 px cannot be cut into patches of 8 px"):
        replace(recipe, model=replace(recipe.model, patch=8)).build_task()


def test_weights_without_a_recipe_are_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.ones(1)}, tmp_path / "plain.safetensors")
    with pytest.raises(ValueError, match="has no recipe in its metadata"):
        read_recipe(tmp_path / "plain.safetensors")
    with pytest.raises(ValueError, match="unknown kind of recipe 'Other'"):
        parse_recipe({"kind": "Other", "settings": {}})
