"""The ray map of a radially symmetric lens as one matrix product.

On a pixel grid the squared radius is a sum, t = a² + b², of a column's and a row's part. Along both, the smooth
functions g = sin ψ(√t)/√t and c = cos ψ(√t) are polynomials of modest degree to machine precision. With Chebyshev
polynomials T

    g(a² + b²) = Σ_ij G_ij T_i(b²) T_j(a²),  c alike,  ray(a, b) = (a g, b g, c),

the lens is inverted on a small grid of Chebyshev nodes only, and the map is a [height, 2m] x [2m, 3·width] product with
m around 12.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.base import allocate_empty

Inverse = Callable[[Tensor], Tensor]

# Chebyshev nodes per axis at which the lens is inverted: more than the highest degree, so that the tail of the
# coefficients shows whether the expansion has converged.
_NODES = 40
_HIGHEST_DEGREE = 32
# Below so many pixels, inverting each of them is as fast.
_SMALLEST_MAP = 1 << 16


@torch.no_grad()
def compute_radial_map(
    inverse: Inverse, column: Float[Tensor, "w"], row: Float[Tensor, "h"], dtype: torch.dtype
) -> Float[Tensor, "h w 3"] | None:
    """Compute unit rays at the plane points (column, row) for ψ = inverse(radius), or None where this does not pay.

    Everything but the product is done in float64; the lens must be invertible at all points of the grid.
    """
    if len(row) * len(column) < _SMALLEST_MAP:
        return None
    # One row, or two at the same distance from the axis, span no interval to expand over.
    if any(high - low <= 1e-9 * high for low, high in (_compute_span(row), _compute_span(column))):
        return None
    # Coefficients below the rounding of the result are dropped.
    tolerance = 3e-15 if dtype == torch.float64 else 1e-9
    terms = _compute_expansion(inverse, _compute_span(row), _compute_span(column))
    sizes = terms.abs().amax(0)
    m, n = (int((sizes > tolerance).any(axis).nonzero().amax()) + 1 for axis in (1, 0))
    if max(m, n) > _HIGHEST_DEGREE:  # has not converged: a lens with a kink or a very wide one
        return None
    g, c = terms[:, :m, :n] @ _evaluate_polynomials(column, n).T
    # Rays are (a g, b g, c): a scales columns and goes to the right factor, b scales rows and goes to the left one. The
    # three components of a pixel lie side by side in the product, so that it is the map itself.
    right = torch.zeros(2, m, len(column), 3, dtype=dtype)
    right[0, :, :, 0], right[0, :, :, 2], right[1, :, :, 1] = g * column, c, g
    left = _evaluate_polynomials(row, m)
    left = torch.cat([left, left * row[:, None]], 1).to(dtype)
    rays = allocate_empty(len(row), 3 * len(column), dtype=dtype, device="cpu")
    torch.matmul(left, right.view(2 * m, -1), out=rays)
    return rays.view(len(row), len(column), 3)


def _compute_expansion(
    inverse: Inverse, rows: tuple[float, float], columns: tuple[float, float]
) -> Float[Tensor, "2 m n"]:
    """Compute the Chebyshev coefficients of g and c, by the discrete cosine transform of their values at the nodes."""
    # Expanded in a² and b², not in a and b: g and c are functions of their sum, and even.
    angle = (torch.arange(_NODES, dtype=torch.float64) + 0.5) * math.pi / _NODES
    node = torch.cos(angle)
    b, a = ((low + high) / 2 + (high - low) / 2 * node for low, high in (rows, columns))
    radius = (b[:, None] + a).sqrt()
    psi = inverse(radius)
    values = torch.stack([torch.sin(psi) / radius, torch.cos(psi)])
    order = torch.arange(_NODES, dtype=torch.float64)
    transform = torch.cos(order[:, None] * angle) * (2 / _NODES)
    transform[0] /= 2
    return transform @ values @ transform.T


def _evaluate_polynomials(coordinate: Float[Tensor, "p"], n: int) -> Float[Tensor, "p n"]:
    """Evaluate T_0 … T_{n−1} at the squares of the coordinates, scaled to [−1, 1]."""
    low, high = _compute_span(coordinate)
    angle = torch.acos(((2 * coordinate.square() - low - high) / (high - low)).clamp(-1, 1))
    return torch.cos(angle[:, None] * torch.arange(n, dtype=torch.float64))


def _compute_span(coordinate: Tensor) -> tuple[float, float]:
    square = coordinate.square()
    return float(square.amin()), float(square.amax())
