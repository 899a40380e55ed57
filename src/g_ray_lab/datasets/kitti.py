"""Read KITTI's annotated depth with the color images of the raw drives.

ROOT/val/2011_09_26_drive_0002_sync/proj_depth/groundtruth/image_02/0000000005.png    16 bits, 256 a meter, 0 is none
ROOT/2011_09_26/2011_09_26_drive_0002_sync/image_02/data/0000000005.png               rectified color
ROOT/2011_09_26/calib_cam_to_cam.txt                                                 P_rect_02

A frame is a depth map with the image of the same name; a map without its image is refused. There are no poses here.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from g_ray.media.depth import DepthFile
from g_ray.media.images import read_photo_size
from g_ray_lab.datasets.evaluation_scene import Dataset, Download, EvaluationFrame, EvaluationScene
from g_ray_lab.datasets.stored_frames import StoredDepth, StoredImage, make_pinhole

DOWNLOAD = Download(
    "kitti",
    "KITTI, annotated depth and raw drives",
    "https://www.cvlibs.net/datasets/kitti",
    "CC BY-NC-SA 3.0",
    (
        "data_depth_annotated.zip",
        "the 13 raw drives of its validation split, synced and rectified (2011_09_26_drive_0002_sync.zip, …)",
        "the calibrations of their five days (2011_09_26_calib.zip, …)",
    ),
    (
        "val/2011_09_26_drive_0002_sync/proj_depth/groundtruth/image_02/0000000005.png",
        "2011_09_26/2011_09_26_drive_0002_sync/image_02/data/0000000005.png",
        "2011_09_26/calib_cam_to_cam.txt",
    ),
    archives=("data_depth_annotated.zip", "2011_*_sync.zip", "2011_*_calib.zip"),
    real_levels=1,
)

DRIVES = (
    *(f"2011_09_26_drive_{number:04d}_sync" for number in (2, 5, 13, 20, 23, 36, 79, 95, 113)),
    *("2011_09_28_drive_0037_sync", "2011_09_29_drive_0026_sync"),
    *("2011_09_30_drive_0016_sync", "2011_10_03_drive_0047_sync"),
)
DEPTH = "proj_depth/groundtruth/image_02"
PER_METER = 256
COLOR = "P_rect_02"
"""Projection matrix of the left color camera, 3×4, of rectified images; pixel centers at whole numbers."""


def list_kitti(root: Path) -> list[str]:
    """List the drives of the validation split that are there."""
    return sorted(path.name for path in (root / "val").glob("*_sync") if (path / DEPTH).is_dir())


def read_kitti(root: Path, name: str) -> EvaluationScene:
    """Read all frames of a drive that have depth."""
    day = root / name[: len("2011_09_26")]
    maps = sorted((root / "val" / name / DEPTH).glob("*.png"))
    images = [day / name / "image_02" / "data" / path.name for path in maps]
    missing = [image for image in images if not image.is_file()]
    if missing:
        raise ValueError(
            f"{missing[0]}: no image for a depth map, nor {len(missing) - 1} others; unpack {name}.zip"
        )
    matrix = _read_projection(day / "calib_cam_to_cam.txt")
    (fx, _, cx, _), (_, fy, cy, _) = matrix[:2].tolist()
    camera = make_pinhole(read_photo_size(images[0]) if images else (1, 1), fx, fy, cx, cy, center=0)
    frames = tuple(
        EvaluationFrame(
            path.name, StoredImage(image), camera, None, StoredDepth(DepthFile(path, "z", 1 / PER_METER))
        )
        for path, image in zip(maps, images, strict=True)
    )
    return EvaluationScene(name, "kitti", frames)


def _read_projection(path: Path) -> Float[np.ndarray, "3 4"]:
    """Read the matrix of the color camera from lines `KEY: numbers`; ValueError names a file without it."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file; unpack {path.parent.name}_calib.zip of KITTI")
    for line in path.read_text(encoding="utf-8").splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == COLOR:
            try:
                return np.array(numbers.split(), dtype=np.float64).reshape(3, 4)
            except ValueError:
                raise ValueError(f"{path}: {COLOR} is not 12 numbers; unpack it again") from None
    raise ValueError(f"{path}: no {COLOR} in it; unpack it again")


DATASETS = {"kitti": Dataset("KITTI depth", DOWNLOAD, list_kitti, read_kitti, depth="sparse")}
