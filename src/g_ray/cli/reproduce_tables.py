"""A table as a command: train its rows, score them, and write result.json, table.md and pictures."""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from g_ray.runtime import renamed

if TYPE_CHECKING:
    from g_ray.evaluation.nvs import NVSProtocol
    from g_ray.evaluation.study_runs import Study

Scale = Literal["small", "paper"]


@dataclass(frozen=True)
class Table(ABC):
    """Options that all tables have."""

    out: Path
    """Folder for runs, result.json, table.md and pictures; finished runs in it are reused."""
    scale: Scale = "small"
    """small: images of a few dozen pixels, minutes per network on a CPU. paper: the settings of the paper, for GPUs."""
    seeds: int = 2
    """Networks per row."""
    steps: int | None = None
    """Steps per network instead of the recipe's; the schedule is shortened with them. Use another --out."""
    jobs: int | None = None
    """Networks trained at the same time; one per GPU, or per core without a GPU, if not given."""
    methods: tuple[str, ...] = ()
    """Only these rows; all if none is given. Finished runs of other rows in the folder are kept."""

    @abstractmethod
    def build_study(self) -> "Study":
        """Return the rows to train and the scorer."""

    @abstractmethod
    def draw(self, study: "Study", result: dict[str, Any]) -> None:
        """Write the pictures beside the table."""

    def run(self) -> None:
        from g_ray.cli.text import ProgressLine
        from g_ray.evaluation.study_runs import choose_job_count, list_devices, run_study
        from g_ray.runtime.files import write_atomically, write_json
        from g_ray.runtime.out_folder import claim_out
        from g_ray.runtime.provenance import collect_provenance

        claim_out(self.out, "reproduce", ours=is_study_folder(self.out))
        study = limit_steps(select_methods(self.build_study(), self.methods), self.steps)
        devices = list_devices()
        jobs = choose_job_count(devices) if self.jobs is None else self.jobs
        result = run_study(study, self.out, self.seeds, jobs=jobs, devices=devices, progress=ProgressLine())
        result["provenance"] = collect_provenance()
        tables = format_tables(result)
        write_json(self.out / "result.json", result)
        write_atomically(self.out / "table.md", tables + "\n")
        if "early" in result:
            write_atomically(self.out / "early.md", format_early_tables(result) + "\n")
        self.draw(study, result)
        print(f"{tables}\n\n{self.out / 'result.json'} and pictures beside it")


def is_study_folder(folder: Path) -> bool:
    """Return whether an earlier run of a study, perhaps of an earlier version, has made a folder."""
    # Scored on a frozen index, which `g-ray data objects-index` may have put there before the first run.
    if any(folder.glob("runs/*/checkpoints")) or (folder / "index" / "novel.json").is_file():
        return True
    try:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(result, dict) and {"name", "scale", "rows", "provenance"} <= set(result)


def format_tables(result: dict[str, Any]) -> str:
    """Format a table per metric, each followed by its differences if rows are compared."""
    from g_ray.evaluation.study import format_differences_markdown, format_markdown

    parts = []
    for metric in result["rows"][0]["metrics"]:
        digits = choose_digits(metric)
        parts.append(format_markdown(result, metric, digits))
        if result["differences"]:
            parts.append(format_differences_markdown(result, metric, digits))
    return "\n\n".join(parts)


def format_early_tables(result: dict[str, Any]) -> str:
    """Format the tables of networks that were scored during their training, under a heading for each step."""
    parts = [f"### After {part['steps']} steps\n\n{format_tables(part)}" for part in result["early"]]
    return "\n\n".join(parts)


def choose_digits(metric: str) -> int:
    """Return the decimals that a metric is printed with."""
    return 2 if metric == "psnr" or metric.endswith("_deg") else 3


def select_methods(study: "Study", methods: tuple[str, ...]) -> "Study":
    """Return the study with only these rows, in its own order; methods may have names of earlier versions."""
    methods = tuple(renamed.METHODS.get(method, method) for method in methods)
    unknown = [method for method in methods if method not in study.methods]
    if unknown:
        raise ValueError(f"no row {', '.join(unknown)} in {study.name}: it has {', '.join(study.methods)}")
    kept = {name: recipe for name, recipe in study.methods.items() if not methods or name in methods}
    return replace(study, methods=kept)


