"""transforms.json for nerfstudio and what reads its files: OpenGL axes, a camera per frame.

nerfstudio takes one `camera_model` per file. Where perspective, fisheye and panorama meet, transforms.json holds all
frames, each with its model (as `g_ray.formats` reads them), and a file per model beside it suits nerfstudio itself.
"""

import math
from pathlib import Path
from typing import Any

import torch

from g_ray.cameras.base import Camera
from g_ray.cameras.equirectangular import Equirectangular
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.export.options import ExportOptions
from g_ray.export.result import Result, get_depth_path, make_image_name
from g_ray.formats.cameras_json import NamedCamera
from g_ray.formats.nerfstudio import TRANSFORMS
from g_ray.runtime.files import write_json

MODELS: dict[type[Camera], tuple[str, tuple[str, ...]]] = {
    Pinhole: ("PINHOLE", ()),
    OpenCV: ("OPENCV", ("k1", "k2", "k3", "p1", "p2")),
    OpenCVFisheye: ("OPENCV_FISHEYE", ("k1", "k2", "k3", "k4")),
    Equirectangular: ("EQUIRECTANGULAR", ()),
}
"""Our cameras as nerfstudio's, and the distortion that it keeps. Its k4 of OPENCV is not ours, so it is not written."""
INTRINSICS = ("camera_model", "fl_x", "fl_y", "cx", "cy", "w", "h", "k1", "k2", "k3", "k4", "p1", "p2")


def camera_to_nerfstudio(camera: Camera) -> dict[str, Any]:
    """Intrinsics of a frame; ValueError, with the reason, if nerfstudio has no such lens."""
    if type(camera) not in MODELS:
        raise ValueError(f"nerfstudio has no camera model like {camera.NAME}")
    model, kept = MODELS[type(camera)]
    values = dict(zip(camera.PARAMETERS, camera.params.double().tolist(), strict=True))
    frame = {key: values.pop(key) for key in ("fx", "fy", "cx", "cy")}
    surplus = [key for key, value in values.items() if value != 0 and key not in kept]
    if surplus:
        raise ValueError(f"nerfstudio's {model} has no {', '.join(surplus)}")
    per_half_turn = (
        math.pi if isinstance(camera, Equirectangular) else 1.0
    )  # pixels per half turn, not per radian
    return {
        "camera_model": model,
        "fl_x": frame["fx"] * per_half_turn,
        "fl_y": frame["fy"] * per_half_turn,
        "cx": frame["cx"],
        "cy": frame["cy"],
        "w": camera.width,
        "h": camera.height,
        **{key: values[key] for key in kept},
    }


def write_transforms(result: Result, options: ExportOptions) -> list[str]:
    """transforms.json, and one file per model if they are mixed; returns notes about what is left out."""
    frames, notes = [], []
    for view in result.cameras():
        try:
            frames.append(_build_frame(result, view, options))
        except ValueError as error:
            notes.append(f"{TRANSFORMS} leaves out {view.name}: {error}")
    for name in (TRANSFORMS, *(f"transforms_{model.lower()}.json" for model, _ in MODELS.values())):
        (result.folder / name).unlink(missing_ok=True)
    if not frames:
        return [*notes, f"{TRANSFORMS} is not written: no view's camera is one that nerfstudio has"]
    _write(result.folder / TRANSFORMS, frames)
    kinds = sorted({_get_kind(frame) for frame in frames})
    if len(kinds) == 1:
        return notes
    for kind in kinds:
        _write(result.folder / f"transforms_{kind.lower()}.json", [f for f in frames if _get_kind(f) == kind])
    names = ", ".join(f"transforms_{kind.lower()}.json" for kind in kinds)
    return [*notes, f"nerfstudio takes one camera model per file: give it {names} instead of {TRANSFORMS}"]


def _get_kind(frame: dict[str, Any]) -> str:
    """Pinholes are OPENCV without distortion: one kind of camera to nerfstudio."""
    model = frame["camera_model"]
    return "OPENCV" if model == "PINHOLE" else model


def _build_frame(result: Result, view: NamedCamera, options: ExportOptions) -> dict[str, Any]:
    flip = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))
    assert view.pose is not None
    frame = {
        "file_path": f"images/{make_image_name(view.name)}",
        "transform_matrix": (view.pose.world_from_cam.double() @ flip).tolist(),
        **camera_to_nerfstudio(view.camera),
    }
    if options.depth_npy:
        path = get_depth_path(result.folder, view.name, ".npy")
        frame["depth_file_path"] = path.relative_to(result.folder).as_posix()
    return frame


def _write(path: Path, frames: list[dict[str, Any]]) -> None:
    """What all frames share goes to the top, as far as nerfstudio allows it: a camera is shared as a whole or not."""
    kinds = {_get_kind(frame) for frame in frames}
    first = {key: frames[0][key] for key in INTRINSICS if key in frames[0]}
    shared = all({key: f[key] for key in INTRINSICS if key in f} == first for f in frames)
    if shared:
        top, frames = first, [{k: v for k, v in f.items() if k not in INTRINSICS} for f in frames]
    elif len(kinds) == 1:
        top, frames = (
            {"camera_model": _get_kind(frames[0])},
            [f | {"camera_model": _get_kind(f)} for f in frames],
        )
    else:
        top = {}
    write_json(path, {**top, "ply_file_path": "points.ply", "frames": frames})
