"""Tables of networks that are trained for them: rows are recipes, columns the settings of a scorer."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g_ray_lab.tables.paper_table import Measured, Scale, SharedTable

if TYPE_CHECKING:
    from g_ray_lab.cluster import Task
    from g_ray_lab.scoring.study import Effort, Study
    from g_ray_lab.tables.dry_run import Part

SAVE_EVERY = {"small": 250, "paper": 2500}
"""Steps between checkpoints. One of the paper's networks has 568 MB."""


@dataclass(frozen=True)
class TrainedTable(SharedTable):
    """Options that all tables of trained networks have."""

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
    """Processes that make batches for each network; if not given, the networks' share of the cores for GPUs, else
    none."""
    save_every: int | None = None
    """Steps between checkpoints; if not given 250 at small scale, 2,500 at paper scale."""
    compile: bool = False
    """Compile the networks' blocks with torch.compile: minutes at the start, then faster on a GPU."""
    score: bool = True
    """Score the networks and write the table. With --no-score they are only trained, e.g. to be scored in shares."""

    @abstractmethod
    def build_study(self) -> "Study":
        """Return the rows to train and the scorer."""

    def choose_networks(self, study: "Study") -> "Study":
        """Return the study, perhaps with networks that were given instead of its rows."""
        return study

    @cached_property
    def study(self) -> "Study":
        """The study with the selected rows and steps."""
        study = select_methods(self.choose_networks(self.build_study()), self.methods)
        recipes = study.methods
        if self.steps is not None:
            recipes = {name: limit_steps(recipe, self.steps) for name, recipe in recipes.items()}
        if self.compile:
            recipes = {name: replace(recipe, compile=True) for name, recipe in recipes.items()}
        return replace(study, methods=recipes)

    def measure(self) -> Measured | None:
        from g_ray.runtime.files import write_atomically
        from g_ray.runtime.progress import ProgressLine
        from g_ray.viewer.theme import LIGHT, write_png
        from g_ray_lab.figures import draw_training
        from g_ray_lab.scoring.study import run_study
        from g_ray_lab.scoring.table_writer import describe_limits, format_trained_tables

        effort = self._choose_effort()
        result = run_study(self.study, self.out, self.seeds, effort, ProgressLine())
        if result is None:
            return self.report_share(effort.shard) if self.score else print("\ntrained, not scored")
        if "early" in result:
            write_atomically(self.out / "early.md", format_early_tables(result) + "\n")
            write_png(draw_training(result, LIGHT), self.out / "training.png")
        return Measured(result, describe_limits(result) + format_trained_tables(result))

    def draw(self, result: dict[str, Any]) -> None:
        """Write bars for each metric."""
        from g_ray_lab.figures import draw_bars, write_metrics

        write_metrics(result, self.out, draw_bars)

    def list_parts(self) -> "Iterator[Part]":
        """Yield a step and the scoring of every row, and of rows without training."""
        from g_ray_lab.scoring.study import list_devices
        from g_ray_lab.tables.dry_run import Part, prepare_references, prepare_scoring, prepare_training

        study, device = self.study, list_devices()[0]
        for method in study.methods:
            job = study.make_job(self.out, method, 0)
            if job.weights is None and study.networks is None:
                yield Part(f"train {method}", partial(prepare_training, job, self.seeds, device))
            yield Part(f"score {method}", partial(prepare_scoring, job, self.seeds, device))
        for prefix, scorer in study.find_reference_scorers().items():
            yield Part(f"score {prefix}references", partial(prepare_references, scorer))

    def list_tasks(self) -> "list[Task]":
        """Return a task per network, which trains and scores it."""
        alone = replace(self, cluster="none", shard="1/1", jobs=1)
        networks = len(self.study.list_jobs(self.out, self.seeds))
        return [partial(alone.run_network, number) for number in range(networks)]

    def run_network(self, number: int) -> None:
        """Train and score one network of all."""
        from g_ray_lab.scoring.study import train_and_score

        effort = self._choose_effort()
        train_and_score(self.study.list_jobs(self.out, self.seeds)[number], effort, effort.devices[0])

    def _choose_effort(self) -> "Effort":
        from g_ray.runtime.device import read_local_rank
        from g_ray_lab.scoring.store import Shard
        from g_ray_lab.scoring.study import Effort, choose_job_count, list_devices

        shard, devices = Shard.parse(self.shard), list_devices()
        if shard.count > 1:  # torchrun has one process per GPU of a machine
            devices = [devices[read_local_rank() % len(devices)]]
        jobs = choose_job_count(devices) if self.jobs is None and shard.count == 1 else self.jobs or 1
        save_every = SAVE_EVERY[self.scale] if self.save_every is None else self.save_every
        return Effort(jobs, devices, self.workers, save_every, shard, self.score)


def format_early_tables(result: dict[str, Any]) -> str:
    """Format the tables of networks that were scored during their training, under a heading for each step."""
    from g_ray_lab.scoring.table_writer import format_trained_tables

    parts = [f"#### After {part['steps']} steps\n\n{format_trained_tables(part)}" for part in result["early"]]
    return "\n\n".join(parts)


def select_methods(study: "Study", methods: tuple[str, ...]) -> "Study":
    """Return the study with only these rows, in its own order."""
    unknown = [method for method in methods if method not in study.methods]
    if unknown:
        raise ValueError(f"no row {', '.join(unknown)} in {study.name}: it has {', '.join(study.methods)}")
    kept = {name: recipe for name, recipe in study.methods.items() if not methods or name in methods}
    return replace(study, methods=kept)


def limit_steps(recipe: Any, steps: int) -> Any:
    """Return the recipe with another number of steps."""
    warmup = min(recipe.schedule.warmup, steps // 2)
    return replace(recipe, schedule=replace(recipe.schedule, steps=steps, warmup=warmup))
