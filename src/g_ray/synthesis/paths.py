"""Camera paths for videos: a lens and a pose per frame."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from g_ray.cameras.base import Camera
from g_ray.data.resample import center_box
from g_ray.geometry.pose import Pose
from g_ray.geometry.pose_paths import interpolate_poses, orbit_poses


@dataclass(frozen=True)
class PathKind:
    """How a path is made from the contexts' poses, the lens, the number of frames and the extent."""

    frames: Callable[[Pose, Camera, int, float], Iterator[tuple[Camera, Pose]]]
    extent: float | None
    """What is taken when none is given; None: the path has no extent."""
    about: str


def _interpolate(poses: Pose, lens: Camera, count: int, extent: float) -> Iterator[tuple[Camera, Pose]]:
    path = interpolate_poses(poses, count)
    return ((lens, path[i]) for i in range(count))


def _orbit(poses: Pose, lens: Camera, count: int, extent: float) -> Iterator[tuple[Camera, Pose]]:
    path = orbit_poses(poses, count, extent)
    return ((lens, path[i]) for i in range(count))


def _zoom(poses: Pose, lens: Camera, count: int, extent: float) -> Iterator[tuple[Camera, Pose]]:
    """Evenly in the logarithm, as a zoom lens feels; the view stays where the first context stands."""
    if not extent > 1:
        raise ValueError(f"a zoom to {extent} shows nothing new: give more than 1")
    zooms = torch.logspace(0, 1, count, base=extent, dtype=torch.float64).tolist()
    width, height = lens.width, lens.height
    return ((lens.resize(width, height, center_box(width, height, max(1.0, z))), poses[0]) for z in zooms)


PATHS: dict[str, PathKind] = {
    "interpolate": PathKind(_interpolate, None, "from context to context"),
    "orbit": PathKind(_orbit, 30.0, "an arc, in degrees, around what the contexts look at"),
    "zoom": PathKind(_zoom, 2.5, "the first context's place, zooming in by a factor"),
}
