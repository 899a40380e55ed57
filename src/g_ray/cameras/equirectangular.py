"""Equirectangular panorama: longitude and latitude as pixels; COLMAP's and nerfstudio's EQUIRECTANGULAR."""

import math
from typing import Any

import torch
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.distortion import RIM_SLACK
from g_ray.cameras.parameters import ParameterSampler


class Equirectangular(Camera):
    """u = fx atan2(x, z) + cx (azimuth),  v = fy atan2(y, |(x, z)|) + cy (elevation, down).

    fx, fy in pixels per radian, cx, cy in pixels. Valid for |azimuth| ≤ π and |elevation| ≤ π/2; the seam is behind the
    camera. All rays but the two poles have one pixel; there the azimuth is taken as 0.
    """

    NAME = "equirectangular"
    PARAMETERS = ("fx", "fy", "cx", "cy")

    @classmethod
    def panorama(cls, width: int, height: int, *, dtype: Any = None, device: Any = None) -> "Equirectangular":
        """Make the full sphere, 360° x 180°, with the optical axis in the middle."""
        frame = {"fx": width / (2 * math.pi), "fy": height / math.pi, "cx": width / 2, "cy": height / 2}
        return cls.make(width, height, **frame, dtype=dtype, device=device)

    @classmethod
    def example(
        cls, seed: int, width: int = 64, height: int = 48, dtype: Any = torch.float64
    ) -> "Equirectangular":
        draw = ParameterSampler(seed, width, height)
        return cls.make(width, height, **draw.sample_intrinsics(0.1, 0.3), dtype=dtype)

    def _to_plane(self, points: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        x, y, z = points.unbind(-1)
        across = torch.linalg.vector_norm(points[..., 0::2], dim=-1)
        # On the vertical axis atan2(0, 0) would have an undefined gradient.
        azimuth = torch.atan2(torch.where(across > 0, x, 0.0), torch.where(across > 0, z, 1.0))
        known = (across > 0) | (y != 0)
        elevation = torch.atan2(y, torch.where(known, across, 1.0))
        return torch.stack([azimuth, elevation], -1), known

    def _from_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        azimuth, elevation = plane.unbind(-1)
        level = torch.cos(elevation)
        ray = torch.stack([torch.sin(azimuth) * level, torch.sin(elevation), torch.cos(azimuth) * level], -1)
        rim = math.pi * (1 + RIM_SLACK * torch.finfo(plane.dtype).eps)
        return ray, (azimuth.abs() <= rim) & (elevation.abs() <= rim / 2)
