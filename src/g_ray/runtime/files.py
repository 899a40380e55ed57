"""Write files atomically, strip machine-specific paths from results, and locate the folder of shared data."""

import json
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SCRATCH = ".g-ray-"
"""How names of files begin that are being written."""
KEPT_ENDING = 32
"""Characters of a file's name at the end of its scratch name: all of a name of 255 bytes would make that too long."""


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a scratch path to write to; rename it to `path` on success, remove it on any exception.

    The scratch file is in the same folder, because a rename is atomic only within one file system. Its name ends
    like `path`, for writers that choose a format by the suffix.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(
        dir=path.parent, prefix=SCRATCH, suffix=f".{path.name[-KEPT_ENDING:]}"
    )
    os.close(descriptor)
    scratch = Path(name)
    try:
        yield scratch
        # mkstemp creates files with mode 0600; a result gets the permissions of any other file of its user.
        os.chmod(scratch, 0o666 & ~_read_umask())
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write text (UTF-8) or bytes to `path` in one atomic step, creating its folder if needed."""
    with atomic_path(path) as scratch:
        scratch.write_bytes(content.encode() if isinstance(content, str) else content)


def remove_scratch_files(folder: Path) -> None:
    """Remove what killed processes were writing in a folder and below it; nobody may be writing there."""
    for path in folder.rglob(f"{SCRATCH}*"):
        if path.is_file():
            path.unlink()


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Write `value` as JSON, atomically, with non-ASCII characters kept and a final newline."""
    write_atomically(path, json.dumps(value, indent=indent, ensure_ascii=False) + "\n")


def drop_not_finite(value: Any) -> Any:
    """Replace every NaN and infinity in nested dicts and lists by None: JSON has neither."""
    if isinstance(value, dict):
        return {key: drop_not_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [drop_not_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def strip_paths(value: Any) -> Any:
    """Replace every absolute path in nested dicts and lists by its last part.

    Results are published, and an absolute path describes one machine only.
    """
    if isinstance(value, dict):
        return {key: strip_paths(item) for key, item in value.items()}
    if isinstance(value, list):
        return [strip_paths(item) for item in value]
    return os.path.basename(value) if isinstance(value, str) and os.path.isabs(value) else value


def find_shared_data() -> Path:
    """Return the folder of real data: G_RAY_SHARED_DATA, or `shared/data` next to the checkout. It may not exist."""
    default = Path(__file__).resolve().parents[4] / "shared" / "data"
    return Path(os.environ.get("G_RAY_SHARED_DATA", default))


def _read_umask() -> int:
    """Return the process's umask; the only portable way to read it is to set it and set it back."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
