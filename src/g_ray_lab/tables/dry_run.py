"""Dry runs of tables: do every kind of work once on the real data, and estimate time, memory and disk of the whole.

A part of a table is a training step of a row, the scoring of a network, or a set of views of a model on a protocol. It
is prepared (data opened, network built) and then run once; a table tells how often it repeats it.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from g_ray.runtime.device import choose_device
from g_ray_lab.bench.bench_reconstruction import ResidentMemory
from g_ray_lab.datasets.dataset_registry import DATASETS
from g_ray_lab.scoring.comparison import Column, Contender, make_evaluation
from g_ray_lab.scoring.evaluation_run import LoadedViews, SetRunner
from g_ray_lab.scoring.scored_runs import Scorer
from g_ray_lab.scoring.store import Shard
from g_ray_lab.scoring.study_job import Job, load_network
from g_ray_lab.scoring.table_writer import format_grid
from g_ray_lab.training.distributed import World
from g_ray_lab.training.engine import CHECKPOINT_COPIES
from g_ray_lab.training.learner import Learner
from g_ray_lab.training.recipe import Run

GIB = 2**30
SHORT_S = 5.0
"""Seconds of a training step up to which it is done twice: the first one also loads kernels and allocates memory."""


@dataclass(frozen=True)
class Unit:
    """Work that a table repeats; how often, and what the whole leaves on disk, may be known only after `run`."""

    run: Callable[[], object]
    count: Callable[[], float]
    disk_bytes: Callable[[], float] = lambda: 0
    has_warmup: bool = False


@dataclass(frozen=True)
class Part:
    """A named unit; `prepare` opens data and builds the network, and is not timed."""

    name: str
    prepare: Callable[[], Unit]


@dataclass(frozen=True)
class PartCost:
    """What was measured of one part."""

    name: str
    seconds: float
    count: float
    memory_bytes: int
    disk_bytes: float

    @property
    def hours(self) -> float:
        return self.seconds * self.count / 3600


def run_dry(parts: Iterable[Part], report: Callable[[str], None]) -> None:
    """Measure all parts and report a table of costs; ValueError names the parts that cannot be run."""
    costs, problems = [], []
    for part in parts:
        report(part.name)
        try:
            costs.append(measure_cost(part))
        except (ValueError, OSError) as error:
            problems.append(f"{part.name}: {' '.join(str(error).split())}")
            report(problems[-1])
    if costs:
        report(f"\n{format_costs(costs)}\n")
    if problems:
        raise ValueError(
            f"{len(problems)} of {len(problems) + len(costs)} parts cannot be run: {problems[0]}"
        )


def measure_cost(part: Part) -> PartCost:
    """Run a part once and measure it."""
    cuda, resident = torch.cuda.is_available(), ResidentMemory()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    elif resident.is_available():
        resident.reset()
    unit = part.prepare()
    seconds = _time_run(unit)
    if unit.has_warmup and seconds < SHORT_S:
        seconds = _time_run(unit)
    if cuda:
        memory = torch.cuda.max_memory_allocated()
    else:
        memory = resident.read_peak() if resident.is_available() else 0
    return PartCost(part.name, seconds, float(unit.count()), memory, float(unit.disk_bytes()))


def _time_run(unit: Unit) -> float:
    started = time.perf_counter()
    unit.run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def format_costs(costs: Sequence[PartCost]) -> str:
    """Format a row per part and their sum: hours if one process does all of it."""
    lines = [
        [
            cost.name,
            f"{cost.seconds:.2f}",
            f"{cost.count:,.0f}",
            f"{cost.hours:,.2f}",
            f"{cost.memory_bytes / GIB:.1f}",
            f"{cost.disk_bytes / GIB:,.2f}",
        ]
        for cost in costs
    ]
    total = ["**all, one after the other**", "", "", f"{sum(cost.hours for cost in costs):,.2f}"]
    total += [f"{max(cost.memory_bytes for cost in costs) / GIB:.1f}"]
    total += [f"{sum(cost.disk_bytes for cost in costs) / GIB:,.2f}"]
    head = ["part", "seconds", "times", "hours", "memory, GiB", "disk, GiB"]
    return format_grid(head, [*lines, total])


# Networks that are trained


def prepare_training(job: Job, seeds: int, device: str) -> Unit:
    """Build a row's network, make a batch and take steps with it."""
    recipe, kept = job.recipe, Run.keep + 1  # the newest checkpoints, and the best one
    torch.manual_seed(recipe.seed)
    task = recipe.build_task()
    if job.features is not None:
        task.use_cache(job.features, int(Run.cache_gb * 1e9))
    learner = Learner(task, recipe, Run(device=device), World(0, 1, choose_device(device)))
    weights = sum(p.numel() * p.element_size() for p in learner.model.parameters())

    def step() -> None:
        fault = learner.update(task.make_batch(0, 0, 1), 0)
        if fault is not None:
            raise ValueError(f"the first step fails: {fault}")

    return Unit(
        step,
        lambda: seeds * recipe.schedule.steps,
        lambda: seeds * weights * (1 + kept * CHECKPOINT_COPIES),
        has_warmup=True,
    )


