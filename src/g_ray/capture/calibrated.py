"""A photo with its camera, and the table of them that people read before a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from g_ray.cameras.base import Camera
from g_ray.geometry.pose import Pose


@dataclass(frozen=True, eq=False)
class CalibratedPhoto:
    """What is known about the camera that took a photo."""

    name: str
    path: Path
    camera: Camera
    """At the photo's size; float64, but for ray maps (float32); pixels count from the top-left corner."""
    source: str
    """Where the camera came from, for people: "fisheye.yaml (OpenCV)"."""
    pose: Pose | None = None
    """`world_from_cam` with OpenCV axes, in the world and the unit of the source, if it knows."""


def format_calibration_table(views: Sequence[CalibratedPhoto]) -> str:
    """One line a view: name, size, model, horizontal field of view, source, and whether its pose is known."""
    head = ("photo", "size", "model", "FoV", "calibration", "pose")
    rows = [
        head,
        *(_format_row(view, fov) for view, fov in zip(views, _compute_fields_of_view(views), strict=True)),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _format_row(view: CalibratedPhoto, fov_deg: float) -> tuple[str, ...]:
    size = f"{view.camera.width}×{view.camera.height}"
    pose = "known" if view.pose is not None else "–"
    return (view.name, size, view.camera.NAME, f"{fov_deg:.1f}°", view.source, pose)


def _compute_fields_of_view(views: Sequence[CalibratedPhoto]) -> list[float]:
    """Photos of one lens share its camera, and its field of view is computed once."""
    known: dict[int, float] = {}
    for view in views:
        if id(view.camera) not in known:
            known[id(view.camera)] = float(view.camera.fov().horizontal_deg)
    return [known[id(view.camera)] for view in views]
