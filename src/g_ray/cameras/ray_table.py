"""Rays on a grid: the ray between entries, and the place where the table points along a given ray.

Looking up the ray of a pixel is bilinear interpolation. The other way, a table has no formula to invert: an index of
the sphere, built once per table, gives an entry that points nearly there, and Newton's method on the bilinear surface
finds the place between entries.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.cameras.inverse import solve_2x2

# Cells per side of the sphere's index: at least so many for small tables, at most for memory (8 bytes per cell).
_MIN_SIDE, _MAX_SIDE = 16, 2048
# Rings of empty cells around the table that still lead to it: octahedral cells differ in width by up to 2.3, and
# Newton's method needs a start for rays of the outer half pixel, between the last entries and the edge.
_RINGS = 3
# Entries per cell of the index beyond which the known one may be too far for Newton's method.
_CROWD = 16
# Newton steps; a bilinear cell is nearly linear, so three or four suffice unless the answer lies on a kink.
_MAX_STEPS = 16
# Rays that are searched at once: their intermediate values stay in the cache of a core.
_CHUNK = 16384
# Nodes per side of the search without an index: a lens is smooth enough that the best of 24 × 24 leads to the right
# cell.
_COARSE = 24


@dataclass(frozen=True, eq=False)
class SphereIndex:
    """A table entry for every direction near the table, −1 elsewhere, in cells of an octahedral map.

    The map unfolds the octahedron |x| + |y| + |z| = 1 onto a square: the front half is the inner diamond, and the four
    faces behind are folded outwards to the corners. Cells are about as wide as the distance between entries.
    """

    entries: Int[Tensor, "batch side side"]
    crowded: Bool[Tensor, "batch side side"]
    """Where many entries share a cell, as at the poles of a panorama, the one that is known can be far from others."""

    @classmethod
    @torch.no_grad()
    def build(
        cls, rays: Float[Tensor, "batch rows columns 3"], valid: Bool[Tensor, "batch rows columns"]
    ) -> "SphereIndex":
        # A sphere has the area 4π, so side² cells have a mean width of √4π / side.
        width = max(_measure_spacing(rays, valid), math.sqrt(4 * math.pi) / _MAX_SIDE)
        side = max(_MIN_SIDE, int(math.sqrt(4 * math.pi) / width))
        number = torch.arange(valid[0].numel(), device=rays.device).expand(len(rays), -1)
        entries = torch.full((len(rays), side * side), -1, device=rays.device)
        cells = _find_octahedral_cells(rays.flatten(1, 2), side)
        # Any entry of a cell would do; the last one is the same on every machine.
        entries.scatter_reduce_(1, cells, torch.where(valid.flatten(1), number, -1), "amax")
        counts = torch.zeros_like(entries).scatter_add_(1, cells, valid.flatten(1).long())
        entries, counts = entries.view(-1, side, side), counts.view(-1, side, side)
        for _ in range(_RINGS):
            entries = torch.where(entries < 0, _find_largest_neighbors(entries), entries)
            counts = _find_largest_neighbors(counts)
        return cls(entries, counts > _CROWD)

    def look_up(
        self, directions: Float[Tensor, "batch n 3"]
    ) -> tuple[Int[Tensor, "batch n"], Bool[Tensor, "batch n"]]:
        """Return the number of an entry (row · columns + column) that points nearly there, or −1, and `crowded`."""
        cells = _find_octahedral_cells(directions, self.entries.shape[-1])
        entries, crowded = (torch.gather(part.flatten(1), 1, cells) for part in (self.entries, self.crowded))
        return entries, crowded

    def expand(self, batch: tuple[int, ...], head: tuple[int, ...]) -> "SphereIndex":
        """Repeat along the dimensions of size 1 of a batch, and flatten it."""
        side = self.entries.shape[1:]
        return SphereIndex(
            *(
                part.reshape(*batch, *side).expand(*head, *side).reshape(-1, *side)
                for part in (self.entries, self.crowded)
            )
        )


def _measure_spacing(rays: Tensor, valid: Tensor) -> float:
    """Measure the distance between neighboring entries, in radians: that of the widest percent, of a sample."""
    rows, columns = (slice(None, None, max(1, n // 128)) for n in valid.shape[1:])
    distances = [
        (a - b).norm(dim=-1)[seen & seen_too]
        for a, b, seen, seen_too in (
            (rays[:, rows, 1:], rays[:, rows, :-1], valid[:, rows, 1:], valid[:, rows, :-1]),
            (rays[:, 1:, columns], rays[:, :-1, columns], valid[:, 1:, columns], valid[:, :-1, columns]),
        )
    ]
    spacing = torch.cat(distances).sort().values
    return float(spacing[int(0.99 * len(spacing))]) if len(spacing) else math.pi


def _find_octahedral_cells(directions: Float[Tensor, "*n 3"], side: int) -> Int[Tensor, "*n"]:
    """Return row · side + column of the cell of each direction, of any length."""
    x, y, z = directions.detach().unbind(-1)
    total = (x.abs() + y.abs() + z.abs()).clamp_min(torch.finfo(x.dtype).tiny)
    u, v = x / total, y / total
    behind = z < 0
    u, v = (
        torch.where(behind, torch.copysign(1 - v.abs(), u), u),
        torch.where(behind, torch.copysign(1 - u.abs(), v), v),
    )
    column, row = (((w + 1) * (side / 2)).long().clamp(0, side - 1) for w in (u, v))
    return row * side + column


def _find_largest_neighbors(entries: Int[Tensor, "batch side side"]) -> Int[Tensor, "batch side side"]:
    """Return the largest entry of each cell's neighbors; an edge of the square is folded onto itself at its middle."""
    wide = torch.cat([entries[:, :, :1].flip(1), entries, entries[:, :, -1:].flip(1)], 2)
    full = torch.cat([wide[:, :1].flip(2), wide, wide[:, -1:].flip(2)], 1)
    tall = torch.maximum(torch.maximum(full[:, :-2], full[:, 1:-1]), full[:, 2:])
    return torch.maximum(torch.maximum(tall[:, :, :-2], tall[:, :, 1:-1]), tall[:, :, 2:])


