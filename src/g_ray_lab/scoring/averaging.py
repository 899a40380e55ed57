"""Average the scores of sets into table rows with confidence intervals, and name what is not in them.

Order: pixels → views → sets (by the metrics), sets → datasets → all datasets (here). A dataset is the flat mean over
its scored sets, so that a scene counts by its sets; video depth weights sequences by valid pixels. Nothing is replaced
by 0 or NaN: what has no value leaves the divisor, and is counted and named.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch

from g_ray_lab.metrics.intervals import Interval, compute_limits, draw_means

SCORED = "scored"
PIXELS = "valid_pixels"
"""Name of the weight of sequences in video depth."""
MAX_NAMED = 8
"""How many sets or scenes a sentence names."""


@runtime_checkable
class ScoredSet(Protocol):
    """One set of views with its scores; any object with these attributes will do."""

    @property
    def dataset(self) -> str: ...
    @property
    def scene(self) -> str: ...
    @property
    def set(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def given(self) -> int: ...
    @property
    def empty(self) -> int: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Average:
    """The mean of a metric over the sets that have it."""

    interval: Interval
    sets: int
    """The divisor."""
    scenes: int
    absent: tuple[str, ...] = ()
    """Scored sets without a finite value of this metric: not in the mean."""


@dataclass(frozen=True, eq=False)
class DatasetAverage:
    """One row of a table: means over the sets of a dataset, and what they do not contain."""

    dataset: str
    metrics: dict[str, Average]
    scored: int
    failed: tuple[str, ...]
    """Sets without scores, whatever the reason."""
    missing_scenes: tuple[str, ...]
    """Planned scenes without a scored set: the divisor is smaller by their sets."""
    single_views: tuple[str, ...]
    """Scored sets of one view, which have no pose errors."""
    empty_views: int
    """Views without a valid pixel: not in the means of points and depth of their sets."""
    resamples: dict[str, torch.Tensor] = field(repr=False, default_factory=dict)
    """Bootstrap means by metric, which averages over datasets combine."""

    def list_gaps(self) -> list[str]:
        """Say in one sentence each what the means do not contain."""
        gaps = []
        if self.missing_scenes:
            gaps.append(
                f"{len(self.missing_scenes)} scenes have no scored set and are not in the means: "
                f"{name_some(self.missing_scenes)}."
            )
        if self.failed:
            gaps.append(f"{len(self.failed)} sets failed and are not in the means: {name_some(self.failed)}.")
        for metric, average in self.metrics.items():
            if average.absent:
                gaps.append(f"{len(average.absent)} sets have no {metric}: {name_some(average.absent)}.")
        if self.single_views:
            gaps.append(
                f"{len(self.single_views)} sets have a single view, and no pose errors: {name_some(self.single_views)}."
            )
        if self.empty_views:
            gaps.append(f"{self.empty_views} views have no valid pixel, and count for poses and rays only.")
        return gaps


def average_dataset(
    rows: Sequence[ScoredSet],
    *,
    planned_scenes: Iterable[str] = (),
    weight: str | None = None,
    seed: int = 0,
) -> DatasetAverage:
    """Average the sets of one dataset, by their weight if one is named.

    Intervals are bootstraps over scenes, because sets of one scene share its difficulty; where there is only one scene,
    over its sets. ValueError for rows of several datasets, and for a set that is there twice.
    """
    datasets = sorted({row.dataset for row in rows})
    if len(datasets) != 1:
        raise ValueError(f"rows of {len(datasets)} datasets {datasets}: average one dataset at a time")
    names = [row.set for row in rows]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"sets with more than one row: {name_some(twice)}")
    scored = [row for row in rows if row.status == SCORED]
    scored_scenes = {row.scene for row in scored}
    # A scene that has rows but no scored one is as absent from the means as one that was never read.
    planned = dict.fromkeys([*planned_scenes, *(row.scene for row in rows)])
    averages, resamples = {}, {}
    for metric in dict.fromkeys(name for row in scored for name in row.metrics if name != weight):
        average = _average_metric(scored, metric, weight, seed)
        if average is not None:
            averages[metric], resamples[metric] = average
    return DatasetAverage(
        datasets[0],
        averages,
        scored=len(scored),
        failed=tuple(row.set for row in rows if row.status != SCORED),
        missing_scenes=tuple(scene for scene in planned if scene not in scored_scenes),
        single_views=tuple(row.set for row in scored if row.given == 1),
        empty_views=sum(row.empty for row in scored),
        resamples=resamples,
    )


def _average_metric(
    rows: Sequence[ScoredSet], metric: str, weight: str | None, seed: int
) -> tuple[Average, torch.Tensor] | None:
    """Return the mean of a metric and its resamples, or None if no set has a finite value."""
    absent, by_scene = [], {}
    for row in rows:
        value, share = row.metrics.get(metric, math.nan), _get_weight(row, weight)
        if math.isfinite(value) and share > 0:
            by_scene.setdefault(row.scene, []).append((value, share))
        else:
            absent.append(row.set)
    if not by_scene:
        return None
    # Each unit of the bootstrap enters with its weighted mean and the sum of its weights: the flat mean over sets.
    units = (
        list(by_scene.values()) if len(by_scene) > 1 else [[pair] for pair in next(iter(by_scene.values()))]
    )
    shares = torch.tensor([sum(share for _, share in unit) for unit in units], dtype=torch.float64)
    totals = torch.tensor([sum(v * share for v, share in unit) for unit in units], dtype=torch.float64)
    means = draw_means(totals / shares, shares, seed=seed)
    mean = (totals.sum() / shares.sum()).item()
    sets = sum(len(pairs) for pairs in by_scene.values())
    interval = Interval(mean, *compute_limits(means))
    return Average(interval, sets, len(by_scene), tuple(absent)), means


def _get_weight(row: ScoredSet, weight: str | None) -> float:
    if weight is None:
        return 1.0
    if weight not in row.metrics:
        raise ValueError(f"set {row.set} has no {weight!r}, which weights the mean")
    return row.metrics[weight]


@dataclass(frozen=True, eq=False)
class OverallAverage:
    """The plain mean over datasets, as the last column of the paper's tables."""

    metrics: dict[str, Interval]
    datasets: tuple[str, ...]
    absent: dict[str, tuple[str, ...]]
    """Datasets without a value, by metric: a mean over the others is over fewer datasets."""
    missing: tuple[str, ...]
    """Planned datasets without a row."""

    def list_gaps(self) -> list[str]:
        """Say in one sentence each which datasets the means do not contain."""
        gaps = [f"{metric} is not the mean over {name_some(names)}." for metric, names in self.absent.items()]
        if self.missing:
            gaps.append(f"datasets that are missing in all means: {name_some(self.missing)}.")
        return gaps


