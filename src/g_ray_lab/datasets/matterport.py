"""Read Matterport3D: houses scanned from tripods, as undistorted photographs.

HOUSE/undistorted_camera_parameters/HOUSE.conf     intrinsics_matrix fx 0 cx 0 fy cy 0 0 1
                                                   scan DEPTH.png COLOR.jpg 4×4 world_from_cam row by row
HOUSE/undistorted_color_images/COLOR.jpg           1280×1024
HOUSE/undistorted_depth_images/DEPTH.png           z-depth, 16 bits, 4,000 a meter; 0 is none

An intrinsics matrix holds for the scans behind it. Its image begins at the bottom left (niessner/Matterport,
data_organization.md), so that cy counts upwards; its camera looks along −z, with y up.
"""

from pathlib import Path

import numpy as np
import torch

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.posed_scene import PosedScene, resolve_inside
from g_ray.formats.recordings import build_recorded_scene, make_recorded_view, make_world_from_cam
from g_ray.media.depth import DepthFile
from g_ray.media.images import read_photo_size

TITLE = "Matterport3D"
PARAMETERS, COLOR, DEPTH = (
    f"undistorted_{what}" for what in ("camera_parameters", "color_images", "depth_images")
)
PER_METER = 4000


def is_matterport(folder: Path) -> bool:
    return next((folder / PARAMETERS).glob("*.conf"), None) is not None


def read_matterport(folder: Path, check: bool = True) -> PosedScene:
    """Read all scans of a house; ValueError, in one line with the file, if anything is wrong."""
    path = min((folder / PARAMETERS).glob("*.conf"))
    lens: list[float] | None = None
    size: tuple[int, int] | None = None
    views = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split()
        what = f"{path}, line {number}"
        if words[:1] == ["intrinsics_matrix"]:
            lens = _parse(what, words[1:], 9)
        elif words[:1] == ["scan"]:
            if lens is None or len(words) != 19:
                raise ValueError(
                    f"{what}: a scan without intrinsics, names or matrix; unpack the house again"
                )
            image = resolve_inside(folder / COLOR, words[2])
            size = size or read_photo_size(image)
            pose = make_world_from_cam(what, np.reshape(_parse(what, words[3:], 16), (4, 4)), "opengl")
            depth = DepthFile(resolve_inside(folder / DEPTH, words[1]), "z", 1 / PER_METER)
            views.append(make_recorded_view(image, _make_camera(lens, *size), pose, depth))
    return build_recorded_scene(folder, TITLE, views, check)


def _make_camera(lens: list[float], width: int, height: int) -> Pinhole:
    fx, _, cx, _, fy, cy, *_ = lens
    return Pinhole.make(width, height, fx=fx, fy=fy, cx=cx, cy=height - cy, dtype=torch.float64)


def _parse(what: str, words: list[str], count: int) -> list[float]:
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        numbers = []
    if len(numbers) != count or not np.isfinite(numbers).all():
        raise ValueError(f"{what}: not {count} numbers; unpack the house again")
    return numbers
