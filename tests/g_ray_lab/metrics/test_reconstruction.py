"""Reconstruction metrics by hand, against released numbers and evo, and with views that have nothing to score."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from g_ray.geometry.pose import Pose
from g_ray.reconstruction.set_metrics import (
    METRICS,
    ReconstructionScores,
    SetGeometry,
    align_rigidly,
    compute_depth,
    norm_inliers,
    pose_ate,
    ray_error_deg,
    relative_error,
    score_sets,
)
from g_ray.runtime.device import promote_to_float32
from g_ray_lab.metrics.intervals import summarize_sets


def from_points(world_points, camera_points, poses):
    rays = torch.nn.functional.normalize(promote_to_float32(camera_points), dim=-1)
    return SetGeometry(world_points, camera_points, rays, poses)


def pixels(*rows) -> torch.Tensor:
    """One view of one row of pixels."""
    return torch.tensor(rows, dtype=torch.float64)[None, None]


ALL = torch.ones(1, 1, 3, dtype=torch.bool)
TRUTH = pixels([3.0, 4, 0], [0, 0, 2], [1, 2, 2])  # norms 5, 2, 3


def random_poses(*shape: int, seed: int = 0) -> Pose:
    turns = Rotation.random(math.prod(shape), rng=seed).as_matrix()
    shifts = np.random.default_rng(seed).normal(size=(*shape, 3))
    return Pose.from_parts(torch.from_numpy(turns).reshape(*shape, 3, 3), torch.from_numpy(shifts))


def random_sets(sets=2, views=3, size=(6, 5), seed=0) -> SetGeometry:
    """Points in front of cameras, consistent between both frames."""
    generator = torch.Generator().manual_seed(seed)
    camera = torch.randn(sets, views, *size, 3, generator=generator, dtype=torch.float64)
    camera = camera + camera.new_tensor([0, 0, 5.0])
    poses = random_poses(sets, views, seed=seed)
    return from_points(poses.apply(camera), camera, poses)


def noisy(geometry: SetGeometry, scale: float, seed: int = 1) -> SetGeometry:
    generator = torch.Generator().manual_seed(seed)

    def add(values):
        return values + scale * torch.randn(values.shape, generator=generator, dtype=torch.float64)

    poses = Pose.from_parts(geometry.poses.rotation, add(geometry.poses.translation))
    return from_points(add(geometry.world_points), add(geometry.camera_points), poses)


def moved(geometry: SetGeometry, motion: Pose, scale: float) -> SetGeometry:
    """The same sets in another world and unit."""
    points = geometry.world_points.flatten(0, -2)
    world = (scale * motion.apply(points)).reshape(geometry.world_points.shape)
    poses = (motion @ geometry.poses).world_from_cam.clone()
    poses[..., :3, 3] *= scale
    return SetGeometry(world, scale * geometry.camera_points, geometry.rays, Pose(poses))


# By hand


def test_relative_error_by_hand():
    predicted = pixels([3.0, 4, 1], [0, 0, 1], [1, 2, 2])
    assert torch.allclose(relative_error(TRUTH, predicted, ALL), torch.tensor([(0.2 + 0.5 + 0) / 3]).double())
    second_only = torch.tensor([[[False, True, False]]])
    assert relative_error(TRUTH, predicted, second_only).item() == 0.5


def test_a_true_point_at_the_origin_is_not_scored():
    truth = pixels([0.0, 0, 0], [0, 0, 2], [0, 0, 4])
    predicted = pixels([9.0, 9, 9], [0, 0, 3], [0, 0, 4])
    assert relative_error(truth, predicted, ALL).item() == 0.25
    assert norm_inliers(truth, predicted, ALL).item() == 0.5


@pytest.mark.parametrize(
    ("length", "inlier"),
    [(1.0, 1), (1.029, 1), (1.031, 0), (1 / 1.029, 1), (1 / 1.031, 0), (0.0, 0), (float("inf"), 0)],
)
def test_inliers_are_a_ratio_of_norms(length, inlier):
    predicted = torch.tensor([0.0, length, 0]).double()[None, None, None]  # in another direction, too
    truth = torch.tensor([0.0, 0, 1.0]).double()[None, None, None]
    assert norm_inliers(truth, predicted, ALL[..., :1]).item() == inlier


def test_rays_in_degrees_by_hand():
    truth = pixels([0.0, 0, 1], [0, 0, 1], [0, 0, 1])
    tiny = 1e-7
    predicted = pixels([0.0, 1, 0], [0, 0, -1], [math.sin(tiny), 0, math.cos(tiny)])
    wanted = (90 + 180 + math.degrees(tiny)) / 3
    assert math.isclose(ray_error_deg(truth, predicted).item(), wanted, rel_tol=1e-12)
    known = torch.tensor([[[False, False, True]]])
    assert math.isclose(ray_error_deg(truth, predicted, known).item(), math.degrees(tiny), rel_tol=1e-6)


def test_depth_along_the_axis_and_along_the_ray():
    assert compute_depth(TRUTH, "z").flatten().tolist() == [0.0, 2.0, 2.0]
    assert compute_depth(TRUTH, "ray").flatten().tolist() == [5.0, 2.0, 3.0]
    with pytest.raises((ValueError, TypeError), match="y"):
        compute_depth(TRUTH, "y")


# Trajectories


def test_two_views_differ_by_half_of_their_baselines():
    truth = torch.tensor([[0.0, 0, 0], [0, 0, 2]])
    for other in ([3.0, 0, 0], [0, 3.0, 0], [0, 0, -3.0]):
        predicted = torch.tensor([[5.0, 5, 5], [5, 5, 5]]) + torch.tensor([[0.0, 0, 0], other])
        assert pose_ate(truth, predicted).item() == pytest.approx(0.5, abs=1e-6)


def test_the_best_motion_is_never_a_reflection():
    truth = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mirrored = truth * torch.tensor([1.0, 1, -1])
    assert pose_ate(truth, mirrored) > 0.1
    turned = random_poses(1)[0].apply(truth)
    assert pose_ate(truth, turned) < 1e-12
    assert torch.allclose(align_rigidly(truth, turned), turned, atol=1e-12)


def test_a_trajectory_without_extent_has_no_error():
    assert pose_ate(torch.zeros(4, 3), torch.ones(4, 3)).item() == pytest.approx(0, abs=1e-6)


@given(st.integers(0, 10**6), st.integers(2, 12))
def test_agrees_with_evo(seed, views):
    trajectory = pytest.importorskip("evo.core.trajectory")
    geometry, metrics = pytest.importorskip("evo.core.geometry"), pytest.importorskip("evo.core.metrics")
    random = np.random.default_rng(seed)
    truth, predicted = random.normal(size=(2, views, 3)) * (1.0, 2.0, 0.5)
    turns = np.tile([1.0, 0, 0, 0], (views, 1))
    paths = [
        trajectory.PosePath3D(positions_xyz=xyz.copy(), orientations_quat_wxyz=turns)
        for xyz in (predicted, truth)
    ]
    try:
        paths[1].align(paths[0], correct_scale=False)
    except (
        geometry.GeometryException
    ) as error:  # evo refuses degenerate covariances, such as those of two views
        assert views == 2, error
        return
    error = metrics.APE(metrics.PoseRelation.translation_part)
    error.process_data(tuple(paths))
    ours = pose_ate(torch.from_numpy(truth), torch.from_numpy(predicted)).item()
    assert ours == pytest.approx(error.get_statistic(metrics.StatisticsType.mean), abs=1e-9)


# Whole sets


def test_agrees_with_released_numbers(shared_vectors):
    given_ = {
        name: torch.from_numpy(value)
        for name, value in np.load(shared_vectors / "reconstruction_metrics.npz").items()
    }
    truth = SetGeometry(
        given_["gt_points"][None],
        given_["gt_camera_points"][None],
        given_["gt_rays"][None],
        Pose(given_["gt_world_from_cam"][None]),
    )
    predicted = from_points(
        given_["points"][None], given_["camera_points"][None], Pose(given_["world_from_cam"][None])
    )
    for kind in ("z", "ray"):
        rows = score_sets(truth, predicted, given_["valid"][None], depth_kind=kind).rows()
        for name in METRICS:
            key = f"value_{name.replace('depth', f'{kind}_depth')}"
            assert rows[name].item() == pytest.approx(given_[key].item(), abs=1e-6), key


@pytest.mark.parametrize("kind", ["z", "ray"])
def test_a_perfect_prediction_in_another_frame_and_unit(kind):
    truth = random_sets()
    valid = torch.rand(2, 3, 6, 5, generator=torch.Generator().manual_seed(3)) < 0.7
    rows = score_sets(truth, moved(truth, random_poses(1, seed=9)[0], 7.3), valid, depth_kind=kind).rows()
    for name in ("points_rel", "rays_deg", "depth_rel", "pose_ate"):
        assert rows[name].abs().max() < 1e-6, name
    assert (rows["points_inlier"] == 1).all() and (rows["depth_inlier"] == 1).all()


@given(st.integers(0, 1000), st.floats(0.1, 10))
def test_frame_and_scale_of_truth_and_prediction_do_not_matter(seed, scale):
    truth = random_sets()
    predicted = noisy(truth, 0.1)
    valid = torch.ones(2, 3, 6, 5, dtype=torch.bool)
    motion = random_poses(1, seed=seed)[0]
    base = score_sets(truth, predicted, valid, depth_kind="ray").rows()
    for pair in ((moved(truth, motion, scale), predicted), (truth, moved(predicted, motion, scale))):
        rows = score_sets(*pair, valid, depth_kind="ray").rows()
        assert all(torch.allclose(rows[name], base[name], atol=1e-9) for name in METRICS)


def test_sets_are_scored_alone():
    truth = random_sets(3)
    predicted, valid = noisy(truth, 0.2), torch.ones(3, 3, 6, 5, dtype=torch.bool)

    def part(geometry, index):
        return SetGeometry(
            geometry.world_points[index],
            geometry.camera_points[index],
            geometry.rays[index],
            geometry.poses[index],
        )

    whole = score_sets(truth, predicted, valid, depth_kind="z")
    parts = [
        score_sets(part(truth, at), part(predicted, at), valid[at], depth_kind="z")
        for at in (slice(0, 1), slice(1, 3))
    ]
    joined = ReconstructionScores.concatenate(parts)
    assert all(torch.allclose(joined.rows()[name], whole.rows()[name]) for name in METRICS)
    assert summarize_sets(whole)["pose_ate"].mean == pytest.approx(whole.pose_ate.mean().item())


def test_a_view_without_a_valid_pixel_is_reported_and_not_averaged():
    truth = random_sets(2)
    predicted, valid = noisy(truth, 0.2), torch.ones(2, 3, 6, 5, dtype=torch.bool)
    valid[1, 2] = False
    scores = score_sets(truth, predicted, valid, depth_kind="ray")
    assert scores.unscored == ((1, 2),)
    assert all(values.isfinite().all() for values in scores.rows().values())
    points = [g.to_first_view().normalize(valid).world_points for g in (truth, predicted)]
    per_view = relative_error(*points, valid)
    assert per_view[1, 2].isnan()
    assert torch.allclose(scores.points_rel[1], per_view[1, :2].mean())
    shifted = ReconstructionScores.concatenate([scores, scores])
    assert shifted.unscored == ((1, 2), (3, 2))


def test_a_set_without_a_valid_pixel_is_left_out_of_the_mean():
    truth = random_sets(2)
    predicted, valid = noisy(truth, 0.2), torch.ones(2, 3, 6, 5, dtype=torch.bool)
    valid[0] = False
    scores = score_sets(truth, predicted, valid, depth_kind="ray")
    assert scores.unscored == ((0, 0), (0, 1), (0, 2))
    assert scores.points_rel[0].isnan() and scores.rays_deg.isfinite().all()
    assert summarize_sets(scores)["points_rel"].mean == pytest.approx(scores.points_rel[1].item())
    # Its poses have no scale: they used to be divided by 1e-8, and 1e8 went into the mean.
    assert scores.pose_ate[0].isnan() and scores.pose_ate[1] < 10
    assert summarize_sets(scores)["pose_ate"].mean == pytest.approx(scores.pose_ate[1].item())


@pytest.mark.parametrize("part", ["world_points", "camera_points", "rays", "poses"])
@pytest.mark.parametrize("whose", ["truth", "prediction"])
def test_what_is_not_finite_is_refused(part, whose):
    """A NaN in a true ray would drop its view from the mean without a word."""
    truth = random_sets(2)
    predicted = noisy(truth, 0.1)
    geometry = truth if whose == "truth" else predicted
    values = geometry.poses.world_from_cam if part == "poses" else getattr(geometry, part)
    values[1, 2].view(-1)[3] = torch.nan
    valid = torch.ones(2, 3, 6, 5, dtype=torch.bool)
    with pytest.raises(ValueError, match=f"the {whose} is not finite in 1 views, first in view 2 of set 1"):
        score_sets(truth, predicted, valid, depth_kind="z")


def test_what_is_invalid_may_be_anything():
    truth = random_sets(1)
    predicted, valid = noisy(truth, 0.1), torch.ones(1, 3, 6, 5, dtype=torch.bool)
    valid[0, 1, 2, 3] = False
    clean = score_sets(truth, predicted, valid, depth_kind="z", known_rays=valid)
    for geometry in (truth, predicted):
        for values in (geometry.world_points, geometry.camera_points, geometry.rays):
            values[0, 1, 2, 3] = torch.nan
    dirty = score_sets(truth, predicted, valid, depth_kind="z", known_rays=valid)
    assert all(torch.equal(clean.rows()[name], dirty.rows()[name]) for name in METRICS)


def test_half_precision_predictions_are_scored_in_full():
    truth = random_sets(1)
    predicted = noisy(truth, 0.3)
    half = from_points(
        predicted.world_points.bfloat16(),
        predicted.camera_points.bfloat16(),
        predicted.poses.to(torch.float32),
    )
    valid = torch.ones(1, 3, 6, 5, dtype=torch.bool)
    same = from_points(half.world_points.double(), half.camera_points.double(), predicted.poses)
    rows, wanted = (score_sets(truth, given_, valid, depth_kind="z").rows() for given_ in (half, same))
    assert all(torch.allclose(rows[name].double(), wanted[name], atol=1e-5) for name in METRICS)


def test_autocast_does_not_reach_scores():
    truth = random_sets(1).to(torch.float32)
    predicted, valid = noisy(truth, 0.1).to(torch.float32), torch.ones(1, 3, 6, 5, dtype=torch.bool)
    wanted = score_sets(truth, predicted, valid, depth_kind="z").rows()
    with torch.autocast("cpu", torch.bfloat16):
        rows = score_sets(truth, predicted, valid, depth_kind="z").rows()
    assert all(torch.equal(rows[name], wanted[name]) for name in METRICS)
