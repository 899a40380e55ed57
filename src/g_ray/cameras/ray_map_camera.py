"""A camera given by its rays: a factory table or an estimator's per-pixel map, and the table's inverse.

Looking up the ray of a pixel is bilinear interpolation. The other way, a table has no formula to invert: `locate`
searches the entry nearest in angle, coarse to fine, and from there solves for the place between entries.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.inverse import solve_2x2
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.parameters import ParameterSampler

# Nodes per side of the coarse search: a lens is smooth enough that the best of 24 × 24 leads to the right cell.
_COARSE = 24
# Newton steps; a bilinear cell is nearly linear, so three or four suffice unless the answer lies on a kink.
_MAX_STEPS = 16
# Rays that are compared with all coarse nodes at once: bounds memory at 16384 × 576 scores.
_CHUNK = 16384


@dataclass(frozen=True, eq=False)
class RayTable:
    """Rays at the centers (column + ½, row + ½) of a grid; invalid entries hold any finite vector."""

    rays: Float[Tensor, "batch rows columns 3"]
    valid: Bool[Tensor, "batch rows columns"]

    def interpolate(
        self, at: Float[Tensor, "batch n 2"]
    ) -> tuple[Float[Tensor, "batch n 3"], Float[Tensor, "batch n 3 2"], Bool[Tensor, "batch n"]]:
        """Interpolate the ray (not normalized), its derivative along column and row, and validity."""
        index, inside = self._find_cells(at)
        # The four corners of each cell, gathered at once: upper left, upper right, lower left, lower right.
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
        # A place on a grid line, give or take rounding, does not need the neighbors beyond it.
        idle = weight <= 16 * torch.finfo(at.dtype).eps * max(self.rays.shape[1:3])
        valid = (torch.gather(self.valid.flatten(1), 1, flat).unflatten(1, (-1, 4)) | idle).all(-1)
        return top + (bottom - top) * y, torch.stack([along_column, bottom - top], -1), valid & inside

    def locate(
        self, rays: Float[Tensor, "batch n 3"]
    ) -> tuple[Float[Tensor, "batch n 2"], Bool[Tensor, "batch n"]]:
        """Find where the interpolated table points along the given rays, differentiable in both, and validity."""
        known = torch.isfinite(rays).all(-1) & (rays != 0).any(-1)
        direction = torch.nn.functional.normalize(
            torch.where(known[..., None], rays.detach(), rays.new_tensor([0.0, 0.0, 1.0])), dim=-1
        )
        # Two equations for two unknowns: the interpolated ray has no component across the wanted one. Unlike x/z and
        # y/z, components across the ray itself are well conditioned in every direction, also behind the camera.
        frame = _build_tangent_frame(direction)
        with torch.no_grad():
            at, step = self._search(direction, frame)
        interpolated, slope, valid = self.interpolate(at)
        ahead = (interpolated.detach() * direction).sum(-1)  # the opposite ray has no component across either
        valid = valid & known & (step <= _choose_tolerance(rays.dtype)) & (ahead > 0)
        return torch.where(
            valid[..., None], self._attach_gradient(at, rays, direction, frame, interpolated, slope), at
        ), valid

    def _search(self, direction: Tensor, frame: Tensor) -> tuple[Tensor, Tensor]:
        """Bring the components of the interpolated ray across the wanted one to zero: Newton, from the nearest entry.

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
        """Take a Newton step of length zero that carries the gradient: J dp = d(wanted) − d(table), across the ray."""
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

    def _find_cells(self, at: Tensor) -> tuple[Int[Tensor, "batch n 2"], Bool[Tensor, "batch n"]]:
        """Find the upper-left corner of each cell of four centers; outermost cells own the outer half pixel."""
        size = torch.tensor([self.rays.shape[2], self.rays.shape[1]], device=at.device)
        slack = 8 * torch.finfo(at.dtype).eps
        inside = ((at >= -slack * size) & (at <= size * (1 + slack))).all(-1)
        place = torch.nan_to_num(at.detach() - 0.5).floor()
        return torch.minimum(place.clamp_min(0), size - 2).long(), inside


def _choose_tolerance(dtype: torch.dtype) -> float:
    """Choose how near a solution must be, in table pixels."""
    return 1e-9 if dtype == torch.float64 else 1e-3


def _make_coarse_indices(n: int, device: torch.device) -> Int[Tensor, "nodes"]:
    return torch.linspace(0, n - 1, min(n, _COARSE), device=device).round().long()


