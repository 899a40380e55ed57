"""COLMAP's sparse model on disk, binary or text: cameras, images, points3D.

Written from the format's definition: little-endian binary, or text with comments; quaternions w x y z and translations
are `cam_from_world`; pixels count from the top-left corner. Files of rigs and frames say nothing that images do not.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, UInt8

from g_ray.cameras.base import Camera
from g_ray.cameras.division import Division
from g_ray.cameras.equirectangular import Equirectangular
from g_ray.cameras.eucm import EUCM
from g_ray.cameras.fisheye624 import Fisheye624
from g_ray.cameras.fov import FOV
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.cameras.thin_prism_fisheye import ThinPrismFisheye
from g_ray.cameras.ucm import UCM
from g_ray.runtime.files import write_atomically

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


# COLMAP's camera models as ours, and ours as COLMAP's.
#
# Both count pixels from the top-left corner, so parameters are taken as they are.


class Model(NamedTuple):
    number: int
    """In binary files."""
    parameters: str
    """In COLMAP's order, by our names; f is fx and fy."""
    ours: type[Camera]


MODELS: dict[str, Model] = {
    "SIMPLE_PINHOLE": Model(0, "f cx cy", Pinhole),
    "PINHOLE": Model(1, "fx fy cx cy", Pinhole),
    "SIMPLE_RADIAL": Model(2, "f cx cy k1", OpenCV),
    "RADIAL": Model(3, "f cx cy k1 k2", OpenCV),
    "OPENCV": Model(4, "fx fy cx cy k1 k2 p1 p2", OpenCV),
    "OPENCV_FISHEYE": Model(5, "fx fy cx cy k1 k2 k3 k4", OpenCVFisheye),
    "FULL_OPENCV": Model(6, "fx fy cx cy k1 k2 p1 p2 k3 k4 k5 k6", OpenCV),
    "FOV": Model(7, "fx fy cx cy omega", FOV),
    "SIMPLE_RADIAL_FISHEYE": Model(8, "f cx cy k1", OpenCVFisheye),
    "RADIAL_FISHEYE": Model(9, "f cx cy k1 k2", OpenCVFisheye),
    "THIN_PRISM_FISHEYE": Model(10, "fx fy cx cy k1 k2 p1 p2 k3 k4 sx1 sy1", ThinPrismFisheye),
    "RAD_TAN_THIN_PRISM_FISHEYE": Model(11, "fx fy cx cy k1 k2 k3 k4 k5 k6 p1 p2 s1 s2 s3 s4", Fisheye624),
    "SIMPLE_DIVISION": Model(12, "f cx cy k", Division),
    "DIVISION": Model(13, "fx fy cx cy k", Division),
    "SIMPLE_FISHEYE": Model(14, "f cx cy", OpenCVFisheye),
    "FISHEYE": Model(15, "fx fy cx cy", OpenCVFisheye),
    "EUCM": Model(16, "fx fy cx cy alpha beta", EUCM),
    "EQUIRECTANGULAR": Model(17, "w h", Equirectangular),
}

WRITTEN = (
    "PINHOLE",
    "OPENCV",
    "FULL_OPENCV",
    "OPENCV_FISHEYE",
    "THIN_PRISM_FISHEYE",
    "RAD_TAN_THIN_PRISM_FISHEYE",
    "EUCM",
    "FOV",
    "DIVISION",
    "EQUIRECTANGULAR",
)
"""Models that our cameras become, the first that is exact; all tools know the ones before."""

NUMBERS = {model.number: name for name, model in MODELS.items()}


def camera_from_colmap(name: str, width: int, height: int, parameters: tuple[float, ...]) -> Camera:
    """Make one of our cameras; ValueError for a model that COLMAP does not have."""
    model = _get_model(name)
    names = model.parameters.split()
    if len(parameters) != len(names):
        raise ValueError(f"{name} has {len(names)} parameters, the file gives {len(parameters)}")
    if model.ours is Equirectangular:
        return Equirectangular.panorama(width, height, dtype=torch.float64)
    values = dict(zip(names, parameters, strict=True))
    if "f" in values:
        values["fx"] = values["fy"] = values.pop("f")
    return model.ours.make(width, height, dtype=torch.float64, **values)


