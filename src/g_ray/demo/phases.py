"""Cross-projection phase mismatch as numbers: one ray pair, several lenses, two coordinates (paper, Fig. 2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

import numpy as np
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Circle, Wedge
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.pinhole import Pinhole
from g_ray.cameras.ray_grid import pixel_centers
from g_ray.coordinates import tangent
from g_ray.viewer.angle_maps import LensView
from g_ray.viewer.colors import CAMERA_COLORS
from g_ray.viewer.theme import Theme, new_figure, use_theme


@dataclass(frozen=True)
class PhaseComparison:
    """Relative phases Δφ = ω_k (ξ_b − ξ_a) of ray pairs (a, b), as each camera's image positions give them."""

    pixels: Float[Tensor, "pair camera 2 2"]  # where a and b land: [.., end, (u, v)]
    angles: Float[Tensor, "pair camera 2 2"]  # θ of the rays cast back through those pixels: [.., end, axis]
    grid: Float[Tensor, "pair camera 2 frequency"]  # ξ = token-grid index, in patches
    ray: Float[Tensor, "pair camera 2 frequency"]  # ξ = ray angle, in radians (eq:relative_angular_phase)


def compute_spread(phases: Float[Tensor, "pair camera 2 frequency"]) -> Float[Tensor, "pair"]:
    """Return the largest difference between cameras over axes and frequencies, in radians."""
    return (phases.amax(1) - phases.amin(1)).amax((-2, -1))


def compare_phases(
    cameras: Sequence[Camera],
    pairs: Float[Tensor, "pair 2 3"],
    patch: int,
    grid_bank: Float[Tensor, "frequency"],
    ray_bank: Float[Tensor, "frequency"],
) -> PhaseComparison:
    """Project each ray into each image, then compute positions and angles from the pixels alone."""
    pixels = torch.stack([_project(camera, pairs) for camera in cameras], 1)
    angles = torch.stack([_compute_angles(camera, pixels[:, i]) for i, camera in enumerate(cameras)], 1)
    return PhaseComparison(
        pixels=pixels,
        angles=angles,
        grid=_subtract_ends(pixels / patch)[..., None] * grid_bank.to(pixels),
        ray=_subtract_ends(angles)[..., None] * ray_bank.to(pixels),
    )


def draw_shared_ray_pairs(
    cameras: Sequence[Camera], count: int, seed: int = 0
) -> Float[Tensor, "{count} 2 3"]:
    """Draw random pairs of rays that every camera sees, from the pixels of the narrowest one."""
    narrow = min(cameras, key=lambda camera: float(camera.fov().diagonal_deg))
    centers = pixel_centers(narrow.width, narrow.height, dtype=narrow.dtype, device=narrow.device)
    rays, valid = narrow.unproject(centers.reshape(-1, 2))
    for camera in cameras:
        valid = valid & is_visible(camera, rays)
    candidates = rays[valid]
    if len(candidates) < 2:
        raise ValueError(
            "no ray pair is visible to all cameras: point them the same way, or widen the narrowest"
        )
    generator = torch.Generator().manual_seed(seed)
    return candidates[torch.randint(len(candidates), (count, 2), generator=generator)]


def is_visible(camera: Camera, directions: Float[Tensor, "*shape 3"]) -> Bool[Tensor, "*shape"]:
    """Return whether a ray projects into the image."""
    pixels, valid = camera.project(directions)
    return valid & camera.contains(pixels)


def _project(camera: Camera, rays: Tensor) -> Tensor:
    pixels, valid = camera.project(rays)
    if not bool((valid & camera.contains(pixels)).all()):
        raise ValueError(
            f"the {camera.NAME} camera does not see every ray of the pairs: use shared_ray_pairs"
        )
    return pixels


def _compute_angles(camera: Camera, pixels: Tensor) -> Tensor:
    return tangent(camera.unproject(pixels)[0])


def _subtract_ends(ends: Float[Tensor, "pair camera 2 axis"]) -> Float[Tensor, "pair camera axis"]:
    return ends[:, :, 1] - ends[:, :, 0]


# The same ray pair through several lenses: grid-index phases differ, ray-angle phases agree (paper, Fig. 2).


@dataclass(frozen=True)
class DialRow:
    """One row of dials: the relative phase of each camera at one frequency."""

    label: str
    phases: Sequence[float]
    digits: int

    @property
    def spread(self) -> float:
        return max(self.phases) - min(self.phases)


def draw_phase_figure(
    views: Sequence[LensView],
    phases: PhaseComparison,
    pair: int,
    patch: int,
    rows: Sequence[DialRow],
    theme: Theme,
) -> Figure:
    """Draw a column per camera (image with the pair, then a dial per row) and one with all cameras together."""
    count = len(views)
    with use_theme(theme):
        figure = new_figure(3.4 * count + 3.1, 2.75 + 2.15 * len(rows))
        axes = figure.subplots(
            1 + len(rows), count + 1, gridspec_kw={"height_ratios": [1.2] + [1.0] * len(rows)}, squeeze=False
        )
        for i, view in enumerate(views):
            _draw_pair(axes[0, i], view, phases.pixels[pair, i], patch, CAMERA_COLORS[i], theme)
        _draw_planes(axes[0, count], views, phases, pair, theme)
        for row, dials in zip(axes[1:], rows, strict=True):
            row[0].text(
                -2.05, 0, dials.label, rotation=90, ha="center", va="center", color=theme.ink, fontsize=11
            )
            for i, phase in enumerate(dials.phases):
                caption = f"Δφ = {phase:+.{dials.digits}f} rad"
                _draw_dial(row[i], [(phase, CAMERA_COLORS[i])], caption, theme)
            needles = list(zip(dials.phases, CAMERA_COLORS, strict=False))
            _draw_dial(row[count], needles, f"spread {_format_plain(dials.spread)} rad", theme, bold=True)
    return figure


