"""Tables of the paper: one row per trained method, one column per setting, several seeds each.

`Scorer` is the interface between a task and its table. The functions aggregate scores per scene and seed into means
with confidence intervals, compare methods in pairs, and format Markdown. `study_runs` trains and scores the networks.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from g_ray_lab.metrics.intervals import Interval, compute_run_interval
from g_ray_lab.scoring.shard import Shard

Scores = Mapping[str, Mapping[str, list[float]]]
"""setting → metric → one value per scene."""

GROUP = "/"
"""Between the group and the column in the name of a setting, where a table has groups of columns."""


BatchScores = Mapping[str, list[dict[str, list[float]]]]
"""setting → batch → metric → one value per scene of the batch."""

WHOLE = Shard()
"""All of the work."""


@dataclass(frozen=True)
class ScoredRun:
    """Scores of one trained network, or of one reference without training, under all settings."""

    method: str
    seed: int
    steps: int
    cpu_seconds: float
    scores: Scores


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
    def score_network(self, network: nn.Module, setting: str) -> dict[str, list[float]]:
        """Return one value per scene for each metric."""

    def score_settings(self, network: nn.Module) -> Scores:
        """Return the scores under all settings."""
        return {setting: self.score_network(network, setting) for setting in self.settings}

    def score_share(self, network: nn.Module, shard: Shard = WHOLE) -> BatchScores:
        """Return the scores of the batches of a share, for processes that score one network together."""
        raise ValueError(f"{type(self).__name__} scores in one process: leave --shard away")

    def score_reference_shares(self, shard: Shard = WHOLE) -> dict[str, BatchScores]:
        """Return the same for rows without training, by their names; none by default."""
        return {}

    def score_references(self) -> list[ScoredRun]:
        """Return rows without training, for scale."""
        return [
            ScoredRun(name, 0, 0, 0.0, {setting: join_batches(parts) for setting, parts in batches.items()})
            for name, batches in self.score_reference_shares().items()
        ]


def join_batches(parts: Sequence[Mapping[str, list[float]]]) -> dict[str, list[float]]:
    """Join the values of batches in their order."""
    return {metric: [value for part in parts for value in part[metric]] for metric in parts[0]}


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
        joined[setting] = join_batches([batches[p % len(shares)][p // len(shares)] for p in range(count)])
    return joined


def make_rows(runs: list[ScoredRun]) -> list[dict[str, Any]]:
    """Return a row per method and setting, in the order of the runs: means and 95 % intervals over seeds."""
    methods = list(dict.fromkeys(run.method for run in runs))
    settings = list(dict.fromkeys(setting for run in runs for setting in run.scores))
    return [
        _make_row([run for run in runs if run.method == method], setting)
        for method in methods
        for setting in settings
    ]


def _make_row(runs: list[ScoredRun], setting: str) -> dict[str, Any]:
    metrics = list(runs[0].scores[setting])
    values = {metric: torch.tensor([run.scores[setting][metric] for run in runs]) for metric in metrics}
    unscored = {metric: int(per_scene.isnan().all(0).sum()) for metric, per_scene in values.items()}
    return {
        "method": runs[0].method,
        "setting": setting,
        "metrics": {
            metric: _to_document(compute_run_interval(per_scene)) for metric, per_scene in values.items()
        },
        "per_seed": {metric: per_scene.nanmean(1).tolist() for metric, per_scene in values.items()},
        # A set of views without a valid pixel has no error of points, for instance.
        **({"unscored": unscored} if any(unscored.values()) else {}),
        "seeds": len(runs),
        "steps": runs[0].steps,
        "cpu_seconds": round(sum(run.cpu_seconds for run in runs) / len(runs), 1),
    }


def compute_difference(
    runs: list[ScoredRun], method: str, other: str, setting: str, metric: str = "psnr"
) -> Interval:
    """Return the mean of `method` − `other`, paired by scene and seed, with its interval."""
    both = [
        {r.seed: torch.tensor(r.scores[setting][metric]) for r in runs if r.method == name}
        for name in (method, other)
    ]
    seeds = sorted(both[0].keys() & both[1].keys())
    paired: Float[Tensor, "seed scene"] = torch.stack([both[0][seed] - both[1][seed] for seed in seeds])
    return compute_run_interval(paired)


def compute_differences(runs: list[ScoredRun], pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Compute the differences of all pairs that have runs, in every metric: a row per pair and setting."""
    methods = {run.method for run in runs}
    return [
        {"method": method, "minus": other, "setting": setting}
        | {
            metric: _to_document(compute_difference(runs, method, other, setting, metric))
            for metric in metrics
        }
        for method, other in pairs
        if {method, other} <= methods
        for setting, metrics in runs[0].scores.items()
    ]


