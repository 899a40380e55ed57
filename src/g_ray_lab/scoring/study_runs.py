"""Run a study: train every method with every seed, score all networks on the same test scenes, and make the table.

Each (method, seed) is a run of the training engine in its own folder. Finished runs and scores are reused and
interrupted runs are resumed, so the same command continues a study after Ctrl-C or a crash.
"""

import contextlib
import gzip
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import torch

from g_ray.runtime.files import strip_paths, write_atomically
from g_ray.runtime.out_folder import claim_out
from g_ray.runtime.parts import hash_file
from g_ray_lab.scoring.shard import Shard
from g_ray_lab.scoring.stored_scores import StoredScores
from g_ray_lab.scoring.study import (
    WHOLE,
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
from g_ray_lab.scoring.study_jobs import Effort, Job, Stage, Study
from g_ray_lab.training.engine import train
from g_ray_lab.training.recipe import Recipe

POLL_S = 2.0  # seconds between updates of the progress line
LOG = "log.txt"
SCORES = "scores.csv.gz"
"""Every score of every network and scene, beside result.json."""
REFERENCES = "{prefix}references.json"
"""File of the scores of rows without training: they depend on the protocol alone and are computed once."""


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
    study.check_early()
    todo = _list_jobs(study, out, seeds)
    _run_jobs(todo, effort, progress)
    if not effort.score:
        return None
    progress("scoring references")
    parts = [
        _score_references(scorer, out, effort.shard, prefix)
        for prefix, scorer in study.find_reference_scorers().items()
    ]
    if any(part is None for part in parts) or any(
        _open_scores(job, stage).read() is None for job in todo for stage in job.find_stages()
    ):
        return None
    references = [run for part in parts if part is not None for run in part]
    scored = [_read_scored_run(job, job.last) for job in todo]
    write_atomically(out / SCORES, gzip.compress(format_scores_csv([*scored, *references]).encode(), mtime=0))
    return {
        "name": study.name,
        "scale": study.scale,
        **_summarize(study, scored, references),
        "references": make_rows(references),
        **({"early": [_summarize_early(study, todo, step) for step in study.early]} if study.early else {}),
        "settings": _describe_settings(study),
    }


def _list_jobs(study: Study, out: Path, seeds: int) -> list[Job]:
    """Return a job per seed and method, all methods of a seed before the next seed."""
    return [
        Job(
            method,
            replace(recipe, seed=seed),
            study.get_scorer(method),
            study.get_run_folder(out, method, seed),
            study.get_scores_file(out, method, seed),
            study.features,
            study.weights.get(method),
            study.early,
        )
        for seed in range(seeds)
        for method, recipe in study.methods.items()
    ]


def _describe_settings(study: Study) -> dict[str, Any]:
    """Return how a study trains and scores, without the folders of this machine."""
    settings = strip_paths(study.scorer.describe())
    if study.row_scorers:
        settings["row_scorers"] = {
            row: strip_paths(scorer.describe()) for row, scorer in study.row_scorers.items()
        }
    settings["recipes"] = {
        method: strip_paths(recipe.to_settings()) for method, recipe in study.methods.items()
    }
    return settings


def _summarize(study: Study, runs: list[ScoredRun], references: Sequence[ScoredRun] = ()) -> dict[str, Any]:
    """Return the rows of a table and the comparisons among them."""
    return {
        "rows": make_rows(runs),
        "differences": compute_differences(runs, study.pairs),
        "changes": compute_changes([*runs, *references]) if study.show_changes else [],
    }


def _summarize_early(study: Study, jobs: list[Job], step: int) -> dict[str, Any]:
    """Return the same for the networks as they were after a part of their training."""
    return {"steps": step, **_summarize(study, [_read_scored_run(job, job.find_early(step)) for job in jobs])}


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
        except BrokenProcessPool:
            raise OSError(
                "the process of a network was killed (out of memory?): train fewer at the same time with --jobs; the "
                "same command continues from the last checkpoints"
            ) from None
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
        if not job.network.is_file():
            advice = "train it first, with --no-score" if job.weights is None else "give a file of weights"
            raise ValueError(f"{job.network}: no such file; {advice}")
        if effort.score:
            _score_stages(job, device, effort.shard)
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
            _score_stages(job, device)


def load_network(recipe: Recipe, weights: Path, device: str = "cpu") -> torch.nn.Module:
    """Load a trained network in evaluation mode."""
    from safetensors.torch import load_file

    network = recipe.build_model()
    network.load_state_dict(load_file(weights))
    return network.eval().to(device)


def _score_stages(job: Job, device: str, shard: Shard = WHOLE) -> None:
    """Score a trained network, and what it was during its training if asked for."""
    for stage in job.find_stages():
        _score(job, stage, device, shard)


def _score(job: Job, stage: Stage, device: str, shard: Shard) -> None:
    """Score one stage of a network, unless scores of these weights by this protocol are already stored."""
    stored = _open_scores(job, stage)
    if stored.read() is not None:
        return
    network = load_network(job.recipe, stage.weights, device)
    if shard.count == 1:
        stored.write(job.scorer.score_settings(network))
    else:
        stored.write_share(shard, lambda: job.scorer.score_share(network, shard), join_shares)


def _open_scores(job: Job, stage: Stage) -> StoredScores:
    """Return the stored scores of these weights by this protocol."""
    return StoredScores(stage.scores, {"weights": hash_file(stage.weights), **job.scorer.key})


def _score_references(scorer: Scorer, out: Path, shard: Shard, prefix: str = "") -> list[ScoredRun] | None:
    """Score rows without training, or read their scores; None if shares of other processes are missing."""
    stored = StoredScores(out / REFERENCES.format(prefix=prefix), scorer.key)
    if stored.read() is None and shard.count == 1:
        stored.write({run.method: run.scores for run in scorer.score_references()})
    elif stored.read() is None:
        stored.write_share(shard, lambda: scorer.score_reference_shares(shard), _join_reference_shares)
    scores = stored.read()
    if scores is None:
        return None
    return [ScoredRun(f"{prefix}{name}", 0, 0, 0.0, values) for name, values in scores.items()]


def _join_reference_shares(shares: Sequence[Mapping[str, BatchScores]]) -> dict[str, Scores]:
    return {name: join_shares([share[name] for share in shares]) for name in shares[0]}


def _read_scored_run(job: Job, stage: Stage) -> ScoredRun:
    """Read the scores of a network at one stage; its CPU seconds are those of the whole training."""
    scores: Scores = json.loads(stage.scores.read_text())["scores"]
    return ScoredRun(job.method, job.recipe.seed, stage.steps, _read_cpu_seconds(job.folder), scores)


def _read_cpu_seconds(folder: Path) -> float:
    """Return the CPU seconds of training over all its starts, from the newest checkpoint."""
    from g_ray_lab.training.training_checkpoint import CheckpointStore

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
