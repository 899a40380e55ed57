"""Where a view's files are in the folder of a result. Names keep their sub-folders and lead nowhere else."""

import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args, overload

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.formats.cameras_json import NamedCamera, read_cameras, write_cameras
from g_ray.formats.images import PhotoLike, store_photo
from g_ray.formats.scene import resolve_inside
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.runtime.files import atomic_path, write_json

WRITABLE = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
"""Photographs that are stored under their own name; others become NAME.png."""


def make_image_name(name: str) -> str:
    """Of a view's photograph, below images/."""
    return name if PurePosixPath(name).suffix.lower() in WRITABLE else f"{name}.png"


def get_image_path(folder: Path, name: str) -> Path:
    return _resolve_below(folder / "images", name, make_image_name(name))


def get_depth_path(folder: Path, name: str, suffix: str = ".npz") -> Path:
    return _resolve_below(folder / "depth", name, f"{name}{suffix}")


def _resolve_below(folder: Path, name: str, file: str) -> Path:
    if name != str(PurePosixPath(name)) or "\\" in name or name == ".":
        raise ValueError(f"view name {name!r} is not a plain path; write it as folder/file.jpg")
    return resolve_inside(folder, file)


# A reconstruction and its folder.
#
# FOLDER/cameras.json          every view's camera (true model, original pixels), pose and where its calibration is from
# FOLDER/images/NAME           the photographs, upright, 8 bits
# FOLDER/depth/NAME.npz        ray_depth, z_depth, confidence (float32), valid; true_world_from_cam where known
# FOLDER/result.json           written last: unit, metrics, settings, notes. Without it the folder is unfinished.
#
# Every file appears whole or not at all. An unfinished folder is read with the views that are there.


Unit = Literal["metre", "unknown"]
CAMERAS, RESULT = "cameras.json", "result.json"
FORMAT, VERSION = "g-ray-result", 1


@dataclass(frozen=True, eq=False)
class ResultView:
    """What is known of one photograph. World points re-project to their pixels exactly: they lie on its rays."""

    name: str
    """Unique posix path relative to the photographs' common folder, e.g. "dslr/a.jpg"."""
    camera: Camera
    """True model, at the photograph's original (upright) resolution."""
    pose: Pose
    ray_depth: Float[Tensor, "h w"]
    """Along the unit ray; 0 where not valid."""
    confidence: Float[Tensor, "h w"]
    valid: Bool[Tensor, "h w"]
    calibration: str
    """Where the camera came from, e.g. "fisheye.json" or "EXIF focal length"."""
    true_pose: Pose | None = None
    """Known pose, if the source had one."""

    def __post_init__(self) -> None:
        camera, shape = self.camera, tuple(self.ray_depth.shape)
        if camera.batch_shape or self.pose.batch_shape:
            raise ValueError(f"view {self.name!r}: camera and pose must be single ones, not batches")
        if shape != (camera.height, camera.width):
            raise ValueError(
                f"view {self.name!r}: depth of {shape[1]}×{shape[0]} px, but its camera takes "
                f"{camera.width}×{camera.height}; bring depth to the camera's pixels"
            )

    def rays(self) -> Float[Tensor, "h w 3"]:
        """Unit rays of all pixels in the camera's frame."""
        return self.camera.unproject_grid()[0]

    def z_depth(self) -> Float[Tensor, "h w"]:
        """Distance from the camera's plane; negative behind it, 0 where not valid."""
        return self.ray_depth * self.rays()[..., 2].to(self.ray_depth.dtype)

    def points(self) -> Float[Tensor, "h w 3"]:
        """World points of all pixels: pose ∘ (ray · ray_depth); those of invalid pixels mean nothing."""
        rays = self.rays()
        return transform_points(rays * self.ray_depth[..., None].to(rays.dtype), self.pose.to(rays.dtype))


class StoredViews(Sequence):
    """`ResultView`s in a folder; each is read anew when asked for, so that hundreds need no memory.

    Not Sequence[ResultView]: run-time type checks would then read one.
    """

    def __init__(self, folder: Path, cameras: Sequence[NamedCamera]) -> None:
        self.folder, self.cameras = folder, tuple(cameras)

    def __len__(self) -> int:
        return len(self.cameras)

    def __iter__(self) -> Iterator[ResultView]:
        return (_read_view(self.folder, named) for named in self.cameras)

    @overload
    def __getitem__(self, index: int) -> ResultView: ...
    @overload
    def __getitem__(self, index: slice) -> "StoredViews": ...
    def __getitem__(self, index: int | slice) -> "ResultView | StoredViews":
        if isinstance(index, slice):
            return StoredViews(self.folder, self.cameras[index])
        return _read_view(self.folder, self.cameras[index])


