"""Figures of result tables: curves, bars, points with intervals, contact sheets, and maps of attention."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from torch import Tensor

from g_ray.reconstruction.set_metrics import relative_error
from g_ray.viewer.colors import color_depth
from g_ray.viewer.theme import LIGHT, Theme, draw_contact_sheet, new_figure, use_theme, write_png
from g_ray_lab.datasets.objaverse import DOLLY, FOCAL, NATIVE, find_objects, format_image_name, read_image
from g_ray_lab.metrics.image_metrics import psnr
from g_ray_lab.scoring import nvs_scorer, reconstruction_scorer
from g_ray_lab.scoring.point_pictures import PointCloudRow
from g_ray_lab.scoring.scored_runs import GROUP
from g_ray_lab.scoring.study import Study
from g_ray_lab.scoring.study_job import load_network
from g_ray_lab.scoring.table_writer import split_groups

LINES = {"plucker": ":", "prope": ":", "gta": "--", "rayrope": "--"}
CYCLE = 10
"""Colors before they repeat; lines after that are dashed."""
REFERENCE_LINES = ("-.", ":", (0, (5, 5)))
COLORS = {
    "plucker": "#7f7f7f",
    "prope": "#8c6d31",
    "gta": "#1f77b4",
    "gta_gray": "#1f77b4",
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
                (line,) = axes.plot(
                    places, [cell["mean"] for cell in cells], linestyle=style, color=color, label=method
                )
                low, high = ([cell[end] for cell in cells] for end in ("low", "high"))
                axes.fill_between(places, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
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
                (line,) = axes.plot(
                    settings,
                    [cell["mean"] for cell in cells],
                    color=COLORS.get(pair[0]),
                    label=" − ".join(pair),
                )
                low, high = ([cell[end] for cell in cells] for end in ("low", "high"))
                axes.fill_between(settings, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
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


# A contact sheet of rendered objects: are textures in their places, do variants do what they should?


COLUMNS = ((0, NATIVE), (0, FOCAL), (0, DOLLY), (2, NATIVE), (4, NATIVE), (6, NATIVE))
"""Direction and kind: one direction in all its kinds, then around the object."""


def draw_object_sheet(root: Path, count: int) -> Image.Image:
    """Draw a row per object, evenly chosen from all."""
    names = find_objects(root)
    if not names or count < 1:
        raise ValueError(f"{count} of {len(names)} objects in {root}: nothing to show")
    chosen = [names[i] for i in np.linspace(0, len(names) - 1, min(count, len(names))).round().astype(int)]
    rows = [np.concatenate(_make_row(root / name), axis=1) for name in chosen]
    return Image.fromarray(np.concatenate(rows, axis=0))


def _make_row(folder: Path) -> list[np.ndarray]:
    images = [read_image(folder / "views" / format_image_name(*column)) for column in COLUMNS]
    return [image.movedim(0, -1).numpy() for image in images]


# The figure of attention across fields of view: a wide image, its crop, a map per method (paper, fig:attention)

SHARED = "#e02020"


@dataclass(frozen=True)
class AttentionRow:
    """One pair of images and its maps over the patches of the wide one."""

    wide: Float[Tensor, "3 h w"]
    narrow: Float[Tensor, "3 h2 w2"]
    box: tuple[float, float, float, float]
    """The shared field of view in pixels of the wide image."""
    maps: tuple[tuple[str, Float[Tensor, "row column"], float], ...]
    """Title, map, and the share of it inside the box."""
    chance: float
    """The share of the area inside the box."""


def draw_attention(rows: Sequence[AttentionRow], theme: Theme) -> Figure:
    """Draw a row per pair; each map has its own scale from 0 to its maximum, the shared field of view in red."""
    with use_theme(theme):
        columns = 2 + len(rows[0].maps)
        figure = new_figure(1.7 * columns, 1.75 * len(rows) + 0.3)
        grid = figure.subplots(len(rows), columns, squeeze=False)
        for axes, row in zip(grid, rows, strict=True):
            _show(axes[0], row.wide.movedim(0, -1).numpy(), None, f"chance {row.chance:.2f}", row.box)
            _show(axes[1], row.narrow.movedim(0, -1).numpy(), None, "", None)
            extent = (0, row.wide.shape[-1], row.wide.shape[-2], 0)
            for place, (_, weights, share) in zip(axes[2:], row.maps, strict=True):
                _show(place, weights.numpy(), extent, f"{share:.2f}", row.box, theme.heat)
        titles = ("wide", "narrow", *(title for title, _, _ in rows[0].maps))
        for place, title in zip(grid[0], titles, strict=True):
            place.set_title(title, fontsize=9)
        return figure


def _show(
    axes: Any,
    image: Any,
    extent: tuple[int, int, int, int] | None,
    label: str,
    box: tuple[float, float, float, float] | None,
    colors: str | None = None,
) -> None:
    options = {} if colors is None else {"cmap": colors, "vmin": 0.0}
    axes.imshow(image, extent=extent, interpolation="nearest", **options)
    axes.set(xticks=[], yticks=[])
    axes.set_xlabel(label, fontsize=8, labelpad=2)
    if box is not None:
        left, top, right, bottom = box
        frame = Rectangle(
            (left, top), right - left, bottom - top, fill=False, edgecolor=SHARED, linewidth=1.6
        )
        axes.add_patch(frame)


# Contact sheets of what the networks of a study predict: views, or depth maps

MAX_SHOWN = 6  # scenes or sets of a contact sheet
DEPTH_SETTING, FISHEYE_VIEW = "mixed", 1  # the second view of a mixed set is a fisheye

Columns = list[tuple[str, Tensor]]


def draw_views(study: Study, result: dict[str, Any], out: Path) -> None:
    """Write a plot for each metric, and the views that the networks of a synthesis table predict.

    The first of several groups of columns is plotted; a figure of the differences shows all of them.
    """
    assert isinstance(study.scorer, nvs_scorer.NVSScorer)
    protocol, groups = study.scorer.protocol, split_groups(result)
    write_metrics(next(iter(groups.values())), out, draw_curves if protocol.is_ordered else draw_bars)
    if len(groups) > 1:
        draw_group_differences(result, out)
    setting = protocol.shown_setting
    batch = next(protocol.make_batches(setting))
    columns = [(f"context {i + 1}", batch.context_images[:MAX_SHOWN, i]) for i in range(len(batch.contexts))]
    columns.append(("truth", batch.target_images[:MAX_SHOWN, 0]))

    def predict(network: torch.nn.Module) -> tuple[Tensor, list[str]]:
        predicted = nvs_scorer.make_predictor(network)(batch)[:, :1]
        values = psnr(batch.target_images[:, :1], predicted)[:MAX_SHOWN]
        return predicted[:MAX_SHOWN, 0], [f"{value:.1f} dB" for value in values]

    write_sheet(study, out, columns, predict, f"predictions_{setting.replace(GROUP, '_')}.png")


def draw_group_differences(result: dict[str, Any], out: Path, metric: str = "psnr") -> None:
    """Write a figure of the differences between rows, a panel per group of columns."""
    groups = {name: part["differences"] for name, part in split_groups(result).items()}
    if any(groups.values()):
        write_png(draw_differences(groups, metric, LIGHT), out / "differences.png")


def draw_reconstructions(study: Study, result: dict[str, Any], out: Path) -> None:
    """Write a plot for each metric, and depth maps along the ray of a fisheye among pinholes, with relative errors."""
    write_metrics(result, out, draw_bars)
    assert isinstance(study.scorer, reconstruction_scorer.RoomsScorer)
    batch = next(study.scorer.make_batches(DEPTH_SETTING))
    truth, valid = batch.ray_depth[:MAX_SHOWN, FISHEYE_VIEW], batch.valid[:MAX_SHOWN, FISHEYE_VIEW]
    far = truth.amax((-2, -1), keepdim=True)
    columns = [
        ("fisheye view", batch.images[:MAX_SHOWN, FISHEYE_VIEW]),
        ("true depth", color_depth(truth / far, valid)),
    ]

    def predict(network: torch.nn.Module) -> tuple[Tensor, list[str]]:
        points = reconstruction_scorer.make_predictor(network)(batch).camera_points
        predicted = points.norm(dim=-1)[:MAX_SHOWN, FISHEYE_VIEW]
        scale = (truth * valid).sum((-2, -1)) / (predicted * valid).sum((-2, -1))
        predicted = predicted * scale[:, None, None]
        errors = relative_error(truth[..., None], predicted[..., None], valid)
        return color_depth(predicted / far, valid), [f"{value:.3f}" for value in errors]

    write_sheet(study, out, columns, predict, f"depth_{DEPTH_SETTING}.png")


@torch.no_grad()
def write_sheet(
    study: Study,
    out: Path,
    columns: Columns,
    predict: Callable[[torch.nn.Module], tuple[Tensor, list[str]]],
    name: str,
) -> None:
    """Write a sheet of given columns and one per method: the prediction of its first network, labeled with scores."""
    labels = {}
    for method, recipe in study.methods.items():
        network = load_network(recipe, study.make_job(out, method, 0).network)
        images, labels[method] = predict(network)
        columns.append((method, images))
    write_png(draw_contact_sheet(columns, labels, LIGHT), out / name)


SHOWN_INPUTS = 4


def draw_point_clouds(rows: Sequence[PointCloudRow], theme: Theme) -> Figure:
    """Draw a row per set: some of the given images, the true points and those of every model."""
    columns = ["inputs", *rows[0].clouds]
    with use_theme(theme):
        figure = new_figure(2.6 * len(columns), 2.1 * len(rows) + 0.3)
        grid: Any = figure.subplots(len(rows), len(columns), squeeze=False)
        for line, row in zip(grid, rows, strict=True):
            pictures = [_tile_inputs(row.inputs), *row.clouds.values()]
            for axes, column, picture in zip(line, columns, pictures, strict=True):
                axes.set_xticks([])
                axes.set_yticks([])
                if picture is None:
                    axes.text(0.5, 0.5, "no prediction", ha="center", va="center", color=theme.faint)
                else:
                    axes.imshow(picture.clip(0, 1))
                if row is rows[0]:
                    axes.set_title(column, fontsize=9)
            line[0].set_ylabel(row.title, fontsize=7)
        return figure


def _tile_inputs(images: Sequence[np.ndarray]) -> np.ndarray:
    """Put images evenly spread over a set into a square grid."""
    count = min(SHOWN_INPUTS, len(images))
    chosen = [images[round(i * (len(images) - 1) / max(1, count - 1))] for i in range(count)]
    across = int(np.ceil(np.sqrt(count)))
    chosen += [np.ones_like(chosen[0])] * (-count % across)
    lines = [np.concatenate(chosen[i : i + across], axis=1) for i in range(0, len(chosen), across)]
    return np.concatenate(lines, axis=0)
