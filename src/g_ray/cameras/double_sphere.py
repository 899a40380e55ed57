"""Double sphere camera (Usenko, Demmel and Cremers 2018): Basalt's and Kalibr's `ds`."""

from typing import Any

import torch
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.distortion import normalize
from g_ray.cameras.eucm import compute_unified_rim, divide_where_positive, is_outside_shadow, lift_unified
from g_ray.cameras.parameters import ParameterSampler, check_values


class DoubleSphere(Camera):
    """(a, b) = (x, y) / (α d2 + (1 − α) (ξ d1 + z)),  d1 = |(x, y, z)|,  d2 = |(x, y, ξ d1 + z)|.

    fx, fy, cx, cy in pixels; −1 < ξ < 1 and 0 ≤ α ≤ 1 without unit. Valid for ξ d1 + z > −w d2 with w = α / (1 − α) for
    α ≤ ½ and (1 − α) / α above. For α > ½ this is exactly the disk a² + b² < 1 / (2α − 1); the bound z > −w2 d1 of the
    publication is narrower and loses the rim. On the axis one unit of x/z covers 1 / (1 + ξ) of the plane.
    """

    NAME = "double_sphere"
    PARAMETERS = ("fx", "fy", "cx", "cy", "xi", "alpha")

    @classmethod
    def example(
        cls, seed: int, width: int = 64, height: int = 48, dtype: Any = torch.float64
    ) -> "DoubleSphere":
        draw = ParameterSampler(seed, width, height)
        lens = {"xi": draw(-0.3, 0.4), "alpha": draw(0.4, 0.7)}
        return cls.make(width, height, **draw.sample_intrinsics(0.3, 0.7), **lens, dtype=dtype)

    def _to_plane(self, points: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        (xi, alpha), (xy, z) = params[..., 4:6].unbind(-1), (points[..., 0:2], points[..., 2])
        known = (points != 0).any(-1)
        across = xy.square().sum(-1)
        d1 = torch.where(known, across + z * z, 1.0).sqrt()
        forward = xi * d1 + z
        # The root of 0 has an infinite slope: where d2 would be 0 (a ray in the shadow), take the root of 1 instead.
        d2 = torch.where(known & ((across > 0) | (forward != 0)), across + forward * forward, 1.0).sqrt()
        bottom = alpha * d2 + (1 - alpha) * forward
        return divide_where_positive(xy, bottom, d2, known & is_outside_shadow(forward, d2, alpha))

    def _from_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        xi, alpha = params[..., 4:6].unbind(-1)
        t = plane.square().sum(-1)
        z, valid = lift_unified(t, alpha, torch.ones_like(alpha))
        # The length s with |s (a, b, z) − (0, 0, ξ)| = 1: the point on the first sphere.
        scale = (z * xi + (z * z + (1 - xi * xi) * t).sqrt()) / (z * z + t)
        ray = torch.cat([plane, z[..., None]], -1) * scale[..., None]
        offset = torch.stack([torch.zeros_like(xi), torch.zeros_like(xi), xi], -1)
        return normalize(ray - offset), valid

    def _compute_rim(self) -> Tensor:
        return compute_unified_rim(self.params[..., 5], torch.ones_like(self.params[..., 5]))

    def _compute_central_scale(self) -> Tensor:
        return 1 / (1 + self.params[..., 4])

    def _check_lens(self) -> None:
        xi, alpha = self.params[..., 4:5], self.params[..., 5:6]
        check_values(self.NAME, ("xi",), xi, xi.abs() < 1, "is not between -1 and 1")
        check_values(self.NAME, ("alpha",), alpha, (alpha >= 0) & (alpha <= 1), "is not between 0 and 1")