@dataclass(frozen=True, eq=False)
class Result:
    """A whole reconstruction. Views of a folder are read from disk when they are asked for."""

    views: tuple[ResultView, ...] | StoredViews
    folder: Path
    unit: Unit = "unknown"
    metrics: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a reader should know, e.g. views that a format cannot hold."""

    @property
    def finished(self) -> bool:
        return (self.folder / RESULT).is_file()

    def cameras(self) -> list[NamedCamera]:
        """Of all views, with their poses, without reading any depth."""
        if isinstance(self.views, StoredViews):
            return list(self.views.cameras)
        return [NamedCamera(view.name, view.camera, view.pose, view.calibration) for view in self.views]

    def poses(self) -> list[Pose]:
        return [camera.pose for camera in self.cameras() if camera.pose is not None]

    def get_image_path(self, name: str) -> Path:
        """The photograph of a view in the folder."""
        return get_image_path(self.folder, name)


# Writing


def write_views(
    folder: str | os.PathLike[str], views: Iterable[ResultView], images: Iterable[PhotoLike]
) -> None:
    """Photographs and depth of views, then cameras.json with them beside those that it names already.

    Call it for every part of a long run: what it has written can be read. The folder is unfinished from now on.
    """
    folder = Path(folder)
    (folder / RESULT).unlink(missing_ok=True)
    written = {named.name: named for named in _read_existing_cameras(folder)}
    for view, image in zip(views, images, strict=True):
        store_photo(image, get_image_path(folder, view.name), view.camera)
        _write_depth(get_depth_path(folder, view.name), view)
        written[view.name] = NamedCamera(view.name, view.camera, view.pose, view.calibration)
    write_cameras(folder / CAMERAS, list(written.values()))


def finish_result(result: Result) -> None:
    """The last step: result.json says that everything is there."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "unit": result.unit,
        "views": [camera.name for camera in result.cameras()],
        "metrics": result.metrics,
        "settings": result.settings,
        "notes": list(result.notes),
    }
    write_cameras(
        result.folder / CAMERAS, result.cameras()
    )  # in this order, and none that an earlier run has left
    write_json(result.folder / RESULT, content)


def _read_existing_cameras(folder: Path) -> list[NamedCamera]:
    return read_cameras(folder / CAMERAS) if (folder / CAMERAS).is_file() else []


def _write_depth(path: Path, view: ResultView) -> None:
    arrays = {
        "ray_depth": view.ray_depth.to(torch.float32),
        "z_depth": view.z_depth().to(torch.float32),
        "confidence": view.confidence.to(torch.float32),
        "valid": view.valid,
    }
    if view.true_pose is not None:
        arrays["true_world_from_cam"] = view.true_pose.world_from_cam.double()
    with (
        atomic_path(path) as scratch,
        zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
    ):
        for name, tensor in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, tensor.numpy(force=True), allow_pickle=False)


# Reading


def read_result(folder: str | os.PathLike[str]) -> Result:
    """The folder of a reconstruction, finished or not; ValueError in one line if it is none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; give one that g-ray reconstruct has written")
    if not (folder / CAMERAS).is_file() or not (folder / "depth").is_dir():
        raise ValueError(
            f"{folder} is no reconstruction: it needs {CAMERAS} and depth/, as g-ray reconstruct writes"
        )
    cameras = read_cameras(folder / CAMERAS)
    for named in cameras:
        get_image_path(folder, named.name)
    if (folder / RESULT).is_file():
        return _read_finished(folder, cameras)
    there = [
        named for named in cameras if named.pose is not None and get_depth_path(folder, named.name).is_file()
    ]
    if not there:
        raise ValueError(f"{folder}: no view is finished yet; run g-ray reconstruct again")
    return Result(StoredViews(folder, there), folder)


def _read_finished(folder: Path, cameras: list[NamedCamera]) -> Result:
    path = folder / RESULT
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if (
            content["format"] != FORMAT
            or content["version"] != VERSION
            or content["unit"] not in get_args(Unit)
        ):
            raise ValueError(f"it must be {FORMAT} version {VERSION}")
        names, notes = content["views"], tuple(content["notes"])
        metrics, settings = dict(content["metrics"]), dict(content["settings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error}); run g-ray reconstruct again") from None
    if names != [named.name for named in cameras]:
        raise ValueError(f"{path} and {CAMERAS} name different views; run g-ray reconstruct again")
    missing = [name for name in names if not get_depth_path(folder, name).is_file()]
    if missing:
        raise ValueError(f"{get_depth_path(folder, missing[0])} is missing; run g-ray reconstruct again")
    return Result(StoredViews(folder, cameras), folder, content["unit"], metrics, settings, notes)


def _read_view(folder: Path, named: NamedCamera) -> ResultView:
    path = get_depth_path(folder, named.name)
    try:
        with np.load(path, allow_pickle=False) as stored:
            depth, confidence, valid = (
                torch.from_numpy(stored[key]) for key in ("ray_depth", "confidence", "valid")
            )
            true = stored.get("true_world_from_cam")
        if named.pose is None:
            raise ValueError(f"{CAMERAS} has no pose for it")
        return ResultView(
            named.name,
            named.camera,
            named.pose,
            depth,
            confidence,
            valid,
            named.source or "unknown",
            None if true is None else Pose(torch.from_numpy(true)),
        )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} cannot be read ({reason}); run g-ray reconstruct again") from None
