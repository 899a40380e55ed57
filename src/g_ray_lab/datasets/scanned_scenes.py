"""Read scanned and filmed places: Matterport3D, Taskonomy, Omnidata's renderings of HM3D, ARKitScenes and WildRGB-D."""

from math import cos, sin
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.documents import parse_number, parse_numbers, parse_positive_int, read_json_object
from g_ray.formats.posed_scene import PosedScene, SceneFormat, resolve_inside
from g_ray.formats.recordings import (
    build_recorded_scene,
    make_centered_pinhole,
    make_recorded_view,
    make_world_from_cam,
    read_table,
)
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile
from g_ray.media.images import read_photo_size
from g_ray.media.view import View
from g_ray_lab.datasets.stored_frames import make_pinhole
from g_ray_lab.datasets.tum import associate

# Matterport3D: houses scanned from tripods, as undistorted photographs.
#
# HOUSE/undistorted_camera_parameters/HOUSE.conf     intrinsics_matrix fx 0 cx 0 fy cy 0 0 1
#                                                    scan DEPTH.png COLOR.jpg 4×4 world_from_cam row by row
# HOUSE/undistorted_color_images/COLOR.jpg           1280×1024
# HOUSE/undistorted_depth_images/DEPTH.png           z-depth, 16 bits, 4,000 a meter; 0 is none
#
# An intrinsics matrix holds for the scans behind it. Its image begins at the bottom left (niessner/Matterport,
# data_organization.md), so that cy counts upwards; its camera looks along −z, with y up.


MATTERPORT_CAMERAS, MATTERPORT_COLOR, MATTERPORT_DEPTH = (
    f"undistorted_{what}" for what in ("camera_parameters", "color_images", "depth_images")
)
MATTERPORT_PER_METER = 4000


def is_matterport(folder: Path) -> bool:
    return next((folder / MATTERPORT_CAMERAS).glob("*.conf"), None) is not None


def read_matterport(folder: Path, check: bool = True) -> PosedScene:
    """Read all scans of a house; ValueError, in one line with the file, if anything is wrong."""
    path = min((folder / MATTERPORT_CAMERAS).glob("*.conf"))
    lens: list[float] | None = None
    size: tuple[int, int] | None = None
    views = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split()
        what = f"{path}, line {number}"
        if words[:1] == ["intrinsics_matrix"]:
            lens = _parse_line(what, words[1:], 9)
        elif words[:1] == ["scan"]:
            if lens is None or len(words) != 19:
                raise ValueError(
                    f"{what}: a scan without intrinsics, names or matrix; unpack the house again"
                )
            image = resolve_inside(folder / MATTERPORT_COLOR, words[2])
            size = size or read_photo_size(image)
            pose = make_world_from_cam(what, np.reshape(_parse_line(what, words[3:], 16), (4, 4)), "opengl")
            depth = DepthFile(
                resolve_inside(folder / MATTERPORT_DEPTH, words[1]), "z", 1 / MATTERPORT_PER_METER
            )
            fx, _, cx, _, fy, cy, *_ = lens
            views.append(make_recorded_view(image, make_pinhole(size, fx, fy, cx, size[1] - cy), pose, depth))
    return build_recorded_scene(folder, "Matterport3D", views, check)


def _parse_line(what: str, words: list[str], count: int) -> list[float]:
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        numbers = []
    if len(numbers) != count or not np.isfinite(numbers).all():
        raise ValueError(f"{what}: not {count} numbers; unpack the house again")
    return numbers


# Taskonomy: views of scanned buildings.
#
# BUILDING/rgb/point_0_view_0_domain_rgb.png                        512×512
# BUILDING/depth_zbuffer/point_0_view_0_domain_depth_zbuffer.png    z-depth, 16 bits, 512 a meter; 65535 is none
# BUILDING/point_info/point_0_view_0_domain_point_info.json         camera_location in meters, camera_rotation_final,
#                                                                   field_of_view_rads (or …_domain_fixatedpose.json)
#
# camera_rotation_final are Blender's Euler angles XYZ in radians: R = Rz Ry Rx turns a camera that looks along −z, with
# y up, into the world.


TASKONOMY_RGB = "_domain_rgb.png"
TASKONOMY_INFOS = ("point_info", "fixatedpose")
"""Names of the domain that holds cameras, in two releases."""
TASKONOMY_PER_METER, TASKONOMY_NOTHING = 512, 65535


def is_taskonomy(folder: Path) -> bool:
    has_info = (folder / "point_info").is_dir()
    return has_info and next((folder / "rgb").glob(f"point_*{TASKONOMY_RGB}"), None) is not None


def read_taskonomy(folder: Path, check: bool = True) -> PosedScene:
    """Read the views of a building; ValueError, in one line with the file, if anything is wrong."""
    depth = DepthDomain(folder / "depth_zbuffer", "depth_zbuffer", "z")
    views = _read_taskonomy_views(folder / "rgb", folder / "point_info", depth)
    return build_recorded_scene(folder, "Taskonomy", views, check)


class DepthDomain(NamedTuple):
    """The folder of a building's depth files, the end of their names, and what they hold."""

    folder: Path
    name: str
    convention: Literal["z", "ray"]


