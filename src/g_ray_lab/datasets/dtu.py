"""Read DTU: as Spann3R packs it, with depth, and as DA3-BENCH does, with the scanned points.

ROOT/scan1/images/00000000.jpg, depths/00000000.npy, binary_masks/00000000.png, cams/00000000_cam.txt
ROOT/Rectified/scan1/rect_001_3_r5000.png, ROOT/Cameras/00000000_cam.txt, ROOT/Points/stl/stl001_total.ply
ROOT/depth_raw/Depths/scan1/depth_visual_0000.png, ROOT/SampleSet/mvs_data/ObsMask/{ObsMask1_10.mat, Plane1.mat}

Millimeters. Cameras are MVSNet's, at the size of the depth maps, with pixel centers at whole numbers: the word
extrinsic, 4×4 cam_from_world, the word intrinsic, 3×3, then the depth range.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.formats.recordings import make_pose_from_matrix
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile
from g_ray.media.images import read_photo, read_photo_size
from g_ray.runtime.files import write_atomically
from g_ray_lab.datasets.evaluation_scene import (
    Dataset,
    Download,
    EvaluationFrame,
    EvaluationScene,
    MaskSource,
)
from g_ray_lab.datasets.stored_frames import StoredDepth, StoredImage, StoredMask, make_pinhole

# Which part of space a scan of DTU covers, from the MATLAB files of its official evaluation
#
# ObsMask1_10.mat     ObsMask: voxels that the scanner observed; BB: corners of the grid, mm; Res: side of a voxel, mm
# Plane1.mat          P: plane of the table, whose positive side is above

Points = Float[np.ndarray, "point 3"]
MARGIN_MM = 60.0
"""Points further below the grid than this, or further above it than twice this, are left out altogether."""


@dataclass(frozen=True, eq=False)
class ScannedVolume:
    """The voxels that a scanner observed, and the table that the object stands on."""

    observed: Bool[np.ndarray, "x y z"]
    low: Float[np.ndarray, "3"]
    high: Float[np.ndarray, "3"]
    side: float
    plane: Float[np.ndarray, "4"]

    def is_near(self, points: Points) -> Bool[np.ndarray, "point"]:
        """Return which points are in the grid or around it."""
        return np.all((points >= self.low - MARGIN_MM) & (points < self.high + 2 * MARGIN_MM), axis=-1)

    def is_observed(self, points: Points) -> Bool[np.ndarray, "point"]:
        """Return which points are in an observed voxel; the first voxel has its center in the corner of the grid."""
        cells = np.rint((points - self.low) / self.side).astype(np.int64)
        inside = np.all((cells >= 0) & (cells < self.observed.shape), axis=-1)
        found = np.zeros(len(points), dtype=bool)
        found[inside] = self.observed[tuple(cells[inside].T)]
        return found

    def is_above_ground(self, points: Points) -> Bool[np.ndarray, "point"]:
        """Return which points are above the table."""
        return points @ self.plane[:3] + self.plane[3] > 0


@dataclass(frozen=True)
class VolumeFiles:
    """Where the two files of a scan are."""

    mask: Path
    plane: Path

    def load(self) -> ScannedVolume:
        """Read both; OSError names a file that cannot be used."""
        mask, plane = _read_mat(self.mask), _read_mat(self.plane)
        try:
            corners = np.asarray(mask["BB"], np.float64).reshape(2, 3)
            volume = ScannedVolume(
                np.asarray(mask["ObsMask"]).astype(bool),
                corners[0],
                corners[1],
                float(np.asarray(mask["Res"]).reshape(())),
                np.asarray(plane["P"], np.float64).reshape(4),
            )
        except (KeyError, ValueError, TypeError) as error:
            raise OSError(
                f"{self.mask} and {self.plane.name} are not the masks of a scan of DTU ({error}): unpack them again"
            ) from None
        if volume.observed.ndim != 3 or not volume.side > 0 or not np.isfinite(corners).all():
            raise OSError(f"{self.mask}: no grid of voxels; unpack it again")
        return volume


def _read_mat(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat

    if not path.is_file():
        raise OSError(f"{path} is not there: unpack SampleSet of DA3-BENCH's dtu.zip, too")
    try:
        return loadmat(path)
    except Exception as error:  # scipy raises whatever it stumbles over
        raise OSError(f"{path}: no MATLAB file ({type(error).__name__}); unpack it again") from None


# Scans

DOWNLOAD = Download(
    "dtu",
    "DTU, as Spann3R packs its test scans",
    "https://github.com/HengyiWang/spann3r",
    "no license is stated: for research, cite Jensen et al. 2014",
    ("the archive of DTU that Spann3R's documentation links to",),
    (
        "scan1/images/00000000.jpg",
        "scan1/depths/00000000.npy",
        "scan1/binary_masks/00000000.png",
        "scan1/cams/00000000_cam.txt",
    ),
    archives=("dtu*.zip",),
)
SCANS = tuple(
    f"scan{number}"
    for number in (1, 4, 9, 10, 11, 12, 13, 15, 23, 24, 29, 32, 33, 34, 48, 49, 62, 75, 77, 110, 114, 118)
)
ERODED_PX = 10
FIRST_IN_DA3 = 33
"""DA3-BENCH puts this photograph first."""
DARK = 10
"""Out of 255: pixels of a picture of the depth that are no brighter show no object."""


@dataclass(frozen=True)
class ErodedMask(MaskSource):
    """A mask whose border is not scored: a pixel counts if all of a square around it do."""

    source: StoredMask
    side_px: int

    def load(self, camera: Camera) -> Bool[Tensor, "h w"]:
        outside = 1 - self.source.load(camera)[None, None].float()
        # OpenCV's erosion with a side of even length has its anchor right of the middle; beyond the border all counts.
        before, after = self.side_px // 2, self.side_px - 1 - self.side_px // 2
        padded = torch.nn.functional.pad(outside, (before, after, before, after))
        return torch.nn.functional.max_pool2d(padded, self.side_px, 1)[0, 0] == 0


@dataclass(frozen=True)
class BrightMask(MaskSource):
    """The pixels of a picture of the depth that are not dark."""

    path: Path

    def load(self, camera: Camera) -> Bool[Tensor, "h w"]:
        bright = read_photo(self.path)[0] > DARK / 255
        if tuple(bright.shape) != (camera.height, camera.width):
            raise ValueError(
                f"{self.path} is {bright.shape[1]}×{bright.shape[0]} px, but its photograph "
                f"{camera.width}×{camera.height}: unpack it again"
            )
        return bright


def list_dtu(root: Path) -> list[str]:
    """List the scans that are there, in the order of their numbers."""
    return _sort_scans(path.parent.name for path in root.glob("scan*/cams"))


def read_dtu(root: Path, name: str) -> EvaluationScene:
    """Read a scan of Spann3R's pack."""
    folder = root / name
    images = sorted((folder / "images").glob("*.jpg"))
    return EvaluationScene(name, "dtu", tuple(_read_frame(folder, image) for image in images), unit="mm")


