"""Read ARKitScenes: rooms filmed with an iPad, with the depth of its LiDAR.

VIDEO/lowres_wide.traj                              time, axis-angle (3), translation (3): cam_from_world, meters
VIDEO/vga_wide/VIDEO_TIME.png                       640×480, or lowres_wide, 256×192
VIDEO/vga_wide_intrinsics/VIDEO_TIME.pincam         width height fx fy cx cy
VIDEO/lowres_depth/VIDEO_TIME.png                   z-depth, 16 bits, millimeters; 0 is none

Times are seconds in the files' names. Poses are given ten times a second and belong to the image nearest in time;
images without one are left out. The documentation (apple/ARKitScenes, DATA.md) does not say where pixel centers lie:
principal points are taken as they are written, from the top-left corner. Images lie as the sensor reads them.
"""

from pathlib import Path

import numpy as np
import torch

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.posed_scene import PosedScene
from g_ray.formats.recordings import build_recorded_scene, make_recorded_view, make_world_from_cam, read_table
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile
from g_ray_lab.datasets.tum_files import associate

TITLE = "ARKitScenes"
TRAJECTORY = "lowres_wide.traj"
IMAGES = ("vga_wide", "lowres_wide")
"""Folders of photographs, the first that is there."""
MILLIMETER = 0.001


def is_arkitscenes(folder: Path) -> bool:
    return (folder / TRAJECTORY).is_file()


def read_arkitscenes(folder: Path, check: bool = True) -> PosedScene:
    """Read the images with a pose and intrinsics, by time; ValueError, with the file, if anything is wrong."""
    name = next((name for name in IMAGES if (folder / name).is_dir()), None)
    if name is None:
        raise ValueError(f"{folder}: neither of the folders {' and '.join(IMAGES)}; download one of them")
    images, lenses = _list_times(folder / name, ".png"), _list_times(folder / f"{name}_intrinsics", ".pincam")
    depths = _list_times(folder / "lowres_depth", ".png")
    trajectory = read_table(folder / TRAJECTORY, 7)
    times = list(images)
    lens_of = dict(associate(times, list(lenses)))
    depth_of = dict(associate(times, list(depths)))
    views = []
    for i, j in associate(times, trajectory[:, 0].tolist()):
        if i not in lens_of:
            continue
        camera = _read_camera(lenses[list(lenses)[lens_of[i]]])
        pose = _make_pose(f"{folder / TRAJECTORY}, line {j + 1}", trajectory[j])
        depth = DepthFile(depths[list(depths)[depth_of[i]]], "z", MILLIMETER) if i in depth_of else None
        views.append(make_recorded_view(images[times[i]], camera, pose, depth))
    left_out = len(images) - len(views)
    notes = (f"{left_out} of {len(images)} images have no pose or no intrinsics",) if left_out else ()
    return build_recorded_scene(folder, TITLE, views, check, notes)


def _list_times(folder: Path, ending: str) -> dict[float, Path]:
    """Return the files VIDEO_TIME.ending of a folder by their times."""
    files: dict[float, Path] = {}
    for path in sorted(folder.glob(f"*_*{ending}")):
        try:
            files[float(path.name.removesuffix(ending).rpartition("_")[2])] = path
        except ValueError:
            raise ValueError(f"{path}: its name does not end with a time; unpack the scene again") from None
    return files


def _read_camera(path: Path) -> Pinhole:
    width, height, fx, fy, cx, cy = read_table(path, 6)[0].tolist()
    return Pinhole.make(int(width), int(height), fx=fx, fy=fy, cx=cx, cy=cy, dtype=torch.float64)


def _make_pose(what: str, row: np.ndarray) -> Pose:
    x, y, z = row[1:4].tolist()
    turn = torch.tensor([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]], dtype=torch.float64)
    cam_from_world = np.eye(4)
    cam_from_world[:3, :3] = torch.linalg.matrix_exp(turn).numpy()
    cam_from_world[:3, 3] = row[4:]
    return make_world_from_cam(what, cam_from_world).inverse()
