"""Networks that are scored on the same test scenes under several settings, and the rows of their table."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from g_ray_lab.scoring.averages import (
    COVERAGE,
    SCORED,
    Average,
    Rows,
    SetRow,
    average_networks,
    average_seeds,
    list_metrics,
    subtract_networks,
    subtract_rows,
)
from g_ray_lab.scoring.store import WHOLE, Shard

GROUP = "/"
"""Between the group and the column in the name of a setting, where a table has groups of columns."""

Scores = Mapping[str, Mapping[str, list[float]]]
"""setting → metric → one value per scene."""
BatchScores = Mapping[str, Sequence[Mapping[str, list[float]]]]
"""setting → batch → metric → one value per scene of the batch."""


@dataclass(frozen=True)
class ScoredRun:
    """Rows of one network or model, or of a reference without training, by setting."""

    method: str
    seed: int
    rows: Mapping[str, Rows]
    steps: int = 0
    cpu_seconds: float = 0.0
    """For training."""

    @staticmethod
    def from_scores(
        method: str, seed: int, scores: Scores, steps: int = 0, cpu_seconds: float = 0.0
    ) -> "ScoredRun":
        """Make a row per scene; scenes are known by their numbers."""
        rows = {setting: _number_scenes(values) for setting, values in scores.items()}
        return ScoredRun(method, seed, rows, steps, cpu_seconds)


def _number_scenes(values: Mapping[str, list[float]]) -> list[SetRow]:
    scenes = zip(*values.values(), strict=True)
    return [
        SetRow("", "", str(number), str(number), 0, SCORED, metrics=dict(zip(values, scene, strict=True)))
        for number, scene in enumerate(scenes)
    ]


class Scorer(ABC):
    """Score networks of one task on the same test scenes; `settings` are the columns of the table."""

    @property
    @abstractmethod
    def settings(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    @abstractmethod
    def key(self) -> dict[str, str]:
        """Values that change with anything that changes a score; stored scores with the same key are reused."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the protocol as plain values for result.json."""

    @abstractmethod
    def score_share(self, network: nn.Module, shard: Shard = WHOLE) -> BatchScores:
        """Return the scores of the batches of a share."""

    @abstractmethod
    def score_reference_shares(self, shard: Shard = WHOLE) -> dict[str, BatchScores]:
        """Return the same for predictions without a network, by their names."""

    def score_settings(self, network: nn.Module) -> Scores:
        """Return the scores under all settings."""
        return join_shares([self.score_share(network)])

    def score_references(self) -> list[ScoredRun]:
        """Return rows without training, for scale."""
        shares = self.score_reference_shares()
        return [ScoredRun.from_scores(name, 0, join_shares([share])) for name, share in shares.items()]