def _read_frame(folder: Path, image: Path) -> EvaluationFrame:
    camera, pose = _read_camera(folder / "cams" / f"{image.stem}_cam.txt", image)
    mask = folder / "binary_masks" / f"{image.stem}.png"
    return EvaluationFrame(
        name=image.name,
        image=StoredImage(image),
        camera=camera,
        pose=pose,
        depth=StoredDepth(DepthFile(folder / "depths" / f"{image.stem}.npy")),
        mask=ErodedMask(StoredMask(mask), ERODED_PX) if mask.is_file() else None,
    )


def list_dtu_da3(root: Path) -> list[str]:
    """List the scans of DA3-BENCH that are there."""
    return _sort_scans(path.name for path in (root / "Rectified").glob("scan*"))


def read_dtu_da3(root: Path, name: str) -> EvaluationScene:
    """Read a scan of DA3-BENCH: photographs with masks, the scanned points and their volume, no depth maps."""
    images = sorted((root / "Rectified" / name).glob("rect_*.png"))
    if len(images) > FIRST_IN_DA3:
        images.insert(0, images.pop(FIRST_IN_DA3))
    frames = []
    for image in images:
        number = int(image.stem.split("_")[1]) - 1
        camera, pose = _read_camera(root / "Cameras" / f"{number:08d}_cam.txt", image)
        mask = root / "depth_raw" / "Depths" / name / f"depth_visual_{number:04d}.png"
        frames.append(EvaluationFrame(image.name, StoredImage(image), camera, pose, mask=BrightMask(mask)))
    scan, masks = int(name.removeprefix("scan")), root / "SampleSet" / "mvs_data" / "ObsMask"
    return EvaluationScene(
        name,
        "da3-dtu",
        tuple(frames),
        unit="mm",
        surface=root / "Points" / "stl" / f"stl{scan:03d}_total.ply",
        volume=VolumeFiles(masks / f"ObsMask{scan}_10.mat", masks / f"Plane{scan}.mat"),
    )


def _read_camera(path: Path, image: Path) -> tuple[Camera, Pose]:
    intrinsic, extrinsic = read_mvsnet_camera(path)
    (fx, _, cx), (_, fy, cy) = np.asarray(intrinsic)[:2].tolist()
    size = read_photo_size(image)
    camera = make_pinhole(size, fx, fy, cx, cy, center=0)
    if not (0 < cx < size[0] and 0 < cy < size[1]):
        raise ValueError(
            f"{path}: principal point ({cx:g}, {cy:g}), but {image.name} is {size[0]}×{size[1]} px"
        )
    return camera, make_pose_from_matrix(f"{path}: the pose", extrinsic).inverse()


def read_mvsnet_camera(path: Path) -> tuple[Float[np.ndarray, "3 3"], Float[np.ndarray, "4 4"]]:
    """Read intrinsics (pixel centers at whole numbers) and cam_from_world; ValueError names a damaged file."""
    if not path.is_file():
        raise ValueError(f"{path}: no such camera; unpack the dataset again")
    words = path.read_text(encoding="utf-8").split()
    try:
        if words[0] != "extrinsic" or words[17] != "intrinsic" or not 2 <= len(words[27:]) <= 4:
            raise ValueError
        extrinsic = np.array(words[1:17], dtype=np.float64).reshape(4, 4)
        intrinsic = np.array(words[18:27], dtype=np.float64).reshape(3, 3)
    except (ValueError, IndexError):
        raise ValueError(
            f"{path}: not a camera of MVSNet (extrinsic, 16 numbers, intrinsic, 9, then 2–4)"
        ) from None
    return intrinsic, extrinsic


def write_mvsnet_camera(
    path: Path,
    intrinsic: Float[np.ndarray, "3 3"],
    extrinsic: Float[np.ndarray, "4 4"],
    depth_range: tuple[float, float],
) -> None:
    """Write a camera; the range is the least depth and the interval between hypotheses."""
    rows = [
        ["extrinsic"],
        *extrinsic.tolist(),
        [""],
        ["intrinsic"],
        *intrinsic.tolist(),
        [""],
        [*depth_range],
    ]
    write_atomically(path, "\n".join(" ".join(map(str, row)) for row in rows) + "\n")


def _sort_scans(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: int(name.removeprefix("scan")))


DATASETS = {"dtu": Dataset("DTU", DOWNLOAD, list_dtu, read_dtu)}
