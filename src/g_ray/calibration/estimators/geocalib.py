"""GeoCalib (Veicht et al. 2024): one image, focal length and at most one radial coefficient.

Its principal point is the middle of the image by definition, so it is ours here, whichever way its grid counts pixels.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from g_ray.calibration.estimators.estimator import Estimator
from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv import OpenCV
from g_ray.media.photos import Photo
from g_ray.media.view import View


class GeoCalibEstimator(Estimator):
    """`simple_radial`; it has no fisheye."""

    NAME = "geocalib"
    INSTALL = "pip install git+https://github.com/cvg/GeoCalib"

    def estimate(self, photos: Sequence[Photo], report: Callable[[str], None]) -> list[View]:
        if self.fisheye:
            raise ValueError("estimate:geocalib has no fisheye model; use estimate:anycalib:fisheye")
        model = self.import_package("geocalib").GeoCalib(weights="distorted").eval()
        return [self.make_calibrated(photo, _estimate_camera(model, photo)) for photo in photos]


def _estimate_camera(model: Any, photo: Photo) -> Camera:
    with torch.inference_mode():
        camera = model.calibrate(photo.load(), camera_model="simple_radial")["camera"]
    fx, fy = camera.f.double().flatten().tolist()
    k1 = float(camera.k1.double().flatten()[0])
    middle = {"cx": photo.width / 2, "cy": photo.height / 2}
    return OpenCV.make(photo.width, photo.height, fx=fx, fy=fy, **middle, k1=k1, dtype=torch.float64)
