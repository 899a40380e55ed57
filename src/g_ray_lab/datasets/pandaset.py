"""Read PandaSet: a rig of six cameras on a car, with LiDAR sweeps in world coordinates.

ROOT/001/camera/front_camera/00.jpg … 79.jpg       1920×1080; six cameras
ROOT/001/camera/front_camera/intrinsics.json       {"fx", "fy", "cx", "cy"}
ROOT/001/camera/front_camera/poses.json            per frame {"position": {x y z}, "heading": {w x y z}}, world_from_cam
ROOT/001/lidar/00.pkl.gz … 79.pkl.gz               tables with columns x y z i t d (Kaggle's copy: 00.pkl)

Sequences have three digits, with gaps. Images are taken as rectified pinholes with OpenCV's pixel centers, as the
devkit projects them; nothing states either. Depth is the z of all LiDAR points of the same frame number, with those
removed that another point hides (`OcclusionWindow`). Moving objects are not removed: sweep and photograph differ by up
to tens of milliseconds. The car itself, in the lowest rows of the back camera, is not scored.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.formats.recordings import make_pose
from g_ray.geometry.pose import Pose
from g_ray.media.images import read_photo_size
from g_ray_lab.datasets.evaluation_scene import (
    Dataset,
    DepthSource,
    Download,
    EvaluationFrame,
    EvaluationScene,
    Framing,
    MaskSource,
)
from g_ray_lab.datasets.pandas_pickle import read_table
from g_ray_lab.datasets.stored_frames import StoredImage, locate_points, make_pinhole, splat_depth

DOWNLOAD = Download(
    "pandaset",
    "PandaSet",
    "https://pandaset.org",
    "CC BY 4.0 with PandaSet's terms of use",
    (
        "the official page is discontinued at times; copies: huggingface.co/datasets/georghess/pandaset, and on "
        "kaggle.com usharengaraju/pandaset-dataset (.pkl instead of .pkl.gz)",
    ),
    ("001/camera/front_camera/00.jpg", "001/camera/front_camera/poses.json", "001/lidar/00.pkl.gz"),
    archives=("pandaset*.zip", "[0-9][0-9][0-9].zip"),
)
CAMERAS = ("front", "front_left", "front_right", "left", "right", "back")
EGO_SHARE = 260 / 1080
"""Lowest rows of the back camera, which show the car."""
SWEEPS = (".pkl.gz", ".pkl")


# Depth and masks


@dataclass(frozen=True)
class OcclusionWindow:
    """When a point of a LiDAR is hidden from a camera: another one in the square window around it is nearer by more
    than a share of its z-depth."""

    radius: float = 8 / 1920
    """In widths of the native image."""
    margin: float = 0.05


class SweepReader:
    """Reads sweeps of a LiDAR and keeps the last one: the cameras of a rig follow each other at one instant."""

    def __init__(self, read: Callable[[Path], Float[np.ndarray, "point 3"]]) -> None:
        self._read = read
        self._last: tuple[Path, Float[Tensor, "point 3"]] | None = None

    def load(self, path: Path) -> Float[Tensor, "point 3"]:
        """Return points in the world, float64."""
        if self._last is None or self._last[0] != path:
            self._last = path, torch.from_numpy(self._read(path)).double()
        return self._last[1]


@dataclass(frozen=True, eq=False)
class PointsDepth(DepthSource):
    """z-depth of points in the world, the nearest in every pixel; sparse."""

    path: Path
    reader: SweepReader

    def sample(self, frame: EvaluationFrame, framing: Framing) -> Float[Tensor, "h w"]:
        local = frame.get_pose().inverse().apply(self.reader.load(self.path))
        visible = find_unhidden(frame.camera, local, OcclusionWindow())
        return splat_depth(framing.apply(frame.camera), local[visible])


def find_unhidden(
    camera: Camera, points: Float[Tensor, "point 3"], window: OcclusionWindow
) -> Bool[Tensor, "point"]:
    """Return which points are imaged and have no much nearer one in the window around them."""
    place, keep = locate_points(camera, points)
    nearest = splat_depth(camera, points)
    # A maximum filter of −z, rows then columns, is the minimum of z over the square window.
    inverted = torch.where(nearest > 0, -nearest, -torch.inf)[None, None].float()
    pad = max(1, round(window.radius * camera.width))
    size = 2 * pad + 1
    for kernel, padding in (((1, size), (0, pad)), ((size, 1), (pad, 0))):
        inverted = torch.nn.functional.max_pool2d(inverted, kernel, 1, padding)
    front = -inverted.flatten()[place.clamp(0, inverted.numel() - 1)]
    return keep & (points[:, 2] <= (1 + window.margin) * front)


@dataclass(frozen=True)
class TopRows(MaskSource):
    """The share of an image's rows, from the top, that is scored."""

    share: float

    def sample(self, camera: Camera, framing: Framing) -> Bool[Tensor, "h w"]:
        _, top, _, bottom = framing.box
        centers = top + (torch.arange(framing.height) + 0.5) * (bottom - top) / framing.height
        return (centers < self.share * camera.height)[:, None].expand(framing.height, framing.width)


