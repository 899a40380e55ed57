"""Outside file formats, one file each: calibrations, scene folders, photographs, depth.

A new calibration format is a file and a line in SOURCES; the conformance tests then include it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from g_ray.formats.aria import AriaSource
from g_ray.formats.calibration import CalibrationSource, Example, Lens
from g_ray.formats.cameras_json import CamerasJsonSource
from g_ray.formats.colmap import ColmapSource, find_model, read_colmap
from g_ray.formats.documents import ParsedFile
from g_ray.formats.eth3d import ETH3DSource
from g_ray.formats.exif_focal import ExifSource
from g_ray.formats.kalibr import KalibrSource
from g_ray.formats.nerfstudio import TRANSFORMS, NerfstudioSource, read_nerfstudio
from g_ray.formats.opencv import OpenCVSource
from g_ray.formats.ray_maps import RayMapSource
from g_ray.formats.ros import ROSSource
from g_ray.formats.scannetpp import ScanNetPPSource
from g_ray.formats.scene import PosedScene
from g_ray.formats.seven_scenes import SevenScenesSource, is_seven_scenes, read_seven_scenes
from g_ray.formats.wai import SCENE_META, read_wai

__all__ = [
    "SOURCES",
    "CalibrationSource",
    "Example",
    "Lens",
    "PosedScene",
    "find_scenes",
    "open_source",
    "read_colmap",
    "read_nerfstudio",
    "read_scene",
    "read_wai",
]

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


# Folders of photographs with known cameras, and depth if there is any, whichever tool has written them.


DEEPEST = 4
"""Folders below the one that is asked for."""


def read_scene(folder: Path, check: bool = True, modality: str | None = None) -> PosedScene:
    """Whatever the folder holds; JSON files come first, since tools keep the COLMAP model that they have used.

    `scene.kind` says what was found and `scene.notes` what was left aside. ValueError in one line for anything that
    cannot be read; without `check` photographs are not looked at before they are needed. `modality`: see `read_wai`.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; give one with transforms.json or a COLMAP model")
    if (folder / SCENE_META).is_file():
        return read_wai(folder, check, modality)
    if (folder / TRANSFORMS).is_file():
        return read_nerfstudio(folder, check)
    if find_model(folder) is not None:
        return read_colmap(folder, check)
    if is_seven_scenes(folder):
        return read_seven_scenes(folder, check)
    raise ValueError(
        f"{folder} is no scene folder: it has neither {TRANSFORMS}, {SCENE_META} nor a COLMAP model in sparse/0 or "
        "sparse, nor frames as 7-Scenes stores them"
    )


def is_scene(folder: Path) -> bool:
    named = any((folder / name).is_file() for name in (SCENE_META, TRANSFORMS))
    return named or find_model(folder) is not None or is_seven_scenes(folder)


def find_scenes(root: Path) -> list[Path]:
    """The folder itself, or the scene folders below it, by name; ValueError if there are none."""
    root = Path(root)
    if not root.is_dir():
        raise ValueError(f"{root}: no such folder")
    scenes = list(_find_below(root, DEEPEST))
    if not scenes:
        raise ValueError(
            f"{root}: no scene folder in it, of any kind that is read ({TRANSFORMS}, {SCENE_META}, …)"
        )
    return scenes


def _find_below(folder: Path, depth: int) -> Iterator[Path]:
    if is_scene(folder):
        yield folder
    elif depth:
        for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
            yield from _find_below(inner, depth - 1)
