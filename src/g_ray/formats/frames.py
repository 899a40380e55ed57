"""Frames of nerfstudio's transforms.json and MapAnything's scene_meta.json: read and write their cameras and poses.

A frame names an image and has a camera model, intrinsics and a `transform_matrix`; what it does not have itself is in
the document around it. Pixels count from the top-left corner, as here.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.equirectangular import Equirectangular
from g_ray.cameras.fisheye624 import Fisheye624
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.documents import (
    MAX_NUMBER,
    describe,
    names_lens,
    parse_number,
    parse_numbers,
    parse_positive_int,
    read_json_object,
)
from g_ray.formats.posed_scene import PosedScene, check_images, resolve_inside
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile
from g_ray.media.images import read_photo_size
from g_ray.media.view import View

Axes = Literal["opencv", "opengl"]

LENSES: dict[str, tuple[str, ...]] = {
    "SIMPLE_PINHOLE": (),
    "PINHOLE": (),
    "SIMPLE_RADIAL": ("k1",),
    "RADIAL": ("k1", "k2"),
    "OPENCV": ("k1", "k2", "k3", "k4", "p1", "p2"),
    "OPENCV_FISHEYE": ("k1", "k2", "k3", "k4"),
    "FISHEYE624": Fisheye624.PARAMETERS[4:],
    "EQUIRECTANGULAR": (),
}
"""Camera models that are read, with their distortion."""
SAME_MODEL = {"FISHEYE": "OPENCV_FISHEYE", "PERSPECTIVE": "OPENCV"}
"""Further names of models."""
VECTOR = ("k1", "k2", "k3", "k4", "p1", "p2")
"""Order of nerfstudio's distortion_params; with FISHEYE624 it is that of the model."""
REFUSED = ("latlong", "equirectangular", "orthographic", "ftheta_p0", "x_fov", "y_fov", "rolling_shutter")
"""Keys of instant-ngp that change the lens."""
WRITTEN: dict[type[Camera], tuple[str, tuple[str, ...]]] = {
    Pinhole: ("PINHOLE", ()),
    OpenCV: ("OPENCV", ("k1", "k2", "k3", "p1", "p2")),
    OpenCVFisheye: ("OPENCV_FISHEYE", ("k1", "k2", "k3", "k4")),
    Equirectangular: ("EQUIRECTANGULAR", ()),
}
"""Model and distortion that a camera is written with. nerfstudio's k4 of OPENCV is not ours, so it is not written."""
INTRINSICS = ("fl_x", "fl_y", "cx", "cy", "w", "h", "camera_angle_x", "camera_angle_y")
DISTORTION = ("k1", "k2", "k3", "k4", "p1", "p2", "k5", "k6", "s1", "s2", "s3", "s4")
CROP_RADIUS = "fisheye_crop_radius"
"""nerfstudio's radius in pixels about the principal point, beyond which a fisheye has no image."""
LENS_KEYS = (
    *("camera_model", "is_fisheye", "distortion_params", CROP_RADIUS),
    *(*INTRINSICS, *DISTORTION, *REFUSED),
)
"""All that `camera_from_frame` reads."""
TOLERANCE = 1e-3
"""Largest error of R Rᵀ − 1 of a rotation in a text file; smaller ones are rounding, and are corrected."""