def average_datasets(
    averages: Sequence[DatasetAverage], *, planned_datasets: Iterable[str] = ()
) -> OverallAverage:
    """Average datasets with equal weight; each is resampled by itself for the interval."""
    if not averages:
        raise ValueError("no dataset to average: score one or more")
    names = tuple(average.dataset for average in averages)
    if len(set(names)) != len(names):
        raise ValueError(f"a dataset is there twice: {', '.join(names)}")
    metrics, absent = {}, {}
    for metric in dict.fromkeys(name for average in averages for name in average.metrics):
        having = [average for average in averages if metric in average.metrics]
        # The same seed draws the same scene numbers in datasets of one size; a shuffle makes them independent.
        draws = [_shuffle(average.resamples[metric], number) for number, average in enumerate(having)]
        mean = sum(average.metrics[metric].interval.mean for average in having) / len(having)
        metrics[metric] = Interval(mean, *compute_limits(torch.stack(draws).mean(0)))
        if len(having) < len(averages):
            absent[metric] = tuple(average.dataset for average in averages if metric not in average.metrics)
    missing = tuple(name for name in planned_datasets if name not in names)
    return OverallAverage(metrics, names, absent, missing)


def _shuffle(means: torch.Tensor, seed: int) -> torch.Tensor:
    return means[torch.randperm(len(means), generator=torch.Generator().manual_seed(seed))]


def name_some(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """Join the first names."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
