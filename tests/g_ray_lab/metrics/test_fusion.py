"""Depth fusion: a sphere through several lenses, closed surfaces, Open3D's volume, and F-scores by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import KDTree
from scipy.spatial.transform import Rotation

from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity
from g_ray.mesh.depth_fusion import (
    BLOCK,
    REACH,
    DepthView,
    TsdfVolume,
    extract_triangles,
    fuse_depth,
    pack_keys,
    unpack_keys,
)
from g_ray_lab.metrics.point_cloud import sample_triangles, thin_out
from g_ray_lab.metrics.tsdf import (
    DA3_BENCH,
    FusionSettings,
    align_robustly,
    align_views,
    compare_surfaces,
    fuse_to_points,
    score_fusion,
)

LENSES = {
    "pinhole": Pinhole.from_fov(50, 96, 96, dtype=torch.float64),
    "fisheye": OpenCVFisheye.make(
        96, 96, fx=100.0, fy=100.0, cx=47.0, cy=48.5, k1=0.05, k2=-0.01, k3=0.0, k4=0.0, dtype=torch.float64
    ),
}
SETTINGS = FusionSettings(voxel=0.05, truncation=0.2, threshold=0.1, scoring_voxel=0.05, samples=20_000)
EYES = [(0, 0, -3), (0, 0, 3), (3, 0, 0.1), (-3, 0, 0.1), (0.1, 3, 0.1), (0.1, -3, 0.1)]


def look_at_ball(camera, eye) -> DepthView:
    """The unit ball at the origin, with exact depth."""
    down = (0.0, 0.0, 1.0) if abs(eye[1]) > 2 else (0.0, 1.0, 0.0)
    pose = Pose.look_at(torch.tensor(eye, dtype=torch.float64), (0.0, 0.0, 0.0), down)
    rays, known = camera.unproject_grid()
    directions = rays @ pose.rotation.mT
    along = -(directions @ pose.translation)
    under_root = along.square() - pose.translation.square().sum() + 1
    hit = known & (under_root > 0)
    return DepthView(camera, pose, torch.where(hit, along - under_root.clamp(min=0).sqrt(), 0.0), hit)


def look_from_all_sides(name: str = "pinhole") -> list[DepthView]:
    return [look_at_ball(LENSES[name], eye) for eye in EYES]


def stack_poses(views) -> Pose:
    return Pose(torch.stack([view.pose.world_from_cam for view in views]))


def sample_ball(count: int = 20_000) -> np.ndarray:
    points = np.random.default_rng(0).normal(size=(count, 3))
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


# Volume and surface


@pytest.mark.parametrize("name", LENSES)
def test_a_ball_through_any_lens(name):
    volume = fuse_depth(look_from_all_sides(name), voxel=0.05, truncation=0.2)
    triangles = extract_triangles(volume)
    radius = np.linalg.norm(triangles.reshape(-1, 3), axis=-1)
    # Near the rims depth is seen under flat angles, where pixels of different depth lie side by side.
    error_voxels = np.abs(radius - 1) / volume.voxel
    assert np.median(error_voxels) < 0.1 and np.quantile(error_voxels, 0.95) < 0.6
    nearest, _ = KDTree(triangles.mean(1)).query(sample_ball(500))
    assert nearest.max() < 0.1, "all sides are there"


def make_ball_volume(radius: float, center: np.ndarray, voxel: float) -> TsdfVolume:
    """Exact distances to a ball, in blocks around the origin on all sides of it."""
    blocks = torch.cartesian_prod(*[torch.arange(-1, 1)] * 3)
    keys, order = pack_keys(blocks).sort()
    cell = torch.stack(torch.meshgrid(*[torch.arange(BLOCK)] * 3, indexing="ij"), -1)
    places = (blocks[order][:, None, None, None] * BLOCK + cell + 0.5).double() * voxel
    distance = (places - torch.from_numpy(center)).norm(dim=-1) - radius
    return TsdfVolume(voxel, keys, distance.clamp(-1, 1).float(), torch.ones(distance.shape))


@pytest.mark.parametrize(("seed", "radius"), [(0, 0.3), (1, 0.55)])
def test_the_surface_of_a_ball_is_closed(seed, radius):
    """Every edge belongs to two triangles, also across blocks; area and volume are those of the ball."""
    center = np.random.default_rng(seed).uniform(-0.1, 0.1, 3)
    triangles = extract_triangles(make_ball_volume(radius, center, 1 / 20))
    sides = triangles[:, 1:] - triangles[:, :1]
    normals = np.cross(sides[:, 0], sides[:, 1])
    areas = np.linalg.norm(normals, axis=-1) / 2
    assert areas.sum() == pytest.approx(4 * math.pi * radius**2, rel=0.02)
    # Cones from the center over all triangles fill the ball.
    solid = np.abs(((triangles.mean(1) - center) * normals).sum(-1) / 6).sum()
    assert solid == pytest.approx(4 / 3 * math.pi * radius**3, rel=0.02)
    corners = triangles[areas > 1e-12].reshape(-1, 3).round(6)
    _, index = np.unique(corners, axis=0, return_inverse=True)
    index = index.reshape(-1, 3)
    index = index[(index != np.roll(index, 1, axis=1)).all(1)]
    edges = np.sort(np.concatenate([index[:, [0, 1]], index[:, [1, 2]], index[:, [2, 0]]]), axis=1)
    _, count = np.unique(edges, axis=0, return_counts=True)
    assert (count % 2 == 0).mean() > 0.999


def test_unseen_voxels_make_no_surface():
    volume = make_ball_volume(0.5, np.zeros(3), 1 / 20)
    hidden = TsdfVolume(volume.voxel, volume.keys, volume.distance, torch.zeros_like(volume.weight))
    assert len(extract_triangles(hidden)) == 0
    half = volume.weight.clone()
    half[:, : BLOCK // 2] = 0
    part = extract_triangles(TsdfVolume(volume.voxel, volume.keys, volume.distance, half))
    assert 0 < len(part) < len(extract_triangles(volume))


@given(st.lists(st.tuples(*[st.integers(-REACH, REACH - 1)] * 3), min_size=1, max_size=20))
def test_keys_are_one_to_one(blocks):
    blocks = torch.tensor(blocks)
    assert torch.equal(unpack_keys(pack_keys(blocks)), blocks)


def test_a_mean_of_views_is_between_them():
    """Two views that see a wall at 1.9 and at 2.1 m agree on 2.0 m."""
    camera = Pinhole.from_fov(40, 64, 64, dtype=torch.float64)
    rays, valid = camera.unproject_grid()
    views = [
        DepthView(camera, Pose.identity(dtype=torch.float64), z / rays[..., 2], valid) for z in (1.9, 2.1)
    ]
    heights = extract_triangles(fuse_depth(views, voxel=0.05, truncation=0.3))[..., 2]
    assert np.abs(heights - 2).max() < 0.01


def test_depth_is_limited_along_the_axis():
    view = look_at_ball(LENSES["pinhole"], EYES[0])
    rays, _ = view.camera.unproject_grid()
    limited = view.limit_depth(2.2)
    assert bool(limited.valid.any()) and not torch.equal(limited.valid, view.valid)
    assert float((limited.ray_depth * rays[..., 2])[limited.valid].max()) <= 2.2


def test_what_cannot_be_fused_is_refused(monkeypatch):
    view = look_at_ball(LENSES["pinhole"], EYES[0])
    with pytest.raises(ValueError, match="nothing to fuse"):
        fuse_depth([replace(view, valid=torch.zeros_like(view.valid))], voxel=0.05, truncation=0.2)
    with pytest.raises(ValueError, match="no smaller"):
        fuse_depth([view], voxel=0.05, truncation=0.01)
    with pytest.raises(ValueError, match="finite and above 0"):
        replace(view, valid=torch.ones_like(view.valid))
    with pytest.raises(ValueError, match="10×10 px for a camera of 96×96"):
        DepthView(view.camera, view.pose, torch.ones(10, 10), torch.ones(10, 10, dtype=torch.bool))
    with pytest.raises(ValueError, match="too far"):
        fuse_depth([replace(view, ray_depth=view.ray_depth * 1e9)], voxel=0.05, truncation=0.2)
    monkeypatch.setattr("g_ray.mesh.depth_fusion.MAX_BLOCKS", 10)
    with pytest.raises(ValueError, match="more than 10: limit depths"):
        fuse_depth(look_from_all_sides(), voxel=0.05, truncation=0.2)


# Points


def test_points_are_drawn_by_area():
    small = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    large = np.array([[0.0, 0, 5], [3, 0, 5], [0, 1, 5]])
    points = sample_triangles(np.stack([small, large]), 40_000)
    on_large = points[:, 2] == 5
    assert on_large.mean() == pytest.approx(0.75, abs=0.01)
    assert points[~on_large].mean(0) == pytest.approx(small.mean(0), abs=0.01)
    assert (points[~on_large][:, :2].sum(-1) <= 1 + 1e-12).all()
    assert len(sample_triangles(np.zeros((3, 3, 3)), 10)) == 0


@given(st.integers(0, 10**6), st.integers(1, 60))
def test_thinning_averages_the_points_of_a_voxel(seed, count):
    points = np.random.default_rng(seed).uniform(-1, 1, (count, 3))
    voxel = 0.5
    groups: dict[tuple, list] = {}
    for point in points:
        groups.setdefault(tuple(np.floor((point - (points.min(0) - voxel / 2)) / voxel)), []).append(point)
    wanted = np.array([np.mean(group, axis=0) for _, group in sorted(groups.items())])
    assert np.allclose(thin_out(points, voxel), wanted)


def test_f_score_by_hand():
    """Of four predicted points three are right; of four true points two are found."""
    settings = replace(SETTINGS, threshold=0.5, scoring_voxel=0.01)
    truth = np.array([[0.0, 0, 0], [10, 0, 0], [20, 0, 0], [30, 0, 0]])
    predicted = np.array([[0.1, 0, 0], [-0.1, 0, 0], [10, 0.2, 0], [50, 0, 0]])
    scores = compare_surfaces(truth, predicted, settings)
    assert (scores.precision, scores.recall) == (0.75, 0.5)
    assert scores.f_score == pytest.approx(2 * 0.75 * 0.5 / 1.25)
    assert scores.acc == pytest.approx((0.1 + 0.1 + 0.2 + 20) / 4)
    assert scores.comp == pytest.approx((0.1 + 0.2 + math.hypot(10, 0.2) + 20) / 4)
    assert scores.overall == pytest.approx((scores.acc + scores.comp) / 2)
    cropped = compare_surfaces(truth, predicted, replace(settings, crop_margin=0.3))
    assert cropped.precision == 1 and cropped.recall == 0.5
    nothing = compare_surfaces(truth, np.zeros((0, 3)), settings)
    assert nothing.f_score == nothing.precision == nothing.recall == 0 and math.isinf(nothing.acc)


# Alignment


def random_similarity(seed: int) -> Similarity:
    rng = np.random.default_rng(seed)
    return Similarity(
        torch.tensor(rng.uniform(0.1, 10)),
        torch.from_numpy(Rotation.random(rng=seed).as_matrix()),
        torch.from_numpy(rng.normal(size=3)),
    )


def random_poses(views: int, seed: int = 0) -> Pose:
    turns = torch.from_numpy(Rotation.random(views, rng=seed).as_matrix())
    return Pose.from_parts(turns, torch.from_numpy(np.random.default_rng(seed).normal(size=(views, 3))))


@given(st.integers(0, 10**6), st.integers(4, 12))
def test_poses_are_aligned_exactly(seed, views):
    truth = random_poses(views, seed)
    wanted = random_similarity(seed)
    found = align_robustly(wanted.transform_pose(truth), truth)
    assert found.scale.item() == pytest.approx(wanted.scale.item(), rel=1e-6)
    assert torch.allclose(found.rotation, wanted.rotation, atol=1e-6)


def test_a_view_in_the_wrong_place_does_not_turn_the_others():
    truth = random_poses(9)
    moved = truth.world_from_cam.clone()
    moved[4, :3, 3] += 40
    found = align_robustly(truth, Pose(moved))
    assert found.scale.item() == pytest.approx(1, abs=1e-6)
    assert torch.allclose(found.rotation, torch.eye(3).double(), atol=1e-6)


def test_two_views_fix_no_alignment():
    with pytest.raises(ValueError, match="2 points do not fix a similarity"):
        align_robustly(random_poses(2), random_poses(2, 1))


# Whole scores


def test_a_perfect_prediction_in_another_world_and_unit():
    truth, views = sample_ball(), look_from_all_sides()
    similarity = random_similarity(3)
    inverse_scale = float(similarity.scale)
    predicted = [
        replace(view, pose=similarity.transform_pose(view.pose), ray_depth=view.ray_depth * inverse_scale)
        for view in views
    ]
    poses = stack_poses(views)
    scores = score_fusion(truth, predicted, poses, SETTINGS)
    assert scores.f_score > 0.99 and scores.acc < 0.02 and scores.comp < 0.03
    for ours, theirs in zip(align_views(predicted, poses), views, strict=True):
        assert torch.allclose(ours.ray_depth, theirs.ray_depth)
        assert torch.allclose(ours.pose.world_from_cam, theirs.pose.world_from_cam, atol=1e-6)


def test_a_wrong_depth_lowers_the_score():
    """A ball seen 10 % too near has a surface farther out than the threshold everywhere in its middle."""
    truth, views = sample_ball(), look_from_all_sides()
    wrong = [replace(view, ray_depth=0.9 * view.ray_depth) for view in views]
    scores = score_fusion(truth, wrong, stack_poses(views), SETTINGS)
    assert scores.f_score < 0.3 and scores.acc > 0.1


def test_the_published_settings_are_there():
    assert DA3_BENCH["eth3d"].voxel == pytest.approx(0.039, abs=1e-4)
    assert DA3_BENCH["7scenes"].voxel == pytest.approx(0.0078, abs=1e-4)
    assert {name: one.threshold for name, one in DA3_BENCH.items()} == {
        "eth3d": 0.25,
        "7scenes": 0.05,
        "scannetpp": 0.05,
    }


def fuse_by_open3d(views: list[DepthView], settings: FusionSettings) -> np.ndarray:
    o3d = pytest.importorskip("open3d", exc_type=ImportError)
    # Its dense volume: the same voxels as ours, which begin at a multiple of the voxel's side.
    side = 80 * settings.voxel
    volume = o3d.pipelines.integration.UniformTSDFVolume(
        length=side,
        resolution=80,
        sdf_trunc=settings.truncation,
        color_type=o3d.pipelines.integration.TSDFVolumeColorType.RGB8,
        origin=np.full(3, -side / 2),
    )
    for view in views:
        rays, _ = view.camera.unproject_grid()
        z = (view.ray_depth * rays[..., 2]).float().numpy()
        fx, fy, cx, cy, _ = view.camera.params.tolist()
        # Open3D has pixel centers at whole numbers.
        lens = o3d.camera.PinholeCameraIntrinsic(
            view.camera.width, view.camera.height, fx, fy, cx - 0.5, cy - 0.5
        )
        gray = o3d.geometry.Image(np.zeros((*z.shape, 3), dtype=np.uint8))
        image = o3d.geometry.RGBDImage.create_from_color_and_depth(
            gray, o3d.geometry.Image(z), depth_scale=1.0, depth_trunc=100.0, convert_rgb_to_intensity=False
        )
        volume.integrate(image, lens, view.pose.cam_from_world.numpy())
    mesh = volume.extract_triangle_mesh()
    return np.asarray(mesh.vertices)[np.asarray(mesh.triangles)]


def test_agrees_with_open3d():
    views = look_from_all_sides()
    theirs = sample_triangles(fuse_by_open3d(views, SETTINGS), SETTINGS.samples)
    ours = fuse_to_points(views, SETTINGS)
    between = compare_surfaces(theirs, ours, replace(SETTINGS, threshold=SETTINGS.voxel))
    assert between.acc < 0.5 * SETTINGS.voxel and between.comp < 0.5 * SETTINGS.voxel
    truth = sample_ball()
    scores = [
        compare_surfaces(truth, points, replace(SETTINGS, threshold=0.03)).rows() for points in (ours, theirs)
    ]
    for name in scores[0]:
        assert scores[0][name] == pytest.approx(scores[1][name], abs=0.02), name
