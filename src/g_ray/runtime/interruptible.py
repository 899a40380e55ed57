"""Notice Ctrl-C at once while other threads compute: long calls of C++ libraries, and threads of a pool.

Python raises KeyboardInterrupt in the main thread, and only between its own instructions: a call of C++ that takes
minutes delays it as long. Such a call runs in another thread, for which the main thread waits; after Ctrl-C the thread
is left behind, and the process must end without waiting for it (`is_computing`).
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

NAME = "g-ray-computing"
"""How names of these threads begin."""

POLL_S = 1.0
"""Seconds between looks at the CPU time; a result or Ctrl-C ends the wait at once."""
Result = TypeVar("Result")


def run_interruptibly(
    call: Callable[[], Result],
    cancel: Callable[[], object] = lambda: None,
    cpu_seconds: float = math.inf,
) -> Result:
    """Return the result of a call that is made in a thread of its own; `cancel` is called after Ctrl-C.

    TimeoutError, after `cancel`, if the process has computed for longer than `cpu_seconds` meanwhile. Time on the clock
    does not count, so that the outcome does not depend on what else a machine is doing.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name=NAME, daemon=True).start()
    end = time.process_time() + cpu_seconds
    try:
        while not wait([outcome], POLL_S).done:
            if time.process_time() > end:
                raise TimeoutError(f"no result after {cpu_seconds:.0f} CPU seconds")
        return outcome.result()
    except (KeyboardInterrupt, TimeoutError):
        cancel()
        raise


@contextmanager
def open_thread_pool(threads: int, **options: Any) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool whose tasks are waited for at the end of the block, but not after Ctrl-C."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix=NAME, **options)
    try:
        yield pool
    except BaseException as error:
        pool.shutdown(wait=not isinstance(error, KeyboardInterrupt), cancel_futures=True)
        raise
    pool.shutdown()


def is_computing() -> bool:
    """Return whether a thread that was left behind after Ctrl-C still runs."""
    return any(thread.name.startswith(NAME) for thread in threading.enumerate())
