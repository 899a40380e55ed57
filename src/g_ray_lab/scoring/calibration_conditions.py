"""Wrong calibrations of correct images (paper, tab:intrinsic_noise).

A perturbation takes the cameras of a set, one per view and each single or batched over sets, and returns wrong ones.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.pinhole import Pinhole
from g_ray.cameras.ray_map_camera import RayMapCamera

Perturbation = Callable[[Sequence[Camera]], list[Camera]]

CENTER_SHIFT = 0.05
"""Share of the image's width and height."""
DISTORTION = 0.1
"""Added to the first radial coefficient: of a pinhole 10 % of the distance from the center at 45°."""


def scale_focal(cameras: Sequence[Camera], factor: float) -> list[Camera]:
    """Multiply fx and fy; the principal point stays."""
    return [_change(camera, scale=(factor, factor, 1.0, 1.0)) for camera in cameras]


def shift_center(cameras: Sequence[Camera], share: float) -> list[Camera]:
    """Move the principal point to the right and down by a share of the image."""
    return [
        _change(camera, shift=(0.0, 0.0, share * camera.width, share * camera.height)) for camera in cameras
    ]


def distort(cameras: Sequence[Camera], amount: float) -> list[Camera]:
    """Add to the first radial coefficient k1; a pinhole becomes a lens with that coefficient."""
    return [_distort(camera, amount) for camera in cameras]


def shuffle(cameras: Sequence[Camera]) -> list[Camera]:
    """Give every view the camera of the next one, and the last that of the first."""
    sizes = {(camera.width, camera.height) for camera in cameras}
    if len(sizes) > 1:
        raise ValueError(f"images of {len(sizes)} sizes cannot exchange their cameras: use sets of one size")
    return [*cameras[1:], cameras[0]]


CORRECT = "correct"
CONDITIONS: dict[str, Perturbation] = {
    CORRECT: list,
    "focal +5 %": partial(scale_focal, factor=1.05),
    "focal +10 %": partial(scale_focal, factor=1.10),
    "focal +20 %": partial(scale_focal, factor=1.20),
    "center +5 %": partial(shift_center, share=CENTER_SHIFT),
    "k1 +0.1": partial(distort, amount=DISTORTION),
    "shuffled": shuffle,
}
"""The five of the paper, and wrong principal points and distortions."""


def _change(
    camera: Camera,
    scale: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0),
    shift: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0),
) -> Camera:
    """Scale and shift fx, fy, cx and cy. A circle of valid pixels stays: the image does not change."""
    if isinstance(camera, RayMapCamera):
        raise ValueError(
            "a table of rays has no focal length to change: use sets whose views share a camera model"
        )
    params = camera.params.clone()
    params[..., :4] = params[..., :4] * params.new_tensor(scale) + params.new_tensor(shift)
    return dataclasses.replace(camera, params=params, check=False)


def _distort(camera: Camera, amount: float) -> Camera:
    if isinstance(camera, Pinhole):
        if bool((camera.parameter("skew") != 0).any()):
            raise ValueError("a pinhole with skew has no counterpart with distortion: use one without")
        names = {name: camera.parameter(name) for name in ("fx", "fy", "cx", "cy")}
        lens = OpenCV.make(camera.width, camera.height, **names, k1=torch.full_like(names["fx"], amount))
        return lens if camera.circle is None else dataclasses.replace(lens, circle=camera.circle, check=False)
    if "k1" not in camera.PARAMETERS:
        raise ValueError(f"{camera.NAME} has no coefficient k1 to change: use pinholes or lenses with one")
    params = camera.params.clone()
    params[..., camera.PARAMETERS.index("k1")] += amount
    return dataclasses.replace(camera, params=params, check=False)
