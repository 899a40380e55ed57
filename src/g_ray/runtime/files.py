"""Files that are whole or not there: written under another name in the same folder, then renamed."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """`with whole(path) as scratch:` write `scratch`; it becomes `path` when all went well, else it is removed.

    The scratch name ends as `path` does, for writers that look at the suffix.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=f".{path.name}")
    os.close(descriptor)
    scratch = Path(name)
    try:
        yield scratch
        os.chmod(scratch, 0o666 & ~_read_umask())
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    with atomic_path(path) as scratch:
        scratch.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    write_atomically(path, json.dumps(value, indent=indent, ensure_ascii=False) + "\n")


def _read_umask() -> int:
    """mkstemp makes private files; a result should be as readable as any other file of its user."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def strip_paths(value: Any) -> Any:
    """Absolute paths tell about a machine and mean nothing on another: only their last part stays."""
    if isinstance(value, dict):
        return {key: strip_paths(item) for key, item in value.items()}
    if isinstance(value, list):
        return [strip_paths(item) for item in value]
    return os.path.basename(value) if isinstance(value, str) and os.path.isabs(value) else value


# Where real data lies that no repository holds.


def find_shared_data() -> Path:
    """The folder `shared/data` beside the checkout, or where G_RAY_SHARED_DATA says; it may not be there."""
    beside = Path(__file__).resolve().parents[4] / "shared" / "data"
    return Path(os.environ.get("G_RAY_SHARED_DATA", beside))
