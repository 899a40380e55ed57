"""Agreement of depth maps, and the points fused from them."""

import math
from dataclasses import replace

import pytest
import torch

from g_ray.cameras import Pinhole
from g_ray.geometry.pose import Pose
from g_ray.stereo import DepthMap, StereoOptions, check_consistency, fuse_points

from .stereo_scenes import make_lens, make_plane, make_scene, paint


def truthful(depth):
    return DepthMap(depth, torch.full_like(depth, 0.9), depth > 0)


def plane_views(count=3):
    poses = [Pose.from_parts(torch.eye(3), torch.tensor([0.3 * i, 0.0, 0.0])) for i in range(count)]
    return make_plane(Pinhole.from_fov(60, 60, 45), poses)


def test_true_depths_stay_and_planted_errors_go():
    views, depths = plane_views()
    maps = [truthful(depth) for depth in depths]
    wrong = maps[1].ray_depth.clone()
    wrong[10:20, 25:35] *= 1.5
    maps[1] = truthful(wrong)
    checked = check_consistency(views, maps, [[1, 2], [0, 2], [0, 1]])
    assert not checked[1].valid[10:20, 25:35].any()
    assert checked[1].ray_depth[10:20, 25:35].abs().max() == 0
    assert checked[1].valid[25:, 25:35].all()
    # The first view keeps what the third still confirms.
    assert checked[0].valid[10:20, 32:45].float().mean() > 0.9


def test_two_views_have_to_agree_if_asked():
    views, depths = plane_views()
    maps = [truthful(depth) for depth in depths]
    maps[2] = truthful(maps[2].ray_depth * 1.2)
    strict = check_consistency(views, maps, [[1, 2], [0, 2], [0, 1]], StereoOptions(min_views=2))
    assert not strict[0].valid.any() and not strict[2].valid.any()


def test_candidates_need_two_views():
    """The left half is uncertain in all views: three views confirm it, two do not."""
    views, depths = plane_views()
    maps = []
    for depth in depths:
        sure = torch.arange(60).expand_as(depth) >= 30
        maps.append(DepthMap(depth * sure, torch.full_like(depth, 0.5), sure, depth * ~sure))
    three = check_consistency(views, maps, [[1, 2], [0, 2], [0, 1]])
    two = check_consistency(views[:2], maps[:2], [[1], [0]])
    assert three[1].valid[:, 15:30].float().mean() > 0.9
    assert not two[1].valid[:, :30].any() and two[1].valid[:, 30:40].all()
    wrong = [maps[0], replace(maps[1], candidates=1.3 * maps[1].candidates), maps[2]]
    assert not check_consistency(views, wrong, [[1, 2], [0, 2], [0, 1]])[1].valid[:, :30].any()


def test_any_lens_and_confidence():
    views, depths = make_scene([make_lens(kind, 64) for kind in ("pinhole", "fisheye", "panorama")], step=0.1)
    maps = [truthful(depth) for depth in depths]
    neighbors = [[1, 2], [0, 2], [0, 1]]
    # A step of 0.1 m is little parallax for pixels of 5°.
    options = StereoOptions(max_depth_error=0.05, max_expected_error=math.inf)
    checked = check_consistency(views, maps, neighbors, options)
    known = check_consistency(views, maps, neighbors, replace(options, max_expected_error=0.1))
    for map_, sure in zip(checked, known, strict=True):
        assert map_.valid.float().mean() > 0.4
        assert map_.confidence[map_.valid].min() > 0.3 and map_.confidence.max() <= 1
        assert (sure.expected_error <= 0.1).all() and (map_.valid | ~sure.valid).all()
        assert (sure.confidence <= map_.confidence).all()
    assert checked[0].confidence.max() > 0.9 and 0 < known[0].valid.sum() < 0.9 * checked[0].valid.sum()


def test_lonely_views_are_dropped_and_lists_are_checked():
    views, depths = plane_views(2)
    maps = [truthful(depth) for depth in depths]
    assert not check_consistency(views, maps, [[], [0]])[0].valid.any()
    with pytest.raises(ValueError, match="one of each per view"):
        check_consistency(views, maps, [[1]])


def test_fused_points_lie_on_the_plane_and_use_each_pixel_once():
    views, depths = plane_views()
    maps = [truthful(depth) for depth in depths]
    cloud = fuse_points(views, maps, [[1, 2], [0, 2], [0, 1]])
    assert (cloud.positions[:, 2] - 4).abs().max() < 1e-3
    torch.testing.assert_close(
        cloud.normals, torch.tensor([0.0, 0.0, -1.0]).expand_as(cloud.normals), atol=0.02, rtol=0
    )
    assert cloud.views.min() == 2 and cloud.views.max() == 3
    assert int(cloud.views.sum()) <= sum(int(map_.valid.sum()) for map_ in maps)
    # The plane is about as densely covered as by one view, not by three.
    assert len(cloud.positions) < 1.7 * depths[0].numel()


def test_colors_are_those_of_the_images():
    views, depths = plane_views()
    cloud = fuse_points(views, [truthful(depth) for depth in depths], [[1, 2], [0, 2], [0, 1]])
    expected = paint(cloud.positions[None])[:, 0].mT
    assert (cloud.colors - expected).abs().median() < 0.03


def test_nothing_to_fuse():
    views, depths = plane_views(2)
    empty = [DepthMap(depth * 0, depth * 0, torch.zeros_like(depth, dtype=torch.bool)) for depth in depths]
    assert fuse_points(views, empty, [[1], [0]]).positions.shape == (0, 3)
