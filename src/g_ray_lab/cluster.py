"""Run tasks on a cluster: as jobs of Slurm, tasks of Ray, or processes of this machine.

A task is a picklable function without arguments; what it computes it leaves in files that all machines share, so that
a run that was stopped resumes.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

ClusterName = Literal["none", "local", "slurm", "ray"]
Task = Callable[[], Any]
LOGS = ".jobs"
"""Folder below that of the results: what the jobs print."""
POLL_S = 2.0
"""Seconds between looks at the jobs."""


@runtime_checkable
class ClusterJob(Protocol):
    """A started task; submitit's jobs are of this form."""

    def done(self) -> bool: ...
    def result(self) -> Any: ...
    def cancel(self) -> Any: ...


@dataclass(frozen=True)
class Cluster:
    """Where tasks run: "slurm", "ray", or "local" for processes of this machine."""

    kind: str
    jobs: int = 8
    workers: int = 1
    """Processes in each job."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of submitit (slurm_partition, timeout_min, …) or of Ray's tasks (num_gpus, …; address of the
    cluster)."""
    name: str = "g-ray"

    def __post_init__(self) -> None:
        if self.jobs < 1 or self.workers < 1:
            raise ValueError(f"{self.jobs} jobs with {self.workers} workers each: give 1 or more")

    @contextmanager
    def start(self, tasks: Sequence[Task], folder: Path) -> Iterator[list[ClusterJob]]:
        """Start tasks; on leaving, those that are not finished are canceled. Logs are in `folder`/.jobs."""
        jobs = EXECUTORS[self.kind](self, tasks, folder / LOGS)
        try:
            yield jobs
        finally:
            for job in jobs:
                if not job.done():
                    job.cancel()

    def run(self, tasks: Sequence[Task], folder: Path, progress: Callable[[str], None]) -> None:
        """Run tasks until all have ended; OSError names the first that failed."""
        with self.start(tasks, folder) as jobs:
            while (done := sum(job.done() for job in jobs)) < len(jobs):
                progress(f"{done} of {len(jobs)} jobs done")
                time.sleep(POLL_S)
            for job in jobs:
                get_result(job, folder)


def get_result(job: ClusterJob, folder: Path) -> Any:
    """Return what a task has returned; OSError in one line if it failed."""
    try:
        return job.result()
    except Exception as error:  # whatever ended the job: its own error, or the cluster's
        number = getattr(job, "job_id", "")
        raise OSError(
            f"job {number} failed: {_extract_reason(error)}; its log is in {folder / LOGS}; the same command resumes"
        ) from None


def _extract_reason(error: Exception) -> str:
    """Return the last error of the traceback that a cluster reports, or its first line if there is none."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return raised[-1] if raised else lines[0]


def parse_options(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Parse KEY=VALUE pairs; numbers become numbers."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ValueError(f"--cluster-options {pair}: write KEY=VALUE")
        is_number = re.fullmatch(r"-?\d+(\.\d+)?", value) is not None
        options[key] = (float(value) if "." in value else int(value)) if is_number else value
    return options


# Executors


def start_with_submitit(cluster: Cluster, tasks: Sequence[Task], logs: Path) -> list[ClusterJob]:
    """Start a job of Slurm for each task, or a process of this machine."""
    try:
        import submitit
    except ModuleNotFoundError:
        raise ValueError("--cluster needs submitit; install it with: pip install 'g-ray[lab]'") from None
    try:
        executor = submitit.AutoExecutor(folder=logs, cluster=cluster.kind)
        defaults = {"name": cluster.name, "timeout_min": 24 * 60, "cpus_per_task": cluster.workers}
        executor.update_parameters(**{**defaults, **cluster.options})
    except (RuntimeError, NameError, TypeError) as error:
        raise ValueError(f"--cluster {cluster.kind}: {error}") from None
    with executor.batch():
        return [executor.submit(task) for task in tasks]


@dataclass(frozen=True)
class RayJob:
    """A task of Ray, with the methods of submitit's jobs."""

    ray: Any
    reference: Any

    @property
    def job_id(self) -> str:
        return self.reference.hex()

    def done(self) -> bool:
        return bool(self.ray.wait([self.reference], timeout=0)[0])

    def result(self) -> Any:
        return self.ray.get(self.reference)

    def cancel(self) -> None:
        self.ray.cancel(self.reference)


def start_on_ray(cluster: Cluster, tasks: Sequence[Task], logs: Path) -> list[ClusterJob]:
    """Start a task of Ray for each: on the cluster at `address` or in RAY_ADDRESS, else on one of this machine alone.

    Ray shows a task the GPUs that `num_gpus` reserves for it, and keeps logs of its own.
    """
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise ValueError("--cluster ray needs Ray; install it with: pip install 'g-ray-lab[ray]'") from None
    options = dict(cluster.options)
    address = options.pop("address", None)
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False, include_dashboard=False if address is None else None)
    try:
        remote = ray.remote(**{"num_cpus": cluster.workers, **options})(_call)
    except (ValueError, TypeError) as error:
        raise ValueError(f"--cluster-options: {' '.join(str(error).split())}") from None
    return [RayJob(ray, remote.remote(task, os.getcwd())) for task in tasks]


def _call(task: Task, folder: str) -> Any:
    """Run a task in the folder of the command, to which its paths may be relative; Ray's workers have others."""
    os.chdir(folder)
    return task()


Start = Callable[[Cluster, Sequence[Task], Path], list[ClusterJob]]
EXECUTORS: dict[str, Start] = {
    "local": start_with_submitit,
    "slurm": start_with_submitit,
    "ray": start_on_ray,
}
