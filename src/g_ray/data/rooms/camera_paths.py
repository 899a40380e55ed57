"""Real camera motion without pictures: the paths of RealEstate10K clips in one npz file.

One array per clip, [frame 16] = fx fy cx cy in units of the picture's size, camera_from_world 3×4 row by row.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.data.re10k.clips import convert_poses
from g_ray.geometry.pose import Pose


@dataclass(frozen=True)
class CameraPath:
    """Where a camera went, and through which lens it looked."""

    key: str
    intrinsics: Float[Tensor, "frame 4"]  # fx fy cx cy, in units of the picture's width and height
    poses: Pose  # [frame]

    def __len__(self) -> int:
        return len(self.intrinsics)


def read_paths(file: Path) -> dict[str, CameraPath]:
    """All paths of a file by clip, in float64."""
    if not zipfile.is_zipfile(file):
        raise ValueError(f"{file} is not an npz file of camera paths")
    with np.load(file) as arrays:
        return {key: _parse_path(key, arrays[key], f"{file}, clip {key}") for key in sorted(arrays.files)}


def _parse_path(key: str, rows: np.ndarray, where: str) -> CameraPath:
    if rows.ndim != 2 or rows.shape[1] != 16 or not np.issubdtype(rows.dtype, np.floating):
        raise ValueError(f"{where}: shape {rows.shape}, expected [frame, 16] numbers")
    values = torch.from_numpy(rows.astype(np.float64))
    if not (torch.isfinite(values).all() and (values[:, :2] > 0).all()):
        raise ValueError(f"{where}: focal lengths and poses must be finite, and focal lengths positive")
    bottom = values.new_tensor([0.0, 0.0, 0.0, 1.0]).expand(len(values), 1, 4)
    matrices = torch.cat([values[:, 4:].reshape(-1, 3, 4), bottom], 1)
    return CameraPath(key, values[:, :4], convert_poses(matrices, "opencv", where))
