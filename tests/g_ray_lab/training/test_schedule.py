"""The learning rate at every step, and what decays."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from g_ray.nn.per_camera_attention import DepthPredictor
from g_ray_lab.training.learner import build_optimizer, compute_learning_rate
from g_ray_lab.training.recipe import OptimizerSettings, Schedule

PAPER = Schedule(lr=4e-4, steps=80_000, warmup=2_500, start=4e-6)


def test_the_papers_schedule_at_its_corners():
    assert compute_learning_rate(PAPER, 0) == 4e-6
    assert compute_learning_rate(PAPER, 1_250) == pytest.approx((4e-4 + 4e-6) / 2)
    assert compute_learning_rate(PAPER, 2_500) == 4e-4
    assert compute_learning_rate(PAPER, 2_500 + 38_750) == pytest.approx(2e-4)
    assert compute_learning_rate(PAPER, 80_000) == pytest.approx(0.0, abs=1e-12)


def test_no_update_is_idle_and_the_rate_never_rises_again():
    """The released code's product of two schedules is zero at step 77,500 and rises to 1e-6 after it."""
    rates = [compute_learning_rate(PAPER, step) for step in range(PAPER.steps)]
    assert min(rates) > 0
    assert all(a > b for a, b in pairwise(rates[2_500:]))


def test_stage_two_of_reconstruction_has_no_warm_up():
    stage = Schedule(lr=1e-7, steps=48_000, final=1e-10)
    assert compute_learning_rate(stage, 0) == 1e-7
    assert compute_learning_rate(stage, 48_000) == pytest.approx(1e-10)


@pytest.mark.parametrize(("steps", "warmup"), [(0, 0), (10, 10), (10, -1)])
def test_impossible_schedules_are_refused(steps, warmup):
    with pytest.raises(ValueError, match=r"schedule\."):
        Schedule(lr=1e-3, steps=steps, warmup=warmup)


def test_matrices_decay_and_vectors_do_not():
    """Also not the bias of RayRoPE's depth predictor, which has no "norm" in its name."""
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), DepthPredictor(4))
    optimizer = build_optimizer(model, OptimizerSettings(weight_decay=0.5))
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    found = {name: decays[id(parameter)] for name, parameter in model.named_parameters()}
    assert found == {
        "0.weight": 0.5,
        "0.bias": 0.0,
        "1.weight": 0.0,
        "1.bias": 0.0,
        "2.linear.weight": 0.5,
        "2.linear.bias": 0.0,
    }


def test_frozen_parameters_are_left_out():
    model = nn.Linear(2, 2, bias=False).requires_grad_(False)
    trained = nn.ModuleList([model, nn.Linear(2, 2, bias=False)])
    (group,) = build_optimizer(trained, OptimizerSettings()).param_groups
    assert len(group["params"]) == 1 and torch.is_tensor(group["params"][0])
