"""Division camera (Fitzgibbon 2001): COLMAP's DIVISION and SIMPLE_DIVISION."""

from typing import Any

import torch
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.distortion import RIM_SLACK, normalize
from g_ray.cameras.eucm import divide_where_positive
from g_ray.cameras.parameters import ParameterSampler, check_fold, compute_nearest_edge_distance


class Division(Camera):
    """The ray of the plane point (a, b) is (a, b, 1 + k t) with t = a² + b²: undistorted = distorted / (1 + k t).

    fx, fy, cx, cy in pixels; k has no unit, negative for barrel distortion. With ρ² = x² + y² the projection is the
    smaller root of a quadratic:  (a, b) = (x, y) · 2 / (z + sqrt(z² − 4 k ρ²)).  For k > 0 the image ends where the
    root does, at t = 1 / k; for k < 0 it has no end, and rays beyond 90° (t > −1 / k) have a place in it. For k = 0
    it is a pinhole. COLMAP's convention.
    """

    NAME = "division"
    PARAMETERS = ("fx", "fy", "cx", "cy", "k")

    @classmethod
    def example(cls, seed: int, width: int = 64, height: int = 48, dtype: Any = torch.float64) -> "Division":
        draw = ParameterSampler(seed, width, height)
        return cls.make(width, height, **draw.sample_intrinsics(0.5, 1.2), k=draw(-0.4, 0.2), dtype=dtype)

    def _to_plane(self, points: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        k, xy, z = params[..., 4], points[..., 0:2], points[..., 2]
        eps = torch.finfo(z.dtype).eps
        across = xy.square().sum(-1)
        inside = z * z - 4 * k * across
        length = torch.linalg.vector_norm(points.detach(), dim=-1)
        known = (length > 0) & (inside >= -RIM_SLACK * eps * z * z)
        # eps² keeps the slope of the root finite on the rim; relative to the length, as only directions matter.
        root = torch.where(known, inside, 1.0).clamp_min(0).add(eps**2 * length.square()).sqrt()
        # z + root cancels behind the camera; the other root of the quadratic does not.
        behind = z < 0
        bottom = torch.where(behind, -2 * k * across / torch.where(behind, root - z, 1.0), (z + root) / 2)
        return divide_where_positive(xy, bottom, length, known)

    def _from_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        kt = params[..., 4] * plane.square().sum(-1)
        rim = 1 + RIM_SLACK * torch.finfo(plane.dtype).eps
        return normalize(torch.cat([plane, 1 + kt[..., None]], -1)), kt <= rim

    def _compute_rim(self) -> Tensor:
        return self.params[..., 4].clamp_min(0).rsqrt()

    def _check_lens(self) -> None:
        k = self.params[..., 4]
        fold = torch.where(k > 0, 1 / torch.where(k > 0, k, 1.0).sqrt(), torch.inf)
        edge = compute_nearest_edge_distance(self.params, self.width, self.height)
        check_fold(self.NAME, fold, edge, "the radius 1/√k")
