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
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import torch

from g_ray.evaluation.study import (
    ScoredRun,
    Scorer,
    Scores,
    compute_differences,
    format_scores_csv,
    make_rows,
)
from g_ray.nn.transformer import prepare_for_inference
from g_ray.runtime.files import strip_paths, write_atomically, write_json
from g_ray.runtime.out_folder import claim_out
from g_ray.training.engine import train
from g_ray.training.history import METRICS
from g_ray.training.recipe import Recipe
from g_ray.training.run import Run

POLL_S = 2.0  # seconds between updates of the progress line
LOG = "log.txt"
SCORES = "scores.csv.gz"
"""Every score of every network and scene, beside result.json."""
SAVE_EVERY = 250  # steps between checkpoints: little is lost when a study is interrupted


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
    early: tuple[int, ...] = ()
    """Networks are also scored after so many steps of their training."""

    def get_run_folder(self, out: Path, method: str, seed: int) -> Path:
        """Return the folder of one training run: in this study's folder, or in that of the study that trained it."""
        return (self.networks or out) / "runs" / f"{method}-seed{seed}"

    def get_scores_file(self, out: Path, method: str, seed: int) -> Path:
        """Return the file of one network's scores; those of another study's networks stay in this folder."""
        own = self.get_run_folder(out, method, seed) / "scores.json"
        return own if self.networks is None else out / "scores" / f"{method}-seed{seed}.json"


@dataclass(frozen=True)
class Job:
    """One network to train and score."""

    method: str
    recipe: Recipe
    scorer: Scorer
    folder: Path
    scores: Path
    features: Path | None = None
    early: tuple[int, ...] = ()

    def get_early_scores_file(self, step: int) -> Path:
        """Return the file of the scores after a part of the training."""
        return self.scores.with_name(f"{self.scores.stem}-step-{step}.json")

    def read_steps_done(self) -> int:
        """Return the steps that the run has logged: reading its file needs no communication between processes."""
        with contextlib.suppress(OSError, IndexError, ValueError, KeyError):
            return json.loads((self.folder / METRICS).read_text().splitlines()[-1])["step"]
        return 0


