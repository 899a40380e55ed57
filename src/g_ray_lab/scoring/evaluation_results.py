"""The report of a run: rows.csv, result.json and table.md in its folder, with the sentences about what they lack."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from g_ray.runtime.files import strip_paths, write_atomically
from g_ray.runtime.out_folder import lock_folder
from g_ray_lab.scoring.averages import (
    PIXELS,
    NetworkAverages,
    Rows,
    SetRow,
    average_networks,
    average_seeds,
    format_rows_csv,
    name_some,
)
from g_ray_lab.scoring.evaluated_models import EvaluatedModel
from g_ray_lab.scoring.evaluation_plan import EvaluationPlan
from g_ray_lab.scoring.evaluation_run import make_key, read_row
from g_ray_lab.scoring.table_writer import TITLES, format_run, write_table

CSV = "rows.csv"


def write_report(plan: EvaluationPlan, model: EvaluatedModel, out: Path) -> tuple[dict[str, Any], str]:
    """Write rows.csv, result.json and table.md with the rows that exist; return the result and the table."""
    # Shares that end together take turns: the last one to read the rows is the last one to write.
    with lock_folder(out, timeout_s=math.inf):
        rows = collect_rows(plan, out, model)
        result = summarize_run(plan, model, rows)
        title = f"## {result['title']}: {result['model_title']}"
        text = "\n\n".join([title, format_run(result), *describe_gaps(result)])
        write_atomically(out / CSV, format_rows_csv(rows))
        write_table(out, result, text)
    return result, text


def collect_rows(plan: EvaluationPlan, out: Path, model: EvaluatedModel) -> list[SetRow]:
    """Read the rows of this model that any process has written."""
    digest = model.digest()
    rows = (read_row(out, one.name, make_key(plan, digest, one))[0] for one in plan.sets)
    return [row for row in rows if row is not None]


def summarize_run(plan: EvaluationPlan, model: EvaluatedModel, rows: Rows) -> dict[str, Any]:
    """Return the content of result.json."""
    unreadable = plan.list_unreadable()
    return {
        "protocol": plan.name,
        "title": plan.protocol.title,
        "dataset": plan.protocol.dataset,
        "model": model.name,
        "model_title": model.title,
        "settings": strip_paths(model.describe()),
        "rows": [average_views(plan, [group], views) for views, group in group_scored(rows).items()],
        "published": plan.protocol.reference,
        "partial": plan.partial,
        "missing_scenes": [scene for scene in plan.missing if scene not in unreadable],
        "unreadable_scenes": unreadable,
        "sets": count_sets(rows, len(plan.sets)),
        "problems": [
            {"set": row.set, "status": row.status, "message": row.message}
            for row in rows
            if not row.is_scored
        ],
        "notes": list(plan.protocol.notes),
        "view_index": plan.index.digest,
        "protocol_digest": plan.protocol.digest(),
    }


def group_scored(rows: Rows) -> dict[int, list[SetRow]]:
    """Group rows by the protocol's number of views; groups without a scored set are left out."""
    groups: dict[int, list[SetRow]] = {}
    for row in rows:
        groups.setdefault(row.views, []).append(row)
    return {views: groups[views] for views in sorted(groups) if any(row.is_scored for row in groups[views])}


def average_views(plan: EvaluationPlan, networks: Sequence[Rows], views: int) -> dict[str, Any]:
    """Return the means over the scored sets with a number of views, with intervals, and the sets that they lack."""
    averages = average_networks(networks, choose_weight(plan))
    return describe_averages(averages, [row for row in average_seeds(networks) if row.is_scored], views)


def choose_weight(plan: EvaluationPlan) -> str | None:
    """Return the metric that weights sets: in video depth long sequences count more."""
    return PIXELS if plan.protocol.alignment == "scale" else None


def describe_averages(found: NetworkAverages, scored: Rows, views: int) -> dict[str, Any]:
    """Return averages as plain values, with the sets that they are over."""
    averages, per_seed = found
    seeds = max(map(len, per_seed.values()), default=1)
    return {
        "views": views,
        "sets": len(scored),
        "scenes": len({row.scene for row in scored}),
        "metrics": {
            name: {**asdict(one.interval), "sets": one.sets, "scenes": one.scenes, "absent": list(one.absent)}
            for name, one in averages.items()
        },
        "cpu_seconds": sum(row.cpu_seconds for row in scored) / max(1, len(scored)),
        **({"per_seed": per_seed} if seeds > 1 else {}),
    }


def count_sets(rows: Rows, planned: int) -> dict[str, int]:
    """Count sets by their status and by what they lack."""
    scored, status = [row for row in rows if row.is_scored], [row.status for row in rows]
    return {
        "planned": planned,
        "scored": len(scored),
        "failed": status.count("failed"),
        "unreadable": status.count("unreadable"),
        "not_run": planned - len(rows),
        "with_repeated_frames": sum(row.repeated > 0 for row in scored),
        "with_views_not_placed": sum(row.placed < row.given for row in scored),
        "empty_views": sum(row.empty for row in scored),
        "single_view": sum(row.given == 1 for row in scored),
    }


MISSING_SCENES = {
    "missing_scenes": "Missing scenes",
    "unreadable_scenes": "Scenes that cannot be read",
}
PROBLEMS = {"failed": "the model gave no usable prediction", "unreadable": "the data cannot be used"}
FLAWS = {
    "with_repeated_frames": "sets have frames more than once, because their scenes are too small",
    "with_views_not_placed": "sets have views that the model did not place",
    "empty_views": "views have no pixel of known depth, and count for poses only",
    "single_view": "sets are single views: they have no pose errors",
}


def describe_gaps(result: Mapping[str, Any]) -> list[str]:
    """Describe in a sentence each what a table does not contain, and what its sets lack."""
    sets, sentences = result["sets"], []
    if result["partial"]:
        sentences.append(f"**Partial**: {'; '.join(result['partial'])}.")
    for key, text in MISSING_SCENES.items():
        if result[key]:
            sentences.append(f"{text}, not in the means: {name_some(result[key])} ({len(result[key])}).")
    if sets["not_run"]:
        sentences.append(f"**Unfinished**: {sets['not_run']} of {sets['planned']} sets have not been run.")
    for status, text in PROBLEMS.items():
        problems = [row for row in result["problems"] if row["status"] == status]
        if problems:
            names = name_some([f"{row['set']} ({row['message']})" for row in problems], most=3)
            count = f"{len(problems)} of {sets['planned']} sets are not in the means"
            sentences.append(f"{count}, {text}: {names}.")
    for row in result["rows"]:
        for name, value in row["metrics"].items():
            if value["absent"] and name in TITLES:
                absent = name_some(value["absent"])
                sentences.append(f"{len(value['absent'])} scored sets have no {name}: {absent}.")
    return sentences + [f"{sets[key]} {text}." for key, text in FLAWS.items() if sets[key]]
