"""Video depth by hand, against torch's Adam and scipy's linear programs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from g_ray_lab.metrics.video_depth import ALIGNMENTS, fit_least_absolute, fit_scale, score_video_depth

ROW = torch.tensor([1.0, 2, 4, 8]).double().reshape(1, 2, 2)
ALL = torch.ones(1, 2, 2, dtype=torch.bool)


def random_depths(seed: int, count: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """True depths, and depths that a factor, an offset and outliers separate from them."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform(1, 10, count)
    predicted = (truth - rng.uniform(-0.5, 0.5)) / rng.uniform(0.2, 5) * rng.lognormal(0, 0.1, count)
    predicted[: count // 10] *= 3
    return torch.from_numpy(predicted), torch.from_numpy(truth)


def test_by_hand():
    predicted = torch.tensor([1.0, 3, 4, 6]).double().reshape(1, 2, 2)
    scores = score_video_depth(ROW, predicted, ALL, alignment="none").rows()
    assert scores["abs_rel"] == pytest.approx((0 + 1 / 2 + 0 + 2 / 8) / 4)
    assert scores["sq_rel"] == pytest.approx((1 / 2 + 4 / 8) / 4)
    assert scores["rmse"] == pytest.approx(math.sqrt(5 / 4))
    assert scores["log_rmse"] == pytest.approx(math.sqrt((math.log(1.5) ** 2 + math.log(0.75) ** 2) / 4))
    assert scores["delta_1.25"] == 0.5
    assert scores["valid_pixels"] == 4


@pytest.mark.parametrize("alignment", [name for name in ALIGNMENTS if name != "none"])
@pytest.mark.parametrize("factor", [0.01, 1, 300])
def test_a_scaled_prediction_is_perfect(alignment, factor):
    scores = score_video_depth(ROW, ROW / factor, ALL, alignment=alignment)
    assert scores.abs_rel < 1e-7 and scores.delta == 1
    assert scores.scale == pytest.approx(factor, rel=1e-6)


def test_a_shifted_prediction_is_perfect_only_for_the_minimum():
    predicted = (ROW + 3) / 2
    assert score_video_depth(ROW, predicted, ALL, alignment="least absolute").abs_rel < 1e-6
    published = score_video_depth(ROW, predicted, ALL, alignment="scale & shift")
    assert published.abs_rel > 0.1, "its steps do not get that far"
    assert abs(published.shift) <= 0.1 + 1e-9


def test_one_alignment_for_all_views():
    """Views of different scale cannot be both right."""
    truth = torch.ones(2, 3, 3).double()
    predicted = torch.stack([torch.ones(3, 3), torch.full((3, 3), 2.0)]).double()
    valid = torch.ones(2, 3, 3, dtype=torch.bool)
    assert score_video_depth(truth, predicted, valid).abs_rel > 0.2


def test_far_truth_is_not_scored_and_far_predictions_are_cut():
    truth = torch.tensor([[[10.0, 60, 70, 1e10]]]).double()
    predicted = torch.tensor([[[10.0, 90, 1, 1]]]).double()
    valid = torch.ones(1, 1, 4, dtype=torch.bool)
    scores = score_video_depth(truth, predicted, valid, alignment="none", max_depth=70.0)
    assert scores.valid_pixels == 2
    assert scores.abs_rel == pytest.approx((0 + 10 / 60) / 2)


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match="no valid pixel"):
        score_video_depth(ROW, ROW, ~ALL)
    broken = ROW.clone()
    broken[0, 0, 1] = torch.nan
    with pytest.raises(ValueError, match="1 of 4 predicted depths are not finite"):
        score_video_depth(ROW, broken, ALL)
    masked = ALL.clone()
    masked[0, 0, 1] = False
    assert score_video_depth(ROW, broken, masked).abs_rel < 1e-9, "invalid pixels may be anything"
    with pytest.raises(ValueError, match="not above 0"):
        score_video_depth(ROW, -ROW, ALL)
    with pytest.raises(ValueError, match="unknown alignment 'shift': choose one of none, median"):
        score_video_depth(ROW, ROW, ALL, alignment="shift")


@given(st.integers(0, 10**6))
def test_least_absolute_is_the_optimum_of_a_linear_program(seed):
    predicted, truth = random_depths(seed)
    n = len(truth)
    p, d = predicted.numpy()[:, None], truth.numpy()
    # Variables s, t and one bound eᵢ ≥ |s pᵢ + t − dᵢ| per pixel.
    rows = np.block([[p, np.ones((n, 1)), -np.eye(n)], [-p, -np.ones((n, 1)), -np.eye(n)]])
    costs = np.concatenate([[0, 0], np.ones(n)])
    bounds = [(None, None)] * 2 + [(0, None)] * n
    wanted = linprog(costs, A_ub=rows, b_ub=np.concatenate([d, -d]), bounds=bounds).fun
    scale, shift = fit_least_absolute(predicted, truth)
    assert (scale * predicted + shift - truth).abs().sum().item() == pytest.approx(wanted, rel=1e-6)


@given(st.integers(0, 10**6))
def test_scale_comes_near_the_weighted_median(seed):
    """The minimum of Σ |s p − d| is the median of d/p with weights p; ten steps do not reach it quite."""
    predicted, truth = random_depths(seed)
    order = (truth / predicted).argsort()
    share = predicted[order].cumsum(0) / predicted.sum()
    best = (truth / predicted)[order][int((share >= 0.5).nonzero()[0])]
    cost = [(s * predicted - truth).abs().sum().item() for s in (fit_scale(predicted, truth)[0], best)]
    assert cost[1] <= cost[0] * (1 + 1e-12) and cost[0] <= 1.02 * cost[1]


@pytest.mark.parametrize("seed", range(3))
def test_scale_and_shift_takes_the_steps_of_adam(seed):
    predicted, truth = random_depths(seed)
    scale = (truth.median() / predicted.median()).clone().requires_grad_()
    shift = torch.zeros((), dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([scale, shift], lr=1e-4)
    for _ in range(1000):
        adam.zero_grad()
        (scale * predicted + shift - truth).abs().sum().backward()
        adam.step()
    ours = ALIGNMENTS["scale & shift"](predicted, truth)
    assert ours == pytest.approx((scale.item(), shift.item()), abs=1e-9)


def test_equal_predictions_have_an_answer():
    scores = score_video_depth(ROW, torch.ones_like(ROW), ALL, alignment="least absolute")
    assert math.isfinite(scores.abs_rel) and math.isfinite(scores.scale)
