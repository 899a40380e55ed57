"""Batches in order, made by the training process or ahead of time by workers."""

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Dataset

from g_ray_lab.sources.draws import BROKEN_SAMPLE, UnreadableFolder, describe_error
from g_ray_lab.training.task import Task


@dataclass(frozen=True)
class BrokenBatch:
    """Stands in for a batch that could not be made."""

    reason: str
    is_final: bool = False
    """Whether the step after it would fail as well: a whole folder cannot be read."""


@dataclass(frozen=True)
class LostLoader:
    """Stands in for all further batches once a worker has died, e.g. killed by the system for lack of memory."""

    reason: str


@dataclass(frozen=True)
class StepDataset(Dataset[Any]):
    """step → batch, or `BrokenBatch`. Workers make whole batches: their number changes neither order nor content."""

    task: Task
    rank: int

    def __getitem__(self, step: int) -> Any:
        try:
            return self.task.make_batch(step, self.rank)
        except BROKEN_SAMPLE as error:
            is_final = isinstance(error, UnreadableFolder)
            return BrokenBatch(str(error) if is_final else describe_error(error), is_final)


MAX_WORKERS = 8
"""Per rank, if their number is not given: more processes mostly hold more scenes in memory."""


def choose_workers(wanted: int | None, device: str, cores: int, ranks: int) -> int:
    """Return how many processes make batches for one of `ranks` on a machine, on a device of the given type."""
    if wanted is not None:
        return wanted
    # One core is left to the rank itself, which launches the GPU's work.
    return 0 if device == "cpu" else min(MAX_WORKERS, max(1, cores // ranks - 1))


def count_local() -> tuple[int, int]:
    """Return the cores that this process may use, and the ranks of torchrun on this machine."""
    return len(os.sched_getaffinity(0)), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def iterate_batches(
    task: Task, first: int, last: int, rank: int, workers: int, pin: bool = False
) -> Iterator[Any]:
    """Return batches of the steps first … last − 1; `LostLoader` is the last one if a worker dies.

    With `pin` workers' batches are in page-locked memory.
    """
    steps = StepDataset(task, rank)
    if workers == 0:
        return (steps[step] for step in range(first, last))
    loader = DataLoader(
        steps,
        batch_size=None,
        sampler=range(first, last),
        num_workers=workers,
        pin_memory=pin,
        collate_fn=_collate_identity,
        worker_init_fn=_ignore_signals,
    )
    return _iterate_until_lost(_start_workers(loader))


def _start_workers(loader: DataLoader[Any]) -> Iterator[Any]:
    """Start the workers without torch's handler of SIGCHLD.

    With it the death of a worker raises wherever the training process is, even in half an optimizer step, after which
    nothing could be saved. Without it the next request for a batch raises.
    """
    before = signal.getsignal(signal.SIGCHLD)
    batches = iter(loader)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)
    return batches


def _iterate_until_lost(batches: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from batches
    except (RuntimeError, OSError, EOFError) as error:
        # Broken samples come as values: this is about a worker itself, or the pipe that it no longer serves.
        yield LostLoader(f"a loader worker died ({' '.join(str(error).split())[:160]})")


def _collate_identity(batch: Any) -> Any:
    return batch


def _ignore_signals(worker: int) -> None:
    """Ctrl-C and a cluster's SIGTERM reach every process; the parent still needs batches until it has saved."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
