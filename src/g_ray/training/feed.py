"""Batches in order, made in between or ahead of time by worker processes."""

import pickle
import signal
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Dataset

from g_ray.training.task import Task

BROKEN_SAMPLE = (OSError, EOFError, ValueError, RuntimeError, pickle.UnpicklingError, zipfile.BadZipFile)
"""What reading a damaged file raises; anything else is a bug and stops the run."""


@dataclass(frozen=True)
class Broken:
    """Stands in for a batch that could not be made."""

    reason: str


@dataclass(frozen=True)
class Steps(Dataset[Any]):
    """step → batch, or `Broken`. Workers make whole batches: their number changes neither order nor content."""

    task: Task
    rank: int
    world: int

    def __getitem__(self, step: int) -> Any:
        try:
            return self.task.batch(step, self.rank, self.world)
        except BROKEN_SAMPLE as error:
            return Broken(f"{type(error).__name__}: {' '.join(str(error).split())}")


def feed(task: Task, first: int, last: int, rank: int, world: int, workers: int) -> Iterator[Any]:
    """Batches of the steps first … last − 1."""
    steps = Steps(task, rank, world)
    if workers == 0:
        return (steps[step] for step in range(first, last))
    loader = DataLoader(
        steps,
        batch_size=None,
        sampler=range(first, last),
        num_workers=workers,
        collate_fn=_as_it_is,
        worker_init_fn=_leave_signals_to_the_parent,
    )
    return iter(loader)


def _as_it_is(batch: Any) -> Any:
    return batch


def _leave_signals_to_the_parent(worker: int) -> None:
    """Ctrl-C and a cluster's SIGTERM reach every process; the parent still needs batches until it has saved."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
