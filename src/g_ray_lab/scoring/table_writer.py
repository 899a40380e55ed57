"""Write tables: result.json, table.md and scores.csv.gz, and results formatted as Markdown."""

import gzip
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from g_ray.runtime.files import write_atomically, write_json
from g_ray.runtime.provenance import collect_provenance
from g_ray_lab.scoring.scored_runs import GROUP, group_settings

RESULT, TABLE, SCORES = "result.json", "table.md", "scores.csv.gz"
"""Files of a table; SCORES has every score of every model and scene."""
PERCENT = (
    *("points_inlier", "depth_inlier", "coverage", "delta_1.25", "delta_1.25_shift", "f_score"),
    "focal_rel",
)
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
    "sq_rel": "sq rel ↓",
    "rmse": "RMSE ↓",
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
    "given_rays_deg": "given rays ° ↓",
    "focal_rel": "focal length % ↓",
    "center_px": "principal point px ↓",
    "coverage": "coverage %",
}
"""Columns of tables of finished models, in order; other metrics are in result.json and the CSV files only."""

Result = Mapping[str, Any]


def write_table(out: Path, result: dict[str, Any], text: str, scores: str | None = None) -> None:
    """Write the result with its provenance, its table, and all scores as CSV if they are not written yet."""
    write_json(out / RESULT, {**result, "provenance": collect_provenance()})
    write_atomically(out / TABLE, text + "\n")
    if scores is not None:
        write_scores(out, scores)


def write_scores(out: Path, text: str) -> None:
    write_atomically(out / SCORES, gzip.compress(text.encode(), mtime=0))


# Cells


def format_grid(
    head: Sequence[str], rows: Iterable[Sequence[str]], rules: Sequence[str] = ("---", "---")
) -> str:
    """Format a table in Markdown; `rules` are below the first column and below the others."""
    lines = [head, *rows]
    rule = "|".join(["", rules[0], *[rules[1]] * (len(head) - 1), ""])
    first, *others = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([first, rule, *others])


def format_cell(interval: Mapping[str, float] | None, digits: int, factor: float = 1.0) -> str:
    """Format a mean ± half the width of its interval, or a dash if there is none."""
    if interval is None or not math.isfinite(interval["mean"]):
        return "–"
    half = (interval["high"] - interval["low"]) / 2
    return f"{factor * interval['mean']:.{digits}f} ± {factor * half:.{digits}f}"


def choose_digits(metric: str) -> int:
    """Return the decimals that a metric of trained networks is printed with."""
    return 2 if metric == "psnr" or metric.endswith("_deg") else 3


def format_metric(name: str, value: Mapping[str, float] | None, sets: int) -> str:
    """Format a metric of finished models: shares in per cent, and no interval of a single set."""
    cell = format_cell(value, 1, 100.0) if name in PERCENT else format_cell(value, 3)
    return cell if sets > 1 else cell.partition(" ±")[0]


def format_number(name: str, value: float | None) -> str:
    """Format a published value."""
    return "–" if value is None else format_metric(name, dict.fromkeys(("mean", "low", "high"), value), 1)


def list_metrics(rows: Iterable[Result]) -> list[str]:
    """List the metrics of any row, in the order of TITLES."""
    present = {name for row in rows for name in row["metrics"]}
    return [name for name in TITLES if name in present]


# Tables of trained networks: methods by settings, a table per metric


def split_groups(result: Result) -> dict[str, dict[str, Any]]:
    """Split a result into one for every group of columns, whose settings have the names of the columns alone."""
    groups = group_settings(dict.fromkeys(row["setting"] for row in result["rows"]))
    return {group: _select_settings(result, settings) for group, settings in groups.items()}


def _select_settings(result: Result, settings: list[str]) -> dict[str, Any]:
    parts = {
        name: [
            {**row, "setting": row["setting"].rpartition(GROUP)[2]}
            for row in result.get(name, [])
            if row["setting"] in settings
        ]
        for name in ("rows", "references", "differences", "changes")
    }
    return {**result, **parts}


