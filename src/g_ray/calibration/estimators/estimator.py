"""The interface of estimators: cameras, and poses where possible, from photos alone."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import torch

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose
from g_ray.media.photos import Photo
from g_ray.media.view import ESTIMATED_BY, View
from g_ray.runtime.device import choose_device


def suggest_lens(estimator: "Estimator") -> str:
    """Say what to try when a lens could not be estimated: the other kind, another estimator, or a calibration."""
    other = f"estimate:{estimator.NAME}" if estimator.fisheye else f"estimate:{estimator.NAME}:fisheye"
    single = "" if estimator.NAME == "anycalib" else ", estimate:anycalib (one photo is enough)"
    return f"try {other}{single}, or give a calibration file"


class Estimator(ABC):
    """Estimates cameras from photos; with `fisheye` as lenses of the four-coefficient fisheye model or wider."""

    NAME: ClassVar[str]
    INSTALL: ClassVar[str]
    """The command that brings the package."""
    pinhole: bool = False
    """Estimate a lens without distortion; an estimator that cannot leaves HAS_PINHOLE False."""
    HAS_PINHOLE: ClassVar[bool] = False

    def __init__(self, fisheye: bool = False) -> None:
        self.fisheye = fisheye

    @cached_property
    def device(self) -> torch.device:
        """Where a network runs: on the GPU of this process, if there is one."""
        return choose_device("auto")

    def prepare(self, network: Any) -> Any:
        """Put a loaded network on the device, for inference."""
        return (network if self.device.type == "cpu" else network.to(self.device)).eval()

    @abstractmethod
    def estimate(self, photos: Sequence[Photo], report: Callable[[str], None]) -> list[View]:
        """Estimate the cameras of photos.

        A photo that cannot be calibrated is left out with a sentence to `report`, or is a ValueError that names it.
        """

    def import_package(self, module: str) -> Any:
        """Import a module of the estimator's package when it is first needed; raises OSError naming what to install."""
        try:
            return importlib.import_module(module)
        except ImportError as error:
            name = module.split(".")[0]
            raise OSError(
                f"estimate:{self.NAME} needs the package {name}, which cannot be imported "
                f"({' '.join(str(error).split())}): {self.INSTALL}"
            ) from None

    def make_calibrated(self, photo: Photo, camera: Camera, pose: Pose | None = None) -> View:
        """Return the photo with an estimated camera and, if the estimator has one, its pose."""
        return View(photo.name, camera, pose, f"{ESTIMATED_BY}{self.NAME}", photo)
