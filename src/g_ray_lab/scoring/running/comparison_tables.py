"""Tables of a comparison as Markdown, and what their intervals are over."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any


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
    """Format a table per column and number of views: models by metrics, then differences, by metrics too."""
    parts = []
    places = dict.fromkeys((row["setting"], row["views"]) for row in result["rows"])
    for setting, views in places:
        here, pairs = (
            [row for row in result.get(kind, ()) if (row["setting"], row["views"]) == (setting, views)]
            for kind in ("rows", "differences")
        )
        present = [name for name in metrics if any(name in row["metrics"] for row in here)]
        head = ["model", *(titles[name] for name in present), "sets", "CPU s per set"]
        lines = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
        for row in here:
            cells = [format_cell(name, _add_count(row, name)) for name in present]
            cells += [str(row["sets"]), f"{row['cpu_seconds']:.1f}"]
            lines.append(f"| {' | '.join([row['method'], *cells])} |")
        for row in pairs:
            cells = [format_cell(name, _add_count(row, name)) for name in present]
            cells += [str(row["sets"]), ""]
            lines.append(f"| {row['method']} − {row['minus']} | {' | '.join(cells)} |")
        parts.append(f"### {setting}" + (f", {views} views" if views else "") + "\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def format_series(
    result: Mapping[str, Any],
    metrics: Sequence[str],
    titles: Mapping[str, str],
    format_cell: Callable[..., str],
) -> str:
    """Format a table per metric, for columns that are steps along an axis: models and their differences by columns."""
    settings = list(dict.fromkeys(row["setting"] for row in result["rows"]))
    rows = [
        *((row["method"], row) for row in result["rows"]),
        *((f"{row['method']} − {row['minus']}", row) for row in result.get("differences", ())),
    ]
    parts = []
    for metric in metrics:
        lines = [f"| {titles[metric]} | {' | '.join(settings)} |", "|---" + "|---:" * len(settings) + "|"]
        for name in dict.fromkeys(name for name, _ in rows):
            values = {row["setting"]: _add_count(row, metric) for other, row in rows if other == name}
            cells = [format_cell(metric, values.get(setting)) for setting in settings]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _add_count(row: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    value = row["metrics"].get(name)
    return None if value is None else {**value, "sets": row["sets"]}


def describe_intervals(result: Mapping[str, Any]) -> list[str]:
    """Say what intervals are over, and which rows are means over several networks."""
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
