"""Several sources of sets as one, each as often as its weight says."""

from dataclasses import dataclass
from math import isfinite

import numpy as np

from g_ray.data.reconstruction import ReconstructionBatch, ReconstructionSource

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
