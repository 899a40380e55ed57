"""Run a study: train every method with every seed, score all networks on the same test scenes, and make the table.

Each (method, seed) is a run of the training engine in its own folder. Finished runs and scores are reused and
interrupted runs are resumed, so the same command continues a study after Ctrl-C or a crash.
"""

import contextlib
import gzip
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import torch

from g_ray.evaluation.shard import Shard
from g_ray.evaluation.stored_scores import StoredScores
from g_ray.evaluation.study import (
    WHOLE,
    BatchScores,
    ScoredRun,
    Scorer,
    Scores,
    compute_differences,
    format_scores_csv,
    join_shares,
    make_rows,
)
from g_ray.nn.transformer import prepare_for_inference
from g_ray.runtime.files import strip_paths, write_atomically
from g_ray.runtime.out_folder import claim_out
from g_ray.training.checkpoint import WEIGHTS
from g_ray.training.engine import train
from g_ray.training.feed import choose_workers, count_local
from g_ray.training.history import METRICS
from g_ray.training.recipe import Recipe
from g_ray.training.run import Run

POLL_S = 2.0  # seconds between updates of the progress line
LOG = "log.txt"
SCORES = "scores.csv.gz"
"""Every score of every network and scene, beside result.json."""
SAVE_EVERY = 250  # steps between checkpoints of small networks: little is lost when a study is interrupted
REFERENCES = "references.json"
"""File of the scores of rows without training: they depend on the protocol alone and are computed once."""


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

    def get_run_folder(self, out: Path, method: str, seed: int) -> Path:
        """Return the folder of one training run: in this study's folder, or in that of the study that trained it."""
        return (self.networks or out) / "runs" / f"{method}-seed{seed}"

    def get_scores_file(self, out: Path, method: str, seed: int) -> Path:
        """Return the file of one network's scores; those of another study's networks stay in this folder."""
        own = self.get_run_folder(out, method, seed) / "scores.json"
        is_own = self.networks is None and method not in self.weights
        return own if is_own else out / "scores" / f"{method}-seed{seed}.json"

    def get_weights_file(self, out: Path, method: str, seed: int) -> Path:
        """Return the file of one network: the given one, or where its training leaves it."""
        return self.weights.get(method, self.get_run_folder(out, method, seed) / WEIGHTS)


@dataclass(frozen=True)
class Job:
    """One network to train and score."""

    method: str
    recipe: Recipe
    scorer: Scorer
    folder: Path
    scores: Path
    features: Path | None = None
    weights: Path | None = None
    """File of a network that is scored as it is."""

    def read_steps_done(self) -> int:
        """Return the steps that the run has logged: reading its file needs no communication between processes."""
        with contextlib.suppress(OSError, IndexError, ValueError, KeyError):
            return json.loads((self.folder / METRICS).read_text().splitlines()[-1])["step"]
        return 0


