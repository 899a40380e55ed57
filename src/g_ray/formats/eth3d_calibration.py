"""Read ETH3D's calibrations and depth maps.

Calibrations are COLMAP text models in their own folders, THIN_PRISM_FISHEYE for distorted images. A depth map has the
name of its image, …/ground_truth_depth/dslr_images/DSC_0259.JPG, but it is a dump of float32 numbers without a header.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.thin_prism_fisheye import ThinPrismFisheye
from g_ray.formats.calibration_source import CalibrationSource, Example
from g_ray.formats.colmap.colmap_model import is_model
from g_ray.formats.colmap.colmap_scene import read_lenses
from g_ray.formats.documents import ParsedFile
from g_ray.media.depth import DepthFile
from g_ray.runtime.files import write_atomically

PLACES = (
    *("dslr_calibration_jpg", "dslr_calibration_undistorted"),
    *("rig_calibration", "rig_calibration_undistorted"),
)


class ETH3DSource(CalibrationSource):
    """A scene's folder, or one of its calibration folders.

    Distorted and undistorted images have the same file names; the folders that they lie in (dslr_images,
    dslr_images_undistorted) tell them apart.
    """

    NAME, TITLE, CENTER, PER_PHOTO = "eth3d", "ETH3D", 0.5, True
    IGNORES_EXIF = True

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        return bool(_find_models(file.path))

    @classmethod
    def open(cls, file: ParsedFile) -> "ETH3DSource":
        return cls(file.path, [lens for place in _find_models(file.path) for lens in read_lenses(place)])

    @classmethod
    def example(cls, folder: Path) -> Example:
        place = folder / PLACES[0]
        parameters = "3411.4 3410.0 3117.3 2064.0 0.2 -0.17 0.0005 -0.0009 0.25 -0.1 -0.0001 0.0002"
        write_atomically(place / "cameras.txt", f"0 THIN_PRISM_FISHEYE 6211 4137 {parameters}\n")
        write_atomically(place / "images.txt", "1 0.9 0.1 0.2 0.1 0 0 1 0 dslr_images/DSC_0259.JPG\n\n")
        values = dict(zip(ThinPrismFisheye.PARAMETERS, map(float, parameters.split()), strict=True))
        camera = ThinPrismFisheye.make(6211, 4137, dtype=torch.float64, **values)
        return Example(folder, "dslr_images/DSC_0259.JPG", camera)


def _find_models(path: Path) -> list[Path]:
    if path.name in PLACES:
        return [path] if is_model(path) else []
    return [path / name for name in PLACES if is_model(path / name)]


@dataclass(frozen=True)
class ETH3DDepthFile(DepthFile):
    """z-depth in meters of an image of known size, row by row, little-endian; infinity is none."""

    width: int = 0
    height: int = 0

    def read(self) -> Float[Tensor, "h w"]:
        if not self.path.is_file():
            raise OSError(f"{self.path}: no such depth map")
        size, expected = self.path.stat().st_size, 4 * self.width * self.height
        if size != expected:
            raise OSError(
                f"{self.path}: {size} bytes, but {self.width}×{self.height} numbers take {expected}: download it again"
            )
        numbers = np.fromfile(self.path, "<f4").reshape(self.height, self.width)
        return torch.from_numpy(np.where(np.isfinite(numbers), numbers, 0).astype(np.float32))
