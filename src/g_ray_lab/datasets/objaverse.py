"""Read and write rendered objects in the layout of the released Objaverse renders.

    <root>/<uid>/views/{000..007}_{0,1,2}.jpg    direction, then kind: 0 native, 1 focal variant, 2 dolly variant
    <root>/<uid>/cameras.json                    {"cameras": [24 of them, in the order of their names]}
    <root>/<uid>/views/…_depth.npz               optional: z_depth, float32, 0 where there is no object

An object appears under its name when all of it is there, and not before. Intrinsics are in pixels from the top-left
corner. Extrinsics have Blender's axes, which are OpenGL's (x right, y up, z backward).
"""

import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.recordings import OPENCV_FROM_OPENGL
from g_ray.geometry.pose import Pose
from g_ray.media.images import FORMATS
from g_ray.runtime.files import write_json

CAMERAS = "cameras.json"
PARTIAL = ".partial"  # folder below the root for objects that are being written
QUALITY, SUBSAMPLING = 95, 0  # of JPEG files; color at full resolution, so that it stays in its pixel
DIRECTIONS = 8
NATIVE, FOCAL, DOLLY = range(3)
KINDS = (NATIVE, FOCAL, DOLLY)


def format_image_name(direction: int, kind: int) -> str:
    return f"{direction:03d}_{kind}.jpg"


NAMES = tuple(format_image_name(direction, kind) for direction in range(DIRECTIONS) for kind in KINDS)
"""The 24 images of an object; `view_id` in cameras.json is the place in this list."""


@dataclass(frozen=True)
class ObjectCameras:
    """Cameras [24] and poses [24] in the order of NAMES, with OpenCV axes, in the object's own frame and unit."""

    cameras: Pinhole
    poses: Pose


def find_objects(root: Path) -> list[str]:
    """List the names of objects that have their cameras, sorted."""
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder of rendered objects; `g-ray data objects` makes one")
    return sorted(path.parent.name for path in root.glob(f"*/{CAMERAS}"))


def is_finished(root: Path, name: str) -> bool:
    return (root / name / CAMERAS).is_file()


