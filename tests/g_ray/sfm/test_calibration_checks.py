"""Whether lenses and poses are right, from tracks with known noise."""

from dataclasses import replace

import pytest
import torch

from g_ray.cameras import OpenCV, Pinhole
from g_ray.geometry.pose import Pose
from g_ray.sfm.lens_check import check_lenses
from g_ray.sfm.pose_uncertainty import measure_excess_px, sample_poses
from g_ray.sfm.refinement import adjust_scene, arrange_frames, make_scene_problem
from g_ray.sfm.sfm_options import SfMOptions
from g_ray.sfm.sparse_scene import SparseScene, Tracks

WIDTH, HEIGHT, FOCAL = 640, 480, 500.0
MIDDLE = {"cx": WIDTH / 2, "cy": HEIGHT / 2, "dtype": torch.float64}
TRUE = OpenCV.make(WIDTH, HEIGHT, fx=FOCAL, fy=FOCAL, k1=-0.05, **MIDDLE)
OPTIONS = SfMOptions(threads=1)


def make_tracks(
    lens=TRUE, views: int = 6, step: float = 0.5, noise_px: float = 0.3, seed: int = 0
) -> SparseScene:
    """Points in a box before cameras on an arc, observed through TRUE with noise, then adjusted with `lens`."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(800, 3, generator=generator, dtype=torch.float64) * 4 - 2
    eyes = [torch.tensor([step * i - 1, 0.4 * (i % 2) * step, -5 + 0.3 * step * i]) for i in range(views)]
    poses = [Pose.look_at(eye.double(), torch.zeros(3, dtype=torch.float64)) for eye in eyes]
    parts = []
    for index, pose in enumerate(poses):
        pixel, imaged = TRUE.project(pose.inverse().apply(points))
        rows = (imaged & TRUE.contains(pixel)).nonzero()[:, 0]
        noise = noise_px * torch.randn(len(rows), 2, generator=generator, dtype=torch.float64)
        parts.append((torch.full_like(rows, index), rows, pixel[rows] + noise))
    view, point, pixel = (torch.cat(column) for column in zip(*parts, strict=True))
    tracks = Tracks(view, point, pixel, torch.zeros(len(view), 128, dtype=torch.uint8))
    scene = SparseScene(
        tuple(f"v{i}.png" for i in range(views)),
        (lens,) * views,
        tuple(poses),
        (None,) * views,
        points,
        torch.zeros(len(points), 3, dtype=torch.uint8),
        tracks,
    )
    frames = arrange_frames(scene)
    everything = torch.ones(len(points), dtype=torch.bool)
    return adjust_scene(
        scene, make_scene_problem(scene, OPTIONS, frames), frames, OPTIONS, everything, loss_factor=5.0
    )


def test_a_right_lens_is_not_doubted():
    check = check_lenses(make_tracks(), OPTIONS)
    assert check is not None and not check.contradicts and not check.undecided
    assert check.better_px == pytest.approx(FOCAL, rel=0.02)


@pytest.mark.parametrize(
    "wrong",
    [
        OpenCV.make(WIDTH, HEIGHT, fx=0.7 * FOCAL, fy=0.7 * FOCAL, k1=-0.05, **MIDDLE),
        OpenCV.make(WIDTH, HEIGHT, fx=1.3 * FOCAL, fy=1.3 * FOCAL, k1=-0.05, **MIDDLE),
        OpenCV.make(WIDTH, HEIGHT, fx=FOCAL, fy=FOCAL, k1=0.3, **MIDDLE),
        OpenCV.make(WIDTH, HEIGHT, fx=FOCAL, fy=FOCAL, k1=-0.05, **(MIDDLE | {"cx": WIDTH / 2 + 60})),
        Pinhole.make(WIDTH, HEIGHT, fx=0.7 * FOCAL, fy=0.7 * FOCAL, **MIDDLE),
    ],
    ids=["shorter", "longer", "distortion", "center", "pinhole"],
)
def test_a_wrong_lens_is_found_and_the_better_one_named(wrong):
    check = check_lenses(make_tracks(wrong), OPTIONS)
    assert check is not None and check.contradicts
    assert check.better_px == pytest.approx(FOCAL, rel=0.05)
    assert check.free_px < check.given_px


def test_a_lens_without_a_model_in_colmap_and_few_tracks_are_not_checked():
    scene = make_tracks()
    few = replace(
        scene,
        tracks=scene.tracks.select(scene.tracks.point < 20),
        points=scene.points[:20],
        colors=scene.colors[:20],
    )
    assert check_lenses(few, OPTIONS) is None


def measure_depth_spread(scene, poses):
    """Relative changes of the distance between the first and the last camera, in units of that to the scene."""
    centers = poses[..., :3, 3]
    return (centers[..., -1, :] - centers[..., 0, :]).norm(dim=-1)


def test_drawn_poses_spread_as_estimates_do():
    """The distance of two cameras over many draws of noise against the spread that one of them predicts."""
    scenes = [make_tracks(seed=0, noise_px=0.5)]
    drawn = measure_depth_spread(scenes[0], sample_poses(scenes[0], OPTIONS))
    narrow = make_tracks(seed=0, noise_px=0.5, step=0.05)
    tiny = measure_depth_spread(narrow, sample_poses(narrow, OPTIONS))
    size = measure_depth_spread(scenes[0], torch.stack([pose.world_from_cam for pose in scenes[0].poses]))
    small = measure_depth_spread(narrow, torch.stack([pose.world_from_cam for pose in narrow.poses]))
    assert 1e-4 < float(drawn.std() / size) < 0.02
    assert float(tiny.std() / small) > 4 * float(drawn.std() / size)


def test_errors_of_given_poses_are_measured():
    scene = make_tracks(noise_px=0.3)
    assert measure_excess_px(scene, OPTIONS) < 0.1
    generator = torch.Generator().manual_seed(3)
    shifts = 0.03 * torch.randn(6, 3, generator=generator, dtype=torch.float64)
    moved = [
        Pose.from_parts(pose.rotation, pose.translation + shift)
        for pose, shift in zip(scene.poses, shifts, strict=True)
    ]
    wrong = replace(scene, poses=tuple(moved))
    assert measure_excess_px(wrong, OPTIONS) > 0.5
    exact = sample_poses(scene, OPTIONS, measured=True)[:, :, :3, 3].std(0).mean()
    assert sample_poses(wrong, OPTIONS, measured=True)[:, :, :3, 3].std(0).mean() > 3 * exact