@dataclass(frozen=True, eq=False)
class RayTable:
    """Rays at the centers (column + ½, row + ½) of a grid; invalid entries hold any finite vector."""

    rays: Float[Tensor, "batch rows columns 3"]
    valid: Bool[Tensor, "batch rows columns"]

    def interpolate(
        self, at: Float[Tensor, "batch n 2"]
    ) -> tuple[Float[Tensor, "batch n 3"], Float[Tensor, "batch n 3 2"], Bool[Tensor, "batch n"]]:
        """Interpolate the ray (not normalized), its derivative along column and row, and validity."""
        rays, corners, fraction = self._gather_corners(at)
        (a, b, c, d), (x, y) = rays.unbind(-2), fraction.split(1, -1)
        top, bottom = a + (b - a) * x, c + (d - c) * x
        along_column = (b - a) * (1 - y) + (d - c) * y
        weight = torch.cat([(1 - x) * (1 - y), x * (1 - y), (1 - x) * y, x * y], -1).detach().abs()
        # A place on a grid line, give or take rounding, does not need the neighbors beyond it.
        idle = weight <= 16 * torch.finfo(at.dtype).eps * max(self.rays.shape[1:3])
        valid = self.valid.flatten().index_select(0, corners.flatten()).view(corners.shape)
        size = torch.tensor([self.rays.shape[2], self.rays.shape[1]], device=at.device)
        slack = 8 * torch.finfo(at.dtype).eps
        inside = ((at >= -slack * size) & (at <= size * (1 + slack))).all(-1)
        slope = torch.stack([along_column, bottom - top], -1)
        return top + (bottom - top) * y, slope, (valid | idle).all(-1) & inside

    def _gather_corners(
        self, at: Float[Tensor, "batch n 2"]
    ) -> tuple[Float[Tensor, "batch n 4 3"], Int[Tensor, "batch n 4"], Float[Tensor, "batch n 2"]]:
        """Return the rays around each place, their numbers in the batch of tables, and the place in its cell.

        Upper left, upper right, lower left, lower right; outermost cells own the outer half pixel.
        """
        batch, rows, columns = self.valid.shape
        size = torch.tensor([columns, rows], device=at.device)
        cell = torch.minimum(torch.nan_to_num(at.detach() - 0.5).floor().clamp_min(0), size - 2).long()
        table = torch.arange(batch, device=at.device)[:, None] * (rows * columns)
        offset = torch.tensor([0, 1, columns, columns + 1], device=at.device)
        corners = (table + cell[..., 1] * columns + cell[..., 0])[..., None] + offset
        # Selecting whole rays by their number takes a third of the time of `gather`.
        rays = self.rays.flatten(0, 2).index_select(0, corners.flatten()).view(*corners.shape, 3)
        return rays, corners, at - 0.5 - cell

    def locate(
        self, rays: Float[Tensor, "batch n 3"], index: SphereIndex | None = None
    ) -> tuple[Float[Tensor, "batch n 2"], Bool[Tensor, "batch n"]]:
        """Find where the interpolated table points along the given rays, differentiable in both, and validity.

        Without an index the nearest entry is searched: slower, but a graph of a fixed shape.
        """
        known = torch.isfinite(rays).all(-1) & (rays != 0).any(-1)
        direction = torch.nn.functional.normalize(
            torch.where(known[..., None], rays.detach(), rays.new_tensor([0.0, 0.0, 1.0])), dim=-1
        )
        with torch.no_grad():
            if index is None:
                at, step = self._solve(self._find_nearest(direction), direction)
            else:
                at, step = self._search_by_index(direction, index)
        interpolated, slope, valid = self.interpolate(at)
        ahead = (interpolated.detach() * direction).sum(-1)  # the opposite ray has no component across either
        valid = valid & known & (step <= _choose_tolerance(rays.dtype)) & (ahead > 0)
        if not (torch.is_grad_enabled() and (rays.requires_grad or self.rays.requires_grad)):
            return at, valid
        followed = self._attach_gradient(at, rays, direction, interpolated, slope)
        return torch.where(valid[..., None], followed, at), valid

    def _search_by_index(self, direction: Tensor, index: SphereIndex) -> tuple[Tensor, Tensor]:
        """Solve from the index's entry, and from the nearest entry where that fails among many in a cell."""
        entry, crowded = index.look_up(direction)
        columns = self.rays.shape[2]
        at = torch.stack([entry % columns, entry // columns], -1).to(direction.dtype) + 0.5
        step = torch.full_like(at[..., 0], torch.inf)
        for i, near in enumerate(entry >= 0):
            table = RayTable(self.rays[i : i + 1], self.valid[i : i + 1])
            rest = []
            for chosen in near.nonzero()[:, 0].split(_CHUNK):
                wanted = direction[i : i + 1].index_select(1, chosen)
                place, length = table._solve(at[i : i + 1].index_select(1, chosen), wanted, steps=3)
                at[i, chosen], step[i, chosen] = place[0], length[0]
                rest.append(chosen[length[0] > _choose_tolerance(at.dtype)])
            # The few that need more steps go on together, whichever chunk they are from.
            more = torch.cat(rest) if rest else near.nonzero()[:, 0]
            place, length = table._solve(at[i : i + 1, more], direction[i : i + 1, more])
            at[i, more], step[i, more] = place[0], length[0]
            lost = more[(length[0] > _choose_tolerance(at.dtype)) & crowded[i, more]]
            wanted = direction[i : i + 1, lost]
            place, length = table._solve(table._find_nearest(wanted), wanted)
            at[i, lost], step[i, lost] = place[0], length[0]
        return at, step

    def _solve(self, at: Tensor, direction: Tensor, steps: int = _MAX_STEPS) -> tuple[Tensor, Tensor]:
        """Bring the components of the interpolated ray across the wanted one to zero by Newton's method.

        Two equations for two unknowns: unlike x/z and y/z, components across the ray itself are well conditioned in
        every direction, also behind the camera. Returns the place and the length of the last step in table pixels.
        """
        frame = _build_tangent_frame(direction)
        length = torch.full_like(at[..., 0], torch.inf)
        active = torch.arange(at.shape[1], device=at.device)
        for i in range(steps):
            # Kinks between cells can make full steps alternate, so shorten some.
            start = at.index_select(1, active)
            place, step = self._step(start, frame.index_select(1, active), 1.0 if i % 4 < 3 else 0.5)
            at, length = at.index_copy(1, active, place), length.index_copy(1, active, step)
            # Few places need more than two steps, and those of rays beside the table are stuck at its edge. A
            # compiled graph has a fixed shape and goes on with all of them.
            if not torch.compiler.is_compiling():
                moving = (step > _choose_tolerance(at.dtype)) & (place != start).any(-1)
                active = active[moving.any(0)]
                if not len(active):
                    break
        return at, length

    def _step(self, at: Tensor, frame: Tensor, share: float) -> tuple[Tensor, Tensor]:
        """Move by a Newton step, or 1.5 entries where it is longer: the answer is about one away. Return its length."""
        rays, _, fraction = self._gather_corners(at)
        (a, b, c, d), (x, y) = (rays @ frame).unbind(-2), fraction.split(1, -1)
        top, twist = b - a, d - c - b + a
        along_row = c - a + twist * x
        step = solve_2x2(torch.stack([top + twist * y, along_row], -1), a + top * x + along_row * y)
        size = at.new_tensor([self.rays.shape[2], self.rays.shape[1]])
        moved = torch.minimum((at - step.clamp(-1.5, 1.5) * share).clamp_min(0), size)
        return moved, torch.linalg.vector_norm(step, dim=-1)

    def _attach_gradient(
        self, at: Tensor, rays: Tensor, direction: Tensor, interpolated: Tensor, slope: Tensor
    ) -> Tensor:
        """Take a Newton step of length zero that carries the gradient: J dp = d(wanted) − d(table), across the ray."""
        frame = _build_tangent_frame(direction)
        ahead = (interpolated.detach() * direction).sum(-1, keepdim=True)
        reach = (rays * direction).sum(-1, keepdim=True)
        wanted = torch.where(reach > 0, rays, direction) * (ahead / torch.where(reach > 0, reach, 1.0))
        residual = (frame.mT @ (wanted - interpolated)[..., None])[..., 0]
        return at.detach() + solve_2x2((frame.mT @ slope).detach(), residual - residual.detach())

    def _find_nearest(self, direction: Float[Tensor, "batch n 3"]) -> Float[Tensor, "batch n 2"]:
        """Find the center of the valid entry whose ray is nearest: best of a coarse grid, then of its neighbors."""
        rows, columns = (_make_coarse_indices(n, direction.device) for n in self.rays.shape[1:3])
        nodes = self.rays.detach()[:, rows][:, :, columns].flatten(1, 2)
        usable = self.valid[:, rows][:, :, columns].flatten(1)
        parts = [
            (part @ nodes.mT).masked_fill(~usable[:, None], -2.0).argmax(-1)
            for part in direction.split(_CHUNK, 1)
        ]
        best = torch.cat(parts, 1)
        # Halving the stride from one coarse spacing visits log₂ n neighborhoods instead of all n entries.
        place = torch.stack([columns[best % len(columns)], rows[best // len(columns)]], -1)
        stride = 2 * max(-(-n // _COARSE) for n in self.rays.shape[1:3])
        while stride > 1:
            stride //= 2
            place = self._find_best_neighbor(direction, place, stride)
        return self._find_best_neighbor(direction, place, 1).to(direction.dtype) + 0.5

    def _find_best_neighbor(self, direction: Tensor, place: Int[Tensor, "batch n 2"], stride: int) -> Tensor:
        rows, columns = self.rays.shape[1:3]
        offset = torch.tensor([-stride, 0, stride], device=place.device)
        x = (place[..., 0, None] + offset.repeat(3)).clamp(0, columns - 1)
        y = (place[..., 1, None] + offset.repeat_interleave(3)).clamp(0, rows - 1)
        index = (y * columns + x).flatten(1)
        rays = torch.gather(self.rays.detach().flatten(1, 2), 1, index[..., None].expand(-1, -1, 3))
        score = (rays.unflatten(1, (-1, 9)) * direction[:, :, None]).sum(-1)
        usable = torch.gather(self.valid.flatten(1), 1, index).unflatten(1, (-1, 9))
        best = score.masked_fill(~usable, -2.0).argmax(-1, keepdim=True)
        return torch.cat([x.gather(-1, best), y.gather(-1, best)], -1)


def _choose_tolerance(dtype: torch.dtype) -> float:
    """Choose how long the last step may be, in table pixels.

    The error that it leaves is smaller by the share of the slope that changes from cell to cell, about a thousandth.
    """
    return 1e-7 if dtype == torch.float64 else 1e-2


def _make_coarse_indices(n: int, device: torch.device) -> Int[Tensor, "nodes"]:
    return torch.linspace(0, n - 1, min(n, _COARSE), device=device).round().long()


def _build_tangent_frame(direction: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape 3 2"]:
    """Make two unit vectors across a direction; the axis it has least of cannot be parallel to it."""
    away = torch.nn.functional.one_hot(direction.abs().argmin(-1), 3).to(direction.dtype)
    first = torch.nn.functional.normalize(torch.linalg.cross(direction, away), dim=-1)
    return torch.stack([first, torch.linalg.cross(direction, first)], -1)
