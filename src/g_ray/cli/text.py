"""Plain text for the terminal."""

import re
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Protocol

from g_ray.runtime.progress import BAR, Progress, format_duration


def format_table(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows with the same keys as aligned columns: the first to the left, the others to the right."""
    heads = list(rows[0])
    cells = [heads, *([format_cell(row[head]) for head in heads] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    lines = [
        "  ".join(
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    return "\n".join([lines[0], "  ".join("─" * width for width in widths), *lines[1:]])


def format_cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if value == 0 or abs(value) >= 1e-3 else f"{value:.1e}"
    return "–" if value is None else str(value)


def make_file_name(name: str) -> str:
    """A name that any file system takes."""
    return re.sub(r"[^\w.-]+", "_", name)


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
