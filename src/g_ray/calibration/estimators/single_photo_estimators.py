"""Estimators that see one photo at a time, each an adapter to a package that users install themselves."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch

from g_ray.calibration.estimators.estimator import Estimator, suggest_lens
from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.media.photos import Photo
from g_ray.media.view import View

# GeoCalib (Veicht et al. 2024)
#
# Its principal point is the middle of the image by definition, so it is ours, whichever way its grid counts pixels.


class GeoCalibEstimator(Estimator):
    """`simple_radial`; it has no fisheye."""

    NAME = "geocalib"
    INSTALL = "pip install git+https://github.com/cvg/GeoCalib"

    def estimate(self, photos: Sequence[Photo], report: Callable[[str], None]) -> list[View]:
        if self.fisheye:
            raise ValueError("estimate:geocalib has no fisheye model; use estimate:anycalib:fisheye")
        return [self.make_calibrated(photo, self._estimate_camera(photo)) for photo in photos]

    @cached_property
    def network(self) -> Any:
        return self.prepare(self.import_package("geocalib").GeoCalib(weights="distorted"))

    def _estimate_camera(self, photo: Photo) -> Camera:
        with torch.inference_mode():
            image = photo.load().to(self.device)
            camera = self.network.calibrate(image, camera_model="simple_radial")["camera"]
        return _read_camera(camera, photo)


def _read_camera(camera: Any, photo: Photo) -> Camera:
    fx, fy = camera.f.double().flatten().tolist()
    k1 = float(camera.k1.double().flatten()[0])
    middle = {"cx": photo.width / 2, "cy": photo.height / 2}
    return OpenCV.make(photo.width, photo.height, fx=fx, fy=fy, **middle, k1=k1, dtype=torch.float64)


# AnyCalib (Tirado-Garín and Civera 2025)
#
# Parameters are for the image as it is given, with pixel centers at +0.5, as here. A fit that fails comes back as
# ones with `success` False.


class AnyCalibEstimator(Estimator):
    """`radial:2` (fx fy cx cy k1 k2), with fisheye `kb:4` (fx fy cx cy k1 k2 k3 k4), or `pinhole` (fx fy cx cy)."""

    NAME = "anycalib"
    HAS_PINHOLE = True
    INSTALL = "pip install git+https://github.com/javrtg/AnyCalib"

    def estimate(self, photos: Sequence[Photo], report: Callable[[str], None]) -> list[View]:
        return [self._estimate_photo(photo) for photo in photos]

    @cached_property
    def network(self) -> Any:
        return self.prepare(self.import_package("anycalib").AnyCalib(model_id="anycalib_gen"))

    def _estimate_photo(self, photo: Photo) -> View:
        cam_id, lens = ("kb:4", OpenCVFisheye) if self.fisheye else ("radial:2", OpenCV)
        if self.pinhole:
            cam_id, lens = "pinhole", Pinhole
        with torch.inference_mode():
            result = self.network.predict(photo.load().to(self.device), cam_id)
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


# UniK3D (Piccinelli et al. 2025)
#
# Images go in with values from 0 to 255, rays come out at the image's size for pixel centers at +0.5, as here. The
# network ignores what it should use unless it is in eval mode.


class UniK3DEstimator(Estimator):
    """Ray maps know no lens model: a fisheye needs no option."""

    NAME = "unik3d"
    INSTALL = "pip install git+https://github.com/lpiccinelli-eth/UniK3D (weights: non-commercial)"
    WEIGHTS = "lpiccinelli/unik3d-vitl"

    def estimate(self, photos: Sequence[Photo], report: Callable[[str], None]) -> list[View]:
        return [self._estimate_photo(photo) for photo in photos]

    @cached_property
    def network(self) -> Any:
        return self.prepare(self.import_package("unik3d.models").UniK3D.from_pretrained(self.WEIGHTS))

    def _estimate_photo(self, photo: Photo) -> View:
        with torch.inference_mode():
            rays = self.network.infer((photo.load().to(self.device) * 255).round())["rays"]
        rays = rays.reshape(rays.shape[-3:]).movedim(0, -1).detach().float().cpu().clone()
        if rays.shape != (photo.height, photo.width, 3):
            raise ValueError(
                f"{photo.path}: UniK3D gave {rays.shape[1]}×{rays.shape[0]} rays for "
                f"{photo.width}×{photo.height} px; install the version that this adapter knows"
            )
        return self.make_calibrated(photo, RayMapCamera.from_rays(rays))
