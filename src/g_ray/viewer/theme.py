"""One look for all figures, on light and on dark paper."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from g_ray.runtime.files import write_atomically


@dataclass(frozen=True)
class Theme:
    name: str
    paper: str
    ink: str
    faint: str
    line: str
    diverging: str  # colour map whose middle is the paper
    heat: str


LIGHT = Theme("light", "#ffffff", "#1d2330", "#6b7280", "#d5d9e0", "RdBu_r", "viridis")
DARK = Theme("dark", "#161a22", "#e8eaf0", "#9aa3b2", "#39404d", "berlin", "viridis")


@contextmanager
def use_theme(theme: Theme) -> Iterator[None]:
    """Matplotlib's defaults in this look, for the figures made inside the block only."""
    settings: Any = {
        "font.family": "DejaVu Sans",
        "font.size": 10.5,
        "axes.titlesize": 12,
        "axes.titleweight": "bold",
        "axes.edgecolor": theme.line,
        "axes.labelcolor": theme.ink,
        "axes.facecolor": theme.paper,
        "figure.facecolor": theme.paper,
        "savefig.facecolor": theme.paper,
        "text.color": theme.ink,
        "xtick.color": theme.faint,
        "ytick.color": theme.faint,
        "lines.solid_capstyle": "round",
    }
    with matplotlib.rc_context(settings):
        yield


def new_figure(width: float, height: float) -> Figure:
    """A figure that no window and no global state knows of."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def encode_png(figure: Figure, dpi: int = 110) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def write_png(figure: Figure, path: Path, dpi: int = 110) -> Path:
    write_atomically(path, encode_png(figure, dpi))
    return path
