"""Read EuRoC's sensor.yaml (the ASL format): one camera per file, with Kalibr's models under other names.

Pixel centers lie at integers.
"""

from pathlib import Path

import torch

from g_ray.cameras.opencv import OpenCV
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.documents import ParsedFile, names_lens, parse_numbers, parse_positive_int
from g_ray.formats.kalibr import parse_lens
from g_ray.runtime.files import write_atomically

DISTORTIONS = {"radial-tangential": "radtan"}
"""Names of distortion that differ from Kalibr's."""
LENS_KEYS = ("camera_model", "distortion_model", "distortion_coefficients")


class EurocSource(CalibrationSource):
    """The camera has the name of its folder, mav0/cam0; its place on the body (T_BS) is not a pose in the world."""

    NAME, TITLE, CENTER, PER_PHOTO = "euroc", "EuRoC", 0.0, False

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        document = file.document or {}
        return document.get("sensor_type") == "camera" and "intrinsics" in document

    @classmethod
    def open(cls, file: ParsedFile) -> "EurocSource":
        document = file.document or {}
        try:
            unknown = [key for key in document if names_lens(str(key)) and key not in LENS_KEYS]
            if unknown:
                raise ValueError(
                    f"entry {str(unknown[0])[:40]!r} may change the lens and is not read: remove it"
                )
            distortion = document.get("distortion_model")
            if isinstance(distortion, str):
                distortion = DISTORTIONS.get(distortion, distortion)
            settings = {
                "camera_model": document.get("camera_model"),
                "intrinsics": document["intrinsics"],
                "distortion_model": distortion,
                "distortion_coeffs": document.get("distortion_coefficients"),
            }
            size = parse_numbers(document.get("resolution"), "resolution", (2,))
            width, height = (parse_positive_int(side, "resolution") for side in size)
            lens = Lens(file.path.absolute().parent.name, parse_lens(settings, cls.CENTER), (width, height))
        except ValueError as error:
            raise ValueError(f"{file.path}: {error}") from None
        return cls(file.path, [lens])

    @classmethod
    def example(cls, folder: Path) -> Example:
        text = """sensor_type: camera
comment: VI-Sensor cam0 (MT9M034)
T_BS:
  cols: 4
  rows: 4
  data: [0.0, -1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]
rate_hz: 20
resolution: [752, 480]
camera_model: pinhole
intrinsics: [458.654, 457.296, 367.215, 248.375]
distortion_model: radial-tangential
distortion_coefficients: [-0.28, 0.07, 0.0002, 0.00002]
"""
        write_atomically(folder / "cam0" / "sensor.yaml", text)
        affine = {"fx": 458.654, "fy": 457.296, "cx": 367.715, "cy": 248.875}
        series = {"k1": -0.28, "k2": 0.07, "p1": 0.0002, "p2": 0.00002}
        camera = OpenCV.make(752, 480, **affine, **series, dtype=torch.float64)
        return Example(folder / "cam0" / "sensor.yaml", "cam0/data/0001.png", camera)
