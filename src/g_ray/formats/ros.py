"""Read ROS camera_info: the YAML of camera_calibration, or the message itself with D and K."""

from pathlib import Path
from typing import Any

import torch

from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.documents import ParsedFile, describe, parse_number, parse_numbers, parse_positive_int
from g_ray.formats.opencv_calibration import make_lens_builder, parse_intrinsics
from g_ray.runtime.files import write_atomically

COUNTS = {
    "plumb_bob": (0, 4, 5, 8),
    "rational_polynomial": (4, 5, 8, 12, 14),
    "equidistant": (4, 5),
    "fisheye": (4, 5),
}
"""Distortion models of ROS, with their numbers of coefficients. All perspective ones are OpenCV's, in its order, so a
driver that writes eight numbers as plumb_bob means the rational model, as image_geometry reads it."""
KEYS = {
    *(
        "image_width",
        "width",
        "image_height",
        "height",
        "camera_name",
        "camera_matrix",
        "K",
        "k",
        "distortion_model",
    ),
    *(
        "distortion_coefficients",
        "D",
        "d",
        "rectification_matrix",
        "R",
        "r",
        "projection_matrix",
        "P",
        "p",
        "header",
    ),
    *("binning_x", "binning_y", "roi"),
}
"""What camera_calibration and the message have."""


class ROSSource(CalibrationSource):
    """`distortion_model` next to `camera_matrix` (or K) distinguishes it from OpenCV's own file.

    The unrectified camera is meant: rectification_matrix and projection_matrix are not used.
    """

    NAME, TITLE, CENTER, PER_PHOTO = "ros", "ROS camera_info", 0.0, False

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        document = file.document
        if document is None or "distortion_model" not in document:
            return False
        return bool({"projection_matrix", "rectification_matrix", "camera_name"} & set(document)) or (
            {"K", "P"} <= set(document) or {"k", "p"} <= set(document)
        )

    @classmethod
    def open(cls, file: ParsedFile) -> "ROSSource":
        document = file.document or {}
        try:
            unknown = sorted(str(key)[:40] for key in document if key not in KEYS)
            if unknown:
                raise ValueError(f"entry {unknown[0]!r} is not known and may change the lens: remove it")
            build, size = _parse_lens(document, cls.CENTER), _parse_size(document)
            _check_region(document)
        except ValueError as error:
            raise ValueError(f"{file.path}: {error}") from None
        return cls(file.path, [Lens(_get_label(document), build, size)])

    @classmethod
    def example(cls, folder: Path) -> Example:
        text = """image_width: 640
image_height: 480
camera_name: front
camera_matrix:
  rows: 3
  cols: 3
  data: [280.0, 0, 320.5, 0, 281.0, 238.5, 0, 0, 1]
distortion_model: equidistant
distortion_coefficients:
  rows: 1
  cols: 4
  data: [0.02, -0.004, 0.001, -0.0002]
rectification_matrix:
  rows: 3
  cols: 3
  data: [1, 0, 0, 0, 1, 0, 0, 0, 1]
"""
        write_atomically(folder / "front.yaml", text)
        affine = {"fx": 280.0, "fy": 281.0, "cx": 321.0, "cy": 239.0}
        camera = OpenCVFisheye.make(
            640, 480, **affine, k1=0.02, k2=-0.004, k3=0.001, k4=-0.0002, dtype=torch.float64
        )
        return Example(folder / "front.yaml", "front/a.png", camera)


def _get_label(document: dict[str, Any]) -> str:
    """Return the last part of the name: a camera of a pair is called "stereo/left"."""
    name = document.get("camera_name", "")
    return name[:200].rstrip("/").rpartition("/")[2] if isinstance(name, str) else ""


def _parse_lens(document: dict[str, Any], center: float) -> Any:
    model = document["distortion_model"]
    if not isinstance(model, str) or model not in COUNTS:
        raise ValueError(f"distortion_model {describe(model)} is not known; it can be {', '.join(COUNTS)}")
    coefficients = _get_first(document, "distortion_coefficients", "D", "d")
    distortion = [] if coefficients is None else parse_numbers(coefficients, "distortion_coefficients")
    if len(distortion) not in COUNTS[model]:
        wanted = " or ".join(map(str, COUNTS[model]))
        raise ValueError(f"{model} has {wanted} distortion coefficients, the file gives {len(distortion)}")
    if model in ("equidistant", "fisheye") and len(distortion) == 5:
        if distortion[4]:
            raise ValueError(
                f"{model} has 4 distortion coefficients, and the fifth is {distortion[4]:g}, not 0"
            )
        distortion = distortion[:4]
    matrix = parse_intrinsics(_get_first(document, "camera_matrix", "K", "k"), "camera_matrix")
    return make_lens_builder(matrix, distortion, model in ("equidistant", "fisheye"), center)


def _parse_size(document: dict[str, Any]) -> tuple[int, int]:
    width, height = (
        _get_first(document, "image_width", "width"),
        _get_first(document, "image_height", "height"),
    )
    return parse_positive_int(width, "image_width"), parse_positive_int(height, "image_height")


def _check_region(document: dict[str, Any]) -> None:
    """Refuse binning and regions of interest: such cameras send other pixels than those that were calibrated."""
    for key in ("binning_x", "binning_y"):
        if parse_number(document.get(key, 0), key) > 1:
            raise ValueError(f"{key} is not 1: calibrate the images as they are sent, without binning")
    region = document.get("roi")
    if isinstance(region, dict) and any(
        parse_number(region.get(key, 0), f"roi.{key}") for key in ("x_offset", "y_offset")
    ):
        raise ValueError(
            "roi cuts the image: calibrate the images as they are sent, without a region of interest"
        )


def _get_first(document: dict[str, Any], *keys: str) -> Any:
    return next((document[key] for key in keys if key in document), None)
