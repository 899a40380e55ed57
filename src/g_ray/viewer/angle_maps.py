"""Maps of the horizontal and the vertical ray angle over the image (paper, eq:thetax, eq:thetay)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.coordinates import tangent
from g_ray.rays.ray_map import RayMap
from g_ray.viewer.theme import Theme, new_figure, use_theme


@dataclass(frozen=True)
class LensView:
    """A camera with a name and, if there is one, its image."""

    name: str
    camera: Camera
    image: Float[Tensor, "h w 3"] | None = None


def compute_angle_maps_deg(camera: Camera) -> tuple[np.ndarray, np.ndarray]:
    """θx and θy in degrees, [height, width, 2] with NaN where no ray is, and the validity mask."""
    rays = RayMap.from_camera(camera)
    angles = torch.rad2deg(tangent(rays.directions))
    return angles.masked_fill(~rays.valid[..., None], float("nan")).numpy(), rays.valid.numpy()


def draw_angle_maps(views: Sequence[LensView], theme: Theme, validity: bool = False) -> Figure:
    """A column per camera: its image if given, θx, θy and, if asked, the validity mask. One colour scale for all."""
    maps = [compute_angle_maps_deg(view.camera) for view in views]
    images = int(any(view.image is not None for view in views))
    rows = ["image"] * images + ["θx", "θy"] + ["valid"] * validity
    top = max(float(np.nanmax(np.abs(angles), initial=1.0)) for angles, _ in maps)
    with use_theme(theme):
        tallest = max(view.camera.height / view.camera.width for view in views)
        figure = new_figure(0.9 + 3.5 * len(views), 0.6 + 0.2 * validity + (0.1 + 3.4 * tallest) * len(rows))
        axes = figure.subplots(len(rows), len(views), squeeze=False)
        for column, (view, (angles, valid)) in enumerate(zip(views, maps, strict=True)):
            axes[0, column].set_title(view.name)
            for row, kind in enumerate(rows):
                _draw_frame(axes[row, column], theme, kind if column == 0 else "")
                if kind == "image":
                    _draw_image(axes[row, column], view)
                elif kind == "valid":
                    _draw_mask(axes[row, column], valid, theme)
                else:
                    _draw_angle(axes[row, column], angles[..., rows.index(kind) - images], top, theme)
        scale = axes[images, 0].images[0]
        bar = figure.colorbar(
            scale, ax=axes[images : images + 2], shrink=0.7, aspect=34, pad=0.012, label="degrees"
        )
        bar.outline.set_visible(False)  # type: ignore[operator]
    return figure


ROW_LABELS = {"image": "image", "θx": "horizontal angle θx", "θy": "vertical angle θy", "valid": "valid rays"}


def _draw_frame(axes: Axes, theme: Theme, kind: str) -> None:
    axes.set(xticks=[], yticks=[])
    axes.set_ylabel(ROW_LABELS.get(kind, ""), color=theme.faint)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_image(axes: Axes, view: LensView) -> None:
    if view.image is not None:
        axes.imshow(view.image.clamp(0, 1).numpy())


def _draw_angle(axes: Axes, angle_deg: np.ndarray, top: float, theme: Theme) -> None:
    axes.imshow(angle_deg, cmap=theme.diverging, vmin=-top, vmax=top)
    if np.isnan(angle_deg).all():
        return
    low, high = float(np.nanmin(angle_deg)), float(np.nanmax(angle_deg))
    step = next((step for step in (1, 2, 5, 10, 20) if (high - low) / step <= 12), 40)
    levels = step * np.arange(np.ceil(low / step), np.floor(high / step) + 1)
    # Beyond 90° atan2 jumps by up to 360°: a contour through the jump would be a lie.
    shown = np.ma.masked_invalid(angle_deg)
    jump = np.hypot(*np.gradient(angle_deg)) > 20
    contours = axes.contour(
        np.ma.masked_where(jump, shown), levels=levels, colors=theme.ink, linewidths=0.5, alpha=0.55
    )
    axes.clabel(contours, fmt="%d°", fontsize=7.5)


def _draw_mask(axes: Axes, valid: np.ndarray, theme: Theme) -> None:
    axes.imshow(valid, cmap=ListedColormap([theme.line, "#4caf7d"]), vmin=0, vmax=1, interpolation="nearest")
    axes.set_xlabel(f"{100 * valid.mean():.1f} % of the pixels have a ray", color=theme.faint)
