"""Batches of novel-view synthesis and of reconstruction, the interface of their sources, and a cache for them."""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views

AnyBatch = TypeVar("AnyBatch")


class BatchSource(ABC, Generic[AnyBatch]):
    """A stream of batches without state: what a step sees depends on its arguments and the source's seed alone.

    All ranks of a step have batches of one shape. A broken file is an OSError or ValueError that names it.
    """

    @abstractmethod
    def make_batch(self, step: int, rank: int = 0) -> AnyBatch:
        """Make a batch; the same arguments always give the same batch."""

    @abstractmethod
    def make_held_out(self) -> AnyBatch:
        """Make a batch of scenes that are never trained on, for validation."""


@dataclass(frozen=True)
class ViewBatch:
    """What batches of both kinds can do."""

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Move everything to a device or a floating dtype, as `Tensor.to`; masks stay masks."""
        return replace(self, **{f.name: _move(getattr(self, f.name), *args, **kwargs) for f in fields(self)})

    def pin_memory(self) -> Any:
        """Copy what has the size of images into page-locked memory; a data loader calls it."""
        tensors = {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}
        return replace(self, **{name: tensor.pin_memory() for name, tensor in tensors.items()})


def _move(value: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(value, tuple):  # names
        return value
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        return value.to(torch.empty(0).to(*args, **kwargs).device)
    return value.to(*args, **kwargs)


@dataclass(frozen=True)
class NVSBatch(ViewBatch):
    """Context views with their images, and target views with the images to be synthesized, all in [0, 1]."""

    context_images: Float[Tensor, "batch context 3 h w"]
    contexts: Views
    target_images: Float[Tensor, "batch target 3 height width"]
    targets: Views
    names: tuple[str, ...] = ()
    """One per scene, for messages: a file, a clip, the number of a room."""
    redrawn: tuple[str, ...] = ()
    """Why scenes were drawn again, one line each: files that cannot be read."""

    def __len__(self) -> int:
        return len(self.context_images)

    @staticmethod
    def split(
        images: Float[Tensor, "batch view 3 h w"], views: Views, contexts: int, names: tuple[str, ...]
    ) -> "NVSBatch":
        """Make a batch of views whose first `contexts` are given and whose others are targets."""
        return NVSBatch(images[:, :contexts], views[:contexts], images[:, contexts:], views[contexts:], names)


class NVSSource(BatchSource[NVSBatch]):
    """A stream of scenes for novel-view synthesis."""


def compute_zoom_factors(
    unit: Float[Tensor, "*batch view"], zoom_max: float | int
) -> Float[Tensor, "*batch view"]:
    """The paper's protocol: the first view stays native, every other one takes z ~ U[1, z_max] (Sec. "RealEstate10K").

    From numbers in [0, 1), so that the same scenes can be used with any z_max.
    """
    if not zoom_max >= 1:
        raise ValueError(f"zoom_max {zoom_max} is below 1: a zoom shows a part of the native image")
    zoom = 1 + unit * (zoom_max - 1)
    return torch.cat([torch.ones_like(zoom[..., :1]), zoom[..., 1:]], -1)


@dataclass(frozen=True)
class ReconstructionBatch(ViewBatch):
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


class ReconstructionSource(BatchSource[ReconstructionBatch]):
    """A stream of sets of views for reconstruction."""


# A cache of what was made last

Value = TypeVar("Value")


def weigh_one(value: object) -> int:
    return 1


class RecentCache(Generic[Value]):
    """The values that were used last, up to a total weight. A copy for another process is empty."""

    def __init__(self, limit: int, weigh: Callable[[Any], int] = weigh_one) -> None:
        self.limit, self.weigh = limit, weigh
        self.values: OrderedDict[Hashable, Value] = OrderedDict()
        self.weight = 0

    def __call__(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key, made if it is not there."""
        if key in self.values:
            self.values.move_to_end(key)
            return self.values[key]
        value = make()
        self.values[key] = value
        self.weight += self.weigh(value)
        while self.weight > self.limit:
            self.weight -= self.weigh(self.values.popitem(last=False)[1])
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return RecentCache, (self.limit, self.weigh)
