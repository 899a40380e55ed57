"""Read CamOdoCal's camera files, which VINS-Mono, VINS-Fusion and KITTI-360 (image_02.yaml) use too.

`model_type` is PINHOLE, PINHOLE_FULL, KANNALA_BRANDT, MEI or scaramuzza. Pixel centers lie at integers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.ucm import UCM
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.documents import ParsedFile, describe, parse_number, parse_positive_int
from g_ray.formats.mei import make_mei_builder
from g_ray.formats.ocamcalib import make_ocam_builder
from g_ray.formats.opencv_calibration import make_lens_builder
from g_ray.runtime.files import write_atomically

GROUPS = (
    *("mirror_parameters", "distortion_parameters", "projection_parameters"),
    *("poly_parameters", "affine_parameters"),
)
NAMES: dict[str, tuple[str, ...]] = {
    "PINHOLE": ("k1", "k2", "p1", "p2", "fx", "fy", "cx", "cy"),
    "PINHOLE_FULL": ("k1", "k2", "k3", "k4", "k5", "k6", "p1", "p2", "fx", "fy", "cx", "cy"),
    "KANNALA_BRANDT": ("k2", "k3", "k4", "k5", "mu", "mv", "u0", "v0"),
    "MEI": ("xi", "k1", "k2", "p1", "p2", "gamma1", "gamma2", "u0", "v0"),
    "SCARAMUZZA": ("p0", "p1", "p2", "p3", "p4", "ac", "ad", "ae", "cx", "cy"),
}
"""Parameters of all groups, by model."""


class CamOdoCalSource(CalibrationSource):
    """One camera; its name is a folder of photos, or serves all of its size."""

    NAME, TITLE, CENTER, PER_PHOTO = "camodocal", "CamOdoCal", 0.0, False

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        keys = set(file.document or {})
        return "model_type" in keys and bool({"projection_parameters", "affine_parameters"} & keys)

    @classmethod
    def open(cls, file: ParsedFile) -> "CamOdoCalSource":
        document = file.document or {}
        try:
            values = _parse_values(document)
            size = tuple(
                parse_positive_int(document.get(key), key) for key in ("image_width", "image_height")
            )
            build = _make_builder(document["model_type"].upper(), values, 0.5 - cls.CENTER)
        except ValueError as error:
            raise ValueError(f"{file.path}: {error}") from None
        name = document.get("camera_name")
        return cls(file.path, [Lens(name[:200] if isinstance(name, str) else "", build, (size[0], size[1]))])

    @classmethod
    def example(cls, folder: Path) -> Example:
        text = """%YAML:1.0
---
model_type: MEI
camera_name: image_02
image_width: 640
image_height: 480
mirror_parameters:
   xi: 1.0
distortion_parameters:
   k1: 0.0
   k2: 0.0
   p1: 0.0
   p2: 0.0
projection_parameters:
   gamma1: 600.0
   gamma2: 602.0
   u0: 319.5
   v0: 239.5
"""
        write_atomically(folder / "image_02.yaml", text)
        camera = UCM.make(640, 480, fx=300.0, fy=301.0, cx=320.0, cy=240.0, alpha=0.5, dtype=torch.float64)
        return Example(folder / "image_02.yaml", "image_02/0001.png", camera)


def _parse_values(document: dict[str, Any]) -> dict[str, float]:
    """Return all parameters by name; every name of the model must be there, and no other."""
    model = document["model_type"]
    if not isinstance(model, str) or model.upper() not in NAMES:
        raise ValueError(f"model_type {describe(model)} is not read; it can be {', '.join(NAMES)}")
    model = model.upper()
    found: dict[str, Any] = {}
    for group in GROUPS:
        part = document.get(group, {})
        if not isinstance(part, dict):
            raise ValueError(f"{group} is {describe(part)}, not an object with parameters")
        found |= part
    missing = [name for name in NAMES[model] if name not in found]
    unknown = [name for name in found if name not in NAMES[model]]
    if missing or unknown:
        what = f"lacks {missing[0]}" if missing else f"has no {describe(unknown[0])}"
        raise ValueError(f"{model} {what}; its parameters are {' '.join(NAMES[model])}")
    return {name: parse_number(found[name], name) for name in NAMES[model]}


def _make_builder(model: str, values: dict[str, float], shift: float) -> Callable[[int, int], Camera]:
    if model in ("PINHOLE", "PINHOLE_FULL"):
        matrix = {name: values[name] for name in ("fx", "fy", "cx", "cy")}
        series = [values.get(name, 0.0) for name in ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")]
        return make_lens_builder(
            matrix, series if model == "PINHOLE_FULL" else series[:4], False, 0.5 - shift
        )
    if model == "MEI":
        affine = {"fx": values["gamma1"], "fy": values["gamma2"]}
        affine |= {"cx": values["u0"] + shift, "cy": values["v0"] + shift}
        return make_mei_builder(affine, values["xi"], [values[name] for name in ("k1", "k2", "p1", "p2")])
    if model == "SCARAMUZZA":
        # As OCamCalib's, but for columns first: ac belongs to the width.
        affine = ((values["ac"], values["ad"]), (values["ae"], 1.0))
        center = (values["cx"] + shift, values["cy"] + shift)
        return make_ocam_builder([values[f"p{i}"] for i in range(5)], affine, center)
    affine = {"fx": values["mu"], "fy": values["mv"], "cx": values["u0"] + shift, "cy": values["v0"] + shift}
    # Its coefficients are counted from the second power of the radius: k2 is the k1 of others.
    series = {f"k{number}": values[f"k{number + 1}"] for number in range(1, 5)}
    return lambda width, height: OpenCVFisheye.make(width, height, dtype=torch.float64, **affine, **series)
