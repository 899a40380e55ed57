"""Read COLMAP's cameras.txt or cameras.bin alone, without images: cameras of devices, by their numbers."""

from pathlib import Path

import torch

from g_ray.cameras.division import Division
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.colmap.colmap_cameras import camera_from_colmap
from g_ray.formats.colmap.colmap_model import RawCamera, is_model, read_raw_cameras
from g_ray.formats.documents import ParsedFile
from g_ray.runtime.files import write_atomically

FILES = ("cameras.bin", "cameras.txt")


class ColmapDevicesSource(CalibrationSource):
    """A camera serves photos of its size, or those in a folder of its number."""

    NAME, TITLE, CENTER, PER_PHOTO = "colmap_devices", "COLMAP cameras", 0.5, False
    IGNORES_EXIF = True

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        return _find_file(file.path) is not None

    @classmethod
    def open(cls, file: ParsedFile) -> "ColmapDevicesSource":
        path = _find_file(file.path)
        assert path is not None
        lenses = []
        for number, raw in read_raw_cameras(path).items():
            lenses.append(Lens(str(number), _make_builder(raw), (raw.width, raw.height)))
        return cls(file.path, lenses)

    @classmethod
    def example(cls, folder: Path) -> Example:
        write_atomically(
            folder / "cameras.txt", "# CAMERA_ID MODEL …\n7 SIMPLE_DIVISION 640 480 500 321 239 -0.05\n"
        )
        affine = {"fx": 500.0, "fy": 500.0, "cx": 321.0, "cy": 239.0}
        camera = Division.make(640, 480, **affine, k=-0.05, dtype=torch.float64)
        return Example(folder, "a.png", camera)


def _make_builder(raw: RawCamera):
    return lambda width, height: camera_from_colmap(raw.model, width, height, raw.parameters)


def _find_file(path: Path) -> Path | None:
    """Return the file of cameras at a path, unless there are images beside it: then it is a whole model."""
    folder = path if path.is_dir() else path.parent
    if is_model(folder):
        return None
    if path.is_dir():
        return next((path / name for name in FILES if (path / name).is_file()), None)
    return path if path.name in FILES and path.is_file() else None
