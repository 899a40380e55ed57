"""The position-only prior of attention (paper, eq:app_score): scores of patches without any features, as figures."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.coordinates import get_coordinate
from g_ray.encodings.rotary import make_geometric_frequencies
from g_ray.encodings.rotation import position_score
from g_ray.rays.views import Views
from g_ray.viewer.angle_maps import LensView
from g_ray.viewer.theme import Theme, new_figure, use_theme


@dataclass(frozen=True)
class Bank:
    """A rotary encoding as the probe sees it: which coordinate, which frequencies (eq:frequency)."""

    title: str
    coordinate: str
    scale: float
    base: float = 100.0
    count: int = 16

    def make_frequencies(self) -> Float[Tensor, "frequency"]:
        return make_geometric_frequencies(self.count, self.scale, self.base)


GRID_ROPE = Bank("Grid-index RoPE", "grid", scale=1.0)
G_RAY = Bank("G-ray, α = 1 (reconstruction)", "tangent", scale=1.0)
G_RAY_FINE = Bank("G-ray, α = 10 (as with GTA)", "tangent", scale=10.0)
BANKS = (GRID_ROPE, G_RAY, G_RAY_FINE)


@dataclass(frozen=True)
class TokenGrid:
    """Coordinates of one view's patch tokens, the rays through their centers, and which of them exist."""

    positions: Float[Tensor, "row column 2"]
    directions: Float[Tensor, "row column 3"]
    valid: Bool[Tensor, "row column"]


def make_token_grids(cameras: Sequence[Camera], patch: int, name: str) -> list[TokenGrid]:
    """Make the patch tokens of each camera in the named coordinate."""
    tokens = Views(list(cameras)).tokens(patch)
    positions = get_coordinate(name)(tokens).values[0, :, 0]
    parts = (positions, tokens.rays().directions[0, :, 0], tokens.valid().reshape(-1))
    return [
        TokenGrid(*(part[span].unflatten(0, (segment.rows, segment.columns)) for part in parts))
        for segment, span in tokens.layout.iterate_spans()
    ]


def compute_prior_maps(
    cameras: Sequence[Camera], patch: int, query: tuple[int, int, int], bank: Bank
) -> list[Float[Tensor, "row column"]]:
    """Compute s / s_max in [−1, 1] of every token of every view, for the query token (view, row, column)."""
    grids = make_token_grids(cameras, patch, bank.coordinate)
    view, row, column = query
    frequencies = bank.make_frequencies()
    most = 4 * len(frequencies)  # two axes, 2 cos 0 each
    position = grids[view].positions[row, column][None]
    return [position_score(position, grid.positions, frequencies)[0] / most for grid in grids]


def compute_peak_error_deg(
    cameras: Sequence[Camera], patch: int, query: tuple[int, int, int], bank: Bank
) -> list[float]:
    """Compute, per view, the angle between the query's ray and the ray of the token that the prior prefers."""
    grids = make_token_grids(cameras, patch, "tangent")
    wanted = grids[query[0]].directions[query[1], query[2]]
    errors = []
    for grid, prior in zip(grids, compute_prior_maps(cameras, patch, query, bank), strict=True):
        peak = grid.directions.flatten(0, 1)[prior.flatten().argmax()]
        errors.append(float(torch.rad2deg(torch.linalg.cross(wanted, peak).norm().atan2(wanted @ peak))))
    return errors


# Where attention leans by position alone, for one clicked token, in every view (the paper's PE-only maps).


QUERY_LABEL = "#ff4f9a"


def draw_prior_figure(
    views: Sequence[LensView], patch: int, query: tuple[int, int, int], banks: Sequence[Bank], theme: Theme
) -> Figure:
    """Draw a row per encoding, with a color scale of its own, and a column per view.

    The square is the clicked token, the cross in the other views is where its ray really lands.
    """
    cameras = [view.camera for view in views]
    ray = make_token_grids(cameras, patch, "tangent")[query[0]].directions[query[1], query[2]]
    maps = [compute_prior_maps(cameras, patch, query, bank) for bank in banks]
    with use_theme(theme):
        figure = new_figure(0.9 + 3.5 * len(views), 0.4 + 2.9 * len(banks))
        axes = figure.subplots(len(banks), len(views), squeeze=False)
        for row, bank in enumerate(banks):
            errors = compute_peak_error_deg(cameras, patch, query, bank)
            low = min(float(prior.min()) for prior in maps[row])
            axes[row, 0].set_ylabel(bank.title, fontsize=11)
            for column, view in enumerate(views):
                _draw_prior(axes[row, column], view, maps[row][column], low, theme)
                if column == query[0]:
                    _draw_token_box(axes[row, column], patch, query)
                else:
                    _draw_ray_cross(axes[row, column], view, ray)
                where = (
                    "the clicked token" if column == query[0] else f"peak {errors[column]:.1f}° from the ray"
                )
                axes[row, column].set_xlabel(where, color=theme.faint)
            scale = axes[row, 0].images[-1]
            bar = figure.colorbar(scale, ax=axes[row], shrink=0.8, aspect=18, pad=0.012, label="s / s max")
            bar.outline.set_visible(False)  # type: ignore[operator]
        for column, view in enumerate(views):
            axes[0, column].set_title(view.name)
    return figure


def _draw_prior(axes: Axes, view: LensView, prior: torch.Tensor, low: float, theme: Theme) -> None:
    extent = (0, view.camera.width, view.camera.height, 0)
    if view.image is not None:
        grayscale = view.image.clamp(0, 1).mean(-1).numpy()
        axes.imshow(grayscale, cmap="gray", vmin=0, vmax=1, extent=extent)
    axes.imshow(
        prior.numpy(), cmap=theme.heat, vmin=low, vmax=1, alpha=0.72, extent=extent, interpolation="nearest"
    )
    axes.set(xticks=[], yticks=[], xlim=extent[:2], ylim=extent[2:])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_token_box(axes: Axes, patch: int, query: tuple[int, int, int]) -> None:
    corner = (query[2] * patch, query[1] * patch)
    for width, color in ((5.0, "black"), (2.6, QUERY_LABEL)):
        axes.add_patch(Rectangle(corner, patch, patch, fill=False, edgecolor=color, linewidth=width))


def _draw_ray_cross(axes: Axes, view: LensView, ray: torch.Tensor) -> None:
    pixels, valid = view.camera.project(ray[None])
    if not bool((valid & view.camera.contains(pixels)).all()):
        return
    u, v = pixels[0].tolist()
    reach = np.array([7, 20])
    for width, color in ((5.0, "black"), (2.4, QUERY_LABEL)):
        for angle in np.arange(4) * np.pi / 2:
            axes.plot(u + reach * np.cos(angle), v + reach * np.sin(angle), color=color, linewidth=width)
