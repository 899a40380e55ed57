"""Omnidirectional camera with a polynomial (Scaramuzza, Martinelli and Siegwart 2006): OCamCalib, CamOdoCal's
`scaramuzza`, the cameras of OmniMVS."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.distortion import is_within, normalize, polar_angle, project_radially
from g_ray.cameras.inverse import (
    ValueAndSlope,
    attach_implicit_gradient,
    evaluate_polynomial,
    find_first_positive_root,
    invert_monotone,
    is_recording_grad,
)
from g_ray.cameras.parameters import ParameterSampler, check_fold, check_values, compute_nearest_edge_distance

# A polynomial without a turning point is inverted up to here, in focal lengths from the center.
_MAX_RADIUS = 100.0


class OCam(Camera):
    """The ray of the plane point (X, Y) is (X, Y, P(r)),  P(r) = 1 + a2 r² + a3 r³ + … + a6 r⁶,  r = |(X, Y)|.

    (a, b) = (X + s Y, Y + t X) with the shears s and t of a sensor that is not quite perpendicular; fx, fy, cx, cy in
    pixels, everything else without unit. OCamCalib's polynomial f(ρ) = A0 + A2 ρ² + … of a radius in pixels has
    fx = −A0 and a_n = −A_n fxⁿ⁻¹. A lens whose P becomes negative looks behind the camera. Valid up to the radius at
    which the angle from the axis, atan2(r, P), stops growing.
    """

    NAME = "ocam"
    PARAMETERS = ("fx", "fy", "cx", "cy", "a2", "a3", "a4", "a5", "a6", "s", "t")

    @classmethod
    def example(cls, seed: int, width: int = 64, height: int = 48, dtype: Any = torch.float64) -> "OCam":
        draw = ParameterSampler(seed, width, height)
        # An equidistant fisheye has P(r) = r / tan r = 1 − r²/3 − r⁴/45 − …
        lens = {"a2": draw(-0.5, -0.1), "a3": draw(-0.05, 0.05), "a4": draw(-0.06, -0.02)}
        lens |= {name: draw(-0.002, 0.002) for name in ("a5", "a6", "s", "t")}
        return cls.make(width, height, **draw.sample_intrinsics(0.25, 0.6), **lens, dtype=dtype)

    def central_intrinsics(self) -> Float[Tensor, "*batch 3 3"]:
        shear = torch.zeros(3, 3, dtype=self.dtype, device=self.device)
        shear[1, 0] = 1.0
        return (
            super().central_intrinsics()
            + (self.params[..., 1] * self.params[..., 10])[..., None, None] * shear
        )

    def _to_plane(self, points: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        angle_at = _make_angle(params)
        limit = self._align(_compute_limit(self.params), points)
        psi, largest = polar_angle(points), angle_at(limit)[0]
        wanted = torch.minimum(psi, largest)
        radius = invert_monotone(angle_at, wanted, limit)
        if is_recording_grad(points, params):
            radius = attach_implicit_gradient(angle_at, wanted, radius)
        core, known = project_radially(points, radius)
        x, y = core.unbind(-1)
        s, t = params[..., 9:11].unbind(-1)
        return torch.stack([x + s * y, y + t * x], -1), known & is_within(psi, largest)

    def _from_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        core, _ = self._undistort_plane(plane, params)
        return self._lift_core(core, params)

    def _undistort_plane(self, plane: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        a, b = plane.unbind(-1)
        s, t = params[..., 9:11].unbind(-1)
        core = torch.stack([a - s * b, b - t * a], -1) / (1 - s * t)[..., None]
        return core, torch.ones_like(a, dtype=torch.bool)

    def _lift_core(self, core: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
        radius = torch.linalg.vector_norm(core, dim=-1)
        depth = evaluate_polynomial(_build_coefficients(params), radius)
        limit = self._align(_compute_limit(self.params), core)
        return normalize(torch.cat([core, depth[..., None]], -1)), is_within(radius, limit)

    def _compute_rim(self) -> Tensor:
        limit = _compute_limit(self.params)
        return torch.where(limit < _MAX_RADIUS, limit, torch.inf)

    def _compute_central_skew(self) -> Tensor:
        return self.params[..., 0] * self.params[..., 9]

    def _check_lens(self) -> None:
        shears = self.params[..., 9:11]
        check_values(
            self.NAME, ("s", "t"), shears, shears.abs() < 0.5, "is no shear of a sensor; expected about 0"
        )
        edge = compute_nearest_edge_distance(self.params, self.width, self.height)
        # A turning point behind the camera belongs to a circular image with black corners.
        limit = _compute_limit(self.params)
        front = evaluate_polynomial(_build_coefficients(self.params), limit) > 0
        check_fold(
            self.NAME, limit, edge.masked_fill(~front, -1.0), "the radius where its angle stops growing"
        )


def _build_coefficients(params: Tensor) -> Tensor:
    """Return the coefficients of r, r², … r⁶ in P; there is none of r, so that the image is smooth at the center."""
    return torch.cat([torch.zeros_like(params[..., :1]), params[..., 4:9]], -1)


def _compute_slope_numerator(coefficients: Tensor) -> Tensor:
    """Return the coefficients of P − r P′ = 1 − a2 r² − 2 a3 r³ − …, which has the sign of the slope of the angle."""
    order = torch.arange(coefficients.shape[-1], dtype=coefficients.dtype, device=coefficients.device)
    return -coefficients * order


def _compute_limit(params: Tensor) -> Tensor:
    root = find_first_positive_root(_compute_slope_numerator(_build_coefficients(params)))
    return root.clamp(max=_MAX_RADIUS)


def _make_angle(params: Tensor) -> ValueAndSlope:
    """Return the function that computes atan2(r, P(r)) and its derivative (P − r P′) / (r² + P²)."""
    coefficients = _build_coefficients(params)
    numerator = _compute_slope_numerator(coefficients)

    def evaluate(radius: Tensor) -> tuple[Tensor, Tensor]:
        depth = evaluate_polynomial(coefficients, radius)
        slope = evaluate_polynomial(numerator, radius) / (radius.square() + depth.square())
        return torch.atan2(radius, depth), slope

    return evaluate
