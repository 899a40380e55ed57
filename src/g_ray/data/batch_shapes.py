"""The shape of a step's batch: how many sets and views, how tall the images (appendix "3D Reconstruction")."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from g_ray.data.reconstruction import ReconstructionBatch, ReconstructionSource
from g_ray.data.splits import HELD_OUT

STREAM = 0x5A4E
"""Keeps these draws apart from those of scenes."""


@dataclass(frozen=True)
class BatchShape:
    """Of one process at one step."""

    sets: int
    views: int
    width: int
    height: int


@dataclass(frozen=True)
class DynamicBatch:
    """Draws the number of views and the aspect ratio of every step, from (seed, step) alone: all ranks agree.

    The paper's first stage is `DynamicBatch(sets=120, views=(2, 24), width=224, height=224, aspect=(0.33, 1.0),
    images_max=240)`: two views come in 120 sets, 24 views in ten.
    """

    seed: int = 0
    sets: int = 4  # at most
    views: tuple[int, int] = (4, 4)  # drawn between these, both included
    width: int = 56  # pixels
    height: int = 56  # pixels, of the tallest images
    aspect: tuple[float, float] = (1.0, 1.0)  # of the tallest height, drawn between these in hundredths
    images_max: int | None = None  # per process and step; sets are left out to stay below, but for one
    patch: int = 14  # heights are cut down to multiples of it

    def __post_init__(self) -> None:
        if not 1 <= self.views[0] <= self.views[1]:
            raise ValueError(f"views {self.views} must be a range from 1 or more, e.g. (2, 24)")
        if not 0 < self.aspect[0] <= self.aspect[1] <= 1:
            raise ValueError(f"aspect {self.aspect} must be a range in (0, 1], e.g. (0.33, 1.0)")
        if min(self.sets, self.patch) < 1 or self.seed < 0:
            raise ValueError(
                f"{self.sets} sets, patches of {self.patch} px, seed {self.seed}: give positive numbers, "
                "and a seed of 0 or more"
            )
        if min(self.width, self.height) < self.patch or self.width % self.patch or self.height % self.patch:
            raise ValueError(
                f"images of {self.width}×{self.height} px cannot be cut into patches of {self.patch} px: "
                "give multiples of it"
            )
        if self.images_max is not None and self.images_max < self.views[1]:
            raise ValueError(
                f"images_max {self.images_max} is below the {self.views[1]} views that a set may have: "
                "raise it, or ask for fewer views"
            )

    def draw_shape(self, step: int) -> BatchShape:
        """Always the same for the same step."""
        random = np.random.default_rng((self.seed, STREAM, step))
        views = int(random.integers(self.views[0], self.views[1], endpoint=True))
        aspect = round(float(random.uniform(*self.aspect)), 2)
        # A hair more, so that 100 × 0.29 is not 28.999….
        rows = int(self.height * aspect + 1e-6) // self.patch
        sets = self.sets if self.images_max is None else min(self.sets, self.images_max // views)
        return BatchShape(sets, views, self.width, max(1, rows) * self.patch)


# What streams of sets share: batches whose number of sets, views and rows is drawn anew for every step.


class ShapedSets(ReconstructionSource):
    """A source that makes any stretch of its stream in any shape; the settings of `DynamicBatch` are among its own."""

    seed: int
    batch_size: int
    views: tuple[int, int]
    width: int
    height: int
    aspect: tuple[float, float]
    images_max: int | None
    patch: int

    @abstractmethod
    def make_sets(
        self, numbers: range, rank: int = 0, *, views: int | None = None, height: int | None = None
    ) -> ReconstructionBatch:
        """A stretch of the stream; without a number of views the most that a set has, at the tallest height."""

    def make_batch(self, step: int, rank: int = 0) -> ReconstructionBatch:
        shape = self.make_dynamic_batch().draw_shape(step)
        numbers = range(step * self.batch_size, step * self.batch_size + shape.sets)
        return self.make_sets(numbers, rank, views=shape.views, height=shape.height)

    def make_held_out(self) -> ReconstructionBatch:
        return self.make_batch(0, HELD_OUT)

    def make_dynamic_batch(self) -> DynamicBatch:
        return DynamicBatch(
            self.seed,
            self.batch_size,
            self.views,
            self.width,
            self.height,
            self.aspect,
            self.images_max,
            self.patch,
        )
