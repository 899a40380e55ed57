"""Scores as one row per set of views; means, paired differences and confidence intervals over rows.

Order: pixels → views → sets (by the metrics), sets → datasets → all datasets (here). A dataset is the flat mean over
its scored sets, so that a scene counts by its sets; video depth weights sequences by valid pixels. Nothing is replaced
by 0 or NaN: a set without a value leaves the divisor, and is counted and named.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal

import torch

from g_ray_lab.metrics.intervals import Interval, compute_limits, compute_run_interval, draw_means

Status = Literal["scored", "failed", "unreadable"]
"""failed: the model gave no usable prediction. unreadable: the dataset has no usable truth or images for it."""
SCORED: Status = "scored"
PIXELS = "valid_pixels"
"""Metric that weights sequences in video depth."""
COVERAGE = "coverage"
"""Share of the pixels with true depth that have a prediction, over all views of a set."""
MAX_NAMED = 8
"""Most names in a sentence."""


@dataclass(frozen=True)
class SetRow:
    """The scores of one set, or why it has none."""

    protocol: str
    dataset: str
    scene: str
    set: str
    """Unique in its protocol: scene, number of views and number of the set."""
    views: int
    """Number of views in the protocol; 0 if a set has all frames that the sampling gives."""
    status: Status
    message: str = ""
    placed: int = 0
    """Views that the model placed."""
    given: int = 0
    """Views that it was given."""
    repeated: int = 0
    """Views that are repetitions, because the scene is too small."""
    empty: int = 0
    """Views without a pixel of known depth: they are not in the means of points and depth."""
    cpu_seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def is_scored(self) -> bool:
        return self.status == SCORED


Rows = Sequence[SetRow]


# Means and intervals


@dataclass(frozen=True, eq=False)
class Average:
    """The mean of a metric over the sets that have it."""

    interval: Interval
    sets: int
    """The divisor."""
    scenes: int
    absent: tuple[str, ...] = ()
    """Scored sets, or datasets, without a finite value of this metric: not in the mean."""
    resamples: torch.Tensor | None = field(repr=False, default=None)
    """Bootstrap means, which averages over datasets combine."""


def average_rows(rows: Rows, weight: str | None = None) -> dict[str, Average]:
    """Average the scored sets of one dataset by metric, weighted by another metric if one is named.

    Intervals are bootstraps over scenes, because sets of one scene share its difficulty; where there is only one scene,
    over its sets. ValueError for rows of several datasets, and for a set that has two rows.
    """
    datasets = sorted({row.dataset for row in rows})
    if len(datasets) != 1:
        raise ValueError(f"rows of {len(datasets)} datasets {datasets}: average one dataset at a time")
    names = [row.set for row in rows]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"sets with more than one row: {name_some(twice)}")
    scored = [row for row in rows if row.is_scored]
    averages = {metric: _average_metric(scored, metric, weight) for metric in list_metrics(scored, weight)}
    return {metric: average for metric, average in averages.items() if average is not None}


def list_metrics(rows: Rows, weight: str | None = None) -> list[str]:
    """List the metrics of rows in the order of their first appearance, without the one that weights the others."""
    return list(dict.fromkeys(name for row in rows for name in row.metrics if name != weight))


def _average_metric(rows: Rows, metric: str, weight: str | None) -> Average | None:
    """Return the mean of a metric and its resamples, or None if no set has a finite value."""
    by_scene = _group_values(rows, metric, weight)
    if not by_scene:
        return None
    # Each unit of the bootstrap enters with its weighted mean and the sum of its weights: the flat mean over sets.
    units = [*by_scene.values()] if len(by_scene) > 1 else [[pair] for pair in next(iter(by_scene.values()))]
    shares = torch.tensor([sum(share for _, share in unit) for unit in units], dtype=torch.float64)
    totals = torch.tensor([sum(v * share for v, share in unit) for unit in units], dtype=torch.float64)
    means = draw_means(totals / shares, shares)
    interval = Interval((totals.sum() / shares.sum()).item(), *compute_limits(means))
    absent = tuple(row.set for row in rows if not _is_counted(row, metric, weight))
    return Average(interval, len(rows) - len(absent), len(by_scene), absent, means)


def _group_values(rows: Rows, metric: str, weight: str | None) -> dict[str, list[tuple[float, float]]]:
    """Return the finite values of a metric and their weights, by scene."""
    by_scene: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if _is_counted(row, metric, weight):
            by_scene.setdefault(row.scene, []).append((row.metrics[metric], _get_weight(row, weight)))
    return by_scene


def _is_counted(row: SetRow, metric: str, weight: str | None) -> bool:
    return math.isfinite(row.metrics.get(metric, math.nan)) and _get_weight(row, weight) > 0


def _get_weight(row: SetRow, weight: str | None) -> float:
    if weight is None:
        return 1.0
    if weight not in row.metrics:
        raise ValueError(f"set {row.set} has no {weight!r}, which weights the mean")
    return row.metrics[weight]


NetworkAverages = tuple[dict[str, Average], dict[str, list[float]]]
"""Averages over networks, and the mean of each network, by metric."""


def average_datasets(averages: Mapping[str, Mapping[str, Average]]) -> dict[str, Average]:
    """Average datasets with equal weight, as the last column of the paper's tables; `absent` names those without a
    value. Each dataset is resampled by itself for the interval."""
    metrics = dict.fromkeys(metric for one in averages.values() for metric in one)
    return {
        metric: _join_datasets({name: one.get(metric) for name, one in averages.items()})
        for metric in metrics
    }


def _join_datasets(by_dataset: Mapping[str, Average | None]) -> Average:
    having = [one for one in by_dataset.values() if one is not None]
    # The same seed draws the same scene numbers in datasets of one size; a shuffle makes them independent.
    draws = [_shuffle(one.resamples, seed) for seed, one in enumerate(having) if one.resamples is not None]
    mean = sum(one.interval.mean for one in having) / len(having)
    interval = Interval(mean, *(compute_limits(torch.stack(draws).mean(0)) if draws else (mean, mean)))
    absent = tuple(name for name, one in by_dataset.items() if one is None)
    return Average(interval, sum(one.sets for one in having), sum(one.scenes for one in having), absent)


def average_datasets_of_networks(datasets: Mapping[str, NetworkAverages]) -> NetworkAverages:
    """Average datasets with equal weight, where each has what `average_networks` returns.

    Metrics that a dataset lacks are left out: their means would be over different datasets.
    """
    joined = average_datasets({name: averages for name, (averages, _) in datasets.items()})
    joined = {metric: average for metric, average in joined.items() if not average.absent}
    own = [means for _, means in datasets.values()]
    per_seed = {
        metric: [sum(seeds) / len(own) for seeds in zip(*(means[metric] for means in own), strict=True)]
        for metric in joined
    }
    for metric, means in per_seed.items():
        if len(means) > 1:
            joined[metric] = replace(joined[metric], interval=_compare_networks(means))
    return joined, per_seed


def _shuffle(means: torch.Tensor, seed: int) -> torch.Tensor:
    return means[torch.randperm(len(means), generator=torch.Generator().manual_seed(seed))]


# Networks that were trained alike with several seeds


def average_networks(networks: Sequence[Rows], weight: str | None = None) -> NetworkAverages:
    """Average over the sets that all networks have a score for; return also the mean of each network by metric.

    With several networks the interval is Student's over their means: one over scenes would take them for granted.
    """
    joined = average_seeds(networks)
    averages = average_rows(joined, weight) if joined else {}
    per_seed = {metric: [average.interval.mean] for metric, average in averages.items()}
    if len(networks) > 1:
        for metric, average in averages.items():
            sets = {row.set for row in joined if row.is_scored} - {*average.absent}
            means = [_compute_mean(rows, metric, weight, sets) for rows in networks]
            per_seed[metric] = means
            averages[metric] = replace(average, interval=_compare_networks(means), resamples=None)
    return averages, per_seed


def _compare_networks(means: Sequence[float]) -> Interval:
    """Return Student's interval over the means of networks."""
    return compute_run_interval(torch.tensor(means, dtype=torch.float64)[:, None])


