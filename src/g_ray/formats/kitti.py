"""Calibration of KITTI's raw drives: lines `KEY: numbers` in calib_cam_to_cam.txt."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

COLOR = "P_rect_02"
"""Projection matrix of the left color camera, 3×4, of rectified images; pixel centers at whole numbers."""


def read_projection(path: Path, key: str = COLOR) -> Float[np.ndarray, "3 4"]:
    """Read a projection matrix; ValueError names a file without it."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file; unpack {path.parent.name}_calib.zip of KITTI")
    for line in path.read_text(encoding="utf-8").splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == key:
            try:
                return np.array(numbers.split(), dtype=np.float64).reshape(3, 4)
            except ValueError:
                raise ValueError(f"{path}: {key} is not 12 numbers; unpack it again") from None
    raise ValueError(f"{path}: no {key} in it; unpack it again")