def run_study(
    study: Study,
    out: Path,
    seeds: int,
    *,
    jobs: int = 1,
    devices: Sequence[str] = ("cpu",),
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Train and score everything, write all scores to SCORES, and return the content of `result.json`.

    `jobs` networks are trained at a time, distributed over `devices`; one job per GPU keeps all of them busy.
    """
    if seeds < 1 or jobs < 1:
        raise ValueError(f"--seeds {seeds} and --jobs {jobs} must be at least 1")
    check_early_steps(study)
    todo = [
        Job(
            method,
            replace(recipe, seed=seed),
            study.scorer,
            study.get_run_folder(out, method, seed),
            study.get_scores_file(out, method, seed),
            study.features,
            study.early,
        )
        for seed in range(seeds)
        for method, recipe in study.methods.items()
    ]
    done = sorted(
        _run_jobs(todo, jobs, devices, progress), key=lambda job: list(study.methods).index(job.method)
    )
    scored = [_read_scored_run(job, job.scores, job.recipe.schedule.steps) for job in done]
    progress("scoring references")
    references = study.scorer.score_references()
    write_atomically(out / SCORES, gzip.compress(format_scores_csv([*scored, *references]).encode(), mtime=0))
    settings = study.scorer.describe()
    settings["recipes"] = {
        method: strip_paths(recipe.to_settings()) for method, recipe in study.methods.items()
    }
    return {
        "name": study.name,
        "scale": study.scale,
        "rows": make_rows(scored),
        "references": make_rows(references),
        "differences": compute_differences(scored, study.pairs),
        **({"early": [_summarize_early(study, done, step) for step in study.early]} if study.early else {}),
        "settings": settings,
    }


def check_early_steps(study: Study) -> None:
    """Raise ValueError for steps at which no network of the study is in training."""
    last = min(recipe.schedule.steps for recipe in study.methods.values())
    if wrong := [step for step in study.early if not 1 <= step < last]:
        raise ValueError(
            f"scores after {wrong[0]} steps: give steps from 1 to {last - 1}, before training ends"
        )


def _summarize_early(study: Study, jobs: list[Job], step: int) -> dict[str, Any]:
    """Return rows and differences of the networks as they were after a part of their training."""
    runs = [_read_scored_run(job, job.get_early_scores_file(step), step) for job in jobs]
    return {"steps": step, "rows": make_rows(runs), "differences": compute_differences(runs, study.pairs)}


def _run_jobs(
    todo: list[Job], jobs: int, devices: Sequence[str], progress: Callable[[str], None]
) -> list[Job]:
    """Train and score all jobs, one after the other in this process, or in `jobs` processes of one thread each."""
    if jobs == 1:
        for number, job in enumerate(todo):
            progress(f"network {number + 1} of {len(todo)}: {job.folder.name}")
            train_and_score(job, devices[0])
        return todo
    started = time.monotonic()
    before = sum(job.read_steps_done() for job in todo)
    context = get_context("spawn")
    # Each worker process takes one device from this queue when it starts, and keeps it.
    free_devices = context.Queue()
    for worker in range(jobs):
        free_devices.put(devices[worker % len(devices)])
    with ProcessPoolExecutor(jobs, context, initializer=_take_device, initargs=(free_devices,)) as pool:
        futures = [pool.submit(train_and_score, job) for job in todo]
        try:
            for _ in _poll_until_done(futures):
                progress(_format_state(todo, futures, before, started))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        for future in futures:
            future.result()
    return todo


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


def _take_device(free_devices: "Queue[str]") -> None:
    global _device
    _device = free_devices.get()
    torch.set_num_threads(1)


def train_and_score(job: Job, device: str | None = None) -> None:
    """Train one network, or resume or reuse its run, then score it; output goes to LOG in its folder."""
    device = _device if device is None else device
    # The log is opened before training claims the folder, which would refuse a folder with a foreign file.
    claim_out(job.folder, "train", ours=(job.folder / LOG).is_file())
    with (
        (job.folder / LOG).open("a") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        settings = Run(
            out=job.folder,
            device=device,
            cache=job.features,
            sample_every=None,
            tensorboard=False,
            save_every=SAVE_EVERY,
            milestones=job.early,
        )
        outcome = train(job.method, job.recipe, settings)
        for step in job.early:
            _score(job, _find_early_weights(job, step), job.get_early_scores_file(step), device)
        _score(job, outcome.weights, job.scores, device)


def _find_early_weights(job: Job, step: int) -> Path:
    from g_ray.training.checkpoint import CheckpointStore

    for checkpoint in CheckpointStore(job.folder / "checkpoints").list_checkpoints():
        if checkpoint.step == step:
            return checkpoint.weights
    raise ValueError(
        f"{job.folder} has kept no checkpoint of step {step}: it was trained without asking for it, use another --out"
    )


def load_network(recipe: Recipe, weights: Path, device: str = "cpu") -> torch.nn.Module:
    """Load a trained network in evaluation mode."""
    from safetensors.torch import load_file

    network = recipe.build_task().build_model()
    network.load_state_dict(load_file(weights))
    return prepare_for_inference(network).to(device)


def _score(job: Job, weights: Path, file: Path, device: str) -> None:
    """Write scores of weights to a file, unless scores of these weights by this protocol are already there."""
    key = {"weights": hashlib.sha256(weights.read_bytes()).hexdigest()[:16], **job.scorer.key}
    with contextlib.suppress(OSError, ValueError):
        if json.loads(file.read_text())["key"] == key:
            return
    network = load_network(job.recipe, weights, device)
    scores = {setting: job.scorer.score_network(network, setting) for setting in job.scorer.settings}
    write_json(file, {"key": key, "scores": scores})


def _read_scored_run(job: Job, file: Path, steps: int) -> ScoredRun:
    """Read the scores of a network after so many steps; its CPU seconds are those of the whole training."""
    scores: Scores = json.loads(file.read_text())["scores"]
    return ScoredRun(job.method, job.recipe.seed, steps, _read_cpu_seconds(job.folder), scores)


def _read_cpu_seconds(folder: Path) -> float:
    """Return the CPU seconds of training over all its starts, from the newest checkpoint."""
    from g_ray.training.checkpoint import CheckpointStore

    newest, _ = CheckpointStore(folder / "checkpoints", 1, None).find_newest()
    return newest.load_state()["cpu_seconds"] if newest else 0.0


def list_devices() -> list[str]:
    """Return all GPUs, or the CPU if there is none."""
    return [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu"]


def choose_job_count(devices: Sequence[str]) -> int:
    """Return one job per GPU, or one per core without GPUs."""
    return len(devices) if devices[0] != "cpu" else max(1, os.cpu_count() or 1)
