"""Ray angles: where a token looks, in radians."""

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.coordinates.base import Axis, RayCoordinate, make_angle_axis


def tangent(directions: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape 2"]:
    """θx = atan2(rx, rz), θy = atan2(ry, rz): horizontal and vertical ray angle (paper, eq:thetax, eq:thetay).

    Exact and smooth in front of the camera. At 90° from the axis the pair is discontinuous (a ray to the
    right has θy = 0 just before and θy = π just behind), so beyond it `equidistant` or `spherical` is better.
    """
    x, y, z = directions.unbind(-1)
    return torch.stack([_safe_atan2(x, z), _safe_atan2(y, z)], -1)


def equidistant(directions: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape 2"]:
    """(ψ cos φ, ψ sin φ): polar angle ψ from the axis, spread along the azimuth φ of the image plane.

    Continuous everywhere but straight behind the camera.
    """
    x, y, z = directions.unbind(-1)
    radius_squared = x * x + y * y
    off_axis = radius_squared > torch.finfo(directions.dtype).tiny
    radius = torch.where(off_axis, radius_squared, 1.0).sqrt()
    # ψ/r → 1/z on the axis, where r = 0 has no gradient of its own.
    stretch = torch.where(
        off_axis, torch.atan2(radius, z) / radius, 1.0 / torch.where(off_axis, 1.0, z.abs() + 1e-30)
    )
    return torch.stack([x * stretch, y * stretch], -1)


def spherical(directions: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape 2"]:
    """Azimuth atan2(rx, rz), of period 2π, and elevation atan2(ry, √(rx² + rz²)).

    Continuous over the whole panorama once the azimuth takes integer frequencies, except at the two poles.
    """
    x, y, z = directions.unbind(-1)
    horizontal_squared = x * x + z * z
    off_pole = horizontal_squared > torch.finfo(directions.dtype).tiny
    horizontal = torch.where(off_pole, torch.where(off_pole, horizontal_squared, 1.0).sqrt(), 0.0)
    return torch.stack([_safe_atan2(x, z), torch.atan2(y, horizontal)], -1)


def _safe_atan2(y: Tensor, x: Tensor) -> Tensor:
    """atan2 whose gradient at (0, 0), a ray along the other axis, is zero instead of NaN."""
    degenerate = (x == 0) & (y == 0)
    return torch.atan2(y, torch.where(degenerate, 1.0, x))


TANGENT = RayCoordinate((make_angle_axis("theta_x"), make_angle_axis("theta_y")), tangent)
EQUIDISTANT = RayCoordinate((Axis("psi_cos_phi", "rad"), Axis("psi_sin_phi", "rad")), equidistant)
# Elevation never wraps, but takes the azimuth's whole frequencies: with unequal banks one axis drowns the other.
SPHERICAL = RayCoordinate(
    (make_angle_axis("azimuth", periodic=True), make_angle_axis("elevation", periodic=True)), spherical
)
