"""Read Kalibr's camchain: cameras of a rig, each a projection model with a distortion model."""

from collections.abc import Callable
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
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.documents import ParsedFile, describe, names_lens, parse_numbers, parse_positive_int
from g_ray.formats.mei import make_mei_builder
from g_ray.runtime.files import write_atomically

INTRINSICS = {
    "pinhole": ("fx", "fy", "cx", "cy"),
    "omni": ("xi", "fx", "fy", "cx", "cy"),
    "ds": ("xi", "alpha", "fx", "fy", "cx", "cy"),
    "eucm": ("alpha", "beta", "fx", "fy", "cx", "cy"),
}
DISTORTIONS = {"none": 0, "radtan": 4, "equidistant": 4, "equi": 4, "fov": 1}
"""Distortion models with their numbers of coefficients."""

KEYS = {
    *("camera_model", "intrinsics", "distortion_model", "distortion_coeffs", "resolution", "rostopic"),
    *("T_cn_cnm1", "T_cam_imu", "T_imu_cam", "timeshift_cam_imu", "cam_overlaps"),
}
"""What Kalibr writes about a camera."""

Build = Callable[[int, int], Camera]


class KalibrSource(CalibrationSource):
    """cam0, cam1, …; their poses relative to each other (T_cn_cnm1) are not poses in the world: give them to --rig."""

    NAME, TITLE, CENTER, PER_PHOTO = "kalibr", "Kalibr", 0.0, False

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        return bool(_select_cameras(file.document))

    @classmethod
    def open(cls, file: ParsedFile) -> "KalibrSource":
        lenses, unused = [], set()
        for label, settings in _select_cameras(file.document).items():
            others = {str(key)[:40] for key in settings} - KEYS
            unused |= others
            try:
                lens_key = next(filter(names_lens, sorted(others)), None)
                if lens_key is not None:
                    raise ValueError(f"{lens_key!r} is no key of Kalibr's and may change the lens: remove it")
                size = [
                    parse_positive_int(value, "resolution")
                    for value in parse_numbers(settings.get("resolution"), "resolution", (2,))
                ]
                lenses.append(Lens(label, parse_lens(settings, cls.CENTER), (size[0], size[1])))
            except ValueError as error:
                raise ValueError(f"{file.path}: {label}: {error}") from None
        notes = [f"{file.path}: not used: {', '.join(sorted(unused)[:8])}"] if unused else []
        return cls(file.path, lenses, notes)

    @classmethod
    def example(cls, folder: Path) -> Example:
        text = """cam0:
  camera_model: pinhole
  intrinsics: [460.0, 458.0, 319.5, 239.5]
  distortion_model: equidistant
  distortion_coeffs: [0.01, -0.002, 0.0005, -0.0001]
  resolution: [640, 480]
  rostopic: /cam0/image_raw
cam1:
  camera_model: ds
  intrinsics: [-0.2, 0.57, 300.0, 301.0, 319.5, 239.5]
  distortion_model: none
  distortion_coeffs: []
  resolution: [640, 480]
  rostopic: /cam1/image_raw
"""
        write_atomically(folder / "camchain.yaml", text)
        affine = {"fx": 300.0, "fy": 301.0, "cx": 320.0, "cy": 240.0}
        camera = DoubleSphere.make(640, 480, **affine, xi=-0.2, alpha=0.57, dtype=torch.float64)
        return Example(folder / "camchain.yaml", "cam1/0001.png", camera)


def _select_cameras(document: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    return {
        key: value
        for key, value in (document or {}).items()
        if isinstance(value, dict) and {"camera_model", "intrinsics"} <= set(value)
    }


def parse_lens(settings: dict[str, Any], center: float) -> Build:
    """Return a function that makes the camera of one entry for a width and a height."""
    model, distortion = settings["camera_model"], settings.get("distortion_model") or "none"
    if not isinstance(model, str) or model not in INTRINSICS:
        raise ValueError(f"camera_model {describe(model)} is not known; it can be {', '.join(INTRINSICS)}")
    if not isinstance(distortion, str) or distortion not in DISTORTIONS:
        raise ValueError(
            f"distortion_model {describe(distortion)} is not known; it can be {', '.join(DISTORTIONS)}"
        )
    names = INTRINSICS[model]
    values = dict(zip(names, parse_numbers(settings["intrinsics"], "intrinsics", (len(names),)), strict=True))
    values |= {"cx": values["cx"] + 0.5 - center, "cy": values["cy"] + 0.5 - center}
    k = parse_numbers(
        settings.get("distortion_coeffs") or [], "distortion_coeffs", (DISTORTIONS[distortion],)
    )
    if model == "pinhole":
        return _make_pinhole_builder(values, distortion, k)
    if model == "omni":
        return _make_omni_builder(values, distortion, k)
    if any(k):
        raise ValueError(
            f"{model} with {distortion} distortion is no model of Kalibr's; it has {model}-none only"
        )
    return _make_builder(DoubleSphere if model == "ds" else EUCM, **values)


def _make_builder(model: type[Camera], **values: float) -> Build:
    return lambda width, height: model.make(width, height, dtype=torch.float64, **values)


def _make_pinhole_builder(values: dict[str, float], distortion: str, k: list[float]) -> Build:
    if distortion == "none" or not any(k):
        return _make_builder(OpenCVFisheye if distortion in ("equi", "equidistant") else Pinhole, **values)
    if distortion == "radtan":
        return _make_builder(OpenCV, **values, **dict(zip(("k1", "k2", "p1", "p2"), k, strict=True)))
    if distortion == "fov":
        return _make_builder(FOV, **values, omega=k[0])
    return _make_builder(OpenCVFisheye, **values, **dict(zip(("k1", "k2", "k3", "k4"), k, strict=True)))


def _make_omni_builder(values: dict[str, float], distortion: str, k: list[float]) -> Build:
    if any(k) and distortion != "radtan":
        raise ValueError(
            f"omni with {distortion} distortion is no model of Kalibr's; it has omni-none and omni-radtan"
        )
    affine = {name: values[name] for name in ("fx", "fy", "cx", "cy")}
    return make_mei_builder(affine, values["xi"], k if any(k) else ())
