"""Scores as files that are reused while their key is the same, and shares of them that processes write side by side."""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from g_ray.runtime.files import write_json
from g_ray_lab.scoring.shard import Shard


@dataclass(frozen=True)
class StoredScores:
    """A file of scores; `key` changes with anything that changes a score."""

    path: Path
    key: Mapping[str, str]

    def read(self) -> dict[str, Any] | None:
        """Read the scores, or return None if there are none with this key."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            document = json.loads(self.path.read_text(encoding="utf-8"))
            if document["key"] == self.key:
                return document["scores"]
        return None

    def write(self, scores: Mapping[str, Any]) -> None:
        write_json(self.path, {"key": dict(self.key), "scores": scores})

    def write_share(
        self,
        shard: Shard,
        score: Callable[[], Mapping[str, Any]],
        join: Callable[[list[dict[str, Any]]], Mapping[str, Any]],
    ) -> None:
        """Score a share unless it is stored, and write the whole if all shares are: the process that ends last does."""
        own = self._get_share(shard)
        if own.read() is None:
            own.write(score())
        shares = [self._get_share(Shard(number + 1, shard.count)).read() for number in range(shard.count)]
        finished = [share for share in shares if share is not None]
        if len(finished) == shard.count:
            self.write(join(finished))

    def _get_share(self, shard: Shard) -> "StoredScores":
        path = self.path.with_name(f"{self.path.stem}.{shard.number}of{shard.count}.json")
        return StoredScores(path, self.key)
