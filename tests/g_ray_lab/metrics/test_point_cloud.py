"""Clouds of points: ICP and normals against Open3D and closed forms, distances against brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.spatial.transform import Rotation

from g_ray_lab.metrics.point_cloud import (
    build_tree,
    estimate_normals,
    find_nearest,
    fit_motion,
    register,
    score_clouds,
    score_pointmaps,
)


def make_surface(seed: int, count: int = 400) -> np.ndarray:
    """Points on a curved, asymmetric surface of about 2 × 2."""
    x, y = np.random.default_rng(seed).uniform(-1, 1, (2, count))
    return np.stack([x, y, 0.3 * np.sin(3 * x) + 0.2 * y * y + 0.1 * x * y], -1)


def make_motion(angle_deg: float, shift: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    axis, direction = (v / np.linalg.norm(v) for v in rng.normal(size=(2, 3)))
    motion = np.eye(4)
    motion[:3, :3] = Rotation.from_rotvec(np.deg2rad(angle_deg) * axis).as_matrix()
    motion[:3, 3] = shift * direction
    return motion


def move(points: np.ndarray, motion: np.ndarray) -> np.ndarray:
    return points @ motion[:3, :3].T + motion[:3, 3]


def make_pair(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two samples of a surface, the first moved a little and noisy, with points far away."""
    source = move(make_surface(seed), make_motion(4, 0.05, seed))
    source = source + np.random.default_rng(seed).normal(0, 0.01, source.shape)
    return np.concatenate([source, source[:20] + 3]), make_surface(seed + 100, 600)


# ICP


def test_icp_undoes_a_small_motion():
    target = make_surface(0)
    motion = make_motion(3, 0.03)
    found = register(move(target, motion), target, limit=0.2)
    assert np.allclose(found.target_from_source, np.linalg.inv(motion), atol=1e-9)
    assert found.fitness == 1 and found.inlier_rmse < 1e-9
    assert np.allclose(found.apply(move(target, motion)), target, atol=1e-9)


OPEN3D_ICP = {
    # seed: fitness, inlier_rmse, target_from_source[0, 3], [1, 3], [2, 3], [1, 0] of Open3D 0.20
    0: (
        0.9380952380952381,
        0.047598370102314956,
        -0.0024732813,
        0.021693951744,
        -0.030402327692,
        -0.04749397462,
    ),
    1: (
        0.9214285714285714,
        0.04772567354632189,
        0.029325237146,
        -0.00143003348,
        -0.011635227958,
        -0.033887630894,
    ),
    2: (
        0.9214285714285714,
        0.04633579850539025,
        0.040254876115,
        0.001001508995,
        -0.019047716212,
        0.03507751146,
    ),
}


@pytest.mark.parametrize("seed", OPEN3D_ICP)
def test_icp_gives_what_open3d_gave(seed):
    source, target = make_pair(seed)
    found = register(source, target, limit=0.1)
    motion = found.target_from_source
    ours = (found.fitness, found.inlier_rmse, *motion[:3, 3], motion[1, 0])
    assert ours == pytest.approx(OPEN3D_ICP[seed], abs=1e-9)


@pytest.mark.parametrize("limit", [0.02, 0.1, 100.0])
@pytest.mark.parametrize("seed", range(3))
def test_icp_agrees_with_open3d(seed, limit):
    o3d = pytest.importorskip("open3d", exc_type=ImportError)
    source, target = make_pair(seed)
    clouds = [o3d.geometry.PointCloud(o3d.utility.Vector3dVector(points)) for points in (source, target)]
    wanted = o3d.pipelines.registration.registration_icp(
        *clouds, limit, np.eye(4), o3d.pipelines.registration.TransformationEstimationPointToPoint()
    )
    found = register(source, target, limit=limit)
    assert np.allclose(found.target_from_source, wanted.transformation, atol=1e-9)
    assert (found.fitness, found.inlier_rmse) == pytest.approx((wanted.fitness, wanted.inlier_rmse), abs=1e-9)


def test_normals_agree_with_open3d():
    o3d = pytest.importorskip("open3d", exc_type=ImportError)
    points = make_pair(0)[0]
    cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(points))
    cloud.estimate_normals()
    agreement = np.abs((np.asarray(cloud.normals) * estimate_normals(points)).sum(-1))
    assert agreement.min() > 1 - 1e-6


def test_points_beyond_the_limit_are_not_matched():
    target = make_surface(0)
    far = register(target + 10, target, limit=0.1)
    assert far.fitness == 0 and far.inlier_rmse == 0 and far.steps == 0
    assert np.array_equal(far.target_from_source, np.eye(4))