def camera_to_colmap(ours: Camera) -> tuple[str, tuple[float, ...]]:
    """COLMAP's model and parameters of one of our cameras; ValueError, with the reason, if none is exactly the same."""
    if isinstance(ours, Equirectangular):
        return _panorama_to_colmap(ours)
    values = dict(zip(ours.PARAMETERS, ours.params.double().tolist(), strict=True))
    kind = type(ours)
    if kind is UCM:
        kind, values = EUCM, values | {"beta": 1.0}
    candidates = [name for name in WRITTEN if MODELS[name].ours is kind]
    surplus: list[str] = []
    for name in candidates:
        names = MODELS[name].parameters.split()
        surplus = [key for key, value in values.items() if key not in names and value != 0]
        if not surplus:
            return name, tuple(values[key] for key in names)
    if candidates:
        raise ValueError(f"COLMAP's {candidates[-1]} has no {', '.join(surplus)}")
    raise ValueError(f"COLMAP has no camera model like {ours.NAME}")


def _panorama_to_colmap(ours: Equirectangular) -> tuple[str, tuple[float, ...]]:
    whole = Equirectangular.panorama(ours.width, ours.height, dtype=torch.float64)
    if not torch.allclose(ours.params.double(), whole.params, rtol=1e-6):
        raise ValueError("COLMAP's EQUIRECTANGULAR is the whole sphere, and this panorama is a part of it")
    return "EQUIRECTANGULAR", (float(ours.width), float(ours.height))


def _get_model(name: str) -> Model:
    if name not in MODELS:
        raise ValueError(f"unknown COLMAP camera model {name}; known are {', '.join(MODELS)}")
    return MODELS[name]


# COLMAP's three binary files: cameras, images with their features, points with their tracks.
#
# The reading direction and the format's definition are in `g_ray.formats.colmap_model`.


OBSERVATION = np.dtype([("image", "<u4"), ("feature", "<u4")])


def write_model(
    folder: Path,
    cameras: dict[int, RawCamera],
    images: Sequence[RawImage],
    positions: Float[np.ndarray, "n 3"],
    colors: UInt8[np.ndarray, "n 3"],
) -> None:
    """Images and points are numbered from 1 in their order, so `RawImage.point_ids` are rows of positions plus 1.

    Observations are where the points project, so every point's error is 0.
    """
    write_atomically(folder / "cameras.bin", _encode_cameras(cameras))
    write_atomically(folder / "images.bin", _encode_images(images))
    write_atomically(folder / "points3D.bin", _encode_points(images, positions, colors))


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


def _encode_points(images: Sequence[RawImage], positions: np.ndarray, colors: np.ndarray) -> bytes:
    tracks, ends = _build_tracks(images, len(positions))
    parts = [struct.pack("<Q", len(positions))]
    start = 0
    for number, (position, color, end) in enumerate(
        zip(positions.tolist(), colors.tolist(), ends.tolist(), strict=True), 1
    ):
        parts.append(struct.pack("<Q3d3BdQ", number, *position, *color, 0.0, end - start))
        parts.append(tracks[start:end].tobytes())
        start = end
    return b"".join(parts)


def _build_tracks(images: Sequence[RawImage], points: int) -> tuple[np.ndarray, np.ndarray]:
    """All observations ordered by point, and where each point's end."""
    owners = np.concatenate([image.point_ids for image in images])
    observations = np.empty(len(owners), OBSERVATION)
    observations["image"] = np.repeat(
        np.arange(1, len(images) + 1), [len(image.point_ids) for image in images]
    )
    observations["feature"] = np.concatenate([np.arange(len(image.point_ids)) for image in images])
    order = np.argsort(owners, kind="stable")
    return observations[order], np.cumsum(np.bincount(owners - 1, minlength=points))
