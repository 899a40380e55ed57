"""Report the progress of a long run: a bar on a terminal, occasional lines elsewhere, with speed and time left."""

import sys
import time
from collections.abc import Generator, Mapping
from contextlib import closing
from io import TextIOBase
from typing import Any, Protocol

BAR = 24  # characters
REDRAW_S = 0.1  # on a terminal
LINE_EVERY_S = 10.0  # in log files, where each report is a line of its own
SMOOTHING = 0.05  # weight of the newest step in the moving average of the speed


class Progress:
    """Show steps done, speed, time left and current values: a bar on a terminal, a line every 10 s elsewhere."""

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
        self.pause_s = REDRAW_S if self.live else LINE_EVERY_S
        self.step, self.values = first, ""
        self.rate = 0.0
        self._time = time.monotonic()
        self._drawn, self._width = self._time, 0

    def advance(self, step: int) -> None:
        """Record that `step` steps are done in total, and redraw if enough time has passed."""
        now = time.monotonic()
        if step <= self.step and step < self.total:
            return  # nothing new: the time counts for the next step
        rate = max(step - self.step, 1e-9) / max(now - self._time, 1e-9)
        # A moving average of seconds per step over about twenty steps: the first step is slow (compilation,
        # caches) and must not distort the time left for long.
        self.rate = rate if self.rate == 0.0 else 1.0 / ((1 - SMOOTHING) / self.rate + SMOOTHING / rate)
        self.step, self._time = step, now
        if now - self._drawn >= self.pause_s or step == self.total:
            self._draw(now)

    def report(self, values: Mapping[str, float]) -> None:
        """Set the values (e.g. losses) to show after the bar."""
        self.values = "  ".join(f"{name} {value:.4g}" for name, value in values.items())

    def print_line(self, line: str) -> None:
        """Print a line above the bar."""
        if not self.quiet:
            self.stream.write(f"{self._format_wipe()}{line}\n")
            self.stream.flush()

    def reset_timer(self) -> None:
        """Exclude the time since the last step (e.g. for a checkpoint) from the speed."""
        self._time = time.monotonic()

    def close(self) -> None:
        """End the line of the bar, so that later output starts on a new one."""
        if self.live and self._width and not self.quiet:
            self.stream.write("\n")
            self.stream.flush()
            self._width = 0

    def format_text(self) -> str:
        """Return the current state as one line."""
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
        """Return the characters that erase the bar, or nothing where there is none."""
        return f"\r{' ' * self._width}\r" if self.live else ""


class CountBar(Progress):
    """Counts things of one kind instead of steps."""

    def __init__(self, total: int, first: int, what: str) -> None:
        super().__init__(total, first, samples_per_step=1)
        self.what = what

    def format_text(self) -> str:
        done = self.step / self.total
        bar = f"{'━' * round(BAR * done):·<{BAR}} " if self.live else ""
        left = f"  {format_duration((self.total - self.step) / self.rate)} left" if self.rate else ""
        return f"{bar}{self.step}/{self.total} {self.what} ({done:.0%})  {60 * self.rate:.1f}/min{left}"


def format_duration(seconds: float) -> str:
    """Format seconds as m:ss or h:mm:ss: 75 → 1:15, 3675 → 1:01:15; days are counted in hours."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class ProgressLine:
    """Progress on one line of a terminal; elsewhere, a new line whenever the text changes."""

    def __init__(self, on_stderr: bool = False) -> None:
        self.stream = sys.stderr if on_stderr else sys.stdout
        self.last = ""

    def __call__(self, text: str) -> None:
        if self.stream.isatty():
            print(f"\r\033[K{text}", end="", flush=True, file=self.stream)
        elif text != self.last:
            print(text, flush=True, file=self.stream)
        self.last = text


class Outcome(Protocol):
    """One of many things to make: done, or refused for a reason."""

    @property
    def name(self) -> str: ...
    @property
    def refused(self) -> str | None: ...


def follow_outcomes(outcomes: Generator[Outcome], bar: CountBar) -> dict[str, str]:
    """Advance a bar by each outcome; return the reasons for what was refused, by name. Ctrl-C closes the generator."""
    refused: dict[str, str] = {}
    with closing(outcomes):
        try:
            for done, outcome in enumerate(outcomes, start=bar.step + 1):
                if outcome.refused:
                    refused[outcome.name] = outcome.refused
                    bar.print_line(f"skipped {outcome.refused}")
                bar.advance(done)
        except KeyboardInterrupt:
            bar.print_line(f"stopping after the {bar.what} under way; the same command resumes from there")
            raise
        finally:
            bar.close()
    return refused
