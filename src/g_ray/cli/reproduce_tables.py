"""A table as a command: train its rows, score them, write result.json, table.md and pictures."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from g_ray.evaluation.nvs import NVSProtocol
    from g_ray.evaluation.study_runs import Study

Scale = Literal["small", "paper"]


@dataclass(frozen=True)
class Table(ABC):
    """How to run a study."""

    out: Path
    """Folder for runs, result.json, table.md and pictures; what is finished there is used again."""
    scale: Scale = "small"
    """small: images of a few dozen pixels, minutes per network on a CPU. paper: as the paper has it, for GPUs."""
    seeds: int = 2
    """Networks per row."""
    steps: int | None = None
    """Steps per network instead of the recipe's, with its whole schedule: a shorter look, in a folder of its own."""
    jobs: int | None = None
    """Networks trained at the same time; one per GPU, or per core without a GPU, if not given."""
    methods: tuple[str, ...] = ()
    """Only these rows; all if none is given. What other calls have finished in the folder is kept."""

    @abstractmethod
    def build_study(self) -> "Study":
        """The rows to train and what they are scored on."""

    @abstractmethod
    def draw(self, study: "Study", result: dict[str, Any]) -> None:
        """Pictures beside the table."""

    def run(self) -> None:
        from g_ray.cli.text import ProgressLine
        from g_ray.evaluation.study_runs import choose_job_count, list_devices, run_study
        from g_ray.runtime.files import write_atomically, write_json
        from g_ray.runtime.provenance import collect_provenance

        study = limit_steps(select_methods(self.build_study(), self.methods), self.steps)
        devices = list_devices()
        jobs = choose_job_count(devices) if self.jobs is None else self.jobs
        result = run_study(study, self.out, self.seeds, jobs=jobs, devices=devices, progress=ProgressLine())
        result["provenance"] = collect_provenance()
        tables = format_tables(result)
        write_json(self.out / "result.json", result)
        write_atomically(self.out / "table.md", tables + "\n")
        self.draw(study, result)
        print(f"{tables}\n\n{self.out / 'result.json'} and pictures beside it")


def format_tables(result: dict[str, Any]) -> str:
    """A table per metric, each with its differences where rows are to be compared."""
    from g_ray.evaluation.study import format_differences_markdown, format_markdown

    parts = []
    for metric in result["rows"][0]["metrics"]:
        digits = 2 if metric in ("psnr", "rays_deg") else 3
        parts.append(format_markdown(result, metric, digits))
        if result["differences"]:
            parts.append(format_differences_markdown(result, metric, digits))
    return "\n\n".join(parts)


def select_methods(study: "Study", methods: tuple[str, ...]) -> "Study":
    """The study with only these rows, in its own order."""
    unknown = [method for method in methods if method not in study.methods]
    if unknown:
        raise ValueError(f"no row {', '.join(unknown)} in {study.name}: it has {', '.join(study.methods)}")
    kept = {name: recipe for name, recipe in study.methods.items() if not methods or name in methods}
    return replace(study, methods=kept)


def limit_steps(study: "Study", steps: int | None) -> "Study":
    if steps is None:
        return study
    methods = {
        name: replace(recipe, schedule=replace(recipe.schedule, steps=steps))
        for name, recipe in study.methods.items()
    }
    return replace(study, methods=methods)


# Pictures beside a table: a plot for each metric, and a contact sheet of predictions.


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
    from g_ray.evaluation.nvs import NVSScorer

    assert isinstance(study.scorer, NVSScorer)
    return study.scorer.protocol


def make_contact_sheet(study: "Study", setting: str, out: Path) -> tuple[list[Any], dict[str, list[str]]]:
    """Contexts, first target and every method's first network on a few test scenes, with PSNR per image."""
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
