"""Tables of several models on several protocols: their cells are run, averaged and compared.

OUT/runs/ROW/COLUMN/…       the run of a cell, as `g-ray evaluate` makes it
OUT/runs/ROW-seed1/…        the second of several networks that make one row
OUT/indices/…               view indices that all rows share, where the datasets have none
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from g_ray.calibration.estimators import ESTIMATORS
from g_ray.predictors import ModelSettings
from g_ray.predictors.peers import PEERS
from g_ray_lab.datasets.dataset_registry import DATASETS
from g_ray_lab.scoring.averages import (
    SetRow,
    average_datasets_of_networks,
    average_networks,
    average_seeds,
    format_rows_csv,
    subtract_networks,
)
from g_ray_lab.scoring.evaluation_plan import EvaluationPlan, Limits, Report
from g_ray_lab.scoring.evaluation_results import (
    average_views,
    choose_weight,
    collect_rows,
    describe_averages,
    describe_gaps,
    group_scored,
    write_report,
)
from g_ray_lab.scoring.evaluation_run import Evaluation, LoadedViews, run_evaluation
from g_ray_lab.scoring.protocol import Protocol
from g_ray_lab.scoring.store import NOTHING, WHOLE, Shard
from g_ray_lab.scoring.view_index import INDICES

INTERVAL = ("mean", "low", "high")
WITH, WITHOUT = "given", "none"
"""Groups of rows by the calibration that they are given."""
KEPT_BYTES = 2**29
"""Size of the views that are kept in memory from one row to the next."""


@dataclass(frozen=True)
class Contender:
    """A row: a model with its settings, or networks that differ in their seeds alone."""

    model: str
    settings: tuple[ModelSettings, ...] = (ModelSettings(),)
    """One per network; scores are averaged over them set by set."""
    poses: bool = False
    calibration: str | None = None
    """Source of the calibration that it is given (`recalibrated_model`); None: the true one."""

    @property
    def group(self) -> str:
        """Whether it is given a calibration, as the paper groups models; estimates from the images are none."""
        if self.calibration in ESTIMATORS or self.settings[0].lenses == "predicted":
            return WITHOUT
        return WITH


@dataclass(frozen=True)
class MeanColumn:
    """Means over columns, each with equal weight; a row that lacks one of them has none."""

    columns: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    """Only these; all if none is given."""


@dataclass(frozen=True)
class Column:
    """A protocol on a dataset, and the size that networks see."""

    name: str
    """Name of the protocol."""
    protocol: Protocol
    data: Path
    limits: Limits = field(default_factory=Limits)
    network_scale: float = 1.0
    """Long side that networks see, in units of that of their training."""

    def list_scenes(self) -> list[str]:
        """List the scenes of the protocol that are there; ValueError if none is."""
        dataset = DATASETS[self.protocol.dataset]
        there = dataset.list_scenes(dataset.find_root(self.data))
        scenes = [scene for scene in there if not self.protocol.scenes or scene in self.protocol.scenes]
        if not scenes:
            raise ValueError(f"{self.data}: no scene of {self.protocol.title}")
        return scenes


@dataclass(frozen=True, eq=False)
class Cell:
    """The finished runs of one row on one column."""

    row: str
    column: str
    plan: EvaluationPlan
    results: tuple[dict[str, Any], ...]
    """Per network, as in its result.json."""
    rows: tuple[list[SetRow], ...]
    """Per network, one per set."""
    minus: str | None = None
    """The row that was subtracted, if these are differences."""

    def average(self) -> list[dict[str, Any]]:
        """Return a row per number of views; those of several networks have the mean of each and intervals over them."""
        rows = []
        for views in self.list_views():
            averaged = average_views(self.plan, self.select_views(views), views)
            rows.append(_shorten_row({**self.labels, "setting": self.column}, averaged))
        return rows

    @property
    def labels(self) -> dict[str, str]:
        return {"method": self.row, **({} if self.minus is None else {"minus": self.minus})}

    def list_views(self) -> list[int]:
        """List the numbers of views that have a score."""
        return list(group_scored(average_seeds(self.rows)))

    def select_views(self, views: int) -> list[list[SetRow]]:
        """Return the sets with a number of views, per network."""
        return [[row for row in one if row.views == views] for one in self.rows]

    def subtract(self, other: "Cell") -> "Cell":
        """Return the differences to another row, paired by set."""
        return replace(self, minus=other.row, rows=tuple(subtract_networks(self.rows, other.rows)))


def _shorten_row(labels: dict[str, str], averaged: dict[str, Any]) -> dict[str, Any]:
    intervals = {name: {end: one[end] for end in INTERVAL} for name, one in averaged["metrics"].items()}
    return {**labels, **averaged, "metrics": intervals}


def average_cells(cells: Sequence[Cell], name: str, metrics: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the means of one row over columns, per number of views that all of them have."""
    rows = []
    for views in (one for one in cells[0].list_views() if all(one in cell.list_views() for cell in cells)):
        parts = {cell.column: cell.select_views(views) for cell in cells}
        averages, per_seed = average_datasets_of_networks(
            {cell.column: average_networks(parts[cell.column], choose_weight(cell.plan)) for cell in cells}
        )
        kept = {metric: one for metric, one in averages.items() if not metrics or metric in metrics}
        scored = [row for part in parts.values() for row in average_seeds(part) if row.is_scored]
        averaged = describe_averages((kept, {metric: per_seed[metric] for metric in kept}), scored, views)
        rows.append(_shorten_row({**cells[0].labels, "setting": name}, averaged))
    return rows


