"""Choice of source views and of the range of distances."""

import math

import pytest
import torch

from g_ray.geometry.pose import Pose
from g_ray.stereo import SparsePoints, StereoOptions, choose_range, choose_sources

from .stereo_scenes import make_lens, make_view


def views_at(eyes, target=(0.0, 0.0, 4.0), size=64):
    camera = make_lens("pinhole", size)
    image = torch.zeros(3, camera.height, camera.width)
    return [make_view(image, camera, Pose.look_at(eye, target)) for eye in eyes]


def cloud(count=200):
    points = torch.rand(count, 3, generator=torch.Generator().manual_seed(0)) - 0.5
    return points + torch.tensor([0.0, 0.0, 4.0])


def test_good_angles_come_first():
    # Seen from the first view the others triangulate the target at 0.3°, 10° and 45°.
    eyes = [
        (0.0, 0.0, 0.0),
        *((4 * math.sin(a), 0.0, 4 - 4 * math.cos(a)) for a in map(math.radians, (0.3, 10, 45))),
    ]
    chosen = choose_sources(views_at(eyes), SparsePoints(cloud()), StereoOptions(sources=1, best=1))
    assert chosen[0] == [2]


def test_sources_in_one_place_do_not_crowd_out_others():
    eyes = [(0.0, 0.0, 0.0), (0.5, 0.0, 0.0), (0.51, 0.0, 0.0), (0.52, 0.0, 0.0), (-0.45, 0.0, 0.0)]
    chosen = choose_sources(views_at(eyes), SparsePoints(cloud()), StereoOptions(sources=2))
    assert 4 in chosen[0] and len(chosen[0]) == 2


def test_scale_counts():
    # Both stand at 10°, the second ten times as far away.
    angle = math.radians(10)
    eyes = [(0.0, 0.0, 0.0), *((r * math.sin(angle), 0.0, 4 - r * math.cos(angle)) for r in (4.0, 40.0))]
    chosen = choose_sources(views_at(eyes), SparsePoints(cloud()))
    assert chosen[0][0] == 1


def test_visibility_decides_and_strangers_get_nothing():
    views = views_at([(0.0, 0.0, 0.0), (0.5, 0.0, 0.0), (-0.5, 0.0, 0.0)])
    visible = torch.zeros(3, 200, dtype=torch.bool)
    visible[0], visible[2] = True, True
    assert choose_sources(views, SparsePoints(cloud(), visible)) == [[2], [], [0]]


def test_without_points_the_poses_decide():
    eyes = [(0.0, 0.0, 0.0), (0.5, 0.0, 0.0)]
    away = make_view(
        torch.zeros(3, 48, 64), make_lens("pinhole", 64), Pose.look_at((0.2, 0.0, 0.0), (0.0, 0.0, -4.0))
    )
    chosen = choose_sources([*views_at(eyes), away], None, StereoOptions(near=2.0, far=8.0))
    assert chosen == [[1], [0], []]


def test_range_by_points_by_options_and_by_baselines():
    views = views_at([(0.0, 0.0, 0.0), (0.5, 0.0, 0.0)])
    near, far = choose_range(views, SparsePoints(cloud()), 0)
    assert 2 < near < 3.5 and 4.5 < far < 8
    assert choose_range(views, SparsePoints(cloud()), 0, StereoOptions(near=1.0, far=9.0)) == (1.0, 9.0)
    near, far = choose_range(views, None, 0)
    assert near == pytest.approx(1.0) and far > 100


def test_views_in_one_place():
    with pytest.raises(ValueError, match="no parallax"):
        choose_range(views_at([(0.0, 0.0, 0.0)] * 2), None, 0)


def test_wrong_visibility():
    with pytest.raises(ValueError, match="one row per view"):
        choose_sources(
            views_at([(0.0, 0.0, 0.0)]), SparsePoints(cloud(), torch.ones(2, 200, dtype=torch.bool))
        )
