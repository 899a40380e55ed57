"""The odd polynomial ρ(ψ) = ψ (1 + k1 ψ² + k2 ψ⁴ + …) of the fisheye models (eq:fisheye) and its inverse."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.inverse import ValueAndSlope, attach_implicit_gradient, invert_monotone, is_recording_grad
from g_ray.geometry.polynomial import evaluate_polynomial, find_first_positive_root

# A ray on the rim may come back from rounding a little outside.
RIM_SLACK = 8

_MANY = 1 << 14
_NODES = 1 << 10


def rho(psi: Float[Tensor, "..."], k: Float[Tensor, "... degree"]) -> Float[Tensor, "..."]:
    """ρ(ψ), eq:fisheye; k [..., n] broadcasts against psi."""
    return psi * evaluate_polynomial(k, psi * psi)


def rho_slope(psi: Float[Tensor, "..."], k: Float[Tensor, "... degree"]) -> Float[Tensor, "..."]:
    """dρ/dψ = 1 + 3 k1 ψ² + 5 k2 ψ⁴ + …"""
    return evaluate_polynomial(_compute_slope_coefficients(k), psi * psi)


def critical_angle(k: Float[Tensor, "*batch degree"]) -> Float[Tensor, "*batch"]:
    """The first angle at which ρ stops growing, at most π. Beyond it two rays share a pixel."""
    return find_first_positive_root(_compute_slope_coefficients(k)).sqrt().clamp(max=math.pi)


def is_within(value: Tensor, limit: Tensor) -> Bool[Tensor, "..."]:
    return value <= limit * (1 + RIM_SLACK * torch.finfo(value.dtype).eps)


def invert_rho(
    radius: Float[Tensor, "*shape"], k: Float[Tensor, "... degree"], limit: Float[Tensor, "..."]
) -> tuple[Float[Tensor, "*shape"], Bool[Tensor, "*shape"]]:
    """The ψ in [0, limit] with ρ(ψ) = radius, and whether there is one; the limit where there is none."""
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
    """Many radii of one lens: start from a table, take two Newton steps, and solve what is left with care."""
    edge = rho(limit, k)
    share = torch.linspace(0, 1, _NODES + 1, dtype=k.dtype, device=k.device)
    table = invert_monotone(_make_value_and_slope(k), share * edge, limit)
    place = (radius * (_NODES / edge)).clamp(max=_NODES - 1)
    index = place.int()
    psi = torch.lerp(table[index], table[index + 1], place - index)
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