def read_document(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file; ValueError names the file if there is none."""
    return read_json_object(path, "frames")


def get_frames(path: Path, document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the frames of a document, each of which names its image."""
    frames = document.get("frames")
    if not isinstance(frames, list) or not frames:
        raise ValueError(f"{path}: no frames; export the scene again")
    for number, frame in enumerate(frames):
        if not isinstance(frame, dict) or not isinstance(frame.get("file_path"), str):
            raise ValueError(f"{path}: frame number {number} names no image (file_path)")
    # Exporters on Windows write images\\a.jpg.
    return [{**frame, "file_path": frame["file_path"].replace("\\", "/")} for frame in frames]


def camera_from_frame(settings: dict[str, Any], image: Path) -> Camera:
    """Build the camera of a frame; if the frame has no size, the image file has it."""
    camera = _build_camera(settings, image)
    if settings.get(CROP_RADIUS) is None:
        return camera
    radius = parse_number(settings[CROP_RADIUS], CROP_RADIUS)
    if radius <= 0:
        raise ValueError(f"{CROP_RADIUS} is {radius:g}: a radius must be above 0")
    return camera.limit_to_circle(radius)


def _build_camera(settings: dict[str, Any], image: Path) -> Camera:
    model = _find_model(settings)
    values = {
        key: parse_number(settings[key], key)
        for key in (*INTRINSICS, *DISTORTION)
        if settings.get(key) is not None
    }
    if settings.get("distortion_params") is not None:
        values |= _parse_distortion_params(settings, model, values)
    surplus = [key for key in DISTORTION if values.get(key) and key not in LENSES[model]]
    if surplus:
        raise ValueError(f"{model} has no {', '.join(surplus)}, but the file gives a value other than 0")
    for key in ("fl_x", "fl_y"):
        if values.get(key, 1.0) <= 0:
            raise ValueError(f"{key} is {values[key]:g}: a focal length must be above 0")
    width, height = _parse_size(values, image)
    frame = _parse_affine(values, width, height)
    k = {key: values.get(key, 0.0) for key in LENSES[model]}
    if model == "EQUIRECTANGULAR":
        # Focal lengths are pixels per half turn there, per radian here.
        frame |= {"fx": frame["fx"] / math.pi, "fy": frame["fy"] / math.pi}
        return Equirectangular.make(width, height, dtype=torch.float64, **frame)
    if model in ("OPENCV_FISHEYE", "FISHEYE624"):
        lens = OpenCVFisheye if model == "OPENCV_FISHEYE" else Fisheye624
        return lens.make(width, height, dtype=torch.float64, **frame, **k)
    if not any(k.values()):
        return Pinhole.make(width, height, dtype=torch.float64, **frame)
    if k.pop("k4", 0.0):
        raise ValueError("k4 of OPENCV is a power of the radius in nerfstudio, which no camera here has")
    return OpenCV.make(width, height, dtype=torch.float64, **frame, **k)


def _find_model(settings: dict[str, Any]) -> str:
    """Return the camera model that a frame names, or that its distortion and instant-ngp's `is_fisheye` imply."""
    for key in REFUSED:
        if _is_set(settings.get(key)):
            raise ValueError(
                f"{key} of instant-ngp changes the lens and is not read here: export the scene without"
            )
    fisheye, model = settings.get("is_fisheye"), settings.get("camera_model")
    if fisheye not in (None, False, True):
        raise ValueError(f"is_fisheye is {describe(fisheye)}; it can be true or false")
    if model is None:
        is_distorted = any(_is_set(settings.get(key)) for key in (*DISTORTION, "distortion_params"))
        model = "OPENCV_FISHEYE" if fisheye else "OPENCV" if is_distorted else "PINHOLE"
    model = SAME_MODEL.get(model, model) if isinstance(model, str) else model
    if not isinstance(model, str) or model not in LENSES:
        raise ValueError(
            f"camera model {describe(model)} is not read here; it can be one of {', '.join(LENSES)}"
        )
    if fisheye and "FISHEYE" not in model:
        raise ValueError(f"camera_model {model} and is_fisheye contradict each other: keep one of them")
    return model


def _is_set(value: Any) -> bool:
    """Return whether a value carries information: not null, false, 0, or a list of zeros."""
    return any(map(_is_set, value)) if isinstance(value, list) else bool(value)


def _parse_distortion_params(
    settings: dict[str, Any], model: str, values: dict[str, float]
) -> dict[str, float]:
    """Return nerfstudio's vector of coefficients by their names; it must not contradict single ones."""
    names = LENSES[model] if model == "FISHEYE624" else VECTOR
    vector = dict(
        zip(
            names,
            parse_numbers(settings["distortion_params"], "distortion_params", (len(names),)),
            strict=True,
        )
    )
    other = next((key for key in vector if values.get(key, vector[key]) != vector[key]), None)
    if other is not None:
        raise ValueError(f"distortion_params and {other} contradict each other: keep one of them")
    return vector


def _parse_size(values: dict[str, float], image: Path) -> tuple[int, int]:
    if "w" in values and "h" in values:
        return parse_positive_int(values["w"], "w"), parse_positive_int(values["h"], "h")
    if not image.is_file():
        raise ValueError("neither its image nor its size is there: write w and h into the file")
    return read_photo_size(image)


def _parse_affine(values: dict[str, float], width: int, height: int) -> dict[str, float]:
    """Return focal lengths and principal point, by default from the angle of view and the middle of the image."""
    fx = values.get("fl_x") or _focal_from_angle(values.get("camera_angle_x"), width)
    fy = (
        values.get("fl_y")
        or values.get("fl_x")
        or _focal_from_angle(values.get("camera_angle_y"), height)
        or fx
    )
    if not fx or not fy:
        raise ValueError("no focal length: give fl_x (and fl_y) or camera_angle_x")
    return {"fx": fx, "fy": fy, "cx": values.get("cx", width / 2), "cy": values.get("cy", height / 2)}


def _focal_from_angle(angle_rad: float | None, size: int) -> float | None:
    if angle_rad is None:
        return None
    if not 0 < angle_rad < math.pi:
        raise ValueError(f"an angle of view of {angle_rad} rad is not between 0 and π")
    return size / 2 / math.tan(angle_rad / 2)


def camera_to_frame(camera: Camera) -> dict[str, Any]:
    """Convert a camera to the intrinsics of a frame; ValueError, with the reason, if nerfstudio has no such lens."""
    if type(camera) not in WRITTEN:
        raise ValueError(f"nerfstudio has no camera model like {camera.NAME}")
    model, kept = WRITTEN[type(camera)]
    values = dict(zip(camera.PARAMETERS, camera.params.double().tolist(), strict=True))
    frame = {key: values.pop(key) for key in ("fx", "fy", "cx", "cy")}
    surplus = [key for key, value in values.items() if value != 0 and key not in kept]
    if surplus:
        raise ValueError(f"nerfstudio's {model} has no {', '.join(surplus)}")
    # Focal lengths of a panorama are pixels per half turn there, per radian here.
    scale = math.pi if isinstance(camera, Equirectangular) else 1.0
    return {
        "camera_model": model,
        "fl_x": frame["fx"] * scale,
        "fl_y": frame["fy"] * scale,
        "cx": frame["cx"],
        "cy": frame["cy"],
        "w": camera.width,
        "h": camera.height,
        **{key: values[key] for key in kept},
    }


def pose_to_frame(pose: Pose) -> dict[str, Any]:
    """Convert a pose to the `transform_matrix` of a frame with OpenGL's camera axes: y and z change their signs."""
    opencv_from_opengl = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))
    return {"transform_matrix": (pose.world_from_cam.double() @ opencv_from_opengl).tolist()}


