"""The error that is expected of a depth is what its parallax, its matching error and its poses cost."""

from dataclasses import replace

import pytest
import torch

from g_ray.geometry.pose import Pose
from g_ray.stereo import DepthMap, StereoOptions, Uncertainty, check_consistency, choose_sources
from g_ray.stereo.expected_error import SourceErrors, combine_errors, measure_pixel_angles, predict_match_px
from g_ray.stereo.warp import Trajectories

from .stereo_scenes import make_lens, make_plane, make_scene

LENSES = ["pinhole", "fisheye", "panorama"]


def truthful(depth):
    return DepthMap(depth, torch.full_like(depth, 0.9), depth > 0)


def measure(views, depth, motions=None, noise_px=0.1):
    rays = views[0].camera.unproject_grid()[0]
    ways = Trajectories.between(views[0], views[1], rays)
    angle = measure_pixel_angles(rays)
    return SourceErrors.measure(ways, 1 / depth.clamp_min(1e-6), angle, noise_px, motions), ways, angle


@pytest.mark.parametrize("kind", LENSES)
def test_matching_error_moves_the_depth_by_what_is_expected(kind):
    views, depths = make_scene([make_lens(kind, 48)] * 2, step=0.1)
    errors, ways, angle = measure(views, depths[0])
    inverse = 1 / depths[0]
    # Depth moved by the expected error: the source sees the point under the angle of the matching error.
    moved = inverse / (1 + 1e-3 * errors.matching)
    one, other = (ways.bearings + part[..., None] * ways.shift for part in (inverse, moved))
    turn = torch.atan2(
        torch.linalg.cross(one.double(), other.double()).norm(dim=-1), (one * other).sum(-1).double()
    )
    seen = (errors.matching < 1) & views[0].camera.unproject_grid()[1]
    assert seen.float().mean() > 0.5
    ratio = (turn / (1e-3 * predict_match_px(0.1) * angle))[seen]
    torch.testing.assert_close(ratio.median(), torch.ones(()).double(), rtol=0.03, atol=0)


def test_error_grows_with_distance_over_baseline():
    camera = make_lens("pinhole", 48)
    shifts = [torch.tensor([x, 0.0, 0.0]) for x in (0.0, 0.4, 0.04)]
    views, depths = make_plane(camera, [Pose.from_parts(torch.eye(3), shift) for shift in shifts])
    wide, _, _ = measure(views[:2], depths[0])
    narrow, _, _ = measure([views[0], views[2]], depths[0])
    torch.testing.assert_close(
        (narrow.matching / wide.matching).median(), torch.tensor(10.0), rtol=0.05, atol=0
    )


def test_poses_move_the_depth_by_what_is_expected():
    views, depths = make_scene([make_lens("pinhole", 48)] * 2, step=0.15)
    motion = torch.tensor([[2e-4, -3e-4, 1e-4, 2e-4, 1e-4, -3e-4]])
    errors, ways, _ = measure(views, depths[0], motion)
    inverse = 1 / depths[0]
    q = (ways.bearings + inverse[..., None] * ways.shift).double()
    # The source keeps its pixel: the moved curve passes it again nearest to q.
    turned = ways.bearings + torch.linalg.cross(motion[0, :3].expand_as(ways.bearings), ways.bearings)
    shift = ways.shift + motion[0, 3:]
    steps = torch.linspace(-0.05, 0.05, 2001, dtype=torch.float64)[:, None, None]
    rows = slice(10, 30, 7), slice(5, 45, 9)
    changed = inverse[rows].double() / (1 + steps)
    curve = turned[rows].double() + changed[..., None] * shift.double()
    off = torch.linalg.cross(curve, q[rows].expand_as(curve)).norm(dim=-1) / curve.norm(dim=-1)
    found = steps[off.argmin(0), 0, 0]
    torch.testing.assert_close(errors.motion[rows][..., 0].double(), found, rtol=0.1, atol=2e-4)


