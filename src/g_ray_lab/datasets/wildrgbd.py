"""Read WildRGB-D: objects filmed all around with a phone.

CATEGORY/scenes/scene_000/rgb/00000.png      640×480
CATEGORY/scenes/scene_000/depth/00000.png    z-depth, 16 bits, millimeters; 0 is none
CATEGORY/scenes/scene_000/masks/00000.png    the object; not used unless a mask folder is named
CATEGORY/scenes/scene_000/metadata           JSON: K as nine numbers column by column, w, h
CATEGORY/scenes/scene_000/cam_poses.txt      frame, then 4×4 world_from_cam row by row, OpenCV axes, meters
"""

from pathlib import Path

import numpy as np
import torch

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.documents import parse_numbers, parse_positive_int, read_json_object
from g_ray.formats.posed_scene import PosedScene
from g_ray.formats.recordings import build_recorded_scene, make_recorded_view, make_world_from_cam, read_table
from g_ray.media.depth import DepthFile

TITLE = "WildRGB-D"
POSES, METADATA = "cam_poses.txt", "metadata"
MILLIMETER = 0.001


def is_wildrgbd(folder: Path) -> bool:
    return (folder / POSES).is_file() and (folder / METADATA).is_file()


def read_wildrgbd(folder: Path, check: bool = True) -> PosedScene:
    """Read all frames with a pose; ValueError, in one line with the file, if anything is wrong."""
    path = folder / METADATA
    metadata = read_json_object(path, "metadata of WildRGB-D")
    try:
        width, height = (parse_positive_int(metadata.get(key), key) for key in ("w", "h"))
        fx, _, _, _, fy, _, cx, cy, _ = parse_numbers(metadata.get("K"), "K", (9,))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    camera = Pinhole.make(width, height, fx=fx, fy=fy, cx=cx, cy=cy, dtype=torch.float64)
    views = []
    for row in read_table(folder / POSES, 17):
        name = f"{int(row[0]):05d}.png"
        pose = make_world_from_cam(f"{folder / POSES}: frame {int(row[0])}", np.reshape(row[1:], (4, 4)))
        depth = DepthFile(folder / "depth" / name, "z", MILLIMETER)
        views.append(make_recorded_view(folder / "rgb" / name, camera, pose, depth))
    masked = ("masks/ holds the objects; not used",) if (folder / "masks").is_dir() else ()
    return build_recorded_scene(folder, TITLE, views, check, masked)