def pose_from_frame(frame: dict[str, Any], axes: Axes) -> Float[Tensor, "4 4"]:
    """Return `world_from_cam` with OpenCV's camera axes; from OpenGL's, y and z change their signs."""
    try:
        matrix = torch.tensor(frame.get("transform_matrix"), dtype=torch.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        matrix = torch.zeros(0)
    if matrix.shape not in ((3, 4), (4, 4)) or not bool((matrix.abs() <= MAX_NUMBER).all()):
        raise ValueError("transform_matrix is not a 4×4 or 3×4 matrix of numbers")
    rotation = find_nearest_rotation(matrix[:3, :3])
    if rotation is None:
        raise ValueError("transform_matrix does not begin with a rotation")
    if axes == "opengl":
        rotation = rotation * rotation.new_tensor([1.0, -1.0, -1.0])
    return Pose.from_parts(rotation, matrix[:3, 3]).world_from_cam


def _parse_poses(frames: Sequence[dict[str, Any]], axes: Axes) -> Float[Tensor, "frame 4 4"] | None:
    """Convert the poses of all frames at once; None if any is unusual: `pose_from_frame` then reports which."""
    try:
        matrices = torch.from_numpy(np.array([frame.get("transform_matrix") for frame in frames], np.float64))
    except (TypeError, ValueError, OverflowError):
        return None
    if matrices.shape[1:] not in ((3, 4), (4, 4)) or not bool((matrices.abs() <= MAX_NUMBER).all()):
        return None
    rotations = matrices[:, :3, :3]
    errors = (rotations @ rotations.mT - torch.eye(3, dtype=torch.float64)).abs().amax((-2, -1))
    if not bool((errors <= TOLERANCE).all() and (torch.linalg.det(rotations) > 0).all()):
        return None
    u, _, v = torch.linalg.svd(rotations)
    nearest = u @ v
    if axes == "opengl":
        nearest = nearest * nearest.new_tensor([1.0, -1.0, -1.0])
    return Pose.from_parts(nearest, matrices[:, :3, 3]).world_from_cam


def _freeze(value: Any) -> Any:
    """Return a hashable value; values of unknown types are compared by identity."""
    if isinstance(value, list):
        return tuple(map(_freeze, value))
    return value if isinstance(value, int | float | str | bool | None) else id(value)


def _check_lens_keys(path: Path, parts: Sequence[dict[str, Any]]) -> None:
    """Refuse keys that are called like a part of a lens and that nobody here reads."""
    for part in parts:
        for key, value in part.items():
            if key not in LENS_KEYS and names_lens(key) and _is_set(value):
                raise ValueError(
                    f"{path}: key {describe(key)} is not read and may change the lens: remove it"
                )


def find_nearest_rotation(matrix: Float[Tensor, "3 3"]) -> Float[Tensor, "3 3"] | None:
    """Return the rotation nearest to a matrix, or None if the matrix is not nearly one."""
    error = (matrix @ matrix.T - torch.eye(3, dtype=matrix.dtype)).abs().amax()
    if error > TOLERANCE or torch.linalg.det(matrix) < 0:
        return None
    u, _, v = torch.linalg.svd(matrix)
    return u @ v


def build_scene(
    path: Path,
    kind: str,
    document: dict[str, Any],
    frames: Sequence[dict[str, Any]],
    axes: Axes,
    depth_of: Callable[[dict[str, Any]], DepthFile | None],
    *,
    check: bool,
    notes: tuple[str, ...],
    covisibility: Path | None,
) -> PosedScene:
    """Build the scene of a file with these frames; ValueError, in one line with the frame, if anything is wrong."""
    names = tuple(frame["file_path"] for frame in frames)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path}: image {describe(twice[0])} is there twice; give every frame its own image")
    images = tuple(resolve_inside(path.parent, name) for name in names)
    _check_lens_keys(path, [document, *frames])
    # Frames of one lens share its camera: there may be tens of thousands.
    known_cameras: dict[tuple[Any, ...], Camera] = {}
    lens_keys = [key for key in LENS_KEYS if key in document or any(key in frame for frame in frames)]
    poses = _parse_poses(frames, axes)
    cameras, single_poses, depth = [], [], list[DepthFile | None]()
    for frame, image in zip(frames, images, strict=True):
        try:
            settings = {**document, **frame}
            lens = tuple(_freeze(settings.get(key)) for key in lens_keys)
            if "w" not in settings or "h" not in settings:
                lens = (*lens, image)  # the image has the size
            if lens not in known_cameras:
                known_cameras[lens] = camera_from_frame(settings, image)
            cameras.append(known_cameras[lens])
            if poses is None:
                single_poses.append(pose_from_frame(frame, axes))
            depth.append(depth_of(frame))
        except ValueError as error:
            raise ValueError(f"{path}: frame {frame['file_path'][:200]}: {error}") from None
    if check:
        check_images(names, images, cameras)
    world_from_cam = Pose(torch.stack(single_poses) if poses is None else poses)
    views = [
        View(name, camera, world_from_cam[index], kind, image, depth=depth[index])
        for index, (name, camera, image) in enumerate(zip(names, cameras, images, strict=True))
    ]
    return PosedScene(path.parent, kind, tuple(views), notes, covisibility)
