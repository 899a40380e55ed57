"""Read Mid-Air: a drone's flights through synthetic landscapes in several climates.

Kite_training/sunny/sensor_records.hdf5                            all flights of a climate
    trajectory_0000/groundtruth/position                           [sample, 3], meters, 100 per second
    trajectory_0000/groundtruth/attitude                           [sample, 4], qw qx qy qz, world_from_body
Kite_training/sunny/color_left/trajectory_0000/000000.JPEG         1024×1024, 90° wide, 25 per second
Kite_training/sunny/depth/trajectory_0000/000000.PNG               meters along the ray, half floats in 16 bits

A scene is a flight: each has a world of its own. The axes of world and body are north, east, down; the left camera sits
at the origin of the body and looks along its x axis. That and the distance along the ray are not in the documentation:
the authors' M4Depth takes the motion of the body for the camera's, and published loaders that reproduce the dataset's
optical flow take both as here. The sky has no depth. HDF5 needs h5py.
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
)
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile, read_hdf5
from g_ray.media.images import read_photo_size
from g_ray_lab.datasets.tartanair import NED_FROM_OPENCV

TITLE = "Mid-Air"
RECORDS = "sensor_records.hdf5"
SAMPLES_PER_IMAGE = 4
SKY_M = 5_000


def is_midair(folder: Path) -> bool:
    return folder.parent.name == "color_left" and (folder.parent.parent / RECORDS).is_file()


def read_midair(folder: Path, check: bool = True) -> PosedScene:
    """Read the left camera of a flight; ValueError, in one line with the file, if anything is wrong."""
    climate = folder.parent.parent
    records, group = climate / RECORDS, f"{folder.name}/groundtruth"
    try:
        positions, attitudes = (read_hdf5(records, f"{group}/{name}") for name in ("position", "attitude"))
    except OSError as error:
        raise ValueError(str(error)) from None
    images = sorted(folder.glob("*.JPEG"))
    if not images:
        raise ValueError(f"{folder}: no JPEG files in it; unpack the flight again")
    camera = make_centered_pinhole(str(images[0]), *read_photo_size(images[0]), pi / 2)
    turn = Pose.from_parts(torch.tensor(NED_FROM_OPENCV, dtype=torch.float64), torch.zeros(3).double())
    views = []
    for image in images:
        sample = SAMPLES_PER_IMAGE * int(image.stem) if image.stem.isdigit() else len(positions)
        if sample >= min(len(positions), len(attitudes)):
            raise ValueError(f"{image}: no pose in {records}; unpack the flight again")
        w, x, y, z = attitudes[sample].tolist()
        pose = (
            make_pose(f"{records}: {group}, sample {sample}", (x, y, z, w), positions[sample].tolist()) @ turn
        )
        depth = climate / "depth" / folder.name / f"{image.stem}.PNG"
        views.append(
            make_recorded_view(image, camera, pose, DepthFile(depth, "ray", limit=SKY_M, half_floats=True))
        )
    return build_recorded_scene(folder, TITLE, views, check)