def _build_tangent_frame(direction: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape 3 2"]:
    """Make two unit vectors across a direction; the axis it has least of cannot be parallel to it."""
    away = torch.nn.functional.one_hot(direction.abs().argmin(-1), 3).to(direction.dtype)
    first = torch.nn.functional.normalize(torch.linalg.cross(direction, away), dim=-1)
    return torch.stack([first, torch.linalg.cross(direction, first)], -1)


@dataclass(frozen=True, eq=False)
class RayMapCamera(Camera):
    """Rays on a grid, interpolated bilinearly and extrapolated over the outer half pixel; any lens, no formula.

    The normalized plane is the table's own pixel plane, so fx, fy, cx, cy map table pixels to image pixels, u = fx ·
    column + cx (image pixels per table pixel, and image pixels), and crop, pad and resize leave the table alone;
    `resample` bakes a new one. A pixel is valid where it lies on the table and all rays that have a part in it are
    valid.
    """

    table: Float[Tensor, "*batch rows columns 3"] = field(kw_only=True)
    table_valid: Bool[Tensor, "*batch rows columns"] = field(kw_only=True)

    NAME = "ray_map"
    SMOOTH = False  # bilinear interpolation has kinks
    PARAMETERS = ("fx", "fy", "cx", "cy")

    @classmethod
    def from_rays(
        cls,
        directions: Float[Tensor, "*batch rows columns 3"],
        valid: Bool[Tensor, "*batch rows columns"] | None = None,
    ) -> "RayMapCamera":
        """Make a camera whose pixel centers see the given directions, of any length.

        Directions that are zero or not finite are invalid.
        """
        if directions.ndim < 3 or directions.shape[-1] != 3:
            raise ValueError(
                f"ray_map: directions of shape {tuple(directions.shape)}; give [*batch, height, width, 3]"
            )
        usable = torch.isfinite(directions).all(-1) & (directions != 0).any(-1)
        valid = usable if valid is None else valid & usable
        forward = directions.new_tensor([0.0, 0.0, 1.0])
        table = torch.nn.functional.normalize(torch.where(usable[..., None], directions, forward), dim=-1)
        params = directions.new_tensor([1.0, 1.0, 0.0, 0.0]).expand(*directions.shape[:-3], 4)
        rows, columns = directions.shape[-3:-1]
        return cls(params, columns, rows, table=table, table_valid=valid)

    @classmethod
    def example(
        cls, seed: int, width: int = 64, height: int = 48, dtype: Any = torch.float64
    ) -> "RayMapCamera":
        draw = ParameterSampler(seed, width, height)
        lens = OpenCVFisheye.make(
            width, height, **draw.sample_intrinsics(0.3, 0.6), k1=draw(-0.02, 0.02), dtype=dtype
        )
        return cls.from_rays(*lens.unproject_grid())

    def resample(self) -> "RayMapCamera":
        """Make the same camera with a table of the image's own size."""
        return RayMapCamera.from_rays(*self.unproject_grid())

    def central_intrinsics(self) -> Float[Tensor, "*batch 3 3"]:
        """Compute K from the table's slope at the optical axis, or extrapolated from the place nearest to it.

        With tangents τ = (x/z, y/z) and place p in the table, p(τ) ≈ p₀ + (∂τ/∂p)⁻¹ (τ − τ₀).
        """
        table = self._build_table(self.batch_shape)
        axis = self.params.new_tensor([0.0, 0.0, 1.0]).expand(table.rays.shape[0], 1, 3)
        at, _ = table.locate(axis)
        ray, slope, _ = table.interpolate(at.detach())
        depth = ray[..., 2:3].clamp_min(torch.finfo(ray.dtype).eps)
        tangent = ray[..., :2] / depth
        slope = (slope[..., :2, :] - tangent[..., None] * slope[..., 2:3, :]) / depth[..., None]
        pixels_per_tangent = torch.stack([solve_2x2(slope, unit) for unit in _expand_unit_vectors(slope)], -1)
        center = at.detach() - (pixels_per_tangent @ tangent[..., None])[..., 0]
        affine = torch.cat([pixels_per_tangent, center[..., None]], -1)[:, 0].reshape(*self.batch_shape, 2, 3)
        top = self.params[..., 0:2, None] * affine
        top = torch.cat([top[..., :2], top[..., 2:] + self.params[..., 2:4, None]], -1)
        return torch.cat([top, axis[0].expand(*self.batch_shape, 1, 3)], -2)

    def _from_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        head = plane.shape[: len(self.batch_shape)]
        ray, _, valid = self._build_table(head).interpolate(self._flatten(plane))
        length = torch.linalg.vector_norm(ray, dim=-1, keepdim=True)
        usable = length > torch.finfo(ray.dtype).eps
        unit = torch.where(usable, ray, ray.new_tensor([0.0, 0.0, 1.0])) / torch.where(usable, length, 1.0)
        return unit.reshape(*plane.shape[:-1], 3), (valid & usable[..., 0]).reshape(plane.shape[:-1])

    def _to_plane(self, points: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        place, valid = self._build_table(points.shape[: len(self.batch_shape)]).locate(self._flatten(points))
        return place.reshape(*points.shape[:-1], 2), valid.reshape(points.shape[:-1])

    def _build_table(self, head: tuple[int, ...]) -> RayTable:
        rays = self.table.expand(*head, *self.table.shape[-3:]).reshape(-1, *self.table.shape[-3:])
        valid = self.table_valid.expand(*head, *self.table.shape[-3:-1]).reshape(-1, *self.table.shape[-3:-1])
        return RayTable(rays, valid)

    def _flatten(self, points: Tensor) -> Tensor:
        """Reshape [*batch, *n, ·] to [batch, n, ·]."""
        batch = math.prod(points.shape[: len(self.batch_shape)])
        return points.reshape(batch, -1, points.shape[-1])

    def _check_lens(self) -> None:
        rows, columns = self.table.shape[-3:-1]
        if tuple(self.table.shape[:-3]) != self.batch_shape or rows < 2 or columns < 2:
            raise ValueError(
                f"ray_map: table of shape {tuple(self.table.shape)} for batch {self.batch_shape}; "
                "give [*batch, rows, columns, 3] with at least 2 rows and columns"
            )
        if self.table_valid.shape != self.table.shape[:-1]:
            raise ValueError(
                f"ray_map: mask of shape {tuple(self.table_valid.shape)} for a table {tuple(self.table.shape)}; "
                "give one truth value per ray"
            )
        length = torch.linalg.vector_norm(self.table, dim=-1)
        if not bool(((length - 1).abs() < 1e-3).all()):
            raise ValueError(
                "ray_map: the table has rays that are not unit vectors; use RayMapCamera.from_rays"
            )


def _expand_unit_vectors(matrix: Float[Tensor, "*shape 2 2"]) -> list[Float[Tensor, "*shape 2"]]:
    eye = torch.eye(2, dtype=matrix.dtype, device=matrix.device)
    return [eye[i].expand(matrix.shape[:-1]) for i in range(2)]
