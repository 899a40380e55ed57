"""The figure of calibration errors: a panel per metric, methods over conditions."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from g_ray.viewer.table_figures import UNITS
from g_ray.viewer.theme import Theme, new_figure, use_theme


def draw_conditions(result: Mapping[str, Any], theme: Theme) -> Figure:
    """Draw the mean of each method with its interval, conditions side by side; references in gray."""
    metrics = list(result["rows"][0]["metrics"])
    settings = list(dict.fromkeys(row["setting"] for row in result["rows"]))
    listed = [(row, False) for row in result["rows"]] + [(row, True) for row in result["references"]]
    methods = list(dict.fromkeys((row["method"], is_reference) for row, is_reference in listed))
    with use_theme(theme):
        figure = new_figure(12.0, 6.2)
        for axes, metric in zip(figure.subplots(2, -(-len(metrics) // 2)).flat, metrics, strict=False):
            for number, (method, is_reference) in enumerate(methods):
                cells = {
                    row["setting"]: row["metrics"][metric]
                    for row, _ in listed
                    if row["method"] == method and metric in row["metrics"]
                }
                known = [setting for setting in settings if setting in cells]
                means = [cells[setting]["mean"] for setting in known]
                reach = [
                    [abs(cells[setting][end] - cells[setting]["mean"]) for setting in known]
                    for end in ("low", "high")
                ]
                places = [settings.index(setting) + 0.12 * (number - len(methods) / 2) for setting in known]
                color = theme.faint if is_reference else f"C{number}"
                marker = ("s", "x", "^")[number % 3] if is_reference else "o"
                axes.errorbar(places, means, reach, fmt=marker, markersize=4, color=color, label=method)
            axes.set_xticks(range(len(settings)), settings, rotation=30, ha="right", fontsize=7)
            axes.set_ylabel(UNITS[metric], fontsize=9)
            axes.set_ylim(bottom=0)
        figure.axes[0].legend(fontsize=7)
        return figure
