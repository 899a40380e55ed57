"""Pinhole camera with skew: the K of textbooks, COLMAP's PINHOLE and SIMPLE_PINHOLE."""

import math
from typing import Any

import torch
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.distortion import normalize, project_to_tangent_plane
from g_ray.cameras.parameters import ParameterSampler


class Pinhole(Camera):
    """u = fx x/z + skew y/z + cx,  v = fy y/z + cy   (eq:intrinsics with skew = K[0, 1] in pixels).

    All five parameters in pixels; (cx, cy) from the top-left corner of the image, as for every model here. Rays at or
    beyond 90° have no image.
    """

    NAME = "pinhole"
    PARAMETERS = ("fx", "fy", "cx", "cy", "skew")

    @classmethod
    def from_fov(
        cls, horizontal_deg: float | int, width: int, height: int, *, dtype: Any = None, device: Any = None
    ) -> "Pinhole":
        """Make a camera with square pixels and the principal point in the middle."""
        if not 0 < horizontal_deg < 180:
            raise ValueError(
                f"pinhole: horizontal field of view {horizontal_deg}° is not between 0° and 180°; "
                "use a fisheye or equirectangular camera for wider images"
            )
        f = width / 2 / math.tan(math.radians(horizontal_deg) / 2)
        return cls.make(width, height, fx=f, fy=f, cx=width / 2, cy=height / 2, dtype=dtype, device=device)

    @classmethod
    def example(cls, seed: int, width: int = 64, height: int = 48, dtype: Any = torch.float64) -> "Pinhole":
        draw = ParameterSampler(seed, width, height)
        return cls.make(
            width, height, **draw.sample_intrinsics(0.5, 2.0), skew=draw(-0.05, 0.05) * width, dtype=dtype
        )

    def _to_plane(self, points: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        tangent, valid = project_to_tangent_plane(points)
        a, b = tangent.unbind(-1)
        return torch.stack([a + params[..., 4] / params[..., 0] * b, b], -1), valid

    def _from_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        a, b = plane.unbind(-1)
        a = a - params[..., 4] / params[..., 0] * b
        return normalize(torch.stack([a, b, torch.ones_like(a)], -1)), torch.isfinite(a + b)

    def _compute_central_skew(self) -> Tensor:
        return self.params[..., 4]

    def _scale_params(self, sx: float, sy: float, tx: float | int, ty: float | int) -> Tensor:
        scaled = super()._scale_params(sx, sy, tx, ty)
        return torch.cat([scaled[..., :4], scaled[..., 4:] * sx], -1)
