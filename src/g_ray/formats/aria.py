"""Read Project Aria's calibration JSON, as stored in a VRS file, or as a line of MPS' online_calibration.jsonl.

Cameras have labels (camera-rgb, camera-slam-left, …). The first generation's file names no image size: the sensor's
is meant. The 1408 × 1408 images of camera-rgb are its inner 2816 × 2816 pixels at half the size, the eye cameras' 320 ×
240 all of 640 × 480. Pixel centers lie at integers.

MPS before June 2023 wrote the cameras of a line as a string, in Python's notation: 'Label', True.

Beyond the valid radius, ConfigData's or that of VALID_RADIUS, sensors are dark: such pixels have no ray.
"""

import json
from pathlib import Path
from typing import Any

import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.fisheye624 import Fisheye624
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens, check_principal_point
from g_ray.formats.documents import ParsedFile, describe, parse_json, parse_numbers, parse_positive_int
from g_ray.runtime.files import write_atomically

SENSORS = {
    "camera-rgb": (2880, 2880),
    "camera-slam-left": (640, 480),
    "camera-slam-right": (640, 480),
    "camera-et-left": (640, 480),
    "camera-et-right": (640, 480),
}
HALVED = {"camera-rgb": 32, "camera-et-left": 0, "camera-et-right": 0}
"""Cameras that also record at half the size, with the border that is cut off first."""
VALID_RADIUS = {"camera-rgb": 1415.0, "camera-slam-left": 330.0, "camera-slam-right": 330.0}
"""Valid radius about the principal point, in sensor pixels, for the first generation, whose files lack it."""
_K, _P, _S = tuple(Fisheye624.PARAMETERS[4:10]), ("p1", "p2"), ("s1", "s2", "s3", "s4")
PROJECTIONS: dict[str, tuple[type[Camera], tuple[str, ...]]] = {
    "FisheyeRadTanThinPrism": (Fisheye624, (*_K, *_P, *_S)),
    "Fisheye624": (Fisheye624, (*_K, *_P, *_S)),
    "Fisheye62": (Fisheye624, (*_K, *_P)),
    "KannalaBrandtK3": (OpenCVFisheye, ("k1", "k2", "k3", "k4")),
    "Linear": (Pinhole, ()),
}
"""Names there, with our model and what follows the focal lengths and the principal point."""


class AriaSource(CalibrationSource):
    """Cameras of the device; their place on it (T_Device_Camera) is not a pose in the world, and is not used."""

    NAME, TITLE, CENTER, PER_PHOTO = "aria", "Project Aria", 0.0, False

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        document = file.document
        return document is not None and isinstance(document.get("CameraCalibrations"), list | str)

    @classmethod
    def open(cls, file: ParsedFile) -> "AriaSource":
        lenses = []
        document = file.document or {}
        for number, entry in enumerate(read_entries(file.path, document["CameraCalibrations"])):
            label = entry.get("Label") if isinstance(entry, dict) else None
            try:
                if not isinstance(label, str):
                    raise ValueError("it has no Label")
                lenses += _build_lenses(label, entry, _read_size(document, number, entry), cls.CENTER)
            except ValueError as error:
                raise ValueError(f"{file.path}: camera {label or number}: {error}") from None
        return cls(file.path, lenses)

    @classmethod
    def example(cls, folder: Path) -> Example:
        affine, k = [1222.0, 1430.5, 1433.5], [0.406, -0.49, 0.1746, 1.133, -1.7016, 0.651]
        small = [0.0006, 0.00002, -0.00001, 0.0003, -0.0007, 0.00004]
        entry = {
            "Label": "camera-rgb",
            "Projection": {"Name": "FisheyeRadTanThinPrism", "Params": [*affine, *k, *small]},
            "T_Device_Camera": {"Translation": [0.0, 0.0, 0.0], "UnitQuaternion": [1.0, [0.0, 0.0, 0.0]]},
        }
        write_atomically(folder / "calibration.json", json.dumps({"CameraCalibrations": [entry]}, indent=1))
        values = dict(zip((*_K, *_P, *_S), [*k, *small], strict=True))
        full = Fisheye624.make(
            2880, 2880, fx=1222.0, fy=1222.0, cx=1431.0, cy=1434.0, **values, dtype=torch.float64
        )
        halved = full.limit_to_circle(VALID_RADIUS["camera-rgb"]).resize(1408, 1408, (32, 32, 2848, 2848))
        return Example(folder / "calibration.json", "camera-rgb/0001.jpg", halved)


