"""Read rooms and objects that were filmed with a phone or a tablet: ARKitScenes and WildRGB-D."""

from pathlib import Path

import numpy as np
import torch

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.documents import parse_numbers, parse_positive_int, read_json_object
from g_ray.formats.posed_scene import PosedScene, SceneFormat
from g_ray.formats.recordings import build_recorded_scene, make_recorded_view, make_world_from_cam, read_table
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile
from g_ray_lab.datasets.stored_frames import make_pinhole
from g_ray_lab.datasets.tum import associate

MILLIMETER = 0.001


# ARKitScenes: rooms filmed with an iPad, with the depth of its LiDAR.
#
# VIDEO/lowres_wide.traj                              time, axis-angle (3), translation (3): cam_from_world, meters
# VIDEO/vga_wide/VIDEO_TIME.png                       640×480, or lowres_wide, 256×192
# VIDEO/vga_wide_intrinsics/VIDEO_TIME.pincam         width height fx fy cx cy
# VIDEO/lowres_depth/VIDEO_TIME.png                   z-depth, 16 bits, millimeters; 0 is none
#
# Times are seconds in the files' names. Poses are given ten times a second and belong to the image nearest in time;
# images without one are left out. The documentation (apple/ARKitScenes, DATA.md) does not say where pixel centers lie:
# principal points are taken as they are written, from the top-left corner. Images lie as the sensor reads them.


ARKIT_TRAJECTORY = "lowres_wide.traj"
ARKIT_IMAGES = ("vga_wide", "lowres_wide")
"""Folders of photographs, the first that is there."""


def is_arkitscenes(folder: Path) -> bool:
    return (folder / ARKIT_TRAJECTORY).is_file()


def read_arkitscenes(folder: Path, check: bool = True) -> PosedScene:
    """Read the images with a pose and intrinsics, by time; ValueError, with the file, if anything is wrong."""
    name = next((name for name in ARKIT_IMAGES if (folder / name).is_dir()), None)
    if name is None:
        raise ValueError(
            f"{folder}: neither of the folders {' and '.join(ARKIT_IMAGES)}; download one of them"
        )
    images, lenses = _list_times(folder / name, ".png"), _list_times(folder / f"{name}_intrinsics", ".pincam")
    depths = _list_times(folder / "lowres_depth", ".png")
    trajectory = read_table(folder / ARKIT_TRAJECTORY, 7)
    times = list(images)
    lens_of = dict(associate(times, list(lenses)))
    depth_of = dict(associate(times, list(depths)))
    views = []
    for i, j in associate(times, trajectory[:, 0].tolist()):
        if i not in lens_of:
            continue
        camera = _read_pincam(lenses[list(lenses)[lens_of[i]]])
        pose = _make_arkit_pose(f"{folder / ARKIT_TRAJECTORY}, line {j + 1}", trajectory[j])
        depth = DepthFile(depths[list(depths)[depth_of[i]]], "z", MILLIMETER) if i in depth_of else None
        views.append(make_recorded_view(images[times[i]], camera, pose, depth))
    left_out = len(images) - len(views)
    notes = (f"{left_out} of {len(images)} images have no pose or no intrinsics",) if left_out else ()
    return build_recorded_scene(folder, "ARKitScenes", views, check, notes)


def _list_times(folder: Path, ending: str) -> dict[float, Path]:
    """Return the files VIDEO_TIME.ending of a folder by their times."""
    files: dict[float, Path] = {}
    for path in sorted(folder.glob(f"*_*{ending}")):
        try:
            files[float(path.name.removesuffix(ending).rpartition("_")[2])] = path
        except ValueError:
            raise ValueError(f"{path}: its name does not end with a time; unpack the scene again") from None
    return files


def _read_pincam(path: Path) -> Pinhole:
    width, height, *numbers = read_table(path, 6)[0].tolist()
    return make_pinhole((int(width), int(height)), *numbers)


def _make_arkit_pose(what: str, row: np.ndarray) -> Pose:
    x, y, z = row[1:4].tolist()
    turn = torch.tensor([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]], dtype=torch.float64)
    cam_from_world = np.eye(4)
    cam_from_world[:3, :3] = torch.linalg.matrix_exp(turn).numpy()
    cam_from_world[:3, 3] = row[4:]
    return make_world_from_cam(what, cam_from_world).inverse()


# WildRGB-D: objects filmed all around with a phone.
#
# CATEGORY/scenes/scene_000/rgb/00000.png      640×480
# CATEGORY/scenes/scene_000/depth/00000.png    z-depth, 16 bits, millimeters; 0 is none
# CATEGORY/scenes/scene_000/masks/00000.png    the object; not used unless a mask folder is named
# CATEGORY/scenes/scene_000/metadata           JSON: K as nine numbers column by column, w, h
# CATEGORY/scenes/scene_000/cam_poses.txt      frame, then 4×4 world_from_cam row by row, OpenCV axes, meters


WILD_POSES, WILD_METADATA = "cam_poses.txt", "metadata"


def is_wildrgbd(folder: Path) -> bool:
    return (folder / WILD_POSES).is_file() and (folder / WILD_METADATA).is_file()


def read_wildrgbd(folder: Path, check: bool = True) -> PosedScene:
    """Read all frames with a pose; ValueError, in one line with the file, if anything is wrong."""
    path = folder / WILD_METADATA
    metadata = read_json_object(path, "metadata of WildRGB-D")
    try:
        width, height = (parse_positive_int(metadata.get(key), key) for key in ("w", "h"))
        fx, _, _, _, fy, _, cx, cy, _ = parse_numbers(metadata.get("K"), "K", (9,))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    camera = make_pinhole((width, height), fx, fy, cx, cy)
    views = []
    for row in read_table(folder / WILD_POSES, 17):
        name = f"{int(row[0]):05d}.png"
        pose = make_world_from_cam(f"{folder / WILD_POSES}: frame {int(row[0])}", np.reshape(row[1:], (4, 4)))
        depth = DepthFile(folder / "depth" / name, "z", MILLIMETER)
        views.append(make_recorded_view(folder / "rgb" / name, camera, pose, depth))
    masked = ("masks/ holds the objects; not used",) if (folder / "masks").is_dir() else ()
    return build_recorded_scene(folder, "WildRGB-D", views, check, masked)


FORMATS = {
    "arkitscenes": SceneFormat("ARKitScenes", ARKIT_TRAJECTORY, is_arkitscenes, read_arkitscenes),
    "wildrgbd": SceneFormat("WildRGB-D", "cam_poses.txt and metadata", is_wildrgbd, read_wildrgbd),
}
