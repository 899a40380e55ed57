"""Distortion functions that several models share, and their inverses.

The odd polynomial ρ(ψ) = ψ (1 + k1 ψ² + k2 ψ⁴ + …) of the fisheyes (eq:fisheye) comes first, OpenCV's distortion of a
plane second.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.inverse import (
    ValueAndSlope,
    attach_implicit_gradient,
    attach_implicit_gradient_2d,
    evaluate_polynomial,
    find_first_positive_root,
    invert_monotone,
    is_recording_grad,
    solve_newton_2d,
)

# A ray on the rim may come back from rounding a little outside: so many machine epsilons are forgiven.
RIM_SLACK = 8

# From so many radii of one lens on, a table of so many nodes pays for itself.
_MANY = 1 << 14
_NODES = 1 << 10


def rho(psi: Float[Tensor, "..."], k: Float[Tensor, "... degree"]) -> Float[Tensor, "..."]:
    """Evaluate ρ(ψ), eq:fisheye; k [..., n] broadcasts against psi."""
    return psi * evaluate_polynomial(k, psi * psi)


def rho_slope(psi: Float[Tensor, "..."], k: Float[Tensor, "... degree"]) -> Float[Tensor, "..."]:
    """Evaluate dρ/dψ = 1 + 3 k1 ψ² + 5 k2 ψ⁴ + …"""
    return evaluate_polynomial(_compute_slope_coefficients(k), psi * psi)


def critical_angle(k: Float[Tensor, "*batch degree"]) -> Float[Tensor, "*batch"]:
    """Find the first angle at which ρ stops growing, at most π. Beyond it two rays share a pixel."""
    return find_first_positive_root(_compute_slope_coefficients(k)).sqrt().clamp(max=math.pi)


def is_within(value: Tensor, limit: Tensor) -> Bool[Tensor, "..."]:
    return value <= limit * (1 + RIM_SLACK * torch.finfo(value.dtype).eps)


def invert_rho(
    radius: Float[Tensor, "*shape"], k: Float[Tensor, "... degree"], limit: Float[Tensor, "..."]
) -> tuple[Float[Tensor, "*shape"], Bool[Tensor, "*shape"]]:
    """Find the ψ in [0, limit] with ρ(ψ) = radius, and whether there is one; the limit where there is none."""
    valid = is_within(radius, rho(limit, k))
    if is_recording_grad(radius, k):
        psi = invert_monotone(_make_value_and_slope(k), radius, limit)
        return torch.where(valid, attach_implicit_gradient(_make_value_and_slope(k), radius, psi), psi), valid
    if radius.numel() < _MANY or k.numel() > k.shape[-1] or torch.compiler.is_compiling():
        return invert_monotone(_make_value_and_slope(k), radius, limit), valid
    return _invert_many(radius, k.flatten(), limit.flatten()[0]), valid


def _invert_many(
    radius: Float[Tensor, "*shape"], k: Float[Tensor, "degree"], limit: Float[Tensor, ""]
) -> Tensor:
    """Invert many radii of one lens: start from a table, take two Newton steps, and solve what is left with care."""
    edge = rho(limit, k)
    share = torch.linspace(0, 1, _NODES + 1, dtype=k.dtype, device=k.device)
    table = invert_monotone(_make_value_and_slope(k), share * edge, limit)
    place = (radius * (_NODES / edge)).clamp(max=_NODES - 1)
    index = place.int()
    psi = torch.lerp(table[index], table[index + 1], place - index)
    # Linear interpolation is good to about 1e-6; each step squares that.
    for _ in range(2):
        value, slope = rho(psi, k), rho_slope(psi, k)
        step = (value - radius) / slope
        psi = psi - step
    # Newton squares the error, so a small last step means an exact result.
    exact = (step.abs() <= torch.finfo(k.dtype).eps ** 0.6) & (slope > 0)
    psi = torch.where(radius >= edge, limit, psi)
    rest = ~(exact | (radius >= edge))
    psi[rest] = invert_monotone(_make_value_and_slope(k), radius[rest], limit)
    return psi


def _make_value_and_slope(k: Tensor) -> ValueAndSlope:
    return lambda psi: (rho(psi, k), rho_slope(psi, k))


def _compute_slope_coefficients(k: Tensor) -> Tensor:
    return k * torch.arange(3, 2 * k.shape[-1] + 2, 2, dtype=k.dtype, device=k.device)


# OpenCV's distortion of a plane: rational radial, tangential and thin-prism terms, and its inverse.
#
#     x' = x R + 2 p1 x y + p2 (r² + 2x²) + s1 r² + s2 r⁴
#     y' = y R + p1 (r² + 2y²) + 2 p2 x y + s3 r² + s4 r⁴,    R = (1 + Σ n_i r²ⁱ) / (1 + Σ d_i r²ⁱ)
#
# The plane is x/z, y/z for `opencv`, ψ (cos φ, sin φ) for `thin_prism_fisheye`, ρ(ψ) (cos φ, sin φ) for
# `fisheye624`.


# Where nothing else limits the radius: tan 89.94°, small enough for r⁷ in float32.
MAX_RADIUS = 1e3


@dataclass(frozen=True, eq=False)
class PlanarDistortion:
    """Coefficients, each broadcasting against the points [*shape 2] without their last dimension."""

    numerator: Float[Tensor, "... n"]
    denominator: Float[Tensor, "... d"]
    tangential: Float[Tensor, "... 2"]
    prism: Float[Tensor, "... 4"]

    def __call__(self, xy: Float[Tensor, "*shape 2"]) -> Float[Tensor, "*shape 2"]:
        return self.evaluate_with_jacobian(xy)[0]

    def evaluate_with_jacobian(
        self, xy: Float[Tensor, "*shape 2"]
    ) -> tuple[Float[Tensor, "*shape 2"], Float[Tensor, "*shape 2 2"]]:
        (x, y), (p1, p2) = xy.unbind(-1), self.tangential.unbind(-1)
        s1, s2, s3, s4 = self.prism.unbind(-1)
        t = x * x + y * y
        ratio, slope = self._evaluate_ratio(t)  # R and dR/dt
        value_x = x * ratio + 2 * p1 * x * y + p2 * (t + 2 * x * x) + (s1 + s2 * t) * t
        value_y = y * ratio + p1 * (t + 2 * y * y) + 2 * p2 * x * y + (s3 + s4 * t) * t
        prism_x, prism_y = 2 * (s1 + 2 * s2 * t), 2 * (s3 + 2 * s4 * t)
        mixed = 2 * x * y * slope + 2 * p1 * x + 2 * p2 * y
        jacobian = torch.stack(
            [
                ratio + 2 * x * x * slope + 2 * p1 * y + 6 * p2 * x + prism_x * x,
                mixed + prism_x * y,
                mixed + prism_y * x,
                ratio + 2 * y * y * slope + 6 * p1 * y + 2 * p2 * x + prism_y * y,
            ],
            -1,
        )
        return torch.stack([value_x, value_y], -1), jacobian.unflatten(-1, (2, 2))

    def compute_limit(self) -> Float[Tensor, "..."]:
        """Compute the first critical radius of r R(r²), or its first pole, or MAX_RADIUS."""
        pole = find_first_positive_root(self.denominator) * (1 - 1e-6)  # at the pole itself R is no number
        turn = find_first_positive_root(self._build_turning_polynomial())
        return torch.minimum(pole, turn).sqrt().clamp(max=MAX_RADIUS)

    def evaluate_radial(self, r: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        """Evaluate r R(r²) and its derivative."""
        ratio, slope = self._evaluate_ratio(r * r)
        return r * ratio, ratio + 2 * r * r * slope

    def invert(
        self, target: Float[Tensor, "*shape 2"], limit: Float[Tensor, "..."]
    ) -> tuple[Float[Tensor, "*shape 2"], Bool[Tensor, "*shape"]]:
        """Find the point with radius at most ``limit`` that lands on the target, and whether there is one.

        The radial part alone, which is monotone up to the limit, starts a Newton iteration on the whole.
        """
        start = self._guess_radial_start(target.detach(), limit)
        solution, converged = solve_newton_2d(self.evaluate_with_jacobian, target, start, limit)
        _, jacobian = self.evaluate_with_jacobian(solution)
        inside = is_within(torch.linalg.vector_norm(solution, dim=-1), limit)
        valid = converged & inside & (torch.linalg.det(jacobian) > 0)
        point = attach_implicit_gradient_2d(self.evaluate_with_jacobian, target, solution)
        return torch.where(valid[..., None], point, solution), valid

    def _guess_radial_start(self, target: Tensor, limit: Tensor) -> Tensor:
        radius = torch.linalg.vector_norm(target, dim=-1)
        start = invert_monotone(self.evaluate_radial, radius, limit)
        return target * (start / torch.where(radius == 0, 1.0, radius))[..., None]

    def _evaluate_ratio(self, t: Tensor) -> tuple[Tensor, Tensor]:
        top, bottom = evaluate_polynomial(self.numerator, t), evaluate_polynomial(self.denominator, t)
        bottom = torch.where(bottom == 0, torch.finfo(t.dtype).tiny, bottom)
        ratio = top / bottom
        return ratio, (
            _evaluate_slope(self.numerator, t) - ratio * _evaluate_slope(self.denominator, t)
        ) / bottom

    def _build_turning_polynomial(self) -> Tensor:
        """Compute the coefficients of d(r N/D)/dr · D² = 1 + …: Σ (2i + 1 − 2j) n_i d_j r²⁽ⁱ⁺ʲ⁾ with n_0 = d_0 = 1."""
        n = torch.cat([torch.ones_like(self.numerator[..., :1]), self.numerator], -1)
        d = torch.cat([torch.ones_like(self.denominator[..., :1]), self.denominator], -1)
        total = n.new_zeros(*n.shape[:-1], n.shape[-1] + d.shape[-1] - 1)
        for i in range(n.shape[-1]):
            for j in range(d.shape[-1]):
                total[..., i + j] += (2 * i + 1 - 2 * j) * (n[..., i] * d[..., j]).detach()
        return total[..., 1:]


def _evaluate_slope(a: Tensor, t: Tensor) -> Tensor:
    """Evaluate d/dt (1 + a1 t + a2 t² + …)."""
    value = torch.zeros_like(t)
    for i, coefficient in reversed(list(enumerate(a.unbind(-1)))):
        value = value * t + (i + 1) * coefficient
    return value
