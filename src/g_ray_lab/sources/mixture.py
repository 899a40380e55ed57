"""Several sources of sets as one: every set comes from one of them, as often as its weight says."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import isfinite

import numpy as np
import torch

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose
from g_ray.rays.views import Views
from g_ray_lab.sources.reconstruction_batch import (
    ReconstructionBatch,
    ReconstructionSource,
    ShapedSets,
    Size,
    draw_weighted,
    merge_cameras,
)

MIXTURE_STREAM = 0x31C5
"""Keeps the draws of mixtures independent of those of scenes and shapes."""


@dataclass(frozen=True)
class MixtureReconstruction(ReconstructionSource):
    """Each set of each rank draws its source by weight, so that every step sees the whole mixture.

    All sources have batches of one shape. Where they keep the shape of photographs (`stored_shape`), a step draws one
    size and takes its sets from the sources that have it: a source has weight × share of its views of this size, so
    over many steps every source is drawn as often as its weight says.
    """

    sources: tuple[ShapedSets, ...]
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
        shapes = {
            (source.seed, source.patch, *source.settings.get_shape().values()) for source in self.sources
        }
        if len(shapes) > 1:
            raise ValueError(
                "sources of a mixture must have batches of one shape, one patch size and one seed"
            )

    def make_batch(self, step: int, rank: int = 0) -> ReconstructionBatch:
        shape = self.sources[0].draw_shape(step)
        size, weights = self._draw_size(step, (shape.width, shape.height))
        first = step * self.sources[0].settings.batch
        numbers: dict[int, list[int]] = {}
        for number in range(first, first + shape.sets):
            numbers.setdefault(self.choose_source(number, rank, weights), []).append(number)
        parts = [
            self.sources[index].make_sets(numbers[index], rank, views=shape.views, size=size)
            for index in sorted(numbers)
        ]
        return merge_batches(parts)

    def make_held_out(self) -> ReconstructionBatch:
        """Make a batch of the source with the greatest weight."""
        return self.sources[int(np.argmax(self.weights))].make_held_out()

    def choose_source(self, number: int, rank: int = 0, weights: Sequence[float | int] | None = None) -> int:
        """Return the index of the source of a set of a rank."""
        random = np.random.default_rng((self.seed, MIXTURE_STREAM, rank, number))
        return draw_weighted(random, self.weights if weights is None else weights)

    def _draw_size(self, step: int, drawn: Size) -> tuple[Size, list[float]]:
        """Draw the size of a step, the same on all ranks; return it and the weights of the sources at this size."""
        shares = [source.list_sizes() or {drawn: 1.0} for source in self.sources]
        sizes = sorted({size for share in shares for size in share})
        each = [
            [weight * share.get(size, 0.0) for weight, share in zip(self.weights, shares, strict=True)]
            for size in sizes
        ]
        random = np.random.default_rng((self.seed, MIXTURE_STREAM, step))
        index = draw_weighted(random, [sum(weights) for weights in each])
        return sizes[index], each[index]


def merge_batches(parts: Sequence[ReconstructionBatch]) -> ReconstructionBatch:
    """Put the sets of several batches of one shape into one."""
    if len(parts) == 1:
        return parts[0]
    tensors = {
        field.name: torch.cat([getattr(part, field.name) for part in parts])
        for field in fields(ReconstructionBatch)
        if isinstance(getattr(parts[0], field.name), torch.Tensor)
    }
    return ReconstructionBatch(
        **tensors,
        views=Views([_merge_slot(parts, view) for view in range(len(parts[0].views))]),
        poses=Pose(torch.cat([part.poses.world_from_cam for part in parts])),
        names=tuple(name for part in parts for name in part.names),
        redrawn=tuple(reason for part in parts for reason in part.redrawn),
    )


def _merge_slot(parts: Sequence[ReconstructionBatch], view: int) -> Camera:
    batched = [(part.views.cameras[view], len(part)) for part in parts]
    return merge_cameras([camera[index] for camera, count in batched for index in range(count)])
