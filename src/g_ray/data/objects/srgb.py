"""Between stored image values (sRGB) and light (linear): light adds up and is averaged, stored values are not."""

import numpy as np
from jaxtyping import Float, UInt8


def srgb_to_linear(values: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """IEC 61966-2-1, in [0, 1]."""
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4).astype(values.dtype)


LINEAR_OF_BYTE = srgb_to_linear(np.arange(256, dtype=np.float32) / 255)
"""What the 256 values of an 8-bit image stand for."""

_STEPS = 1 << 14
_BYTE_OF_LINEAR = np.searchsorted(
    srgb_to_linear((np.arange(255, dtype=np.float64) + 0.5) / 255),
    np.linspace(0, 1, _STEPS + 1),
    side="right",
).astype(np.uint8)


def linear_to_srgb_bytes(linear: Float[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape"]:
    """Light in [0, 1] to 8-bit sRGB, the nearest value up to table steps finer than any two neighbours."""
    return _BYTE_OF_LINEAR[(linear.clip(0, 1) * _STEPS + 0.5).astype(np.int32)]
