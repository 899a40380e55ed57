"""Bilinear interpolation of a table of unit rays, and its inverse."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.cameras.inverse import solve_2x2

# Nodes per side of the coarse search.
_COARSE = 24
_MAX_STEPS = 16
_CHUNK = 16384


@dataclass(frozen=True, eq=False)
class RayTable:
    """Rays at the centres (column + ½, row + ½) of a grid; invalid entries hold any finite vector."""

    rays: Float[Tensor, "batch rows columns 3"]
    valid: Bool[Tensor, "batch rows columns"]

    def interpolate(
        self, at: Float[Tensor, "batch n 2"]
    ) -> tuple[Float[Tensor, "batch n 3"], Float[Tensor, "batch n 3 2"], Bool[Tensor, "batch n"]]:
        """The ray (not normalised), its derivative along column and row, and validity."""
        index, inside = self._find_cells(at)
        corner = torch.arange(2, device=at.device)
        flat = (
            (index[..., 1, None] + corner)[..., None] * self.rays.shape[2]
            + index[..., 0, None, None]
            + corner
        ).flatten(1)
        rays = torch.gather(self.rays.flatten(1, 2), 1, flat[..., None].expand(-1, -1, 3))
        (a, b), (c, d) = (row.unbind(2) for row in rays.unflatten(1, (-1, 2, 2)).unbind(2))
        fraction = at - 0.5 - index
        x, y = fraction[..., 0:1], fraction[..., 1:2]
        top, bottom = a + (b - a) * x, c + (d - c) * x
        along_column = (b - a) * (1 - y) + (d - c) * y
        weight = torch.cat([(1 - x) * (1 - y), x * (1 - y), (1 - x) * y, x * y], -1).detach().abs()
        # A place on a grid line, give or take rounding, does not need the neighbours beyond it.
        idle = weight <= 16 * torch.finfo(at.dtype).eps * max(self.rays.shape[1:3])
        valid = (torch.gather(self.valid.flatten(1), 1, flat).unflatten(1, (-1, 4)) | idle).all(-1)
        return top + (bottom - top) * y, torch.stack([along_column, bottom - top], -1), valid & inside

    def locate(
        self, rays: Float[Tensor, "batch n 3"]
    ) -> tuple[Float[Tensor, "batch n 2"], Bool[Tensor, "batch n"]]:
        """Where the interpolated table points along the given rays, differentiable in both, and validity."""
        known = torch.isfinite(rays).all(-1) & (rays != 0).any(-1)
        direction = torch.nn.functional.normalize(
            torch.where(known[..., None], rays.detach(), rays.new_tensor([0.0, 0.0, 1.0])), dim=-1
        )
        frame = _build_tangent_frame(direction)
        with torch.no_grad():
            at, step = self._search(direction, frame)
        interpolated, slope, valid = self.interpolate(at)
        ahead = (interpolated.detach() * direction).sum(-1)
        valid = valid & known & (step <= _choose_tolerance(rays.dtype)) & (ahead > 0)
        return torch.where(
            valid[..., None], self._attach_gradient(at, rays, direction, frame, interpolated, slope), at
        ), valid

    def _search(self, direction: Tensor, frame: Tensor) -> tuple[Tensor, Tensor]:
        """From the nearest entry, Newton on the two components of the interpolated ray across the wanted one.

        Returns the place and the length of the last step in table pixels.
        """
        at = self._find_nearest(direction)
        size = direction.new_tensor([self.rays.shape[2], self.rays.shape[1]])
        length = torch.full_like(at[..., 0], torch.inf)
        for i in range(_MAX_STEPS):
            ray, slope, _ = self.interpolate(at)
            step = solve_2x2(frame.mT @ slope, (frame.mT @ ray[..., None])[..., 0])
            length = torch.linalg.vector_norm(step, dim=-1)
            # The answer is about a pixel away; kinks between cells can make full steps alternate, so shorten some.
            move = step.clamp(-1.5, 1.5) * (1.0 if i % 4 < 3 else 0.5)
            at = torch.minimum((at - move).clamp_min(0), size)
            if not torch.compiler.is_compiling() and bool((length <= _choose_tolerance(at.dtype) / 10).all()):
                break
        return at, length

    def _attach_gradient(
        self, at: Tensor, rays: Tensor, direction: Tensor, frame: Tensor, interpolated: Tensor, slope: Tensor
    ) -> Tensor:
        """A Newton step of length zero that carries the gradient: J dp = d(wanted ray) − d(table), across the ray."""
        ahead = (interpolated.detach() * direction).sum(-1, keepdim=True)
        reach = (rays * direction).sum(-1, keepdim=True)
        wanted = torch.where(reach > 0, rays, direction) * (ahead / torch.where(reach > 0, reach, 1.0))
        residual = (frame.mT @ (wanted - interpolated)[..., None])[..., 0]
        return at.detach() + solve_2x2((frame.mT @ slope).detach(), residual - residual.detach())

    def _find_nearest(self, direction: Float[Tensor, "batch n 3"]) -> Float[Tensor, "batch n 2"]:
        """Centre of the valid entry whose ray is nearest: the best of a coarse grid, then ever finer neighbours."""
        rows, columns = (_make_coarse_indices(n, direction.device) for n in self.rays.shape[1:3])
        nodes = self.rays.detach()[:, rows][:, :, columns].flatten(1, 2)
        usable = self.valid[:, rows][:, :, columns].flatten(1)
        parts = [
            (part @ nodes.mT).masked_fill(~usable[:, None], -2.0).argmax(-1)
            for part in direction.split(_CHUNK, 1)
        ]
        best = torch.cat(parts, 1)
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

    def _find_cells(self, at: Tensor) -> tuple[Int[Tensor, "batch n 2"], Bool[Tensor, "batch n"]]:
        """Upper-left corner of the cell of four centres; the outer half pixel belongs to the outermost cells."""
        size = torch.tensor([self.rays.shape[2], self.rays.shape[1]], device=at.device)
        slack = 8 * torch.finfo(at.dtype).eps
        inside = ((at >= -slack * size) & (at <= size * (1 + slack))).all(-1)
        place = torch.nan_to_num(at.detach() - 0.5).floor()
        return torch.minimum(place.clamp_min(0), size - 2).long(), inside


def _choose_tolerance(dtype: torch.dtype) -> float:
    """In table pixels."""
    return 1e-9 if dtype == torch.float64 else 1e-3


def _make_coarse_indices(n: int, device: torch.device) -> Int[Tensor, "nodes"]:
    return torch.linspace(0, n - 1, min(n, _COARSE), device=device).round().long()


def _build_tangent_frame(direction: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape 3 2"]:
    """Two unit vectors across a direction."""
    away = torch.nn.functional.one_hot(direction.abs().argmin(-1), 3).to(direction.dtype)
    first = torch.nn.functional.normalize(torch.linalg.cross(direction, away), dim=-1)
    return torch.stack([first, torch.linalg.cross(direction, first)], -1)
