"""Read and write the files of a COLMAP sparse model, binary or text: cameras, images, points3D.

Written from the format's definition: little-endian binary, or text with comments; quaternions w x y z and translations
are `cam_from_world`; pixels count from the top-left corner. Files of rigs and frames are not needed: images hold the
same poses.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Float, UInt8

from g_ray.formats.colmap.colmap_cameras import MODELS, NUMBERS
from g_ray.formats.documents import parse_positive_int
from g_ray.runtime.files import write_atomically

Part = TypeVar("Part")

NO_POINT = -1
"""Entry of `point_ids` for a pixel without a 3D point."""


@dataclass(frozen=True)
class RawCamera:
    model: str
    width: int
    height: int
    parameters: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("width", "height"):
            parse_positive_int(getattr(self, name), f"{name} of a camera")


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
    """A whole model; `points` is None if they were not read."""

    cameras: dict[int, RawCamera]
    images: list[RawImage]
    points: dict[int, RawPoint] | None = None


def is_model(folder: Path) -> bool:
    """Return whether a folder holds cameras and images of a model."""
    return _find_suffix(folder) is not None


def read_model(folder: Path, points: bool = False) -> ColmapModel:
    """Read a model, from binary files where both kinds exist; ValueError names the file if anything is wrong."""
    suffix = _find_suffix(folder)
    if suffix is None:
        raise ValueError(f"{folder} is no COLMAP model: it needs cameras and images, both as .bin or as .txt")
    cameras, images, positions = _BINARY if suffix == ".bin" else _TEXT
    return ColmapModel(
        _read(folder / f"cameras{suffix}", cameras),
        _read(folder / f"images{suffix}", images),
        _read(folder / f"points3D{suffix}", positions) if points else None,
    )


def read_raw_cameras(path: Path) -> dict[int, RawCamera]:
    """Read cameras.bin or cameras.txt alone; ValueError names the file if anything is wrong."""
    return _read(path, (_BINARY if path.suffix == ".bin" else _TEXT)[0])


def _find_suffix(folder: Path) -> str | None:
    for suffix in (".bin", ".txt"):
        if all((folder / f"{name}{suffix}").is_file() for name in ("cameras", "images")):
            return suffix
    return None


def _read(path: Path, reader: Callable[[Path], Part]) -> Part:
    try:
        return reader(path)
    except (ValueError, OverflowError, struct.error) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())[:200]}; export the model again") from None


# Reading binary files


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
        file.read_struct(f"{8 * file.read_count()}x")  # the track, which the images repeat
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
        number, model, width, height, *parameters = _split(line, 5, "camera")
        if model not in MODELS:
            raise ValueError(f"camera {number} has the unknown model {model}")
        cameras[int(number)] = RawCamera(model, int(width), int(height), tuple(map(float, parameters)))
    return cameras


def _read_text_images(path: Path) -> list[RawImage]:
    """Read two lines per image; the second, of features, may be empty."""
    lines, images = list(_iterate_lines(path)), []
    while lines and not lines[-1].strip() and len(lines) % 2:
        lines.pop()
    if len(lines) % 2:
        lines.append("")
    for head, features in zip(lines[::2], lines[1::2], strict=True):
        _, *pose, camera, name = _split(head, 10, "image")
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
        number, x, y, z, red, green, blue, error, *_ = _split(line, 8, "point")
        color = (int(red), int(green), int(blue))
        points[int(number)] = RawPoint((float(x), float(y), float(z)), color, float(error))
    return points


def _split(line: str, least: int, what: str) -> list[str]:
    """Split a line into words; ValueError if there are too few. The last word of an image is its name, with spaces."""
    words = line.split(maxsplit=9 if what == "image" else -1)
    if len(words) < least:
        raise ValueError(f"no {what}, {len(words)} of {least} words: {line.strip()[:60]!r}")
    return words


_BINARY = (_read_binary_cameras, _read_binary_images, _read_binary_points)
_TEXT = (_read_text_cameras, _read_text_images, _read_text_points)


# Writing


OBSERVATION = np.dtype([("image", "<u4"), ("feature", "<u4")])


def write_model(
    folder: Path,
    cameras: dict[int, RawCamera],
    images: Sequence[RawImage],
    positions: Float[np.ndarray, "n 3"],
    colors: UInt8[np.ndarray, "n 3"],
    errors_px: Float[np.ndarray, "n"] | None = None,
) -> None:
    """Write a binary model.

    Images and points are numbered from 1 in their order, so `RawImage.point_ids` are rows of `positions` plus 1.
    `errors_px` are mean reprojection errors; without them observations are where the points project, and errors 0.
    """
    errors_px = np.zeros(len(positions)) if errors_px is None else errors_px
    write_atomically(folder / "cameras.bin", _encode_cameras(cameras))
    write_atomically(folder / "images.bin", _encode_images(images))
    write_atomically(folder / "points3D.bin", _encode_points(images, positions, colors, errors_px))


def _encode_cameras(cameras: dict[int, RawCamera]) -> bytes:
    parts = [struct.pack("<Q", len(cameras))]
    for number, camera in cameras.items():
        head = (number, MODELS[camera.model].number, camera.width, camera.height)
        parts.append(struct.pack(f"<IiQQ{len(camera.parameters)}d", *head, *camera.parameters))
    return b"".join(parts)


def _encode_images(images: Sequence[RawImage]) -> bytes:
    parts = [struct.pack("<Q", len(images))]
    for number, image in enumerate(images, 1):
        features = np.empty(len(image.pixels), FEATURE)
        features["pixel"], features["point"] = image.pixels, image.point_ids
        parts.append(struct.pack("<I7dI", number, *image.quaternion, *image.translation, image.camera))
        parts.append(image.name.encode() + b"\0" + struct.pack("<Q", len(features)) + features.tobytes())
    return b"".join(parts)


def _encode_points(
    images: Sequence[RawImage], positions: np.ndarray, colors: np.ndarray, errors_px: np.ndarray
) -> bytes:
    tracks, ends = _build_tracks(images, len(positions))
    parts = [struct.pack("<Q", len(positions))]
    start = 0
    for number, (position, color, error_px, end) in enumerate(
        zip(positions.tolist(), colors.tolist(), errors_px.tolist(), ends.tolist(), strict=True), 1
    ):
        parts.append(struct.pack("<Q3d3BdQ", number, *position, *color, error_px, end - start))
        parts.append(tracks[start:end].tobytes())
        start = end
    return b"".join(parts)


def _build_tracks(images: Sequence[RawImage], points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return all observations ordered by point, and for each point the index behind its last one."""
    owners = np.concatenate([image.point_ids for image in images])
    observations = np.empty(len(owners), OBSERVATION)
    observations["image"] = np.repeat(
        np.arange(1, len(images) + 1), [len(image.point_ids) for image in images]
    )
    observations["feature"] = np.concatenate([np.arange(len(image.point_ids)) for image in images])
    order = np.argsort(owners, kind="stable")
    return observations[order], np.cumsum(np.bincount(owners - 1, minlength=points))
