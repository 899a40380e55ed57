"""Random lenses: pinholes of any field of view, and four-coefficient fisheyes that never fold."""

from math import pi

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.cameras.radial import rho

MONOTONE_RAD = 2 * pi / 3
"""Up to this angle from the axis ρ(ψ) grows: 240° of lens, more than any image here shows."""

STRENGTH = 0.6
"""By how much the slope of ρ may differ from the equidistant lens's 1, at most, up to that angle."""


def draw_fisheye_coefficients(unit: Float[Tensor, "*lens 5"]) -> Float[Tensor, "*lens 4"]:
    """k1 … k4 from numbers in [0, 1), with ρ'(ψ) = 1 + Σ (2i + 1) kᵢ ψ²ⁱ in [1 − STRENGTH, 1 + STRENGTH].

    Four signed shares of one budget, each at its largest at the widest angle: monotone by construction, so that
    no draw has to be thrown away.
    """
    shares = 2 * unit[..., :4] - 1
    shares = shares / shares.abs().sum(-1, keepdim=True).clamp(min=1e-6)
    order = torch.arange(1, 5, dtype=unit.dtype, device=unit.device)
    return STRENGTH * unit[..., 4:] * shares / ((2 * order + 1) * MONOTONE_RAD ** (2 * order))


def make_fisheyes(
    fov_rad: Float[Tensor, "*lens"],
    k: Float[Tensor, "*lens 4"],
    center: Float[Tensor, "*lens 2"],
    zoom: Float[Tensor, "*lens"],
    width: int,
    height: int,
) -> OpenCVFisheye:
    """`fov_rad` is swept along the width of a native image whose principal point is in its middle."""
    focal = zoom * width / 2 / rho(fov_rad / 2, k)
    params = torch.cat(
        [focal[..., None], focal[..., None], compute_zoomed_center(center, zoom, width, height), k], -1
    )
    return OpenCVFisheye(params.float(), width, height)


def make_pinholes(
    fov_rad: Float[Tensor, "*lens"],
    center: Float[Tensor, "*lens 2"],
    zoom: Float[Tensor, "*lens"],
    width: int,
    height: int,
) -> Pinhole:
    """As `make_fisheyes`, without distortion."""
    focal = (zoom * width / 2 / torch.tan(fov_rad / 2)).float()
    cx, cy = compute_zoomed_center(center, zoom, width, height).float().unbind(-1)
    return Pinhole.make(width, height, fx=focal, fy=focal, cx=cx, cy=cy)


def compute_zoomed_center(
    center: Float[Tensor, "*lens 2"], zoom: Float[Tensor, "*lens"], width: int, height: int
) -> Float[Tensor, "*lens 2"]:
    """Principal point in pixels, given from the middle in image sizes, after a zoom into the middle of the image."""
    return (0.5 + zoom[..., None] * center) * center.new_tensor([width, height])
