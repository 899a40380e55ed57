"""Ray maps of lenses whose rim lies in the image.

A radially symmetric lens has the rays (a g, b g, c) with g and c functions of t = a² + b². At a rim t = R² where the
lens function turns around both are as steep as a square root, which no polynomial over a block of pixels follows; but
they are polynomials in s = sqrt(1 − t/R²). With the even and the odd powers of s apart,

    ray = even + s · odd,   s² = 1 − t/R²,

and even, odd and s² are smooth functions of the pixel, across the rim too. They are interpolated from Chebyshev nodes
over the blocks that the rim touches (see `block_maps`), and joined at every pixel. A lens that shifts the points of
the plane before a radially symmetric part takes (a, b) from there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.cameras.block_maps import (
    TOLERANCE,
    Blocks,
    Unproject,
    build_nodes,
    build_polynomials,
    count_nodes,
    drop_vanished,
    expand_to_powers,
    fill_blocks,
    fill_dark,
    fill_smooth,
    measure_tail,
    transform_values,
    widen,
)

if TYPE_CHECKING:
    from g_ray.cameras.camera import Camera

# Points of a rim that are projected to find how far it reaches.
_RIM_POINTS = 32
# Radii at which the lens is inverted, and the coefficients that are dropped, in radians.
_RADII = 40
_DROPPED = {torch.float64: 1e-12, torch.float32: 1e-8}
# Powers of s whose coefficients add up to more than this would lose digits.
_LARGEST_SUM = {torch.float64: 1e4, torch.float32: 1e2}
# Where even and odd are larger, because they cancel each other or grow beyond the rim, digits would be lost.
_LARGEST_VALUE = {torch.float64: 1e4, torch.float32: 2.0}
# Blocks whose nodes are this far inside or outside, as s², do not touch the rim between nodes.
_MARGIN = 0.02
# Pixels per side of a block. In smaller ones the calls cost more than the arithmetic, larger ones leave the cache.
_BLOCK = 168
# Blocks whose polynomials are evaluated at all columns at once.
_BLOCKS_AT_ONCE = 16
# Nodes beyond the number of terms.
_MORE_NODES = 5
# Pixels this near to the rim, as s², are unprojected by themselves: rounding decides their validity.
_NEAR_RIM = {torch.float64: 1e-8, torch.float32: 2e-4}
_NEAR_BACK = 0.02


@dataclass(frozen=True, eq=False)
class RadialLenses:
    """A flat batch of lenses with a radially symmetric part, whose rims lie in the image."""

    rims: Float[Tensor, "lens"]
    """Radii at which the images of the radially symmetric parts end."""
    outline: Float[Tensor, "lens n 2"]
    """Pixels just inside."""
    powers: Float[Tensor, "lens term 2"]
    """Coefficients of g and c as polynomials in s."""
    accurate: Bool[Tensor, "lens"]
    """Whether these polynomials have converged."""
    locate: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    """Map pixels [q p 2] of the lenses with the given indices [q] to the plane of the radially symmetric part, with a
    mask of those that have a place there; in float64."""

    @staticmethod
    def from_cameras(lenses: "Camera") -> "RadialLenses":
        """Fit the radially symmetric parts of a flat batch of cameras."""
        double = lenses.to(torch.float64)
        rims = double._compute_rim()
        assert rims is not None

        def lift(core: Tensor) -> Tensor:
            return double._lift_core(core, double._align(double.params, core))[0]

        def locate(index: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
            params = double.params[index, None]
            return double._undistort_plane((pixels - params[..., 2:4]) / params[..., 0:2], params)

        angle = torch.linspace(0, 2 * math.pi, _RIM_POINTS + 1, dtype=torch.float64)[1:]
        # On the rim itself rays may point straight back, which has no azimuth.
        circle = torch.stack([angle.cos(), angle.sin()], -1) * (0.99 * rims[:, None, None])
        return RadialLenses.fit(rims, double.project(lift(circle))[0], lift, locate, lenses.dtype)

    @staticmethod
    def fit(
        rims: Float[Tensor, "lens"],
        outline: Float[Tensor, "lens n 2"],
        lift: Callable[[Tensor], Tensor],
        locate: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
        dtype: torch.dtype,
    ) -> "RadialLenses":
        """Fit the polynomials to the rays that `lift` returns for points [lens n 2] of the radially symmetric part."""
        order = torch.arange(_RADII, dtype=torch.float64)
        angle = (order + 0.5) * (math.pi / _RADII)
        radius = rims[:, None] * (1 - ((1 + torch.cos(angle)) / 2).square()).sqrt()
        ray = lift(torch.stack([radius, torch.zeros_like(radius)], -1))
        values = torch.stack([ray[..., 0] / radius, ray[..., 2]], -1)
        transform = torch.cos(order[:, None] * angle) * (2 / _RADII)
        transform[0] /= 2
        chebyshev = transform @ values
        large = (chebyshev.abs() > _DROPPED[dtype]).any(-1)
        counts = (large * (1 + torch.arange(_RADII))).amax(-1)
        chebyshev = torch.where((torch.arange(_RADII) < counts[:, None])[..., None], chebyshev, 0.0)
        powers = _shift_powers(int(counts.amax())).T @ chebyshev[:, : int(counts.amax())]
        accurate = (powers.abs().sum((1, 2)) <= _LARGEST_SUM[dtype]) & (counts < _RADII)
        return RadialLenses(rims, outline, powers, accurate, locate)

    @property
    def most_nodes(self) -> int:
        """Number of nodes along a side of a block that always suffices."""
        # Polynomials in s² are polynomials in the pixel, so as many nodes suffice; a few more where pixels are shifted.
        return self.powers.shape[1] + _MORE_NODES

    @property
    def near(self) -> Float[Tensor, "lens"]:
        """|s²| up to which pixels are unprojected by themselves, if it is larger than elsewhere."""
        # Where rays at the rim point straight back, rounding turns them about the axis, further from the rim too.
        return torch.where(self.powers[:, 0, 1] < -0.99, _NEAR_BACK, 0.0)

    def evaluate(
        self, lens: Int[Tensor, "q"], pixels: Float[Tensor, "q p 2"]
    ) -> tuple[Float[Tensor, "7 q p"], Bool[Tensor, "q p"]]:
        """Evaluate the three components of even, those of odd, and s² at pixels of the lenses with the given indices,
        with a mask of those at which they are known; in float64."""
        core, known = self.locate(lens, pixels)
        x, y = core.unbind(-1)
        inside = 1 - (x * x + y * y) / self.rims[lens, None].square()
        values = []
        for part in (self.powers[lens, 0::2], self.powers[lens, 1::2]):
            g, c = (torch.zeros_like(inside) for _ in range(2))
            for power in reversed(part.unbind(1)):
                g = torch.addcmul(power[:, :1], g, inside)
                c = torch.addcmul(power[:, 1:], c, inside)
            values += [x * g, y * g, c]
        return torch.stack([*values, inside]), known & self.accurate[lens, None]


def fill_rim_maps(
    lenses: RadialLenses,
    unproject: Unproject,
    rays: Float[Tensor, "lens h w 3"],
    valid: Bool[Tensor, "lens h w"],
) -> None:
    """Write unit rays and validity at all pixel centers; beyond the rim rays are the optical axis."""
    dtype, (_, height, width, _) = rays.dtype, rays.shape
    box, sides = _enclose(lenses.outline, height, width)
    for side in sides:
        fill_dark(side, rays, valid)
    blocks = box.tile(_BLOCK, _BLOCK)
    coefficients, values, good = _interpolate(lenses, blocks, dtype)
    dark = good & (values[6].amax((1, 2)) < -_MARGIN)
    fill_dark(blocks.select(dark), rays, valid)
    inside = values[6].amin((1, 2))
    smooth, plain = _find_smooth(values, good & (inside > _MARGIN), TOLERANCE[dtype])
    fill_smooth(blocks.select(smooth), plain, rays, valid)
    steep = good & ~dark & ~smooth & (values.abs().amax((0, 2, 3)) <= _LARGEST_VALUE[dtype])
    steep &= measure_tail(coefficients) <= TOLERANCE[dtype]
    near = lenses.near.clamp_min(_NEAR_RIM[dtype])[blocks.lens]
    near = torch.where(inside > near.clamp_min(_MARGIN), 0.0, near)[steep]
    _fill_steep(unproject, blocks.select(steep), coefficients[:, steep], near, rays, valid)
    fill_blocks(unproject, blocks.select(~(dark | smooth | steep)), rays, valid)


def _enclose(outline: Float[Tensor, "lens n 2"], height: int, width: int) -> tuple[Blocks, list[Blocks]]:
    """Find a rectangle of the image that holds the rims of all lenses, and the rectangles around it."""
    low, high = outline.amin(1), outline.amax(1)
    # The rim is up to 1 % of its radius further out, and bulges by 0.5 % between neighboring points.
    margin = 1 + 0.02 * (high - low)
    sizes = torch.tensor([width, height])
    first = torch.minimum((low - margin).amin(0).floor().long().clamp_min(0), sizes - 1)
    last = torch.maximum(torch.minimum((high + margin).amax(0).ceil().long(), sizes), first + 1)
    left, top, right, bottom = (*first.tolist(), *last.tolist())
    box = (top, left, bottom - top, right - left)
    sides = [(0, 0, top, width), (bottom, 0, height - bottom, width)]
    sides += [(top, 0, bottom - top, left), (top, right, bottom - top, width - right)]
    count = len(outline)
    return Blocks.repeat(count, *box), [Blocks.repeat(count, *side) for side in sides if min(side[2:])]


def _interpolate(
    lenses: RadialLenses, blocks: Blocks, dtype: torch.dtype
) -> tuple[Float[Tensor, "7 q m n"], Float[Tensor, "7 q m n"], Bool[Tensor, "q"]]:
    """Compute Chebyshev coefficients of even, odd and s², their values at the nodes, and which blocks have them all."""
    size = 0.8 * float((lenses.outline.amax(1) - lenses.outline.amin(1)).amin())
    counts = [min(lenses.most_nodes, count_nodes(n / size, dtype)) for n in (blocks.height, blocks.width)]
    values, known = lenses.evaluate(blocks.lens, blocks.place_nodes(*(build_nodes(n)[0] for n in counts)))
    values = values.unflatten(-1, counts)
    return transform_values(values), values, known.all(1)


def _find_smooth(
    values: Float[Tensor, "7 q m n"], candidates: Bool[Tensor, "q"], tolerance: float
) -> tuple[Bool[Tensor, "q"], Float[Tensor, "3 smooth m n"]]:
    """Find blocks so far from the rim that rays are polynomials, and return their coefficients."""
    some = values[:, candidates]
    coefficients = transform_values(torch.addcmul(some[:3], some[3:6], some[6].sqrt()))
    converged = measure_tail(coefficients) <= tolerance
    smooth = candidates.clone()
    smooth[candidates] = converged
    return smooth, coefficients[:, converged]


def _fill_steep(
    unproject: Unproject,
    blocks: Blocks,
    coefficients: Float[Tensor, "7 q m n"],
    near: Float[Tensor, "q"],
    rays: Tensor,
    valid: Tensor,
) -> None:
    """Write even + s · odd."""
    if not len(blocks):
        return
    dtype = rays.dtype
    coefficients = drop_vanished(coefficients, TOLERANCE[dtype])
    coefficients[2, :, 0, 0] -= 1
    down = build_polynomials(blocks.height, coefficients.shape[2]).to(dtype)
    product = down.new_empty(blocks.height, 7 * blocks.width)
    parts = (
        part
        for some in coefficients.split(_BLOCKS_AT_ONCE, 1)
        for part in widen(some, blocks.width, dtype).permute(1, 2, 0, 3).flatten(2)
    )
    places = [
        _fill_block(torch.mm(down, part, out=product).view(len(down), 7, -1), limit, out, mask)
        for part, limit, out, mask in zip(
            parts, near.tolist(), blocks.cut(rays), blocks.cut(valid), strict=True
        )
    ]
    _unproject_singly(unproject, blocks, places, rays, valid)


def _shift_powers(n: int) -> Float[Tensor, "n n"]:
    """Compute the coefficients of powers of s in T_0(2s − 1) … T_{n−1}(2s − 1), one polynomial per row."""
    # T_k(2s − 1) is T_2k(sqrt(s)): every other coefficient of the even Chebyshev polynomials.
    return expand_to_powers(2 * n)[::2, ::2]


def _fill_block(
    planes: Float[Tensor, "h 7 w"],
    limit: float,
    rays: Float[Tensor, "h w 3"],
    valid: Bool[Tensor, "h w"],
) -> Int[Tensor, "near"] | None:
    """Join the components of even − (0, 0, 1) and odd, given with s²; return the places of pixels with |s²| up to the
    limit. A limit of 0 stands for a block without a rim."""
    joined, odd, inside = planes[:, :3], planes[:, 3:6], planes[:, 6]
    near = inside.abs() <= limit if limit else None
    torch.gt(inside, 0, out=valid)
    if limit:
        # Beyond the rim only the axis is left. Products take less time than a choice by the mask.
        joined *= inside.ceil().clamp_(0, 1)[:, None]
    # The product with the reciprocal of the root takes less time than the root.
    root = inside.clamp_min_(torch.finfo(inside.dtype).tiny).rsqrt().mul_(inside)
    joined.addcmul_(odd, root[:, None])[:, 2] += 1
    rays.copy_(joined.mT)
    # numpy finds them in a fifth of the time.
    return None if near is None else torch.from_numpy(np.flatnonzero(near.numpy()))


def _unproject_singly(
    unproject: Unproject,
    blocks: Blocks,
    places: list[Int[Tensor, "_"] | None],
    rays: Tensor,
    valid: Tensor,
) -> None:
    """Unproject pixels, given by their place in the flattened block, one by one."""
    counts = torch.tensor([0 if part is None else len(part) for part in places])
    if not counts.any():
        return
    place = torch.cat([part for part in places if part is not None])
    lens, top, left = (part.repeat_interleave(counts) for part in (blocks.lens, blocks.top, blocks.left))
    row, column = top + place // blocks.width, left + place % blocks.width
    lenses, sizes = lens.unique_consecutive(return_counts=True)
    pixels = torch.stack([column, row], -1).to(rays.dtype) + 0.5
    # Lenses with fewer such pixels take another one: one call for all is faster than one for each.
    padded = torch.nn.utils.rnn.pad_sequence(list(pixels.split(sizes.tolist())), batch_first=True)
    values, known = unproject(lenses, padded, True)
    own = torch.arange(padded.shape[1]) < sizes[:, None]
    rays[lens, row, column], valid[lens, row, column] = values[own], known[own]
