"""The position-only prior (paper, eq:app_score): where attention leans before it has seen any feature."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.coordinates import get_coordinate
from g_ray.encodings.frequencies import make_geometric_frequencies
from g_ray.encodings.score import position_score
from g_ray.rays.views import Views


@dataclass(frozen=True)
class Bank:
    """A rotary encoding as the probe sees it: which coordinate, which frequencies (eq:frequency)."""

    title: str
    coordinate: str
    scale: float
    base: float = 100.0
    count: int = 16

    def make_frequencies(self) -> Float[Tensor, "frequency"]:
        return make_geometric_frequencies(self.count, self.scale, self.base)


GRID_ROPE = Bank("Grid-index RoPE", "grid", scale=1.0)
G_RAY = Bank("G-ray, α = 1 (reconstruction)", "tangent", scale=1.0)
G_RAY_FINE = Bank("G-ray, α = 10 (as with GTA)", "tangent", scale=10.0)
BANKS = (GRID_ROPE, G_RAY, G_RAY_FINE)


@dataclass(frozen=True)
class TokenGrid:
    """Coordinates of one view's patch tokens, and the rays through their centres."""

    positions: Float[Tensor, "row column 2"]
    directions: Float[Tensor, "row column 3"]


def make_token_grids(cameras: Sequence[Camera], patch: int, name: str) -> list[TokenGrid]:
    """Patch tokens of each camera in the named coordinate."""
    tokens = Views(list(cameras)).tokens(patch)
    positions = get_coordinate(name)(tokens).values[0, :, 0]
    directions = tokens.rays().directions[0, :, 0]
    grids = []
    for segment, span in tokens.layout.iterate_spans():
        shape = (segment.rows, segment.columns)
        grids.append(TokenGrid(positions[span].unflatten(0, shape), directions[span].unflatten(0, shape)))
    return grids


def compute_prior_maps(
    cameras: Sequence[Camera], patch: int, query: tuple[int, int, int], bank: Bank
) -> list[Float[Tensor, "row column"]]:
    """s / s_max in [−1, 1] of every token of every view, for the query token (view, row, column)."""
    grids = make_token_grids(cameras, patch, bank.coordinate)
    view, row, column = query
    frequencies = bank.make_frequencies()
    most = 4 * len(frequencies)  # two axes, 2 cos 0 each
    position = grids[view].positions[row, column][None]
    return [position_score(position, grid.positions, frequencies)[0] / most for grid in grids]


def compute_peak_error_deg(
    cameras: Sequence[Camera], patch: int, query: tuple[int, int, int], bank: Bank
) -> list[float]:
    """Angle between the query's ray and the ray of the token that the prior prefers, per view."""
    grids = make_token_grids(cameras, patch, "tangent")
    wanted = grids[query[0]].directions[query[1], query[2]]
    errors = []
    for grid, prior in zip(grids, compute_prior_maps(cameras, patch, query, bank), strict=True):
        peak = grid.directions.flatten(0, 1)[prior.flatten().argmax()]
        errors.append(float(torch.rad2deg(torch.linalg.cross(wanted, peak).norm().atan2(wanted @ peak))))
    return errors