def limit_steps(study: "Study", steps: int | None) -> "Study":
    """Return the study with another number of steps in all its recipes."""
    if steps is None:
        return study
    methods = {
        name: replace(
            recipe,
            schedule=replace(recipe.schedule, steps=steps, warmup=min(recipe.schedule.warmup, steps // 2)),
        )
        for name, recipe in study.methods.items()
    }
    return replace(study, methods=methods)


# Pictures beside a table: a plot for each metric, and a contact sheet of predictions.


MAX_SHOWN = 6  # scenes or sets of a contact sheet
DEPTH_SETTING, FISHEYE_VIEW = "mixed", 1  # the second view of a mixed set is a fisheye


def draw_views(study: "Study", result: dict[str, Any], out: Path) -> None:
    """Write a plot for each metric, and the views that the networks of a synthesis table predict."""
    from g_ray.viewer.table_figures import draw_bars, draw_contact_sheet, draw_curves
    from g_ray.viewer.theme import LIGHT, write_png

    protocol = get_protocol(study)
    plot = draw_curves if protocol.is_ordered else draw_bars
    for metric in result["rows"][0]["metrics"]:
        write_png(plot(result, metric, LIGHT), out / f"{metric}.png")
    setting = protocol.shown_setting
    columns, labels = make_view_sheet(study, setting, out)
    write_png(draw_contact_sheet(columns, labels, LIGHT), out / f"predictions_{setting}.png")


def get_protocol(study: "Study") -> "NVSProtocol":
    """Return the protocol of a synthesis study."""
    from g_ray.evaluation.nvs import NVSScorer

    assert isinstance(study.scorer, NVSScorer)
    return study.scorer.protocol


def make_view_sheet(study: "Study", setting: str, out: Path) -> tuple[list[Any], dict[str, list[str]]]:
    """Return the columns of the sheet (contexts, first target, prediction of every method's first network) and the PSNR
    of each prediction."""
    import torch

    from g_ray.evaluation.nvs import make_predictor
    from g_ray.evaluation.study_runs import load_network
    from g_ray.metrics.images import psnr

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


def draw_reconstructions(study: "Study", result: dict[str, Any], out: Path) -> None:
    """Write a plot for each metric, and depth maps of a fisheye among pinholes."""
    from g_ray.viewer.table_figures import draw_contact_sheet
    from g_ray.viewer.theme import LIGHT, write_png

    draw_metrics(result, out)
    columns, labels = make_depth_sheet(study, out)
    write_png(draw_contact_sheet(columns, labels, LIGHT), out / f"depth_{DEPTH_SETTING}.png")


def draw_metrics(result: dict[str, Any], out: Path) -> None:
    """Write bars for each metric."""
    from g_ray.viewer.table_figures import draw_bars
    from g_ray.viewer.theme import LIGHT, write_png

    for metric in result["rows"][0]["metrics"]:
        write_png(draw_bars(result, metric, LIGHT), out / f"{metric}.png")


def make_depth_sheet(study: "Study", out: Path) -> tuple[list[Any], dict[str, list[str]]]:
    """Return the columns of the sheet (image, true depth along the ray, depth of every method's first network) and the
    relative error of each prediction."""
    from g_ray.evaluation.reconstruction import RoomsScorer, make_predictor
    from g_ray.evaluation.study_runs import load_network
    from g_ray.metrics.reconstruction import relative_error
    from g_ray.viewer.colors import color_depth

    assert isinstance(study.scorer, RoomsScorer)
    batch = next(study.scorer.make_batches(DEPTH_SETTING))
    truth, valid = batch.ray_depth[:MAX_SHOWN, FISHEYE_VIEW], batch.valid[:MAX_SHOWN, FISHEYE_VIEW]
    far = truth.amax((-2, -1), keepdim=True)
    columns = [
        ("fisheye view", batch.images[:MAX_SHOWN, FISHEYE_VIEW]),
        ("true depth", color_depth(truth / far, valid)),
    ]
    labels = {}
    for method, recipe in study.methods.items():
        network = load_network(recipe, study.get_run_folder(out, method, 0) / "model.safetensors")
        predicted = make_predictor(network)(batch).camera_points.norm(dim=-1)[:MAX_SHOWN, FISHEYE_VIEW]
        scale = (truth * valid).sum((-2, -1)) / (predicted * valid).sum((-2, -1))
        predicted = predicted * scale[:, None, None]
        columns.append((method, color_depth(predicted / far, valid)))
        labels[method] = [
            f"{value:.3f}" for value in relative_error(truth[..., None], predicted[..., None], valid)
        ]
    return columns, labels
