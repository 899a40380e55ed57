"""Studies, the tables of trained networks: train every method with every seed, and score all on the same test scenes.

OUT/runs/ROW-seedN/                 a run of the training engine, and scores.json of its network
OUT/scores/ROW-seedN.json           scores of networks that were trained elsewhere
OUT/references.json                 scores of rows without training
OUT/scores.csv.gz                   every score

Finished runs and scores are reused and interrupted runs are resumed, so the same command continues a study after Ctrl-C
or a crash.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import torch

from g_ray.runtime.files import strip_paths
from g_ray.runtime.out_folder import claim_out
from g_ray.runtime.parallel import end_with_parent
from g_ray_lab.scoring.scored_runs import (
    BatchScores,
    ScoredRun,
    Scorer,
    Scores,
    compute_changes,
    compute_differences,
    format_scores_csv,
    join_shares,
    make_rows,
)
from g_ray_lab.scoring.store import WHOLE, Shard, Store
from g_ray_lab.scoring.study_job import Job
from g_ray_lab.scoring.table_writer import write_scores
from g_ray_lab.training.engine import train
from g_ray_lab.training.recipe import Recipe, Run
from g_ray_lab.training.task import choose_workers, count_local

SAVE_EVERY = 250  # steps between checkpoints of small networks: little is lost when a study is interrupted
POLL_S = 2.0  # seconds between updates of the progress line
LOG = "log.txt"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Study:
    """Definition of a table: recipes by row name, and the scorer that defines the columns."""

    name: str
    scale: str
    methods: Mapping[str, Recipe]
    scorer: Scorer
    pairs: tuple[tuple[str, str], ...] = ()
    """Rows to compare scene by scene: (with ray angles, without)."""
    networks: Path | None = None
    """Folder of another study with the same rows, whose networks are scored instead of training new ones."""
    features: Path | None = None
    """Folder for features of a frozen encoder, which all rows and seeds share."""
    weights: Mapping[str, Path] = field(default_factory=dict)
    """Files of networks that are scored as they are, by row; the others are trained."""
    row_scorers: Mapping[str, Scorer] = field(default_factory=dict)
    """Rows that are scored on test scenes of their own, with the columns of `scorer`."""
    reference_scorers: Mapping[str, Scorer] = field(default_factory=dict)
    """Scorers among those of `row_scorers` whose scenes get rows without training too, named with these prefixes."""
    show_changes: bool = False
    """Whether to compute how each row changes from the first column of a group to the others."""
    early: tuple[int, ...] = ()
    """Steps of training after which networks are scored too."""

    def check_early(self) -> None:
        """Raise ValueError for steps at which some network of the study is not in training."""
        if self.early and self.weights:
            raise ValueError(
                f"scores after {self.early[0]} steps: {next(iter(self.weights))} is a given network and is not trained "
                "here; leave one of both away"
            )
        last = min(recipe.schedule.steps for recipe in self.methods.values())
        if wrong := [step for step in self.early if not 1 <= step < last]:
            raise ValueError(
                f"scores after {wrong[0]} steps: give steps from 1 to {last - 1}, before training ends"
            )

    def find_reference_scorers(self) -> dict[str, Scorer]:
        """Return the scorers of rows without training, by prefix: that of the table, and others that some row uses."""
        used = [self.row_scorers.get(method) for method in self.methods]
        others = {
            f"{prefix}_": scorer
            for prefix, scorer in self.reference_scorers.items()
            if any(scorer is one for one in used)
        }
        return {"": self.scorer, **others}

    def list_jobs(self, out: Path, seeds: int) -> list[Job]:
        """Return a job per seed and method, all methods of a seed before the next seed."""
        return [self.make_job(out, method, seed) for seed in range(seeds) for method in self.methods]

    def make_job(self, out: Path, method: str, seed: int) -> Job:
        """Return one network: trained here or by another study, or given as a file."""
        name = f"{method}-seed{seed}"
        folder = (self.networks or out) / "runs" / name
        is_own = self.networks is None and method not in self.weights
        return Job(
            method,
            replace(self.methods[method], seed=seed),
            self.row_scorers.get(method, self.scorer),
            folder,
            folder / "scores.json" if is_own else out / "scores" / f"{name}.json",
            self.features,
            self.weights.get(method),
            self.early,
        )

    def describe(self) -> dict[str, Any]:
        """Return how networks are trained and scored, without the folders of this machine."""
        settings = strip_paths(self.scorer.describe())
        if self.row_scorers:
            settings["row_scorers"] = {
                row: strip_paths(scorer.describe()) for row, scorer in self.row_scorers.items()
            }
        recipes = {method: strip_paths(recipe.to_settings()) for method, recipe in self.methods.items()}
        return {**settings, "recipes": recipes}


@dataclass(frozen=True)
class Effort:
    """How a study is run: nothing here changes its numbers."""

    jobs: int = 1
    """Networks trained at a time, distributed over `devices`; one per GPU keeps all of them busy."""
    devices: Sequence[str] = ("cpu",)
    workers: int | None = None
    """Processes that make batches for each network; None divides the cores among the networks that train on GPUs."""
    save_every: int = SAVE_EVERY
    """Steps between checkpoints."""
    shard: Shard = WHOLE
    """Share of the scoring of finished networks; with a share nothing is trained."""
    score: bool = True
    """Whether networks are scored, or only trained."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ValueError(f"--jobs {self.jobs} must be at least 1")

    def make_run(self, job: Job, device: str) -> Run:
        """Return how one network is trained."""
        kind, cores = device.split(":")[0], count_local()[0]
        return Run(
            out=job.folder,
            device=device,
            workers=choose_workers(self.workers, kind, cores, self.jobs),
            cache=job.features,
            sample_every=None,
            tensorboard=False,
            save_every=self.save_every,
            milestones=job.early,
        )

    def count_threads(self) -> int:
        """Return the threads of each of several processes: one on a CPU, which trains in all cores, else its share."""
        return 1 if self.devices[0] == "cpu" else max(1, count_local()[0] // self.jobs)


def list_devices() -> list[str]:
    """Return all GPUs, or the CPU if there is none."""
    return [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu"]


def choose_job_count(devices: Sequence[str]) -> int:
    """Return one job per GPU, or one per core without GPUs."""
    return len(devices) if devices[0] != "cpu" else max(1, os.cpu_count() or 1)


# Running a study


def run_study(
    study: Study, out: Path, seeds: int, effort: Effort | None = None, progress: Progress = lambda line: None
) -> dict[str, Any] | None:
    """Train and score everything, write all scores, and return the content of `result.json`.

    None if networks are only trained, or if shares of the scoring are still missing.
    """
    effort = effort or Effort()
    if seeds < 1:
        raise ValueError(f"--seeds {seeds} must be at least 1")
    study.check_early()
    jobs = study.list_jobs(out, seeds)
    _run_jobs(jobs, effort, progress)
    if not effort.score:
        return None
    progress("scoring references")
    parts = [
        _score_references(scorer, out, effort.shard, prefix)
        for prefix, scorer in study.find_reference_scorers().items()
    ]
    stages = {step: [job.read_run(job.find_early(step)) for job in jobs] for step in study.early}
    stages[0] = [job.read_run(job.last) for job in jobs]
    if None in parts or any(None in runs for runs in stages.values()):
        return None
    references = [run for part in parts for run in part or ()]
    early = {step: [run for run in runs if run is not None] for step, runs in stages.items()}
    runs = early.pop(0)
    write_scores(out, format_scores_csv([*runs, *references]))
    return {
        "name": study.name,
        "scale": study.scale,
        **_summarize(study, runs, references),
        "references": make_rows(references),
        **({"early": [{"steps": s, **_summarize(study, own)} for s, own in early.items()]} if early else {}),
        "settings": study.describe(),
    }


def _summarize(study: Study, runs: list[ScoredRun], references: Sequence[ScoredRun] = ()) -> dict[str, Any]:
    """Return the rows of a table and the comparisons among them."""
    changes = compute_changes([*runs, *references]) if study.show_changes else []
    return {
        "rows": make_rows(runs),
        "differences": compute_differences(runs, study.pairs),
        "changes": [
            {"method": row["method"], "from": row["from"], "setting": row["setting"], **row["metrics"]}
            for row in changes
        ],
    }


def _score_references(scorer: Scorer, out: Path, shard: Shard, prefix: str) -> list[ScoredRun] | None:
    """Score rows without training, or read their scores: they depend on the protocol alone and are computed once.

    None if shares of other processes are missing.
    """
    scores = Store(out).measure_share(
        f"{prefix}references",
        scorer.key,
        shard,
        lambda: scorer.score_reference_shares(shard),
        _join_reference_shares,
    )
    if scores is None:
        return None
    return [ScoredRun.from_scores(f"{prefix}{name}", 0, values) for name, values in scores.items()]


def _join_reference_shares(shares: Sequence[Mapping[str, BatchScores]]) -> dict[str, Scores]:
    return {name: join_shares([share[name] for share in shares]) for name in shares[0]}


def _run_jobs(jobs: list[Job], effort: Effort, progress: Progress) -> None:
    """Train and score all jobs, one after the other in this process, or in several processes."""
    if effort.jobs == 1:
        for number, job in enumerate(jobs):
            progress(f"network {number + 1} of {len(jobs)}: {job.folder.name}")
            train_and_score(job, effort, effort.devices[0])
        return
    started = time.monotonic()
    before = sum(job.read_steps_done() for job in jobs)
    context = get_context("spawn")
    # Each worker process takes one device from this queue when it starts, and keeps it.
    free_devices = context.Queue()
    for worker in range(effort.jobs):
        free_devices.put(effort.devices[worker % len(effort.devices)])
    starter = (free_devices, effort.count_threads())
    with ProcessPoolExecutor(effort.jobs, context, initializer=_take_device, initargs=starter) as pool:
        futures = [pool.submit(train_and_score, job, effort) for job in jobs]
        try:
            for _ in _poll_until_done(futures):
                progress(_format_state(jobs, futures, before, started))
        except BrokenProcessPool:
            raise OSError(
                "the process of a network was killed (out of memory?): train fewer at the same time with --jobs; the "
                "same command continues from the last checkpoints"
            ) from None
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _poll_until_done(futures: list[Future[None]]) -> Iterator[None]:
    """Yield every POLL_S until all jobs are done; raise the exception of the first job that fails."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=POLL_S)
        for future in done:
            future.result()  # raises here if the job failed
        yield


def _format_state(jobs: list[Job], futures: list[Future[None]], before: int, started: float) -> str:
    """Format jobs done, share of all steps and an estimate of the time left."""
    total = sum(job.recipe.schedule.steps for job in jobs)
    steps = sum(job.read_steps_done() for job in jobs)
    pace = (steps - before) / max(time.monotonic() - started, 1e-6)
    left = f", about {(total - steps) / pace / 60:.0f} min left" if pace > 0 else ""
    done = sum(future.done() for future in futures)
    return f"{done} of {len(jobs)} networks done, {100 * steps / total:.0f} % of all steps{left}"


_device = "cpu"
"""The device of this worker process; set once by `_take_device`, which the pool calls in every new process."""


def _take_device(free_devices: "Queue[str]", threads: int) -> None:
    global _device
    end_with_parent()
    _device = free_devices.get()
    torch.set_num_threads(threads)


def train_and_score(job: Job, effort: Effort, device: str | None = None) -> None:
    """Train one network, or resume or reuse its run, then score it; output goes to LOG in its folder."""
    device = _device if device is None else device
    if job.weights is not None or effort.shard.count > 1:
        if not job.network.is_file():
            advice = "train it first, with --no-score" if job.weights is None else "give a file of weights"
            raise ValueError(f"{job.network}: no such file; {advice}")
        if effort.score:
            job.score_stages(device, effort.shard)
        return
    # The log is opened before training claims the folder, which would refuse a folder with a foreign file.
    claim_out(job.folder, "train", ours=(job.folder / LOG).is_file())
    with (
        (job.folder / LOG).open("a") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        train(job.method, job.recipe, effort.make_run(job, device))
        if effort.score:
            job.score_stages(device)
