"""A miniature of ETH3D: thin-prism fisheyes and undistorted pinholes, depth dumps, photographs stored sideways."""

from pathlib import Path

import numpy as np
import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.pinhole import Pinhole
from g_ray.cameras.thin_prism_fisheye import ThinPrismFisheye
from g_ray.runtime.files import write_atomically
from g_ray_lab.datasets.eth3d import SIDEWAYS
from g_ray_lab.datasets.turning import turn_camera, turn_pose
from g_ray_lab.miniatures.colmap_text import write_colmap_text
from g_ray_lab.miniatures.miniature_room import (
    MiniatureSize,
    make_path,
    take_shot,
    write_image,
    write_mesh_ply,
)

SCENES = ("delivery_area", "courtyard", "office", "relief")
"""The first has frames that are stored sideways."""
NATIVE_WIDTH = 6211
LENS = {
    "fx": 3411.42,
    "fy": 3410.02,
    "cx": 3116.72,
    "cy": 2062.52,
    "k1": 0.21047,
    "k2": 0.21102,
    "p1": -5.36231e-06,
    "p2": 0.00051541,
    "k3": -0.158023,
    "k4": 0.406856,
    "sx1": -8.46499e-05,
    "sy1": 0.000861313,
}
"""A lens of ETH3D's kind at 6211×4137."""


def write_eth3d(root: Path, size: MiniatureSize) -> None:
    """Write scenes in ETH3D's layout, distorted and undistorted, with the mesh of DA3-BENCH beside them."""
    lens, pinhole = make_lenses(size.width)
    for number, scene in enumerate(SCENES[: size.scenes]):
        room, folder, poses = size.make_room(number), root / scene, make_path(size.frames)
        # Numbers begin before the sideways ones, so that both kinds are there.
        first = SIDEWAYS[scene].start - (size.frames + 1) // 2 if scene in SIDEWAYS else 286
        raw, undistorted = [], []
        for index in range(size.frames):
            name = f"DSC_{first + index:04d}.JPG"
            back = -1 if first + index in SIDEWAYS.get(scene, ()) else 0
            pose = turn_pose(poses[index], back)
            for camera, place, images in (
                (lens[back], "dslr_images", raw),
                (pinhole[back], "dslr_images_undistorted", undistorted),
            ):
                shot = take_shot(room, camera, pose)
                write_image(folder / "images" / place / name, shot.pixels)
                images.append((f"{place}/{name}", camera, pose))
                if place == "dslr_images":
                    numbers = np.where(shot.z_depth > 0, shot.z_depth, np.inf).astype("<f4")
                    write_atomically(folder / "ground_truth_depth" / place / name, numbers.tobytes())
        write_colmap_text(folder / "dslr_calibration_jpg", raw)
        write_colmap_text(folder / "dslr_calibration_undistorted", undistorted)
        write_mesh_ply(folder / "combined_mesh.ply", room)


def make_lenses(width: int) -> tuple[dict[int, Camera], dict[int, Camera]]:
    """Make the distorted and the undistorted camera, each upright (0) and as stored sideways (−1)."""
    scale = width / NATIVE_WIDTH
    values = {key: value * scale if key in ("fx", "fy", "cx", "cy") else value for key, value in LENS.items()}
    height = round(4137 * scale)
    lens = ThinPrismFisheye.make(width, height, dtype=torch.float64, **values)
    focal = {key: values[key] for key in ("fx", "fy")}
    # Undistorted images have sizes of their own.
    pinhole = Pinhole.make(
        width - 2, height - 1, **focal, cx=values["cx"] - 0.8, cy=values["cy"] - 0.6, dtype=torch.float64
    )
    stored = [{turns: turn_camera(camera, turns) for turns in (0, -1)} for camera in (lens, pinhole)]
    return stored[0], stored[1]
