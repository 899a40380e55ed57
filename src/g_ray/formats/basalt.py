"""Read Basalt's calibration.json: cameras of a rig, by their place cam0, cam1, … Pixel centers lie at integers."""

import json
from pathlib import Path
from typing import Any

import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.double_sphere import DoubleSphere
from g_ray.cameras.eucm import EUCM
from g_ray.cameras.fov import FOV
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.cameras.ucm import UCM
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.documents import ParsedFile, describe, parse_number, parse_numbers, parse_positive_int
from g_ray.runtime.files import write_atomically

MODELS: dict[str, tuple[type[Camera], dict[str, str]]] = {
    "ds": (DoubleSphere, {"xi": "xi", "alpha": "alpha"}),
    "eucm": (EUCM, {"alpha": "alpha", "beta": "beta"}),
    "ucm": (UCM, {"alpha": "alpha"}),
    "kb4": (OpenCVFisheye, {"k1": "k1", "k2": "k2", "k3": "k3", "k4": "k4"}),
    "pinhole": (Pinhole, {}),
    "fov": (FOV, {"w": "omega"}),
    "pinhole-radtan8": (OpenCV, {name: name for name in ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")}),
}
"""Names there, with our model and its parameters by their names there."""
AFFINE = ("fx", "fy", "cx", "cy")


class BasaltSource(CalibrationSource):
    """Cameras are cam0, cam1, … in their order; their places on the rig (T_imu_cam) are not poses in the world."""

    NAME, TITLE, CENTER, PER_PHOTO = "basalt", "Basalt", 0.0, False

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        content = (file.document or {}).get("value0")
        return isinstance(content, dict) and isinstance(content.get("intrinsics"), list)

    @classmethod
    def open(cls, file: ParsedFile) -> "BasaltSource":
        content = (file.document or {})["value0"]
        cameras, sizes = content["intrinsics"], content.get("resolution")
        lenses = []
        for number, entry in enumerate(cameras):
            try:
                if not isinstance(sizes, list) or len(sizes) != len(cameras):
                    raise ValueError("resolution must have a width and a height for each camera")
                width, height = parse_numbers(sizes[number], "resolution", (2,))
                size = parse_positive_int(width, "resolution"), parse_positive_int(height, "resolution")
                lenses.append(Lens.from_camera(f"cam{number}", _build_camera(entry, size, 0.5 - cls.CENTER)))
            except ValueError as error:
                raise ValueError(f"{file.path}: cam{number}: {error}") from None
        return cls(file.path, lenses)

    @classmethod
    def example(cls, folder: Path) -> Example:
        intrinsics = {"fx": 158.0, "fy": 158.5, "cx": 254.5, "cy": 256.5, "xi": -0.17, "alpha": 0.59}
        content = {
            "intrinsics": [{"camera_type": "ds", "intrinsics": intrinsics}],
            "resolution": [[512, 512]],
        }
        write_atomically(folder / "calibration.json", json.dumps({"value0": content}, indent=1))
        values = {**intrinsics, "cx": 255.0, "cy": 257.0}
        return Example(
            folder / "calibration.json",
            "cam0/a.png",
            DoubleSphere.make(512, 512, **values, dtype=torch.float64),
        )


def _build_camera(entry: Any, size: tuple[int, int], shift: float) -> Camera:
    kind = entry.get("camera_type") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(kind, str) or kind not in MODELS:
        raise ValueError(f"camera_type {describe(kind)} is not known; it can be {', '.join(MODELS)}")
    model, names = MODELS[kind]
    given = entry.get("intrinsics")
    if not isinstance(given, dict):
        raise ValueError(f"intrinsics is {describe(given)}, not an object with parameters")
    # rpmax is the radius up to which the series was fitted, which is beyond the image.
    unknown = [name for name in given if name not in (*AFFINE, *names, "rpmax")]
    if unknown:
        raise ValueError(f"{kind} has no parameter {describe(unknown[0])}")
    values = {ours: parse_number(given.get(theirs), theirs) for theirs, ours in names.items()}
    affine = {name: parse_number(given.get(name), name) for name in AFFINE}
    affine |= {"cx": affine["cx"] + shift, "cy": affine["cy"] + shift}
    return model.make(*size, dtype=torch.float64, **affine, **values)