@dataclass(frozen=True, eq=False)
class Comparison:
    """All finished cells, and what is missing."""

    cells: tuple[Cell, ...]
    gaps: tuple[str, ...]
    compared: tuple[str, ...] = ()
    means: Mapping[str, MeanColumn] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    """Group of each row."""

    @property
    def is_unfinished(self) -> bool:
        """Whether shares of other processes are missing."""
        return any(result["sets"]["not_run"] for cell in self.cells for result in cell.results)

    def make_document(self) -> dict[str, Any]:
        """Return a row per model, column and number of views, and the differences of compared rows."""
        return {
            "rows": self._average(self.cells),
            "differences": self._average([one.subtract(other) for one, other in self._list_pairs()]),
            "seeds": {cell.row: len(cell.rows) for cell in self.cells},
            "groups": dict(self.groups),
            "gaps": list(self.gaps),
        }

    def _average(self, cells: Sequence[Cell]) -> list[dict[str, Any]]:
        rows = [row for cell in cells for row in cell.average()]
        for name, mean in self.means.items():
            for labels in {tuple(cell.labels.items()): None for cell in cells}:
                own = [cell for cell in cells if tuple(cell.labels.items()) == labels]
                chosen = [cell for cell in own if cell.column in mean.columns]
                if len(chosen) == len(mean.columns):
                    rows += average_cells(chosen, name, mean.metrics)
        return rows

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
        return format_rows_csv([row for _, row in labeled], [labels for labels, _ in labeled])


@dataclass(frozen=True)
class CellEffort:
    """How cells are run: nothing here changes their scores."""

    jobs: int = 1
    """Processes of this machine that share the work."""
    shard: Shard = WHOLE
    keep: bool = False
    """Whether predictions are kept on disk."""
    report: Report = lambda text: None
    progress: Callable[[str], None] = lambda text: None


