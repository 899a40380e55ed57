"""Points of pixels move as single points do, and their scale is one number per set."""

import pytest
import torch

from g_ray.geometry.pointmap import compute_mean_distance, transform_points
from g_ray.geometry.pose import Pose


def test_moving_a_map_moves_its_points():
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(2, 3, 4, 5, 3, generator=generator, dtype=torch.float64)
    eyes, targets = torch.randn(2, 2, 3, 3, generator=generator, dtype=torch.float64)
    poses = Pose.look_at(eyes, targets)
    assert torch.allclose(transform_points(points, poses), poses.apply(points), atol=1e-12)
    first = poses[:, :1]
    assert torch.allclose(
        transform_points(points, first), Pose(first.world_from_cam.expand(2, 3, 4, 4)).apply(points)
    )


def test_autocast_does_not_reach_points():
    points = torch.randn(1, 8, 8, 3, generator=torch.Generator().manual_seed(0))
    pose = Pose.look_at(torch.tensor([[0.1, 0.2, 0.3]]), torch.tensor([[1.0, 0.3, 2.0]]))
    with torch.autocast("cpu", torch.bfloat16):
        inside = transform_points(points, pose)
    assert torch.equal(inside, transform_points(points, pose))


def test_mean_distance_is_over_all_views_together():
    points = torch.tensor([[[[[3.0, 4, 0]]], [[[0.0, 0, 1]]]], [[[[0.0, 2, 0]]], [[[torch.nan] * 3]]]])
    valid = torch.tensor([[True, True], [True, False]])[..., None, None]
    assert compute_mean_distance(points, valid, slack=1e-8).tolist() == pytest.approx([3.0, 2.0])
    assert compute_mean_distance(points, valid, slack=1.0).tolist() == pytest.approx([2.0, 1.0])
    assert compute_mean_distance(points, torch.zeros_like(valid), slack=1e-8).tolist() == [0.0, 0.0]
