"""Read Virtual KITTI 2: five streets in synthetic variations, seen by a stereo pair.

Scene01/clone/frames/rgb/Camera_0/rgb_00000.jpg       1242×375
Scene01/clone/frames/depth/Camera_0/depth_00000.png   z-depth, 16 bits, centimeters; 65535 is 655.35 m and beyond
Scene01/clone/intrinsic.txt     heading, then frame, camera, fx, fy, cx, cy (pixel centers at whole numbers)
Scene01/clone/extrinsic.txt     heading, then frame, camera, 4×4 cam_from_world row by row, OpenCV axes, meters

Cars move: depth of different frames does not agree on them.
"""

from pathlib import Path

import numpy as np
import torch

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.posed_scene import PosedScene
from g_ray.formats.recordings import build_recorded_scene, make_recorded_view, make_world_from_cam, read_table
from g_ray.media.depth import DepthFile
from g_ray.media.images import read_photo_size

TITLE = "Virtual KITTI 2"
EXTRINSIC, INTRINSIC = "extrinsic.txt", "intrinsic.txt"
CENTIMETER, FARTHEST = 0.01, 65535
CENTER = 0.5
"""Its principal point 620.5, 187 is the middle of 1242×375 pixels whose centers are whole numbers; ours lie at +0.5."""


def is_virtual_kitti(folder: Path) -> bool:
    return (folder / EXTRINSIC).is_file() and (folder / INTRINSIC).is_file()


def read_virtual_kitti(folder: Path, check: bool = True) -> PosedScene:
    """Read the frames of both cameras; ValueError, in one line with the file, if anything is wrong."""
    lenses = {(int(row[0]), int(row[1])): row[2:] for row in read_table(folder / INTRINSIC, 6, skip=1)}
    views, sizes = [], dict[int, tuple[int, int]]()
    for row in read_table(folder / EXTRINSIC, 18, skip=1):
        frame, number = int(row[0]), int(row[1])
        image = folder / "frames" / "rgb" / f"Camera_{number}" / f"rgb_{frame:05d}.jpg"
        if (frame, number) not in lenses:
            raise ValueError(f"{folder / INTRINSIC}: no line for frame {frame} of camera {number}")
        if number not in sizes:
            sizes[number] = read_photo_size(image)
        fx, fy, cx, cy = lenses[frame, number]
        camera = Pinhole.make(
            *sizes[number], fx=fx, fy=fy, cx=cx + CENTER, cy=cy + CENTER, dtype=torch.float64
        )
        what = f"{folder / EXTRINSIC}: frame {frame} of camera {number}"
        pose = make_world_from_cam(what, np.reshape(row[2:], (4, 4))).inverse()
        depth = folder / "frames" / "depth" / f"Camera_{number}" / f"depth_{frame:05d}.png"
        views.append(
            make_recorded_view(image, camera, pose, DepthFile(depth, "z", CENTIMETER, limit=FARTHEST))
        )
    return build_recorded_scene(folder, TITLE, views, check)
