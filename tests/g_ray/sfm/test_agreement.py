"""Epipolar distances against pixels that are moved by a known amount."""

import torch

from g_ray.geometry.pose import Pose
from g_ray.sfm.diagnosis import measure_epipolar_px

FLOAT64 = torch.float64
POSE = Pose.look_at([0.5, 0.1, 0.0], [0.0, 0.0, 3.0]).to(FLOAT64)  # world (first camera) from the second


def _make_rays(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(50, 3, generator=generator, dtype=FLOAT64) + torch.tensor([0.0, 0.0, 5.0])
    rays = (points, POSE.inverse().apply(points))
    return torch.nn.functional.normalize(rays[0], dim=-1), torch.nn.functional.normalize(rays[1], dim=-1)


def test_true_poses_have_no_error():
    assert float(measure_epipolar_px(*_make_rays(), POSE.inverse(), 500.0, 500.0).max()) < 1e-6


def test_error_is_the_distance_in_pixels():
    """A ray that leaves its epipolar plane by 2 px, seen with the same resolution on both sides, is 2/√2 px off."""
    first, second = _make_rays()
    center = POSE.inverse().translation.expand_as(second)
    normal = torch.nn.functional.normalize(torch.linalg.cross(center, second), dim=-1)
    moved = torch.nn.functional.normalize(second + 2 / 500 * normal, dim=-1)
    error = measure_epipolar_px(first, moved, POSE.inverse(), 500.0, 500.0)
    assert torch.allclose(error, torch.full_like(error, 2**0.5), rtol=0.2)


def test_points_behind_a_camera_disagree():
    """A baseline of the opposite direction has the same epipolar lines, but rays meet behind the cameras."""
    backward = POSE.inverse()
    backward = Pose.from_parts(backward.rotation, -backward.translation)
    error = measure_epipolar_px(*_make_rays(), backward, 500.0, 500.0)
    assert float((error > 100).double().mean()) > 0.9


def test_cameras_in_one_place_compare_rays():
    first, _ = _make_rays()
    turned = Pose.from_parts(POSE.rotation, torch.zeros(3, dtype=FLOAT64))
    assert float(measure_epipolar_px(first, first @ turned.rotation.mT, turned, 500.0, 500.0).max()) < 1e-6
