"""Pointmaps: a point for every pixel of every view."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray.runtime.device import disable_autocast


def transform_points(points: Float[Tensor, "*view h w 3"], poses: Pose) -> Float[Tensor, "*view h w 3"]:
    """Compute R p + t for all pixels of a view: one product per view, where `Pose.apply` makes one per point."""
    with disable_autocast(points):
        moved = points.flatten(-3, -2) @ poses.rotation.mT + poses.translation[..., None, :]
    return moved.unflatten(-2, points.shape[-3:-1])


def compute_mean_distance(
    points: Float[Tensor, "*set view h w 3"], valid: Bool[Tensor, "*set view h w"], *, slack: float
) -> Float[Tensor, "*set"]:
    """Compute Σ ‖p‖ / (count + slack) over the valid pixels of all views of a set; 0 where there are none."""
    # where, not a product with the mask: an invalid point may be NaN or infinite.
    distance = torch.where(valid, torch.linalg.vector_norm(points, dim=-1), 0)
    return distance.sum((-3, -2, -1)) / (valid.sum((-3, -2, -1)) + slack)


def estimate_normals(
    points: Float[Tensor, "h w 3"], valid: Bool[Tensor, "h w"], toward: Float[Tensor, "3"]
) -> Float[Tensor, "h w 3"]:
    """Normals of a map of points from differences of neighbors up to two pixels away, turned to `toward`."""
    right, down = (_difference(points, valid, dim) for dim in (1, 0))
    normal = torch.linalg.cross(right, down)
    sight = toward - points
    length = normal.norm(dim=-1, keepdim=True)
    # Where neighbors are missing the line of sight is the best guess.
    normal = torch.where(
        length > 1e-20, normal / length.clamp_min(1e-20), torch.nn.functional.normalize(sight, dim=-1)
    )
    return normal * torch.where((normal * sight).sum(-1, keepdim=True) < 0, -1.0, 1.0)


def _difference(points: Tensor, valid: Tensor, dim: int) -> Tensor:
    """Sum of the differences to both neighbors at distance 2 along an axis, where these are valid."""
    total = torch.zeros_like(points)
    for step in (-2, 2):
        other, known = points.roll(-step, dim), valid.roll(-step, dim) & valid
        edge = known.narrow(dim, 0 if step < 0 else known.shape[dim] - 2, 2)
        edge.fill_(False)
        total += torch.where(known[..., None], (other - points) * (1 if step > 0 else -1), 0.0)
    return total