def test_views_that_agree_without_parallax_confirm_nothing():
    """Exact depths of cameras two millimeters apart, four meters away: true, but nobody can know it."""
    camera = make_lens("pinhole", 64)
    for step, known in ((0.3, True), (0.002, False)):
        poses = [Pose.from_parts(torch.eye(3), torch.tensor([step * i, 0.0, 0.0])) for i in range(3)]
        views, depths = make_plane(camera, poses)
        checked = check_consistency(views, [truthful(depth) for depth in depths], [[1, 2], [0, 2], [0, 1]])
        assert bool(checked[1].valid.float().mean() > 0.8) == known
        assert known or not checked[1].valid.any()


def test_uncertain_poses_and_noisy_features_raise_the_expected_error():
    views, depths = make_scene([make_lens("pinhole", 64)] * 3, step=0.15)
    maps, neighbors = [truthful(depth) for depth in depths], [[1, 2], [0, 2], [0, 1]]
    options = StereoOptions(max_expected_error=1.0)
    exact = torch.stack([view.get_pose().world_from_cam.double() for view in views])
    moved = exact.repeat(8, 1, 1, 1)
    moved[:, :, :3, 3] += 0.1 * torch.randn(8, 3, 3, generator=torch.Generator().manual_seed(0))
    ways = {
        "exact": Uncertainty([0.1] * 3, exact.expand(8, -1, -1, -1)),
        "poses": Uncertainty([0.1] * 3, moved),
        "noise": Uncertainty([0.8] * 3, exact.expand(8, -1, -1, -1)),
    }
    found = {
        name: check_consistency(views, maps, neighbors, options, uncertainty=uncertainty)[1]
        for name, uncertainty in ways.items()
    }
    middle = {name: float(map_.expected_error[map_.valid].median()) for name, map_ in found.items()}
    assert middle["poses"] > 2 * middle["exact"] and middle["noise"] > 4 * middle["exact"]
    both = found["exact"].valid & found["noise"].valid
    assert (found["noise"].confidence < found["exact"].confidence)[both].all()
    unsure = replace(maps[1], confidence=torch.full_like(depths[1], 0.3))
    less = check_consistency(
        views, [maps[0], unsure, maps[2]], neighbors, options, uncertainty=ways["exact"]
    )[1]
    assert less.expected_error[less.valid].median() > middle["exact"]


def test_views_with_noisy_features_are_poor_sources():
    camera = make_lens("pinhole", 48)
    shifts = [torch.tensor([x, 0.0, 0.0]) for x in (0.0, 0.3, -0.3)]
    views, _ = make_plane(camera, [Pose.from_parts(torch.eye(3), shift) for shift in shifts])
    options = StereoOptions(near=2.0, far=6.0)
    for noisy in (1, 2):
        noise = [0.1 if i != noisy else 0.4 for i in range(3)]
        assert choose_sources(views, None, options, Uncertainty(noise))[0][0] == 3 - noisy


def test_a_learned_depth_is_expected_to_be_off_by_what_its_network_claims_at_most():
    """At even odds of an error below 3 % its median is 3 %, where the parallax alone would allow more, and where poses
    are uncertain their part stays."""
    confidence = torch.full((2, 3), 0.5)
    used = [torch.ones(2, 3, dtype=torch.bool)]
    weak, strong = (SourceErrors(torch.full((2, 3), error), None) for error in (0.1, 0.001))
    learned, classical = (combine_errors([weak], used, confidence, learned) for learned in (True, False))
    torch.testing.assert_close(learned, torch.full((2, 3), 0.03))
    assert bool((classical > 0.1).all())
    same = [combine_errors([strong], used, confidence, learned) for learned in (True, False)]
    torch.testing.assert_close(*same)
    moved = SourceErrors(weak.matching, torch.full((2, 3, 5), 0.2))
    assert bool((combine_errors([moved], used, confidence, True) > 0.13).all())
