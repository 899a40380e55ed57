"""Several models on several protocols: a table of rows and columns, each cell a run of its own that resumes.

OUT/runs/ROW/COLUMN/…     the run of a cell, as `g-ray evaluate` makes it
OUT/indices/…             view indices that all rows share, where the datasets have none
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from g_ray.evaluation.preparation.prepare import INDICES
from g_ray.evaluation.protocols.protocol import Protocol
from g_ray.evaluation.running.plan import Limits, Report
from g_ray.evaluation.running.report import describe_gaps, write_report
from g_ray.evaluation.running.run import Evaluation, run_evaluation
from g_ray.predictors import ModelSettings

INTERVAL = ("mean", "low", "high")


@dataclass(frozen=True)
class Contender:
    """A row: a model with its settings."""

    model: str
    settings: ModelSettings = field(default_factory=ModelSettings)
    poses: bool = False


@dataclass(frozen=True)
class Column:
    """A protocol on a dataset, and the size that networks see."""

    name: str
    """Of the protocol."""
    protocol: Protocol
    data: Path
    limits: Limits = field(default_factory=Limits)
    network_size: int | None = None
    """Long side that networks see, instead of that of their training."""


def run_comparison(
    rows: Mapping[str, Contender],
    columns: Mapping[str, Column],
    out: Path,
    *,
    jobs: int = 1,
    report: Report = lambda text: None,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Run every cell; a row that cannot be made, or a cell without a score, is named and left out of the tables.

    Returns rows in the form of `g_ray.evaluation.study`: one per model, column and number of views.
    """
    if not rows or not columns:
        raise ValueError("nothing to compare: give one model and one protocol or more")
    cells: list[dict[str, Any]] = []
    gaps: dict[tuple[str, str], list[str]] = {}
    total = len(rows) * len(columns)
    for number, (row, column) in enumerate([(row, column) for column in columns for row in rows], 1):
        progress(f"{row} on {column}, {number} of {total}")
        try:
            result = _run_cell(rows[row], columns[column], out, f"{row}/{column}", jobs, report)
        except (ValueError, OSError) as error:
            gaps.setdefault((column, f"not run: {error}."), []).append(row)
            report(f"{row} on {column}: {error}")
            continue
        cells += [_make_row(row, column, one) for one in result["rows"]]
        for sentence in describe_gaps(result):
            gaps.setdefault((column, sentence), []).append(row)
    sentences = [_format_gap(*place, named, len(rows)) for place, named in gaps.items()]
    if not cells:
        raise ValueError(f"no cell of the table has a score; first: {next(iter(sentences), 'none was run')}")
    return {"rows": cells, "gaps": sentences}


def _format_gap(column: str, sentence: str, named: Sequence[str], rows: int) -> str:
    """Say what a column lacks, for all rows at once where it is the same."""
    return f"{column}: {sentence}" if len(named) == rows else f"{', '.join(named)} on {column}: {sentence}"


def _run_cell(
    contender: Contender, column: Column, out: Path, cell: str, jobs: int, report: Report
) -> dict[str, Any]:
    settings, folder = contender.settings, out / "runs" / cell
    if column.network_size is not None and contender.model == "network":
        settings = ModelSettings(size=column.network_size, weights=settings.weights, device=settings.device)
    evaluation = Evaluation(
        column.name,
        column.protocol,
        column.data,
        folder,
        contender.model,
        settings,
        contender.poses,
        column.limits,
        indices=out / INDICES,
    )
    plan, model = run_evaluation(evaluation, jobs=jobs, report=report)
    return write_report(plan, model, folder)


def _make_row(method: str, column: str, averaged: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "method": method,
        "setting": column,
        "views": averaged["views"],
        "sets": averaged["sets"],
        "metrics": {
            name: {end: value[end] for end in INTERVAL} for name, value in averaged["metrics"].items()
        },
        "cpu_seconds": averaged["cpu_seconds"],
    }


# Tables of a comparison


def select_rows(
    result: Mapping[str, Any], views: int | None = None, setting: str | None = None
) -> dict[str, Any]:
    """Return the rows with so many views, or of one column with the number of views as settings."""
    rows = [row for row in result["rows"] if views is None or row["views"] == views]
    if setting is not None:
        rows = [{**row, "setting": str(row["views"])} for row in rows if row["setting"] == setting]
    return {"rows": rows}


def format_comparison(
    result: Mapping[str, Any],
    metrics: Sequence[str],
    titles: Mapping[str, str],
    format_cell: Callable[..., str],
) -> str:
    """Format one table per column and number of views: models by metrics, with sets and CPU seconds."""
    parts = []
    places = dict.fromkeys((row["setting"], row["views"]) for row in result["rows"])
    for setting, views in places:
        here = [row for row in result["rows"] if (row["setting"], row["views"]) == (setting, views)]
        present = [name for name in metrics if any(name in row["metrics"] for row in here)]
        head = ["model", *(titles[name] for name in present), "sets", "CPU s per set"]
        lines = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
        for row in here:
            cells = [format_cell(name, _add_count(row, name)) for name in present]
            cells += [str(row["sets"]), f"{row['cpu_seconds']:.1f}"]
            lines.append(f"| {' | '.join([row['method'], *cells])} |")
        parts.append(f"### {setting}" + (f", {views} views" if views else "") + "\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _add_count(row: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    value = row["metrics"].get(name)
    return None if value is None else {**value, "sets": row["sets"]}
