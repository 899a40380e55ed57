"""Outside file formats, one file each: calibrations, scene folders, photographs, videos, depth, meshes, points.

A new calibration format is a file and a line in CALIBRATIONS, a new scene format a file and a line in SCENES; the
conformance tests then include it.
"""

import os
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from g_ray.formats.aria import AriaSource
from g_ray.formats.basalt import BasaltSource
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.cameras_json import CamerasJsonSource
from g_ray.formats.camodocal import CamOdoCalSource
from g_ray.formats.colmap.colmap_scene import ColmapDevicesSource, ColmapSource, is_colmap, read_colmap
from g_ray.formats.documents import ParsedFile
from g_ray.formats.eth3d_calibration import ETH3DSource
from g_ray.formats.euroc import EurocSource
from g_ray.formats.exif import ExifSource
from g_ray.formats.kalibr import KalibrSource
from g_ray.formats.matrixcity import is_matrixcity, read_matrixcity
from g_ray.formats.metashape import MetashapeSource
from g_ray.formats.nerfstudio import TRANSFORMS, NerfstudioSource, is_nerfstudio, read_nerfstudio
from g_ray.formats.ocamcalib import OCamCalibSource
from g_ray.formats.omniobject3d import is_omniobject3d, read_omniobject3d
from g_ray.formats.open3d import Open3DSource
from g_ray.formats.opencv_calibration import OpenCVSource
from g_ray.formats.orb_slam import OrbSlamSource
from g_ray.formats.posed_scene import PosedScene, SceneFormat
from g_ray.formats.ray_map_files import RayMapSource
from g_ray.formats.ros import ROSSource
from g_ray.formats.scannetpp_calibration import ScanNetPPSource
from g_ray.formats.seven_scenes import SevenScenesSource, is_seven_scenes, read_seven_scenes
from g_ray.formats.wai import SCENE_META, is_wai, read_wai
from g_ray.media.view import View

__all__ = [
    "CALIBRATIONS",
    "SCENES",
    "CalibrationSource",
    "Example",
    "Lens",
    "PosedScene",
    "SceneFormat",
    "View",
    "find_scenes",
    "open_calibration",
    "read_colmap",
    "read_nerfstudio",
    "read_scene",
    "read_wai",
]

# The first format that recognizes a path reads it: formats that contain another one come before it.
CALIBRATIONS: dict[str, type[CalibrationSource]] = {
    "exif": ExifSource,
    "ocamcalib": OCamCalibSource,
    "scannetpp": ScanNetPPSource,
    "eth3d": ETH3DSource,
    "nerfstudio": NerfstudioSource,
    "colmap": ColmapSource,
    "colmap_devices": ColmapDevicesSource,
    "seven_scenes": SevenScenesSource,
    "cameras_json": CamerasJsonSource,
    "aria": AriaSource,
    "kalibr": KalibrSource,
    "euroc": EurocSource,
    "basalt": BasaltSource,
    "camodocal": CamOdoCalSource,
    "orb_slam": OrbSlamSource,
    "open3d": Open3DSource,
    "metashape": MetashapeSource,
    "ros": ROSSource,
    "opencv": OpenCVSource,
    "ray_maps": RayMapSource,
}

# Layouts that contain a transforms.json of their own come before nerfstudio, and JSON files before COLMAP, since tools
# keep the COLMAP model that they have used.
SCENES: dict[str, SceneFormat] = {
    "wai": SceneFormat("WAI", SCENE_META, is_wai, read_wai, modalities=True),
    "omniobject3d": SceneFormat("OmniObject3D", "depths/r_*_depth.exr", is_omniobject3d, read_omniobject3d),
    "matrixcity": SceneFormat("MatrixCity", "frames with rot_mat", is_matrixcity, read_matrixcity),
    "nerfstudio": SceneFormat("nerfstudio", TRANSFORMS, is_nerfstudio, read_nerfstudio),
    "colmap": SceneFormat("COLMAP", "a COLMAP model in sparse/0 or sparse", is_colmap, read_colmap),
    "seven_scenes": SceneFormat("7-Scenes", "frames of 7-Scenes", is_seven_scenes, read_seven_scenes),
}

SCENES_GROUP = "g_ray.scenes"
"""Entry points that add scene formats: each names a dict as SCENES is one."""

MAX_DEPTH = 4
"""Levels of folders that are searched for scenes below a given one."""


def open_calibration(path: str | os.PathLike[str]) -> CalibrationSource:
    """Open the calibration at a path, recognized by its content, or "exif"; ValueError if no format fits."""
    file = ParsedFile(Path(path))
    if not file.path.exists() and not ExifSource.recognizes(file):
        raise ValueError(
            f"{path}: no such calibration; give a file, a folder, exif, panorama, fisheye:FOV or estimate"
        )
    for source in CALIBRATIONS.values():
        if source.recognizes(file):
            return source.open(file)
    if file.path.suffix.lower() == ".vrs":
        raise ValueError(
            f"{path}: a recording of Project Aria; save the calib_json tag, which `vrs {file.path.name}` prints, as a "
            ".json file, and take the images from `vrs extract-images`"
        )
    if file.document:
        entries = ", ".join(str(key)[:40] for key in list(file.document)[:3])
        raise ValueError(
            f"{path}: no calibration format that is known; its entries are {entries}, …: write camera_matrix, "
            "distortion_coefficients, image_width and image_height as OpenCV does, or export another format"
        )
    known = ", ".join(source.TITLE for source in CALIBRATIONS.values())
    raise ValueError(f"{path}: no calibration format that is known ({known})")


def read_scene(folder: Path | str, check: bool = True, modality: str | None = None) -> PosedScene:
    """Read photographs with known cameras, and depth if there is any, from a folder in any format of SCENES.

    `scene.kind` is the format, and `scene.notes` lists what is not used. Without `check` photographs are not opened
    before they are needed. `modality` names the depth to take in formats that can have several (see `read_wai`).
    ValueError in one line for anything that cannot be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; give one with {TRANSFORMS} or a COLMAP model")
    scene_format = _find_format(folder)
    if scene_format is None:
        raise ValueError(f"{folder} is no scene folder: it has none of {_format_markers()}")
    return scene_format.read(folder, check, *([modality] if scene_format.modalities else []))


def find_scenes(root: Path) -> list[Path]:
    """Find the scene folders at or below a folder, by name; ValueError if there are none."""
    root = Path(root)
    if not root.is_dir():
        raise ValueError(f"{root}: no such folder")
    scenes = list(_find_below(root, MAX_DEPTH))
    if not scenes:
        raise ValueError(f"{root}: no scene folder in it, with any of {_format_markers()}")
    return scenes


def _find_format(folder: Path) -> SceneFormat | None:
    own = next((one for one in SCENES.values() if one.recognizes(folder)), None)
    return own or next((one for one in _load_added_formats() if one.recognizes(folder)), None)


@cache
def _load_added_formats() -> list[SceneFormat]:
    """Import the scene formats that other distributions add; they are tried after those of SCENES."""
    return [one for point in entry_points(group=SCENES_GROUP) for one in point.load().values()]


def _find_below(folder: Path, depth: int) -> Iterator[Path]:
    if _find_format(folder) is not None:
        yield folder
    elif depth:
        for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
            yield from _find_below(inner, depth - 1)


def _format_markers() -> str:
    return ", ".join(one.marker for one in (*SCENES.values(), *_load_added_formats()))
