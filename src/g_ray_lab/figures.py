"""Figures of result tables: curves, bars, and points with intervals."""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from g_ray.viewer.theme import LIGHT, Theme, new_figure, use_theme, write_png

LINES = {"plucker": ":", "prope": ":", "gta": "--", "rayrope": "--"}
CYCLE = 10
"""Colors before they repeat; lines after that are dashed."""
REFERENCE_LINES = ("-.", ":", (0, (5, 5)))
COLORS = {
    "plucker": "#7f7f7f",
    "prope": "#8c6d31",
    "gta": "#1f77b4",
    "gta_gray": "#1f77b4",
    "gta_gray_alpha10": "#2ca02c",
    "rayrope": "#d62728",
    "rayrope_gray": "#d62728",
}

UNITS = {
    "psnr": "PSNR, dB",
    "ssim": "SSIM",
    "lpips": "LPIPS",
    "points_rel": "relative error of points",
    "rays_deg": "error of rays, °",
    "depth_rel": "relative error of depth",
    "points_inlier": "share of inlying points",
    "pose_ate": "error of positions (ATE)",
    "depth_inlier": "share of inlying depths",
    "ate": "error of positions (ATE)",
    "rpe_trans": "error of steps (RPE)",
    "rpe_rot_deg": "error of turns (RPE), °",
    "abs_rel": "relative error of depth",
    "abs_rel_shift": "relative error of depth, shift fitted",
    "acc": "accuracy: mean distance to the truth",
    "comp": "completeness: mean distance from the truth",
    "nc": "normal consistency",
}


def write_metrics(
    result: Mapping[str, Any],
    out: Path,
    draw: Callable[..., Figure],
    metrics: Sequence[str] | None = None,
    prefix: str = "",
    **options: Any,
) -> None:
    """Write a picture for each metric, by default for those of the first row."""
    for metric in result["rows"][0]["metrics"] if metrics is None else metrics:
        write_png(draw(result, metric, LIGHT, **options), out / f"{prefix}{metric}.png")


def draw_curves(
    result: Mapping[str, Any], metric: str, theme: Theme, axis: str = "largest zoom of the test views"
) -> Figure:
    """Draw a line per method over the settings, its interval shaded; references in gray.

    A method without a value at a setting has a line through the others.
    """
    settings = list(dict.fromkeys(row["setting"] for row in result["rows"]))
    with use_theme(theme):
        figure = new_figure(7.2, 4.4)
        axes = figure.add_subplot()
        for row_set, reference in ((result["rows"], False), (result.get("references", []), True)):
            for number, method in enumerate(dict.fromkeys(row["method"] for row in row_set)):
                values = {
                    settings.index(row["setting"]): row["metrics"][metric]
                    for row in row_set
                    if row["method"] == method and metric in row["metrics"]
                }
                places, cells = sorted(values), [values[place] for place in sorted(values)]
                color = theme.faint if reference else COLORS.get(method)
                style = (
                    REFERENCE_LINES[number % 3]
                    if reference
                    else LINES.get(method, "-" if number < CYCLE else "--")
                )
                _draw_line(axes, places, cells, linestyle=style, color=color, label=method)
        axes.set_xticks(range(len(settings)), settings)
        axes.set_xlabel(axis)
        axes.set_ylabel(UNITS.get(metric, metric))
        _add_legend(axes)
        return figure


def draw_differences(
    groups: Mapping[str, Sequence[Mapping[str, Any]]],
    metric: str,
    theme: Theme,
    axis: str = "largest zoom of the test views",
) -> Figure:
    """Draw a panel per group of settings, in it a line per pair of methods over the settings, its interval shaded."""
    with use_theme(theme):
        figure = new_figure(3.2 * len(groups) + 0.8, 3.6)
        panels: Any = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
        for axes, (name, rows) in zip(panels, groups.items(), strict=True):
            settings = list(dict.fromkeys(row["setting"] for row in rows))
            for pair in dict.fromkeys((row["method"], row["minus"]) for row in rows):
                cells = [row[metric] for row in rows if (row["method"], row["minus"]) == pair]
                _draw_line(axes, settings, cells, color=COLORS.get(pair[0]), label=" − ".join(pair))
            axes.axhline(0, color=theme.faint, linewidth=0.8)
            axes.set_title(name)
        panels[0].set_ylabel(f"difference in {UNITS.get(metric, metric)}")
        figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, ncols=2, loc="outside upper center")
        figure.supxlabel(axis, fontsize=10.5)
        return figure


