"""Contact sheets of what the networks of a study predict: views, or depth maps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from g_ray.reconstruction.set_metrics import relative_error
from g_ray.viewer.colors import color_depth
from g_ray.viewer.contact_sheet import draw_contact_sheet
from g_ray.viewer.theme import LIGHT, write_png
from g_ray_lab.figures.table_figures import draw_bars, draw_curves, draw_differences, write_metrics
from g_ray_lab.metrics.image_metrics import psnr
from g_ray_lab.scoring import nvs_scorer, reconstruction_scorer
from g_ray_lab.scoring.averages import GROUP
from g_ray_lab.scoring.study import Study, load_network
from g_ray_lab.scoring.table_writer import split_groups

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
