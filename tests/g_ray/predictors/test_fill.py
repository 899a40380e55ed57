"""Filling: empty pixels take a network's depth at the stereo's scale, and are marked."""

import torch

from g_ray.cameras import Pinhole
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.geometry.pose import Pose
from g_ray.predictors.depth_filling import MIN_SHARED, fill_views, fit_inverse_depth


def make_view(depth: torch.Tensor, valid: torch.Tensor) -> ReconstructedView:
    height, width = depth.shape
    camera = Pinhole.from_fov(60, width, height)
    pose = Pose.identity()
    return ReconstructedView("a", camera, pose, depth * valid, valid.float(), valid)


def test_the_fit_finds_scale_and_shift_among_outliers():
    torch.manual_seed(0)
    source = torch.rand(2000) + 0.1
    target = 1.7 * source + 0.2
    target[:400] = torch.rand(400) * 5
    scale, shift = fit_inverse_depth(source, target)
    assert abs(float(scale) - 1.7) < 1e-2 and abs(float(shift) - 0.2) < 1e-2


def test_filled_pixels_have_the_true_depth_and_are_marked():
    """The network knows inverse depth up to scale and shift, at a quarter of the resolution."""
    rows = torch.linspace(2, 4, 48)[:, None].expand(48, 64)
    valid = torch.zeros(48, 64, dtype=torch.bool)
    valid[:, :32] = True
    true = 1 / rows  # linear in the row
    small = torch.nn.functional.interpolate(true[None, None], (12, 16), mode="area")[0, 0]
    guess = make_view(1 / (0.4 * small + 0.05), torch.ones(12, 16, dtype=torch.bool))
    usable = torch.ones(48, 64, dtype=torch.bool)
    usable[:4] = False
    (filled,) = fill_views([make_view(rows, valid)], [guess], [usable])
    assert filled is not None and filled.filled is not None
    assert bool((filled.filled == (usable & ~valid)).all())
    assert bool((filled.ray_depth[valid] == rows[valid]).all())
    error = (filled.ray_depth / rows - 1).abs()[filled.filled]
    assert float(error.median()) < 5e-3
    assert float(filled.confidence[filled.filled].max()) < float(filled.confidence[valid].min())


def test_a_view_without_common_pixels_is_left_as_it_is():
    valid = torch.zeros(48, 64, dtype=torch.bool)
    valid[0, : MIN_SHARED - 1] = True
    view = make_view(torch.full((48, 64), 2.0), valid)
    (filled,) = fill_views([view], [make_view(torch.ones(48, 64), ~valid | True)], [valid | True])
    assert filled is view
