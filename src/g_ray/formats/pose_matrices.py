"""Poses from what files hold, checked."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float

from g_ray.formats.frames import find_nearest_rotation
from g_ray.geometry.pose import Pose, rotation_from_quaternion


def make_pose(what: str, quaternion_xyzw: Sequence[float], position: Sequence[float]) -> Pose:
    """Make `world_from_cam` of a rotation and a center; ValueError, beginning with `what`, if they are none."""
    length = math.sqrt(sum(part * part for part in quaternion_xyzw))
    if not all(map(math.isfinite, (*quaternion_xyzw, *position))) or not 0.9 < length < 1.1:
        raise ValueError(
            f"{what} is not a rotation and a position of finite numbers; unpack the dataset again"
        )
    rotation = rotation_from_quaternion(torch.tensor(quaternion_xyzw, dtype=torch.float64))
    return Pose.from_parts(rotation, torch.tensor(position, dtype=torch.float64))


def make_pose_from_matrix(what: str, matrix: Float[np.ndarray, "row 4"]) -> Pose:
    """Make a pose of a 3×4 or 4×4 matrix; ValueError, beginning with `what`, if it is no rigid motion."""
    numbers = torch.from_numpy(np.asarray(matrix, dtype=np.float64))
    rotation = find_nearest_rotation(numbers[:3, :3]) if bool(torch.isfinite(numbers).all()) else None
    if rotation is None:
        raise ValueError(
            f"{what} is not a rotation and a position of finite numbers; unpack the dataset again"
        )
    return Pose.from_parts(rotation, numbers[:3, 3])
