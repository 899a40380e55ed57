"""Run many independent jobs in processes: results as they come, and a clean end after Ctrl-C or a killed process."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import TypeVar

import torch

Job = TypeVar("Job")
Result = TypeVar("Result")


def run_in_processes(
    run: Callable[[Job], Result], jobs: Sequence[Job], workers: int, get_name: Callable[[Job], str]
) -> Iterator[Result]:
    """Run a picklable function for each job, in `workers` processes; yield results in any order.

    An error in a job ends the run. Leaving the iteration (Ctrl-C) lets the jobs that are under way finish and starts no
    more. With one worker everything happens in this process.
    """
    if workers == 1:
        yield from map(run, jobs)
    elif jobs:
        yield from _run_in_parallel(run, jobs, min(workers, len(jobs)), get_name)


def _run_in_parallel(
    run: Callable[[Job], Result], jobs: Sequence[Job], workers: int, get_name: Callable[[Job], str]
) -> Iterator[Result]:
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_initialize_worker)
    running: dict[Future[Result], Job] = {}
    try:
        for job in jobs:
            with _block_interrupts_in_children():
                running[pool.submit(run, job)] = job
            if len(running) < 2 * workers:  # a queue just long enough to keep all busy
                continue
            yield from _collect_results(running)
        while running:
            yield from _collect_results(running)
    except BrokenProcessPool:
        names = ", ".join(sorted(get_name(job) for job in running.values()))
        raise OSError(
            f"a worker process was killed (out of memory?) at one of these: {names}; what is finished is kept"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _collect_results(running: dict[Future[Result], Job]) -> Iterator[Result]:
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        result = future.result()
        del running[future]
        yield result


@contextmanager
def _block_interrupts_in_children() -> Iterator[None]:
    """Processes that start meanwhile do not hear Ctrl-C, from their first instruction on; ours waits until after."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _initialize_worker() -> None:
    """One thread each; Ctrl-C is the parent's business; no life after the parent's death."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def end_with_parent() -> None:
    """End this process when the one that started it ends, however that happens: a pool's processes would live on."""
    parent = parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
