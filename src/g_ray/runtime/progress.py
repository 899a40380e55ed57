"""How far a run is, how fast, and how long it will take."""

import sys
import time
from collections.abc import Mapping
from io import TextIOBase
from typing import Any

BAR = 24


class Progress:
    """A bar that redraws itself on a terminal; a line now and then everywhere else."""

    def __init__(
        self,
        total: int,
        first: int,
        samples_per_step: int,
        stream: TextIOBase | None = None,
        quiet: bool = False,
    ) -> None:
        self.total, self.samples_per_step, self.quiet = total, samples_per_step, quiet
        self.stream: Any = sys.stderr if stream is None else stream
        self.live = self.stream.isatty()
        self.pause_s = 0.1 if self.live else 10.0
        self.step, self.values = first, ""
        self.rate = 0.0
        self._time = time.monotonic()
        self._drawn, self._width = self._time, 0

    def advance(self, step: int) -> None:
        """`step` steps are done."""
        now = time.monotonic()
        rate = (step - self.step) / max(now - self._time, 1e-9)
        # An average that forgets within some twenty steps: the first one is slow and should not haunt the ETA.
        self.rate = rate if self.rate == 0.0 else 1.0 / (0.95 / self.rate + 0.05 / rate)
        self.step, self._time = step, now
        if now - self._drawn >= self.pause_s or step == self.total:
            self._draw(now)

    def report(self, values: Mapping[str, float]) -> None:
        """What to show beside the bar from now on."""
        self.values = "  ".join(f"{name} {value:.4g}" for name, value in values.items())

    def print_line(self, line: str) -> None:
        """A line of its own, above the bar."""
        if not self.quiet:
            self.stream.write(f"{self._format_wipe()}{line}\n")
            self.stream.flush()

    def reset_timer(self) -> None:
        """Forget the time that went by since the last step (a checkpoint, pictures)."""
        self._time = time.monotonic()

    def close(self) -> None:
        if self.live and self._width and not self.quiet:
            self.stream.write("\n")
            self.stream.flush()
            self._width = 0

    def format_text(self) -> str:
        done = self.step / self.total
        bar = f"{'━' * round(BAR * done):·<{BAR}} " if self.live else ""
        speed = f"{self.rate:.2f} steps/s  {self.rate * self.samples_per_step:.1f} samples/s"
        left = f"{format_duration((self.total - self.step) / self.rate)} left" if self.rate else ""
        return f"{bar}{self.step}/{self.total} ({done:.0%})  {speed}  {left}  {self.values}".rstrip()

    def _draw(self, now: float) -> None:
        self._drawn = now
        if self.quiet:
            return
        text = self.format_text()
        self.stream.write(f"{self._format_wipe()}{text}" if self.live else f"{text}\n")
        self._width = len(text)
        self.stream.flush()

    def _format_wipe(self) -> str:
        return f"\r{' ' * self._width}\r" if self.live else ""


def format_duration(seconds: float) -> str:
    """75 → 1:15, 3675 → 1:01:15, days as hours."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
