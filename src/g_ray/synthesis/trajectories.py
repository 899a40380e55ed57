"""Camera trajectories for videos: through given poses, around what they look at, or zooming."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose, quaternion_from_rotation
from g_ray.rays.resample import center_box


def interpolate_poses(poses: Pose, frames: int) -> Pose:
    """Interpolate through all poses [view] in order: straight lines, and turns about one axis per segment."""
    if poses.batch_shape[0] < 2:
        raise ValueError("a path between poses needs at least two of them")
    along = torch.linspace(0, poses.batch_shape[0] - 1, frames, dtype=poses.dtype)
    first = along.floor().long().clamp(max=poses.batch_shape[0] - 2)
    part = along - first
    start, stop = poses[first], poses[first + 1]
    turn = vector_from_rotation(start.rotation.mT @ stop.rotation) * part[:, None]
    place = torch.lerp(start.translation, stop.translation, part[:, None])
    return Pose.from_parts(start.rotation @ rotation_from_vector(turn), place)


def orbit_poses(poses: Pose, frames: int, degrees: float | int) -> Pose:
    """Return an arc around the point that the poses look at, through their mean position and centered there."""
    focus, center = find_focus_point(poses), poses.translation.mean(0)
    down = torch.nn.functional.normalize(poses.rotation[..., 1].mean(0), dim=0)
    half = torch.deg2rad(torch.tensor(degrees / 2, dtype=poses.dtype))
    turn = torch.linspace(-1, 1, frames, dtype=poses.dtype)[:, None] * half * down
    eyes = focus + (rotation_from_vector(turn) @ (center - focus)[:, None])[..., 0]
    return Pose.look_at(eyes, focus.expand(frames, 3), down.expand(frames, 3))


def find_focus_point(poses: Pose) -> Float[Tensor, "3"]:
    """Return the point nearest to all optical axes; ValueError if they are parallel or diverge."""
    center, axis = poses.translation, poses.rotation[..., 2]
    across = torch.eye(3, dtype=poses.dtype) - axis[:, :, None] * axis[:, None, :]
    system = across.sum(0)
    if torch.linalg.eigvalsh(system)[0] < 1e-4 * len(center):
        raise ValueError("the poses look side by side: there is no point to circle around")
    focus = torch.linalg.solve(system, (across @ center[..., None]).sum(0)[:, 0])
    if (((focus - center) * axis).sum(-1) <= 0).any():
        raise ValueError("the poses look away from each other: there is no point to circle around")
    return focus


def vector_from_rotation(rotation: Float[Tensor, "*n 3 3"]) -> Float[Tensor, "*n 3"]:
    """Convert rotations to axis times angle, at most π."""
    quaternion = quaternion_from_rotation(rotation)
    sine = quaternion[..., :3].norm(dim=-1)
    angle = 2 * torch.atan2(sine, quaternion[..., 3])
    return quaternion[..., :3] * (angle / sine.clamp(min=torch.finfo(sine.dtype).tiny))[..., None]


def rotation_from_vector(vectors: Float[Tensor, "*n 3"]) -> Float[Tensor, "*n 3 3"]:
    """Convert axis times angle to rotations: the exponential of the cross-product matrix."""
    x, y, z = vectors.unbind(-1)
    zero = torch.zeros_like(x)
    cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).unflatten(-1, (3, 3))
    return torch.linalg.matrix_exp(cross)


# Camera paths for videos: a lens and a pose per frame.


@dataclass(frozen=True)
class PathKind:
    """How a path is made from the contexts' poses, the lens, the number of frames and the extent."""

    frames: Callable[[Pose, Camera, int, float], Iterator[tuple[Camera, Pose]]]
    extent: float | None
    """Default; None: the path has no extent."""
    about: str


def _interpolate(poses: Pose, lens: Camera, count: int, extent: float) -> Iterator[tuple[Camera, Pose]]:
    path = interpolate_poses(poses, count)
    return ((lens, path[i]) for i in range(count))


def _orbit(poses: Pose, lens: Camera, count: int, extent: float) -> Iterator[tuple[Camera, Pose]]:
    path = orbit_poses(poses, count, extent)
    return ((lens, path[i]) for i in range(count))


def _zoom(poses: Pose, lens: Camera, count: int, extent: float) -> Iterator[tuple[Camera, Pose]]:
    """Zoom in from the first context, in even steps of the logarithm, so that the speed looks constant."""
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
