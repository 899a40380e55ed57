"""Functions that several lens models share, and their inverses.

Directions in the camera frame come first, with gradients that stay finite on the optical axis and behind the camera;
then the odd polynomial ρ(ψ) = ψ (1 + k1 ψ² + k2 ψ⁴ + …) of the fisheyes (eq:fisheye); then OpenCV's distortion of a
plane.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.inverse import (
    Components,
    ValueAndSlope,
    approximate_monotone,
    attach_implicit_gradient,
    attach_implicit_gradient_2d,
    evaluate_polynomial,
    find_first_positive_root,
    invert_monotone,
    is_recording_grad,
    solve_newton_2d,
)


def normalize(vectors: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape 3"]:
    """Scale to unit vectors; the vectors must not be zero."""
    return vectors / torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)


def project_to_tangent_plane(
    points: Float[Tensor, "*shape 3"],
) -> tuple[Float[Tensor, "*shape 2"], Bool[Tensor, "*shape"]]:
    """Compute (x/z, y/z) and whether the point is in front; 0 where it is not.

    A ray closer to 90° than the dtype resolves counts as not in front, so that no quotient overflows.
    """
    xy, z = points[..., 0:2], points[..., 2:3]
    front = (z > 0) & (z > torch.finfo(points.dtype).eps * xy.detach().abs().amax(-1, keepdim=True))
    plane = torch.where(front, xy, 0.0) / torch.where(front, z, 1.0)
    return plane, front[..., 0]


def polar_angle(points: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape"]:
    """Compute the angle ψ from the optical axis, in [0, π]."""
    # atan2, not acos(z): acos has an infinite slope on the axis.
    return torch.atan2(torch.linalg.vector_norm(points[..., 0:2], dim=-1), points[..., 2])


def project_radially(
    points: Float[Tensor, "*shape 3"], rho: Float[Tensor, "*shape"]
) -> tuple[Float[Tensor, "*shape 2"], Bool[Tensor, "*shape"]]:
    """Compute ρ(ψ) (cos φ, sin φ) for a radial function with ρ(ψ) ≈ ψ near the axis, and whether there is an azimuth φ.

    On the axis the quotient ρ / sqrt(x² + y²) is replaced by its limit 1/z, which gives the right first derivative.
    Straight behind the camera all azimuths meet: no image there, nor of the zero vector.
    """
    xy, z = points[..., 0:2], points[..., 2]
    radius = torch.linalg.vector_norm(xy, dim=-1)
    # Relative to z: points near and far on the same ray must take the same branch.
    on_axis = radius.detach() <= torch.finfo(z.dtype).eps * z.detach().abs()
    behind = on_axis & (z <= 0)
    limit = torch.where(behind, 0.0, 1 / torch.where(on_axis & ~behind, z, 1.0))
    quotient = torch.where(on_axis, limit, rho / torch.where(on_axis, 1.0, radius))
    return xy * quotient[..., None], ~behind


def unproject_radially(
    plane: Float[Tensor, "*shape 2"], radius: Float[Tensor, "*shape"], psi: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape 3"]:
    """Compute (sin ψ cos φ, sin ψ sin φ, cos ψ) for a plane point of azimuth φ, with ψ ≈ radius near the axis."""
    quotient = torch.where(radius == 0, 1.0, torch.sin(psi) / torch.where(radius == 0, 1.0, radius))
    return torch.cat([plane * quotient[..., None], torch.cos(psi)[..., None]], -1)


# The odd polynomial of the fisheyes.


# A ray on the rim may come back from rounding a little outside: this many machine epsilons are forgiven.
RIM_SLACK = 8

# From this many radii per lens on, a polynomial to start from pays for itself.
_MANY = 1 << 5
# Newton's method starts inside this share of the limit. At the limit, where the radial part is flat, it would be lost.
_LARGEST_START = 0.97
# Newton steps in two dimensions that nearly all points of a lens get by with.
_FEW_STEPS = 6


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
    if radius.numel() < _MANY * max(1, limit.numel()) or torch.compiler.is_compiling():
        return invert_monotone(_make_value_and_slope(k), radius, limit), valid
    return _invert_many(radius, k, limit), valid


def _invert_many(
    radius: Float[Tensor, "*shape"], k: Float[Tensor, "... degree"], limit: Float[Tensor, "..."]
) -> Tensor:
    """Invert many radii of a few lenses: start from a polynomial, take two Newton steps, solve the rest with care."""
    psi = approximate_monotone(_make_value_and_slope(k), radius, limit)
    for _ in range(2):
        slope = rho_slope(psi, k)
        step = (rho(psi, k) - radius).div_(slope)
        psi = psi - step
    # Newton squares the error, so a small last step means an exact result.
    beyond = radius >= rho(limit, k)
    exact = (step.abs_() <= torch.finfo(k.dtype).eps ** 0.6) & (slope > 0)
    psi = torch.where(beyond, limit, psi)
    rest = (~(exact | beyond)).nonzero(as_tuple=True)
    if len(rest[0]):
        k, limit = k.expand(*radius.shape, k.shape[-1])[rest], limit.expand_as(radius)[rest]
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
        value_x, value_y, *jacobian = self.evaluate_components(*xy.unbind(-1))
        return torch.stack([value_x, value_y], -1), torch.stack(jacobian, -1).unflatten(-1, (2, 2))

    def evaluate_components(self, x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"]) -> Components:
        """Evaluate x', y' and the derivatives dx'/dx, dx'/dy, dy'/dx, dy'/dy.

        With g = R + 2 p1 y + 2 p2 x the radial and tangential terms are x g + p2 r² and y g + p1 r².
        """
        p1, p2 = self.tangential.unbind(-1)
        t = torch.addcmul(x * x, y, y)  # r²
        ratio, slope = self._evaluate_ratio(t)  # R and dR/dt
        slope = 2 * slope
        g = torch.addcmul(torch.addcmul(ratio, y, 2 * p1), x, 2 * p2)
        g_x, g_y = torch.addcmul(2 * p2, x, slope), torch.addcmul(2 * p1, y, slope)
        mixed = torch.addcmul(x * g_y, y, 2 * p2)
        value_x, value_y = torch.addcmul(p2 * t, x, g), torch.addcmul(p1 * t, y, g)
        x_x, y_y = torch.addcmul(g, x, g_x + 2 * p2), torch.addcmul(g, y, g_y + 2 * p1)
        if _is_absent(self.prism):
            return value_x, value_y, x_x, mixed, mixed, y_y
        s1, s2, s3, s4 = self.prism.unbind(-1)
        prism_x, prism_y = 2 * s1 + 4 * s2 * t, 2 * s3 + 4 * s4 * t  # 2 d/dt of what follows
        return (
            value_x + (s1 + s2 * t) * t,
            value_y + (s3 + s4 * t) * t,
            x_x + prism_x * x,
            mixed + prism_x * y,
            mixed + prism_y * x,
            y_y + prism_y * y,
        )

    def compute_limit(self) -> Float[Tensor, "..."]:
        """Compute the first critical radius of r R(r²), or its first pole, or MAX_RADIUS."""
        pole = find_first_positive_root(self.denominator) * (1 - 1e-6)  # R is undefined at the pole itself
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
        solution, converged, determinant = self._solve(target.detach(), limit)
        inside = is_within(torch.linalg.vector_norm(solution, dim=-1), limit)
        # A negative determinant is a mirrored image: a solution beyond the fold, where a second ray has the same pixel.
        valid = converged & inside & (determinant > 0)
        if not is_recording_grad(target, self.numerator, self.denominator, self.tangential, self.prism):
            return solution, valid
        point = attach_implicit_gradient_2d(self.evaluate_with_jacobian, target, solution)
        return torch.where(valid[..., None], point, solution), valid

    @torch.no_grad()
    def _solve(self, target: Tensor, limit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Take a few Newton steps for all targets, then all that it takes for those that are left and within reach."""
        few = target[..., 0].numel() < _MANY * max(1, limit.numel()) or torch.compiler.is_compiling()
        start = self._guess_radial_start(target, limit, invert_monotone if few else approximate_monotone)
        if torch.compiler.is_compiling():
            return solve_newton_2d(self.evaluate_components, target, start, limit)
        solution, converged, determinant = solve_newton_2d(
            self.evaluate_components, target, start, limit, _FEW_STEPS
        )
        left = ~converged
        if left.any():
            left &= torch.linalg.vector_norm(target, dim=-1) <= self._compute_reach(limit)
        rest = left.nonzero(as_tuple=True)
        if len(rest[0]):
            shape, limit = target.shape[:-1], limit.expand(target.shape[:-1])[rest]
            others = self.map(lambda part: part.expand(*shape, part.shape[-1])[rest])
            if few:
                start = start[rest]
            else:
                start = others._guess_radial_start(target[rest], limit, invert_monotone)
            again = solve_newton_2d(others.evaluate_components, target[rest], start, limit)
            solution[rest], converged[rest], determinant[rest] = again
        return solution, converged, determinant

    def _compute_reach(self, limit: Tensor) -> Tensor:
        """Compute the largest radius of the image of the disk, and a little more: no point lands on a target beyond."""
        limit = limit.expand(torch.broadcast_shapes(limit.shape, self.tangential.shape[:-1]))
        # 48 directions × 8 radii suffice: the terms are smooth, and 2 % are added below for what lies between.
        angle = torch.linspace(0, 2 * math.pi, 49, dtype=limit.dtype, device=limit.device)[1:]
        share = torch.linspace(0, 1, 9, dtype=limit.dtype, device=limit.device)[1:]
        places = [torch.outer(share, part(angle)).flatten() for part in (torch.cos, torch.sin)]
        # Places go first, so that they broadcast against coefficients that vary from lens to lens.
        x, y = (place.view(-1, *(1,) * limit.ndim) * limit for place in places)
        value_x, value_y, *_ = self.evaluate_components(x, y)
        return 1.02 * torch.hypot(value_x, value_y).amax(0)

    def map(self, change: Callable[[Tensor], Tensor]) -> "PlanarDistortion":
        """Select, expand or reshape all coefficients alike."""
        parts = (self.numerator, self.denominator, self.tangential, self.prism)
        return PlanarDistortion(*map(change, parts))

    def _guess_radial_start(
        self, target: Tensor, limit: Tensor, invert: Callable[[ValueAndSlope, Tensor, Tensor], Tensor]
    ) -> Tensor:
        radius = torch.linalg.vector_norm(target, dim=-1)
        start = torch.minimum(invert(self.evaluate_radial, radius, limit), _LARGEST_START * limit)
        return target * (start / torch.where(radius == 0, 1.0, radius))[..., None]

    def _evaluate_ratio(self, t: Tensor) -> tuple[Tensor, Tensor]:
        top, top_slope = _evaluate_with_slope(self.numerator, t)
        if _is_absent(self.denominator):
            return top, top_slope
        bottom, bottom_slope = _evaluate_with_slope(self.denominator, t)
        # A pole of R: the limit excludes it, but Newton steps may land on it on their way.
        bottom = torch.where(bottom == 0, torch.finfo(t.dtype).tiny, bottom)
        ratio = top / bottom
        return ratio, (top_slope - ratio * bottom_slope) / bottom

    def _build_turning_polynomial(self) -> Tensor:
        """Compute the coefficients of d(r N/D)/dr · D² = 1 + …: Σ (2i + 1 − 2j) n_i d_j r²⁽ⁱ⁺ʲ⁾ with n_0 = d_0 = 1."""
        n = torch.cat([torch.ones_like(self.numerator[..., :1]), self.numerator], -1)
        d = torch.cat([torch.ones_like(self.denominator[..., :1]), self.denominator], -1)
        total = n.new_zeros(*n.shape[:-1], n.shape[-1] + d.shape[-1] - 1)
        for i in range(n.shape[-1]):
            for j in range(d.shape[-1]):
                total[..., i + j] += (2 * i + 1 - 2 * j) * (n[..., i] * d[..., j]).detach()
        return total[..., 1:]


def _is_absent(coefficients: Tensor) -> bool:
    """Whether terms can be left out: all coefficients are 0, and their gradients are not recorded."""
    if torch.compiler.is_compiling() or is_recording_grad(coefficients):
        return False
    return not bool(coefficients.any())


def _evaluate_with_slope(
    a: Float[Tensor, "... degree"], t: Float[Tensor, "..."]
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    """Evaluate 1 + a1 t + a2 t² + … and its derivative."""
    *rest, value = a.unbind(-1)
    slope = torch.zeros_like(value)
    for coefficient in reversed(rest):
        slope = torch.addcmul(value, slope, t)
        value = torch.addcmul(coefficient, value, t)
    return 1 + value * t, torch.addcmul(value, slope, t)
