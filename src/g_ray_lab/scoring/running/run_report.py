"""The result of a run: means over its rows, what is missing, and both as Markdown."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from g_ray.runtime.files import strip_paths, write_atomically, write_json
from g_ray.runtime.out_folder import lock_folder
from g_ray.runtime.provenance import collect_provenance
from g_ray_lab.scoring.averaging import PIXELS, average_dataset, name_some
from g_ray_lab.scoring.running.evaluation_run import ROWS, make_key
from g_ray_lab.scoring.running.plan import Plan
from g_ray_lab.scoring.running.rows import SetRow, format_csv, read_row
from g_ray_lab.scoring.running.scored_models import EvaluatedModel

RESULT, TABLE, CSV = "result.json", "table.md", "rows.csv"
PERCENT = ("points_inlier", "depth_inlier", "coverage", "delta_1.25", "delta_1.25_shift", "f_score")
TITLES = {
    "points_rel": "points rel ↓",
    "rays_deg": "rays ° ↓",
    "depth_rel": "depth rel ↓",
    "points_inlier": "points inl. % ↑",
    "pose_ate": "pose ATE ↓",
    "depth_inlier": "depth inl. % ↑",
    "ate": "ATE ↓",
    "rpe_trans": "RPE trans ↓",
    "rpe_rot_deg": "RPE rot ° ↓",
    "abs_rel": "abs rel ↓",
    "delta_1.25": "δ < 1.25 % ↑",
    "abs_rel_shift": "abs rel ↓ (scale & shift)",
    "delta_1.25_shift": "δ < 1.25 % ↑ (scale & shift)",
    "acc": "acc ↓",
    "comp": "comp ↓",
    "overall": "overall ↓",
    "nc": "NC ↑",
    "auc_3": "AUC@3° ↑",
    "auc_30": "AUC@30° ↑",
    "f_score": "F-score % ↑",
    "coverage": "coverage %",
}
"""Columns of tables, in order; other metrics are in result.json and rows.csv only."""


@dataclass(frozen=True, eq=False)
class RowSet:
    """The rows of a plan that are there."""

    rows: tuple[SetRow, ...]
    planned: int

    @property
    def scored(self) -> tuple[SetRow, ...]:
        return tuple(row for row in self.rows if row.status == "scored")

    def list_problems(self) -> list[SetRow]:
        """Return the rows without scores."""
        return [row for row in self.rows if row.status != "scored"]


def collect_rows(plan: Plan, out: Path, model: EvaluatedModel) -> RowSet:
    """Read the rows of all sets of a plan that this model has, from whichever process."""
    digest = model.digest()
    rows = (read_row(out / ROWS, one.name, make_key(plan, digest, one))[0] for one in plan.sets)
    return RowSet(tuple(row for row in rows if row is not None), len(plan.sets))


def summarize(plan: Plan, model: EvaluatedModel, rows: RowSet) -> dict[str, Any]:
    """Return the content of result.json."""
    unreadable = plan.list_unreadable()
    return {
        "protocol": plan.name,
        "title": plan.protocol.title,
        "dataset": plan.protocol.dataset,
        "model": model.name,
        "model_title": model.title,
        "settings": strip_paths(model.describe()),
        "rows": [
            average(plan, group, views)
            for views, group in group_by_views(rows.rows).items()
            if any(row.status == "scored" for row in group)
        ],
        "published": plan.protocol.reference,
        "partial": plan.partial,
        "missing_scenes": [scene for scene in plan.missing if scene not in unreadable],
        "unreadable_scenes": unreadable,
        "sets": count_sets(rows),
        "problems": [
            {"set": row.set, "status": row.status, "message": row.message} for row in rows.list_problems()
        ],
        "notes": list(plan.protocol.notes),
        "view_index": plan.index.digest,
        "protocol_digest": plan.protocol.digest(),
        "provenance": collect_provenance(),
    }


def group_by_views(rows: Sequence[SetRow]) -> dict[int, list[SetRow]]:
    """Group rows by the number of views that the protocol asks for."""
    groups: dict[int, list[SetRow]] = {}
    for row in rows:
        groups.setdefault(row.views, []).append(row)
    return dict(sorted(groups.items()))


def average(plan: Plan, rows: Sequence[SetRow], views: int) -> dict[str, Any]:
    """Return the means over the scored sets with so many views, with intervals over scenes, and what they lack."""
    weight = PIXELS if plan.protocol.alignment == "scale" else None
    averages = average_dataset(rows, weight=weight)
    metrics = {
        name: {**asdict(mean.interval), "sets": mean.sets, "scenes": mean.scenes, "absent": list(mean.absent)}
        for name, mean in averages.metrics.items()
    }
    scored = [row for row in rows if row.status == "scored"]
    return {
        "views": views,
        "sets": len(scored),
        "scenes": len({row.scene for row in scored}),
        "metrics": metrics,
        "cpu_seconds": sum(row.cpu_seconds for row in scored) / max(1, len(scored)),
    }


def count_sets(rows: RowSet) -> dict[str, int]:
    """Count what there is and what there is not."""
    status = [row.status for row in rows.rows]
    return {
        "planned": rows.planned,
        "scored": status.count("scored"),
        "failed": status.count("failed"),
        "unreadable": status.count("unreadable"),
        "not_run": rows.planned - len(status),
        "with_repeated_frames": sum(row.repeated > 0 for row in rows.scored),
        "with_views_not_placed": sum(row.placed < row.given for row in rows.scored),
        "empty_views": sum(row.empty for row in rows.scored),
        "single_view": sum(row.given == 1 for row in rows.scored),
    }


# Markdown


def format_table(result: dict[str, Any]) -> str:
    """Format a run as a table with a line per number of views, and sentences on what is missing."""
    present = [name for name in TITLES if any(name in row["metrics"] for row in result["rows"])]
    head = ["views", "sets", *(TITLES[name] for name in present), "CPU s per set"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in result["rows"]:
        cells = [format_metric(name, row["metrics"].get(name)) for name in present]
        cells = [str(row["views"] or "all"), str(row["sets"]), *cells, f"{row['cpu_seconds']:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    for model, values in result["published"].items():
        cells = [format_number(name, values.get(name)) for name in present]
        lines.append(f"| {' | '.join([f'{model}, published', '', *cells, ''])} |")
    title = f"## {result['title']}: {result['model_title']}"
    return "\n\n".join([title, "\n".join(lines), *describe_gaps(result)])


def format_metric(name: str, value: dict[str, Any] | None) -> str:
    """Format a mean and half the width of its interval."""
    if value is None:
        return "–"
    half = (value["high"] - value["low"]) / 2
    return (
        f"{format_number(name, value['mean'])} ± {format_number(name, half)}"
        if value["sets"] > 1
        else (format_number(name, value["mean"]))
    )


def format_number(name: str, value: float | None) -> str:
    """Format a value; shares become per cent."""
    if value is None:
        return "–"
    return f"{100 * value:.1f}" if name in PERCENT else f"{value:.3f}"


def describe_gaps(result: dict[str, Any]) -> list[str]:
    """Say in a sentence each what a table does not contain, and what its sets lack."""
    sets, sentences = result["sets"], []
    if result["partial"]:
        sentences.append(f"**Partial**: {'; '.join(result['partial'])}.")
    for key, text in (
        ("missing_scenes", "Missing scenes"),
        ("unreadable_scenes", "Scenes that cannot be read"),
    ):
        if result[key]:
            sentences.append(f"{text}, not in the means: {name_some(result[key])} ({len(result[key])}).")
    if sets["not_run"]:
        sentences.append(f"**Unfinished**: {sets['not_run']} of {sets['planned']} sets have not been run.")
    for status, text in (
        ("failed", "the model gave no usable prediction"),
        ("unreadable", "the data cannot be used"),
    ):
        problems = [row for row in result["problems"] if row["status"] == status]
        if problems:
            names = name_some([f"{row['set']} ({row['message']})" for row in problems], most=3)
            sentences.append(
                f"{len(problems)} of {sets['planned']} sets are not in the means, {text}: {names}."
            )
    for row in result["rows"]:
        for name, value in row["metrics"].items():
            if value["absent"] and name in TITLES:
                sentences.append(
                    f"{len(value['absent'])} scored sets have no {name}: {name_some(value['absent'])}."
                )
    for key, text in (
        ("with_repeated_frames", "sets have frames more than once, because their scenes are too small"),
        ("with_views_not_placed", "sets have views that the model did not place"),
        ("empty_views", "views have no pixel of known depth, and count for poses only"),
        ("single_view", "sets are single views: they have no pose errors"),
    ):
        if sets[key]:
            sentences.append(f"{sets[key]} {text}.")
    return sentences


def write_report(plan: Plan, model: EvaluatedModel, out: Path) -> dict[str, Any]:
    """Write rows.csv, result.json and table.md of what is there; return the result."""
    # Shares that end together take turns: the last one to read the rows is the last one to write.
    with lock_folder(out, timeout_s=math.inf):
        rows = collect_rows(plan, out, model)
        result = summarize(plan, model, rows)
        write_atomically(out / CSV, format_csv(rows.rows))
        write_json(out / RESULT, result)
        write_atomically(out / TABLE, format_table(result) + "\n")
    return result
