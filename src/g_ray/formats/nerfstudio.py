"""Read and write nerfstudio's transforms.json: one camera or one per frame, OpenGL axes (x right, y up, z backward).

`applied_transform` and `applied_scale` describe how nerfstudio moved the world since COLMAP: poses of frames include
it, so they are in the moved world and nothing is undone. Depth maps (`depth_file_path`) hold z-depth in units of
`depth_unit_scale_factor` meters, 0.001 by default; with `depth_convention` "ray", which is our own key, depth along
each pixel's ray, as lenses beyond 180° need it. Masks (`mask_path`) are not zero where a pixel may be used. Point
clouds and all other keys that are not used are named in `PosedScene.notes`.

nerfstudio takes one `camera_model` per file. Where perspective, fisheye and panorama meet, `write_nerfstudio` writes
transforms.json with all frames, each with its model (which this reader takes), and a file per model for nerfstudio.
"""

import json
import os
import re
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, get_args

import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv import OpenCV
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.documents import ParsedFile, describe, parse_number
from g_ray.formats.frames import (
    DISTORTION,
    LENS_KEYS,
    WRITTEN,
    build_scene,
    get_frames,
    read_document,
)
from g_ray.formats.posed_scene import PosedScene, find_covisibility_file, resolve_inside
from g_ray.media.depth import Convention, DepthFile
from g_ray.media.view import MaskFile
from g_ray.runtime.files import write_atomically, write_json

TRANSFORMS = "transforms.json"
DEPTH_UNIT = "depth_unit_scale_factor"
DEPTH_CONVENTION = "depth_convention"
MILLIMETRE = 1e-3
"""nerfstudio's default unit of depth."""
USED = {
    "frames",
    "file_path",
    "transform_matrix",
    "depth_file_path",
    "mask_path",
    DEPTH_UNIT,
    DEPTH_CONVENTION,
    *LENS_KEYS,
}
MOVED = {"applied_transform", "applied_scale"}


CAMERA_KEYS = ("camera_model", "fl_x", "fl_y", "cx", "cy", "w", "h", *DISTORTION)
"""Keys of a camera that all frames may share."""


def is_nerfstudio(folder: Path) -> bool:
    """Return whether a folder has a transforms.json."""
    return (folder / TRANSFORMS).is_file()


def read_nerfstudio(
    folder: Path, check: bool = True, name: str = TRANSFORMS, *, lenses_only: bool = False
) -> PosedScene:
    """Read the scene of a folder; ValueError, in one line with the frame, if anything is wrong.

    Without `check` photographs are not opened. With `lenses_only` frames of `test_frames` are read too, and images may
    lie outside of the folder: their names are compared with those of photographs, and no file is opened by them.
    """
    path = folder / name
    document = read_document(path)
    frames = get_frames(path, document)
    if lenses_only and document.get("test_frames"):
        frames = [*frames, *get_frames(path, {"frames": document["test_frames"]})]
        document = {key: value for key, value in document.items() if key != "test_frames"}
    frames = [_add_suffix(folder, _shorten_path(folder, frame, lenses_only)) for frame in frames]
    frames = sorted(frames, key=lambda frame: frame["file_path"])
    frames, missing = _drop_missing(folder, frames) if check else (frames, ())
    scene = build_scene(
        path,
        "nerfstudio",
        document,
        frames,
        "opengl",
        lambda frame: _find_depth(folder, {**document, **frame}),
        check=check,
        notes=(*_collect_notes(document, frames), *missing),
        covisibility=find_covisibility_file(folder),
    )
    views = [
        replace(view, mask=_find_mask(folder, frame, view.camera, check))
        for frame, view in zip(frames, scene.views, strict=True)
    ]
    return replace(scene, views=tuple(views))


def _find_mask(folder: Path, frame: dict[str, Any], camera: Camera, check: bool) -> MaskFile | None:
    if "mask_path" not in frame:
        return None
    path = resolve_inside(folder, str(frame["mask_path"]))
    if check and not path.is_file():
        raise ValueError(f"{path}: no such mask; frame {frame['file_path']} names it")
    return MaskFile(path, camera.width, camera.height)


def _shorten_path(folder: Path, frame: dict[str, Any], outside: bool) -> dict[str, Any]:
    """Write absolute paths and those with `..` relative to the folder; what leads out of it loses its beginning."""
    name = re.sub(r"\A[A-Za-z]:/", "/", frame["file_path"])
    if not name.startswith("/") and ".." not in PurePosixPath(name).parts:
        return frame
    place = os.path.normpath(os.path.join(os.path.abspath(folder), name))
    inside = os.path.relpath(place, os.path.abspath(folder))
    if not inside.startswith(".."):
        return {**frame, "file_path": inside}
    parts = [part for part in PurePosixPath(name).parts if part not in ("/", "..")]
    return {**frame, "file_path": "/".join(parts) or name} if outside else frame


