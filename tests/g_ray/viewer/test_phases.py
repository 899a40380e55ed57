"""Cross-projection phase mismatch: the numbers behind the demo, on any lenses."""

import pytest
import torch

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.demo.demo_page import make_demo_views
from g_ray.demo.phases import compare_phases, compute_spread, draw_shared_ray_pairs
from g_ray.encodings.rotary import make_geometric_frequencies

BANK = make_geometric_frequencies(16, scale=10.0, base=100.0)


@pytest.fixture(scope="module")
def cameras():
    return [view.camera.to(dtype=torch.float64) for view in make_demo_views()]


@pytest.fixture(scope="module")
def comparison(cameras):
    return compare_phases(
        cameras, draw_shared_ray_pairs(cameras, 200, seed=1), 16, make_geometric_frequencies(16), BANK
    )


def test_ray_phases_agree_and_grid_phases_do_not(comparison):
    assert compute_spread(comparison.ray).max() < 1e-6
    assert compute_spread(comparison.grid).median() > 1.0


def test_every_pair_with_an_offset_is_mismatched_by_the_grid(comparison):
    """Honest: no pair is left out, only those that coincide have nothing to disagree on."""
    apart = (comparison.angles[:, 0, 1] - comparison.angles[:, 0, 0]).abs().amax(-1) > 0.01
    assert apart.double().mean() > 0.9
    assert (compute_spread(comparison.grid)[apart] > 1e4 * compute_spread(comparison.ray)[apart]).all()


def test_float32_agrees_to_single_precision(cameras):
    single = [camera.to(dtype=torch.float32) for camera in cameras]
    comparison = compare_phases(
        single, draw_shared_ray_pairs(single, 200, seed=1), 16, make_geometric_frequencies(16), BANK
    )
    assert compute_spread(comparison.ray).max() < 1e-5


def test_phases_are_frequency_times_difference(comparison):
    difference = comparison.angles[:, :, 1] - comparison.angles[:, :, 0]
    assert torch.allclose(comparison.ray[..., 3], BANK[3] * difference)
    moved = (comparison.pixels[:, :, 1] - comparison.pixels[:, :, 0]) / 16
    assert torch.allclose(comparison.grid[..., 0], moved)


def test_the_same_lens_twice_agrees_even_on_the_grid(cameras):
    twice = [cameras[0], cameras[0]]
    comparison = compare_phases(
        twice,
        draw_shared_ray_pairs(twice, 5),
        16,
        make_geometric_frequencies(4),
        make_geometric_frequencies(4),
    )
    assert compute_spread(comparison.grid).max() == 0


def test_rays_that_a_camera_does_not_see_are_refused(cameras):
    aside = torch.tensor([[[0.9, 0.0, 1.0], [0.8, 0.0, 1.0]]], dtype=torch.float64)
    with pytest.raises(ValueError, match="does not see every ray"):
        compare_phases(cameras, aside, 16, BANK, BANK)


def test_lenses_without_a_common_ray_are_refused():
    left = Pinhole.make(64, 64, fx=300.0, fy=300.0, cx=-200.0, cy=32.0)
    right = OpenCVFisheye.make(64, 64, fx=300.0, fy=300.0, cx=400.0, cy=32.0)
    with pytest.raises(ValueError, match="no ray pair is visible to all cameras"):
        draw_shared_ray_pairs([left, right], 3)
