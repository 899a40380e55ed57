"""Frames as Microsoft's 7-Scenes stores them, and many RGB-D recorders after it.

FOLDER/frame-000000.color.png (or jpg), frame-000000.depth.png (millimeters; 0 and 65535 are none), and
frame-000000.pose.txt (4×4 world_from_cam, OpenCV axes); FOLDER/camera-intrinsics.txt holds the 3×3 matrix of the depth
camera.

A Kinect has two cameras. Those of 7-Scenes are taken as published: depth f = 585 px and color f = 525 px, both centered
at 320, 240 of 640×480, with the rigid transform COLOR_FROM_DEPTH. Poses come from KinectFusion, which tracks depth
images: they are the depth camera's, and are moved to the color camera here. Depth is moved too (`register_depth`),
unless frame-000000.depth.proj.png has it in the color camera already. A folder with any other matrix is read as a
recorder's whose depth is registered to color: one camera and one pose for both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.documents import ParsedFile
from g_ray.formats.frames import find_nearest_rotation
from g_ray.formats.posed_scene import PosedScene, check_images, find_covisibility_file
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile
from g_ray.media.images import read_photo_size
from g_ray.media.view import View
from g_ray.runtime.files import write_atomically

POSE = ".pose.txt"
COLORS = (".color.png", ".color.jpg")
DEPTH, REGISTERED = ".depth.png", ".depth.proj.png"
INTRINSICS = "camera-intrinsics.txt"
MILLIMETER = 1e-3
NOTHING = 65535.0

KINECT_SIZE = (640, 480)
DEPTH_FOCAL_PX, COLOR_FOCAL_PX = 585.0, 525.0
COLOR_FROM_DEPTH = (
    (0.9999651801, 0.0026765126, -0.0079041012, -0.0255589432),
    (-0.0027409311, 0.9999630280, -0.0081504521, 0.0001010964),
    (0.0078819942, 0.0081718329, 0.9999355456, 0.0020318322),
    (0.0, 0.0, 0.0, 1.0),
)
"""A Kinect calibrated at LIRIS, Lyon, which the published preparations of 7-Scenes use; meters."""


@dataclass(frozen=True)
class KinectDepthFile(DepthFile):
    """A map of the Kinect's depth camera that is read as its color camera would see it."""

    def read(self) -> Float[Tensor, "h w"]:
        depth = super().read()
        height, width = depth.shape
        if (width, height) != KINECT_SIZE:
            raise OSError(
                f"{self.path} is {width}×{height} px, but a Kinect's depth is {KINECT_SIZE[0]}×{KINECT_SIZE[1]}: "
                f"describe another camera in {INTRINSICS}"
            )
        pose = Pose(torch.tensor(COLOR_FROM_DEPTH))
        return register_depth(depth, _make_kinect(DEPTH_FOCAL_PX), _make_kinect(COLOR_FOCAL_PX), pose)


def _make_kinect(focal: float) -> Pinhole:
    width, height = KINECT_SIZE
    return Pinhole.make(width, height, fx=focal, fy=focal, cx=width / 2, cy=height / 2)


def is_seven_scenes(folder: Path) -> bool:
    return next(folder.glob(f"frame-*{POSE}"), None) is not None


