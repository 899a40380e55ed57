"""Steps that had to be skipped: counted, named, and not endured for ever."""

from dataclasses import dataclass, field
from typing import Any


class TooManySkipped(ValueError):
    """The data or the training is broken; one line that says so."""


@dataclass
class SkipCounter:
    """Counts skipped steps. The counts are saved with each checkpoint, so stopping does not reset them."""

    max_total: int
    max_in_a_row: int
    total: int = 0
    in_a_row: int = 0
    recent: list[str] = field(default_factory=list)

    REMEMBERED = 20

    def record_success(self) -> None:
        self.in_a_row = 0

    def record_skip(self, step: int, reason: str) -> str:
        """Count a step; the line to print."""
        self.total += 1
        self.in_a_row += 1
        line = f"step {step} skipped: {reason}"
        self.recent = [*self.recent, line][-self.REMEMBERED :]
        return f"{line} ({self.total} so far)"

    def check(self) -> None:
        """Stop when there were too many."""
        if self.in_a_row >= self.max_in_a_row:
            how = f"{self.in_a_row} steps in a row"
        elif self.total >= self.max_total:
            how = f"{self.total} steps in all"
        else:
            return
        raise TooManySkipped(f"{how} had to be skipped, stopping; the last one: {self.recent[-1]}")

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "in_a_row": self.in_a_row, "recent": list(self.recent)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total, self.in_a_row, self.recent = state["total"], state["in_a_row"], list(state["recent"])
