"""COLMAP's THIN_PRISM_FISHEYE (Weng, Cohen and Herniou 1992): the camera of ETH3D's distorted images."""

from typing import Any

import torch
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.distortion import (
    PlanarDistortion,
    critical_angle,
    is_within,
    polar_angle,
    project_radially,
    unproject_radially,
)
from g_ray.cameras.parameters import ParameterSampler, check_angle_fold


class ThinPrismFisheye(Camera):
    """(a, b) = distortion of ψ (cos φ, sin φ), see `PlanarDistortion`, with s1 = sx1, s3 = sy1, s2 = s4 = 0.

    R = 1 + k1 ψ² + k2 ψ⁴ + k3 ψ⁶ + k4 ψ⁸.

    fx, fy, cx, cy in pixels, coefficients for ψ in radians. The order is COLMAP's (k1 k2 p1 p2 k3 k4 sx1 sy1). Valid up
    to the first critical angle of ψ R, at most 180°, and where the Jacobian keeps its orientation. Refused as
    `opencv_fisheye` is.
    """

    NAME = "thin_prism_fisheye"
    PARAMETERS = ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3", "k4", "sx1", "sy1")

    @classmethod
    def example(
        cls, seed: int, width: int = 64, height: int = 48, dtype: Any = torch.float64
    ) -> "ThinPrismFisheye":
        draw = ParameterSampler(seed, width, height)
        k = {f"k{i + 1}": draw(-scale, scale) for i, scale in enumerate((0.04, 0.01, 0.002, 0.0004))}
        small = {name: draw(-0.003, 0.003) for name in ("p1", "p2", "sx1", "sy1")}
        return cls.make(width, height, **draw.sample_intrinsics(0.25, 0.6), **k, **small, dtype=dtype)

    def _to_plane(self, points: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        limit, psi = self._compute_limits(points), polar_angle(points)
        uv, known = project_radially(points, torch.minimum(psi, limit))
        value, jacobian = _build_distortion(params).evaluate_with_jacobian(uv)
        upright = torch.linalg.det(jacobian.detach()) > 0
        return value, known & is_within(psi, limit) & upright

    def _from_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        uv, valid = _build_distortion(params).invert(plane, self._compute_limits(plane))
        psi = torch.linalg.vector_norm(uv, dim=-1)
        return unproject_radially(uv, psi, psi), valid

    def _compute_limits(self, points: Tensor) -> Tensor:
        return self._align(critical_angle(_select_radial(self.params)), points)

    def _check_lens(self) -> None:
        check_angle_fold(self.NAME, self.params, _select_radial(self.params), self.width, self.height)


def _select_radial(params: Tensor) -> Tensor:
    return params[..., [4, 5, 8, 9]]


def _build_distortion(params: Tensor) -> PlanarDistortion:
    zero = torch.zeros_like(params[..., 0])
    return PlanarDistortion(
        numerator=_select_radial(params),
        denominator=zero[..., None],
        tangential=params[..., 6:8],
        prism=torch.stack([params[..., 10], zero, params[..., 11], zero], -1),
    )
