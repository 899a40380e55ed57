"""UniK3D (Piccinelli et al. 2025): one image, a ray per pixel.

Images go in with values from 0 to 255, rays come out at the image's size for pixel centres at +0.5, as here. The
network ignores what it should use unless it is in eval mode.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from g_ray.calibration.estimators.estimator import Estimator
from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.media.photos import Photo
from g_ray.media.view import View


class UniK3DEstimator(Estimator):
    """Ray maps know no lens model: a fisheye needs no option."""

    NAME = "unik3d"
    INSTALL = "pip install git+https://github.com/lpiccinelli-eth/UniK3D (weights: non-commercial)"
    WEIGHTS = "lpiccinelli/unik3d-vitl"

    def estimate(self, photos: Sequence[Photo], report: Callable[[str], None]) -> list[View]:
        model = self.import_package("unik3d.models").UniK3D.from_pretrained(self.WEIGHTS).eval()
        return [self._estimate_photo(model, photo) for photo in photos]

    def _estimate_photo(self, model: Any, photo: Photo) -> View:
        with torch.inference_mode():
            rays = model.infer((photo.load() * 255).round())["rays"]
        rays = rays.reshape(rays.shape[-3:]).movedim(0, -1).detach().float().cpu().clone()
        if rays.shape != (photo.height, photo.width, 3):
            raise ValueError(
                f"{photo.path}: UniK3D gave {rays.shape[1]}×{rays.shape[0]} rays for "
                f"{photo.width}×{photo.height} px; install the version that this adapter knows"
            )
        return self.make_calibrated(photo, RayMapCamera.from_rays(rays))
