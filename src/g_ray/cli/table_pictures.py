"""Pictures beside a table: a plot for each metric, and a contact sheet of predictions."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from g_ray.evaluation.nvs_protocol import NVSProtocol
    from g_ray.evaluation.study_runs import Study

MAX_SHOWN = 6  # scenes of the contact sheet


def draw_pictures(study: "Study", result: dict[str, Any], out: Path) -> None:
    from g_ray.viewer.table_figures import draw_bars, draw_contact_sheet, draw_curves
    from g_ray.viewer.theme import LIGHT, write_png

    protocol = get_protocol(study)
    plot = draw_curves if protocol.is_ordered else draw_bars
    for metric in result["rows"][0]["metrics"]:
        write_png(plot(result, metric, LIGHT), out / f"{metric}.png")
    setting = protocol.shown_setting
    columns, labels = make_contact_sheet(study, setting, out)
    write_png(draw_contact_sheet(columns, labels, LIGHT), out / f"predictions_{setting}.png")


def get_protocol(study: "Study") -> "NVSProtocol":
    from g_ray.evaluation.nvs_scorer import NVSScorer

    assert isinstance(study.scorer, NVSScorer)
    return study.scorer.protocol


def make_contact_sheet(study: "Study", setting: str, out: Path) -> tuple[list[Any], dict[str, list[str]]]:
    """Contexts, first target and every method's first network on a few test scenes, with PSNR per image."""
    import torch

    from g_ray.evaluation.nvs_scorer import make_predictor
    from g_ray.evaluation.study_runs import load_network
    from g_ray.metrics.psnr import psnr

    batch = next(get_protocol(study).make_batches(setting))
    columns = [(f"context {i + 1}", batch.context_images[:MAX_SHOWN, i]) for i in range(len(batch.contexts))]
    columns.append(("truth", batch.target_images[:MAX_SHOWN, 0]))
    labels = {}
    for method, recipe in study.methods.items():
        network = load_network(recipe, study.get_run_folder(out, method, 0) / "model.safetensors")
        with torch.no_grad():
            predicted = make_predictor(network)(batch)[:, :1]
        columns.append((method, predicted[:MAX_SHOWN, 0]))
        labels[method] = [
            f"{value:.1f} dB" for value in psnr(batch.target_images[:, :1], predicted)[:MAX_SHOWN]
        ]
    return columns, labels
