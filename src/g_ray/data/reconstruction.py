"""What reconstruction learns from: sets of views with depth and poses, and where they come from."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any

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
