"""Results that resume: a file per result with the key of everything that it depends on, shared by processes.

FOLDER/NAME.json        {"key": {part: digest}, "value": …}
FOLDER/NAME.2of8.json   the share of one of eight processes, until all of them are finished
FOLDER/NAME.npz         arrays, and `key` as JSON

Files are written atomically. One that is damaged or has another key counts as missing.
"""

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from g_ray.runtime.files import atomic_path, write_json

Key = Mapping[str, Any]
"""What a result depends on, as plain values by name."""
DAMAGED = "it is damaged"
KEY = "key"


@dataclass(frozen=True)
class Shard:
    """Share `number` (from 1) of `count` of all the work."""

    number: int = 1
    count: int = 1

    @staticmethod
    def parse(text: str | None) -> "Shard":
        """Read "2/8"; without a text, the rank and world size that torchrun puts into the environment."""
        if text is None:
            return Shard(int(os.environ.get("RANK", "0")) + 1, int(os.environ.get("WORLD_SIZE", "1")))
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError(f"--shard {text}: give the number of the share and of all shares, e.g. 2/8")
        return Shard(int(match[1]), int(match[2]))

    def divide(self, workers: int) -> "list[Shard]":
        """Divide this share between worker processes."""
        return [Shard(self.number + self.count * k, self.count * workers) for k in range(workers)]

    def takes(self, position: int) -> bool:
        """Return whether the set or batch at a position (from 0) of all belongs to this share."""
        # In turns, not in blocks: neighbors are sets of one scene and cost alike, so shares end together.
        return position % self.count == self.number - 1


WHOLE = Shard()
"""All of the work."""
NOTHING = Shard(0, 1)
"""No part of it: what others have done is collected."""


def split_range(count: int, at_once: int) -> Iterator[range]:
    """Split the numbers below `count` into ranges of at most `at_once`."""
    return (range(first, min(first + at_once, count)) for first in range(0, count, at_once))


@dataclass(frozen=True)
class Store:
    """A folder of results."""

    folder: Path

    def read(self, name: str, key: Key) -> tuple[Any, str | None]:
        """Return the value stored under a key, or None, and why a file that exists cannot be used.

        A stored key may have further parts: a reader need not know everything that a result depends on.
        """
        try:
            document = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
            reason = _name_difference(document["key"], key)
            return (document["value"], None) if reason is None else (None, reason)
        except FileNotFoundError:
            return None, None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None, DAMAGED

    def write(self, name: str, key: Key, value: Any) -> None:
        write_json(self.folder / f"{name}.json", {"key": _digest_parts(key), "value": value})

    def measure(self, name: str, key: Key, compute: Callable[[], Any]) -> Any:
        """Return the stored value, or compute and store it."""
        value, _ = self.read(name, key)
        if value is None:
            value = compute()
            self.write(name, key, value)
        return value

    def measure_share(
        self,
        name: str,
        key: Key,
        shard: Shard,
        compute: Callable[[], Any],
        join: Callable[[list[Any]], Any],
    ) -> Any:
        """Compute a share unless it is stored; return the whole, or None while shares of other processes are missing.

        The process that finishes last joins the shares.
        """
        value, _ = self.read(name, key)
        if value is not None:
            return value
        if shard.count == 1:
            return self.measure(name, key, lambda: join([compute()]))
        self.measure(f"{name}.{shard.number}of{shard.count}", key, compute)
        # Several processes may find all shares here at once: each writes the same file, atomically.
        shares = [self.read(f"{name}.{number + 1}of{shard.count}", key)[0] for number in range(shard.count)]
        return None if None in shares else self.measure(name, key, lambda: join(shares))

    def read_arrays(self, name: str, key: Key) -> tuple[dict[str, np.ndarray] | None, str | None]:
        """Return arrays by name, or None, and why a file that exists cannot be used."""
        try:
            with np.load(self.folder / f"{name}.npz", allow_pickle=False) as stored:
                arrays = {array: stored[array] for array in stored.files}
            reason = _name_difference(json.loads(str(arrays.pop(KEY))), key)
            return (arrays, None) if reason is None else (None, reason)
        except FileNotFoundError:
            return None, None
        except (OSError, KeyError, ValueError, EOFError, AttributeError, zipfile.BadZipFile):
            return None, DAMAGED

    def write_arrays(self, name: str, key: Key, arrays: Mapping[str, np.ndarray]) -> None:
        text = np.array(json.dumps(_digest_parts(key)))
        with atomic_path(self.folder / f"{name}.npz") as scratch, scratch.open("wb") as file:
            np.savez_compressed(file, **{**arrays, KEY: text})  # pyright: ignore[reportArgumentType]


def _digest_parts(key: Key) -> dict[str, str]:
    """Return a short text for each part of a key."""
    return {part: value if isinstance(value, str) else hash_key(value) for part, value in key.items()}


def _name_difference(stored: Mapping[str, str], wanted: Key) -> str | None:
    """Name the parts in which two keys differ; None if there is no such part."""
    # By parts, so that a message can name what has changed since.
    other = [part for part, text in _digest_parts(wanted).items() if stored.get(part) != text]
    return f"other {', '.join(other)}" if other else None


def hash_key(key: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Return a digest of plain values, independent of the order of keys; `default` converts other values."""
    return hashlib.sha256(json.dumps(key, sort_keys=True, default=default).encode()).hexdigest()[:16]


def hash_file(path: Path) -> str:
    """Return a digest of the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
