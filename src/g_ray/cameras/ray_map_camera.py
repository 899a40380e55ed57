"""A camera given by its rays: a factory table or an estimator's per-pixel map."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.inverse import solve_2x2
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.parameters import ParameterSampler
from g_ray.cameras.ray_table import RayTable, SphereIndex


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
        head = points.shape[: len(self.batch_shape)]
        index = None if torch.compiler.is_compiling() else self._index.expand(self.batch_shape, tuple(head))
        place, valid = self._build_table(head).locate(self._flatten(points), index)
        return place.reshape(*points.shape[:-1], 2), valid.reshape(points.shape[:-1])

    @cached_property
    def _index(self) -> SphereIndex:
        # Built at the first projection; a crop or a resized copy is another camera and builds its own.
        table = self._build_table(self.batch_shape)
        return SphereIndex.build(table.rays, table.valid)

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
