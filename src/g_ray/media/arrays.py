"""Read .npy files of unknown origin."""

from pathlib import Path

import numpy as np


def load_array(path: Path, *, in_memory: bool = True) -> np.ndarray:
    """Load an array, or map it; ValueError, without the file's name, if the file is damaged or no array."""
    try:
        return np.load(path, mmap_mode=None if in_memory else "r", allow_pickle=False)
    except Exception:  # numpy parses headers as Python code, and raises whatever its parser does
        raise ValueError("cannot be read as .npy; save it again with numpy.save") from None
