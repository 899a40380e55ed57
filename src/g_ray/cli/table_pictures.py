"""Pictures beside a table: a plot for each metric, and a contact sheet of predictions."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from g_ray.evaluation.nvs_protocol import NVSProtocol
    from g_ray.evaluation.study_runs import Study

SHOWN = 6  # scenes of the contact sheet


def draw(study: "Study", result: dict[str, Any], out: Path) -> None:
    from g_ray.viewer.table_figures import draw_bars, draw_contact_sheet, draw_curves
    from g_ray.viewer.theme import LIGHT, write_png

    protocol = protocol_of(study)
    plot = draw_curves if protocol.ordered else draw_bars
    for metric in result["rows"][0]["metrics"]:
        write_png(plot(result, metric, LIGHT), out / f"{metric}.png")
    setting = protocol.shown
    columns, labels = contact_sheet(study, setting, out)
    write_png(draw_contact_sheet(columns, labels, LIGHT), out / f"predictions_{setting}.png")


def protocol_of(study: "Study") -> "NVSProtocol":
    from g_ray.evaluation.nvs_scorer import NVSScorer

    assert isinstance(study.scorer, NVSScorer)
    return study.scorer.protocol


def contact_sheet(study: "Study", setting: str, out: Path) -> tuple[list[Any], dict[str, list[str]]]:
    """Contexts, first target and every method's first network on a few test scenes, with PSNR per image."""
    import torch

    from g_ray.evaluation.nvs_scorer import predictor
    from g_ray.evaluation.study_runs import load_network
    from g_ray.metrics.psnr import psnr

    batch = next(protocol_of(study).batches(setting))
    columns = [(f"context {i + 1}", batch.context_images[:SHOWN, i]) for i in range(len(batch.contexts))]
    columns.append(("truth", batch.target_images[:SHOWN, 0]))
    labels = {}
    for method, recipe in study.methods.items():
        network = load_network(recipe, study.run_folder(out, method, 0) / "model.safetensors")
        with torch.no_grad():
            predicted = predictor(network)(batch)[:, :1]
        columns.append((method, predicted[:SHOWN, 0]))
        labels[method] = [f"{value:.1f} dB" for value in psnr(batch.target_images[:, :1], predicted)[:SHOWN]]
    return columns, labels
