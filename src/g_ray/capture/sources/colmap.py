"""A COLMAP model, binary or text: a camera and a pose for each of its images."""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from g_ray.cameras.base import Camera
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.capture.sources.base import CalibrationSource, Example, Lens
from g_ray.data.scenes.colmap import convert_pose, find_model
from g_ray.data.scenes.colmap_cameras import camera_from_colmap
from g_ray.data.scenes.colmap_format import RawCamera, is_model, read_model
from g_ray.files import write_atomically
from g_ray.formats.documents import ParsedFile
from g_ray.formats.scene import resolve_inside


class ColmapSource(CalibrationSource):
    """A folder with cameras and images (.bin or .txt), or one with a model in sparse/0, or one of the model's files."""

    NAME, TITLE, CENTER, PER_PHOTO = "colmap", "COLMAP", 0.5, True

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
    """One per image; images of one camera share it, and a camera that cannot be used harms nobody else."""
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