def _format_plain(value: float) -> str:
    return f"{value:.2f}" if value > 5e-3 else f"{value:.0e}"


def _draw_pair(axes: Axes, view: LensView, ends: torch.Tensor, patch: int, color: str, theme: Theme) -> None:
    """Draw the image with its patch grid and the pair a → b."""
    axes.set_title(view.name, color=color)
    if view.image is not None:
        extent = (0, view.camera.width, view.camera.height, 0)
        axes.imshow(view.image.clamp(0, 1).numpy(), extent=extent)
    axes.set(xticks=range(0, view.camera.width + 1, patch), yticks=range(0, view.camera.height + 1, patch))
    axes.grid(color="white", linewidth=0.4, alpha=0.45)
    axes.tick_params(length=0, labelbottom=False, labelleft=False)
    (ua, va), (ub, vb) = ends.tolist()
    for width, shade in ((5.5, "black"), (3.0, color)):
        axes.plot([ua, ub], [va, vb], color=shade, linewidth=width, solid_capstyle="round")
    for name, u, v in (("a", ua, va), ("b", ub, vb)):
        axes.plot(u, v, "o", markersize=15, color=color, markeredgecolor="black", markeredgewidth=1.2)
        axes.text(u, v, name, ha="center", va="center_baseline", color="black", fontsize=10, weight="bold")
    axes.set_xlabel(
        f"a → b: {(ub - ua) / patch:+.2f} columns, {(vb - va) / patch:+.2f} rows", color=theme.faint
    )
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_planes(
    axes: Axes, views: Sequence[LensView], phases: PhaseComparison, pair: int, theme: Theme
) -> None:
    """Draw from above one camera center, two rays, and each lens's image surface at its focal length, to scale.

    A pinhole's image is a line at distance f, an equidistant fisheye's an arc of radius f: on both, lengths are
    pixels. The colored piece between the rays is what the pixel grid measures.
    """
    axes.set_title("one ray pair, from above")
    axes.set_aspect("equal")
    axes.axis("off")
    focal = [float(view.camera.central_intrinsics()[..., 0, 0]) for view in views]
    unit = max(focal)
    angles = phases.angles[pair, 0, :, 0].tolist()
    for angle, name in zip(angles, "ab", strict=True):
        axes.plot([0, 1.18 * np.sin(angle)], [0, 1.18 * np.cos(angle)], color=theme.ink, linewidth=1.1)
        axes.text(1.25 * np.sin(angle), 1.25 * np.cos(angle), name, ha="center", va="center", weight="bold")
    for view, f, color in zip(views, focal, CAMERA_COLORS, strict=False):
        half = view.camera.width / 2 / unit
        if isinstance(view.camera, Pinhole):
            axes.plot([-half, half], [f / unit] * 2, color=color, linewidth=1.0, alpha=0.5)
            axes.plot([f / unit * np.tan(a) for a in angles], [f / unit] * 2, color=color, linewidth=4.5)
        else:
            reach = np.degrees(half / (f / unit))
            size = 2 * f / unit
            axes.add_patch(
                Arc((0, 0), size, size, theta1=90 - reach, theta2=90 + reach, color=color, alpha=0.5)
            )
            sweep = np.linspace(angles[0], angles[1], 40)
            axes.plot(f / unit * np.sin(sweep), f / unit * np.cos(sweep), color=color, linewidth=4.5)
    axes.plot(0, 0, "o", color=theme.ink, markersize=5)
    axes.set(xlim=(-0.62, 0.62), ylim=(-0.06, 1.32))


def _draw_dial(
    axes: Axes, needles: Sequence[tuple[float, str]], caption: str, theme: Theme, bold: bool = False
) -> None:
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set(xlim=(-1.75, 1.75), ylim=(-1.5, 1.1))
    axes.add_patch(Circle((0, 0), 1, fill=False, color=theme.line, linewidth=1.2))
    for tick in np.arange(0, 2 * pi, pi / 4):
        axes.plot(
            [0.93 * np.cos(tick), np.cos(tick)],
            [0.93 * np.sin(tick), np.sin(tick)],
            color=theme.faint,
            lw=0.9,
        )
    axes.plot([0, 1], [0, 0], color=theme.faint, linewidth=0.9, linestyle=(0, (2, 2)))
    for order, (phase, color) in enumerate(needles):
        x, y = np.cos(phase), np.sin(phase)
        if len(needles) == 1:
            low, high = sorted((0.0, np.degrees(phase)))
            axes.add_patch(Wedge((0, 0), 0.42, low, high, color=color, alpha=0.25, linewidth=0))
        # Needles that coincide stay visible as ever thinner ones on top of each other.
        axes.plot([0, x], [0, y], color=color, linewidth=3.0 + 2.6 * (len(needles) - 1 - order))
        axes.plot(x, y, "o", color=color, markersize=6.5 + 4 * (len(needles) - 1 - order))
    axes.text(
        0, -1.33, caption, ha="center", va="center", weight="bold" if bold else "normal", color=theme.ink
    )
