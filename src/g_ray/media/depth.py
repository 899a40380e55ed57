"""Depth maps: read OpenEXR, 16-bit PNG, npy, npz, HDF5 and COLMAP's maps, write OpenEXR, resize and convert depth.

A map holds z-depth (along the optical axis) or depth along each pixel's ray; numbers that are zero, negative or not
finite mean that no depth is known.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.media.images import open_photo
from g_ray.rays.ray_map import RayMap
from g_ray.runtime.files import atomic_path

Convention = Literal["z", "ray"]
"""Along the optical axis, or along each pixel's own ray."""
SIXTEEN_BIT = ("I;16", "I;16B", "I;16L", "I")
DEPTH_CHANNELS = ("Z", "depth", "Depth", "Y", "V", "R")
"""Channels of an EXR file that are read as depth: the first that is present."""
FORWARD = 1e-6
"""z of a unit ray, below which z-depth does not determine a distance."""


@dataclass(frozen=True)
class DepthFile:
    """The file of a view's depth, and what its numbers mean."""

    path: Path
    convention: Convention = "z"
    unit: float | int = 1.0
    """Length in the scene's unit per stored number: 0.001 for millimeters in a scene in meters."""
    nothing: float | int | None = None
    """A further stored number that means no depth, e.g. 65535 in files of a Kinect."""
    limit: float | int | None = None
    """Stored numbers from this one on mean no depth: the sky of synthetic worlds."""
    half_floats: bool = False
    """Whether the 16 bits of a PNG are those of a half float instead of an integer."""

    def read(self) -> Float[Tensor, "h w"]:
        """Read depth in the scene's unit, with `nothing` replaced by 0; OSError names a file that cannot be read."""
        reader = READERS.get(self.path.suffix.lower())
        if reader is None:
            raise OSError(f"{self.path}: not a depth map; it can be one of {', '.join(READERS)}")
        if not self.path.is_file():
            raise OSError(f"{self.path}: no such depth map")
        stored = _to_plane(self.path, reader(self))
        if self.nothing is not None:
            stored = np.where(stored == self.nothing, 0, stored)
        if self.limit is not None:
            stored = np.where(stored >= self.limit, 0, stored)
        return torch.from_numpy(np.asarray(stored, dtype=np.float32) * np.float32(self.unit))


