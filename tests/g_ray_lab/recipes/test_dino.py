"""Training on features of a frozen encoder: what is trained, what is stored, resuming, and learning."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from g_ray.models.dinov2 import DINOV2_SIZES, DINOv2, DINOv2Config
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray_lab.recipes import reconstruction_recipes
from g_ray_lab.training.distributed import World
from g_ray_lab.training.engine import train
from g_ray_lab.training.learner import Learner
from g_ray_lab.training.recipe import Run, Schedule
from g_ray_lab.training.run_files import CheckpointStore

CPU = World(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, room_scenes):
    """Scenes of one size each: square, lying and upright."""
    root = tmp_path_factory.mktemp("scenes")
    sizes = [(56, 56), (56, 42), (42, 56)]
    for number in range(6):
        width, height = sizes[number % 3]
        shots = room_scenes.shots(5, width=width, height=height, seed=number)
        room_scenes.write_nerfstudio_depth(root / f"scene{number}", shots)
    return root


@pytest.fixture
def mini(monkeypatch, tmp_path, folder):
    """A recipe of a size that fits into a test, with weights of its encoder in a file."""
    size = DINOv2Config(dim=48, layers=4, heads=2, patch=14, grid=4, registers=0)
    monkeypatch.setitem(DINOV2_SIZES, "vits14_noreg", size)
    small = {"dim": 32, "heads": 2, "pairs": 2, "taps": (0, 0, 1, 1), "encoder_taps": (1, 3)}
    small |= {"dpt_features": 8, "dpt_channels": (8, 8, 8, 8), "pose_dim": 16, "long_side": 56}
    monkeypatch.setitem(RECONSTRUCTION_SIZES, "dino", partial(RECONSTRUCTION_SIZES["dino"], **small))
    torch.manual_seed(7)
    save_file(DINOv2(size).state_dict(), tmp_path / "dino.safetensors")
    recipe = reconstruction_recipes.dino("gray")
    return replace(
        recipe,
        model=replace(recipe.model, encoder=tmp_path / "dino.safetensors"),
        data=replace(recipe.data, width=56, height=56, batch=2, views=(2, 3), folders=(folder,)),
        schedule=Schedule(lr=1e-3, steps=6, warmup=2),
    )


def quiet(out, **changes):
    return Run(out=out, save_every=3, sample_every=None, tensorboard=False, **changes)


def test_nothing_of_a_frozen_encoder_is_trained_or_has_moments(mini):
    learner = Learner(mini.build_task(), mini, Run(), CPU)
    before = {name: weight.clone() for name, weight in learner.get_weights().items()}
    for step in range(3):
        assert learner.update(learner.task.make_batch(step, 0, 1), step) is None
    after = learner.get_weights()
    still = {name for name in before if torch.equal(before[name], after[name])}
    assert still == {name for name in before if name.startswith("encoder.")}
    assert not any(name.startswith("encoder.blocks.3") for name in before)  # behind the last tap
    trained = [p for group in learner.optimizer.param_groups for p in group["params"]]
    frozen = {id(p) for p in learner.model.encoder.parameters()}
    assert not frozen & {id(p) for p in trained} and len(learner.optimizer.state) == len(trained)


def test_last_blocks_can_be_trained_but_not_kept(mini, tmp_path):
    recipe = replace(mini, model=replace(mini.model, trained_blocks=1))
    learner = Learner(recipe.build_task(), recipe, Run(), CPU)
    before = {name: weight.clone() for name, weight in learner.get_weights().items()}
    for step in range(3):
        assert learner.update(learner.task.make_batch(step, 0, 1), step) is None
    after = learner.get_weights()
    changed = {name.split(".")[2] for name in before if name.startswith("encoder.blocks.")} - {
        name.split(".")[2]
        for name in before
        if name.startswith("encoder.blocks.") and torch.equal(before[name], after[name])
    }
    assert changed == {"2"}
    with pytest.raises(ValueError, match="nothing to keep"):
        train("mini", recipe, quiet(tmp_path / "run", cache=tmp_path / "cache"))


def test_a_frozen_encoder_needs_weights_or_the_word_random(mini):
    with pytest.raises(ValueError, match="a frozen encoder needs weights"):
        replace(mini, model=replace(mini.model, encoder=None)).build_task()
    replace(mini, model=replace(mini.model, encoder=Path("random"))).build_task()


def load_bits(outcome):
    return {name: value.numpy().tobytes() for name, value in load_file(outcome.weights).items()}


def test_resumed_cached_and_uncached_runs_end_with_the_same_bits(mini, tmp_path):
    cache = tmp_path / "cache"
    whole = load_bits(train("mini", mini, quiet(tmp_path / "whole")))
    first = train("mini", mini, quiet(tmp_path / "cached", cache=cache))
    assert load_bits(first) == whole and list(cache.glob("*/*/*.npy"))
    # Again from its middle, with half of the features gone.
    store = CheckpointStore(tmp_path / "cached" / "checkpoints")
    newest = store.list_checkpoints()[-1]
    assert newest.step == 6
    for path in sorted(newest.path.iterdir()):
        path.unlink()
    newest.path.rmdir()
    for path in list(cache.glob("*/*/*.npy"))[::2]:
        path.unlink()
    assert load_bits(train("mini", mini, quiet(tmp_path / "cached", cache=cache))) == whole


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_a_frozen_encoder_is_not_sharded(mini, tmp_path):
    """Summed in another order, so not with the same bits."""
    mini = replace(mini, schedule=Schedule(lr=1e-3, steps=2))
    plain = load_file(train("mini", mini, quiet(tmp_path / "plain")).weights)
    run = quiet(tmp_path / "sharded", cache=tmp_path / "cache", parallel="fsdp")
    sharded = load_file(train("mini", mini, run).weights)
    assert plain.keys() == sharded.keys()
    for name, value in plain.items():
        assert torch.allclose(value, sharded[name], atol=0 if name.startswith("encoder.") else 2e-4), name


def test_features_in_half_precision_change_the_loss_by_less_than_a_thousandth(mini):
    task = mini.build_task()
    torch.manual_seed(0)
    model, batch = task.build_model(), task.make_batch(0, 0, 1)
    with torch.no_grad():
        rounded = float(task.compute_loss(model, batch)[0])
        model.frozen_features = None
        exact = float(task.compute_loss(model, batch)[0])
    assert rounded != exact and abs(rounded - exact) < 1e-3 * exact


def test_a_set_is_learned_by_heart(mini):
    data = replace(mini.data, batch=1, views=(2, 2))
    recipe = replace(mini, data=data, schedule=Schedule(lr=3e-3, steps=24, warmup=2))
    torch.manual_seed(0)
    learner = Learner(recipe.build_task(), recipe, Run(), CPU)
    batch = learner.task.make_batch(1, 0, 1)
    losses = []
    for step in range(24):
        assert learner.update(batch, step) is None
        losses.append(learner.meter.pop_means()["loss"])
    assert losses[-1] < 0.5 * losses[0], losses[::6]