# Sequences


def list_pandaset(root: Path) -> list[str]:
    """List the sequences that are there."""
    return sorted(path.name for path in root.iterdir() if (path / "camera").is_dir())


def read_pandaset(root: Path, name: str) -> EvaluationScene:
    """Read a sequence: all cameras at the first instant, then at the second, and so on."""
    folder = root / name
    reader = SweepReader(read_points)
    by_camera = [_read_camera(folder, camera, reader) for camera in CAMERAS]
    counts = {camera: len(frames) for camera, frames in zip(CAMERAS, by_camera, strict=True)}
    if len(set(counts.values())) > 1:
        raise ValueError(f"{folder}: cameras with different numbers of frames ({counts}); unpack it again")
    frames = tuple(frame for instant in zip(*by_camera, strict=True) for frame in instant)
    return EvaluationScene(name, "pandaset", frames)


def _read_camera(folder: Path, camera: str, reader: SweepReader) -> list[EvaluationFrame]:
    place = folder / "camera" / f"{camera}_camera"
    images = sorted(place.glob("*.jpg"))
    if not images:
        raise ValueError(f"{place}: no images; unpack {folder.name} of PandaSet again")
    poses = _read_poses(place / "poses.json", len(images))
    lens = _read_lens(place / "intrinsics.json", read_photo_size(images[0]))
    mask = TopRows(1 - EGO_SHARE) if camera == "back" else None
    return [
        EvaluationFrame(
            name=f"{camera}_camera/{image.stem}",
            image=StoredImage(image),
            camera=lens,
            pose=pose,
            depth=PointsDepth(_find_sweep(folder, image.stem), reader),
            mask=mask,
            device=camera,
        )
        for image, pose in zip(images, poses, strict=True)
    ]


def read_points(path: Path) -> Float[np.ndarray, "point 3"]:
    """Read the positions of a LiDAR sweep in the world, in meters; OSError names a file without them."""
    table = read_table(path)
    missing = [axis for axis in "xyz" if axis not in table]
    if missing:
        raise OSError(f"{path}: no columns {', '.join(missing)} but {', '.join(table)}: not a LiDAR sweep")
    points = np.stack([table[axis] for axis in "xyz"], -1).astype(np.float64)
    return points[np.isfinite(points).all(-1)]


def _find_sweep(folder: Path, stem: str) -> Path:
    paths = [folder / "lidar" / f"{stem}{suffix}" for suffix in SWEEPS]
    return next((path for path in paths if path.is_file()), paths[0])


def _read_lens(path: Path, size: tuple[int, int]) -> Camera:
    document = _read_json(path)
    try:
        return make_pinhole(size, *(float(document[key]) for key in ("fx", "fy", "cx", "cy")), center=0)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not the intrinsics of a camera ({error}); unpack it again") from None


def _read_poses(path: Path, count: int) -> list[Pose]:
    document = _read_json(path)
    if not isinstance(document, list) or len(document) != count:
        raise ValueError(f"{path}: not one pose for each of the {count} images; unpack it again")
    return [_parse_pose(path, number, entry) for number, entry in enumerate(document)]


def _parse_pose(path: Path, number: int, entry: Any) -> Pose:
    try:
        heading = [float(entry["heading"][part]) for part in "xyzw"]
        position = [float(entry["position"][axis]) for axis in "xyz"]
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{path}: pose {number} has no heading and position of numbers") from None
    return make_pose(f"{path}: pose {number}", heading, position)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; unpack the dataset again") from None
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error}); unpack the dataset again") from None


DATASETS = {"pandaset": Dataset("PandaSet", DOWNLOAD, list_pandaset, read_pandaset, depth="sparse")}
