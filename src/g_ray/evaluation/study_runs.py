"""Tables: train every method with every seed, score them on the same test scenes, and put the numbers side by side.

Each (method, seed) is a run of the training engine in a folder of its own. Finished runs and scores are used again,
interrupted ones continue, so the same command after Ctrl-C or a crash goes on where it was.
"""

import contextlib
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

from g_ray.evaluation.study import ScoredRun, Scorer, Scores, compute_differences, make_rows
from g_ray.runtime.files import strip_paths, write_json
from g_ray.training.engine import train
from g_ray.training.history import METRICS
from g_ray.training.recipe import Recipe
from g_ray.training.run import Run

POLL_S = 2.0


@dataclass(frozen=True)
class Study:
    """What a table is made of: recipes by row name, and what they are scored on."""

    name: str
    scale: str
    methods: Mapping[str, Recipe]
    scorer: Scorer
    pairs: tuple[tuple[str, str], ...] = ()
    """Rows to be compared scene by scene: (with ray angles, without)."""
    networks: Path | None = None
    """Folder of another table with the same rows, whose networks are scored here."""

    def get_run_folder(self, out: Path, method: str, seed: int) -> Path:
        """Of one network: in the table's own folder, or in that of the table that trained it."""
        return (self.networks or out) / "runs" / f"{method}-seed{seed}"

    def get_scores_file(self, out: Path, method: str, seed: int) -> Path:
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

    def read_steps_done(self) -> int:
        """Read from the run's own record, so that nothing has to be sent between processes."""
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
    """The table as `result.json` holds it.

    `jobs` networks are trained at a time, each on one of the `devices`: as many jobs as GPUs keep all of them busy.
    """
    if seeds < 1 or jobs < 1:
        raise ValueError(f"--seeds {seeds} and --jobs {jobs} must be at least 1")
    todo = [
        Job(
            method,
            replace(recipe, seed=seed),
            study.scorer,
            study.get_run_folder(out, method, seed),
            study.get_scores_file(out, method, seed),
        )
        for seed in range(seeds)
        for method, recipe in study.methods.items()
    ]
    scored = [_read_scored_run(job) for job in _run_jobs(todo, jobs, devices, progress)]
    progress("scoring references")
    references = study.scorer.score_references()
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


def _run_jobs(
    todo: list[Job], jobs: int, devices: Sequence[str], progress: Callable[[str], None]
) -> list[Job]:
    """All jobs trained and scored: here one after the other, or `jobs` processes at a time, one thread each."""
    if jobs == 1:
        for number, job in enumerate(todo):
            progress(f"network {number + 1} of {len(todo)}: {job.folder.name}")
            train_and_score(job, devices[0])
        return todo
    started = time.monotonic()
    before = sum(job.read_steps_done() for job in todo)
    context = get_context("spawn")
    places = context.Queue()
    for worker in range(jobs):
        places.put(devices[worker % len(devices)])
    with ProcessPoolExecutor(jobs, context, initializer=_take_device, initargs=(places,)) as pool:
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
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=POLL_S)
        for future in done:
            future.result()  # a failure ends the study at once
        yield


def _format_state(todo: list[Job], futures: list[Future[None]], before: int, started: float) -> str:
    total = sum(job.recipe.schedule.steps for job in todo)
    steps = sum(job.read_steps_done() for job in todo)
    pace = (steps - before) / max(time.monotonic() - started, 1e-6)
    left = f", about {(total - steps) / pace / 60:.0f} min left" if pace > 0 else ""
    done = sum(future.done() for future in futures)
    return f"{done} of {len(todo)} networks done, {100 * steps / total:.0f} % of all steps{left}"


_device = "cpu"
"""The device of this process."""


def _take_device(places: "Queue[str]") -> None:
    global _device
    _device = places.get()
    torch.set_num_threads(1)


def train_and_score(job: Job, device: str | None = None) -> None:
    """In a process of its own, on its device; what the run says goes to its folder."""
    device = _device if device is None else device
    job.folder.mkdir(parents=True, exist_ok=True)
    with (
        (job.folder / "log.txt").open("a") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        settings = Run(out=job.folder, device=device, sample_every=None, tensorboard=False, save_every=250)
        outcome = train(job.method, job.recipe, settings)
        _score(job, outcome.weights, device)


def load_network(recipe: Recipe, weights: Path, device: str = "cpu") -> torch.nn.Module:
    """A trained network, ready to predict."""
    from safetensors.torch import load_file

    network = recipe.build_task().build_model()
    network.load_state_dict(load_file(weights))
    return network.eval().to(device)


def _score(job: Job, weights: Path, device: str) -> None:
    """Scores of the finished network, unless they are there already for these weights and this way of scoring."""
    key = {"weights": hashlib.sha256(weights.read_bytes()).hexdigest()[:16], **job.scorer.key}
    with contextlib.suppress(OSError, ValueError):
        if json.loads(job.scores.read_text())["key"] == key:
            return
    network = load_network(job.recipe, weights, device)
    scores = {setting: job.scorer.score_network(network, setting) for setting in job.scorer.settings}
    write_json(job.scores, {"key": key, "scores": scores})


def _read_scored_run(job: Job) -> ScoredRun:
    scores: Scores = json.loads(job.scores.read_text())["scores"]
    return ScoredRun(
        job.method, job.recipe.seed, job.recipe.schedule.steps, _read_cpu_seconds(job.folder), scores
    )


def _read_cpu_seconds(folder: Path) -> float:
    """Of training, over all its starts, as the run's newest checkpoint says."""
    from g_ray.training.checkpoint import CheckpointStore

    newest, _ = CheckpointStore(folder / "checkpoints", 1, None).find_newest()
    return newest.load_state()["cpu_seconds"] if newest else 0.0


def list_devices() -> list[str]:
    """Every GPU, or the CPU where there is none."""
    return [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu"]


def choose_job_count(devices: Sequence[str]) -> int:
    """A network per GPU, or one per core."""
    return len(devices) if devices[0] != "cpu" else max(1, os.cpu_count() or 1)
