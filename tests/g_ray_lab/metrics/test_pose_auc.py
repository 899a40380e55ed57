"""Relative poses of pairs by hand, and the area under the curve against numpy's histogram."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from g_ray.geometry.pose import Pose
from g_ray_lab.metrics.pose_metrics import THRESHOLDS_DEG, compute_auc, compute_pair_errors, score_pairs


def random_poses(views: int, seed: int) -> Pose:
    turns = torch.from_numpy(Rotation.random(views, rng=seed).as_matrix())
    return Pose.from_parts(turns, torch.from_numpy(np.random.default_rng(seed).normal(size=(views, 3))))


@given(st.lists(st.floats(0, 60), min_size=1, max_size=30), st.sampled_from(THRESHOLDS_DEG))
def test_the_area_is_that_of_a_histogram_of_one_degree(errors, threshold):
    counts, _ = np.histogram(errors, bins=np.arange(threshold + 1))
    wanted = (counts.cumsum() / len(errors)).mean()
    assert compute_auc(torch.tensor(errors, dtype=torch.float64), threshold) == pytest.approx(wanted)


@pytest.mark.parametrize("kind", ["relative", "da3-bench"])
def test_a_perfect_prediction_in_another_world_and_unit(kind):
    truth = random_poses(5, 0)
    predicted = (random_poses(1, 1)[0] @ truth).scale_translation(3.0)
    assert all(value == 1 for value in score_pairs(truth, predicted, kind).values())


def test_a_turned_view_errs_in_its_own_pairs():
    truth = random_poses(4, 0)
    turn = torch.from_numpy(Rotation.from_euler("x", 10, degrees=True).as_matrix())
    rotations = truth.rotation.clone()
    rotations[3] = rotations[3] @ turn
    predicted = Pose.from_parts(rotations, truth.translation)
    errors = compute_pair_errors(truth, predicted)
    # Pairs in the order 01 02 03 12 13 23; view 3 is always the second, so its baselines stay as they are.
    wanted = torch.tensor([0.0, 0, 10, 0, 10, 10]).double()
    assert torch.allclose(errors.rotation_deg, wanted, atol=1e-6)
    assert torch.allclose(errors.direction_deg, torch.zeros(6).double(), atol=1e-5)
    scores = score_pairs(truth, predicted)
    assert scores["rra_5"] == 0.5 and scores["rra_15"] == 1 and scores["rta_3"] == 1
    assert scores["auc_30"] == pytest.approx((0.5 * 10 + 20) / 30, abs=0.5 / 30 + 1e-9)


def test_directions_have_no_sign():
    truth = Pose.from_parts(
        torch.eye(3).double().expand(2, 3, 3), torch.tensor([[0.0, 0, 0], [0, 0, 1]]).double()
    )
    for baseline, wanted in (([0, 0, -2.0], 0), ([0, 1.0, 1.0], 45), ([1.0, 0, -1.0], 45), ([1.0, 0, 0], 90)):
        moved = torch.tensor([[0.0, 0, 0], baseline]).double()
        errors = compute_pair_errors(truth, Pose.from_parts(truth.rotation, moved))
        assert errors.direction_deg.item() == pytest.approx(wanted, abs=1e-9)


def test_views_in_one_place():
    repeated = random_poses(3, 0)[[0, 1, 1]]
    assert score_pairs(repeated, repeated)["auc_3"] == 1, "a pair without a baseline is scored by rotation"
    apart = random_poses(3, 0)
    still = Pose.from_parts(apart.rotation, torch.zeros(3, 3).double())
    assert (compute_pair_errors(apart, still).direction_deg == 90).all()


def test_only_the_plain_relative_pose_is_free_of_the_world():
    """DA3-BENCH's pairs depend on which view comes first."""
    truth, predicted = random_poses(4, 0), random_poses(4, 1)
    reverse = [3, 2, 1, 0]

    def largest(kind):
        forward = compute_pair_errors(truth, predicted, kind).rotation_deg
        backward = compute_pair_errors(truth[reverse], predicted[reverse], kind).rotation_deg
        return (forward.sort().values - backward.sort().values).abs().max().item()

    assert largest("relative") < 1e-6 < 1 < largest("da3-bench")


def test_one_view_has_no_pairs():
    with pytest.raises(ValueError, match="two views"):
        score_pairs(random_poses(1, 0), random_poses(1, 0))
