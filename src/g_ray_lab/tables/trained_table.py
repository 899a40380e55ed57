"""A table as a command: train its rows, score them, and write result.json, table.md and pictures."""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from g_ray_lab.scoring.nvs_scorer import NVSProtocol
    from g_ray_lab.scoring.study_runs import Effort, Study

SAVE_EVERY = {"small": 250, "paper": 2500}
"""Steps between checkpoints. One of the paper's networks has 568 MB."""

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
    workers: int | None = None
    """Processes that make batches for each network; if not given, the networks' share of the cores beside GPUs, else
    none."""
    save_every: int | None = None
    """Steps between checkpoints; if not given 250 at small scale, 2,500 at paper scale."""
    compile: bool = False
    """Compile the networks' blocks with torch.compile: minutes at the start, then faster on a GPU."""
    score: bool = True
    """Score the networks and write the table. With --no-score they are only trained, e.g. to be scored in shares."""
    shard: str | None = None
    """Share of the scoring of finished networks, e.g. 2/8, for several processes on any machines; or start all with
    torchrun. The last one writes the table."""

    @abstractmethod
    def build_study(self) -> "Study":
        """Return the rows to train and the scorer."""

    def choose_networks(self, study: "Study") -> "Study":
        """Return the study, perhaps with networks that were given instead of its rows."""
        return study

    @abstractmethod
    def draw(self, study: "Study", result: dict[str, Any]) -> None:
        """Write the pictures beside the table."""

    def run(self) -> None:
        from g_ray.cli.text import ProgressLine
        from g_ray.runtime.files import write_atomically, write_json
        from g_ray.runtime.out_folder import claim_out
        from g_ray.runtime.provenance import collect_provenance
        from g_ray_lab.scoring.study_runs import run_study

        claim_out(self.out, "reproduce", ours=is_study_folder(self.out))
        effort = self._choose_effort()
        study = self.choose_networks(self.build_study())
        study = limit_steps(select_methods(study, self.methods), self.steps)
        if self.compile:
            study = replace(study, methods={n: replace(r, compile=True) for n, r in study.methods.items()})
        result = run_study(study, self.out, self.seeds, effort, ProgressLine())
        if result is None:
            shard = effort.shard
            share = f"share {shard.number} of {shard.count} is scored: the last process writes the table"
            print(f"\n{share if self.score else 'trained, not scored'}")
            return
        result["provenance"] = collect_provenance()
        tables = describe_limits(result) + format_tables(result)
        write_json(self.out / "result.json", result)
        write_atomically(self.out / "table.md", tables + "\n")
        if "early" in result:
            write_atomically(self.out / "early.md", format_early_tables(result) + "\n")
        self.draw(study, result)
        print(f"{tables}\n\n{self.out / 'result.json'} and pictures beside it")

    def _choose_effort(self) -> "Effort":
        import os

        from g_ray_lab.scoring.shard import Shard
        from g_ray_lab.scoring.study_runs import Effort, choose_job_count, list_devices

        shard, devices = Shard.parse(self.shard), list_devices()
        if shard.count > 1:  # torchrun has one process per GPU of a machine
            devices = [devices[int(os.environ.get("LOCAL_RANK", "0")) % len(devices)]]
        jobs = choose_job_count(devices) if self.jobs is None and shard.count == 1 else self.jobs or 1
        save_every = SAVE_EVERY[self.scale] if self.save_every is None else self.save_every
        return Effort(jobs, devices, self.workers, save_every, shard, self.score)


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


def describe_limits(result: dict[str, Any]) -> str:
    """Return a line on what was left out to try things out, or because it has no score, or nothing."""
    protocol = result["settings"].get("protocol")
    limit = protocol.get("limit") if isinstance(protocol, dict) else None
    line = "" if limit is None else f"Scored on the first {limit} test scenes only.\n\n"
    unscored = {row["setting"]: max(row["unscored"].values()) for row in result["rows"] if "unscored" in row}
    if unscored:
        listed = ", ".join(f"{setting} ({count})" for setting, count in unscored.items())
        line += f"Scenes without a valid pixel are not in the means: {listed}.\n\n"
    return line


def format_tables(result: dict[str, Any]) -> str:
    """Format a table per group of columns and metric, each followed by its differences if rows are compared, and by
    the changes along its columns if they were computed."""
    from g_ray_lab.scoring.study import (
        format_changes_markdown,
        format_differences_markdown,
        format_markdown,
        split_groups,
    )

    seeds = sorted({row["seeds"] for row in result["rows"] if "seeds" in row})
    parts = [f"Seeds per row: {' to '.join(map(str, seeds))}."] if seeds else []
    for group, part in split_groups(result).items():
        for metric in result["rows"][0]["metrics"]:
            digits = choose_digits(metric)
            parts.append(format_markdown(part, metric, digits, group))
            if part["differences"]:
                parts.append(format_differences_markdown(part, metric, digits, group))
            if part["changes"]:
                parts.append(format_changes_markdown(part, metric, digits, group))
    return "\n\n".join(parts)


def format_early_tables(result: dict[str, Any]) -> str:
    """Format the tables of networks that were scored during their training, under a heading for each step."""
    parts = [f"#### After {part['steps']} steps\n\n{format_tables(part)}" for part in result["early"]]
    return "\n\n".join(parts)


