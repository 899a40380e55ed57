"""COLMAP: folders of photographs with a model as scenes and as calibrations, and models of our own views.

FOLDER/images/…                    photographs, by the names that the model gives them
FOLDER/sparse/0/{cameras,images}   .bin or .txt; also sparse/, colmap/sparse/0/ or the folder itself
FOLDER/depth/…                     depth maps with the images' names: exr, npy, npz in the model's unit, png in its
                                   thousandths; also depths/
FOLDER/stereo/depth_maps/…         COLMAP's own dense maps (.geometric.bin, or else .photometric.bin)

Depth is z-depth. The files of a model are in `colmap_model`, camera models in `colmap_cameras`.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.division import Division
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.colmap.colmap_cameras import camera_from_colmap, camera_to_colmap
from g_ray.formats.colmap.colmap_model import (
    ColmapModel,
    RawCamera,
    RawImage,
    is_model,
    read_model,
    read_raw_cameras,
)
from g_ray.formats.documents import MAX_NUMBER, ParsedFile
from g_ray.formats.posed_scene import PosedScene, check_images, find_covisibility_file, resolve_inside
from g_ray.geometry.pose import Pose, quaternion_from_rotation
from g_ray.media.depth import DepthFile
from g_ray.media.view import View
from g_ray.runtime.files import write_atomically

DEPTH_PLACES = ("depth", "depths")
DEPTH_UNITS = {".exr": 1.0, ".npy": 1.0, ".npz": 1.0, ".png": 1e-3}
PLACES = ("sparse/0", "sparse", "colmap/sparse/0", "colmap/sparse", ".")


def is_colmap(folder: Path) -> bool:
    """Return whether a folder has a COLMAP model in one of the usual places."""
    return find_model(folder) is not None


def find_model(folder: Path) -> Path | None:
    """Return where a folder keeps its COLMAP model, or None."""
    return next((folder / place for place in PLACES if is_model(folder / place)), None)


def read_colmap(folder: Path, check: bool = True) -> PosedScene:
    """Read the photographs of a COLMAP model with cameras and poses; ValueError in one line if anything is wrong.

    Without `check` photographs are not opened.
    """
    place = find_model(folder)
    if place is None:
        raise ValueError(f"{folder} holds no COLMAP model (looked in {', '.join(PLACES)})")
    model = read_model(place)
    if not model.images:
        raise ValueError(f"{place}: the model has no images")
    pictures = folder / "images" if (folder / "images").is_dir() else folder
    ordered = sorted(model.images, key=lambda image: image.name)
    names = tuple(image.name for image in ordered)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{place}: image {twice!r} is there twice; export the model again")
    paths = tuple(resolve_inside(pictures, name) for name in names)
    cameras = tuple(_convert_cameras(place, model, ordered))
    if check:
        check_images(names, paths, cameras)
    views = [
        View(
            image.name,
            camera,
            convert_pose(place, image),
            "COLMAP",
            path,
            depth=_find_depth(folder, image.name),
        )
        for image, camera, path in zip(ordered, cameras, paths, strict=True)
    ]
    notes = _collect_notes(folder, place)
    return PosedScene(folder, "COLMAP", tuple(views), notes, find_covisibility_file(folder))


def convert_pose(place: Path, image: RawImage) -> Pose:
    """Convert the pose of an image to `world_from_cam`."""
    norm = math.sqrt(sum(part * part for part in image.quaternion))
    numbers = (*image.quaternion, *image.translation)
    if not all(abs(number) <= MAX_NUMBER for number in numbers) or norm < 1e-6:
        raise ValueError(f"{place}: the pose of {image.name} is not one; export the model again")
    w, x, y, z = (part / norm for part in image.quaternion)
    rotation = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    parts = (torch.tensor(part, dtype=torch.float64) for part in (rotation, image.translation))
    return Pose.from_parts(*parts).inverse()


def make_raw_camera(camera: Camera) -> RawCamera:
    """Convert a camera for writing; ValueError, with the reason, if COLMAP has none that is exactly the same."""
    model, parameters = camera_to_colmap(camera)
    return RawCamera(model, camera.width, camera.height, parameters)


def make_raw_image(
    name: str, camera: int, world_from_cam: Pose, pixels: np.ndarray, point_ids: np.ndarray
) -> RawImage:
    """Convert a view for writing: its camera's number, pose, and the points that it observes at some pixels."""
    cam_from_world = world_from_cam.to(torch.float64).inverse()
    x, y, z, w = quaternion_from_rotation(cam_from_world.rotation).tolist()
    return RawImage(name, camera, (w, x, y, z), tuple(cam_from_world.translation.tolist()), pixels, point_ids)


