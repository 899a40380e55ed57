"""Pictures beside the reconstruction table: bars for each metric, and depth maps of a fisheye among pinholes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from g_ray.evaluation.study_runs import Study

MAX_SHOWN = 6  # sets of the contact sheet
SETTING, VIEW = "mixed", 1
"""The second view of a mixed set is a fisheye."""


def draw_pictures(study: "Study", result: dict[str, Any], out: Path) -> None:
    from g_ray.viewer.table_figures import draw_contact_sheet
    from g_ray.viewer.theme import LIGHT, write_png

    draw_metrics(result, out)
    columns, labels = make_contact_sheet(study, out)
    write_png(draw_contact_sheet(columns, labels, LIGHT), out / f"depth_{SETTING}.png")


def draw_metrics(result: dict[str, Any], out: Path) -> None:
    from g_ray.viewer.table_figures import draw_bars
    from g_ray.viewer.theme import LIGHT, write_png

    for metric in result["rows"][0]["metrics"]:
        write_png(draw_bars(result, metric, LIGHT), out / f"{metric}.png")


def make_contact_sheet(study: "Study", out: Path) -> tuple[list[Any], dict[str, list[str]]]:
    """The image, its true depth along the ray, and what every method's first network says, with its error."""
    from g_ray.evaluation.reconstruction import RoomsScorer, make_predictor
    from g_ray.evaluation.study_runs import load_network
    from g_ray.metrics.reconstruction import relative_error
    from g_ray.viewer.colors import color_depth

    assert isinstance(study.scorer, RoomsScorer)
    batch = next(study.scorer.make_batches(SETTING))
    truth, valid = batch.ray_depth[:MAX_SHOWN, VIEW], batch.valid[:MAX_SHOWN, VIEW]
    far = truth.amax((-2, -1), keepdim=True)
    columns = [
        ("fisheye view", batch.images[:MAX_SHOWN, VIEW]),
        ("true depth", color_depth(truth / far, valid)),
    ]
    labels = {}
    for method, recipe in study.methods.items():
        network = load_network(recipe, study.get_run_folder(out, method, 0) / "model.safetensors")
        predicted = make_predictor(network)(batch).camera_points.norm(dim=-1)[:MAX_SHOWN, VIEW]
        scale = (truth * valid).sum((-2, -1)) / (predicted * valid).sum((-2, -1))
        predicted = predicted * scale[:, None, None]
        columns.append((method, color_depth(predicted / far, valid)))
        labels[method] = [
            f"{value:.3f}" for value in relative_error(truth[..., None], predicted[..., None], valid)
        ]
    return columns, labels
