"""Means of logged scalars since the last entry."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Meter:
    """Sums and counts per name; saved with checkpoints, so that a continued run logs the same means."""

    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + 1

    def pop_means(self) -> dict[str, float]:
        """The means, and start anew."""
        means = {name: total / self.counts[name] for name, total in self.sums.items()}
        self.sums, self.counts = {}, {}
        return means

    def state_dict(self) -> dict[str, Any]:
        return {"sums": dict(self.sums), "counts": dict(self.counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sums, self.counts = dict(state["sums"]), dict(state["counts"])
