"""Rendering objects on a cluster: submitit starts jobs, each renders its share with the same function."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from g_ray_lab.datasets.objaverse import is_finished
from g_ray_lab.sources.render_objects import (
    ObjectJob,
    ObjectSettings,
    Outcome,
    find_unfinished,
    render_objects,
)

LOGS = ".jobs"  # folder below the root: what the jobs print


@dataclass(frozen=True)
class Cluster:
    """Where jobs run: "slurm", or "local" for processes of this machine."""

    kind: str
    jobs: int = 8
    workers: int = 1  # processes in each job
    options: Mapping[str, Any] = field(
        default_factory=dict
    )  # of submitit's executor: slurm_partition, timeout_min, …

    def __post_init__(self) -> None:
        if self.jobs < 1 or self.workers < 1:
            raise ValueError(f"{self.jobs} jobs with {self.workers} workers each: give 1 or more")


def render_share(
    root: Path, share: Sequence[ObjectJob], settings: ObjectSettings, workers: int
) -> list[Outcome]:
    """What one job does. The outcomes are returned and not only yielded: they travel back as a file."""
    return list(render_objects(root, share, settings, workers))


def render_on_cluster(
    root: Path, jobs: Sequence[ObjectJob], settings: ObjectSettings, cluster: Cluster, pause_s: float = 2.0
) -> Iterator[Outcome]:
    """As `render_objects`, on a cluster. Finished objects are seen on disk, refused ones when their job is done."""
    todo = find_unfinished(root, jobs)
    if not todo:
        return
    shares = [todo[start :: cluster.jobs] for start in range(min(cluster.jobs, len(todo)))]
    executor = _make_executor(root, cluster)
    with executor.batch():
        started = [executor.submit(render_share, root, s, settings, cluster.workers) for s in shares]
    try:
        yield from _watch_jobs(root, todo, started, pause_s)
    finally:
        for job in started:
            if not job.done():
                job.cancel()


def _make_executor(root: Path, cluster: Cluster) -> Any:
    try:
        import submitit
    except ModuleNotFoundError:
        raise ValueError("--cluster needs submitit; install it with: pip install 'g-ray[cluster]'") from None
    try:
        executor = submitit.AutoExecutor(folder=root / LOGS, cluster=cluster.kind)
        executor.update_parameters(
            **{
                "name": "g-ray-objects",
                "timeout_min": 24 * 60,
                "cpus_per_task": cluster.workers,
                **cluster.options,
            }
        )
    except (RuntimeError, NameError, TypeError) as error:
        raise ValueError(f"--cluster {cluster.kind}: {error}") from None
    return executor


def _watch_jobs(root: Path, todo: list[ObjectJob], started: list[Any], pause_s: float) -> Iterator[Outcome]:
    missing = {job.name for job in todo}
    while missing:
        over = all(job.done() for job in started)  # asked first: what is missing afterwards never comes
        done = {name for name in missing if is_finished(root, name)}
        missing -= done
        yield from (Outcome(name) for name in sorted(done))
        if over:
            break
        time.sleep(pause_s)
    for job in started:
        for outcome in _get_result(root, job):
            if outcome.name in missing:
                yield outcome


def _get_result(root: Path, job: Any) -> list[Outcome]:
    try:
        return job.result()
    except Exception as error:  # whatever ended the job: its own error, or the cluster's
        raise OSError(
            f"job {job.job_id} failed: {_extract_reason(error)}; its log is in {root / LOGS}"
        ) from None


def _extract_reason(error: Exception) -> str:
    """Return the last error of the traceback that submitit reports, or its first line if there is none."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return raised[-1] if raised else lines[0]
