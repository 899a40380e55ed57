"""Shares of the work of processes that score together, on one machine or several."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Shard:
    """Share `number` (from 1) of `count` of all the work."""

    number: int = 1
    count: int = 1

    @staticmethod
    def parse(text: str | None) -> "Shard":
        """Read "2/8", or what torchrun says of this process in its environment if no text is given."""
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
        return position % self.count == self.number - 1


def split_range(count: int, at_once: int) -> Iterator[range]:
    """Split the numbers below `count` into ranges of at most `at_once`."""
    return (range(first, min(first + at_once, count)) for first in range(0, count, at_once))