def read_seven_scenes(folder: Path, check: bool = True, move_poses: bool = True) -> PosedScene:
    """ValueError, in one line with the file, if anything is wrong; without `check` photographs are not looked at.

    `move_poses`: move the poses, which are the depth camera's, to the color camera; some publications do not.
    """
    stems = sorted(path.name.removesuffix(POSE) for path in folder.glob(f"frame-*{POSE}"))
    images = tuple(_find_first(folder, stem, COLORS) for stem in stems)
    names = tuple(image.name for image in images)
    if not images[0].is_file():
        raise ValueError(f"{images[0]}: no such image; check its name and folder")
    is_kinect = _is_kinect(folder, images[0])
    camera = _make_kinect(COLOR_FOCAL_PX).to(torch.float64) if is_kinect else _read_camera(folder, images[0])
    if check:
        check_images(names, images, (camera,) * len(stems))
    poses = Pose(torch.stack([_read_pose(folder / f"{stem}{POSE}") for stem in stems]))
    if is_kinect and move_poses:
        poses = poses @ Pose(torch.tensor(COLOR_FROM_DEPTH, dtype=torch.float64)).inverse()
    depth = [_find_depth(folder, stem, is_kinect) for stem in stems]
    if not any(file.path.is_file() for file in depth):
        depth = []
    views = [
        View(name, camera, poses[index], "7-Scenes", image, depth=depth[index] if depth else None)
        for index, (name, image) in enumerate(zip(names, images, strict=True))
    ]
    notes = (_describe(is_kinect, depth, move_poses),)
    return PosedScene(folder, "7-Scenes", tuple(views), notes, find_covisibility_file(folder))


def _is_kinect(folder: Path, image: Path) -> bool:
    """Tell whether the folder has the two cameras of 7-Scenes: by the matrix, or by the size where there is none."""
    path = folder / INTRINSICS
    if not path.is_file():
        if read_photo_size(image) != KINECT_SIZE:
            raise ValueError(
                f"{path} is missing, and {image.name} is not 640×480 px as 7-Scenes is: "
                "write the 3×3 matrix of the camera"
            )
        return True
    kinect = [[DEPTH_FOCAL_PX, 0, KINECT_SIZE[0] / 2], [0, DEPTH_FOCAL_PX, KINECT_SIZE[1] / 2], [0, 0, 1]]
    return bool(np.allclose(_read_numbers(path, (3, 3)), kinect)) and read_photo_size(image) == KINECT_SIZE


def _find_depth(folder: Path, stem: str, is_kinect: bool) -> DepthFile:
    registered = folder / f"{stem}{REGISTERED}"
    if registered.is_file():
        return DepthFile(registered, "z", MILLIMETER, NOTHING)
    file_type = KinectDepthFile if is_kinect else DepthFile
    return file_type(folder / f"{stem}{DEPTH}", "z", MILLIMETER, NOTHING)


def _describe(is_kinect: bool, depth: Sequence[DepthFile], move_poses: bool) -> str:
    """Say which camera is whose, and which depth has been moved."""
    if not is_kinect:
        return f"7-Scenes format: {INTRINSICS} is taken for color and depth, which is taken as registered to color"
    moved = sum(isinstance(file, KinectDepthFile) for file in depth)
    sentences = [
        f"7-Scenes: color camera f = {COLOR_FOCAL_PX:g} px, 2.5 cm from the depth camera (f = {DEPTH_FOCAL_PX:g} px) "
        + f"that the poses belong to; poses are {'' if move_poses else 'not '}moved to the color camera"
    ]
    sentences += [f"{moved} depth maps are registered to it"] * (moved > 0)
    sentences += [f"{len(depth) - moved} depth maps are in it already (*{REGISTERED})"] * (moved < len(depth))
    return "; ".join(sentences)


def _find_first(folder: Path, stem: str, endings: tuple[str, ...]) -> Path:
    paths = [folder / f"{stem}{ending}" for ending in endings]
    return next((path for path in paths if path.is_file()), paths[-1])


def _read_camera(folder: Path, image: Path) -> Pinhole:
    path = folder / INTRINSICS
    matrix = _read_numbers(path, (3, 3))
    if min(matrix[0, 0], matrix[1, 1]) <= 0:
        raise ValueError(f"{path}: not a calibration: focal lengths {matrix[0, 0]} and {matrix[1, 1]}")
    width, height = read_photo_size(image)
    (fx, _, cx), (_, fy, cy) = matrix[:2].tolist()
    return Pinhole.make(width, height, fx=fx, fy=fy, cx=cx, cy=cy, dtype=torch.float64)


def _read_pose(path: Path) -> torch.Tensor:
    matrix = torch.from_numpy(_read_numbers(path, (4, 4)))
    rotation = find_nearest_rotation(matrix[:3, :3])
    if rotation is None:
        raise ValueError(f"{path} does not begin with a rotation")
    return Pose.from_parts(rotation, matrix[:3, 3]).world_from_cam


