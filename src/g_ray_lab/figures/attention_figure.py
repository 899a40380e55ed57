"""The figure of attention across fields of view: a wide image, its crop, a map per method (paper, fig:attention)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from g_ray.viewer.theme import Theme, new_figure, use_theme

SHARED = "#e02020"


@dataclass(frozen=True)
class AttentionRow:
    """One pair of images and its maps over the patches of the wide one."""

    wide: Float[Tensor, "3 h w"]
    narrow: Float[Tensor, "3 h2 w2"]
    box: tuple[float, float, float, float]
    """The shared field of view in pixels of the wide image."""
    maps: tuple[tuple[str, Float[Tensor, "row column"], float], ...]
    """Title, map, and the share of it inside the box."""
    chance: float
    """The share of the area inside the box."""


def draw_attention(rows: Sequence[AttentionRow], theme: Theme) -> Figure:
    """Draw a row per pair; each map has its own scale from 0 to its maximum, the shared field of view in red."""
    with use_theme(theme):
        columns = 2 + len(rows[0].maps)
        figure = new_figure(1.7 * columns, 1.75 * len(rows) + 0.3)
        grid = figure.subplots(len(rows), columns, squeeze=False)
        for axes, row in zip(grid, rows, strict=True):
            _show(axes[0], row.wide.movedim(0, -1).numpy(), None, f"chance {row.chance:.2f}", row.box)
            _show(axes[1], row.narrow.movedim(0, -1).numpy(), None, "", None)
            extent = (0, row.wide.shape[-1], row.wide.shape[-2], 0)
            for place, (_, weights, share) in zip(axes[2:], row.maps, strict=True):
                _show(place, weights.numpy(), extent, f"{share:.2f}", row.box, theme.heat)
        titles = ("wide", "narrow", *(title for title, _, _ in rows[0].maps))
        for place, title in zip(grid[0], titles, strict=True):
            place.set_title(title, fontsize=9)
        return figure


def _show(
    axes: Any,
    image: Any,
    extent: tuple[int, int, int, int] | None,
    label: str,
    box: tuple[float, float, float, float] | None,
    colors: str | None = None,
) -> None:
    options = {} if colors is None else {"cmap": colors, "vmin": 0.0}
    axes.imshow(image, extent=extent, interpolation="nearest", **options)
    axes.set(xticks=[], yticks=[])
    axes.set_xlabel(label, fontsize=8, labelpad=2)
    if box is not None:
        left, top, right, bottom = box
        frame = Rectangle(
            (left, top), right - left, bottom - top, fill=False, edgecolor=SHARED, linewidth=1.6
        )
        axes.add_patch(frame)
