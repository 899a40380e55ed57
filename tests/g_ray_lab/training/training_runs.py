"""Runs of the curve recipe in processes of their own, which can be killed. Forked from a server that has torch
loaded, so that a start costs milliseconds; each still is a process with its own memory and signals."""

import multiprocessing
import os
import random
import resource
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from g_ray_lab.training.recipe import CurveRecipe, OptimizerSettings, Recipe, Run, Schedule
from g_ray_lab.training.run_files import CheckpointStore
from g_ray_lab.training.task import CurveTask

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch._dynamo", "g_ray_lab.training.engine", "g_ray_lab.training.task"])


def small(steps: int = 40, **changes) -> CurveRecipe:
    """A run of a second or so, with dropout: its noise must be resumed as well."""
    settings = {
        "schedule": Schedule(lr=3e-3, steps=steps, warmup=5, start=1e-4),
        "optimizer": OptimizerSettings(weight_decay=0.1, clip=0.5),
        "width": 16,
        "batch": 8,
        "dropout": 0.1,
    }
    return CurveRecipe(**(settings | changes))


def quiet(out: Path, **changes) -> Run:
    settings = {"out": out, "device": "cpu", "save_every": 4, "log_every": 3, "sample_every": None}
    return Run(**(settings | {"tensorboard": False} | changes))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Processes:
    """`size` ranks of one run."""

    def __init__(self, recipe: Recipe, run: Run, size: int = 1, sabotage=None) -> None:
        port, self.out = free_port(), run.out
        arguments = [(rank, size, port, recipe, run, sabotage) for rank in range(size)]
        self.members = [CONTEXT.Process(target=member, args=each) for each in arguments]
        for process in self.members:
            process.start()

    def kill(self, number: int = signal.SIGKILL) -> None:
        for process in self.members:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, number)

    def kill_some_time_after(self, step: int, chance: random.Random) -> list[int | None]:
        """SIGKILL at a random moment after the checkpoint of `step` or a later one is there."""
        while saved_step(self.out) < step and any(process.is_alive() for process in self.members):
            time.sleep(0.002)
        time.sleep(chance.uniform(0.0, 0.06))
        self.kill()
        return self.codes()

    def codes(self, timeout: float = 60.0) -> list[int | None]:
        for process in self.members:
            process.join(timeout)
        return [process.exitcode for process in self.members]


def saved_step(out: Path) -> int:
    return max(
        (checkpoint.step for checkpoint in CheckpointStore(out / "checkpoints").list_checkpoints()), default=0
    )


def member(rank: int, size: int, port: int, recipe: Recipe, run: Run, sabotage) -> None:
    """What one rank does, with the environment that torchrun would give it."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    multiprocessing.set_start_method("fork", force=True)  # batch workers as in a process of a user
    torch.set_num_threads(1)
    sys.stderr = open(run.out.parent / f"{run.out.name}-{rank}.log", "a")  # noqa: SIM115
    if sabotage is not None:
        sabotage()
    from g_ray_lab.training.engine import train

    try:
        train("curve", recipe, run)
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, OSError) as error:
        print(f"g-ray: {error}", file=sys.stderr)
        sys.exit(2)


# Sabotage: run in the child before training starts


def kill_at_call(module: object, name: str, count: int) -> None:
    """SIGKILL just before the `count`-th call of a function."""
    original, calls = getattr(module, name), [0]

    def counted(*args, **kwargs):
        calls[0] += 1
        if calls[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(module, name, counted)


def kill_while_flushing(count: int) -> None:
    kill_at_call(os, "fsync", count)


def kill_while_renaming(count: int) -> None:
    kill_at_call(Path, "rename", count)


def kill_while_deleting(count: int) -> None:
    kill_at_call(os, "unlink", count)


@dataclass(frozen=True)
class SmallFilesOnly:
    """No file may grow beyond `limit` bytes: what a full disk looks like to a program."""

    limit: int

    def __call__(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, self.limit))


def fill_batches_of_rank_1_with_nan() -> None:
    """At step 5 alone; batches are named by their rank."""
    original = CurveTask.make_batch

    def batch(self, step, rank, world):
        made = original(self, step, rank, world)
        if rank == 1 and step == 5:
            made.y.fill_(float("nan"))
        return made

    CurveTask.make_batch = batch
    CurveTask.describe_batch = lambda self, batch: f"scenes of rank {os.environ['RANK']}"


def break_batches_of_rank_1() -> None:
    """From step 5 on."""
    original = CurveTask.make_batch

    def batch(self, step, rank, world):
        if rank == 1 and step >= 5:
            raise ValueError("broken.png")
        return original(self, step, rank, world)

    CurveTask.make_batch = batch
