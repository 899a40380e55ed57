"""Read the settings of ORB-SLAM2 and ORB-SLAM3: flat YAML with Camera.fx, or Camera1.fx and Camera2.fx.

`Camera.type` is PinHole, KannalaBrandt8 or Rectified (no distortion). Pixel centers lie at integers.
"""

import re
from pathlib import Path
from typing import Any

import torch

from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.documents import ParsedFile, describe, parse_number, parse_positive_int
from g_ray.formats.opencv_calibration import make_lens_builder
from g_ray.runtime.files import write_atomically

SERIES = {
    "PinHole": ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6"),
    "KannalaBrandt8": ("k1", "k2", "k3", "k4"),
    "Rectified": (),
}
"""Distortion by camera type, in OpenCV's order."""
HARMLESS = {
    *("type", "width", "height", "newWidth", "newHeight", "fps", "RGB", "bf", "bFishEye", "overlappingBegin"),
    *("overlappingEnd", "imageScale"),
}


class OrbSlamSource(CalibrationSource):
    """Cameras have the labels 1 and 2; the single one of older files has none."""

    NAME, TITLE, CENTER, PER_PHOTO = "orb_slam", "ORB-SLAM", 0.0, False

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        return file.document is not None and bool(_list_cameras(file.document))

    @classmethod
    def open(cls, file: ParsedFile) -> "OrbSlamSource":
        document = file.document or {}
        try:
            if "LEFT.K" in document:
                raise ValueError(
                    "LEFT.K is the lens and Camera.fx the image after rectification: if the photos are rectified, "
                    "remove LEFT and RIGHT; if not, write K and D of each into an OpenCV file"
                )
            size = _parse_size(document)
            lenses = [_parse_lens(document, label, size, cls.CENTER) for label in _list_cameras(document)]
        except ValueError as error:
            raise ValueError(f"{file.path}: {error}") from None
        notes = (
            [f"{file.path}: it names no image size; taken to be that of the photos"] if size is None else []
        )
        return cls(file.path, lenses, notes)

    @classmethod
    def example(cls, folder: Path) -> Example:
        text = """%YAML:1.0
File.version: "1.0"
Camera.type: "KannalaBrandt8"
Camera1.fx: 190.9
Camera1.fy: 190.8
Camera1.cx: 254.9
Camera1.cy: 256.8
Camera1.k1: 0.0034
Camera1.k2: 0.0007
Camera1.k3: -0.002
Camera1.k4: 0.0002
Camera.width: 512
Camera.height: 512
Camera.fps: 20
ORBextractor.nFeatures: 1500
"""
        write_atomically(folder / "TUM-VI.yaml", text)
        affine = {"fx": 190.9, "fy": 190.8, "cx": 255.4, "cy": 257.3}
        series = {"k1": 0.0034, "k2": 0.0007, "k3": -0.002, "k4": 0.0002}
        camera = OpenCVFisheye.make(512, 512, **affine, **series, dtype=torch.float64)
        return Example(folder / "TUM-VI.yaml", "a.png", camera)


def _list_cameras(document: dict[str, Any]) -> list[str]:
    matches = (re.fullmatch(r"Camera(\d?)\.fx", key) for key in document if isinstance(key, str))
    return sorted(match[1] for match in matches if match)


def _parse_size(document: dict[str, Any]) -> tuple[int, int] | None:
    if "Camera.width" not in document and "Camera.height" not in document:
        return None
    width, height = (parse_positive_int(document.get(key), key) for key in ("Camera.width", "Camera.height"))
    return width, height


def _parse_lens(document: dict[str, Any], label: str, size: tuple[int, int] | None, center: float) -> Lens:
    kind = document.get("Camera.type", "PinHole")
    if not isinstance(kind, str) or kind not in SERIES:
        raise ValueError(f"Camera.type {describe(kind)} is not known; it can be {', '.join(SERIES)}")
    if (
        "Camera.imageScale" in document
        and parse_number(document["Camera.imageScale"], "Camera.imageScale") != 1
    ):
        raise ValueError("Camera.imageScale is not 1: remove it, photos are used in their own size")
    if kind != "KannalaBrandt8" and parse_number(document.get("Camera.bFishEye", 0), "Camera.bFishEye"):
        raise ValueError(f"Camera.bFishEye and the type {kind} contradict each other: keep one of them")
    start = f"Camera{label}."
    values = {
        key.removeprefix(start): value
        for key, value in document.items()
        if isinstance(key, str) and key.startswith(start)
    }
    unknown = sorted(set(values) - HARMLESS - {"fx", "fy", "cx", "cy", *SERIES[kind]})
    if unknown:
        raise ValueError(
            f"{start}{unknown[0][:40]} is not known for {kind} and may change the lens: remove it"
        )
    matrix = {name: parse_number(values.get(name), start + name) for name in ("fx", "fy", "cx", "cy")}
    names = (
        SERIES[kind] if kind != "PinHole" or any(f"k{i}" in values for i in (4, 5, 6)) else SERIES[kind][:5]
    )
    series = [parse_number(values.get(name, 0.0), start + name) for name in names]
    return Lens(label, make_lens_builder(matrix, series, kind == "KannalaBrandt8", center), size)
