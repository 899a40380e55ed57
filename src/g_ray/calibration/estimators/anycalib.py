"""AnyCalib (Tirado-Garín and Civera 2025): one image, any lens.

Parameters are for the image as it is given, with pixel centres at +0.5, as here. A fit that fails comes back as ones
with `success` False.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from g_ray.calibration.estimators.estimator import Estimator, suggest_lens
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.media.photos import Photo
from g_ray.media.view import View


class AnyCalibEstimator(Estimator):
    """`radial:2` (fx fy cx cy k1 k2), with fisheye `kb:4` (fx fy cx cy k1 k2 k3 k4), or `pinhole` (fx fy cx cy)."""

    NAME = "anycalib"
    HAS_PINHOLE = True
    INSTALL = "pip install git+https://github.com/javrtg/AnyCalib"

    def estimate(self, photos: Sequence[Photo], report: Callable[[str], None]) -> list[View]:
        model = self.import_package("anycalib").AnyCalib(model_id="anycalib_gen").eval()
        return [self._estimate_photo(model, photo) for photo in photos]

    def _estimate_photo(self, model: Any, photo: Photo) -> View:
        cam_id, lens = ("kb:4", OpenCVFisheye) if self.fisheye else ("radial:2", OpenCV)
        if self.pinhole:
            cam_id, lens = "pinhole", Pinhole
        with torch.inference_mode():
            result = model.predict(photo.load(), cam_id)
        intrinsics = torch.as_tensor(result["intrinsics"]).detach().double().cpu().flatten()
        success = bool(torch.as_tensor(result.get("success", True)).all())
        if not success or bool((intrinsics == 1).all()):
            raise ValueError(f"{photo.path}: AnyCalib could not fit {cam_id} to it; {suggest_lens(self)}")
        names = lens.PARAMETERS[: len(intrinsics)]
        camera = lens.make(
            photo.width,
            photo.height,
            **dict(zip(names, intrinsics.tolist(), strict=True)),
            dtype=torch.float64,
        )
        return self.make_calibrated(photo, camera)