def _read_taskonomy_views(rgb: Path, infos: Path, depth: DepthDomain) -> list[View]:
    """Read the views of a building from the folders of its images, cameras and depth."""
    images = sorted(rgb.glob(f"point_*{TASKONOMY_RGB}"))
    size = read_photo_size(images[0])
    views = []
    for image in images:
        stem = image.name.removesuffix(TASKONOMY_RGB)
        paths = [infos / f"{stem}_domain_{name}.json" for name in TASKONOMY_INFOS]
        path = next((path for path in paths if path.is_file()), paths[0])
        info = read_json_object(path, "point info of Taskonomy")
        try:
            matrix = np.eye(4)
            matrix[:3, :3] = _rotate_by_euler(
                *parse_numbers(info.get("camera_rotation_final"), "its rotation", (3,))
            )
            matrix[:3, 3] = parse_numbers(info.get("camera_location"), "its location", (3,))
            fov = parse_number(info.get("field_of_view_rads"), "field_of_view_rads")
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        file = depth.folder / f"{stem}_domain_{depth.name}.png"
        camera = make_centered_pinhole(str(path), *size, fov)
        pose = make_world_from_cam(str(path), matrix, "opengl")
        views.append(
            make_recorded_view(
                image,
                camera,
                pose,
                DepthFile(file, depth.convention, 1 / TASKONOMY_PER_METER, TASKONOMY_NOTHING),
            )
        )
    return views


def _rotate_by_euler(x: float, y: float, z: float) -> Float[np.ndarray, "3 3"]:
    """Compute Rz Ry Rx."""
    about_x = np.array([[1, 0, 0], [0, cos(x), -sin(x)], [0, sin(x), cos(x)]])
    about_y = np.array([[cos(y), 0, sin(y)], [0, 1, 0], [-sin(y), 0, cos(y)]])
    about_z = np.array([[cos(z), -sin(z), 0], [sin(z), cos(z), 0], [0, 0, 1]])
    return about_z @ about_y @ about_x


# Omnidata's starter dataset: its renderings of HM3D, and Taskonomy as its download tool unpacks it.
#
# ROOT/rgb/hm3d/BUILDING/point_0_view_0_domain_rgb.png
# ROOT/point_info/hm3d/BUILDING/point_0_view_0_domain_point_info.json
# ROOT/depth_zbuffer/hm3d/BUILDING/point_0_view_0_domain_depth_zbuffer.png, or
# ROOT/depth_euclidean/hm3d/BUILDING/point_0_view_0_domain_depth_euclidean.png    along the ray
#
# The files are those of Taskonomy, sorted by kind first. A scene is the folder of a
# building's images. Other components have cameras of their own (Hypersim, BlendedMVG) and are not read.


OMNIDATA_COMPONENTS = ("hm3d", "taskonomy")


def is_omnidata(folder: Path) -> bool:
    is_building = (
        folder.resolve().parent.name in OMNIDATA_COMPONENTS and _find_domain(folder, "point_info").is_dir()
    )
    return is_building and next(folder.glob(f"point_*{TASKONOMY_RGB}"), None) is not None


def read_omnidata(folder: Path, check: bool = True) -> PosedScene:
    """Read the views of a building; ValueError, in one line with the file, if anything is wrong."""
    depth = DepthDomain(_find_domain(folder, "depth_zbuffer"), "depth_zbuffer", "z")
    if not depth.folder.is_dir():
        depth = DepthDomain(_find_domain(folder, "depth_euclidean"), "depth_euclidean", "ray")
    views = _read_taskonomy_views(folder, _find_domain(folder, "point_info"), depth)
    return build_recorded_scene(folder, "Omnidata", views, check)


def _find_domain(folder: Path, domain: str) -> Path:
    """Return where a domain of the building is whose images are in `folder`, which may be below a link."""
    real = folder.resolve()
    return real.parent.parent.parent / domain / real.parent.name / real.name


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
        depth = DepthFile(depths[list(depths)[depth_of[i]]], "z", 0.001) if i in depth_of else None
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
        depth = DepthFile(folder / "depth" / name, "z", 0.001)
        views.append(make_recorded_view(folder / "rgb" / name, camera, pose, depth))
    masked = ("masks/ holds the objects; not used",) if (folder / "masks").is_dir() else ()
    return build_recorded_scene(folder, "WildRGB-D", views, check, masked)


FORMATS = {
    "arkitscenes": SceneFormat("ARKitScenes", ARKIT_TRAJECTORY, is_arkitscenes, read_arkitscenes),
    "wildrgbd": SceneFormat("WildRGB-D", "cam_poses.txt and metadata", is_wildrgbd, read_wildrgbd),
    "matterport": SceneFormat("Matterport3D", MATTERPORT_CAMERAS, is_matterport, read_matterport),
    "omnidata": SceneFormat("Omnidata", "rgb/hm3d/BUILDING of Omnidata", is_omnidata, read_omnidata),
    "taskonomy": SceneFormat("Taskonomy", "point_info", is_taskonomy, read_taskonomy),
}
