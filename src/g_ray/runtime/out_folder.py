"""Decide whether a command may write to --out, and lock it. What a run did not make itself is never overwritten or
deleted.

A folder may be used if it is absent, empty, or carries a mark of an earlier run: a JSON file that g-ray wrote when the
folder was still empty. Commands check this before they compute anything.
"""

import errno
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from g_ray.runtime.files import write_json

MARKER = ".g-ray.json"
"""The mark of commands that can be repeated in their folder."""
RESULT, UNFINISHED = "result.json", "unfinished/settings.json"
"""The marks of reconstructions, finished and not."""
FORMAT_PREFIX = "g-ray-"
"""How "format" of every mark begins."""
MAX_MARK_BYTES = 64 << 20
LOCK = ".lock"
IGNORED = (LOCK, ".DS_Store")
"""Files that may be in a folder that counts as empty: the lock of this run, and what macOS leaves everywhere."""


def check_out(out: Path, *marks: str, ours: bool = False) -> None:
    """Raise ValueError unless a folder can take files: absent, empty, or with one of the marks (paths inside of it).

    `ours`: the caller has recognized the folder as one of its own by other means.
    """
    if out.is_symlink() and not out.exists():
        raise ValueError(f"--out {out} is a link to nothing: choose another folder")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: give a folder")
    _check_writable(out)
    if ours or any(read_mark(out / mark) is not None for mark in marks):
        return
    present = sorted(entry for entry in os.listdir(out) if entry not in IGNORED) if out.is_dir() else []
    if present:
        shown = ", ".join(present[:3]) + (", …" if len(present) > 3 else "")
        raise ValueError(
            f"--out {out} holds files that this command did not make ({shown}): choose a new or an empty folder"
        )


def claim_out(out: Path, command: str, ours: bool = False) -> None:
    """Check a folder as `check_out`, create it, and mark it, so that the same command may be repeated there."""
    mark = read_mark(out / MARKER)
    if mark is not None and mark.get("command") != command:
        raise ValueError(
            f"--out {out} is a folder of g-ray {str(mark.get('command'))[:40]}: choose another for {command}"
        )
    check_out(out, MARKER, ours=ours)
    if mark is None:
        write_json(out / MARKER, {"format": "g-ray-output", "command": command})


def check_out_file(out: Path) -> None:
    """Raise ValueError if a file cannot be written without replacing another one."""
    if out.is_symlink() or out.exists():
        what = "a folder: give a file" if out.is_dir() else "there already: choose another name, or delete it"
        raise ValueError(f"--out {out} is {what}")
    _check_writable(out.parent)


def is_output(folder: Path) -> bool:
    """Return whether a folder was written by a command, so that images in it are copies or results."""
    return any(read_mark(folder / mark) is not None for mark in (MARKER, RESULT, UNFINISHED))


def read_mark(path: Path) -> dict[str, Any] | None:
    """Return the content of a mark, or None if the file is not one of ours."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_MARK_BYTES:
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    is_ours = isinstance(content, dict) and str(content.get("format")).startswith(FORMAT_PREFIX)
    return content if is_ours else None


def _check_writable(folder: Path) -> None:
    """Raise ValueError if a folder, or the nearest one above it that exists, cannot be written to."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise ValueError(f"--out {folder}: {nearest} is a file, not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ValueError(f"--out {folder}: {nearest} cannot be written to; choose another folder")


# A lock, so that only one process at a time writes to a folder.


# Data-loader workers of a killed run hold its lock until they notice that their parent is gone.
TIMEOUT_S = 10.0
POLL_S = 0.1


@contextmanager
def lock_folder(folder: Path, timeout_s: float | None = None) -> Iterator[None]:
    """Hold an exclusive lock on `folder/.lock`; the operating system releases it however the process ends.

    ValueError if another process holds it for longer than a time (TIMEOUT_S).
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        _acquire(handle, folder, TIMEOUT_S if timeout_s is None else timeout_s)
        yield
    finally:
        os.close(handle)


def remove_lock(folder: Path) -> None:
    """Remove the file of a lock that is held, if the folder will not be written to again."""
    (folder / LOCK).unlink(missing_ok=True)


def _acquire(handle: int, folder: Path, timeout_s: float) -> None:
    """Lock the open file, or raise ValueError if another process still holds it after the timeout."""
    import fcntl  # not on Windows, where the rest of this file works

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
