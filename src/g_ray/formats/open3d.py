"""Read Open3D's PinholeCameraIntrinsic as JSON, alone or in PinholeCameraParameters: a pinhole without distortion.

The matrix is stored column by column; pixel centers lie at integers.
"""

import json
from pathlib import Path
from typing import Any

import torch

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.documents import ParsedFile, parse_numbers, parse_positive_int
from g_ray.formats.opencv_calibration import make_lens_builder, parse_intrinsics
from g_ray.runtime.files import write_atomically

KEYS = {"width", "height", "intrinsic_matrix", "class_name", "version_major", "version_minor"}


class Open3DSource(CalibrationSource):
    """One camera for all photos of its size; an extrinsic names no photo, and is not used."""

    NAME, TITLE, CENTER, PER_PHOTO = "open3d", "Open3D", 0.0, False

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        document = file.document or {}
        kind = document.get("class_name")
        is_named = isinstance(kind, str) and kind.startswith("PinholeCamera")
        return is_named or "intrinsic_matrix" in document

    @classmethod
    def open(cls, file: ParsedFile) -> "Open3DSource":
        document, notes = file.document or {}, []
        try:
            if document.get("class_name") == "PinholeCameraTrajectory":
                raise ValueError(
                    "a trajectory of Open3D does not name photos: save one camera (PinholeCameraIntrinsic), or write "
                    "the poses into a cameras.json"
                )
            if "intrinsic" in document:
                notes = [f"{file.path}: its extrinsic belongs to no photo by name and is not used"]
                document = document["intrinsic"] if isinstance(document["intrinsic"], dict) else {}
            lens = _parse_lens(document, cls.CENTER)
        except ValueError as error:
            raise ValueError(f"{file.path}: {error}") from None
        return cls(file.path, [lens], notes)

    @classmethod
    def example(cls, folder: Path) -> Example:
        matrix = [525.0, 0.0, 0.0, 0.0, 526.0, 0.0, 319.5, 239.5, 1.0]
        document = {"width": 640, "height": 480, "intrinsic_matrix": matrix}
        write_atomically(folder / "camera_intrinsic.json", json.dumps(document))
        camera = Pinhole.make(640, 480, fx=525.0, fy=526.0, cx=320.0, cy=240.0, dtype=torch.float64)
        return Example(folder / "camera_intrinsic.json", "a.png", camera)


def _parse_lens(document: dict[str, Any], center: float) -> Lens:
    unknown = sorted(str(key)[:40] for key in document if key not in KEYS)
    if unknown:
        raise ValueError(f"entry {unknown[0]!r} is not known and may change the lens: remove it")
    columns = parse_numbers(document.get("intrinsic_matrix"), "intrinsic_matrix", (9,))
    rows = [columns[3 * column + row] for row in range(3) for column in range(3)]
    matrix = parse_intrinsics(rows, "intrinsic_matrix")
    width, height = (parse_positive_int(document.get(key), key) for key in ("width", "height"))
    return Lens("", make_lens_builder(matrix, [], False, center), (width, height))
