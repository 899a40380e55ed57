"""Read OpenCV's calibration files, YAML or XML, as cv2.FileStorage and OpenCV's calibration sample write them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from g_ray.cameras.base import Camera
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.calibration import CalibrationSource, Example, Lens
from g_ray.formats.documents import ParsedFile, parse_number, parse_numbers, parse_positive_int
from g_ray.runtime.files import write_atomically

MATRIX = ("camera_matrix", "Camera_Matrix", "cameraMatrix", "CameraMatrix", "K")
DISTORTION = (
    *("distortion_coefficients", "Distortion_Coefficients", "distCoeffs", "DistCoeffs"),
    *("dist_coeffs", "distortion_coeffs", "distortion", "D"),
)
SIZES = (("image_width", "image_height"), ("image_Width", "image_Height"), ("width", "height"))
COUNTS = (0, 4, 5, 8, 12, 14)
FISHEYES = ("fisheye", "opencv_fisheye", "equidistant", "kannala_brandt", "kb4")


class OpenCVSource(CalibrationSource):
    """`camera_matrix` and `distortion_coefficients`; `fisheye_model: 1` says that they are cv2.fisheye's."""

    NAME, TITLE, CENTER, PER_PHOTO = "opencv", "OpenCV", 0.0, False

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        document = file.document
        return document is not None and any(key in document for key in MATRIX)

    @classmethod
    def open(cls, file: ParsedFile) -> "OpenCVSource":
        document = file.document or {}
        try:
            matrix = parse_intrinsics(_get_first(document, MATRIX), "camera_matrix")
            coefficients = _get_first(document, DISTORTION)
            distortion = (
                [] if coefficients is None else parse_numbers(coefficients, "distortion_coefficients")
            )
            fisheye = _is_fisheye(document)
            build = make_lens_builder(matrix, distortion, fisheye, cls.CENTER)
            size = _parse_size(document)
        except ValueError as error:
            raise ValueError(f"{file.path}: {error}") from None
        notes = []
        if size is None:
            notes.append(f"{file.path}: it names no image size; taken to be that of the photos")
        if len(distortion) == 4 and fisheye is None:
            notes.append(
                f"{file.path}: four coefficients are read as k1 k2 p1 p2; if they are cv2.fisheye's, "
                "add the line fisheye_model: 1"
            )
        return cls(file.path, [Lens("", build, size)], notes)

    @classmethod
    def example(cls, folder: Path) -> Example:
        text = """%YAML:1.0
---
image_width: 640
image_height: 480
camera_matrix: !!opencv-matrix
   rows: 3
   cols: 3
   dt: d
   data: [ 520., 0., 319.5, 0., 521., 239.5, 0., 0., 1. ]
distortion_coefficients: !!opencv-matrix
   rows: 5
   cols: 1
   dt: d
   data: [ -2.1e-01, 5.0e-02, 1.0e-03, -5.0e-04, 1.0e-02 ]
"""
        write_atomically(folder / "camera.yml", text)
        affine = {"fx": 520.0, "fy": 521.0, "cx": 320.0, "cy": 240.0}
        camera = OpenCV.make(
            640, 480, **affine, k1=-0.21, k2=0.05, p1=0.001, p2=-0.0005, k3=0.01, dtype=torch.float64
        )
        return Example(folder / "camera.yml", "a.png", camera)


def parse_intrinsics(value: Any, name: str) -> dict[str, float]:
    """Return fx, fy, cx, cy of a 3×3 matrix, in the file's own pixel convention."""
    if value is None:
        raise ValueError(f"{name} is missing")
    k = parse_numbers(value, name, (9,))
    if k[3:4] + k[6:] != [0.0, 0.0, 0.0, 1.0]:
        raise ValueError(f"{name} is not [fx 0 cx; 0 fy cy; 0 0 1]: check rows and columns")
    if k[1]:
        raise ValueError(f"{name} has skew {k[1]:g}, which OpenCV itself ignores; calibrate without skew")
    return {"fx": k[0], "fy": k[4], "cx": k[2], "cy": k[5]}


def make_lens_builder(
    matrix: dict[str, float], distortion: Sequence[float], fisheye: bool | None, center: float
) -> Callable[[int, int], Camera]:
    """Return a function that makes the camera for a width and a height.

    `distortion` is in OpenCV's order: k1 k2 p1 p2 k3, k4 k5 k6, s1 s2 s3 s4, τx τy; of a fisheye k1 k2 k3 k4.
    """
    affine = {**matrix, "cx": matrix["cx"] + 0.5 - center, "cy": matrix["cy"] + 0.5 - center}
    if fisheye:
        if len(distortion) not in (0, 4):
            raise ValueError(
                f"a fisheye has 4 distortion coefficients (k1 k2 k3 k4), the file gives {len(distortion)}"
            )
        model, names = OpenCVFisheye, OpenCVFisheye.PARAMETERS[4:]
    else:
        distortion = _strip_tilt(distortion)
        model, names = OpenCV, OpenCV.PARAMETERS[4:]
    values = dict(zip(names, distortion, strict=False))
    if not fisheye and not any(distortion):
        model, values = Pinhole, {}
    return lambda width, height: model.make(width, height, dtype=torch.float64, **affine, **values)


def _strip_tilt(distortion: Sequence[float]) -> Sequence[float]:
    if len(distortion) not in COUNTS:
        raise ValueError(
            f"{len(distortion)} distortion coefficients; OpenCV writes 4, 5, 8, 12 or 14 (k1 k2 p1 p2 k3 …)"
        )
    if any(distortion[12:]):
        raise ValueError(
            "a tilted sensor (14 coefficients) has no counterpart here; calibrate with 12 at most"
        )
    return distortion[:12]


def _is_fisheye(document: dict[str, Any]) -> bool | None:
    """Return whether the file is about a fisheye; None where it does not say."""
    for key in ("fisheye_model", "fisheye", "is_fisheye"):
        if key in document:
            return str(document[key]).strip('"').lower() not in ("0", "false", "no")
    for key in ("distortion_model", "camera_model", "model"):
        if isinstance(document.get(key), str):
            return document[key].lower() in FISHEYES
    return None


def _parse_size(document: dict[str, Any]) -> tuple[int, int] | None:
    for keys in SIZES:
        if all(key in document for key in keys):
            return parse_positive_int(document[keys[0]], keys[0]), parse_positive_int(
                document[keys[1]], keys[1]
            )
    if "image_size" in document:
        width, height = (
            parse_number(value, "image_size")
            for value in parse_numbers(document["image_size"], "image_size", (2,))
        )
        return parse_positive_int(width, "image_size"), parse_positive_int(height, "image_size")
    return None


def _get_first(document: dict[str, Any], keys: Sequence[str]) -> Any:
    return next((document[key] for key in keys if key in document), None)
