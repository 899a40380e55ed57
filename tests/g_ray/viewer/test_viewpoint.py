"""Which way is up, and where a scene is looked at from first."""

import numpy as np
import pytest
import torch

from g_ray.geometry.pose import Pose
from g_ray.viewer.viewpoint import choose_viewpoint, compute_up, make_upright_basis


def ring(count, up, radius=2.0):
    """Cameras around the origin that look at it, upright along `up`."""
    basis = make_upright_basis(np.array(up))
    angles = np.linspace(0, 2 * np.pi, count, endpoint=False)
    eyes = radius * (np.cos(angles)[:, None] * basis[:, 0] + np.sin(angles)[:, None] * basis[:, 2])
    poses = []
    for eye in eyes:
        forward = -eye / radius
        rotation = np.stack([np.cross(-np.array(up), forward), -np.array(up), forward], 1)
        poses.append(Pose.from_parts(torch.from_numpy(rotation), torch.from_numpy(eye)))
    return poses


@pytest.mark.parametrize("up", [(0.0, -1.0, 0.0), (0.0, 0.0, 1.0), (0.6, 0.0, 0.8)])
def test_up_is_that_of_the_cameras(up):
    assert compute_up(ring(8, up)) == pytest.approx(np.array(up))
    basis = make_upright_basis(np.array(up))
    assert basis.T @ basis == pytest.approx(np.eye(3), abs=1e-12) and np.linalg.det(basis) == pytest.approx(1)
    assert basis[:, 1] == pytest.approx(-np.array(up))


def test_cameras_that_look_down_are_level_all_the_same():
    """A level camera pans over 90° and looks 40° down; the mean of its up directions leans by about 37°."""
    poses = []
    pitch = np.radians(-40)
    tilt = np.array([[1, 0, 0], [0, np.cos(pitch), -np.sin(pitch)], [0, np.sin(pitch), np.cos(pitch)]])
    for yaw in np.radians(np.linspace(-45, 45, 9)):
        pan = np.array([[np.cos(yaw), 0, np.sin(yaw)], [0, 1, 0], [-np.sin(yaw), 0, np.cos(yaw)]])
        poses.append(Pose.from_parts(torch.from_numpy(pan @ tilt), torch.zeros(3).double()))
    assert np.degrees(np.arccos(-compute_up(poses)[1])) < 5
    # One direction only: nothing but the mean says which way is up.
    assert compute_up(poses[:1]) == pytest.approx(-poses[0].rotation.numpy()[:, 1])


def test_upright_worlds_keep_their_axes():
    assert make_upright_basis(np.array([0.0, -1.0, 0.0])) == pytest.approx(np.eye(3))


def test_the_first_view_sees_all_cameras_of_a_ring_from_above():
    up = np.array([0.0, 0.0, 1.0])
    points = np.random.default_rng(0).normal(scale=0.3, size=(999, 3))
    points[:50] += 1000  # outliers
    start = choose_viewpoint(ring(8, tuple(up)), points, 2.0)
    assert start.look_at == pytest.approx(np.zeros(3), abs=0.1)
    assert start.position @ up > 1 and np.linalg.norm(start.position) > 3


def test_the_first_view_is_behind_cameras_that_look_ahead():
    poses = [
        Pose.from_parts(torch.eye(3).double(), torch.tensor([x, 0.0, 0.0]).double()) for x in (-1.0, 0.0, 1.0)
    ]
    start = choose_viewpoint(poses, np.array([[0.0, 0.0, 4.0]]), 4.0)
    assert start.position[2] < -3 and start.position[1] < -1 and start.position[0] == pytest.approx(0)