def compute_changes(runs: list[ScoredRun]) -> list[dict[str, Any]]:
    """Compute how each row changes from the first column of a group to the others, paired by scene: a row per setting.

    For settings that show the same scenes, such as zooms of them.
    """
    rows = []
    for method in dict.fromkeys(run.method for run in runs):
        of_method = [run for run in runs if run.method == method]
        for settings in group_settings(of_method[0].scores).values():
            first, *others = settings
            rows += [
                {"method": method, "from": first, "setting": setting}
                | {
                    metric: _to_document(_compute_change(of_method, setting, first, metric))
                    for metric in of_method[0].scores[setting]
                }
                for setting in others
            ]
    return rows


def _compute_change(runs: list[ScoredRun], setting: str, first: str, metric: str) -> Interval:
    """Return the mean of one setting minus another over the runs of one row, paired by scene, with its interval."""
    after, before = (torch.tensor([run.scores[name][metric] for run in runs]) for name in (setting, first))
    return compute_run_interval(after - before)


def group_settings(settings: Iterable[str]) -> dict[str, list[str]]:
    """Return the settings of every group in their order; those without a group are the group ""."""
    groups: dict[str, list[str]] = {}
    for setting in settings:
        groups.setdefault(setting.rpartition(GROUP)[0], []).append(setting)
    return groups


def split_groups(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Split a result into one for every group of columns, whose settings have the names of the columns alone."""
    groups = group_settings(dict.fromkeys(row["setting"] for row in result["rows"]))
    return {group: _select_settings(result, settings) for group, settings in groups.items()}


def _select_settings(result: Mapping[str, Any], settings: list[str]) -> dict[str, Any]:
    parts = {
        name: [
            {**row, "setting": row["setting"].rpartition(GROUP)[2]}
            for row in result.get(name, [])
            if row["setting"] in settings
        ]
        for name in ("rows", "references", "differences", "changes")
    }
    return {**result, **parts}


def format_scores_csv(runs: Iterable[ScoredRun]) -> str:
    """Format every score as a line of CSV, so that anyone can recompute means and intervals."""
    lines = ["method,seed,setting,metric,scene,value"]
    for run in runs:
        for setting, metrics in run.scores.items():
            for metric, values in metrics.items():
                lines += [
                    f"{run.method},{run.seed},{setting},{metric},{scene},{value:.6g}"
                    for scene, value in enumerate(values)
                ]
    return "\n".join(lines) + "\n"


def _to_document(interval: Interval) -> dict[str, float]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}


def format_markdown(result: Mapping[str, Any], metric: str = "psnr", digits: int = 2, group: str = "") -> str:
    """Format a table of methods (rows) by settings (columns): mean ± half the width of the interval."""
    rows = [*result["rows"], *result.get("references", [])]
    cells = [(row["method"], row["setting"], row["metrics"].get(metric)) for row in rows]
    return _format_by_setting(metric, group, cells, digits)


def format_differences_markdown(
    result: Mapping[str, Any], metric: str = "psnr", digits: int = 2, group: str = ""
) -> str:
    """Format a table of pairs (rows) by settings (columns): mean difference ± half the width of the interval."""
    cells = [
        (f"{row['method']} − {row['minus']}", row["setting"], row[metric]) for row in result["differences"]
    ]
    return _format_by_setting(f"{metric}, difference", group, cells, digits)


def format_changes_markdown(
    result: Mapping[str, Any], metric: str = "psnr", digits: int = 2, group: str = ""
) -> str:
    """Format a table of methods (rows) by settings (columns): change from the first column ± half the interval."""
    rows = result["changes"]
    first = rows[0]["from"].rpartition(GROUP)[2]
    cells = [(row["method"], row["setting"], row[metric]) for row in rows]
    return _format_by_setting(f"{metric}, change from {first}", group, cells, digits)


def _format_by_setting(
    title: str, group: str, cells: Sequence[tuple[str, str, Mapping[str, float] | None]], digits: int
) -> str:
    """Format (name, setting, interval) as a table of names (rows) by settings (columns)."""
    settings = list(dict.fromkeys(setting for _, setting, _ in cells))
    titles = [f"{title}, {group}" if group else title, *settings]
    lines = [f"| {' | '.join(titles)} |", "|---|" + "---|" * len(settings)]
    for name in dict.fromkeys(name for name, _, _ in cells):
        own = {setting: interval for other, setting, interval in cells if other == name}
        lines.append(f"| {name} | {' | '.join(format_cell(own.get(one), digits) for one in settings)} |")
    return "\n".join(lines)


def format_cell(interval: Mapping[str, float] | None, digits: int) -> str:
    """Format a mean ± half the width of its interval, or a dash if there is none."""
    if interval is None or not math.isfinite(interval["mean"]):
        return "–"
    half = (interval["high"] - interval["low"]) / 2
    return f"{interval['mean']:.{digits}f} ± {half:.{digits}f}"
