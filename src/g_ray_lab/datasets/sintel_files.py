"""Depth and cameras of MPI Sintel: .dpt and .cam files, little-endian.

.dpt    float32 202021.25, int32 width, int32 height, then z-depth as float32, row by row
.cam    float32 202021.25, 3×3 intrinsics, then 3×4 cam_from_world, both float64, row by row
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.media.depth import DepthFile
from g_ray.runtime.files import write_atomically

TAG = struct.pack("<f", 202021.25)


@dataclass(frozen=True)
class SintelDepthFile(DepthFile):
    """A .dpt file; the sky has a huge depth."""

    def read(self) -> Float[Tensor, "h w"]:
        content = _read_tagged(self.path)
        if len(content) < 8:
            raise OSError(f"{self.path}: the file ends too early; unpack it again")
        width, height = struct.unpack("<2i", content[:8])
        if min(width, height) < 1 or len(content) != 8 + 4 * width * height:
            raise OSError(
                f"{self.path}: {len(content) - 8} bytes of depth for {width}×{height} pixels; unpack it again"
            )
        return torch.from_numpy(np.frombuffer(content[8:], "<f4").reshape(height, width).astype(np.float32))


def read_cam(path: Path) -> tuple[Float[np.ndarray, "3 3"], Float[np.ndarray, "3 4"]]:
    """Read intrinsics (pixel centers at whole numbers) and cam_from_world; OSError names a damaged file."""
    content = _read_tagged(path)
    if len(content) != 8 * (9 + 12):
        raise OSError(f"{path}: {len(content) + 4} bytes, but a camera has 172; unpack it again")
    numbers = np.frombuffer(content, "<f8")
    return numbers[:9].reshape(3, 3).copy(), numbers[9:].reshape(3, 4).copy()


def write_dpt(path: Path, depth: Float[np.ndarray, "h w"]) -> None:
    """Write z-depth."""
    height, width = depth.shape
    write_atomically(path, TAG + struct.pack("<2i", width, height) + depth.astype("<f4").tobytes())


def write_cam(
    path: Path, intrinsics: Float[np.ndarray, "3 3"], cam_from_world: Float[np.ndarray, "3 4"]
) -> None:
    """Write intrinsics (pixel centers at whole numbers) and cam_from_world."""
    write_atomically(path, TAG + intrinsics.astype("<f8").tobytes() + cam_from_world.astype("<f8").tobytes())


def _read_tagged(path: Path) -> bytes:
    if not path.is_file():
        raise OSError(f"{path}: no such file; unpack MPI Sintel again")
    content = path.read_bytes()
    if content[:4] != TAG:
        raise OSError(f"{path}: does not begin with Sintel's tag; unpack it again")
    return content[4:]
