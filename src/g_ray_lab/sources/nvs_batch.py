"""Batches of novel-view synthesis (context and target views), and the interface of their sources."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.rays.views import Views


@dataclass(frozen=True)
class NVSBatch:
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

    def to(self, *args: Any, **kwargs: Any) -> "NVSBatch":
        """Move everything to a device or a floating dtype, as `Tensor.to`."""
        return NVSBatch(
            self.context_images.to(*args, **kwargs),
            self.contexts.to(*args, **kwargs),
            self.target_images.to(*args, **kwargs),
            self.targets.to(*args, **kwargs),
            self.names,
            self.redrawn,
        )

    def pin_memory(self) -> "NVSBatch":
        """Copy images into page-locked memory; a data loader calls it."""
        contexts, targets = self.context_images.pin_memory(), self.target_images.pin_memory()
        return replace(self, context_images=contexts, target_images=targets)


class NVSSource(ABC):
    """A stream of scenes without state: what a step sees depends on its arguments and the source's seed alone.

    A broken file is an OSError or ValueError that names it.
    """

    @abstractmethod
    def make_batch(self, step: int, rank: int = 0) -> NVSBatch:
        """Make a batch; the same arguments always give the same batch."""

    @abstractmethod
    def make_held_out(self) -> NVSBatch:
        """Make a batch of scenes that are never trained on, for validation."""


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
