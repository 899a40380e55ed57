"""Maps of the horizontal and vertical ray angle over an image (paper, eq:thetax, eq:thetay), as figures and numbers.

`g-ray rays` prints `describe_camera` and writes `write_picture`; the demo page shows `draw_angle_maps`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.coordinates import tangent
from g_ray.rays.ray_map import RayMap
from g_ray.viewer.theme import LIGHT, Theme, new_figure, use_theme, write_png

ROW_LABELS = {"image": "image", "θx": "horizontal angle θx", "θy": "vertical angle θy", "valid": "valid rays"}
PICTURE_WIDTH = 480  # pixels: larger images are drawn from a resized camera
JUMP_DEG = 20.0  # between neighboring pixels: a discontinuity of atan2, not a steep angle


@dataclass(frozen=True)
class LensView:
    """A camera with a name and, optionally, its image."""

    name: str
    camera: Camera
    image: Float[Tensor, "h w 3"] | None = None


def compute_angle_maps_deg(camera: Camera) -> tuple[np.ndarray, np.ndarray]:
    """Return θx and θy in degrees, [height, width, 2] with NaN for pixels without a ray, and the validity mask."""
    rays = RayMap.from_camera(camera)
    angles = torch.rad2deg(tangent(rays.directions))
    return angles.masked_fill(~rays.valid[..., None], float("nan")).numpy(), rays.valid.numpy()


def draw_angle_maps(views: Sequence[LensView], theme: Theme, validity: bool = False) -> Figure:
    """Draw a column per camera: image if there is one, θx, θy and optionally the validity mask, on one color scale."""
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


@dataclass(frozen=True)
class CameraReport:
    """One table row, and whether some rays are 90° or more from the axis, where (θx, θy) is discontinuous."""

    row: Mapping[str, object]
    beyond_90_deg: bool


def describe_camera(name: str, camera: Camera) -> CameraReport:
    """Describe a camera: model, size, field of view, range of ray angles over pixel centers, share of valid pixels."""
    fov = camera.fov()
    horizontal, vertical, diagonal = map(
        _format_deg, (fov.horizontal_deg, fov.vertical_deg, fov.diagonal_deg)
    )
    angles, valid = compute_angle_maps_deg(camera)
    row = {
        "camera": name,
        "model": camera.NAME,
        "size": f"{camera.width}×{camera.height}",
        "FoV h × v (diag.)": f"{horizontal} × {vertical} ({diagonal})",
        "θx": _format_range(angles[..., 0]),
        "θy": _format_range(angles[..., 1]),
        "valid": f"{100 * valid.mean():.1f} %",
    }
    return CameraReport(row, beyond_90_deg=bool((np.abs(angles) >= 90).any()))


def write_picture(name: str, camera: Camera, path: Path) -> Path:
    """Write angle maps and validity mask as PNG; large images are drawn from the same camera at a smaller size."""
    scale = min(1.0, PICTURE_WIDTH / camera.width)
    small = camera.resize(max(2, round(scale * camera.width)), max(2, round(scale * camera.height)))
    return write_png(draw_angle_maps([LensView(name, small)], LIGHT, validity=True), path)


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
    # Beyond 90° from the axis atan2 jumps by up to 360°: mask the jump, or contours would run through it.
    shown = np.ma.masked_invalid(angle_deg)
    jump = np.hypot(*np.gradient(angle_deg)) > JUMP_DEG
    contours = axes.contour(
        np.ma.masked_where(jump, shown), levels=levels, colors=theme.ink, linewidths=0.5, alpha=0.55
    )
    axes.clabel(contours, fmt="%d°", fontsize=7.5)


def _draw_mask(axes: Axes, valid: np.ndarray, theme: Theme) -> None:
    axes.imshow(valid, cmap=ListedColormap([theme.line, "#4caf7d"]), vmin=0, vmax=1, interpolation="nearest")
    axes.set_xlabel(f"{100 * valid.mean():.1f} % of the pixels have a ray", color=theme.faint)


def _format_deg(angle: object) -> str:
    return f"{float(angle):.1f}°"  # type: ignore[arg-type]


def _format_range(angle_deg: np.ndarray) -> str:
    if np.isnan(angle_deg).all():
        return "no valid ray"
    return f"{np.nanmin(angle_deg):+.1f}° … {np.nanmax(angle_deg):+.1f}°"
