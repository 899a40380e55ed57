"""One run per folder."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TIMEOUT_S = 10.0  # batch workers of a killed run hold its lock until they notice


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the system releases it however the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        _acquire(handle, folder)
        yield
    finally:
        os.close(handle)


def _acquire(handle: int, folder: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return None  # a file system without locks: better to train than to refuse
            if time.monotonic() > deadline:
                raise ValueError(
                    f"another run is training in {folder}: stop it, or choose another --out"
                ) from None
        time.sleep(0.1)
