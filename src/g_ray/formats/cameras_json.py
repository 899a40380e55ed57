"""Read and write cameras.json, the project's own camera file.

    {"format": "g-ray-cameras", "version": 1, "cameras": [
      {"name": "left", "model": "opencv_fisheye", "width": 1280, "height": 800,
       "params": {"fx": 428.1, "fy": 427.9, "cx": 640.5, "cy": 400.5, "k1": 0.01},
       "world_from_cam": [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]}]}

Pixels: the origin is the image's top-left corner. Distortion that is not named is zero. ``world_from_cam`` is optional.
A ``ray_map`` has "table": the path, inside the file's folder, of a float .npy [rows, columns, 3] with NaN where no ray
is known. ``source``, also optional, is where the calibration came from. Unknown keys are refused.
"""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from g_ray.cameras import CAMERAS
from g_ray.cameras.camera import Camera
from g_ray.cameras.eucm import EUCM
from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.documents import MAX_NUMBER, MAX_SIDE, ParsedFile, describe, load_array, read_json_object
from g_ray.formats.frames import find_nearest_rotation
from g_ray.geometry.pose import Pose
from g_ray.media.photos import Photo
from g_ray.media.view import View
from g_ray.runtime.files import atomic_path, write_atomically

Number = Annotated[float, Field(ge=-MAX_NUMBER, le=MAX_NUMBER, allow_inf_nan=False)]
Side = Annotated[int, Field(gt=0, le=MAX_SIDE)]
Row = Annotated[list[Number], Field(min_length=4, max_length=4)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _CameraEntry(_Strict):
    name: Annotated[str, Field(min_length=1, max_length=4096)]
    model: Annotated[str, Field(max_length=100)]
    width: Side
    height: Side
    params: dict[str, Number]
    world_from_cam: Annotated[list[Row], Field(min_length=4, max_length=4)] | None = None
    circle: Row | None = None
    table: str | None = None
    source: str | None = None


class _CameraFile(_Strict):
    format: Literal["g-ray-cameras"]
    version: Literal[1]
    cameras: list[_CameraEntry]


def read_cameras(path: str | os.PathLike[str]) -> list[View]:
    """Read all cameras of a file; ValueError in one line if anything in it is wrong."""
    path = Path(path)
    content = _validate_file(path)
    names = [entry.name for entry in content.cameras]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{path}: camera name {twice[0]!r} is used twice; give every camera its own name")
    return [_build_view(path, entry) for entry in content.cameras]


def write_cameras(path: str | os.PathLike[str], cameras: Sequence[View]) -> None:
    """Write a cameras.json, and next to it a .npy for every ray table, each atomically."""
    path = Path(path)
    entries = [_build_entry(path, i, named) for i, named in enumerate(cameras)]
    content = {"format": "g-ray-cameras", "version": 1, "cameras": entries}
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    write_atomically(path, text)


def _validate_file(path: Path) -> _CameraFile:
    content = read_json_object(path, "cameras")
    try:
        return _CameraFile.model_validate(content)
    except (ValidationError, OverflowError) as error:
        problem = _format_first_problem(content, error) if isinstance(error, ValidationError) else str(error)
        raise ValueError(f"{path}: {problem}") from error


def _format_first_problem(content: dict[str, Any], error: ValidationError) -> str:
    problem = error.errors(include_input=False)[0]
    where = [describe(part).strip("'") for part in problem["loc"]]
    if len(where) >= 2 and where[0] == "cameras":
        where = [_describe_entry(content["cameras"][int(where[1])], int(where[1])), *where[2:]]
    place = ", ".join(where) or "the file"
    if problem["type"] == "extra_forbidden":
        return f"{place}: unknown key; remove it or correct its spelling"
    return f"{place}: {problem['msg'][0].lower() + problem['msg'][1:]}; see the format in g_ray.formats.cameras_json"


def _describe_entry(entry: Any, index: int) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return f"camera {describe(name)}" if isinstance(name, str) else f"camera number {index}"


def _build_view(path: Path, entry: _CameraEntry) -> View:
    try:
        return View(entry.name, _build_camera(path, entry), _build_pose(entry), entry.source)
    except ValueError as error:
        raise ValueError(f"{path}: camera {entry.name!r}: {error}") from error


def _build_camera(path: Path, entry: _CameraEntry) -> Camera:
    if entry.model not in CAMERAS:
        raise ValueError(f"unknown model {entry.model!r}; choose one of {', '.join(CAMERAS)}")
    if (entry.model == RayMapCamera.NAME) != (entry.table is not None):
        raise ValueError(
            f"key 'table' goes with model {RayMapCamera.NAME} and with no other; add or remove it"
        )
    circle = None if entry.circle is None else torch.tensor(entry.circle, dtype=torch.float64)
    if circle is not None and not bool(torch.isfinite(circle).all() and (circle[2:] > 0).all()):
        raise ValueError(f"circle {entry.circle} is none; give the center u, v and two radii in pixels")
    if entry.table is None:
        model = CAMERAS[entry.model]
        params = model.pack(dtype=torch.float64, **entry.params)
        return model(params, entry.width, entry.height, circle=circle)
    table = RayMapCamera.from_rays(torch.from_numpy(_load_table(path.parent, entry.table)))
    params = RayMapCamera.pack(dtype=torch.float64, **entry.params)
    size = (entry.width, entry.height)
    return RayMapCamera(params, *size, circle=circle, table=table.table, table_valid=table.table_valid)


def _load_table(folder: Path, name: str) -> np.ndarray:
    file = (folder / name).resolve()
    if Path(name).is_absolute() or not file.is_relative_to(folder.resolve()) or file.suffix != ".npy":
        raise ValueError(
            f"table {name!r} is not a .npy file inside the folder of the camera file; move it there"
        )
    try:
        table = load_array(file)
    except ValueError as error:
        raise ValueError(f"table {describe(name)} {error}") from None
    if table.ndim != 3 or table.shape[-1] != 3 or table.dtype.kind != "f":
        raise ValueError(f"table {name!r} is {table.dtype} {table.shape}; give floats [rows, columns, 3]")
    return table.astype(np.float64)


ROUNDED = 1e-6
"""Deviation of RᵀR from the identity that float32 explains."""


def _build_pose(entry: _CameraEntry) -> Pose | None:
    if entry.world_from_cam is None:
        return None
    matrix = torch.tensor(entry.world_from_cam, dtype=torch.float64)
    last = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    finite = bool(torch.isfinite(matrix).all() and (matrix[3] == last).all())
    rotation = find_nearest_rotation(matrix[:3, :3]) if finite else None
    if rotation is None:
        raise ValueError(
            "world_from_cam is not a rigid motion; give a rotation, a translation and the row 0 0 0 1"
        )
    return Pose.from_parts(rotation, matrix[:3, 3]) if _is_rounded(entry.world_from_cam) else Pose(matrix)


def _is_rounded(rows: Any) -> bool:
    """Return whether a rotation has so few digits that the nearest one is taken instead."""
    rotation = torch.tensor(rows, dtype=torch.float64)[:3, :3]
    return bool((rotation @ rotation.T - torch.eye(3, dtype=torch.float64)).abs().amax() > ROUNDED)


def _build_entry(path: Path, index: int, named: View) -> dict[str, Any]:
    camera = named.camera
    if camera.batch_shape:
        raise ValueError(
            f"write_cameras: camera {named.name!r} is a batch {camera.batch_shape}; write its elements"
        )
    values = dict(zip(camera.PARAMETERS, camera.params.double().tolist(), strict=True))
    if not all(math.isfinite(value) for value in values.values()):
        raise ValueError(f"write_cameras: camera {named.name!r} has parameters that are not finite")
    entry = {
        "name": named.name,
        "model": camera.NAME,
        "width": camera.width,
        "height": camera.height,
        "params": values,
    }
    if named.pose is not None:
        entry["world_from_cam"] = named.pose.world_from_cam.double().tolist()
    if named.source is not None:
        entry["source"] = named.source
    if camera.circle is not None:
        entry["circle"] = camera.circle.double().tolist()
    if isinstance(camera, RayMapCamera):
        entry["table"] = f"{path.stem}.rays{index}.npy"
        rays = torch.where(camera.table_valid[..., None], camera.table, torch.nan).double().cpu().numpy()
        with atomic_path(path.parent / entry["table"]) as scratch:
            np.save(scratch, rays, allow_pickle=False)
    return entry


# cameras.json as a calibration: cameras by name; a single one serves every photo of its size.


class CamerasJsonSource(CalibrationSource):
    """Names are those of photos, with or without suffix; also of folders, if the file has no photo of that name."""

    NAME, TITLE, CENTER, PER_PHOTO = "cameras_json", "G-ray", 0.5, True

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        return file.document is not None and file.document.get("format") == "g-ray-cameras"

    @classmethod
    def open(cls, file: ParsedFile) -> "CamerasJsonSource":
        lenses = [Lens.from_camera(view.name, view.camera, view.pose) for view in read_cameras(file.path)]
        poses = [entry.get("world_from_cam") for entry in (file.document or {})["cameras"]]
        rounded = sum(pose is not None and _is_rounded(pose) for pose in poses)
        note = f"{file.path}: {rounded} rotations are rounded (RᵀR is not the identity): the nearest ones are used"
        return cls(file.path, lenses, [note] if rounded else [])

    def _find_lens(self, photo: Photo) -> Lens | None:
        match = self._find_by_image(photo)
        if match is not None:
            return match
        folders = set(Path(photo.name).parent.parts)
        devices = (
            self.lenses if len(self.lenses) == 1 else [lens for lens in self.lenses if lens.label in folders]
        )
        if len(devices) != 1:
            return None
        # A pose belongs to one photo, and here the lens is that of a device.
        return self._check_without_pose(devices[0])

    def _check_without_pose(self, lens: Lens) -> Lens:
        if lens.pose is None:
            return lens
        raise ValueError(
            f"{self.path}: camera {lens.label!r} has a pose and serves photos of other names: "
            "name it as its photo, or remove world_from_cam"
        )

    @classmethod
    def example(cls, folder: Path) -> Example:
        affine = {"fx": 260.0, "fy": 261.0, "cx": 320.0, "cy": 240.0}
        camera = EUCM.make(640, 480, **affine, alpha=0.6, beta=1.1, dtype=torch.float64)
        write_cameras(folder / "cameras.json", [View("left", camera)])
        return Example(folder / "cameras.json", "left.png", camera)
