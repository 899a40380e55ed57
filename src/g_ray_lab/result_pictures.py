"""Pictures beside result tables: sheets of predictions and objects, maps of attention, clouds of points."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from g_ray_lab.figures import draw_bars, draw_curves, draw_differences, write_metrics
from g_ray_lab.metrics.image_metrics import psnr
from g_ray_lab.scoring import nvs_scorer, reconstruction_scorer
from g_ray_lab.scoring.point_pictures import PointCloudRow
from g_ray_lab.scoring.scored_runs import GROUP
from g_ray_lab.scoring.study import Study
from g_ray_lab.scoring.study_job import load_network
from g_ray_lab.scoring.table_writer import split_groups

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
