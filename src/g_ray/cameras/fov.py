"""FOV camera (Devernay and Faugeras 2001, "Straight lines have to be straight"): COLMAP's FOV, Kalibr's `fov`, PTAM."""

import math
from typing import Any

import torch
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.distortion import normalize, polar_angle, project_radially, unproject_radially
from g_ray.cameras.parameters import ParameterSampler, check_values


class FOV(Camera):
    """(a, b) = r_d (cos φ, sin φ),  r_d = atan(2 r tan(ω/2)) / ω  with r = |(x, y)| / z.

    fx, fy, cx, cy in pixels; omega, the ω of the publication, in radians, 0 ≤ ω < π: 0 is a pinhole. For an
    ideal fisheye, ω would be the angle per unit of r_d. The order of parameters is COLMAP's. Valid in front of the
    camera, so for r_d < π / (2ω): the model is defined through r, which 90° sends to infinity.
    """

    NAME = "fov"
    PARAMETERS = ("fx", "fy", "cx", "cy", "omega")

    @classmethod
    def example(cls, seed: int, width: int = 64, height: int = 48, dtype: Any = torch.float64) -> "FOV":
        draw = ParameterSampler(seed, width, height)
        return cls.make(width, height, **draw.sample_intrinsics(0.5, 1.0), omega=draw(0.5, 1.1), dtype=dtype)

    def _to_plane(self, points: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        omega, stretch = _compute_stretch(params)
        # Stretching x and y turns atan(2 r tan(ω/2)) into the angle from the axis: r_d is equidistant in it.
        stretched = torch.cat([points[..., :2] * stretch[..., None], points[..., 2:]], -1)
        angle = polar_angle(stretched)
        plane, known = project_radially(stretched, angle)
        return plane / omega[..., None], known & (angle < _limit_angle(angle))

    def _from_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        omega, stretch = _compute_stretch(params)
        plane = plane * omega[..., None]
        angle = torch.linalg.vector_norm(plane, dim=-1)
        valid = angle < _limit_angle(angle)
        stretched = unproject_radially(plane, angle, angle)
        return normalize(torch.cat([stretched[..., :2] / stretch[..., None], stretched[..., 2:]], -1)), valid

    def _compute_rim(self) -> Tensor:
        return math.pi / 2 / _compute_stretch(self.params)[0]

    def _compute_central_scale(self) -> Tensor:
        omega, stretch = _compute_stretch(self.params)
        return stretch / omega

    def _check_lens(self) -> None:
        omega = self.params[..., 4:5]
        good = (omega >= 0) & (omega < math.pi)
        check_values(self.NAME, ("omega",), omega, good, "is not between 0 and π; give it in radians")


def _compute_stretch(params: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ω and 2 tan(ω/2). Their quotient is 1 + O(ω²), so a tiny ω stands for 0 to the last digit."""
    omega = params[..., 4].clamp_min(torch.finfo(params.dtype).eps ** 0.5)
    return omega, 2 * torch.tan(omega / 2)


def _limit_angle(angle: Tensor) -> float:
    """Return 90°, less what the dtype does not resolve."""
    return math.pi / 2 * (1 - 4 * torch.finfo(angle.dtype).eps)
