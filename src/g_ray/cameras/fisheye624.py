"""Fisheye624, the camera of Project Aria (COLMAP's RAD_TAN_THIN_PRISM_FISHEYE)."""

from typing import Any

import torch
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.distortion import (
    MAX_RADIUS,
    PlanarDistortion,
    critical_angle,
    invert_rho,
    is_within,
    polar_angle,
    project_radially,
    rho,
    unproject_radially,
)
from g_ray.cameras.parameters import ParameterSampler, check_angle_fold


class Fisheye624(Camera):
    """(a, b) = distortion of ρ(ψ) (cos φ, sin φ),  ρ(ψ) = ψ (1 + k1 ψ² + … + k6 ψ¹²).

    With (x, y) that point and r² = x² + y²:

        a = x + p1 (r² + 2x²) + 2 p2 x y + s1 r² + s2 r⁴
        b = y + 2 p1 x y + p2 (r² + 2y²) + s3 r² + s4 r⁴

    fx, fy, cx, cy in pixels, coefficients for ψ in radians. Aria counts from zero (its k0 is
    our k1, its p0 our p1), and its p1 is the factor of x: OpenCV's p1 and p2 have swapped roles. Aria puts pixel
    centers at integers: add 0.5. Valid up to the first critical angle of ρ, at most 180°, and where the Jacobian of the
    second step keeps its orientation. Refused as `opencv_fisheye` is.
    """

    NAME = "fisheye624"
    PARAMETERS = (
        *("fx", "fy", "cx", "cy"),
        *("k1", "k2", "k3", "k4", "k5", "k6", "p1", "p2", "s1", "s2", "s3", "s4"),
    )

    @classmethod
    def example(
        cls, seed: int, width: int = 64, height: int = 48, dtype: Any = torch.float64
    ) -> "Fisheye624":
        draw = ParameterSampler(seed, width, height)
        scales = (0.04, 0.01, 0.002, 0.0004, 0.00008, 0.000016)
        k = {f"k{i + 1}": draw(-scale, scale) for i, scale in enumerate(scales)}
        small = {name: draw(-0.003, 0.003) for name in ("p1", "p2", "s1", "s2", "s3", "s4")}
        return cls.make(width, height, **draw.sample_intrinsics(0.25, 0.6), **k, **small, dtype=dtype)

    def _to_plane(self, points: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        limit, psi = self._compute_limits(points), polar_angle(points)
        xy, known = project_radially(points, rho(torch.minimum(psi, limit), params[..., 4:10]))
        value, jacobian = _build_distortion(params).evaluate_with_jacobian(xy)
        upright = torch.linalg.det(jacobian.detach()) > 0
        return value, known & is_within(psi, limit) & upright

    def _from_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        xy, reached = self._undistort_plane(plane, params)
        rays, valid = self._lift_core(xy, params)
        return rays, valid & reached

    def _undistort_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        return _build_distortion(params).invert(plane, plane.new_tensor(MAX_RADIUS))

    def _lift_core(self, core: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        radius = torch.linalg.vector_norm(core, dim=-1)
        psi, valid = invert_rho(radius, params[..., 4:10], self._compute_limits(core))
        return unproject_radially(core, radius, psi), valid

    def _compute_rim(self) -> Tensor:
        k = self.params[..., 4:10]
        return rho(critical_angle(k), k)

    def _compute_limits(self, points: Tensor) -> Tensor:
        return self._align(critical_angle(self.params[..., 4:10]), points)

    def _check_lens(self) -> None:
        check_angle_fold(self.NAME, self.params, self.params[..., 4:10], self.width, self.height)


def _build_distortion(params: Tensor) -> PlanarDistortion:
    none = torch.zeros_like(params[..., :1])
    return PlanarDistortion(
        numerator=none, denominator=none, tangential=params[..., [11, 10]], prism=params[..., 12:16]
    )