def run_comparison(
    rows: Mapping[str, Contender],
    columns: Mapping[str, Column],
    out: Path,
    *,
    compared: Sequence[str] = (),
    means: Mapping[str, MeanColumn] | None = None,
    **effort: Any,
) -> Comparison:
    """Run every cell; a row that cannot be made, or a cell without a score, is named and left out of the tables.

    `compared` are rows of which the first is compared with each of the others; `means` are columns of means by name;
    the other arguments are those of `CellEffort`.
    """
    if not rows or not columns:
        raise ValueError("nothing to compare: give one model and one protocol or more")
    how = CellEffort(**effort)
    cells, gaps = _run_cells(rows, columns, out, how)
    if how.shard.count > 1:  # other processes have finished sets of the first cells meanwhile
        cells, gaps = _run_cells(rows, columns, out, CellEffort(shard=NOTHING))
    groups = {name: contender.group for name, contender in rows.items()}
    comparison = Comparison(tuple(cells), tuple(gaps), tuple(compared), means or {}, groups)
    has_score = any(row.is_scored for cell in cells for row in average_seeds(cell.rows))
    if not has_score and not comparison.is_unfinished:
        raise ValueError(f"no cell of the table has a score; first: {next(iter(gaps), 'none was run')}")
    return comparison


def _run_cells(
    rows: Mapping[str, Contender], columns: Mapping[str, Column], out: Path, how: CellEffort
) -> tuple[list[Cell], list[str]]:
    """Run the share of every cell; return the cells with all rows that are there, and what they lack."""
    cells: list[Cell] = []
    gaps: dict[tuple[str, str], list[str]] = {}
    loaded = LoadedViews(KEPT_BYTES)
    places = [(row, column) for column in columns for row in rows]
    for number, (row, column) in enumerate(places, 1):
        how.progress(f"{row} on {column}, {number} of {len(places)}")
        try:
            cell = _run_cell(row, rows[row], column, columns[column], out, how, loaded)
        except (ValueError, OSError) as error:
            gaps.setdefault((column, f"not run: {error}."), []).append(row)
            how.report(f"{row} on {column}: {error}")
            continue
        cells.append(cell)
        for sentence in dict.fromkeys(gap for result in cell.results for gap in describe_gaps(result)):
            gaps.setdefault((column, sentence), []).append(row)
    return cells, _format_gaps(gaps, len(rows))


def _format_gaps(gaps: Mapping[tuple[str, str], Sequence[str]], rows: int) -> list[str]:
    """Describe what cells lack, once for all columns, and without naming rows if it is all of them."""
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
    how: CellEffort,
    loaded: LoadedViews,
) -> Cell:
    plan: EvaluationPlan | None = None
    results, rows = [], []
    for seed in range(len(contender.settings)):
        evaluation = make_evaluation(row, contender, seed, name, column, out, how.keep)
        options = {"jobs": how.jobs, "shard": how.shard, "report": how.report}
        plan, model = run_evaluation(evaluation, **options, loaded=loaded)
        results.append(write_report(plan, model, evaluation.out)[0])
        rows.append(collect_rows(plan, evaluation.out, model))
    if plan is None:
        raise ValueError(f"row {row} has no model")
    return Cell(row, name, plan, tuple(results), tuple(rows))


def make_evaluation(
    row: str, contender: Contender, seed: int, name: str, column: Column, out: Path, keep: bool = False
) -> Evaluation:
    """Return the run of one network of a row on a column."""
    # The first network has the folder of a row with a single one: adding seeds to a table keeps its runs.
    folder = out / "runs" / (f"{row}-seed{seed}" if seed else row) / name
    return Evaluation(
        column.name,
        column.protocol,
        column.data,
        folder,
        contender.model,
        scale_network(contender.settings[seed], contender.model, column.network_scale),
        contender.poses,
        column.limits,
        keep,
        indices=out / INDICES,
        calibration=contender.calibration,
    )


def scale_network(settings: ModelSettings, model: str, scale: float) -> ModelSettings:
    """Return settings with the size of the input in units of a network's training, rounded to whole patches."""
    if scale == 1:
        return settings
    if model in PEERS:
        return replace(settings, size=round(scale * PEERS[model].side))
    if model != "network" or settings.weights is None:
        return settings
    from g_ray.models.weights import load_reconstruction

    config = load_reconstruction(settings.weights).config
    return replace(settings, size=config.patch * round(scale * config.long_side / config.patch))
