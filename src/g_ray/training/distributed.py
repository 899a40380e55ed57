"""The processes that train together: who they are and the few things they tell each other."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

GRACE_S = 0.1
"""A gloo thread may still hold the last tensor and then needs Python's lock to let go of it. Whoever destroys the group
while keeping that lock waits for the thread for ever; sleeping gives the lock away."""


@dataclass(frozen=True)
class World:
    """This process among `size` processes. Alone, every exchange is the identity."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_leader(self) -> bool:
        """Rank 0 writes files and talks to the user."""
        return self.rank == 0

    def reduce_any(self, *flags: bool) -> list[bool]:
        """Per flag: is it set on any rank? Everyone gets the same answer."""
        if self.size == 1:
            return list(flags)
        reduced = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(reduced, dist.ReduceOp.MAX)
        return [bool(flag) for flag in reduced.tolist()]

    def reduce_mean(self, values: Sequence[float]) -> list[float]:
        if self.size == 1 or not values:
            return list(values)
        reduced = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(reduced)
        return [value / self.size for value in reduced.tolist()]

    def gather(self, text: str) -> list[str]:
        """The text of every rank, in order."""
        if self.size == 1:
            return [text]
        texts: list[str] = [""] * self.size
        dist.all_gather_object(texts, text)
        return texts

    def broadcast(self, value: Any) -> Any:
        """What rank 0 passes, on every rank; the others pass anything."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """What goes wrong here for one rank ends all: it raises its own error, the others leave without a word."""
        error: Exception | None = None
        try:
            yield
        except (ValueError, OSError) as caught:
            error = caught
        (failed,) = self.reduce_any(error is not None)
        if error is not None:
            raise error
        if failed:
            raise SystemExit(2)


def choose_device(name: str, local_rank: int) -> torch.device:
    """`auto` and `cuda` give each process of a node its own GPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"--device {name!r} is not a device: use auto, cpu, cuda or cuda:0") from None
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(f"--device {name} was asked for, but PyTorch sees no GPU here")
        device = torch.device("cuda", local_rank if device.index is None else device.index)
        torch.cuda.set_device(device)
    return device


@contextmanager
def join_world(device: str, group_of_one: bool = False) -> Iterator[World]:
    """The world that torchrun describes in the environment, or this process alone."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    place = choose_device(device, int(os.environ.get("LOCAL_RANK", "0")))
    if size == 1 and not group_of_one:
        yield World(0, 1, place)
        return
    # Flags and texts are small and stay on the CPU; only gradients travel by NCCL.
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    if size == 1:
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group(backend)
    try:
        yield World(rank, size, place)
    finally:
        time.sleep(GRACE_S)
        dist.destroy_process_group()