def read_entries(path: Path, entries: list[Any] | str) -> list[Any]:
    """Return the cameras of a document, also where MPS wrote them as a string."""
    if isinstance(entries, list):
        return entries
    try:
        parsed = parse_json(entries.replace("'", '"').replace("True", "true").replace("False", "false"))
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, list):
        raise ValueError(
            f"{path}: CameraCalibrations is a string that holds no list of cameras; request the MPS output again"
        )
    return parsed


def _read_size(document: dict[str, Any], number: int, entry: dict[str, Any]) -> tuple[int, int] | None:
    """Return image sizes by camera: ConfigData of the second generation or ImageSizes of MPS; older files have none."""
    config, sizes = entry.get("ConfigData"), document.get("ImageSizes")
    if isinstance(config, dict) and "ImageWidth" in config:
        return parse_positive_int(config["ImageWidth"], "ImageWidth"), parse_positive_int(
            config.get("ImageHeight"), "ImageHeight"
        )
    if isinstance(sizes, list) and number < len(sizes):
        width, height = parse_numbers(sizes[number], "ImageSizes", (2,))
        return parse_positive_int(width, "ImageSizes"), parse_positive_int(height, "ImageSizes")
    return None


def _build_lenses(
    label: str, entry: dict[str, Any], size: tuple[int, int] | None, center: float
) -> list[Lens]:
    """Return the camera at its size, or at its sensor's and, where the device can record so, at half of that."""
    if size is not None:
        camera = _build_camera(entry, *size, center)
        radius = _find_valid_radius(label, entry, size)
        return [Lens.from_camera(label, camera if radius is None else camera.limit_to_circle(radius))]
    if label not in SENSORS:
        raise ValueError(
            f"its image size is not known; a Label without ConfigData is one of {', '.join(SENSORS)}"
        )
    camera = _build_camera(entry, *SENSORS[label], center)
    check_principal_point(camera)
    if label in VALID_RADIUS:
        camera = camera.limit_to_circle(VALID_RADIUS[label])
    lenses, border = [Lens.from_camera(label, camera)], HALVED.get(label)
    if border is not None:
        box = (border, border, camera.width - border, camera.height - border)
        halved = camera.resize((box[2] - box[0]) // 2, (box[3] - box[1]) // 2, box)
        lenses.append(Lens.from_camera(label, halved))
    return lenses


def _find_valid_radius(label: str, entry: dict[str, Any], size: tuple[int, int]) -> float | None:
    """Return the radius at an image size: the file's own, or the known sensor's at full or half resolution."""
    config = entry.get("ConfigData")
    if isinstance(config, dict):
        if "ValidRadius" not in config:
            return None
        (radius,) = parse_numbers([config["ValidRadius"]], "ValidRadius", (1,))
        return radius
    if label not in VALID_RADIUS:
        return None
    border = HALVED.get(label, 0)
    halves = [(side - 2 * border) // 2 for side in SENSORS[label]]
    scale = {SENSORS[label]: 1.0, tuple(halves): 0.5}.get(size)
    return None if scale is None else scale * VALID_RADIUS[label]


def _build_camera(entry: dict[str, Any], width: int, height: int, center: float) -> Camera:
    projection = entry.get("Projection")
    name = projection.get("Name") if isinstance(projection, dict) else None
    if not isinstance(projection, dict) or not isinstance(name, str) or name not in PROJECTIONS:
        raise ValueError(f"Projection.Name {describe(name)} is not known; it can be {', '.join(PROJECTIONS)}")
    model, names = PROJECTIONS[name]
    values = parse_numbers(projection.get("Params"), "Projection.Params", (3 + len(names), 4 + len(names)))
    if len(values) == 3 + len(names):
        values = [values[0], *values]  # one focal length for both axes
    fx, fy, cx, cy = values[:4]
    affine = {"fx": fx, "fy": fy, "cx": cx + 0.5 - center, "cy": cy + 0.5 - center}
    return model.make(
        width, height, dtype=torch.float64, **affine, **dict(zip(names, values[4:], strict=True))
    )
