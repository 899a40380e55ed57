"""Directions in the camera frame, with gradients that stay finite on the optical axis and behind the
camera."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


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
