"""Build scenes from recordings: what datasets with a layout of their own have in common."""

import math
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite, tan
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float

from g_ray.cameras.camera import Camera
from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.frames import find_nearest_rotation
from g_ray.formats.posed_scene import PosedScene, check_images, find_covisibility_file
from g_ray.geometry.pose import Pose, rotation_from_quaternion
from g_ray.media.depth import DepthFile
from g_ray.media.view import View

OPENCV_FROM_OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])
"""From x right, y up, looking along −z, to x right, y down, looking along z."""


def make_recorded_view(image: Path, camera: Camera, pose: Pose, depth: DepthFile | None = None) -> View:
    """Make the view of one photograph of a recording; `build_recorded_scene` names it after its place."""
    return View(image.name, camera, pose, image=image, depth=depth)


def build_recorded_scene(
    folder: Path, title: str, views: Sequence[View], check: bool, notes: tuple[str, ...] = ()
) -> PosedScene:
    """Build the scene of a folder, in the order of the views; ValueError if there is none."""
    if not views:
        raise ValueError(f"{folder}: no image with a pose in it; unpack this part of {title} again")
    named = [
        replace(view, name=view.image.relative_to(folder).as_posix(), source=title)
        for view in views
        if isinstance(view.image, Path)
    ]
    scene = PosedScene(folder, title, tuple(named), notes, find_covisibility_file(folder))
    if check:
        check_images(scene.names, scene.images, scene.cameras)
    return scene


def read_table(path: Path, columns: int, skip: int = 0) -> Float[np.ndarray, "row {columns}"]:
    """Read lines of `columns` numbers each, after `skip` header lines; a ValueError names the file."""
    try:
        table = np.loadtxt(path, dtype=np.float64, ndmin=2, skiprows=skip)
    except OSError:
        raise ValueError(f"{path}: no such file; unpack the dataset again") from None
    except ValueError:
        table = np.zeros((0, 0))
    if table.shape[1] != columns or not len(table) or not np.isfinite(table).all():
        raise ValueError(f"{path}: not lines of {columns} numbers; unpack the dataset again")
    return table


def make_world_from_cam(
    what: str, matrix: Float[np.ndarray, "4 4"], axes: Literal["opencv", "opengl"] = "opencv"
) -> Pose:
    """Make a pose from a matrix whose camera has the given axes; ValueError, beginning with `what`, if it is none."""
    return make_pose_from_matrix(what, matrix if axes == "opencv" else matrix @ OPENCV_FROM_OPENGL)


def make_centered_pinhole(what: str, width: int, height: int, fov_rad: float) -> Pinhole:
    """Make a pinhole with square pixels and a horizontal field of view that looks through the middle of its image."""
    if not isfinite(fov_rad) or not 0 < fov_rad < np.pi:
        raise ValueError(f"{what}: a field of view of {fov_rad} rad; a pinhole's lies between 0 and π")
    focal = width / 2 / tan(fov_rad / 2)
    return Pinhole.make(width, height, fx=focal, fy=focal, cx=width / 2, cy=height / 2, dtype=torch.float64)


# Poses as matrices


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
    """Make a pose of a 3×4 or 4×4 matrix; ValueError, beginning with `what`, if it is not a rigid motion."""
    numbers = torch.from_numpy(np.asarray(matrix, dtype=np.float64))
    rotation = find_nearest_rotation(numbers[:3, :3]) if bool(torch.isfinite(numbers).all()) else None
    if rotation is None:
        raise ValueError(
            f"{what} is not a rotation and a position of finite numbers; unpack the dataset again"
        )
    return Pose.from_parts(rotation, numbers[:3, 3])