def join_shares(shares: Sequence[BatchScores]) -> dict[str, dict[str, list[float]]]:
    """Join shares 1 to n of n: batch p of a setting is in share p mod n."""
    joined = {}
    for setting in shares[0]:
        batches = [share[setting] for share in shares]
        count = sum(map(len, batches))
        if [len(part) for part in batches] != [len(range(k, count, len(shares))) for k in range(len(shares))]:
            raise ValueError(
                f"shares of {setting} do not belong together: remove their files and score again"
            )
        in_order = [batches[p % len(shares)][p // len(shares)] for p in range(count)]
        joined[setting] = {
            metric: [value for batch in in_order for value in batch[metric]] for metric in in_order[0]
        }
    return joined


# Rows: means, differences and changes by method and setting


def make_rows(runs: Sequence[ScoredRun]) -> list[dict[str, Any]]:
    """Return a row per method and setting, in the order of the runs: means and 95 % intervals."""
    methods = list(dict.fromkeys(run.method for run in runs))
    settings = list(dict.fromkeys(setting for run in runs for setting in run.rows))
    return [
        _make_row([run for run in runs if run.method == method], setting)
        for method in methods
        for setting in settings
    ]


def _make_row(runs: Sequence[ScoredRun], setting: str) -> dict[str, Any]:
    networks = [run.rows[setting] for run in runs]
    _check_finite(networks)
    averages, per_seed = average_networks(networks)
    row: dict[str, Any] = {"method": runs[0].method, "setting": setting, "metrics": _to_plain(averages)}
    if averages:
        row |= {
            "per_seed": {metric: per_seed[metric] for metric in row["metrics"]},
            "seeds": len(runs),
            "steps": runs[0].steps,
            "cpu_seconds": round(sum(run.cpu_seconds for run in runs) / len(runs), 1),
        }
    # A set of views without a valid pixel has no error of points, for instance.
    unscored = {metric: len(averages[metric].absent) for metric in row["metrics"]}
    return {**row, **({"unscored": unscored} if any(unscored.values()) else {}), **_count_answers(networks)}


def _check_finite(networks: Sequence[Rows]) -> None:
    """Raise ValueError for a score that one network alone lacks: it has diverged, and is not left out silently."""
    for rows in zip(*networks, strict=True):
        for metric in rows[0].metrics if all(row.is_scored for row in rows) else ():
            finite = [math.isfinite(row.metrics.get(metric, math.nan)) for row in rows]
            if any(finite) and not all(finite):
                raise ValueError(f"{metric} of {len(rows)} networks, some not finite, in set {rows[0].set}")


def _count_answers(networks: Sequence[Rows]) -> dict[str, Any]:
    """Describe which sets were answered, for models that may leave out sets or pixels; nothing for others."""
    rows = [row for rows in networks for row in rows]
    answered = [row.metrics.get(COVERAGE) for row in rows if row.is_scored]
    covered = [share for share in answered if share is not None]
    if len(answered) == len(rows) and not covered:
        return {}
    return {
        "answered": len(answered),
        "sets": len(rows),
        "coverage": sum(covered) / max(1, len(covered)),
        "reasons": [row.message for row in rows if not row.is_scored],
    }


def _to_plain(averages: Mapping[str, Average]) -> dict[str, dict[str, float]]:
    return {metric: asdict(one.interval) for metric, one in averages.items() if metric != COVERAGE}


def compute_differences(runs: Sequence[ScoredRun], pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Compare pairs of methods in every metric, paired by scene and by the seeds that both have: a row per pair and
    setting. Pairs without runs, and settings without a common set, have no row."""
    by_method: dict[str, dict[int, ScoredRun]] = {}
    for run in runs:
        by_method.setdefault(run.method, {})[run.seed] = run
    rows = []
    for method, other in pairs:
        both = by_method.get(method, {}), by_method.get(other, {})
        seeds = sorted(both[0].keys() & both[1].keys())
        for setting in both[0][seeds[0]].rows if seeds else ():
            networks, others = ([one[seed].rows[setting] for seed in seeds] for one in both)
            averages, _ = average_networks(subtract_networks(networks, others))
            if averages:
                rows.append({"method": method, "minus": other, "setting": setting, **_to_plain(averages)})
    return rows


def compute_changes(runs: Sequence[ScoredRun]) -> list[dict[str, Any]]:
    """Compute how each method changes from the first column of a group to the others, paired by scene and seed.

    For settings that show the same scenes, such as zooms of them or other calibrations: scenes differ far more from
    each other than settings do, so that intervals of single cells hide most changes. `answered` counts the sets of all
    networks where models may leave some out.
    """
    return [
        {"method": method, "from": first, "setting": setting, "metrics": _to_plain(averages), **answered}
        for method, first, setting, averages, answered in _list_changes(runs)
    ]


def _list_changes(
    runs: Sequence[ScoredRun],
) -> Iterator[tuple[str, str, str, dict[str, Average], dict[str, int]]]:
    for method in dict.fromkeys(run.method for run in runs):
        own = [run for run in runs if run.method == method]
        for first, *others in group_settings(own[0].rows).values():
            for setting in others:
                changes = [subtract_rows(run.rows[setting], run.rows[first]) for run in own]
                averages, _ = average_networks(changes)
                if averages:
                    sets = len(own) * len(average_seeds(changes))
                    answers = _count_answers([run.rows[setting] for run in own])
                    yield method, first, setting, averages, {"answered": sets} if answers else {}


def group_settings(settings: Iterable[str]) -> dict[str, list[str]]:
    """Return the settings of every group in their order; those without a group are the group ""."""
    groups: dict[str, list[str]] = {}
    for setting in settings:
        groups.setdefault(setting.rpartition(GROUP)[0], []).append(setting)
    return groups


def format_scores_csv(runs: Iterable[ScoredRun]) -> str:
    """Format every score as a line of CSV, so that anyone can recompute means and intervals."""
    lines = ["method,seed,setting,metric,scene,value"]
    for run in runs:
        for setting, rows in run.rows.items():
            lines += [
                f"{run.method},{run.seed},{setting},{metric},{row.scene},{row.metrics[metric]:.6g}"
                for metric in list_metrics(rows)
                for row in rows
            ]
    return "\n".join(lines) + "\n"
