"""Read MatrixCity: a synthetic city from the air and from the street, block by block.

BLOCK/transforms.json    camera_angle_x, frames with frame_index and rot_mat: 4×4 world_from_cam, OpenGL axes, position
                         in meters, its rotation divided by 100
BLOCK/rgb/0000.png
BLOCK/depth/0000.exr     z-depth in centimeters, Unreal's unit; the sky is at 65,000 and beyond

Described by the dataset's README; units of depth and the sky are those that published loaders of it use.
"""

from pathlib import Path

import numpy as np

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

TITLE = "MatrixCity"
TRANSFORMS = "transforms.json"
ROTATION_SCALE = 100
CENTIMETER, SKY = 0.01, 65_000


def is_matrixcity(folder: Path) -> bool:
    """Return whether a folder has a transforms.json whose frames have `rot_mat`, within its first characters."""
    path = folder / TRANSFORMS
    if not path.is_file() or not (folder / "rgb").is_dir():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return '"rot_mat"' in file.read(4096)


def read_matrixcity(folder: Path, check: bool = True) -> PosedScene:
    """Read the frames of a block; ValueError, in one line with the file, if anything is wrong."""
    path = folder / TRANSFORMS
    document = read_json_object(path, "poses of MatrixCity")
    frames = document.get("frames")
    if not isinstance(frames, list) or not frames:
        raise ValueError(f"{path}: no frames in it; unpack the block again")
    fov = parse_number(document.get("camera_angle_x"), "camera_angle_x")
    camera, views = None, []
    for number, frame in enumerate(frames):
        what = f"{path}: frame {number}"
        if not isinstance(frame, dict):
            raise ValueError(f"{what} is not an object; unpack the block again")
        index = int(parse_number(frame.get("frame_index"), f"{what}: frame_index"))
        rows = frame.get("rot_mat")
        numbers = [
            parse_numbers(row, f"{what}: rot_mat", (4,)) for row in (rows if isinstance(rows, list) else ())
        ]
        if len(numbers) != 4:
            raise ValueError(f"{what}: rot_mat is not a 4×4 matrix")
        matrix = np.array(numbers)
        matrix[:3, :3] *= ROTATION_SCALE
        image = folder / "rgb" / f"{index:04d}.png"
        camera = camera or make_centered_pinhole(what, *read_photo_size(image), fov)
        depth = DepthFile(folder / "depth" / f"{index:04d}.exr", "z", CENTIMETER, limit=SKY)
        views.append(make_recorded_view(image, camera, make_world_from_cam(what, matrix, "opengl"), depth))
    return build_recorded_scene(folder, TITLE, views, check)