def choose_digits(metric: str) -> int:
    """Return the decimals that a metric is printed with."""
    return 2 if metric == "psnr" or metric.endswith("_deg") else 3


def select_methods(study: "Study", methods: tuple[str, ...]) -> "Study":
    """Return the study with only these rows, in its own order."""
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
    """Write a plot for each metric, and the views that the networks of a synthesis table predict.

    Of groups of columns the first is plotted; a figure of the differences shows all of them.
    """
    from g_ray.viewer.contact_sheet import draw_contact_sheet
    from g_ray.viewer.theme import LIGHT, write_png
    from g_ray_lab.figures.table_figures import draw_bars, draw_curves
    from g_ray_lab.scoring.study import GROUP, split_groups

    protocol = get_protocol(study)
    plot = draw_curves if protocol.is_ordered else draw_bars
    groups = split_groups(result)
    for metric in result["rows"][0]["metrics"]:
        write_png(plot(next(iter(groups.values())), metric, LIGHT), out / f"{metric}.png")
    if len(groups) > 1:
        draw_group_differences(result, out)
    setting = protocol.shown_setting
    columns, labels = make_view_sheet(study, setting, out)
    picture = f"predictions_{setting.replace(GROUP, '_')}.png"
    write_png(draw_contact_sheet(columns, labels, LIGHT), out / picture)


def draw_group_differences(result: dict[str, Any], out: Path, metric: str = "psnr") -> None:
    """Write a figure of the differences between rows, a panel per group of columns."""
    from g_ray.viewer.theme import LIGHT, write_png
    from g_ray_lab.figures.table_figures import draw_differences
    from g_ray_lab.scoring.study import split_groups

    groups = {name: part["differences"] for name, part in split_groups(result).items()}
    if any(groups.values()):
        write_png(draw_differences(groups, metric, LIGHT), out / "differences.png")


def get_protocol(study: "Study") -> "NVSProtocol":
    """Return the protocol of a synthesis study."""
    from g_ray_lab.scoring.nvs_scorer import NVSScorer

    assert isinstance(study.scorer, NVSScorer)
    return study.scorer.protocol


def make_view_sheet(study: "Study", setting: str, out: Path) -> tuple[list[Any], dict[str, list[str]]]:
    """Return the columns of the sheet (contexts, first target, prediction of every method's first network) and the PSNR
    of each prediction."""
    import torch

    from g_ray_lab.metrics.image_metrics import psnr
    from g_ray_lab.scoring.nvs_scorer import make_predictor
    from g_ray_lab.scoring.study_runs import load_network

    batch = next(get_protocol(study).make_batches(setting))
    columns = [(f"context {i + 1}", batch.context_images[:MAX_SHOWN, i]) for i in range(len(batch.contexts))]
    columns.append(("truth", batch.target_images[:MAX_SHOWN, 0]))
    labels = {}
    for method, recipe in study.methods.items():
        network = load_network(recipe, study.get_weights_file(out, method, 0))
        with torch.no_grad():
            predicted = make_predictor(network)(batch)[:, :1]
        columns.append((method, predicted[:MAX_SHOWN, 0]))
        labels[method] = [
            f"{value:.1f} dB" for value in psnr(batch.target_images[:, :1], predicted)[:MAX_SHOWN]
        ]
    return columns, labels


def draw_reconstructions(study: "Study", result: dict[str, Any], out: Path) -> None:
    """Write a plot for each metric, and depth maps of a fisheye among pinholes."""
    from g_ray.viewer.contact_sheet import draw_contact_sheet
    from g_ray.viewer.theme import LIGHT, write_png

    draw_metrics(result, out)
    columns, labels = make_depth_sheet(study, out)
    write_png(draw_contact_sheet(columns, labels, LIGHT), out / f"depth_{DEPTH_SETTING}.png")


def draw_metrics(result: dict[str, Any], out: Path) -> None:
    """Write bars for each metric."""
    from g_ray.viewer.theme import LIGHT, write_png
    from g_ray_lab.figures.table_figures import draw_bars

    for metric in result["rows"][0]["metrics"]:
        write_png(draw_bars(result, metric, LIGHT), out / f"{metric}.png")


def make_depth_sheet(study: "Study", out: Path) -> tuple[list[Any], dict[str, list[str]]]:
    """Return the columns of the sheet (image, true depth along the ray, depth of every method's first network) and the
    relative error of each prediction."""
    from g_ray.reconstruction.set_metrics import relative_error
    from g_ray.viewer.colors import color_depth
    from g_ray_lab.scoring.reconstruction_scorer import RoomsScorer, make_predictor
    from g_ray_lab.scoring.study_runs import load_network

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
        network = load_network(recipe, study.get_weights_file(out, method, 0))
        predicted = make_predictor(network)(batch).camera_points.norm(dim=-1)[:MAX_SHOWN, FISHEYE_VIEW]
        scale = (truth * valid).sum((-2, -1)) / (predicted * valid).sum((-2, -1))
        predicted = predicted * scale[:, None, None]
        columns.append((method, color_depth(predicted / far, valid)))
        labels[method] = [
            f"{value:.3f}" for value in relative_error(truth[..., None], predicted[..., None], valid)
        ]
    return columns, labels
