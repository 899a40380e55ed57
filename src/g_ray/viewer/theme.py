"""A common style for all matplotlib figures, in a light and a dark version; contact sheets of pictures."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from jaxtyping import Float
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from g_ray.runtime.files import write_atomically


@dataclass(frozen=True)
class Theme:
    """Colors of a figure."""

    name: str
    paper: str
    ink: str
    faint: str
    line: str
    diverging: str  # color map whose middle is the background
    heat: str


LIGHT = Theme("light", "#ffffff", "#1d2330", "#6b7280", "#d5d9e0", "RdBu_r", "viridis")
DARK = Theme("dark", "#161a22", "#e8eaf0", "#9aa3b2", "#39404d", "berlin", "viridis")


@contextmanager
def use_theme(theme: Theme) -> Iterator[None]:
    """Set matplotlib's defaults for figures made inside the block."""
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
    """Make a figure without pyplot: no window and no global state, so it works in any thread."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def encode_png(figure: Figure, dpi: int = 110) -> bytes:
    """Render a figure as PNG."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def write_png(figure: Figure, path: Path, dpi: int = 110) -> Path:
    """Write a figure as a PNG file and return its path."""
    write_atomically(path, encode_png(figure, dpi))
    return path


def draw_contact_sheet(
    columns: Sequence[tuple[str, Float[Tensor, "scene 3 h w"]]],
    labels: Mapping[str, Sequence[str]],
    theme: Theme,
) -> Figure:
    """Draw scenes as rows under named columns; `labels` has a line for each picture of a column."""
    count, (height, width) = len(columns[0][1]), columns[0][1].shape[-2:]
    with use_theme(theme):
        figure = new_figure(1.25 * len(columns), (1.25 * height / width + 0.17) * count + 0.3)
        grid = figure.subplots(count, len(columns), squeeze=False)
        for j, (name, images) in enumerate(columns):
            for i, image in enumerate(images):
                axes = grid[i, j]
                axes.imshow(image.clamp(0, 1).movedim(0, -1).cpu().numpy(), interpolation="nearest")
                axes.set_xticks([])
                axes.set_yticks([])
                axes.set_xlabel(labels.get(name, [""] * count)[i], fontsize=7, labelpad=2)
                if i == 0:
                    axes.set_title(name, fontsize=8)
        return figure
