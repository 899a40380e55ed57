"""What a camera sees, in numbers and as a picture."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from g_ray.cameras.base import Camera
from g_ray.viewer.angle_maps import LensView, compute_angle_maps_deg, draw_angle_maps
from g_ray.viewer.theme import LIGHT, write_png

PICTURE_WIDTH = 480


@dataclass(frozen=True)
class CameraReport:
    """One row of text, and whether some rays point sideways or backwards, where the pair θx, θy jumps."""

    row: Mapping[str, object]
    beyond_90_deg: bool


def describe_camera(name: str, camera: Camera) -> CameraReport:
    """Model, size, field of view, range of the ray angles over all pixel centres, share of valid pixels."""
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
    """Angle maps and validity mask; large images are drawn from the same camera at a smaller size."""
    scale = min(1.0, PICTURE_WIDTH / camera.width)
    small = camera.resize(max(2, round(scale * camera.width)), max(2, round(scale * camera.height)))
    return write_png(draw_angle_maps([LensView(name, small)], LIGHT, validity=True), path)


def _format_deg(angle: object) -> str:
    return f"{float(angle):.1f}°"  # type: ignore[arg-type]


def _format_range(angle_deg: np.ndarray) -> str:
    if np.isnan(angle_deg).all():
        return "no valid ray"
    return f"{np.nanmin(angle_deg):+.1f}° … {np.nanmax(angle_deg):+.1f}°"