def _add_suffix(folder: Path, frame: dict[str, Any]) -> dict[str, Any]:
    """Add the .png that frames of NeRF's synthetic scenes leave out, where there is such a file."""
    name = frame["file_path"]
    if PurePosixPath(name).suffix or not (folder / f"{name}.png").is_file():
        return frame
    return {**frame, "file_path": f"{name}.png"}


def _drop_missing(folder: Path, frames: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Leave out frames whose images are missing, with a note; if all are, keep them for the error that names one."""
    there = [frame for frame in frames if resolve_inside(folder, frame["file_path"]).is_file()]
    if not there or len(there) == len(frames):
        return frames, ()
    count = len(frames) - len(there)
    return there, (f"{TRANSFORMS}: {count} of {len(frames)} images are missing and left out",)


def _find_depth(folder: Path, settings: dict[str, Any]) -> DepthFile | None:
    name = settings.get("depth_file_path")
    if name is None:
        return None
    unit = parse_number(settings[DEPTH_UNIT], DEPTH_UNIT) if DEPTH_UNIT in settings else MILLIMETRE
    if not isinstance(name, str) or unit <= 0:
        raise ValueError(
            f"depth_file_path {describe(name)} and {DEPTH_UNIT} {unit:g} must be a path and a positive number"
        )
    convention = settings.get(DEPTH_CONVENTION, "z")
    if convention not in get_args(Convention):
        raise ValueError(
            f"{DEPTH_CONVENTION} {describe(convention)} must be one of {', '.join(get_args(Convention))}"
        )
    return DepthFile(resolve_inside(folder, name), convention, unit)


def _collect_notes(document: dict[str, Any], frames: list[dict[str, Any]]) -> tuple[str, ...]:
    keys = set(document).union(*(frame.keys() for frame in frames))
    notes = []
    if keys & MOVED:
        notes.append(f"{TRANSFORMS}: poses are in the world after {' and '.join(sorted(keys & MOVED))}")
    unused = sorted(keys - USED - MOVED)
    if unused:
        notes.append(f"{TRANSFORMS}: not used: {', '.join(unused)}")
    return tuple(notes)


# Writing


def write_nerfstudio(folder: Path, frames: list[dict[str, Any]], **more: Any) -> list[str]:
    """Write transforms.json, and a file per camera model if they are mixed; returns the names of these further files.

    `frames` have `file_path` and what `camera_to_frame` and `pose_to_frame` return; `more` are further keys of the
    document. Files of an earlier export to the folder are removed.
    """
    for name in (TRANSFORMS, *(_name_by_kind(model) for model, _ in WRITTEN.values())):
        (folder / name).unlink(missing_ok=True)
    if not frames:
        return []
    _write_file(folder / TRANSFORMS, frames, more)
    kinds = sorted({_get_kind(frame) for frame in frames})
    if len(kinds) == 1:
        return []
    for kind in kinds:
        _write_file(folder / _name_by_kind(kind), [f for f in frames if _get_kind(f) == kind], more)
    return [_name_by_kind(kind) for kind in kinds]


def _name_by_kind(kind: str) -> str:
    return f"transforms_{kind.lower()}.json"


def _get_kind(frame: dict[str, Any]) -> str:
    """Return the kind of a frame's camera; a pinhole is OPENCV without distortion, one kind to nerfstudio."""
    model = frame["camera_model"]
    return "OPENCV" if model == "PINHOLE" else model


def _write_file(path: Path, frames: list[dict[str, Any]], more: dict[str, Any]) -> None:
    """Write a document; nerfstudio allows frames to share a camera as a whole, or its model, or nothing."""
    kinds = {_get_kind(frame) for frame in frames}
    first = {key: frames[0][key] for key in CAMERA_KEYS if key in frames[0]}
    shared = all({key: f[key] for key in CAMERA_KEYS if key in f} == first for f in frames)
    top: dict[str, Any] = {}
    if shared:
        top, frames = first, [{k: v for k, v in f.items() if k not in CAMERA_KEYS} for f in frames]
    elif len(kinds) == 1:
        top = {"camera_model": _get_kind(frames[0])}
        frames = [{**frame, **top} for frame in frames]
    write_json(path, {**top, **more, "frames": frames})


# transforms.json as a calibration


class NerfstudioSource(CalibrationSource):
    """A transforms.json of any name, or the folder that has it."""

    NAME, TITLE, CENTER, PER_PHOTO = "nerfstudio", "nerfstudio", 0.5, True
    IGNORES_EXIF = True

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        if file.path.is_dir():
            return (file.path / TRANSFORMS).is_file()
        document = file.document
        return document is not None and isinstance(document.get("frames"), list)

    @classmethod
    def open(cls, file: ParsedFile) -> "NerfstudioSource":
        path = file.path / TRANSFORMS if file.path.is_dir() else file.path
        scene = read_nerfstudio(path.parent, check=False, name=path.name, lenses_only=True)
        lenses = [
            replace(
                Lens.from_camera(view.name, view.camera, view.pose),
                mask=view.mask.path if isinstance(view.mask, MaskFile) else None,
            )
            for view in scene.views
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
