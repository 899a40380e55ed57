"""Nearest neighbors between clouds of points, by SciPy's k-d tree."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

Points = Float[np.ndarray, "_ 3"]


def build_tree(points: Points) -> Any:
    """Build a k-d tree; OSError without SciPy, which is no dependency of the library itself."""
    try:
        from scipy.spatial import KDTree
    except ImportError:
        raise OSError("metrics of point clouds need SciPy; pip install 'g-ray[eval]'") from None
    # Balancing costs more than it saves: depth maps make clouds without clusters of equal coordinates.
    return KDTree(points, balanced_tree=False)


def find_nearest(
    tree: Any, points: Points, *, limit: float = np.inf, workers: int = 1
) -> tuple[Float[np.ndarray, "_"], Int[np.ndarray, "_"]]:
    """Return the distance and the index of the nearest point of the tree.

    A point whose neighbors are all at the limit or beyond has the distance inf and an index behind the last one: the
    search for it ends early.
    """
    distance, index = tree.query(points, distance_upper_bound=limit, workers=workers)
    return distance, index


def check_points(name: str, points: Points, least: int = 1) -> None:
    """Raise ValueError for too few points, or for points that are not finite."""
    if len(points) < least:
        raise ValueError(f"{len(points)} {name} points: at least {least} are needed")
    broken = ~np.isfinite(points).all(1)
    if broken.any():
        raise ValueError(f"{int(broken.sum())} of {len(points)} {name} points are not finite")
