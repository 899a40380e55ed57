"""Read the synthetic scenes of Neural RGB-D Surface Reconstruction.

ROOT/breakfast_room/images/img0.png        640×480
ROOT/breakfast_room/depth/depth0.png       16 bits, millimeters; under 1 mm or over 10 m is none
ROOT/breakfast_room/poses.txt              four lines per image: world_from_cam with OpenGL's camera axes
ROOT/breakfast_room/focal.txt              pixels; the principal point is the middle of the image, as Blender renders
"""

import re
from pathlib import Path

import numpy as np
import torch

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.recordings import make_pose_from_matrix
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile
from g_ray.media.images import read_photo_size
from g_ray_lab.datasets.evaluation_scene import EvaluationFrame, EvaluationScene
from g_ray_lab.datasets.image_sources import StoredImage
from g_ray_lab.datasets.true_depth import StoredDepth

SCENES = (
    *("breakfast_room", "complete_kitchen", "green_room", "grey_white_room", "kitchen", "morning_apartment"),
    *("staircase", "thin_geometry", "whiteroom"),
)
FOCAL_PX = 554.2562584220408
"""Of all scenes, where focal.txt is missing."""
LIMITS_M = (1e-3, 10.0)


def list_nrgbd(root: Path) -> list[str]:
    """List the scenes that are there."""
    return sorted(path.parent.name for path in root.glob("*/poses.txt"))


def read_nrgbd(root: Path, name: str) -> EvaluationScene:
    """Read a scene, in the order of the image numbers."""
    folder = root / name
    images = sorted((folder / "images").glob("img*.png"), key=_get_number)
    if not images:
        raise ValueError(f"{folder / 'images'}: no images; unpack neural_rgbd_data.zip again")
    poses = _read_poses(folder / "poses.txt", len(images))
    width, height = read_photo_size(images[0])
    focal = _read_focal(folder / "focal.txt")
    camera = Pinhole.make(width, height, fx=focal, fy=focal, cx=width / 2, cy=height / 2, dtype=torch.float64)
    frames = tuple(
        EvaluationFrame(
            image.name,
            StoredImage(image),
            camera,
            pose,
            StoredDepth(
                DepthFile(folder / "depth" / f"depth{_get_number(image)}.png", "z", 1e-3), limits=LIMITS_M
            ),
        )
        for image, pose in zip(images, poses, strict=True)
    )
    return EvaluationScene(name, "nrgbd", frames)


def _get_number(path: Path) -> int:
    digits = re.sub(r"\D", "", path.stem)
    return int(digits or -1)


def _read_poses(path: Path, count: int) -> list[Pose]:
    try:
        rows = np.loadtxt(path, dtype=np.float64, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path}: not a table of numbers ({error})") from None
    if rows.shape != (4 * count, 4):
        raise ValueError(
            f"{path}: {rows.shape[0]} rows of {rows.shape[1]}, but {count} images take {4 * count} of 4"
        )
    # OpenGL's cameras look along −z with y up.
    matrices = rows.reshape(count, 4, 4) * np.array([1.0, -1.0, -1.0, 1.0])
    return [make_pose_from_matrix(f"{path}: pose {i}", matrix) for i, matrix in enumerate(matrices)]


def _read_focal(path: Path) -> float:
    if not path.is_file():
        return FOCAL_PX
    try:
        return float(path.read_text().split()[0])
    except (ValueError, IndexError):
        raise ValueError(f"{path}: not a focal length in pixels") from None
