"""Poses whose unit nobody knows, as structure from motion gives them, in units that a network can rely on."""

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.geometry.pose import Pose

STANDING = 1e-9
"""Contexts closer together than this are one place: there is nothing to scale by."""


def scale_to_baseline(poses: Pose, contexts: int, baseline: float | int) -> Pose:
    """The first context becomes the world, and its farthest fellow context stands `baseline` away from it.

    Poses are [*batch, view], contexts first. Where all contexts stand in one place the scale stays as it is.
    """
    relative = poses.relative_to_first()
    return relative.scale_translation(
        compute_baseline_scale(relative, contexts, baseline)[..., None].expand(relative.batch_shape)
    )


def compute_baseline_scale(relative: Pose, contexts: int, baseline: float | int) -> Float[Tensor, "*batch"]:
    """What lengths are multiplied by."""
    apart = relative.translation[..., :contexts, :].norm(dim=-1).amax(-1)
    return torch.where(apart > STANDING, baseline / apart.clamp(min=STANDING), 1.0)