def _compute_mean(rows: Rows, metric: str, weight: str | None, sets: set[str]) -> float:
    by_scene = _group_values([row for row in rows if row.set in sets], metric, weight)
    pairs = [pair for scene in by_scene.values() for pair in scene]
    return sum(value * share for value, share in pairs) / sum(share for _, share in pairs)


def average_seeds(networks: Sequence[Rows]) -> list[SetRow]:
    """Average the rows of each set over networks.

    A set that one network has no score for is left without one, with the message of that network: means over different
    networks could not be compared.
    """
    if len(networks) == 1:
        return list(networks[0])
    by_set = [{row.set: row for row in rows} for rows in networks]
    shared = [name for name in by_set[0] if all(name in rows for rows in by_set)]
    return [_average_set([rows[name] for rows in by_set]) for name in shared]


def _average_set(rows: Rows) -> SetRow:
    unscored = next((row for row in rows if not row.is_scored), None)
    if unscored is not None:
        return unscored
    metrics = {
        name: sum(row.metrics[name] for row in rows) / len(rows)
        for name in rows[0].metrics
        if all(name in row.metrics for row in rows)
    }
    seconds = sum(row.cpu_seconds for row in rows) / len(rows)
    return replace(rows[0], metrics=metrics, cpu_seconds=seconds, placed=min(row.placed for row in rows))


# Differences


def subtract_networks(networks: Sequence[Rows], others: Sequence[Rows]) -> list[list[SetRow]]:
    """Return differences, paired by set: by network if there are as many, otherwise of the means over networks."""
    if len(networks) != len(others):
        return [subtract_rows(average_seeds(networks), average_seeds(others))]
    return [subtract_rows(*pair) for pair in zip(networks, others, strict=True)]


def subtract_rows(rows: Rows, others: Rows) -> list[SetRow]:
    """Return the differences of all metrics for the sets that both have scores for.

    Both saw the same views, so that the difficulty of a set cancels out. Pixel counts, which weight means, are kept.
    """
    scored = {row.set: row.metrics for row in others if row.is_scored}
    return [
        replace(row, metrics=_subtract(row.metrics, scored[row.set]))
        for row in rows
        if row.is_scored and row.set in scored
    ]


def _subtract(metrics: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
    return {
        name: value if name == PIXELS else value - others[name]
        for name, value in metrics.items()
        if name in others
    }


# CSV


COLUMNS = tuple(one.name for one in fields(SetRow) if one.name != "metrics")


def format_rows_csv(rows: Rows, labels: Sequence[Mapping[str, str | int]] = ()) -> str:
    """Format rows as CSV: a line per set, after its labels if it has some; an empty cell where it has no value."""
    labels = labels or [{}] * len(rows)
    text = io.StringIO()
    columns = [*(labels[0] if labels else ()), *COLUMNS, *list_metrics(rows)]
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for label, row in zip(labels, rows, strict=True):
        own = {name: getattr(row, name) for name in COLUMNS} | {"cpu_seconds": f"{row.cpu_seconds:.2f}"}
        writer.writerow({**label, **own, **{name: f"{value:.7g}" for name, value in row.metrics.items()}})
    return text.getvalue()


def name_some(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """Join the first names."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