def _find_depth(folder: Path, name: str) -> DepthFile | None:
    """Return the depth map of an image: a.jpg may have a.exr or a.jpg.exr."""
    for place in DEPTH_PLACES:
        for stem in (name, str(Path(name).with_suffix(""))):
            for suffix, unit in DEPTH_UNITS.items():
                path = resolve_inside(folder / place, f"{stem}{suffix}")
                if path.is_file():
                    return DepthFile(path, "z", unit)
    dense = [folder / "stereo" / "depth_maps" / f"{name}.{kind}.bin" for kind in ("geometric", "photometric")]
    return next((DepthFile(path) for path in dense if path.is_file()), None)


def _convert_cameras(place: Path, model: ColmapModel, images: list[RawImage]) -> list[Camera]:
    """Convert one camera per image; images of one lens share it."""
    used: dict[int, Camera] = {}
    for image in images:
        if image.camera not in model.cameras:
            raise ValueError(f"{place}: image {image.name} has camera {image.camera}, which is not there")
        raw = model.cameras[image.camera]
        if image.camera not in used:
            try:
                used[image.camera] = camera_from_colmap(raw.model, raw.width, raw.height, raw.parameters)
            except ValueError as error:
                raise ValueError(f"{place}: camera {image.camera}: {error}") from None
    return [used[image.camera] for image in images]


def _collect_notes(folder: Path, place: Path) -> tuple[str, ...]:
    others = [path for path in sorted(place.parent.glob("*")) if path != place and is_model(path)]
    if not others or place == folder:
        return ()
    return (f"{place} is read; {len(others)} other models next to it are not",)


# A model as a calibration


class ColmapSource(CalibrationSource):
    """A folder with cameras and images (.bin or .txt), or one with a model in sparse/0, or one of the model's files."""

    NAME, TITLE, CENTER, PER_PHOTO = "colmap", "COLMAP", 0.5, True
    IGNORES_EXIF = True

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        return _find_model(file.path) is not None

    @classmethod
    def open(cls, file: ParsedFile) -> "ColmapSource":
        place = _find_model(file.path)
        assert place is not None
        return cls(file.path, list(read_lenses(place)))

    @classmethod
    def example(cls, folder: Path) -> Example:
        cameras = "# CAMERA_ID MODEL WIDTH HEIGHT PARAMS\n1 OPENCV_FISHEYE 640 480 300 301 321.5 239 0.01 -0.002 0 0\n"
        write_atomically(folder / "sparse" / "0" / "cameras.txt", cameras)
        write_atomically(folder / "sparse" / "0" / "images.txt", "1 1 0 0 0 0.5 0 1 1 left/a.jpg\n\n")
        affine = {"fx": 300.0, "fy": 301.0, "cx": 321.5, "cy": 239.0}
        lens = OpenCVFisheye.make(640, 480, **affine, k1=0.01, k2=-0.002, dtype=torch.float64)
        return Example(folder, "left/a.jpg", lens)


def read_lenses(place: Path, prefix: str = "") -> Iterator[Lens]:
    """Read one lens per image; cameras are converted when used, so that one that cannot be affects no other image."""
    model = read_model(place)
    builders: dict[int, Callable[[int, int], Camera]] = {}
    for image in model.images:
        resolve_inside(place, image.name)
        if image.camera not in model.cameras:
            raise ValueError(f"{place}: image {image.name} has camera {image.camera}, which is not there")
        raw = model.cameras[image.camera]
        build = builders.setdefault(image.camera, _build_once(raw))
        yield Lens(prefix + image.name, build, (raw.width, raw.height), convert_pose(place, image))


def _build_once(raw: RawCamera) -> Callable[[int, int], Camera]:
    built: list[Camera] = []

    def build(width: int, height: int) -> Camera:
        if not built:
            built.append(camera_from_colmap(raw.model, width, height, raw.parameters))
        return built[0]

    return build


def _find_model(path: Path) -> Path | None:
    if path.is_dir():
        return find_model(path)
    named = path.stem in ("cameras", "images", "points3D") and path.suffix in (".bin", ".txt")
    return path.parent if named and is_model(path.parent) else None


# Cameras without images


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
    """Return the file of cameras at a path, unless there are images next to it: then it is a whole model."""
    folder = path if path.is_dir() else path.parent
    if is_model(folder):
        return None
    if path.is_dir():
        return next((path / name for name in FILES if (path / name).is_file()), None)
    return path if path.name in FILES and path.is_file() else None
