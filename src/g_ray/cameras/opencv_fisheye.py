"""Fisheye camera with four coefficients (Kannala and Brandt 2006): OpenCV's fisheye module, COLMAP's OPENCV_FISHEYE,
Kalibr's `equidistant`, the DSLR images of ScanNet++."""

from typing import Any

import torch
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.distortion import (
    critical_angle,
    invert_rho,
    is_within,
    polar_angle,
    project_radially,
    rho,
    unproject_radially,
)
from g_ray.cameras.parameters import ParameterSampler, check_angle_fold


class OpenCVFisheye(Camera):
    """(a, b) = ρ(ψ) (cos φ, sin φ),  ρ(ψ) = ψ (1 + k1 ψ² + k2 ψ⁴ + k3 ψ⁶ + k4 ψ⁸)   (eq:fisheye).

    ψ is the angle from the optical axis in radians, φ the azimuth; fx, fy, cx, cy in pixels (fx is pixels per radian on
    the axis), k1 … k4 for ψ in radians. Valid up to the first critical angle of ρ, at most
    180°. A polynomial that turns around before 90° and before the nearest image edge is refused; a circular
    image whose turning point lies past 90° (black corners) is fine, its outer pixels are invalid.
    """

    NAME = "opencv_fisheye"
    PARAMETERS = ("fx", "fy", "cx", "cy", "k1", "k2", "k3", "k4")

    @classmethod
    def example(
        cls, seed: int, width: int = 64, height: int = 48, dtype: Any = torch.float64
    ) -> "OpenCVFisheye":
        draw = ParameterSampler(seed, width, height)
        k = {f"k{i + 1}": draw(-scale, scale) for i, scale in enumerate((0.04, 0.01, 0.002, 0.0004))}
        return cls.make(width, height, **draw.sample_intrinsics(0.25, 0.6), **k, dtype=dtype)

    def _to_plane(self, points: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        limit, psi = self._compute_limits(points), polar_angle(points)
        plane, known = project_radially(points, rho(torch.minimum(psi, limit), params[..., 4:8]))
        return plane, known & is_within(psi, limit)

    def _from_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        radius = torch.linalg.vector_norm(plane, dim=-1)
        psi, valid = invert_rho(radius, params[..., 4:8], self._compute_limits(plane))
        return unproject_radially(plane, radius, psi), valid

    def _compute_rim(self) -> Tensor:
        k = self.params[..., 4:8]
        return rho(critical_angle(k), k)

    def _compute_limits(self, points: Tensor) -> Tensor:
        return self._align(critical_angle(self.params[..., 4:8]), points)

    def _check_lens(self) -> None:
        check_angle_fold(self.NAME, self.params, self.params[..., 4:8], self.width, self.height)