@dataclass(frozen=True)
class Effort:
    """How a study is run: nothing here changes its numbers."""

    jobs: int = 1
    """Networks trained at a time, distributed over `devices`; one per GPU keeps all of them busy."""
    devices: Sequence[str] = ("cpu",)
    workers: int | None = None
    """Processes that make batches for each network; None divides the cores among the networks beside GPUs."""
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
        )

    def count_threads(self) -> int:
        """Return the threads of each of several processes: one on a CPU, which trains in all cores, else its share."""
        return 1 if self.devices[0] == "cpu" else max(1, count_local()[0] // self.jobs)


def run_study(
    study: Study,
    out: Path,
    seeds: int,
    effort: Effort | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Any] | None:
    """Train and score everything, write all scores to SCORES, and return the content of `result.json`.

    None if networks are only trained, or if shares of the scoring are still missing.
    """
    effort = effort or Effort()
    if seeds < 1:
        raise ValueError(f"--seeds {seeds} must be at least 1")
    todo = [
        Job(
            method,
            replace(recipe, seed=seed),
            study.scorer,
            study.get_run_folder(out, method, seed),
            study.get_scores_file(out, method, seed),
            study.features,
            study.weights.get(method),
        )
        for seed in range(seeds)
        for method, recipe in study.methods.items()
    ]
    _run_jobs(todo, effort, progress)
    if not effort.score:
        return None
    progress("scoring references")
    references = _score_references(study.scorer, out, effort.shard)
    if references is None or not all(job.scores.is_file() for job in todo):
        return None
    scored = [_read_scored_run(job) for job in todo]
    write_atomically(out / SCORES, gzip.compress(format_scores_csv([*scored, *references]).encode(), mtime=0))
    settings = study.scorer.describe()
    settings["recipes"] = {
        method: strip_paths(recipe.to_settings()) for method, recipe in study.methods.items()
    }
    return {
        "name": study.name,
        "scale": study.scale,
        "rows": make_rows(sorted(scored, key=lambda run: list(study.methods).index(run.method))),
        "references": make_rows(references),
        "differences": compute_differences(scored, study.pairs),
        "settings": settings,
    }


def _run_jobs(todo: list[Job], effort: Effort, progress: Callable[[str], None]) -> None:
    """Train and score all jobs, one after the other in this process, or in several processes."""
    if effort.jobs == 1:
        for number, job in enumerate(todo):
            progress(f"network {number + 1} of {len(todo)}: {job.folder.name}")
            train_and_score(job, effort, effort.devices[0])
        return
    started = time.monotonic()
    before = sum(job.read_steps_done() for job in todo)
    context = get_context("spawn")
    # Each worker process takes one device from this queue when it starts, and keeps it.
    free_devices = context.Queue()
    for worker in range(effort.jobs):
        free_devices.put(effort.devices[worker % len(effort.devices)])
    starter = (free_devices, effort.count_threads())
    with ProcessPoolExecutor(effort.jobs, context, initializer=_take_device, initargs=starter) as pool:
        futures = [pool.submit(train_and_score, job, effort) for job in todo]
        try:
            for _ in _poll_until_done(futures):
                progress(_format_state(todo, futures, before, started))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        for future in futures:
            future.result()


def _poll_until_done(futures: list[Future[None]]) -> Iterator[None]:
    """Yield every POLL_S until all jobs are done; raise the exception of the first job that fails."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=POLL_S)
        for future in done:
            future.result()  # raises here if the job failed
        yield


def _format_state(todo: list[Job], futures: list[Future[None]], before: int, started: float) -> str:
    """Format jobs done, share of all steps and an estimate of the time left."""
    total = sum(job.recipe.schedule.steps for job in todo)
    steps = sum(job.read_steps_done() for job in todo)
    pace = (steps - before) / max(time.monotonic() - started, 1e-6)
    left = f", about {(total - steps) / pace / 60:.0f} min left" if pace > 0 else ""
    done = sum(future.done() for future in futures)
    return f"{done} of {len(todo)} networks done, {100 * steps / total:.0f} % of all steps{left}"


_device = "cpu"
"""The device of this worker process; set once by `_take_device`, which the pool calls in every new process."""


def _take_device(free_devices: "Queue[str]", threads: int) -> None:
    global _device
    _device = free_devices.get()
    torch.set_num_threads(threads)


def train_and_score(job: Job, effort: Effort, device: str | None = None) -> None:
    """Train one network, or resume or reuse its run, then score it; output goes to LOG in its folder."""
    device = _device if device is None else device
    if job.weights is not None or effort.shard.count > 1:
        weights = job.weights or job.folder / WEIGHTS
        if not weights.is_file():
            raise ValueError(
                f"{weights}: no such file; shares are scored of finished networks: train them first, with --no-score"
            )
        _score(job, weights, device, effort.shard)
        return
    # The log is opened before training claims the folder, which would refuse a folder with a foreign file.
    claim_out(job.folder, "train", ours=(job.folder / LOG).is_file())
    with (
        (job.folder / LOG).open("a") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        outcome = train(job.method, job.recipe, effort.make_run(job, device))
        if effort.score:
            _score(job, outcome.weights, device)


def load_network(recipe: Recipe, weights: Path, device: str = "cpu") -> torch.nn.Module:
    """Load a trained network in evaluation mode."""
    from safetensors.torch import load_file

    network = recipe.build_model()
    network.load_state_dict(load_file(weights))
    return prepare_for_inference(network).to(device)


def _score(job: Job, weights: Path, device: str, shard: Shard = WHOLE) -> None:
    """Score the trained network, unless scores of these weights by this protocol are already stored."""
    key = {"weights": hashlib.sha256(weights.read_bytes()).hexdigest()[:16], **job.scorer.key}
    stored = StoredScores(job.scores, key)
    if stored.read() is not None:
        return
    network = load_network(job.recipe, weights, device)
    if shard.count == 1:
        stored.write(job.scorer.score_settings(network))
    else:
        stored.write_share(shard, lambda: job.scorer.score_share(network, shard), join_shares)


def _score_references(scorer: Scorer, out: Path, shard: Shard) -> list[ScoredRun] | None:
    """Score rows without training, or read their scores; None if shares of other processes are missing."""
    stored = StoredScores(out / REFERENCES, scorer.key)
    if stored.read() is None and shard.count == 1:
        stored.write({run.method: run.scores for run in scorer.score_references()})
    elif stored.read() is None:
        stored.write_share(shard, lambda: scorer.score_reference_shares(shard), _join_reference_shares)
    scores = stored.read()
    return None if scores is None else [ScoredRun(name, 0, 0, 0.0, found) for name, found in scores.items()]


def _join_reference_shares(shares: Sequence[Mapping[str, BatchScores]]) -> dict[str, Scores]:
    return {name: join_shares([share[name] for share in shares]) for name in shares[0]}


def _read_scored_run(job: Job) -> ScoredRun:
    scores: Scores = json.loads(job.scores.read_text())["scores"]
    return ScoredRun(
        job.method, job.recipe.seed, job.recipe.schedule.steps, _read_cpu_seconds(job.folder), scores
    )


def _read_cpu_seconds(folder: Path) -> float:
    """Return the CPU seconds of training over all its starts, from the newest checkpoint."""
    from g_ray.training.checkpoint import CheckpointStore

    if not folder.is_dir():  # a given network, not one of this study
        return 0.0
    newest, _ = CheckpointStore(folder / "checkpoints", 1, None).find_newest()
    return newest.load_state()["cpu_seconds"] if newest else 0.0


def list_devices() -> list[str]:
    """Return all GPUs, or the CPU if there is none."""
    return [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu"]


def choose_job_count(devices: Sequence[str]) -> int:
    """Return one job per GPU, or one per core without GPUs."""
    return len(devices) if devices[0] != "cpu" else max(1, os.cpu_count() or 1)
