"""Import pycolmap where it is needed, with an error that says how to install it."""

import os
from typing import Any


class CannotMatch(ValueError):
    """Poses cannot come from matches: COLMAP is missing, or the photographs do not allow it."""


def import_pycolmap() -> Any:
    """Return the module, with its log limited to errors."""
    try:
        import pycolmap
    except ImportError as error:
        raise CannotMatch(
            f"structure from motion needs pycolmap ({error}); run: pip install 'g-ray[tool]'"
        ) from None
    if not hasattr(pycolmap, "FeatureExtractor"):
        raise CannotMatch(
            f"pycolmap {pycolmap.__version__} is too old; run: pip install --upgrade 'pycolmap>=4.2'"
        )
    pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
    return pycolmap


def count_threads(threads: int) -> int:
    return threads if threads > 0 else len(os.sched_getaffinity(0))
