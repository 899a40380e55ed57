"""Several models on several protocols: a table of rows and columns, each cell a run of its own that resumes.

OUT/runs/ROW/COLUMN/…       the run of a cell, as `g-ray evaluate` makes it
OUT/runs/ROW-seed1/…        the second of several networks that make one row
OUT/indices/…               view indices that all rows share, where the datasets have none
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from g_ray.predictors import ModelSettings
from g_ray_lab.metrics.intervals import compute_run_interval
from g_ray_lab.preparation.prepare import INDICES
from g_ray_lab.scoring.protocols.protocol import Protocol
from g_ray_lab.scoring.running.evaluation_run import Evaluation, LoadedViews, run_evaluation
from g_ray_lab.scoring.running.plan import Limits, Plan, Report
from g_ray_lab.scoring.running.rows import SetRow, average_seeds, format_csv, subtract_rows
from g_ray_lab.scoring.running.run_report import (
    average,
    collect_rows,
    describe_gaps,
    group_by_views,
    write_report,
)

INTERVAL = ("mean", "low", "high")
KEPT_BYTES = 2**29
"""Of views that are kept in memory from one row to the next."""


@dataclass(frozen=True)
class Contender:
    """A row: a model with its settings, or networks that differ in their seeds alone."""

    model: str
    settings: tuple[ModelSettings, ...] = (ModelSettings(),)
    """One per network; scores are averaged over them set by set."""
    poses: bool = False


@dataclass(frozen=True)
class Column:
    """A protocol on a dataset, and the size that networks see."""

    name: str
    """Of the protocol."""
    protocol: Protocol
    data: Path
    limits: Limits = field(default_factory=Limits)
    network_scale: float = 1.0
    """Long side that networks see, in units of that of their training."""


@dataclass(frozen=True, eq=False)
class Cell:
    """The finished runs of one row on one column."""

    row: str
    column: str
    plan: Plan
    results: tuple[dict[str, Any], ...]
    """Per network, as in its result.json."""
    rows: tuple[tuple[SetRow, ...], ...]
    """Per network, one per set."""

    def make_table_rows(self) -> list[dict[str, Any]]:
        """Return a row per number of views; those of several networks have the mean of each and intervals over them."""
        networks = self.rows if len(self.rows) > 1 else ()
        return [
            {"method": self.row, "setting": self.column} | self._average(group, networks, views)
            for views, group in _group_scored(average_seeds(self.rows)).items()
        ]

    def _average(
        self, group: Sequence[SetRow], networks: Sequence[Sequence[SetRow]], views: int
    ) -> dict[str, Any]:
        """Average the sets of a group; with several networks, or differences of such, intervals are over them."""
        averaged = _convert(average(self.plan, group, views))
        if not networks:
            return averaged
        per_seed = _list_means(self.plan, networks, views)
        return {
            **averaged,
            "metrics": averaged["metrics"] | _compute_intervals(per_seed),
            "per_seed": per_seed,
        }

    def subtract(self, other: "Cell") -> list[dict[str, Any]]:
        """Return the differences to another row, paired by set, per number of views; by seed if both have as many."""
        paired = subtract_rows(average_seeds(self.rows), average_seeds(other.rows))
        by_seed = len(self.rows) == len(other.rows) > 1
        seeds = [subtract_rows(*both) for both in zip(self.rows, other.rows, strict=True)] if by_seed else []
        return [
            {"method": self.row, "minus": other.row, "setting": self.column}
            | self._average(group, seeds, views)
            for views, group in _group_scored(paired).items()
        ]


def _group_scored(rows: Sequence[SetRow]) -> dict[int, list[SetRow]]:
    groups = group_by_views(rows)
    return {views: group for views, group in groups.items() if any(row.status == "scored" for row in group)}


def _list_means(plan: Plan, networks: Sequence[Sequence[SetRow]], views: int) -> dict[str, list[float]]:
    """Return the mean of each network by metric."""
    averaged = [average(plan, group_by_views(rows)[views], views)["metrics"] for rows in networks]
    return {name: [one[name]["mean"] for one in averaged if name in one] for name in averaged[0]}


def _compute_intervals(per_seed: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Compute Student's interval over networks by metric; intervals over scenes would take the networks for granted."""
    return {
        name: asdict(compute_run_interval(torch.tensor(means, dtype=torch.float64)[:, None]))
        for name, means in per_seed.items()
        if len(means) > 1
    }


def _convert(averaged: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "views": averaged["views"],
        "sets": averaged["sets"],
        "scenes": averaged["scenes"],
        "metrics": {
            name: {end: value[end] for end in INTERVAL} for name, value in averaged["metrics"].items()
        },
        "cpu_seconds": averaged["cpu_seconds"],
    }


