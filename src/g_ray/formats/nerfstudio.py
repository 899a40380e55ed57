"""nerfstudio's transforms.json: a global camera or one per frame, OpenGL axes (x right, y up, z backward).

`applied_transform` and `applied_scale` tell how nerfstudio has moved the world since COLMAP: frames have it in them
already, so poses are in the moved world and nothing is undone. Depth maps (`depth_file_path`) hold z-depth in units of
`depth_unit_scale_factor` metres, 0.001 if the file does not say. Masks, point clouds and all keys that this reader has
no use for are named in `PosedScene.notes`.
"""

import json
from pathlib import Path
from typing import Any

import torch

from g_ray.cameras.opencv import OpenCV
from g_ray.formats.calibration import CalibrationSource, Example, Lens
from g_ray.formats.depth import DepthFile
from g_ray.formats.documents import ParsedFile
from g_ray.formats.frames import DISTORTION, INTRINSICS, build_scene, get_frames, parse_number, read_document
from g_ray.formats.scene import PosedScene, find_covisibility_file, resolve_inside
from g_ray.runtime.files import write_atomically

TRANSFORMS = "transforms.json"
DEPTH_UNIT = "depth_unit_scale_factor"
MILLIMETRE = 1e-3
"""What nerfstudio takes depth to be in when nobody says."""
USED = {
    "camera_model",
    "frames",
    "file_path",
    "transform_matrix",
    "depth_file_path",
    DEPTH_UNIT,
    *INTRINSICS,
    *DISTORTION,
}
MOVED = {"applied_transform", "applied_scale"}


def read_nerfstudio(folder: Path, check: bool = True, name: str = TRANSFORMS) -> PosedScene:
    """ValueError, in one line with the frame, if anything is wrong; without `check` photographs are not looked at."""
    path = folder / name
    document = read_document(path)
    frames = sorted(get_frames(path, document), key=lambda frame: frame["file_path"])
    return build_scene(
        path,
        "nerfstudio",
        document,
        frames,
        "opengl",
        lambda frame: _find_depth(folder, {**document, **frame}),
        check=check,
        notes=_collect_notes(document, frames),
        covisibility=find_covisibility_file(folder),
    )


def _find_depth(folder: Path, settings: dict[str, Any]) -> DepthFile | None:
    name = settings.get("depth_file_path")
    if name is None:
        return None
    unit = parse_number(settings, DEPTH_UNIT) if DEPTH_UNIT in settings else MILLIMETRE
    if not isinstance(name, str) or unit <= 0:
        raise ValueError(
            f"depth_file_path {name!r} and {DEPTH_UNIT} {unit} must be a path and a positive number"
        )
    return DepthFile(resolve_inside(folder, name), "z", unit)


def _collect_notes(document: dict[str, Any], frames: list[dict[str, Any]]) -> tuple[str, ...]:
    keys = set(document).union(*(frame.keys() for frame in frames))
    notes = []
    if keys & MOVED:
        notes.append(f"{TRANSFORMS}: poses are in the world after {' and '.join(sorted(keys & MOVED))}")
    unused = sorted(keys - USED - MOVED)
    if unused:
        notes.append(f"{TRANSFORMS}: not used: {', '.join(unused)}")
    return tuple(notes)


# nerfstudio's transforms.json: OpenGL camera axes there, OpenCV's here.


class NerfstudioSource(CalibrationSource):
    """The file, whatever its name, or the folder that has it."""

    NAME, TITLE, CENTER, PER_PHOTO = "nerfstudio", "nerfstudio", 0.5, True

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        if file.path.is_dir():
            return (file.path / TRANSFORMS).is_file()
        document = file.document
        return document is not None and isinstance(document.get("frames"), list)

    @classmethod
    def open(cls, file: ParsedFile) -> "NerfstudioSource":
        path = file.path / TRANSFORMS if file.path.is_dir() else file.path
        scene = read_nerfstudio(path.parent, check=False, name=path.name)
        lenses = [
            Lens.from_camera(name, camera, scene.poses[index])
            for index, (name, camera) in enumerate(zip(scene.names, scene.cameras, strict=True))
        ]
        return cls(path, lenses, scene.notes)

    @classmethod
    def example(cls, folder: Path) -> Example:
        affine = {"fl_x": 500.0, "fl_y": 501.0, "cx": 320.5, "cy": 240.0, "w": 640, "h": 480}
        matrix = [[1.0, 0.0, 0.0, 0.2], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 0.0, 1.0]]
        frames = [{"file_path": "images/a.jpg", "transform_matrix": matrix}]
        document = {"camera_model": "OPENCV", **affine, "k1": -0.05, "k2": 0.01, "frames": frames}
        write_atomically(folder / TRANSFORMS, json.dumps(document, indent=1))
        camera = OpenCV.make(
            640, 480, fx=500.0, fy=501.0, cx=320.5, cy=240.0, k1=-0.05, k2=0.01, dtype=torch.float64
        )
        return Example(folder / TRANSFORMS, "images/a.jpg", camera)
