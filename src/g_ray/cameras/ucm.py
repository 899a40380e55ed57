"""Unified camera (Geyer and Daniilidis 2000; Mei and Rives 2007), in the form with α in [0, 1]."""

from typing import Any

import torch
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.distortion import normalize
from g_ray.cameras.eucm import compute_unified_rim, lift_unified, project_unified
from g_ray.cameras.parameters import ParameterSampler, check_values


class UCM(Camera):
    """(a, b) = (x, y) / (α d + (1 − α) z),  d = |(x, y, z)|.

    fx, fy, cx, cy in pixels, α without unit. From Mei's (γ, ξ), e.g. Kalibr's `omni` without distortion: α = ξ / (1 +
    ξ), f = γ / (1 + ξ). Valid where `eucm` with β = 1 is.
    """

    NAME = "ucm"
    PARAMETERS = ("fx", "fy", "cx", "cy", "alpha")

    @classmethod
    def example(cls, seed: int, width: int = 64, height: int = 48, dtype: Any = torch.float64) -> "UCM":
        draw = ParameterSampler(seed, width, height)
        return cls.make(width, height, **draw.sample_intrinsics(0.3, 0.7), alpha=draw(0.3, 0.8), dtype=dtype)

    def _to_plane(self, points: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        return project_unified(points, params[..., 4], torch.ones_like(params[..., 4]))

    def _from_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        z, valid = lift_unified(plane.square().sum(-1), params[..., 4], torch.ones_like(params[..., 4]))
        return normalize(torch.cat([plane, z[..., None]], -1)), valid

    def _compute_rim(self) -> Tensor:
        return compute_unified_rim(self.params[..., 4], torch.ones_like(self.params[..., 4]))

    def _check_lens(self) -> None:
        alpha = self.params[..., 4:5]
        check_values(self.NAME, ("alpha",), alpha, (alpha >= 0) & (alpha <= 1), "is not between 0 and 1")