def run_comparison(
    rows: Mapping[str, Contender],
    columns: Mapping[str, Column],
    out: Path,
    *,
    compared: Sequence[str] = (),
    jobs: int = 1,
    report: Report = lambda text: None,
    progress: Callable[[str], None] = lambda text: None,
) -> "Comparison":
    """Run every cell; a row that cannot be made, or a cell without a score, is named and left out of the tables.

    `compared` are rows of which the first is compared with each of the others.
    """
    if not rows or not columns:
        raise ValueError("nothing to compare: give one model and one protocol or more")
    cells: list[Cell] = []
    gaps: dict[tuple[str, str], list[str]] = {}
    total, loaded = len(rows) * len(columns), LoadedViews(KEPT_BYTES)
    for number, (row, column) in enumerate([(row, column) for column in columns for row in rows], 1):
        progress(f"{row} on {column}, {number} of {total}")
        try:
            cell = _run_cell(row, rows[row], column, columns[column], out, jobs, report, loaded)
        except (ValueError, OSError) as error:
            gaps.setdefault((column, f"not run: {error}."), []).append(row)
            report(f"{row} on {column}: {error}")
            continue
        cells.append(cell)
        for sentence in dict.fromkeys(gap for result in cell.results for gap in describe_gaps(result)):
            gaps.setdefault((column, sentence), []).append(row)
    sentences = _format_gaps(gaps, len(rows))
    comparison = Comparison(tuple(cells), tuple(sentences), tuple(compared))
    if not comparison.make_document()["rows"]:
        raise ValueError(f"no cell of the table has a score; first: {next(iter(sentences), 'none was run')}")
    return comparison


def _format_gaps(gaps: Mapping[tuple[str, str], Sequence[str]], rows: int) -> list[str]:
    """Say what cells lack, once for all columns, and without naming rows if it is all of them."""
    places: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (column, sentence), names in gaps.items():
        places.setdefault((sentence, tuple(names)), []).append(column)
    return [
        ("" if len(names) == rows else f"{', '.join(names)} on ") + f"{', '.join(columns)}: {sentence}"
        for (sentence, names), columns in places.items()
    ]


def _run_cell(
    row: str,
    contender: Contender,
    name: str,
    column: Column,
    out: Path,
    jobs: int,
    report: Report,
    loaded: LoadedViews,
) -> Cell:
    plan: Plan | None = None
    results, rows = [], []
    for seed, settings in enumerate(contender.settings):
        # The first network has the folder of a row with a single one: adding seeds to a table keeps its runs.
        folder = out / "runs" / (f"{row}-seed{seed}" if seed else row) / name
        evaluation = Evaluation(
            column.name,
            column.protocol,
            column.data,
            folder,
            contender.model,
            _scale_network(settings, contender.model, column.network_scale),
            contender.poses,
            column.limits,
            indices=out / INDICES,
        )
        plan, model = run_evaluation(evaluation, jobs=jobs, report=report, loaded=loaded)
        results.append(write_report(plan, model, folder))
        rows.append(collect_rows(plan, folder, model).rows)
    if plan is None:
        raise ValueError(f"row {row} has no model")
    return Cell(row, name, plan, tuple(results), tuple(rows))


def _scale_network(settings: ModelSettings, model: str, scale: float) -> ModelSettings:
    """Return settings with the size of the input in units of the network's training, rounded to whole patches."""
    if model != "network" or scale == 1 or settings.weights is None:
        return settings
    from g_ray.models.weights import load_reconstruction

    config = load_reconstruction(settings.weights).config
    return replace(settings, size=config.patch * round(scale * config.long_side / config.patch))


@dataclass(frozen=True, eq=False)
class Comparison:
    """All finished cells, and what is missing."""

    cells: tuple[Cell, ...]
    gaps: tuple[str, ...]
    compared: tuple[str, ...] = ()

    def make_document(self) -> dict[str, Any]:
        """Return rows in the form of `g_ray_lab.scoring.study`: one per model, column and number of views."""
        return {
            "rows": [row for cell in self.cells for row in cell.make_table_rows()],
            "differences": [row for pair in self._list_pairs() for row in pair[0].subtract(pair[1])],
            "seeds": {cell.row: len(cell.rows) for cell in self.cells},
            "gaps": list(self.gaps),
        }

    def _list_pairs(self) -> list[tuple[Cell, Cell]]:
        by_place = {(cell.row, cell.column): cell for cell in self.cells}
        return [
            (by_place[self.compared[0], column], by_place[other, column])
            for column in dict.fromkeys(cell.column for cell in self.cells)
            for other in self.compared[1:]
            if {(self.compared[0], column), (other, column)} <= by_place.keys()
        ]

    def format_scores(self) -> str:
        """Format the scores of every set by every network as CSV."""
        labeled = [
            ({"row": cell.row, "column": cell.column, "seed": seed}, row)
            for cell in self.cells
            for seed, rows in enumerate(cell.rows)
            for row in rows
        ]
        return format_csv([row for _, row in labeled], [labels for labels, _ in labeled])
