"""Read which part of space a scan of DTU covers, from the MATLAB files of its official evaluation.

ObsMask1_10.mat     ObsMask: voxels that the scanner observed; BB: corners of the grid, mm; Res: side of a voxel, mm
Plane1.mat          P: plane of the table, whose positive side is above
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

Points = Float[np.ndarray, "point 3"]
MARGIN_MM = 60.0
"""Points further below the grid than this, or further above it than twice this, are left out altogether."""


@dataclass(frozen=True, eq=False)
class ScannedVolume:
    """The voxels that a scanner observed, and the table that the object stands on."""

    observed: Bool[np.ndarray, "x y z"]
    low: Float[np.ndarray, "3"]
    high: Float[np.ndarray, "3"]
    side: float
    plane: Float[np.ndarray, "4"]

    def is_near(self, points: Points) -> Bool[np.ndarray, "point"]:
        """Return which points are in the grid or around it."""
        return np.all((points >= self.low - MARGIN_MM) & (points < self.high + 2 * MARGIN_MM), axis=-1)

    def is_observed(self, points: Points) -> Bool[np.ndarray, "point"]:
        """Return which points are in an observed voxel; the first voxel has its center in the corner of the grid."""
        cells = np.rint((points - self.low) / self.side).astype(np.int64)
        inside = np.all((cells >= 0) & (cells < self.observed.shape), axis=-1)
        found = np.zeros(len(points), dtype=bool)
        found[inside] = self.observed[tuple(cells[inside].T)]
        return found

    def is_above_ground(self, points: Points) -> Bool[np.ndarray, "point"]:
        """Return which points are above the table."""
        return points @ self.plane[:3] + self.plane[3] > 0


@dataclass(frozen=True)
class VolumeFiles:
    """Where the two files of a scan are."""

    mask: Path
    plane: Path

    def load(self) -> ScannedVolume:
        """Read both; OSError names a file that cannot be used."""
        mask, plane = _read_mat(self.mask), _read_mat(self.plane)
        try:
            corners = np.asarray(mask["BB"], np.float64).reshape(2, 3)
            volume = ScannedVolume(
                np.asarray(mask["ObsMask"]).astype(bool),
                corners[0],
                corners[1],
                float(np.asarray(mask["Res"]).reshape(())),
                np.asarray(plane["P"], np.float64).reshape(4),
            )
        except (KeyError, ValueError, TypeError) as error:
            raise OSError(
                f"{self.mask} and {self.plane.name} are not the masks of a scan of DTU ({error}): unpack them again"
            ) from None
        if volume.observed.ndim != 3 or not volume.side > 0 or not np.isfinite(corners).all():
            raise OSError(f"{self.mask}: no grid of voxels; unpack it again")
        return volume


def _read_mat(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat

    if not path.is_file():
        raise OSError(f"{path} is not there: unpack SampleSet of DA3-BENCH's dtu.zip, too")
    try:
        return loadmat(path)
    except Exception as error:  # scipy raises whatever it stumbles over
        raise OSError(f"{path}: no MATLAB file ({type(error).__name__}); unpack it again") from None