@dataclass(frozen=True)
class FirstBatch(Shard):
    """The share with the first batch of every setting, which also counts all batches."""

    asked: list[int] = field(default_factory=list)

    def takes(self, position: int) -> bool:
        self.asked.append(position)
        return position == 0

    def compute_ratio(self) -> float:
        """Return the number of all batches in units of those of this share."""
        return len(self.asked) / max(1, self.asked.count(0))


def prepare_scoring(job: Job, seeds: int, device: str) -> Unit:
    """Score the first batch of every setting with a row's network: the finished one, or one with random weights."""
    if job.network.is_file():
        network: nn.Module = load_network(job.recipe, job.network, device)
    else:
        torch.manual_seed(job.recipe.seed)
        network = job.recipe.build_model().eval().to(device)
    first = FirstBatch()
    return Unit(lambda: job.scorer.score_share(network, first), lambda: seeds * first.compute_ratio())


def prepare_references(scorer: Scorer) -> Unit:
    """Score the first batch of every setting without a network."""
    first = FirstBatch()
    return Unit(lambda: scorer.score_reference_shares(first), first.compute_ratio)


# Finished models on protocols


def list_cell_parts(
    rows: Mapping[str, Contender], columns: Mapping[str, Column], out: Path, keep: bool = False
) -> Iterator[Part]:
    """Yield a part for every row and column."""
    for name, column in columns.items():
        for row, contender in rows.items():
            given = (row, contender, name, column, out, keep)
            yield Part(f"{row} on {name}", partial(prepare_set, *given))


def prepare_set(row: str, contender: Contender, name: str, column: Column, out: Path, keep: bool) -> Unit:
    """Predict and score the set with the most views of the first scene that is there."""
    if not column.data.is_dir():
        download = DATASETS[column.protocol.dataset].download
        raise ValueError(f"{column.data}: no such folder; g-ray data prepare {download} makes it")
    scenes = column.list_scenes()
    evaluation = make_evaluation(row, contender, 0, name, column, out, keep)
    evaluation = replace(evaluation, limits=replace(column.limits, scenes=tuple(scenes[:1])))
    plan, model = evaluation.make_plan(), evaluation.make_model()
    largest = max(plan.sets, key=lambda one: len(one.views.views))
    runner = SetRunner(evaluation, plan, model, model.digest(), lambda line: None, LoadedViews(max_bytes=0))

    def run() -> None:
        found = runner.run(largest)
        if not found.is_scored:
            raise ValueError(f"{largest.name}: {found.message}")

    networks = len(scenes) * len(contender.settings)
    views = sum(len(one.views.views) for one in plan.sets) / len(largest.views.views)
    return Unit(run, lambda: networks * views, lambda: networks * views * _count_bytes(evaluation.out))


def _count_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def make_unit(run: Callable[[], Any], count: int) -> Callable[[], Unit]:
    """Return what prepares a unit that leaves little on disk."""
    return lambda: Unit(run, lambda: count)
