"""What every estimator can do."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from g_ray.cameras.base import Camera
from g_ray.formats.calibration import CalibratedPhoto
from g_ray.formats.photos import Photo
from g_ray.geometry.pose import Pose


class Estimator(ABC):
    """Cameras from photos; with `fisheye` as lenses of the four-coefficient fisheye model or wider."""

    NAME: ClassVar[str]
    INSTALL: ClassVar[str]
    """The command that brings the package."""

    def __init__(self, fisheye: bool = False) -> None:
        self.fisheye = fisheye

    @abstractmethod
    def estimate(self, photos: Sequence[Photo], report: Callable[[str], None]) -> list[CalibratedPhoto]:
        """Leave out photos that cannot be calibrated, with a sentence to `report` or a ValueError that names them."""

    def import_package(self, module: str) -> Any:
        """The peer's module, imported when it is first needed; OSError tells how to get it."""
        try:
            return importlib.import_module(module)
        except ImportError as error:
            name = module.split(".")[0]
            raise OSError(
                f"estimate:{self.NAME} needs the package {name}, which cannot be imported "
                f"({' '.join(str(error).split())}): {self.INSTALL}"
            ) from None

    def make_calibrated(self, photo: Photo, camera: Camera, pose: Pose | None = None) -> CalibratedPhoto:
        return CalibratedPhoto(photo.name, photo.path, camera, f"estimated by {self.NAME}", pose)