def test_nearest_points_within_a_limit():
    """Against all distances: the nearest one where it is below the limit, otherwise none."""
    points, truth = make_surface(1), make_surface(2)
    everything = cdist(points, truth)
    limit = float(np.median(everything.min(1)))
    distance, index = find_nearest(build_tree(truth), points, limit=limit)
    near = everything.min(1) < limit
    assert 0.4 < near.mean() < 0.6
    assert np.allclose(distance[near], everything.min(1)[near]) and np.isinf(distance[~near]).all()
    assert np.array_equal(index[near], everything.argmin(1)[near])


@given(st.integers(0, 10**6), st.integers(3, 20))
def test_the_best_motion_agrees_with_scipy(seed, count):
    source, target = np.random.default_rng(seed).normal(size=(2, count, 3))
    motion = fit_motion(source, target)
    # SciPy warns where the rotation is not unique, which three centered points can bring about.
    wanted, _ = Rotation.align_vectors(target - target.mean(0), source - source.mean(0))
    ours, theirs = (
        np.square((source - source.mean(0)) @ turn.T - (target - target.mean(0))).sum()
        for turn in (motion[:3, :3], wanted.as_matrix())
    )
    assert ours == pytest.approx(theirs, rel=1e-9)
    assert np.linalg.det(motion[:3, :3]) == pytest.approx(1)
    assert np.allclose(move(source, motion).mean(0), target.mean(0))


# Scores


def test_a_similar_cloud_is_perfect():
    truth = make_surface(0)
    predicted = 5 * move(truth, make_motion(120, 7))
    scores = score_pointmaps(truth, predicted, icp_limit=0.1)
    assert scores.acc < 1e-9 and scores.comp < 1e-9
    assert scores.nc == pytest.approx(1) and scores.nc_median == pytest.approx(1)


def test_gaps_count_in_completeness():
    truth = make_surface(0)
    half = truth[truth[:, 0] > 0]
    scores = score_pointmaps(half, half, icp_limit=0.1, surface=truth)
    assert scores.acc < 1e-9 and scores.comp > 0.2
    assert score_pointmaps(half, half, icp_limit=0.1).comp < 1e-9


def test_distances_agree_with_brute_force():
    predicted, truth = make_pair(3)
    scores = score_clouds(truth, predicted)
    between = cdist(predicted, truth)
    assert scores.acc == pytest.approx(between.min(1).mean())
    assert scores.acc_median == pytest.approx(np.median(between.min(1)))
    assert scores.comp == pytest.approx(between.min(0).mean())
    assert scores.comp_median == pytest.approx(np.median(between.min(0)))


def test_a_parallel_plane_is_at_its_distance():
    grid = np.stack(np.meshgrid(np.arange(20.0), np.arange(20.0), [0.0]), -1).reshape(-1, 3)
    scores = score_clouds(grid, grid + np.array([0, 0, 0.25]))
    assert scores.acc == scores.comp == scores.acc_median == scores.comp_median == 0.25
    assert scores.nc == pytest.approx(1)


def test_normals_of_crossed_planes_disagree():
    x, y = np.meshgrid(np.linspace(-1, 1, 300), np.linspace(-0.01, 0.01, 4))
    floor = np.stack([x, y, 0 * x], -1).reshape(-1, 3)
    wall = np.stack([x, 0 * x, y], -1).reshape(-1, 3)
    assert score_clouds(floor, wall).nc < 1e-6


@given(st.integers(0, 10**6))
def test_normals_of_a_plane(seed):
    rng = np.random.default_rng(seed)
    turn = Rotation.random(rng=seed).as_matrix()
    points = np.concatenate([rng.normal(size=(50, 2)), np.zeros((50, 1))], 1) @ turn.T
    assert np.allclose(np.abs(estimate_normals(points) @ turn[:, 2]), 1)


def test_what_cannot_be_scored_is_refused():
    points = make_surface(0)
    with pytest.raises(ValueError, match="5 true points: at least 30"):
        score_pointmaps(points[:5], points[:5], icp_limit=0.1)
    with pytest.raises(ValueError, match="at the same pixels"):
        score_pointmaps(points, points[:100], icp_limit=0.1)
    broken = points.copy()
    broken[3, 1] = np.inf
    with pytest.raises(ValueError, match="1 of 400 predicted points are not finite"):
        score_pointmaps(points, broken, icp_limit=0.1)
    with pytest.raises(ValueError, match="coincide"):
        score_pointmaps(points, np.ones_like(points), icp_limit=0.1)
    with pytest.raises(ValueError, match="must be above 0"):
        register(points, points, limit=0.0)
