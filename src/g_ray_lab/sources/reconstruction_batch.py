"""Batches of reconstruction (sets of views with depth and poses), and the interface of their sources."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views
from g_ray_lab.sources.reconstruction_settings import ReconstructionData
from g_ray_lab.sources.splits import HELD_OUT


@dataclass(frozen=True)
class ReconstructionBatch:
    """Sets of views with their ground truth. The world is the first view's camera; lengths are in meters.

    `views` have cameras and no poses: poses are to be predicted, so no encoding may use them. Where a pixel is not
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
    redrawn: tuple[str, ...] = ()
    """Why sets were drawn again, one line each: files that cannot be read."""

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

    def pin_memory(self) -> "ReconstructionBatch":
        """Copy what has the size of images into page-locked memory; a data loader calls it."""
        tensors = {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}
        return replace(self, **{name: tensor.pin_memory() for name, tensor in tensors.items()})


class ReconstructionSource(ABC):
    """A stream of sets without state: what a step sees depends on its arguments and the source's seed alone.

    All ranks of a step have batches of one shape. A broken file is an OSError or ValueError that names it.
    """

    @abstractmethod
    def make_batch(self, step: int, rank: int = 0) -> ReconstructionBatch:
        """Make a batch; the same arguments always give the same batch."""

    @abstractmethod
    def make_held_out(self) -> ReconstructionBatch:
        """Make a batch of sets that are never trained on, for validation."""


def _move_tensors(value: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(value, tuple):
        return value
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        return value.to(torch.empty(0).to(*args, **kwargs).device)
    return value.to(*args, **kwargs)


# Batches whose numbers of sets, views and rows are drawn for every step (appendix "3D Reconstruction").


SHAPE_STREAM = 0x5A4E
"""Keeps the draws of shapes independent of those of scenes."""


Size = tuple[int, int]
"""Width and height."""


@dataclass(frozen=True)
class BatchShape:
    """Shape of the batch of one process at one step."""

    sets: int
    views: int
    width: int
    height: int


class ShapedSets(ReconstructionSource):
    """A source that makes any range of its stream in any shape that its settings allow."""

    settings: ReconstructionData
    seed: int
    patch: int

    @abstractmethod
    def make_sets(
        self, numbers: Sequence[int], rank: int = 0, *, views: int | None = None, size: Size | None = None
    ) -> ReconstructionBatch:
        """Make sets of the stream, by default with the most views that a set has, at the tallest height."""

    def make_batch(self, step: int, rank: int = 0) -> ReconstructionBatch:
        shape = self.draw_shape(step)
        first = step * self.settings.batch
        numbers = range(first, first + shape.sets)
        return self.make_sets(numbers, rank, views=shape.views, size=(shape.width, shape.height))

    def make_held_out(self) -> ReconstructionBatch:
        return self.make_batch(0, HELD_OUT)

    def draw_shape(self, step: int) -> BatchShape:
        """Draw the number of views and the aspect ratio of a step from (seed, step) alone: all ranks agree."""
        settings = self.settings
        random = np.random.default_rng((self.seed, SHAPE_STREAM, step))
        views = int(random.integers(settings.views[0], settings.views[1], endpoint=True))
        aspect = round(float(random.uniform(*settings.aspect)), 2)
        # 1e-6 more, so that 100 × 0.29 is not 28.999….
        rows = int(settings.height * aspect + 1e-6) // self.patch
        sets = (
            settings.batch
            if settings.images_max is None
            else min(settings.batch, settings.images_max // views)
        )
        return BatchShape(sets, views, settings.width, max(1, rows) * self.patch)

    def check_shape(self) -> None:
        """Raise ValueError for settings from which no batch can be drawn."""
        settings, patch = self.settings, self.patch
        if not 1 <= settings.views[0] <= settings.views[1]:
            raise ValueError(f"views {settings.views} must be a range from 1 or more, e.g. (2, 24)")
        if not 0 < settings.aspect[0] <= settings.aspect[1] <= 1:
            raise ValueError(f"aspect {settings.aspect} must be a range in (0, 1], e.g. (0.33, 1.0)")
        if min(settings.batch, patch) < 1 or self.seed < 0:
            raise ValueError(
                f"{settings.batch} sets, patches of {patch} px, seed {self.seed}: give positive numbers, "
                "and a seed of 0 or more"
            )
        if min(settings.width, settings.height) < patch or settings.width % patch or settings.height % patch:
            raise ValueError(
                f"images of {settings.width}×{settings.height} px cannot be cut into patches of {patch} px: "
                "give multiples of it"
            )
        if settings.images_max is not None and settings.images_max < settings.views[1]:
            raise ValueError(
                f"images_max {settings.images_max} is below the {settings.views[1]} views that a set may have: "
                "raise it, or ask for fewer views"
            )

    def list_sizes(self) -> dict[Size, float]:
        """Return the sizes that batches can have, with the share of views that has each; empty if any size will do."""
        return {}


def draw_weighted(random: np.random.Generator, weights: Sequence[float | int]) -> int:
    """Draw an index as often as its weight says."""
    ends = np.cumsum(weights) / sum(weights)
    return min(int(np.searchsorted(ends, random.random(), side="right")), len(ends) - 1)


def merge_cameras(cameras: Sequence[Camera]) -> Camera:
    """Stack cameras; those of several models become tables of their rays, because a batch has one camera model."""
    kinds = {(type(camera), camera.circle is None) for camera in cameras}
    if len(kinds) > 1 or isinstance(cameras[0], RayMapCamera):
        rays = [RayMap.from_camera(camera) for camera in cameras]
        return RayMapCamera.stack([RayMapCamera.from_rays(each.directions, each.valid) for each in rays])
    return type(cameras[0]).stack(cameras)