def format_trained_tables(result: Result) -> str:
    """Format a table per group of columns and metric, each followed by its differences if rows are compared, and by
    the changes along its columns if they were computed."""
    seeds = sorted({row["seeds"] for row in result["rows"] if "seeds" in row})
    parts = [f"Seeds per row: {' to '.join(map(str, seeds))}."] if seeds else []
    for group, part in split_groups(result).items():
        for metric in result["rows"][0]["metrics"]:
            parts.append(format_methods(part, metric, group))
            if part["differences"]:
                parts.append(format_differences(part, metric, group))
            if part["changes"]:
                parts.append(format_changes(part, metric, group))
    return "\n\n".join(parts)


def format_methods(result: Result, metric: str, group: str = "") -> str:
    """Format methods (rows) by settings (columns)."""
    rows = [*result["rows"], *result.get("references", [])]
    return _format_by_setting(metric, metric, group, [(row["method"], row) for row in rows])


def format_differences(result: Result, metric: str, group: str = "") -> str:
    """Format pairs of methods (rows) by settings (columns)."""
    rows = [(f"{row['method']} − {row['minus']}", row) for row in result["differences"]]
    return _format_by_setting(f"{metric}, difference", metric, group, rows)


def format_changes(result: Result, metric: str, group: str = "") -> str:
    """Format methods (rows) by settings (columns): the change from the first column."""
    first = result["changes"][0]["from"].rpartition(GROUP)[2]
    rows = [(row["method"], row) for row in result["changes"]]
    return _format_by_setting(f"{metric}, change from {first}", metric, group, rows)


def _format_by_setting(title: str, metric: str, group: str, rows: Sequence[tuple[str, Result]]) -> str:
    settings = list(dict.fromkeys(row["setting"] for _, row in rows))
    lines = []
    for name in dict.fromkeys(name for name, _ in rows):
        own = {row["setting"]: row.get("metrics", row).get(metric) for other, row in rows if other == name}
        lines.append([name, *(format_cell(own.get(one), choose_digits(metric)) for one in settings)])
    return format_grid([f"{title}, {group}" if group else title, *settings], lines)


def describe_limits(result: Result) -> str:
    """Return a line on scenes that were left out with --scenes, or because they have no score, or nothing."""
    protocol = result["settings"].get("protocol")
    limit = protocol.get("limit") if isinstance(protocol, dict) else None
    line = "" if limit is None else f"Scored on the first {limit} test scenes only.\n\n"
    unscored = {row["setting"]: max(row["unscored"].values()) for row in result["rows"] if "unscored" in row}
    if unscored:
        listed = ", ".join(f"{setting} ({count})" for setting, count in unscored.items())
        line += f"Scenes without a valid pixel are not in the means: {listed}.\n\n"
    return line


# Tables of calibrations: methods and conditions by metrics


def format_conditions(tests: Mapping[str, Result]) -> str:
    """Format a table per test as the paper does: methods and conditions down, metrics across, differences below."""
    return "\n\n".join(_format_test(name, test) for name, test in tests.items())


def _format_test(name: str, test: Result) -> str:
    metrics = list(test["rows"][0]["metrics"])
    labeled = [
        *((row["method"], row, _count_answers(row)) for row in [*test["rows"], *test["references"]]),
        *((f"{row['method']}, change", row, "") for row in test.get("changes", [])),
        *((f"{row['method']} − {row['minus']}", row, "") for row in test["differences"]),
    ]
    lines = []
    for title, row, count in labeled:
        values = row.get("metrics", row)
        cells = [format_cell(values.get(metric), choose_digits(metric)) for metric in metrics]
        if row.get("answered") == 1:  # a single set has no interval
            cells = [cell.partition(" ±")[0] for cell in cells]
        lines.append([title, row["setting"], *cells, count])
    return format_grid([name, "condition", *metrics, "sets"], lines, (" --- ", " --- "))


def _count_answers(row: Result) -> str:
    """Return how many sets a model answered, and at which share of their pixels, if it may leave some out."""
    if "answered" not in row:
        return ""
    return f"{row['answered']} of {row['sets']}, {100 * row['coverage']:.0f} % of pixels"


# Tables of finished models