def draw_bars(result: Mapping[str, Any], metric: str, theme: Theme) -> Figure:
    """Draw a group of bars per setting, methods in one order, with their intervals; references as gray lines.

    For settings that are no steps along an axis; those without the metric are left out. Bars start just below the
    lowest value: they show differences.
    """
    settings = list(dict.fromkeys(row["setting"] for row in result["rows"] if metric in row["metrics"]))
    methods = list(dict.fromkeys(row["method"] for row in result["rows"]))
    references, width = result.get("references", []), 0.8 / len(methods)
    with use_theme(theme):
        figure = new_figure(max(1.6 * len(settings) + 1.2, 5.6), 4.4)  # the legend needs this much
        axes: Any = figure.add_subplot()
        for number, method in enumerate(methods):
            rows = [row for row in result["rows"] if row["method"] == method and metric in row["metrics"]]
            left = (number + 0.5) * width - 0.4
            places = [left + settings.index(row["setting"]) for row in rows]
            _draw_method(axes, places, width, [row["metrics"][metric] for row in rows], method)
        names = dict.fromkeys(row["method"] for row in references)
        for name, style in zip(names, cycle(REFERENCE_LINES)):
            means = [row["metrics"][metric]["mean"] for row in references if row["method"] == name]
            groups = np.arange(len(settings))
            axes.hlines(means, groups - 0.45, groups + 0.45, colors=theme.faint, linestyles=style, label=name)
        shown = [row["metrics"][metric] for row in [*result["rows"], *references] if metric in row["metrics"]]
        axes.set_ylim(*_compute_range(shown))
        axes.set_xticks(range(len(settings)), settings)
        axes.set_ylabel(UNITS.get(metric, metric))
        _add_legend(axes)
        return figure


def _draw_method(
    axes: Any, places: list[float], width: float, cells: list[dict[str, float]], method: str
) -> None:
    reach = [[abs(cell[end] - cell["mean"]) for cell in cells] for end in ("low", "high")]
    strength = 0.45 if method in LINES else 0.95  # the two of a pair have one color
    axes.bar(
        places,
        [cell["mean"] for cell in cells],
        width,
        yerr=reach,
        color=COLORS.get(method),
        alpha=strength,
        label=method,
    )


def _draw_line(axes: Any, places: Sequence[Any], cells: Sequence[Mapping[str, float]], **style: Any) -> None:
    """Draw a line of means, its interval shaded."""
    (line,) = axes.plot(places, [cell["mean"] for cell in cells], **style)
    low, high = ([cell[end] for cell in cells] for end in ("low", "high"))
    axes.fill_between(places, low, high, color=line.get_color(), alpha=0.15, linewidth=0)


def _add_legend(axes: Any) -> None:
    """Put the legend above the axes, where it hides no value."""
    axes.legend(fontsize=8, ncols=4, loc="lower left", bbox_to_anchor=(0, 1.01), borderaxespad=0)


def _compute_range(cells: list[dict[str, float]]) -> tuple[float, float]:
    low, high = min(cell["low"] for cell in cells), max(cell["high"] for cell in cells)
    margin = 0.08 * (high - low) or 0.08 * abs(high) or 1.0  # all may be one value
    return low - margin, high + margin


