"""Poses in the world that encodings which compare poses expect, and the warning where they are not."""

import warnings

import pytest
import torch

from g_ray.encodings import ENCODINGS, encoding
from g_ray.geometry.pose import Pose, normalize_poses
from g_ray.rays.views import Views

POSE_BASED = [name for name in ENCODINGS if encoding(name, 48).compares_poses]


def random_poses(*shape: int, spread: float = 30.0) -> Pose:
    eyes = torch.randn(*shape, 3, dtype=torch.float64) * spread
    return Pose.look_at(eyes, eyes + torch.randn_like(eyes))


def test_first_camera_is_the_world_and_the_farthest_is_at_the_radius():
    poses = random_poses(2, 5)
    normalized, scale = normalize_poses(poses, radius=0.5)
    assert torch.allclose(normalized.world_from_cam[:, 0], torch.eye(4).double(), atol=1e-12)
    assert torch.allclose(normalized.translation.norm(dim=-1).amax(-1), torch.full((2,), 0.5).double())
    expected = 0.5 / (poses.translation - poses.translation[:, :1]).norm(dim=-1).amax(-1)
    assert torch.allclose(scale, expected)


def test_scaled_depths_give_the_same_scene():
    """A point on a ray of one camera has the same pixel in another one before and after."""
    poses = random_poses(3)
    point = poses[1].apply(torch.tensor([0.3, -0.2, 7.0], dtype=torch.float64))
    normalized, scale = normalize_poses(poses)
    again = normalized[1].apply(scale * torch.tensor([0.3, -0.2, 7.0], dtype=torch.float64))
    before, after = poses[2].inverse().apply(point), normalized[2].inverse().apply(again)
    assert torch.allclose(scale * before, after, atol=1e-10)


def test_cameras_in_one_place_keep_their_scale():
    normalized, scale = normalize_poses(Pose(random_poses(1).world_from_cam.expand(3, 4, 4)))
    assert scale == 1.0 and normalized.translation.abs().max() < 1e-9


def test_coordinates_of_a_national_grid_keep_their_digits():
    eyes = torch.tensor([[500_000.0, 5_400_000.0, 300.0], [500_000.5, 5_400_000.0, 300.0]])
    poses = Pose.from_parts(torch.eye(3).expand(2, 3, 3), eyes)
    normalized, scale = normalize_poses(poses)
    assert normalized.dtype == torch.float32
    assert normalized.translation[1].tolist() == [1.0, 0.0, 0.0] and scale == 2.0


@pytest.mark.parametrize("name", ENCODINGS)
def test_distant_cameras_are_warned_of_by_encodings_that_compare_poses(name, mixed_views):
    views = mixed_views(lenses=("wide", "tele"), batch=1)
    far = Views(views.cameras, views.poses.scale_translation(100.0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encoding(name, 48).prepare(far.tokens(16))
    assert bool(caught) == (name in POSE_BASED)
    assert all("normalize_poses" in str(one.message) for one in caught)
    near = Views(views.cameras, normalize_poses(far.poses)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoding(name, 48).prepare(near.tokens(16))