def write_object(
    root: Path,
    name: str,
    views: ObjectCameras,
    images: UInt8[Tensor, "24 3 h w"],
    z_depth: Float[Tensor, "24 h w"] | None = None,
) -> None:
    """Write an object atomically: into a hidden folder, which is then renamed."""
    if not name or Path(name).name != name or name.startswith("."):
        raise ValueError(f"an object cannot be called {name!r}: its name becomes a folder below {root}")
    scratch = root / PARTIAL / f"{name}.{uuid4().hex[:8]}"
    (scratch / "views").mkdir(parents=True)
    try:
        for view, image in zip(NAMES, images, strict=True):
            file = scratch / "views" / view
            pixels = image.movedim(0, -1).contiguous().numpy()
            Image.fromarray(pixels).save(file, quality=QUALITY, subsampling=SUBSAMPLING)
        for view, depth in zip(NAMES, () if z_depth is None else z_depth, strict=z_depth is not None):
            file = scratch / "views" / view.replace(".jpg", "_depth.npz")
            np.savez_compressed(file, z_depth=depth.float().numpy())
        write_json(scratch / CAMERAS, {"cameras": _build_entries(views)})
        _publish_folder(scratch, root / name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _publish_folder(scratch: Path, folder: Path) -> None:
    try:
        scratch.rename(folder)
    except OSError:
        if not folder.exists():
            raise
        if not is_finished(folder.parent, folder.name):  # else another process was first with the same object
            raise FileExistsError(f"{folder} is in the way and holds no {CAMERAS}; remove it") from None


def _build_entries(views: ObjectCameras) -> list[dict[str, Any]]:
    """Make the fields of the released files; angles and distance follow from the matrices."""
    blender = views.poses.world_from_cam.double().numpy() @ OPENCV_FROM_OPENGL
    inverse = np.linalg.inv(blender)
    return [
        {
            "view_id": number,
            "view_idx": number // len(KINDS),
            "radial_idx": number % len(KINDS),
            "image_name": name,
            "intrinsics": _build_intrinsics(views.cameras[number]),
            "extrinsics": {
                "world_to_camera": inverse[number, :3].tolist(),
                "camera_to_world": blender[number, :3].tolist(),
                **_build_direction(blender[number, :3, 3]),
            },
        }
        for number, name in enumerate(NAMES)
    ]


def _build_intrinsics(camera: Pinhole) -> dict[str, Any]:
    fx, fy, cx, cy, _ = camera.params.tolist()
    return {
        "focal_length": [fx, fy],
        "principal_point": [cx, cy],
        "image_size": [camera.width, camera.height],
        "fov_degrees": float(camera.fov().vertical_deg),
    }


def _build_direction(position: Float[np.ndarray, "3"]) -> dict[str, Any]:
    x, y, z = position.tolist()
    return {
        "camera_position": [x, y, z],
        "elevation_degrees": math.degrees(math.atan2(z, math.hypot(x, y))),
        "azimuth_degrees": math.degrees(math.atan2(y, x)) % 360,
        "camera_distance": math.hypot(x, y, z),
    }


def read_cameras(folder: Path) -> ObjectCameras:
    """Read all cameras of an object; ValueError in one line if the file is wrong."""
    path = folder / CAMERAS
    try:
        return _parse_cameras(json.loads(path.read_text())["cameras"])
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: {what}") from None


def read_image(path: Path) -> UInt8[Tensor, "3 h w"]:
    """Read an image as RGB, whatever its mode; OSError names a damaged file."""
    try:
        with Image.open(path, formats=FORMATS) as file:
            return torch.from_numpy(np.array(file.convert("RGB"))).movedim(-1, 0)
    except (OSError, SyntaxError) as error:
        raise OSError(f"{path}: {error}") from None


def _parse_cameras(entries: list[dict[str, Any]]) -> ObjectCameras:
    by_name = {entry["image_name"]: entry for entry in entries}
    missing = [name for name in NAMES if name not in by_name]
    if missing:
        raise ValueError(f"no camera for {', '.join(missing[:3])}; {len(NAMES)} images are expected")
    ordered = [by_name[name] for name in NAMES]
    return ObjectCameras(_parse_pinholes([entry["intrinsics"] for entry in ordered]), _parse_poses(ordered))


def _parse_pinholes(intrinsics: list[dict[str, Any]]) -> Pinhole:
    sizes = {tuple(entry["image_size"]) for entry in intrinsics}
    if len(sizes) > 1:
        raise ValueError(f"images of different sizes {sorted(sizes)}; one size for all is expected")
    ((width, height),) = sizes
    rows = [(*entry["focal_length"], *entry["principal_point"], 0.0) for entry in intrinsics]
    return Pinhole(torch.tensor(rows, dtype=torch.float64), int(width), int(height))


def _parse_poses(entries: list[dict[str, Any]]) -> Pose:
    """Convert Blender's axes to OpenCV's; ValueError for cameras that look away from the object (other axes)."""
    blender = np.zeros((len(entries), 4, 4))
    blender[:, :3] = [entry["extrinsics"]["camera_to_world"] for entry in entries]
    blender[:, 3, 3] = 1
    matrices = blender @ OPENCV_FROM_OPENGL
    rotations, centers = matrices[:, :3, :3], matrices[:, :3, 3]
    if not np.allclose(rotations @ rotations.swapaxes(1, 2), np.eye(3), atol=1e-3):
        raise ValueError("camera_to_world is not a rotation and a translation")
    if ((rotations[:, :, 2] * centers).sum(1) > 0).any():
        raise ValueError("cameras look away from the object; camera_to_world must have Blender axes")
    return Pose(torch.from_numpy(matrices))
