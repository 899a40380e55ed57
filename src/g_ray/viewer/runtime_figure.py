"""The figure of the runtime table: seconds and peak memory over the number of views."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from g_ray.viewer.theme import Theme, new_figure, use_theme


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
