"""Depth as another camera beside the depth camera would see it."""

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose

SAME_SURFACE = 0.03
"""Relative difference of two depths up to which the pixel between them may lie on the same surface."""


def register_depth(
    depth: Float[Tensor, "h w"], source: Camera, target: Camera, target_from_source: Pose
) -> Float[Tensor, "height width"]:
    """Move a map of z-depth into another camera; 0 means none, in both.

    Every pixel becomes a point, lands in the pixel of the target that contains its projection, and the nearest point
    wins. A pixel that rounding left empty between two opposite neighbors of one surface gets their mean.
    """
    rays, valid = source.unproject_grid()
    known = valid & torch.isfinite(depth) & (depth > 0) & (rays[..., 2] > 0)
    rays = rays[known]
    points = rays * (depth[known].to(rays) / rays[:, 2])[:, None]
    moved = target_from_source.apply(points)
    pixels, seen = target.project(moved)
    column, row = pixels.floor().long().unbind(-1)
    inside = (column >= 0) & (column < target.width) & (row >= 0) & (row < target.height)
    keep = seen & inside & (moved[:, 2] > 0)
    nearest = moved.new_full((target.height * target.width,), torch.inf)
    nearest.scatter_reduce_(0, (row * target.width + column)[keep], moved[keep, 2], "amin")
    splat = torch.where(torch.isfinite(nearest), nearest, 0.0).reshape(target.height, target.width)
    return _fill_pinpricks(splat).to(depth.dtype)


def _fill_pinpricks(depth: Float[Tensor, "h w"]) -> Float[Tensor, "h w"]:
    """Fill empty pixels between two filled neighbors, left and right or above and below, that lie on one surface."""
    for axis in (0, 1):  # one after the other, so that crossing gaps close too
        padded = torch.nn.functional.pad(depth, (1, 1, 0, 0) if axis == 1 else (0, 0, 1, 1))
        one, other = padded.narrow(axis, 0, depth.shape[axis]), padded.narrow(axis, 2, depth.shape[axis])
        near, far = torch.minimum(one, other), torch.maximum(one, other)
        between = (depth == 0) & (near > 0) & (far <= (1 + SAME_SURFACE) * near)
        depth = torch.where(between, (near + far) / 2, depth)
    return depth
