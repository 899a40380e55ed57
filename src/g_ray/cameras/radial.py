"""The odd polynomial ρ(ψ) = ψ (1 + k1 ψ² + k2 ψ⁴ + …) of the fisheye models (eq:fisheye) and its inverse."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.inverse import implicit, monotone_inverse
from g_ray.geometry.polynomial import evaluate, first_positive_root

# A ray on the rim may come back from rounding a little outside.
RIM_SLACK = 8


def rho(psi: Float[Tensor, "..."], k: Float[Tensor, "... degree"]) -> Float[Tensor, "..."]:
    """ρ(ψ), eq:fisheye; k [..., n] broadcasts against psi."""
    return psi * evaluate(k, psi * psi)


def rho_slope(psi: Float[Tensor, "..."], k: Float[Tensor, "... degree"]) -> Float[Tensor, "..."]:
    """dρ/dψ = 1 + 3 k1 ψ² + 5 k2 ψ⁴ + …"""
    return evaluate(_slope_coefficients(k), psi * psi)


def critical_angle(k: Float[Tensor, "*batch degree"]) -> Float[Tensor, "*batch"]:
    """The first angle at which ρ stops growing, at most π. Beyond it two rays share a pixel."""
    return first_positive_root(_slope_coefficients(k)).sqrt().clamp(max=math.pi)


def within(value: Tensor, limit: Tensor) -> Bool[Tensor, "..."]:
    return value <= limit * (1 + RIM_SLACK * torch.finfo(value.dtype).eps)


def invert_rho(
    radius: Float[Tensor, "*shape"], k: Float[Tensor, "... degree"], limit: Float[Tensor, "..."]
) -> tuple[Float[Tensor, "*shape"], Bool[Tensor, "*shape"]]:
    """The angle ψ in [0, limit] with ρ(ψ) = radius, and whether there is one; the limit itself where there is none."""
    valid = within(radius, rho(limit, k))

    def value_and_slope(psi: Tensor) -> tuple[Tensor, Tensor]:
        return rho(psi, k), rho_slope(psi, k)

    psi = monotone_inverse(value_and_slope, radius, limit)
    return torch.where(valid, implicit(value_and_slope, radius, psi), psi), valid


def _slope_coefficients(k: Tensor) -> Tensor:
    return k * torch.arange(3, 2 * k.shape[-1] + 2, 2, dtype=k.dtype, device=k.device)
