"""Ground truth as the losses see it: in the first view's frame, in units of the mean distance of its points."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.pointmap import mean_distance, move
from g_ray.geometry.pose import Pose
from g_ray.geometry.precision import at_least_float32, full_precision

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
class NormalisedTruth:
    """In the frame of the first view, at the scale of the set."""

    world_points: Float[Tensor, "set view h w 3"]
    camera_points: Float[Tensor, "set view h w 3"]
    poses: Pose
    valid: Bool[Tensor, "set view h w"]
    scale: Float[Tensor, "set"]  # what was divided by, in the truth's own unit


@torch.no_grad()
def normalised_truth(truth: Truth) -> NormalisedTruth:
    """Divide by the mean world-point distance from the first camera (appendix "3D Reconstruction").

    Predictions are not normalised: the network has to learn this scale.
    """
    with full_precision(truth.world_points):
        first = truth.poses.to(at_least_float32(truth.world_points).dtype)
        world = move(at_least_float32(truth.world_points), first[..., :1].inverse())
        scale = mean_distance(world, truth.valid, slack=SLACK).clamp(*SCALES)
        poses = first.relative_to_first().scaled(1 / scale[..., None])
    return NormalisedTruth(
        _tamed(world, scale), _tamed(at_least_float32(truth.camera_points), scale), poses, truth.valid, scale
    )


def _tamed(points: Tensor, scale: Tensor) -> Tensor:
    """Finite everywhere: what is not valid may hold anything, and 0 · NaN is NaN."""
    return torch.nan_to_num(points / scale[:, None, None, None, None]).clamp(-FARTHEST, FARTHEST)
