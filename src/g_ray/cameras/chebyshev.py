"""Chebyshev polynomials over a row of pixels, from the center of the first (−1) to that of the last (1)."""

import math
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor


@lru_cache(maxsize=64)
def build_nodes(m: int) -> tuple[Float[Tensor, "m"], Float[Tensor, "m m"]]:
    """Compute m nodes on [−1, 1], ends included, and the matrix from values there to coefficients."""
    angle = torch.arange(m, dtype=torch.float64) * (math.pi / (m - 1))
    transform = torch.cos(torch.arange(m)[:, None] * angle) * (2 / (m - 1))
    transform[[0, -1]] /= 2
    transform[:, [0, -1]] /= 2
    return torch.cos(angle), transform


@lru_cache(maxsize=32)
def build_polynomials(n: int, m: int) -> Float[Tensor, "n m"]:
    """Evaluate T_0 … T_{m−1} at n pixel centers, evenly spaced from −1 to 1."""
    angle = torch.acos(torch.linspace(-1, 1, n, dtype=torch.float64))
    return torch.cos(angle[:, None] * torch.arange(m))


def transform_values(
    values: Float[Tensor, "channel block rows columns"],
) -> Float[Tensor, "channel block rows columns"]:
    """Compute the coefficients of T_i(row) T_j(column) from values at the nodes of both axes."""
    down, across = (build_nodes(size)[1] for size in values.shape[-2:])
    return down @ (values @ across.T)


def measure_tail(
    coefficients: Float[Tensor, "channel block rows columns"],
) -> Float[Tensor, "block"]:
    """Compute the largest of the last two coefficients along both axes; one alone is 0 for even functions."""
    size = coefficients.abs()
    return torch.maximum(size[..., -2:, :].amax((0, 2, 3)), size[..., -2:].amax((0, 2, 3)))


def drop_vanished(
    coefficients: Float[Tensor, "channel block rows columns"], tolerance: float
) -> Float[Tensor, "channel block r c"]:
    """Leave out trailing rows and columns of coefficients that are below the tolerance in all blocks."""
    large = (coefficients.abs() > tolerance).any(0).any(0)
    rows, columns = (int(large.any(axis).nonzero().amax()) + 1 for axis in (1, 0))
    return coefficients[..., :rows, :columns]


def expand_to_powers(n: int) -> Float[Tensor, "n n"]:
    """Compute the coefficients of powers in T_0 … T_{n−1}, one polynomial per row: T_{k+1} = 2 x T_k − T_{k−1}."""
    rows = torch.eye(n, dtype=torch.float64)
    for k in range(2, n):
        rows[k] = 2 * rows[k - 1].roll(1) - rows[k - 2]
    return rows
