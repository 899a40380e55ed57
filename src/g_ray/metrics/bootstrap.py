"""Bootstrap confidence intervals of means over scenes, and over training runs and scenes."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Interval:
    """A mean and the limits of its confidence interval."""

    mean: float
    low: float
    high: float


def bootstrap(
    values: Float[Tensor, "scene"], *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Return the mean over scenes with its percentile bootstrap interval; deterministic for a given seed.

    To compare two methods, pass their differences per scene: the test is then paired.
    """
    if values.numel() == 0 or not bool(values.isfinite().all()):
        raise ValueError(
            f"bootstrap of {values.numel()} values, {int((~values.isfinite()).sum())} of them not finite: "
            "give one finite number per scene"
        )
    if not 0 < confidence < 1 or resamples < 1:
        raise ValueError(
            f"confidence {confidence} must be between 0 and 1, and resamples {resamples} positive"
        )
    values = values.detach().double().cpu()
    generator = torch.Generator().manual_seed(seed)
    # In chunks: 6,202 scenes (RealEstate10K) × 10,000 resamples would be half a gigabyte of indices.
    at_once = max(1, (1 << 20) // len(values))
    means = torch.cat(
        [
            values[
                torch.randint(len(values), (min(at_once, resamples - done), len(values)), generator=generator)
            ].mean(1)
            for done in range(0, resamples, at_once)
        ]
    )
    tail = (1 - confidence) / 2
    low, high = torch.quantile(means, torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return Interval(values.mean().item(), low, high)


def bootstrap_runs(
    values: Float[Tensor, "run scene"], *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Return the mean over training runs and scenes with an interval from resampling both.

    The interval then covers the variation between seeds as well as between scenes. With few runs it is coarse:
    three runs can be resampled in only ten different ways.
    """
    if values.shape[0] == 1:
        return bootstrap(values[0], confidence=confidence, resamples=resamples, seed=seed)
    if values.numel() == 0 or not bool(values.isfinite().all()):
        raise ValueError(
            f"bootstrap of {values.numel()} values, some not finite: give one finite number per scene"
        )
    values = values.detach().double().cpu()
    generator = torch.Generator().manual_seed(seed)
    runs, scenes = values.shape
    # A resample is a vector of counts per scene, and another one per run: the mean is then a bilinear form of them.
    counts = [_draw_counts(size, resamples, generator) / size for size in (runs, scenes)]
    means = torch.einsum("nr,rs,ns->n", counts[0], values, counts[1])
    tail = (1 - confidence) / 2
    low, high = torch.quantile(means, torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return Interval(values.mean().item(), low, high)


def _draw_counts(size: int, resamples: int, generator: torch.Generator) -> Float[Tensor, "resample item"]:
    """Return how often each item is drawn in each resample of `size` items."""
    drawn = torch.randint(size, (resamples, size), generator=generator)
    return torch.zeros(resamples, size, dtype=torch.float64).scatter_add_(
        1, drawn, torch.ones_like(drawn, dtype=torch.float64)
    )