def format_run(result: Result) -> str:
    """Format a run of `g-ray evaluate`: a line per number of views, then published values."""
    present = list_metrics(result["rows"])
    lines = [
        [
            str(row["views"] or "all"),
            str(row["sets"]),
            *(_format_own(row, name) for name in present),
            f"{row['cpu_seconds']:.1f}",
        ]
        for row in result["rows"]
    ]
    lines += [
        [f"{model}, published", "", *(format_number(name, values.get(name)) for name in present), ""]
        for model, values in result["published"].items()
    ]
    return format_grid(["views", "sets", *(TITLES[name] for name in present), "CPU s per set"], lines)


def _format_own(row: Result, name: str) -> str:
    value = row["metrics"].get(name)
    return format_metric(name, value, row["sets"] if value is None else value.get("sets", row["sets"]))


def select_rows(result: Result, views: int | None = None, setting: str | None = None) -> dict[str, Any]:
    """Return the rows with a number of views, or of one column with the number of views as settings."""
    rows = [row for row in result["rows"] if views is None or row["views"] == views]
    if setting is not None:
        rows = [{**row, "setting": str(row["views"])} for row in rows if row["setting"] == setting]
    return {"rows": rows}


def format_comparison(result: Result) -> str:
    """Format a table per column and number of views: models by metrics, then differences, by metrics too."""
    return "\n\n".join(
        f"### {setting}{f', {views} views' if views else ''}\n\n{_format_place(result, setting, views)}"
        for setting, views in dict.fromkeys((row["setting"], row["views"]) for row in result["rows"])
    )


def _format_place(result: Result, setting: str, views: int) -> str:
    here, pairs = (
        [row for row in result.get(kind, ()) if (row["setting"], row["views"]) == (setting, views)]
        for kind in ("rows", "differences")
    )
    present, groups = list_metrics(here), result.get("groups", {})
    here = sorted(here, key=lambda row: groups.get(row["method"], ""))
    labeled = [
        *((row["method"], groups.get(row["method"], ""), row, f"{row['cpu_seconds']:.1f}") for row in here),
        *((f"{row['method']} − {row['minus']}", "", row, "") for row in pairs),
    ]
    lines = [
        [title, group, *(_format_own(row, name) for name in present), str(row["sets"]), seconds]
        for title, group, row, seconds in labeled
    ]
    head = ["model", "calibration", *(TITLES[name] for name in present), "sets", "CPU s per set"]
    if len({*groups.values()}) < 2:  # one group needs no name
        head, lines = (
            [head[0], *head[2:]],
            [[line[0], *line[2:]] for line in lines],
        )
    return format_grid(head, lines, ("---", "---:"))


def format_series(result: Result) -> str:
    """Format a table per metric, for columns that are steps along an axis: models and their differences by columns."""
    settings = list(dict.fromkeys(row["setting"] for row in result["rows"]))
    rows = [
        *((row["method"], row) for row in result["rows"]),
        *((f"{row['method']} − {row['minus']}", row) for row in result.get("differences", ())),
    ]
    parts = []
    for metric in list_metrics(result["rows"]):
        lines = []
        for name in dict.fromkeys(name for name, _ in rows):
            cells = {row["setting"]: _format_own(row, metric) for other, row in rows if other == name}
            lines.append([name, *(cells.get(setting, "–") for setting in settings)])
        parts.append(format_grid([TITLES[metric], *settings], lines, ("---", "---:")))
    return "\n\n".join(parts)


def describe_intervals(result: Result) -> list[str]:
    """Explain what intervals are over, and which rows are means over several networks."""
    scenes = {row["scenes"] for row in result["rows"]}
    over = "scenes" if min(scenes) > 1 else "scenes, or over sets where a column has one scene"
    several = {row: count for row, count in result["seeds"].items() if count > 1}
    if not several:
        return [f"± is half of a 95 % bootstrap interval over {over}, networks fixed."]
    listed = ", ".join(f"{row} ({count})" for row, count in several.items())
    return [
        f"Means over networks that differ in their seeds: {listed}. There, and in differences of as many networks "
        "each, paired by seed, ± is half of Student's 95 % interval over the networks, for these scenes.",
        f"In other rows ± is half of a 95 % bootstrap interval over {over}.",
    ]
