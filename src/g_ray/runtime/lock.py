"""Lock an output folder, so that only one process at a time writes to it."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Data-loader workers of a killed run hold its lock until they notice that their parent is gone.
TIMEOUT_S = 10.0
POLL_S = 0.1


@contextmanager
def lock_folder(folder: Path, timeout_s: float | None = None) -> Iterator[None]:
    """Hold an exclusive lock on `folder/.lock`; the operating system releases it however the process ends.

    ValueError if another process holds it for longer than a time (TIMEOUT_S).
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        _acquire(handle, folder, TIMEOUT_S if timeout_s is None else timeout_s)
        yield
    finally:
        os.close(handle)


def _acquire(handle: int, folder: Path, timeout_s: float) -> None:
    """Lock the open file, or raise ValueError if another process still holds it after so many seconds."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return None  # some network file systems do not support locks: run without one
            if time.monotonic() > deadline:
                raise ValueError(
                    f"another run is writing to {folder}: stop it, or choose another --out"
                ) from None
        time.sleep(POLL_S)
