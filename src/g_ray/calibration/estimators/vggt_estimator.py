"""VGGT (Wang et al. 2025): pinholes and poses of a whole set, by our own implementation of the network.

Focal lengths come as fields of view of the network's input; the principal point is the middle by definition. The first
photo is the world.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import groupby
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from g_ray.calibration.estimators.estimator import Estimator
from g_ray.cameras.pinhole import Pinhole
from g_ray.media.photos import Photo
from g_ray.media.view import View
from g_ray.models.vggt import EncodedCameras, load_vggt

LONGER, PATCH = 518, 14


class VGGTEstimator(Estimator):
    """Photos of one size go through the network together; poses are kept if all have one size."""

    NAME = "vggt"
    INSTALL = "pip install 'g-ray[hub]' to download the weights"
    WEIGHTS = "facebook/VGGT-1B"

    @cached_property
    def network(self) -> Any:
        return self.prepare(load_vggt(self.WEIGHTS))

    def estimate(self, photos: Sequence[Photo], report: Callable[[str], None]) -> list[View]:
        if self.fisheye:
            raise ValueError(
                "estimate:vggt knows pinholes only; use estimate:anycalib:fisheye or estimate:unik3d"
            )
        ordered = sorted(photos, key=_compute_size)
        groups = [list(group) for _, group in groupby(ordered, key=_compute_size)]
        if len(groups) > 1:
            report(
                f"estimate:vggt: photos of {len(groups)} sizes, so their poses are not in one world and not used"
            )
        views = []
        for group in groups:
            images = torch.stack([_prepare_input(photo) for photo in group])
            with torch.inference_mode():
                cameras = EncodedCameras(self.network(images[None].to(self.device)).cameras.code[0].cpu())
            intrinsics = cameras.compute_intrinsics(images.shape[-1], images.shape[-2])
            network_size = (images.shape[-1], images.shape[-2])
            for i, photo in enumerate(group):
                pose = cameras.poses[i].to(torch.float64) if len(groups) == 1 else None
                camera = _convert_camera(intrinsics[i], network_size, photo)
                views.append(self.make_calibrated(photo, camera, pose))
        return views


def _compute_size(photo: Photo) -> tuple[int, int]:
    return photo.width, photo.height


def _prepare_input(photo: Photo) -> Tensor:
    """Resize the whole photo to a longer side of 518 px, both sides multiples of the patch."""
    scale = LONGER / max(photo.width, photo.height)
    sides = [max(PATCH, round(side * scale / PATCH) * PATCH) for side in (photo.height, photo.width)]
    return interpolate(photo.load()[None], sides, mode="bilinear", antialias=True)[0]


def _convert_camera(k: Tensor, network_size: tuple[int, int], photo: Photo) -> Pinhole:
    """Convert intrinsics to a camera of the photo; each axis is scaled back by its own factor."""
    width, height = network_size
    fx, fy = float(k[0, 0]), float(k[1, 1])
    if not (fx > 0 and fy > 0 and isfinite(fx) and isfinite(fy)):
        raise ValueError(
            f"{photo.name}: estimate:vggt found no focal length ({fx:g}, {fy:g} px): give one another way"
        )
    middle = {"cx": width / 2, "cy": height / 2}
    camera = Pinhole.make(width, height, fx=fx, fy=fy, **middle, dtype=torch.float64)
    return camera.resize(photo.width, photo.height)