def is_usable(depth: Float[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """Return where depth is known."""
    return torch.isfinite(depth) & (depth > 0)


def convert_to_ray_depth(
    depth: Float[Tensor, "*shape"], rays: RayMap, convention: Convention
) -> tuple[Float[Tensor, "*shape"], Bool[Tensor, "*shape"]]:
    """Return depth along unit rays, 0 where none is known, and where it is known."""
    valid = is_usable(depth) & rays.valid
    if convention == "z":
        forward = rays.directions[..., 2]
        valid = valid & (forward > FORWARD)
        depth = depth / forward.clamp(min=FORWARD)
    return torch.where(valid, depth, 0), valid


def resize_depth(
    depth: Float[Tensor, "h w"], image: tuple[int, int], width: int, height: int, box: Sequence[float | int]
) -> Float[Tensor, "height width"]:
    """Return the part `box` of an image at a new size, by the nearest pixel: averaged depths lie on no surface.

    `image` is the width and height that the box is measured in; the depth map may be coarser.
    """
    left, top, right, bottom = box
    columns = _nearest_indices(width, left / image[0], right / image[0], depth.shape[1])
    rows = _nearest_indices(height, top / image[1], bottom / image[1], depth.shape[0])
    return depth[rows[:, None], columns]


def _nearest_indices(count: int, start: float, stop: float, source: int) -> Tensor:
    place = start + (torch.arange(count, dtype=torch.float64) + 0.5) * (stop - start) / count
    return (place * source).long().clamp(0, source - 1)


# File formats


def _read_exr(file: DepthFile) -> np.ndarray:
    try:
        import OpenEXR
    except ModuleNotFoundError:
        raise OSError(f"{file.path}: EXR files need OpenEXR; pip install 'g-ray[depth]'") from None
    try:
        with OpenEXR.File(str(file.path), separate_channels=True) as opened_file:
            channels = {name: channel.pixels for name, channel in opened_file.channels().items()}
    except (RuntimeError, ValueError, TypeError) as error:
        raise OSError(f"{file.path}: cannot be read as EXR ({' '.join(str(error).split())})") from None
    if len(channels) == 1:
        return next(iter(channels.values()))
    candidates = [name for known in DEPTH_CHANNELS for name in channels if name.split(".")[-1] == known]
    if not candidates:
        raise OSError(f"{file.path}: none of its channels {', '.join(channels)} is known to be depth")
    return channels[candidates[0]]


def _read_png(file: DepthFile) -> np.ndarray:
    with open_photo(file.path) as image:
        mode, pixels = image.mode, np.asarray(image)
    if mode not in SIXTEEN_BIT:
        raise OSError(f"{file.path}: pixels of mode {mode}; depth as PNG has one channel of 16 bits")
    return pixels.astype(np.uint16).view(np.float16) if file.half_floats else pixels


def _read_numpy(file: DepthFile) -> np.ndarray:
    """Read an array; of an archive, the one named after the convention, or `depth`, or the only one."""
    try:
        loaded = np.load(file.path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            return loaded
        with loaded:
            names = [f"{file.convention}_depth", "depth", *(loaded.files if len(loaded.files) == 1 else ())]
            candidates = [name for name in names if name in loaded.files]
            if not candidates:
                raise OSError(
                    f"{file.path}: no array {' or '.join(names)} in it, but {', '.join(loaded.files)}"
                )
            array = loaded[candidates[0]]
            return np.where(loaded["valid"], array, 0) if "valid" in loaded.files else array
    except FileNotFoundError:
        raise
    except Exception as error:  # damaged files make numpy, zipfile, zlib and tokenize raise many kinds
        if isinstance(error, OSError) and str(file.path) in str(error):
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise OSError(f"{file.path}: cannot be read as numpy array ({reason})") from None


def _read_colmap(file: DepthFile) -> np.ndarray:
    """Read one of COLMAP's dense maps: width&height&channels& as text, then float32, row by row."""
    content = file.path.read_bytes()
    parts = content.split(b"&", 3)
    try:
        width, height, channels = (int(part) for part in parts[:3])
        return np.frombuffer(parts[3], "<f4").reshape(channels, height, width)
    except (ValueError, IndexError):
        raise OSError(f"{file.path}: not one of COLMAP's depth maps") from None


MAX_ARRAY_BYTES = 2**30
"""Of an HDF5 array: Hypersim's images have 19 MB."""


def read_hdf5(path: Path, name: str = "dataset") -> np.ndarray:
    """Read an array of an HDF5 file, by default Hypersim's only one; OSError names a file without it."""
    try:
        import h5py
    except ModuleNotFoundError:
        raise OSError(f"{path}: HDF5 files need h5py; pip install 'g-ray[depth]'") from None
    try:
        with h5py.File(path, "r") as file:
            stored: Any = file[name]
            # A chunked file of a few bytes may declare any size: it is refused before memory is asked for.
            size = math.prod(stored.shape) * stored.dtype.itemsize
            if size > MAX_ARRAY_BYTES:
                raise ValueError(f"an array of {size / 2**30:.0f} GiB")
            return np.asarray(stored)
    except (OSError, KeyError, ValueError, AttributeError, RuntimeError) as error:
        raise OSError(f"{path}: cannot be read as HDF5 ({' '.join(str(error).split())})") from None


def _to_plane(path: Path, array: Any) -> np.ndarray:
    """Return the array with one number per pixel."""
    plane = np.squeeze(array) if array.ndim == 3 and 1 in (array.shape[0], array.shape[-1]) else array
    if plane.ndim != 2 or plane.dtype.kind not in "fiu":
        raise OSError(f"{path}: an array {array.dtype}{list(array.shape)}; depth is one number per pixel")
    return plane


READERS = {
    ".exr": _read_exr,
    ".png": _read_png,
    ".npy": _read_numpy,
    ".npz": _read_numpy,
    ".bin": _read_colmap,
    ".hdf5": lambda file: read_hdf5(file.path),
}
"""Readers of depth maps by file suffix."""


def check_exr_available() -> None:
    """Raise a ValueError if OpenEXR is not installed, before a long computation rather than after it."""
    try:
        import OpenEXR  # noqa: F401
    except ImportError:
        raise ValueError(
            'EXR files need the package OpenEXR; pip install "g-ray[depth]", or write npz only'
        ) from None


def write_exr(path: Path, channels: Mapping[str, Float[Tensor, "h w"]]) -> None:
    """Write maps of one size as channels of 32-bit floats."""
    check_exr_available()
    import OpenEXR

    arrays = {name: values.float().numpy(force=True) for name, values in channels.items()}
    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    with atomic_path(path) as scratch:
        OpenEXR.File(header, arrays).write(str(scratch))
