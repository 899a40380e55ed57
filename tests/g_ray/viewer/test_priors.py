"""The position-only prior: its peak follows the ray under G-ray and the grid place under RoPE."""

import pytest
import torch

from g_ray.demo.demo_page import QUERY, make_demo_views
from g_ray.viewer.priors import (
    BANKS,
    G_RAY,
    G_RAY_FINE,
    GRID_ROPE,
    compute_peak_error_deg,
    compute_prior_maps,
    make_token_grids,
)

PATCH = 16


@pytest.fixture(scope="module")
def cameras():
    return [view.camera for view in make_demo_views()]


@pytest.mark.parametrize("bank", BANKS, ids=lambda bank: bank.title)
def test_the_score_is_one_at_the_query_and_never_more(cameras, bank):
    maps = compute_prior_maps(cameras, PATCH, QUERY, bank)
    assert torch.allclose(maps[QUERY[0]][QUERY[1], QUERY[2]], torch.tensor(1.0), atol=1e-6)
    assert all(prior.max() <= 1 + 1e-6 and prior.shape == (18, 24) for prior in maps)


def test_grid_rope_prefers_the_same_grid_place_in_every_view(cameras):
    for prior in compute_prior_maps(cameras, PATCH, QUERY, GRID_ROPE):
        assert divmod(int(prior.argmax()), 24) == QUERY[1:]


@pytest.mark.parametrize("bank", [G_RAY, G_RAY_FINE], ids=lambda bank: bank.title)
def test_g_ray_prefers_the_token_that_looks_the_same_way(cameras, bank):
    grids = make_token_grids(cameras, PATCH, "tangent")
    wanted = grids[QUERY[0]].directions[QUERY[1], QUERY[2]]
    for grid, error in zip(grids, compute_peak_error_deg(cameras, PATCH, QUERY, bank), strict=True):
        nearest = torch.rad2deg(torch.arccos((grid.directions @ wanted).clamp(-1, 1).max()))
        # The nearest patch center by angle, or one so near that the two axes' sum prefers it.
        assert error <= float(nearest) + 0.5
    assert max(compute_peak_error_deg(cameras, PATCH, QUERY, GRID_ROPE)) > 8


def test_the_score_is_the_sum_of_cosines_of_the_paper(cameras):
    """eq:app_score by hand, for one pair of tokens in two views."""
    grids = make_token_grids(cameras, PATCH, "tangent")
    a, b = grids[0].positions[10, 16].double(), grids[2].positions[3, 5].double()
    by_hand = sum(
        2 * torch.cos(w * (x - y)) for w in G_RAY.make_frequencies() for x, y in zip(a, b, strict=True)
    )
    prior = compute_prior_maps(cameras, PATCH, (0, 10, 16), G_RAY)[2][3, 5]
    assert torch.allclose(prior.double(), by_hand / 64, atol=1e-6)
