"""Sources of calibration, one file each. A new one is a new line in SOURCES; the conformance tests then include it."""

import os
from pathlib import Path

from g_ray.capture.sources.base import CalibrationSource, Example, Lens
from g_ray.capture.sources.cameras_json import CamerasJsonSource
from g_ray.capture.sources.colmap import ColmapSource
from g_ray.capture.sources.nerfstudio import NerfstudioSource
from g_ray.capture.sources.seven_scenes import SevenScenesSource
from g_ray.formats.aria import AriaSource
from g_ray.formats.documents import ParsedFile
from g_ray.formats.eth3d import ETH3DSource
from g_ray.formats.exif_focal import ExifSource
from g_ray.formats.kalibr import KalibrSource
from g_ray.formats.opencv import OpenCVSource
from g_ray.formats.ray_maps import RayMapSource
from g_ray.formats.ros import ROSSource
from g_ray.formats.scannetpp import ScanNetPPSource

# The first that recognises a path has it: formats that contain another one come before it.
SOURCES: dict[str, type[CalibrationSource]] = {
    "exif": ExifSource,
    "scannetpp": ScanNetPPSource,
    "eth3d": ETH3DSource,
    "nerfstudio": NerfstudioSource,
    "colmap": ColmapSource,
    "seven_scenes": SevenScenesSource,
    "cameras_json": CamerasJsonSource,
    "aria": AriaSource,
    "kalibr": KalibrSource,
    "ros": ROSSource,
    "opencv": OpenCVSource,
    "ray_maps": RayMapSource,
}

__all__ = ["SOURCES", "CalibrationSource", "Example", "Lens", "open_source"]


def open_source(path: str | os.PathLike[str]) -> CalibrationSource:
    """Whatever lies at the path, told by its content, or "exif"; ValueError if no format fits."""
    file = ParsedFile(Path(path))
    if not file.path.exists() and not ExifSource.recognizes(file):
        raise ValueError(f"{path}: no such calibration; give a file, a folder, exif or estimate")
    for source in SOURCES.values():
        if source.recognizes(file):
            return source.open(file)
    known = ", ".join(source.TITLE for source in SOURCES.values())
    raise ValueError(f"{path}: no calibration format that is known ({known})")
