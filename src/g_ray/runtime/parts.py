"""Measurements that resume: finished parts are kept as JSON files and computed again only if their key changes."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from g_ray.runtime.files import write_json


@dataclass(frozen=True)
class Parts:
    """A folder of finished parts."""

    folder: Path

    def measure(self, name: str, key: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Return the stored value of a part if it was stored under the same key; compute and store it otherwise.

        `key` has everything that changes the value. A damaged file counts as missing.
        """
        path, digest = self.folder / f"{name}.json", hash_key(key)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored["key"] == digest:
                return stored["value"]
        value = compute()
        write_json(path, {"key": digest, "value": value})
        return value


def hash_key(key: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Return a digest of plain values, whatever the order of their names; `default` makes others plain."""
    return hashlib.sha256(json.dumps(key, sort_keys=True, default=default).encode()).hexdigest()[:16]


def hash_file(path: Path) -> str:
    """Return a digest of the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
