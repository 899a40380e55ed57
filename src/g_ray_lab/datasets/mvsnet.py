"""Camera files of MVSNet: the word extrinsic, 4×4 cam_from_world, the word intrinsic, 3×3, then depth range."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from g_ray.runtime.files import write_atomically


def read_mvsnet_camera(path: Path) -> tuple[Float[np.ndarray, "3 3"], Float[np.ndarray, "4 4"]]:
    """Read intrinsics (pixel centers at whole numbers) and cam_from_world; ValueError names a damaged file."""
    if not path.is_file():
        raise ValueError(f"{path}: no such camera; unpack the dataset again")
    words = path.read_text(encoding="utf-8").split()
    try:
        if words[0] != "extrinsic" or words[17] != "intrinsic" or not 2 <= len(words[27:]) <= 4:
            raise ValueError
        extrinsic = np.array(words[1:17], dtype=np.float64).reshape(4, 4)
        intrinsic = np.array(words[18:27], dtype=np.float64).reshape(3, 3)
    except (ValueError, IndexError):
        raise ValueError(
            f"{path}: not a camera of MVSNet (extrinsic, 16 numbers, intrinsic, 9, then 2–4)"
        ) from None
    return intrinsic, extrinsic


def write_mvsnet_camera(
    path: Path,
    intrinsic: Float[np.ndarray, "3 3"],
    extrinsic: Float[np.ndarray, "4 4"],
    depth_range: tuple[float, float],
) -> None:
    """Write a camera; the range is the least depth and the interval between hypotheses."""
    rows = [
        ["extrinsic"],
        *extrinsic.tolist(),
        [""],
        ["intrinsic"],
        *intrinsic.tolist(),
        [""],
        list(depth_range),
    ]
    write_atomically(path, "\n".join(" ".join(map(str, row)) for row in rows) + "\n")
