"""Ray maps of radially symmetric lenses whose rim lies in the image.

Rays are (a g, b g, c) with g and c functions of the radius r = sqrt(a² + b²). At a rim R where the lens function turns
around both are as steep as a square root, which no polynomial over a block of pixels follows; but they are smooth
functions of σ = sqrt(1 − r/R). So there is one polynomial in σ for each, evaluated at every pixel inside of the rim.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.cameras.block_maps import Unproject

# Unprojects points [lens n 2] of the normalized plane in float64.
FromPlane = Callable[[Tensor], tuple[Tensor, Tensor]]

# Nodes at which the lens is inverted, and the coefficients that are dropped, in radians.
_NODES = 40
_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-8}
# Up to so many terms powers of σ, which are faster than Chebyshev polynomials, are exact to 1e-12.
_MOST_TERMS = 32
# Pixels this near to the rim, as a share of its radius, are unprojected by themselves: rounding decides their validity.
_NEAR_RIM = 1e-4
# Pixels whose temporaries stay in the processor's cache.
_CHUNK = 1 << 15


def fill_radial_maps(
    from_plane: FromPlane,
    unproject: Unproject,
    rims: Float[Tensor, "lens"],
    columns: Float[Tensor, "lens w"],
    rows: Float[Tensor, "lens h"],
    rays: list[Float[Tensor, "h w 3"]],
    valid: list[Bool[Tensor, "h w"]],
) -> list[bool]:
    """Write unit rays and validity at plane points (column, row), and tell for which lenses the polynomials converged.

    Beyond the rim rays are the optical axis. The maps of lenses that did not converge are left as they are.
    """
    terms = _fit(from_plane, rims, _TOLERANCE[rays[0].dtype])
    done = [len(part) <= _MOST_TERMS for part in terms]
    near = [
        _fill_map(part, float(rim), column, row, ray, mask) if good else torch.empty(0, 2, dtype=torch.long)
        for part, rim, column, row, ray, mask, good in zip(
            terms, rims, columns, rows, rays, valid, done, strict=True
        )
    ]
    # Rounding decides whether these are valid: each is unprojected by itself.
    counts = [len(part) for part in near]
    lens = torch.arange(len(near)).repeat_interleave(torch.tensor(counts))
    pixels = torch.cat(near).flip(-1)[:, None].to(rays[0].dtype) + 0.5
    parts = (part[:, 0].split(counts) for part in unproject(lens, pixels, True))
    for at, ray, mask, value, good in zip(near, rays, valid, *parts, strict=True):
        ray[at[:, 0], at[:, 1]], mask[at[:, 0], at[:, 1]] = value, good
    return done


def _fill_map(
    terms: Float[Tensor, "n 2"],
    rim: float,
    column: Float[Tensor, "w"],
    row: Float[Tensor, "h"],
    rays: Float[Tensor, "h w 3"],
    valid: Bool[Tensor, "h w"],
) -> Int[Tensor, "near 2"]:
    """Write the map of one lens; return row and column of the pixels near the rim."""
    pairs = [pair.unbind() for pair in reversed(terms.to(rays.dtype).unbind())]
    axis = rays.new_tensor([0.0, 0.0, 1.0]).repeat(len(column), 1)
    step = max(1, _CHUNK // len(column))
    near = []
    for top in range(0, len(row), step):
        band = slice(top, top + step)
        left, right = _find_span(column, row[band], rim * (1 + _NEAR_RIM))
        for outside in (slice(0, left), slice(right, None)):
            rays[band, outside] = axis[outside]
            valid[band, outside] = False
        inner = (band, slice(left, right))
        found = _fill_part(pairs, rim, column[left:right], row[band], rays[inner], valid[inner])
        near.append(found + found.new_tensor([top, left]))
    return torch.cat(near)


def _find_span(column: Tensor, row: Tensor, radius: float) -> tuple[int, int]:
    """Find the first column and the one past the last that come within the radius in one of the rows."""
    reach = math.sqrt(max(0.0, radius**2 - float(row.square().amin())))
    left, right = torch.searchsorted(column, column.new_tensor([-reach, reach]))
    return int(left), int(right)


def _fill_part(
    terms: list[tuple[Tensor, ...]], rim: float, column: Tensor, row: Tensor, rays: Tensor, valid: Tensor
) -> Int[Tensor, "near 2"]:
    """Evaluate g and c, given their coefficients from the highest; return row and column of the pixels near the rim."""
    a, b = column.to(rays.dtype), row.to(rays.dtype)[:, None]
    within = torch.rsub((a * a + b * b).sqrt_().mul_(1 / rim), 1)  # 1 − r/R
    torch.gt(within, 0, out=valid)
    last = (within <= _NEAR_RIM).nonzero()
    beyond = within[last[:, 0], last[:, 1]] < -_NEAR_RIM
    place = within.clamp_min_(0).sqrt_().mul_(2).sub_(1)
    g, c = (term.expand_as(place).clone() for term in terms[0])
    for term_g, term_c in terms[1:]:
        torch.addcmul(term_g, g, place, out=g)
        torch.addcmul(term_c, c, place, out=c)
    torch.mul(g, a, out=rays[..., 0])
    torch.mul(g, b, out=rays[..., 1])
    rays[..., 2] = c
    outside = last[beyond]
    rays[outside[:, 0], outside[:, 1]] = rays.new_tensor([0.0, 0.0, 1.0])
    return last[~beyond]


def _fit(from_plane: FromPlane, rims: Float[Tensor, "lens"], tolerance: float) -> list[Float[Tensor, "n 2"]]:
    """Compute the coefficients of g and c as polynomials in 2σ − 1, as many as each lens needs."""
    order = torch.arange(_NODES, dtype=torch.float64)
    angle = (order + 0.5) * (math.pi / _NODES)
    radius = rims[:, None] * (1 - ((1 + torch.cos(angle)) / 2).square())
    ray, _ = from_plane(torch.stack([radius, torch.zeros_like(radius)], -1))
    values = torch.stack([ray[..., 0] / radius, ray[..., 2]], -1)
    transform = torch.cos(order[:, None] * angle) * (2 / _NODES)
    transform[0] /= 2
    chebyshev = transform @ values
    large = (chebyshev.abs() > tolerance).any(-1)
    counts = (large * (1 + torch.arange(_NODES))).amax(-1).tolist()
    return [_expand_chebyshev(n).T @ part[:n] for n, part in zip(counts, chebyshev, strict=True)]


def _expand_chebyshev(n: int) -> Float[Tensor, "n n"]:
    """Compute the coefficients of powers in T_0 … T_{n−1}, one polynomial per row: T_{k+1} = 2 x T_k − T_{k−1}."""
    rows = torch.eye(n, dtype=torch.float64)
    for k in range(2, n):
        rows[k] = 2 * rows[k - 1].roll(1) - rows[k - 2]
    return rows
