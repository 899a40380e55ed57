"""Ray maps of whole images, by polynomials over blocks of pixels.

Away from the rim of a lens the ray of a pixel is a smooth function of its place. Over a block of pixels it is a
polynomial of modest degree to machine precision, so the lens is inverted at a few Chebyshev nodes only, and the rays of
all pixels are two small matrix products:

    rays[row, column] = Σ_ij T_i(row) T_j(column) c_ij,   c the Chebyshev coefficients of the rays at the nodes.

The first blocks are bands as wide as the image, whose rows lie one after the other in memory. Blocks whose last
coefficients have not vanished (a rim or a fold is near) or whose nodes are valid in part are split in four. In the
small blocks that remain each pixel is unprojected by itself, so that masks are those of `Camera.unproject`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

# Unprojects pixels [q p 2] of the lenses with the given indices [q] in float64 or, if exact, in the dtype of the map.
Unproject = Callable[[Tensor, Tensor, bool], tuple[Tensor, Tensor]]

# Nodes along a side of a block that is 1, 1/2, 1/4, … of the longer side of the image: enough for lenses of
# usual fields of view to converge.
_NODES = {torch.float64: (34, 20, 16, 13, 11, 9), torch.float32: (24, 15, 12, 10, 8, 6)}
# The last coefficients that count as vanished, in radians.
TOLERANCE = {torch.float64: 2e-11, torch.float32: 1e-8}
INTERPOLATED_DTYPES = tuple(_NODES)
# Rows of a band. Few large blocks need fewer nodes in all, many small ones fewer multiplications.
_BAND = 160
# Below this number of pixels per node, unprojecting every pixel is as fast.
_PIXELS_PER_NODE = 4
# Pixels of the smallest block, whatever the number of nodes.
_SMALLEST_BLOCK = 1 << 10
# Points that are unprojected at once.
_CHUNK = 1 << 16


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of one size, in the maps of several lenses."""

    lens: Int[Tensor, "q"]
    top: Int[Tensor, "q"]
    left: Int[Tensor, "q"]
    height: int
    width: int

    @staticmethod
    def repeat(lenses: int, top: int, left: int, height: int, width: int) -> "Blocks":
        """Return the same block in the maps of all lenses."""
        tops, lefts = (torch.full((lenses,), first) for first in (top, left))
        return Blocks(torch.arange(lenses), tops, lefts, height, width)

    def __len__(self) -> int:
        return len(self.lens)

    def select(self, which: Bool[Tensor, "q"]) -> "Blocks":
        return Blocks(self.lens[which], self.top[which], self.left[which], self.height, self.width)

    def split(self) -> "Blocks":
        """Split each block in four, a band in blocks that are nearly square."""
        across = max(2, round(self.width / self.height))
        return self.divide(2 if across == 2 else 1, across)

    def tile(self, rows: int, columns: int) -> "Blocks":
        """Cover each block with smaller ones of about this many rows and columns."""
        return self.divide(max(1, round(self.height / rows)), max(1, round(self.width / columns)))

    def divide(self, down: int, across: int) -> "Blocks":
        """Cover each block with smaller ones of one size, which may share a row or column."""
        sizes = -(-self.height // down), -(-self.width // across)
        starts = (
            torch.linspace(0, total - size, n).round().long()
            for total, size, n in zip((self.height, self.width), sizes, (down, across), strict=True)
        )
        top, left = torch.meshgrid(*starts, indexing="ij")
        lens = self.lens[:, None].expand(-1, down * across)
        tops, lefts = self.top[:, None] + top.flatten(), self.left[:, None] + left.flatten()
        return Blocks(lens.flatten(), tops.flatten(), lefts.flatten(), *sizes)

    def place(self, down: Float[Tensor, "m"], across: Float[Tensor, "n"]) -> Float[Tensor, "q p 2"]:
        """Compute the pixels at these offsets from the upper left corners of the blocks."""
        u, v = self.left[:, None] + across, self.top[:, None] + down
        shape = (len(self), len(down), len(across))
        return torch.stack([u[:, None, :].expand(shape), v[:, :, None].expand(shape)], -1).flatten(1, 2)

    def place_nodes(self, rows: Float[Tensor, "m"], columns: Float[Tensor, "n"]) -> Float[Tensor, "q p 2"]:
        """Compute the pixels of nodes, given as −1 … 1 from the first pixel center of a block to its last."""
        return self.place(
            self.height / 2 + rows * ((self.height - 1) / 2),
            self.width / 2 + columns * ((self.width - 1) / 2),
        )

    def cut(self, maps: Shaped[Tensor, "lens h w ..."]) -> list[Tensor]:
        """Return the part of its lens's map that each block covers, as views."""
        places = zip(self.lens.tolist(), self.top.tolist(), self.left.tolist(), strict=True)
        return [maps[i][top : top + self.height, left : left + self.width] for i, top, left in places]


def fill_ray_maps(
    unproject: Unproject, rays: Float[Tensor, "lens h w 3"], valid: Bool[Tensor, "lens h w"]
) -> None:
    """Write unit rays and validity at all pixel centers; in blocks without a valid pixel rays are the optical axis."""
    _, height, width, _ = rays.shape
    bands = Blocks.repeat(len(rays), 0, 0, height, width).tile(_BAND, width)
    fill_blocks(unproject, bands, rays, valid)


def fill_blocks(
    unproject: Unproject,
    blocks: Blocks,
    rays: Float[Tensor, "lens h w 3"],
    valid: Bool[Tensor, "lens h w"],
) -> None:
    """Write unit rays and validity in some blocks."""
    dtype, longest = rays.dtype, max(rays.shape[1:])
    while len(blocks):
        down, across = (count_nodes(n / longest, dtype) for n in (blocks.height, blocks.width))
        if blocks.height * blocks.width < max(_PIXELS_PER_NODE * down * across, _SMALLEST_BLOCK):
            return _fill_pixels(unproject, blocks, rays, valid)
        nodes = build_nodes(down)[0], build_nodes(across)[0]
        values, known = _unproject_nodes(unproject, blocks, *nodes)
        coefficients = transform_values(values)
        smooth = known.all(1) & (measure_tail(coefficients) <= TOLERANCE[dtype])
        fill_smooth(blocks.select(smooth), coefficients[:, smooth], rays, valid)
        dark = _find_dark(unproject, blocks, ~known.any(1), *nodes)
        fill_dark(blocks.select(dark), rays, valid)
        blocks = blocks.select(~(smooth | dark)).split()
    return None


def count_nodes(share: float, dtype: torch.dtype) -> int:
    """Return the number of nodes along a side that is this share of the longer side of the image."""
    table = _NODES[dtype]
    halvings = min(max(0.0, -math.log2(share)), len(table) - 1.001)
    low, part = int(halvings), halvings % 1
    return math.ceil(table[low] * (1 - part) + table[low + 1] * part)


def widen(
    coefficients: Float[Tensor, "channel block rows columns"], width: int, dtype: torch.dtype
) -> Float[Tensor, "channel block rows width"]:
    """Evaluate the polynomials at all columns; along the rows they stay coefficients."""
    across = build_polynomials(width, coefficients.shape[-1]).to(dtype)
    return (coefficients.to(dtype).flatten(0, -2) @ across.T).unflatten(0, coefficients.shape[:-1])


def _unproject_nodes(
    unproject: Unproject, blocks: Blocks, rows: Float[Tensor, "m"], columns: Float[Tensor, "n"]
) -> tuple[Float[Tensor, "3 q m n"], Bool[Tensor, "q p"]]:
    """Unproject nodes, given as −1 … 1 from the first pixel center of a block to its last."""
    rays, valid = _unproject_in_chunks(unproject, blocks.lens, blocks.place_nodes(rows, columns), False)
    return rays.movedim(-1, 0).contiguous().unflatten(-1, (len(rows), len(columns))), valid


def _unproject_in_chunks(
    unproject: Unproject, lens: Int[Tensor, "q"], pixels: Float[Tensor, "q p 2"], exact: bool
) -> tuple[Tensor, Tensor]:
    step = max(1, _CHUNK // pixels.shape[1])
    parts = [
        unproject(some, part, exact) for some, part in zip(lens.split(step), pixels.split(step), strict=True)
    ]
    return torch.cat([rays for rays, _ in parts]), torch.cat([valid for _, valid in parts])


def fill_smooth(blocks: Blocks, coefficients: Float[Tensor, "3 q m n"], rays: Tensor, valid: Tensor) -> None:
    """Write the polynomials with these coefficients."""
    if not len(blocks):
        return
    dtype = rays.dtype
    wide = widen(drop_vanished(coefficients, TOLERANCE[dtype]), blocks.width, dtype)
    down = build_polynomials(blocks.height, wide.shape[2]).to(dtype)
    # Components lie side by side, as in the map.
    right = wide.movedim(0, -1).contiguous().flatten(2)
    for part, out, mask in zip(right, blocks.cut(rays), blocks.cut(valid), strict=True):
        torch.mm(down, part, out=out.flatten(1))
        mask.fill_(True)


def _find_dark(
    unproject: Unproject, blocks: Blocks, candidates: Bool[Tensor, "q"], rows: Tensor, columns: Tensor
) -> Bool[Tensor, "q"]:
    """Find blocks without a valid pixel: no node is valid, nor one a quarter further out, where an arc could enter."""
    dark = candidates.clone()
    if dark.any():
        _, known = _unproject_nodes(unproject, blocks.select(candidates), 1.25 * rows, 1.25 * columns)
        dark[candidates] = ~known.any(1)
    return dark


def fill_dark(blocks: Blocks, rays: Tensor, valid: Tensor) -> None:
    axis = rays.new_tensor([0.0, 0.0, 1.0]).repeat(blocks.width, 1)
    for out, mask in zip(blocks.cut(rays), blocks.cut(valid), strict=True):
        out.copy_(axis)
        mask.fill_(False)


def _fill_pixels(unproject: Unproject, blocks: Blocks, rays: Tensor, valid: Tensor) -> None:
    """Unproject every pixel of the blocks individually."""
    size = (blocks.height, blocks.width)
    down, across = (torch.arange(n, dtype=rays.dtype) + 0.5 for n in size)
    values, known = _unproject_in_chunks(unproject, blocks.lens, blocks.place(down, across), True)
    values, known = values.unflatten(1, size), known.unflatten(1, size)
    for out, mask, value, good in zip(blocks.cut(rays), blocks.cut(valid), values, known, strict=True):
        out.copy_(value)
        mask.copy_(good)


# Chebyshev polynomials over a row of pixels, from the center of the first (−1) to that of the last (1).


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
