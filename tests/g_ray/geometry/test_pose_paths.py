"""Paths of a camera: ends, steps, what is looked at, and rotations at any angle."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from g_ray.geometry.pose import Pose
from g_ray.synthesis.trajectories import (
    find_focus_point,
    interpolate_poses,
    orbit_poses,
    rotation_from_vector,
    vector_from_rotation,
)

AXES = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0.6, 0, 0.8]], dtype=torch.float64)


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 1.0, 3.0, torch.pi - 1e-7])
def test_rotation_vectors_undo_rotations(angle):
    assert torch.allclose(vector_from_rotation(rotation_from_vector(angle * AXES)), angle * AXES, atol=1e-7)


def test_half_a_turn_is_found_up_to_its_sign():
    found = vector_from_rotation(rotation_from_vector(torch.pi * AXES))
    assert torch.allclose(rotation_from_vector(found), rotation_from_vector(torch.pi * AXES), atol=1e-9)


@given(st.lists(st.floats(-1.7, 1.7), min_size=3, max_size=3))
def test_rotations_are_rotations(vector):
    matrix = rotation_from_vector(torch.tensor(vector, dtype=torch.float64))
    assert torch.allclose(matrix @ matrix.mT, torch.eye(3, dtype=torch.float64), atol=1e-12)
    assert torch.linalg.det(matrix) > 0
    assert torch.allclose(vector_from_rotation(matrix), torch.tensor(vector, dtype=torch.float64), atol=1e-9)


def looking(eyes):
    eyes = torch.tensor(eyes, dtype=torch.float64)
    return Pose.look_at(eyes, torch.tensor([0.5, 0.2, 4.0], dtype=torch.float64).expand(eyes.shape))


def test_interpolation_goes_through_its_poses_at_an_even_pace():
    poses = looking([[-1.0, 0, 0], [1.0, 0.2, 0], [2.0, 0, 1.0]])
    path = interpolate_poses(poses, 9)
    assert torch.allclose(path.world_from_cam[[0, 4, 8]], poses.world_from_cam, atol=1e-12)
    steps = path.translation.diff(dim=0).norm(dim=-1)
    turns = vector_from_rotation(path.rotation[:-1].mT @ path.rotation[1:]).norm(dim=-1)
    for part in (slice(0, 4), slice(4, 8)):
        assert torch.allclose(steps[part], steps[part][:1]) and torch.allclose(turns[part], turns[part][:1])
    with pytest.raises(ValueError, match="at least two"):
        interpolate_poses(poses[:1], 5)


def test_an_orbit_keeps_its_distance_its_aim_and_its_angle():
    poses = looking([[-1.0, 0, 0], [1.0, 0, 0]])
    focus = find_focus_point(poses)
    assert torch.allclose(focus, torch.tensor([0.5, 0.2, 4.0], dtype=torch.float64))
    path = orbit_poses(poses, 7, 40)
    arms = path.translation - focus
    assert torch.allclose(arms.norm(dim=-1), arms[:1].norm(dim=-1).expand(7))
    assert torch.allclose(path.rotation[..., 2], torch.nn.functional.normalize(-arms, dim=-1), atol=1e-9)
    assert torch.allclose(path.translation[3], poses.translation.mean(0), atol=1e-9)
    down = torch.nn.functional.normalize(poses.rotation[..., 1].mean(0), dim=0)
    flat = torch.nn.functional.normalize(arms - (arms @ down)[:, None] * down, dim=-1)
    assert torch.rad2deg((flat[0] @ flat[-1]).acos()).item() == pytest.approx(40)


@pytest.mark.parametrize(
    ("poses", "message"),
    [
        (Pose.identity(1, dtype=torch.float64), "side by side"),
        (Pose.identity(3, dtype=torch.float64), "side by side"),
        (
            Pose.look_at(
                torch.tensor([[-1.0, 0, 0], [1.0, 0, 0]], dtype=torch.float64),
                torch.tensor([[-3.0, 0, 2], [3.0, 0, 2]], dtype=torch.float64),
            ),
            "look away from each other",
        ),
    ],
)
def test_no_orbit_without_a_point(poses, message):
    with pytest.raises(ValueError, match=message):
        orbit_poses(poses, 5, 30)
