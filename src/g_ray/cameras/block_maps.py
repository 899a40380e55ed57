"""Ray maps of whole images, by polynomials over blocks of pixels.

Away from the rim of a lens the ray of a pixel is a smooth function of its place. Over a block of pixels it is a
polynomial of modest degree to machine precision, so the lens is inverted at m x m Chebyshev nodes only, and the rays of
all pixels are two small matrix products:

    rays[row, column] = Σ_ij L_i(row) L_j(column) ray(node_ij),   L_i = 1 at node i and 0 at all others.

Blocks whose last Chebyshev coefficients have not vanished (a rim or a fold is near) or whose nodes are valid in part
are split in four. In the small blocks that remain each pixel is unprojected by itself, so that masks are those of
`Camera.unproject`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

# Unprojects pixels [q p 2] of the lenses with the given indices [q] in float64 or, if exact, in the dtype of the map.
Unproject = Callable[[Tensor, Tensor, bool], tuple[Tensor, Tensor]]

# Nodes per side of a block when the image is divided in 1, 2, 4, 8, … blocks per side: so many let lenses of usual
# fields of view converge. Few large blocks need fewer nodes in all, many small ones fewer multiplications.
_NODES = {torch.float64: (34, 24, 18, 14), torch.float32: (24, 17, 13, 10)}
# The last coefficients that count as vanished, in radians.
_TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-8}
INTERPOLATED_DTYPES = tuple(_NODES)
# Pixels per side of a block that is worth its products.
_BLOCK_SIZE = 146
# Below so many pixels per node, unprojecting every pixel is as fast.
_PIXELS_PER_NODE = 4
# Pixels of the smallest block, whatever the number of nodes.
_SMALLEST_BLOCK = 1 << 10
# Points that are unprojected at once: temporaries stay in the processor's cache.
_CHUNK = 1 << 16


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of one size, in the maps of several lenses."""

    lens: Int[Tensor, "q"]
    top: Int[Tensor, "q"]
    left: Int[Tensor, "q"]
    height: int
    width: int

    def __len__(self) -> int:
        return len(self.lens)

    def select(self, which: Bool[Tensor, "q"]) -> "Blocks":
        return Blocks(self.lens[which], self.top[which], self.left[which], self.height, self.width)

    def split(self) -> "Blocks":
        """Split each block in four of one size; those of an odd side share their middle row or column."""
        height, width = -(-self.height // 2), -(-self.width // 2)
        lower, right = self.height - height, self.width - width
        return Blocks(
            self.lens.repeat(4),
            torch.cat([self.top, self.top, self.top + lower, self.top + lower]),
            torch.cat([self.left, self.left + right, self.left, self.left + right]),
            height,
            width,
        )

    def place(self, down: Float[Tensor, "m"], across: Float[Tensor, "n"]) -> Float[Tensor, "q p 2"]:
        """Compute the pixels so far below and to the right of the upper left corners of the blocks."""
        u, v = self.left[:, None] + across, self.top[:, None] + down
        shape = (len(self), len(down), len(across))
        return torch.stack([u[:, None, :].expand(shape), v[:, :, None].expand(shape)], -1).flatten(1, 2)

    def cut(self, maps: Sequence[Shaped[Tensor, "h w ..."]]) -> list[Tensor]:
        """Return the part of its lens's map that each block covers, as views."""
        places = zip(self.lens.tolist(), self.top.tolist(), self.left.tolist(), strict=True)
        return [maps[i][top : top + self.height, left : left + self.width] for i, top, left in places]


def fill_ray_maps(
    unproject: Unproject, rays: list[Float[Tensor, "h w 3"]], valid: list[Bool[Tensor, "h w"]]
) -> None:
    """Write unit rays and validity at all pixel centers; in blocks without a valid pixel rays are the optical axis."""
    dtype, (height, width, _) = rays[0].dtype, rays[0].shape
    depth = max(0, round(math.log2(min(height, width) / _BLOCK_SIZE)))
    blocks = _divide(len(rays), height, width, 2**depth)
    while len(blocks):
        nodes = _NODES[dtype][min(depth, 3)]
        if blocks.height * blocks.width < max(_PIXELS_PER_NODE * nodes**2, _SMALLEST_BLOCK):
            return _fill_pixels(unproject, blocks, rays, valid)
        node, transform = _build_nodes(nodes)
        values, known = _unproject_nodes(unproject, blocks, node)
        smooth = known.all(1) & (_measure_tail(values, transform) <= _TOLERANCE[dtype])
        _fill_smooth(blocks.select(smooth), values[smooth], transform, rays, valid)
        dark = _find_dark(unproject, blocks, ~known.any(1), node)
        _fill_dark(blocks.select(dark), rays, valid)
        blocks, depth = blocks.select(~(smooth | dark)).split(), depth + 1
    return None


def _divide(lenses: int, height: int, width: int, n: int) -> Blocks:
    """Cover each map with n x n blocks of one size, which may share a row or column."""
    sizes = -(-height // n), -(-width // n)
    starts = [
        torch.linspace(0, total - size, n).round().long()
        for total, size in zip((height, width), sizes, strict=True)
    ]
    lens, top, left = torch.meshgrid(torch.arange(lenses), *starts, indexing="ij")
    return Blocks(lens.flatten(), top.flatten(), left.flatten(), *sizes)


def _unproject_nodes(
    unproject: Unproject, blocks: Blocks, node: Float[Tensor, "m"]
) -> tuple[Float[Tensor, "q m m 3"], Bool[Tensor, "q p"]]:
    """Unproject nodes, given as −1 … 1 from the first pixel center of a block to its last."""
    down, across = (size / 2 + node * ((size - 1) / 2) for size in (blocks.height, blocks.width))
    rays, valid = _unproject_in_chunks(unproject, blocks, down, across, False)
    return rays.unflatten(1, (len(node), len(node))), valid


def _unproject_in_chunks(
    unproject: Unproject, blocks: Blocks, down: Tensor, across: Tensor, exact: bool
) -> tuple[Tensor, Tensor]:
    pixels = blocks.place(down, across)
    step = max(1, _CHUNK // pixels.shape[1])
    parts = [
        unproject(lens, part, exact)
        for lens, part in zip(blocks.lens.split(step), pixels.split(step), strict=True)
    ]
    return torch.cat([rays for rays, _ in parts]), torch.cat([valid for _, valid in parts])


def _build_nodes(m: int) -> tuple[Float[Tensor, "m"], Float[Tensor, "m m"]]:
    """Compute Chebyshev nodes on [−1, 1], ends included, and the matrix from values there to coefficients."""
    angle = torch.arange(m, dtype=torch.float64) * (math.pi / (m - 1))
    transform = torch.cos(torch.arange(m)[:, None] * angle) * (2 / (m - 1))
    transform[[0, -1]] /= 2
    transform[:, [0, -1]] /= 2
    return torch.cos(angle), transform


def _measure_tail(values: Float[Tensor, "q m m 3"], transform: Float[Tensor, "m m"]) -> Float[Tensor, "q"]:
    """Compute the largest of the last two Chebyshev coefficients along both axes; one alone is 0 for even functions."""
    last = transform[-2:]
    along_rows = (last @ values.flatten(2)).abs().amax((1, 2))
    along_columns = (last @ values).abs().amax((1, 2, 3))
    return torch.maximum(along_rows, along_columns)


def _build_interpolation(n: int, transform: Float[Tensor, "m m"]) -> Float[Tensor, "n m"]:
    """Compute the matrix from values at the nodes to those at n pixel centers, evenly spaced from −1 to 1."""
    angle = torch.acos(torch.linspace(-1, 1, n, dtype=torch.float64))
    return torch.cos(angle[:, None] * torch.arange(len(transform))) @ transform


def _fill_smooth(
    blocks: Blocks,
    values: Float[Tensor, "q m m 3"],
    transform: Tensor,
    rays: list[Tensor],
    valid: list[Tensor],
) -> None:
    """Write the polynomials through the values at the nodes."""
    down = _build_interpolation(blocks.height, transform).to(rays[0].dtype)
    across = _build_interpolation(blocks.width, transform)
    # Components go through the first product one by one and lie side by side, as in the map, in the second.
    wide = (values.movedim(-1, -2).flatten(0, 2) @ across.T).to(down.dtype)
    wide = wide.view(len(blocks), len(transform), 3, blocks.width).movedim(-1, -2).flatten(2)
    for right, out, mask in zip(wide, blocks.cut(rays), blocks.cut(valid), strict=True):
        torch.mm(down, right, out=out.flatten(1))
        mask.fill_(True)


def _find_dark(
    unproject: Unproject, blocks: Blocks, candidates: Bool[Tensor, "q"], node: Float[Tensor, "m"]
) -> Bool[Tensor, "q"]:
    """Find blocks without a valid pixel: no node is valid, nor one a quarter further out, where an arc could enter."""
    dark = candidates.clone()
    if dark.any():
        dark[candidates] = ~_unproject_nodes(unproject, blocks.select(candidates), 1.25 * node)[1].any(1)
    return dark


def _fill_dark(blocks: Blocks, rays: list[Tensor], valid: list[Tensor]) -> None:
    axis = rays[0].new_tensor([0.0, 0.0, 1.0]).repeat(blocks.width, 1)
    for out, mask in zip(blocks.cut(rays), blocks.cut(valid), strict=True):
        out.copy_(axis)
        mask.fill_(False)


def _fill_pixels(unproject: Unproject, blocks: Blocks, rays: list[Tensor], valid: list[Tensor]) -> None:
    """Unproject every pixel of the blocks by itself."""
    size = (blocks.height, blocks.width)
    down, across = (torch.arange(n, dtype=rays[0].dtype) + 0.5 for n in size)
    values, known = _unproject_in_chunks(unproject, blocks, down, across, True)
    values, known = values.unflatten(1, size), known.unflatten(1, size)
    for out, mask, value, good in zip(blocks.cut(rays), blocks.cut(valid), values, known, strict=True):
        out.copy_(value)
        mask.copy_(good)
