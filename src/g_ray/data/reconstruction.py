"""What reconstruction learns from: sets of views with depth and poses, and where they come from."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views


@dataclass(frozen=True)
class ReconstructionBatch:
    """Sets of views, and what a network is to find out about them. The world is the first view's camera; metres.

    `views` have cameras and no poses: those are the answer, and no encoding may look at it. Where a pixel is not
    valid its points and depths are 0.
    """

    images: Float[Tensor, "set view 3 h w"]  # in [0, 1]
    views: Views
    world_points: Float[Tensor, "set view h w 3"]
    camera_points: Float[Tensor, "set view h w 3"]
    ray_depth: Float[Tensor, "set view h w"]  # distance along the unit ray
    z_depth: Float[Tensor, "set view h w"]  # its component along the optical axis; negative beyond 90°
    valid: Bool[Tensor, "set view h w"]
    poses: Pose  # world_from_cam [set view]; the first is the identity
    names: tuple[str, ...] = ()
    """One per set, for messages."""

    def __len__(self) -> int:
        return len(self.images)

    def rays(self) -> RayMap:
        """True rays of all pixels [set view h w], in the cameras' frames."""
        maps = [RayMap.from_camera(camera) for camera in self.views.cameras]
        shape = (len(self), *maps[0].shape[-2:])
        directions = torch.stack([each.directions.expand(*shape, 3) for each in maps], 1)
        return RayMap(directions, torch.stack([each.valid.expand(shape) for each in maps], 1))

    def to(self, *args: Any, **kwargs: Any) -> "ReconstructionBatch":
        """Move everything to a device or a floating dtype, as `Tensor.to`; masks stay masks."""
        moved = {f.name: _move_tensors(getattr(self, f.name), *args, **kwargs) for f in fields(self)}
        return ReconstructionBatch(**moved)


class ReconstructionSource(ABC):
    """A stream of sets without state: what a step sees depends on its arguments and the source's seed alone.

    All ranks of a step have batches of one shape. A broken file is an OSError or ValueError that names it.
    """

    @abstractmethod
    def make_batch(self, step: int, rank: int = 0) -> ReconstructionBatch:
        """Always the same for the same arguments: to resume at a step, ask for it."""

    @abstractmethod
    def make_held_out(self) -> ReconstructionBatch:
        """Sets that no step of any rank shows, for pictures and a score while training goes on."""


def _move_tensors(value: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(value, tuple):
        return value
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        return value.to(torch.empty(0).to(*args, **kwargs).device)
    return value.to(*args, **kwargs)


# Several sources of sets as one, each as often as its weight says.


STREAM = 0x31C5
"""Keeps these draws apart from those of scenes and shapes."""


@dataclass(frozen=True)
class MixtureReconstruction(ReconstructionSource):
    """Every step one source, drawn by weight from (seed, step) alone: all ranks of a step have the same one, and so
    batches of one shape. A source is asked for the steps that fall to it and never for those between."""

    sources: tuple[ReconstructionSource, ...]
    weights: tuple[float | int, ...]
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sources or len(self.sources) != len(self.weights):
            raise ValueError(
                f"{len(self.sources)} sources and {len(self.weights)} weights: give one or more, and a weight for each"
            )
        if not all(isfinite(weight) and weight > 0 for weight in self.weights) or self.seed < 0:
            raise ValueError(
                f"weights {self.weights} must be positive numbers, and seed {self.seed} 0 or more"
            )

    def make_batch(self, step: int, rank: int = 0) -> ReconstructionBatch:
        return self.sources[self.choose_source(step)].make_batch(step, rank)

    def make_held_out(self) -> ReconstructionBatch:
        """Of the source with the greatest weight: sources may have batches of different shapes."""
        return self.sources[int(np.argmax(self.weights))].make_held_out()

    def choose_source(self, step: int) -> int:
        """Which source a step sees."""
        unit = np.random.default_rng((self.seed, STREAM, step)).random()
        ends = np.cumsum(self.weights) / sum(self.weights)
        return min(int(np.searchsorted(ends, unit, side="right")), len(ends) - 1)
