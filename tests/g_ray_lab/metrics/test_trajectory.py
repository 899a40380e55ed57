"""ATE and RPE against evo on random trajectories, and where evo has no answer, by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity
from g_ray_lab.metrics.pose_metrics import rotation_angle, score_trajectory


def make_poses(centers, rotations=None) -> Pose:
    centers = torch.as_tensor(np.asarray(centers), dtype=torch.float64)
    turns = torch.eye(3).double().expand(len(centers), 3, 3) if rotations is None else rotations
    return Pose.from_parts(turns, centers)


def random_poses(views: int, seed: int) -> Pose:
    rng = np.random.default_rng(seed)
    turns = torch.from_numpy(Rotation.random(views, rng=seed).as_matrix().reshape(views, 3, 3))
    return make_poses(rng.normal(size=(views, 3)) * rng.uniform(0.1, 10, 3), turns)


def score_by_evo(truth: Pose, predicted: Pose) -> dict[str, float]:
    ape, rpe = pytest.importorskip("evo.main_ape"), pytest.importorskip("evo.main_rpe")
    metrics = pytest.importorskip("evo.core.metrics")
    trajectory = pytest.importorskip("evo.core.trajectory")

    def path():
        return [
            trajectory.PosePath3D(poses_se3=[np.array(pose) for pose in poses.world_from_cam.numpy()])
            for poses in (truth, predicted)
        ]

    relation = metrics.PoseRelation
    align = {"align": True, "correct_scale": True}
    consecutive = {"delta": 1, "delta_unit": metrics.Unit.frames, "all_pairs": True}
    return {
        "ate": ape.ape(*path(), pose_relation=relation.translation_part, **align).stats["rmse"],
        "rpe_trans": rpe.rpe(*path(), pose_relation=relation.translation_part, **align, **consecutive).stats[
            "rmse"
        ],
        "rpe_rot_deg": rpe.rpe(
            *path(), pose_relation=relation.rotation_angle_deg, **align, **consecutive
        ).stats["rmse"],
    }


@given(st.integers(0, 10**6), st.integers(3, 12), st.floats(0, 2))
def test_agrees_with_evo(seed, views, noise):
    truth = random_poses(views, seed)
    shift = random_poses(views, seed + 1)
    predicted = Pose.from_parts(
        shift.rotation if noise > 1 else truth.rotation, truth.translation + noise * shift.translation
    )
    wanted = score_by_evo(truth, predicted)
    for name, value in score_trajectory(truth, predicted).rows().items():
        assert value == pytest.approx(wanted[name], rel=1e-6, abs=1e-6), name


@given(st.integers(0, 10**6), st.integers(3, 8), st.floats(0.01, 100))
def test_a_similar_trajectory_has_no_error(seed, views, scale):
    truth = random_poses(views, seed)
    motion = random_poses(1, seed + 1)[0]
    similarity = Similarity(torch.tensor(scale, dtype=torch.float64), motion.rotation, motion.translation)
    scores = score_trajectory(truth, similarity.transform_pose(truth))
    assert all(value < 1e-6 for value in scores.rows().values())


def test_two_poses_always_fit_but_their_rotations_count():
    """evo refuses two poses; only the scale matters for RPE, and that is fixed."""
    truth = make_poses([[0.0, 0, 0], [0, 0, 2]])
    turn = torch.from_numpy(Rotation.from_euler("y", [[0], [30]], degrees=True).as_matrix())
    scores = score_trajectory(truth, make_poses([[1.0, 0, 0], [1, 5, 0]], turn))
    assert scores.ate == pytest.approx(0, abs=1e-9)
    assert scores.rpe_rot_deg == pytest.approx(30, abs=1e-6)
    # The baseline, scaled to 2, points along y of the first camera instead of z.
    assert scores.rpe_trans == pytest.approx(2 * math.sqrt(2), abs=1e-9)


def test_a_line_is_aligned():
    """evo refuses it, because the rotation about the line is free; no error depends on that rotation."""
    truth = make_poses([[0.0, 0, 0], [1, 0, 0], [3, 0, 0]])
    predicted = make_poses([[0.0, 0, 0], [0, 2, 0], [0, 4, 0]])
    # Least squares on the line: centered truth (−4, −1, 5)/3, prediction (−2, 0, 2), scale 3/4, residuals by hand.
    residuals = np.array([-4 / 3, -1 / 3, 5 / 3]) - 0.75 * np.array([-2, 0, 2])
    assert score_trajectory(truth, predicted).ate == pytest.approx(math.sqrt((residuals**2).mean()))


def test_a_prediction_that_stands_still_scores_the_spread_of_the_truth():
    truth = make_poses([[0.0, 0, 0], [2, 0, 0], [4, 0, 0]])
    scores = score_trajectory(truth, make_poses([[7.0, 7, 7]] * 3))
    assert scores.ate == pytest.approx(math.sqrt(8 / 3))
    assert scores.rpe_trans == pytest.approx(2)
    assert scores.rpe_rot_deg == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_true_camera_that_stands_still_is_refused(dtype):
    still = make_poses([[1.0, 2.3, 3]] * 3).to(dtype)
    with pytest.raises(ValueError, match="stands still"):
        score_trajectory(still, random_poses(3, 0))


def test_what_is_no_trajectory_is_refused():
    with pytest.raises(ValueError, match="1 pose is no trajectory"):
        score_trajectory(random_poses(1, 0), random_poses(1, 1))
    with pytest.raises(ValueError, match="one pose per view"):
        score_trajectory(random_poses(3, 0), random_poses(2, 1))
    broken = random_poses(3, 0)
    broken.world_from_cam[1, 0, 3] = torch.nan
    with pytest.raises(ValueError, match="1 of 3 predicted poses are not finite, first that of view 1"):
        score_trajectory(random_poses(3, 0), broken)


@given(st.floats(0, math.pi), st.integers(0, 10**6))
def test_angles_of_rotations(angle, seed):
    axis = np.random.default_rng(seed).normal(size=3)
    rotation = Rotation.from_rotvec(angle * axis / np.linalg.norm(axis)).as_matrix()
    assert rotation_angle(torch.from_numpy(rotation)).item() == pytest.approx(angle, abs=1e-7)


def test_a_tiny_angle_keeps_its_digits():
    rotation = torch.from_numpy(Rotation.from_rotvec([0, 1e-9, 0]).as_matrix())
    assert rotation_angle(rotation).item() == pytest.approx(1e-9, rel=1e-6)
