"""COLMAP's sparse model on disk, binary or text: cameras, images, points3D.

Written from the format's definition: little-endian binary, or text with comments; quaternions w x y z and translations
are `cam_from_world`; pixels count from the top-left corner. Files of rigs and frames say nothing that images do not.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from g_ray.data.scenes.colmap_cameras import MODELS, NUMBERS

Part = TypeVar("Part")

NO_POINT = -1
"""In `point_ids`: the pixel belongs to no 3D point."""


@dataclass(frozen=True)
class RawCamera:
    model: str
    width: int
    height: int
    parameters: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class RawImage:
    name: str
    camera: int
    quaternion: tuple[float, ...]
    translation: tuple[float, ...]
    pixels: np.ndarray
    """[n, 2]: where features were found."""
    point_ids: np.ndarray
    """[n]: the 3D point of each feature, or NO_POINT."""


@dataclass(frozen=True)
class RawPoint:
    position: tuple[float, ...]
    color: tuple[int, ...]
    error: float
    """Mean reprojection error in pixels."""


@dataclass(frozen=True, eq=False)
class ColmapModel:
    """A whole model; `points` is None where they were not asked for."""

    cameras: dict[int, RawCamera]
    images: list[RawImage]
    points: dict[int, RawPoint] | None = None


def is_model(folder: Path) -> bool:
    return _find_suffix(folder) is not None


def read_model(folder: Path, points: bool = False) -> ColmapModel:
    """Binary files are taken where both kinds are there. ValueError that names the file if anything is wrong."""
    suffix = _find_suffix(folder)
    if suffix is None:
        raise ValueError(f"{folder} is no COLMAP model: it needs cameras and images, both as .bin or as .txt")
    cameras, images, positions = _BINARY if suffix == ".bin" else _TEXT
    return ColmapModel(
        _read(folder / f"cameras{suffix}", cameras),
        _read(folder / f"images{suffix}", images),
        _read(folder / f"points3D{suffix}", positions) if points else None,
    )


def _find_suffix(folder: Path) -> str | None:
    for suffix in (".bin", ".txt"):
        if all((folder / f"{name}{suffix}").is_file() for name in ("cameras", "images")):
            return suffix
    return None


def _read(path: Path, reader: Callable[[Path], Part]) -> Part:
    try:
        return reader(path)
    except (ValueError, OverflowError, struct.error) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}; export the model again") from None


# Binary


class _ByteReader:
    """Reads a file from front to back; a short one is a ValueError."""

    def __init__(self, path: Path) -> None:
        self.data, self.place = path.read_bytes(), 0

    def read_struct(self, layout: str) -> tuple:
        layout = "<" + layout
        values = struct.unpack_from(layout, self.data, self._advance(struct.calcsize(layout)))
        return values

    def read_count(self) -> int:
        return self.read_struct("Q")[0]

    def read_array(self, dtype: np.dtype, count: int) -> np.ndarray:
        return np.frombuffer(self.data, dtype, count, self._advance(dtype.itemsize * count))

    def read_text(self) -> str:
        end = self.data.find(b"\0", self.place)
        if end < 0:
            raise ValueError("the file ends inside a name")
        return self.data[self._advance(end + 1 - self.place) : end].decode("utf-8")

    def check_end(self) -> None:
        if self.place != len(self.data):
            raise ValueError(f"{len(self.data) - self.place} bytes are left over")

    def _advance(self, size: int) -> int:
        start = self.place
        if start + size > len(self.data):
            raise ValueError("the file ends too early")
        self.place += size
        return start


FEATURE = np.dtype([("pixel", "<f8", 2), ("point", "<i8")])  # no point is 2⁶⁴ − 1, which is −1


def _read_binary_cameras(path: Path) -> dict[int, RawCamera]:
    file, cameras = _ByteReader(path), {}
    for _ in range(file.read_count()):
        number, model, width, height = file.read_struct("IiQQ")
        if model not in NUMBERS:
            raise ValueError(f"camera {number} has the unknown model number {model}")
        size = len(MODELS[NUMBERS[model]].parameters.split())
        cameras[number] = RawCamera(NUMBERS[model], width, height, file.read_struct(f"{size}d"))
    file.check_end()
    return cameras


def _read_binary_images(path: Path) -> list[RawImage]:
    file, images = _ByteReader(path), []
    for _ in range(file.read_count()):
        values = file.read_struct("I7dI")
        name = file.read_text()
        features = file.read_array(FEATURE, file.read_count())
        images.append(
            RawImage(name, values[8], values[1:5], values[5:8], features["pixel"], features["point"])
        )
    file.check_end()
    return images


def _read_binary_points(path: Path) -> dict[int, RawPoint]:
    file, points = _ByteReader(path), {}
    for _ in range(file.read_count()):
        number, *position, red, green, blue, error = file.read_struct("Q3d3Bd")
        file.read_struct(f"{8 * file.read_count()}x")  # the track: images say the same
        points[number] = RawPoint(tuple(position), (red, green, blue), error)
    file.check_end()
    return points


# Text


def _iterate_lines(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            yield line


def _read_text_cameras(path: Path) -> dict[int, RawCamera]:
    cameras = {}
    for line in filter(str.strip, _iterate_lines(path)):
        number, model, width, height, *parameters = line.split()
        if model not in MODELS:
            raise ValueError(f"camera {number} has the unknown model {model}")
        cameras[int(number)] = RawCamera(model, int(width), int(height), tuple(map(float, parameters)))
    return cameras


def _read_text_images(path: Path) -> list[RawImage]:
    """Two lines an image; the second, of features, may be empty."""
    lines, images = list(_iterate_lines(path)), []
    while lines and not lines[-1].strip() and len(lines) % 2:
        lines.pop()
    if len(lines) % 2:
        lines.append("")
    for head, features in zip(lines[::2], lines[1::2], strict=True):
        _, *pose, camera, name = head.split(maxsplit=9)
        if len(pose) != 7:
            raise ValueError(f"not an image: {head[:60]!r}")
        table = np.array(features.split(), dtype=np.float64).reshape(-1, 3)
        numbers = tuple(map(float, pose))
        images.append(
            RawImage(
                name.strip(),
                int(camera),
                numbers[:4],
                numbers[4:],
                table[:, :2],
                np.array(features.split()[2::3], dtype=np.int64),
            )
        )
    return images


def _read_text_points(path: Path) -> dict[int, RawPoint]:
    points = {}
    for line in filter(str.strip, _iterate_lines(path)):
        number, x, y, z, red, green, blue, error, *_ = line.split()
        color = (int(red), int(green), int(blue))
        points[int(number)] = RawPoint((float(x), float(y), float(z)), color, float(error))
    return points


_BINARY = (_read_binary_cameras, _read_binary_images, _read_binary_points)
_TEXT = (_read_text_cameras, _read_text_images, _read_text_points)
