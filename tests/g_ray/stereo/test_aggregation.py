"""Semi-global aggregation against a loop over pixels and paths."""

import numpy as np
import pytest
import torch

from g_ray.stereo.matching import aggregate_costs
from g_ray.stereo.stereo_options import StereoOptions

OPTIONS = StereoOptions(small_penalty=0.1, large_penalty=0.7, edge=0.05)
DIRECTIONS = [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)]


def aggregate_by_loops(costs, guide, base):
    """The definition: for each direction and pixel, the cheapest way from its predecessor."""
    height, count, width = costs.shape
    total = np.zeros_like(costs)
    for dr, dc in DIRECTIONS:
        paths = np.zeros_like(costs)
        rows = range(height) if dr >= 0 else range(height - 1, -1, -1)
        columns = range(width) if dc >= 0 else range(width - 1, -1, -1)
        for r in rows:
            for c in columns:
                before = (r - dr, c - dc)
                if not 0 <= before[0] < height:
                    paths[r, :, c] = costs[r, :, c]
                    continue
                if not 0 <= before[1] < width:
                    if dr == 0:
                        paths[r, :, c] = costs[r, :, c]
                        continue
                    before = (before[0], c)  # a slanted path enters from straight above
                old = paths[before[0], :, before[1]]
                difference = abs(guide[r, c] - guide[before])
                jump = max(0.7 / (1 + difference / 0.05), 0.15)
                for d in range(count):
                    ways = [old.min() + jump]
                    for step, price in ((0, 0.0), (1, 0.1), (-1, 0.1)):
                        other = d + base[r, c] - base[before] + step
                        # A neighboring step counts within the pixel's own band, as the vectorized form does.
                        aligned = d + step
                        if 0 <= other < count and 0 <= aligned < count:
                            ways.append(old[other] + price)
                    paths[r, d, c] = costs[r, d, c] + min(ways) - old.min()
        total += paths
    return total / 8


@pytest.mark.parametrize("banded", [False, True])
def test_against_loops(banded):
    rng = np.random.default_rng(0)
    costs, guide = rng.random((6, 5, 7)), rng.random((6, 7)) * 0.2
    base = rng.integers(-2, 3, (6, 7)) if banded else np.zeros((6, 7), dtype=np.int64)
    expected = aggregate_by_loops(costs, guide, base)
    given = torch.tensor(base) if banded else None
    total = aggregate_costs(torch.tensor(costs), torch.tensor(guide), OPTIONS, given)
    torch.testing.assert_close(total, torch.tensor(expected), atol=1e-9, rtol=0)


def test_a_gap_without_evidence_is_bridged():
    costs = torch.ones(9, 6, 9)
    costs[:, 2] = 0.2
    costs[3:6, :, 3:6] = 1.0
    total = aggregate_costs(costs, torch.zeros(9, 9), OPTIONS)
    assert (total.argmin(1) == 2).all()
