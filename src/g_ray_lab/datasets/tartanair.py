"""Read TartanAir (first release): a drone's left camera in synthetic worlds.

ENVIRONMENT/Easy/P000/image_left/000000_left.png         640×480, 90° wide
ENVIRONMENT/Easy/P000/depth_left/000000_left_depth.npy   z-depth in meters; the sky is at 10,000 and beyond
ENVIRONMENT/Easy/P000/pose_left.txt                      tx ty tz qx qy qz qw per frame: world_from_cam

The camera's axes are north, east, down: x looks forward, y to the right, z down. Described by the authors' tools
(castacks/tartanair_tools, data_type.md).
"""

from math import pi
from pathlib import Path

import torch

from g_ray.formats.posed_scene import PosedScene
from g_ray.formats.recordings import (
    build_recorded_scene,
    make_centered_pinhole,
    make_pose,
    make_recorded_view,
    read_table,
)
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile
from g_ray.media.images import read_photo_size

TITLE = "TartanAir"
POSES = "pose_left.txt"
SKY_M = 10_000
NED_FROM_OPENCV = ((0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0))


def is_tartanair(folder: Path) -> bool:
    return (folder / POSES).is_file() and (folder / "image_left").is_dir()


def read_tartanair(folder: Path, check: bool = True) -> PosedScene:
    """Read the frames of a trajectory; ValueError, in one line with the file, if anything is wrong."""
    path = folder / POSES
    table = read_table(path, 7)
    images = sorted((folder / "image_left").glob("*_left.png"))
    if len(images) != len(table):
        raise ValueError(f"{path}: {len(table)} poses for {len(images)} images; unpack the trajectory again")
    camera = make_centered_pinhole(str(images[0]), *read_photo_size(images[0]), pi / 2)
    turn = Pose.from_parts(torch.tensor(NED_FROM_OPENCV, dtype=torch.float64), torch.zeros(3).double())
    views = []
    for number, (image, row) in enumerate(zip(images, table.tolist(), strict=True)):
        pose = make_pose(f"{path}, line {number + 1}", row[3:], row[:3]) @ turn
        depth = folder / "depth_left" / f"{image.stem}_depth.npy"
        views.append(make_recorded_view(image, camera, pose, DepthFile(depth, "z", limit=SKY_M)))
    return build_recorded_scene(folder, TITLE, views, check)
