"""OpenCV's radial-tangential camera with up to 12 coefficients (COLMAP's OPENCV and FULL_OPENCV)."""

from typing import Any

import torch
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.distortion import PlanarDistortion, is_within, normalize, project_to_tangent_plane
from g_ray.cameras.parameters import ParameterSampler, check_fold, compute_nearest_edge_distance


class OpenCV(Camera):
    """(a, b) = distortion of (x/z, y/z), see `PlanarDistortion`; radial and tangential terms are Brown's.

    R = (1 + k1 r² + k2 r⁴ + k3 r⁶) / (1 + k4 r² + k5 r⁴ + k6 r⁶) with r² = (x² + y²) / z².

    fx, fy, cx, cy in pixels, the rest without unit. The order is OpenCV's (k1 k2 p1 p2 k3 k4 k5 k6 s1 s2 s3 s4, without
    the tilt), its cx and cy plus 0.5. Kalibr's `radtan` is k1 k2 p1 p2 of it. Valid in front of the camera, up to the
    first critical radius or pole of r R, and where the Jacobian keeps its orientation.
    """

    NAME = "opencv"
    PARAMETERS = (
        *("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2"),
        *("k3", "k4", "k5", "k6", "s1", "s2", "s3", "s4"),
    )

    @classmethod
    def example(cls, seed: int, width: int = 64, height: int = 48, dtype: Any = torch.float64) -> "OpenCV":
        draw = ParameterSampler(seed, width, height)
        radial = {f"k{i}": draw(-0.05, 0.15) for i in range(1, 7)}
        small = {name: draw(-0.003, 0.003) for name in ("p1", "p2", "s1", "s2", "s3", "s4")}
        return cls.make(width, height, **draw.sample_intrinsics(0.6, 1.5), **radial, **small, dtype=dtype)

    def _to_plane(self, points: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        limit = self._compute_limits(points)
        plane, front = project_to_tangent_plane(points)
        inside = front & is_within(torch.linalg.vector_norm(plane, dim=-1), limit)
        value, jacobian = _build_distortion(params).evaluate_with_jacobian(
            torch.where(inside[..., None], plane, 0.0)
        )
        return value, inside & (torch.linalg.det(jacobian.detach()) > 0)

    def _from_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        xy, valid = _build_distortion(params).invert(plane, self._compute_limits(plane))
        return normalize(torch.cat([xy, torch.ones_like(xy[..., :1])], -1)), valid

    def _compute_limits(self, points: Tensor) -> Tensor:
        return self._align(_build_distortion(self.params).compute_limit(), points)

    def _check_lens(self) -> None:
        distortion = _build_distortion(self.params)
        fold = torch.nan_to_num(distortion.evaluate_radial(distortion.compute_limit())[0], nan=torch.inf)
        check_fold(
            self.NAME,
            fold,
            compute_nearest_edge_distance(self.params, self.width, self.height),
            "its first critical radius",
        )


def _build_distortion(params: Tensor) -> PlanarDistortion:
    return PlanarDistortion(
        numerator=params[..., [4, 5, 8]],
        denominator=params[..., 9:12],
        tangential=params[..., 6:8],
        prism=params[..., 12:16],
    )