def _read_numbers(path: Path, shape: tuple[int, int]) -> np.ndarray:
    try:
        numbers = np.loadtxt(path, dtype=np.float64)
    except ValueError:
        numbers = np.zeros(0)
    if numbers.shape != shape or not np.isfinite(numbers).all():
        raise ValueError(f"{path}: not a {shape[0]}×{shape[1]} matrix of numbers")
    return numbers


# A folder of RGB-D frames as 7-Scenes stores them: one matrix for all photos, a pose for each.


class SevenScenesSource(CalibrationSource):
    """The folder with frame-*.pose.txt; meters. Cameras and poses are the color camera's."""

    NAME, TITLE, CENTER, PER_PHOTO = "seven_scenes", "7-Scenes", 0.5, True
    IGNORES_EXIF = True

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        return file.path.is_dir() and is_seven_scenes(file.path)

    @classmethod
    def open(cls, file: ParsedFile) -> "SevenScenesSource":
        scene = read_seven_scenes(file.path, check=False)
        lenses = [Lens.from_camera(view.name, view.camera, view.pose) for view in scene.views]
        return cls(file.path, lenses, scene.notes)

    @classmethod
    def example(cls, folder: Path) -> Example:
        name = "frame-000000.color.png"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (640, 480)).save(folder / name)
        write_atomically(folder / INTRINSICS, "585 0 320\n0 585 240\n0 0 1\n")
        write_atomically(folder / "frame-000000.pose.txt", "1 0 0 0.5\n0 1 0 0\n0 0 1 2\n0 0 0 1\n")
        return Example(folder, name, _make_kinect(COLOR_FOCAL_PX).to(torch.float64))


# Depth as another camera next to the depth camera would see it


SAME_SURFACE = 0.03
"""Relative difference of two depths up to which the pixel between them may lie on the same surface."""


def register_depth(
    depth: Float[Tensor, "h w"], source: Camera, target: Camera, target_from_source: Pose
) -> Float[Tensor, "height width"]:
    """Move a map of z-depth into another camera; 0 means none, in both.

    Every pixel becomes a point, lands in the pixel of the target that contains its projection, and the nearest point
    wins. A pixel that rounding left empty between two opposite neighbors of one surface gets their mean.
    """
    rays, valid = source.unproject_grid()
    known = valid & torch.isfinite(depth) & (depth > 0) & (rays[..., 2] > 0)
    rays = rays[known]
    points = rays * (depth[known].to(rays) / rays[:, 2])[:, None]
    moved = target_from_source.apply(points)
    pixels, seen = target.project(moved)
    column, row = pixels.floor().long().unbind(-1)
    inside = (column >= 0) & (column < target.width) & (row >= 0) & (row < target.height)
    keep = seen & inside & (moved[:, 2] > 0)
    nearest = moved.new_full((target.height * target.width,), torch.inf)
    nearest.scatter_reduce_(0, (row * target.width + column)[keep], moved[keep, 2], "amin")
    splat = torch.where(torch.isfinite(nearest), nearest, 0.0).reshape(target.height, target.width)
    return _fill_pinpricks(splat).to(depth.dtype)


def _fill_pinpricks(depth: Float[Tensor, "h w"]) -> Float[Tensor, "h w"]:
    """Fill empty pixels between two filled neighbors, left and right or above and below, that lie on one surface."""
    for axis in (0, 1):  # one after the other, so that crossing gaps close too
        padded = torch.nn.functional.pad(depth, (1, 1, 0, 0) if axis == 1 else (0, 0, 1, 1))
        one, other = padded.narrow(axis, 0, depth.shape[axis]), padded.narrow(axis, 2, depth.shape[axis])
        near, far = torch.minimum(one, other), torch.maximum(one, other)
        between = (depth == 0) & (near > 0) & (far <= (1 + SAME_SURFACE) * near)
        depth = torch.where(between, (near + far) / 2, depth)
    return depth