def draw_conditions(result: Mapping[str, Any], theme: Theme) -> Figure:
    """Draw the mean of each method with its interval, conditions side by side; references in gray."""
    metrics = list(result["rows"][0]["metrics"])
    settings = list(dict.fromkeys(row["setting"] for row in result["rows"]))
    rows = [(row, False) for row in result["rows"]] + [(row, True) for row in result["references"]]
    methods = list(dict.fromkeys((row["method"], is_reference) for row, is_reference in rows))
    with use_theme(theme):
        figure = new_figure(12.0, 6.2)
        for axes, metric in zip(figure.subplots(2, -(-len(metrics) // 2)).flat, metrics, strict=False):
            for number, (method, is_reference) in enumerate(methods):
                cells = {
                    row["setting"]: row["metrics"][metric]
                    for row, _ in rows
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


def draw_training(result: Mapping[str, Any], theme: Theme) -> Figure:
    """Draw a row of panels per metric, a panel per setting, in it a line per method over the steps of training."""
    rows = sorted(
        (row for part in (*result["early"], result) for row in part["rows"]), key=lambda row: row["steps"]
    )
    methods, settings = (
        list(dict.fromkeys(row[key] for row in result["rows"])) for key in ("method", "setting")
    )
    metrics = list(rows[0]["metrics"])
    with use_theme(theme):
        figure = new_figure(2.6 * len(settings) + 0.6, 1.9 * len(metrics) + 0.6)
        grid: Any = figure.subplots(len(metrics), len(settings), squeeze=False, sharex=True, sharey="row")
        for line, metric in zip(grid, metrics, strict=True):
            for axes, setting in zip(line, settings, strict=True):
                for method in methods:
                    own = [row for row in rows if (row["method"], row["setting"]) == (method, setting)]
                    cells = [row["metrics"][metric] for row in own]
                    _draw_line(axes, [row["steps"] for row in own], cells, label=method)
            line[0].set_yscale("log")
            # Intervals of two networks may reach below zero: lines decide what is shown.
            means = [row["metrics"][metric]["mean"] for row in rows]
            low, high = min(means) / 2, max(means) * 2
            if low > 0:
                line[0].set_ylim(low, high)
            fine = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
            line[0].yaxis.set_major_locator(LogLocator(subs=fine if high < 20 * low else (1.0, 3.0)))
            line[0].yaxis.set_major_formatter("{x:g}")
            line[0].yaxis.set_minor_locator(NullLocator())
            line[0].set_ylabel(UNITS.get(metric, metric), fontsize=8)
        for axes, setting in zip(grid[0], settings, strict=True):
            axes.set_title(setting)
        figure.legend(
            *grid[0, 0].get_legend_handles_labels(), fontsize=8, ncols=4, loc="outside upper center"
        )
        figure.supxlabel("steps of training", fontsize=10.5)
        return figure


def draw_runtime(rows: Sequence[Mapping[str, Any]], theme: Theme) -> Figure:
    """Draw a line per mode over the views, with bands of one deviation, and the paired differences with intervals."""
    views = [row["views"] for row in rows]
    modes = list(rows[0]["mean"])
    with use_theme(theme):
        figure = new_figure(11.0, 3.6)
        seconds, memory, difference = figure.subplots(1, 3)
        for mode, style in zip(modes, ("-", "--", ":"), strict=False):
            means = [row["mean"][mode] for row in rows]
            spread = [row["deviation"][mode] for row in rows]
            (line,) = seconds.plot(views, means, style, marker="o", markersize=3, label=mode)
            low, high = ([m + sign * s for m, s in zip(means, spread, strict=True)] for sign in (-1, 1))
            seconds.fill_between(views, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
            peaks = [row["peak_gib"][mode] for row in rows]
            if None not in peaks:
                memory.plot(views, peaks, style, marker="o", markersize=3, label=mode)
        for number, mode in enumerate(modes[1:]):
            cells = [row["difference"][mode] for row in rows]
            relative = [100 * cell["mean"] / row["mean"][mode] for cell, row in zip(cells, rows, strict=True)]
            reach = [
                [
                    100 * abs(cell[end] - cell["mean"]) / row["mean"][mode]
                    for cell, row in zip(cells, rows, strict=True)
                ]
                for end in ("low", "high")
            ]
            places = [position + 0.15 * number for position in range(len(views))]
            difference.errorbar(places, relative, reach, fmt="o", markersize=4, label=f"{modes[0]} − {mode}")
        difference.axhline(0, color=theme.faint, linewidth=0.8)
        difference.set_xticks(range(len(views)), [str(count) for count in views])
        for axes, title in (
            (seconds, "seconds"),
            (memory, "peak memory, GiB"),
            (difference, "paired difference, %"),
        ):
            axes.set(xlabel="views", ylabel=title)
            axes.legend(fontsize=8)
        return figure
