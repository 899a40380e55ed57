"""Frames as Microsoft's 7-Scenes stores them, and many RGB-D recorders after it.

FOLDER/frame-000000.color.png (or jpg), frame-000000.depth.png (millimetres; 0 and 65535 are none), and
frame-000000.pose.txt (4×4 world_from_cam, OpenCV axes); FOLDER/camera-intrinsics.txt holds a 3×3 matrix. Depth that has
been moved into the colour camera is frame-000000.depth.proj.png and comes first.
"""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.calibration import CalibrationSource, Example, Lens
from g_ray.formats.depth import DepthFile
from g_ray.formats.documents import ParsedFile
from g_ray.formats.frames import find_nearest_rotation
from g_ray.formats.images import read_photo_size
from g_ray.formats.scene import PosedScene, check_photos, find_covisibility_file
from g_ray.geometry.pose import Pose
from g_ray.runtime.files import write_atomically

POSE = ".pose.txt"
COLORS = (".color.png", ".color.jpg")
DEPTHS = (".depth.proj.png", ".depth.png")
INTRINSICS = "camera-intrinsics.txt"
MILLIMETRE = 1e-3
NOTHING = 65535.0


def is_seven_scenes(folder: Path) -> bool:
    return next(folder.glob(f"frame-*{POSE}"), None) is not None


def read_seven_scenes(folder: Path, check: bool = True) -> PosedScene:
    """ValueError, in one line with the file, if anything is wrong; without `check` photographs are not looked at."""
    stems = sorted(path.name.removesuffix(POSE) for path in folder.glob(f"frame-*{POSE}"))
    images = tuple(_find_first(folder, stem, COLORS) for stem in stems)
    names = tuple(image.name for image in images)
    if not images[0].is_file():
        raise ValueError(f"{images[0]}: no such image; check its name and folder")
    camera = _read_camera(folder, images[0])
    cameras = (camera,) * len(stems)
    if check:
        check_photos(names, images, cameras)
    poses = Pose(torch.stack([_read_pose(folder / f"{stem}{POSE}") for stem in stems]))
    depth = tuple(DepthFile(_find_first(folder, stem, DEPTHS), "z", MILLIMETRE, NOTHING) for stem in stems)
    there = tuple(file if file.path.is_file() else None for file in depth)
    return PosedScene(
        folder,
        "7-Scenes",
        names,
        images,
        cameras,
        poses,
        depth=depth if any(there) else (),
        covisibility=find_covisibility_file(folder),
    )


def _find_first(folder: Path, stem: str, endings: tuple[str, ...]) -> Path:
    paths = [folder / f"{stem}{ending}" for ending in endings]
    return next((path for path in paths if path.is_file()), paths[-1])


def _read_camera(folder: Path, image: Path) -> Pinhole:
    path = folder / INTRINSICS
    if not path.is_file():
        raise ValueError(
            f"{path} is missing: no calibration; write the 3×3 matrix (f = 585, c = 320, 240 of a Kinect)"
        )
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
    """The folder with camera-intrinsics.txt and frame-*.pose.txt; metres."""

    NAME, TITLE, CENTER, PER_PHOTO = "seven_scenes", "7-Scenes", 0.5, True
    IGNORES_EXIF = True

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        return file.path.is_dir() and is_seven_scenes(file.path)

    @classmethod
    def open(cls, file: ParsedFile) -> "SevenScenesSource":
        scene = read_seven_scenes(file.path, check=False)
        lenses = [
            Lens.from_camera(name, camera, scene.poses[index])
            for index, (name, camera) in enumerate(zip(scene.names, scene.cameras, strict=True))
        ]
        return cls(file.path, lenses)

    @classmethod
    def example(cls, folder: Path) -> Example:
        name = "frame-000000.color.png"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (640, 480)).save(folder / name)
        write_atomically(folder / INTRINSICS, "585 0 320\n0 585 240\n0 0 1\n")
        write_atomically(folder / "frame-000000.pose.txt", "1 0 0 0.5\n0 1 0 0\n0 0 1 2\n0 0 0 1\n")
        camera = Pinhole.make(640, 480, fx=585.0, fy=585.0, cx=320.0, cy=240.0, dtype=torch.float64)
        return Example(folder, name, camera)
