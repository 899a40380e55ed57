"""Colors that pages and figures share. Importing them needs no optional dependency: `reconstruct` writes its report
without matplotlib."""

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

CAMERA_COLORS = ("#e08214", "#1b9e9e", "#a05cc8", "#d0417e", "#5a9e2f", "#4878cf")
"""One per camera, distinguishable with color vision deficiency; the name of the camera is always shown as well."""

HEAT = np.array(
    [
        *([68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141]),
        *([39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]),
    ],
    dtype=np.float64,
)
"""Viridis at nine points, from dark to bright in even steps of lightness."""
NOTHING = (128, 128, 128)
"""Color of pixels without a value."""


def map_to_heat(values: Float[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape 3"]:
    """Map numbers from 0 to 1 to colors by linear interpolation in HEAT; NaN becomes gray."""
    at = np.nan_to_num(np.clip(values, 0, 1)) * (len(HEAT) - 1)
    low = np.minimum(at.astype(np.int64), len(HEAT) - 2)
    mixed = HEAT[low] + (at - low)[..., None] * (HEAT[low + 1] - HEAT[low])
    return np.where(np.isnan(values)[..., None], NOTHING, mixed).round().astype(np.uint8)


def color_depth(
    depth: Float[Tensor, "*view h w"], valid: Bool[Tensor, "*view h w"]
) -> Float[Tensor, "*view 3 h w"]:
    """Color depths between 0 (bright) and 1 (dark), clamped; invalid pixels are black."""
    from matplotlib import colormaps  # in the extra [view]

    near = (1 - depth).clamp(0, 1).cpu().numpy()
    colors = torch.from_numpy(colormaps["viridis"](near)[..., :3]).to(torch.float32)
    return (colors * valid.cpu()[..., None]).movedim(-1, -3)
