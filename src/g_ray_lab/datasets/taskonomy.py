"""Read Taskonomy: views of scanned buildings.

BUILDING/rgb/point_0_view_0_domain_rgb.png                        512×512
BUILDING/depth_zbuffer/point_0_view_0_domain_depth_zbuffer.png    z-depth, 16 bits, 512 a meter; 65535 is none
BUILDING/point_info/point_0_view_0_domain_point_info.json         camera_location in meters, camera_rotation_final,
                                                                  field_of_view_rads (or …_domain_fixatedpose.json)

camera_rotation_final are Blender's Euler angles XYZ in radians: R = Rz Ry Rx turns a camera that looks along −z, with
y up, into the world.
"""

from math import cos, sin
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from g_ray.formats.documents import parse_number, parse_numbers, read_json_object
from g_ray.formats.posed_scene import PosedScene
from g_ray.formats.recordings import (
    build_recorded_scene,
    make_centered_pinhole,
    make_recorded_view,
    make_world_from_cam,
)
from g_ray.media.depth import DepthFile
from g_ray.media.images import read_photo_size
from g_ray.media.view import View

TITLE = "Taskonomy"
RGB = "_domain_rgb.png"
INFOS = ("point_info", "fixatedpose")
"""Names of the domain that holds cameras, in two releases."""
PER_METER, NOTHING = 512, 65535


def is_taskonomy(folder: Path) -> bool:
    has_info = (folder / "point_info").is_dir()
    return has_info and next((folder / "rgb").glob(f"point_*{RGB}"), None) is not None


def read_taskonomy(folder: Path, check: bool = True) -> PosedScene:
    """Read the views of a building; ValueError, in one line with the file, if anything is wrong."""
    depth = DepthDomain(folder / "depth_zbuffer", "depth_zbuffer", "z")
    views = read_views(folder / "rgb", folder / "point_info", depth)
    return build_recorded_scene(folder, TITLE, views, check)


class DepthDomain(NamedTuple):
    """The folder of a building's depth files, the end of their names, and what they hold."""

    folder: Path
    name: str
    convention: Literal["z", "ray"]


def read_views(rgb: Path, infos: Path, depth: DepthDomain) -> list[View]:
    """Read the views of a building from the folders of its images, cameras and depth."""
    images = sorted(rgb.glob(f"point_*{RGB}"))
    size = read_photo_size(images[0])
    views = []
    for image in images:
        stem = image.name.removesuffix(RGB)
        paths = [infos / f"{stem}_domain_{name}.json" for name in INFOS]
        path = next((path for path in paths if path.is_file()), paths[0])
        info = read_json_object(path, "point info of Taskonomy")
        try:
            matrix = np.eye(4)
            matrix[:3, :3] = _rotate(*parse_numbers(info.get("camera_rotation_final"), "its rotation", (3,)))
            matrix[:3, 3] = parse_numbers(info.get("camera_location"), "its location", (3,))
            fov = parse_number(info.get("field_of_view_rads"), "field_of_view_rads")
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        file = depth.folder / f"{stem}_domain_{depth.name}.png"
        camera = make_centered_pinhole(str(path), *size, fov)
        pose = make_world_from_cam(str(path), matrix, "opengl")
        views.append(
            make_recorded_view(image, camera, pose, DepthFile(file, depth.convention, 1 / PER_METER, NOTHING))
        )
    return views


def _rotate(x: float, y: float, z: float) -> Float[np.ndarray, "3 3"]:
    """Compute Rz Ry Rx."""
    about_x = np.array([[1, 0, 0], [0, cos(x), -sin(x)], [0, sin(x), cos(x)]])
    about_y = np.array([[cos(y), 0, sin(y)], [0, 1, 0], [-sin(y), 0, cos(y)]])
    about_z = np.array([[cos(z), -sin(z), 0], [sin(z), cos(z), 0], [0, 0, 1]])
    return about_z @ about_y @ about_x
