"""Read ray maps: a .npy [height, width, 3] of viewing directions per photo, or one for all photos of its size.

Rays belong to pixel centers and have the camera's frame with OpenCV axes; their lengths do not matter, and zeros or NaN
mean that no ray is known. Directions are camera-local: what moves with the pose is not in them.
"""

from pathlib import Path

import numpy as np
import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.formats.calibration_source import CalibrationSource, Example, Lens
from g_ray.formats.documents import ParsedFile, load_array
from g_ray.media.photos import Photo
from g_ray.runtime.files import atomic_path


class RayMapSource(CalibrationSource):
    """A folder whose .npy files are named as the photos, or one file."""

    NAME, TITLE, CENTER, PER_PHOTO = "ray_maps", "ray maps", 0.5, True

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        return bool(_find_files(file.path))

    @classmethod
    def open(cls, file: ParsedFile) -> "RayMapSource":
        lenses = []
        for path in _find_files(file.path):
            label = path.relative_to(file.path).with_suffix("") if file.path.is_dir() else Path(path.stem)
            rows, columns = _read_size(path)
            lenses.append(Lens(label.as_posix(), _RayMapLoader(path), (columns, rows)))
        return cls(file.path, lenses)

    def _find_lens(self, photo: Photo) -> Lens | None:
        return self.lenses[0] if self.path.is_file() else self._find_by_image(photo)

    @classmethod
    def example(cls, folder: Path) -> Example:
        lens = OpenCVFisheye.make(64, 48, fx=30.0, fy=30.0, cx=32.0, cy=24.0, k1=0.01, dtype=torch.float64)
        rays = lens.unproject_grid()[0].float()
        with atomic_path(folder / "rays" / "a.npy") as scratch:
            np.save(scratch, rays.numpy())
        return Example(folder / "rays", "a.jpg", RayMapCamera.from_rays(rays))


class _RayMapLoader:
    """Reads the rays when a photo needs them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, width: int, height: int) -> Camera:
        return RayMapCamera.from_rays(torch.from_numpy(_load_array(self.path).astype(np.float32)))


def _find_files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.rglob("*.npy"))
    return [path] if path.suffix.lower() == ".npy" and path.is_file() else []


def _read_size(path: Path) -> tuple[int, int]:
    array = _load_array(path, in_memory=False)
    if array.ndim != 3 or array.shape[-1] != 3 or array.dtype.kind != "f" or min(array.shape) < 2:
        raise ValueError(
            f"{path}: {array.dtype} {list(array.shape)} is no ray map; give floats [height, width, 3]"
        )
    return array.shape[0], array.shape[1]


def _load_array(path: Path, in_memory: bool = True) -> np.ndarray:
    try:
        return load_array(path, in_memory=in_memory)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
