"""Choose which way is up in a reconstructed scene, and where to look at it from first."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from g_ray.geometry.pose import Pose

MIN_AGREEMENT = 0.2
"""Length of a mean of unit vectors below which they point everywhere, and the mean is meaningless."""
MEAN_WEIGHT = 0.02
"""Weight of the mean up direction compared with the horizontal axes, in squared sines."""
BEHIND, ABOVE = 0.9, 0.55
"""How far the first viewpoint is behind and above the cameras, in median depths."""


@dataclass(frozen=True)
class Viewpoint:
    """An eye in the world, and what it looks at."""

    position: Float[np.ndarray, "3"]
    look_at: Float[np.ndarray, "3"]
    up: Float[np.ndarray, "3"]


def compute_up(poses: Sequence[Pose]) -> Float[np.ndarray, "3"]:
    """Return the direction that the cameras' horizontal axes are most orthogonal to, on the side of their own ups.

    People hold cameras level, but point them down or up, so that the mean of their up directions leans. Where cameras
    hardly turn, their horizontal axes are nearly parallel and leave the direction open: the mean decides.
    """
    rotations = _stack_rotations(poses)
    mean = _average_directions(-rotations[:, :, 1], -rotations[0, :, 1])
    level = np.einsum("vi,vj->ij", rotations[:, :, 0], rotations[:, :, 0]) / len(rotations)
    _, axes = np.linalg.eigh(level + MEAN_WEIGHT * (np.eye(3) - np.outer(mean, mean)))
    return axes[:, 0] * np.sign(axes[:, 0] @ mean)


def make_upright_basis(up: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3 3"]:
    """Return right, down and forward as columns: the world's own axes, turned as little as `up` needs."""
    down = -up
    # z stays ahead, unless it is vertical; with up = −y the basis is the identity.
    ahead = np.array([0.0, 0.0, 1.0]) if abs(down[2]) < 0.9 else np.array([0.0, 1.0, 0.0])
    forward = _normalize(ahead - (ahead @ down) * down)
    return np.stack([np.cross(down, forward), down, forward], 1)


def choose_viewpoint(poses: Sequence[Pose], points: Float[np.ndarray, "n 3"], depth: float) -> Viewpoint:
    """Look from behind and above all cameras at the median of the points; `depth` is the median distance of points."""
    up, rotations = compute_up(poses), _stack_rotations(poses)
    centers = np.stack([pose.translation.double().numpy(force=True) for pose in poses])
    # Medians: one camera or a hundred points far off do not move the view.
    middle = np.median(centers, axis=0)
    target = np.median(points if len(points) else centers, axis=0)
    spread = float(np.quantile(np.linalg.norm(centers - middle, axis=1), 0.9))
    # Cameras around an object look everywhere; then stand behind the first one.
    forward = _average_directions(rotations[:, :, 2], rotations[0, :, 2])
    level = forward - (forward @ up) * up
    forward = _normalize(level) if np.linalg.norm(level) > MIN_AGREEMENT else make_upright_basis(up)[:, 2]
    position = middle - (BEHIND * depth + spread) * forward + (ABOVE * depth + 0.5 * spread) * up
    return Viewpoint(position, target, up)


def _stack_rotations(poses: Sequence[Pose]) -> Float[np.ndarray, "view 3 3"]:
    return np.stack([pose.rotation.double().numpy(force=True) for pose in poses])


def _average_directions(
    directions: Float[np.ndarray, "n 3"], otherwise: Float[np.ndarray, "3"]
) -> Float[np.ndarray, "3"]:
    mean = directions.mean(0)
    return _normalize(mean if np.linalg.norm(mean) > MIN_AGREEMENT else otherwise)


def _normalize(vector: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
    return vector / np.linalg.norm(vector)
