"""Ground truth as the losses see it: in the first view's frame, in units of the mean distance of its points."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.pointmap import compute_mean_distance, transform_points
from g_ray.geometry.pose import Pose
from g_ray.geometry.precision import disable_autocast, promote_to_float32

SLACK = 1e-3
"""Added to the number of valid pixels."""

SCALES = (1e-6, 1e6)
"""A mean distance outside of these is taken for one of them."""

FARTHEST = 100.0
"""Coordinates beyond so many mean distances are cut there: the sky must not rule the loss."""


@runtime_checkable
class Truth(Protocol):
    """Anything with these, such as a batch of `g_ray.data`: any frame, any unit."""

    @property
    def world_points(self) -> Float[Tensor, "set view h w 3"]: ...
    @property
    def camera_points(self) -> Float[Tensor, "set view h w 3"]: ...
    @property
    def poses(self) -> Pose: ...
    @property
    def valid(self) -> Bool[Tensor, "set view h w"]: ...


@dataclass(frozen=True)
class NormalizedTruth:
    """In the frame of the first view, at the scale of the set."""

    world_points: Float[Tensor, "set view h w 3"]
    camera_points: Float[Tensor, "set view h w 3"]
    poses: Pose
    valid: Bool[Tensor, "set view h w"]
    scale: Float[Tensor, "set"]  # what was divided by, in the truth's own unit


@torch.no_grad()
def normalize_truth(truth: Truth) -> NormalizedTruth:
    """Divide by the mean world-point distance from the first camera (appendix "3D Reconstruction").

    Predictions are not normalised: the network has to learn this scale.
    """
    with disable_autocast(truth.world_points):
        first = truth.poses.to(promote_to_float32(truth.world_points).dtype)
        world = transform_points(promote_to_float32(truth.world_points), first[..., :1].inverse())
        scale = compute_mean_distance(world, truth.valid, slack=SLACK).clamp(*SCALES)
        poses = first.relative_to_first().scale_translation(1 / scale[..., None])
    return NormalizedTruth(
        _scale_and_clamp(world, scale),
        _scale_and_clamp(promote_to_float32(truth.camera_points), scale),
        poses,
        truth.valid,
        scale,
    )


def _scale_and_clamp(points: Tensor, scale: Tensor) -> Tensor:
    """Finite everywhere: what is not valid may hold anything, and 0 · NaN is NaN."""
    return torch.nan_to_num(points / scale[:, None, None, None, None]).clamp(-FARTHEST, FARTHEST)
