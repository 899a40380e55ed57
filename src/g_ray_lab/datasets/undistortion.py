"""Pinholes that photographs of other lenses are undistorted to."""

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.pinhole import Pinhole

BORDER_SAMPLES = 256
"""Per side of an image: distortion is smooth."""


def choose_benchmark_pinhole(camera: Camera) -> Pinhole:
    """Choose ScanNet++'s pinhole for its DSLR fisheye: same size, principal point in the middle.

    The focal length is that of OpenCV's `fisheye.estimateNewCameraMatrixForUndistortRectify` with balance 0: the rays
    through the middles of the four sides are undistorted, and the side that is nearest to their mean decides.
    """
    width, height = camera.width, camera.height
    middles = torch.tensor(
        [[width / 2, 0.0], [width, height / 2], [width / 2, height], [0.0, height / 2]], dtype=camera.dtype
    )
    plane = _undistort(camera, middles)
    # OpenCV scales y to square pixels before it compares.
    aspect = float(camera.parameter("fx") / camera.parameter("fy"))
    x, y = plane[:, 0], plane[:, 1] * aspect
    across, down = width / 2, height / 2 * aspect
    cx, cy = x.mean(), y.mean()
    candidates = (
        across / (cx - x.min()),
        across / (x.max() - cx),
        down / (cy - y.min()),
        down / (y.max() - cy),
    )
    focal = float(torch.stack(candidates).max())
    return Pinhole.make(
        width, height, fx=focal, fy=focal / aspect, cx=width / 2, cy=height / 2, dtype=camera.dtype
    )


def choose_inner_pinhole(camera: Camera) -> Pinhole:
    """Choose the widest centered pinhole of the same size and pixel shape all of whose pixels lie in the photograph."""
    width, height = camera.width, camera.height
    steps = torch.linspace(0, 1, BORDER_SAMPLES, dtype=camera.dtype)
    sides = {
        "left": torch.stack([torch.zeros_like(steps), steps * height], -1),
        "right": torch.stack([torch.full_like(steps, width), steps * height], -1),
        "top": torch.stack([steps * width, torch.zeros_like(steps)], -1),
        "bottom": torch.stack([steps * width, torch.full_like(steps, height)], -1),
    }
    plane = {side: _undistort(camera, pixels) for side, pixels in sides.items()}
    # The largest upright rectangle around the axis that no side of the photograph enters.
    across = min(float((-plane["left"][:, 0]).min()), float(plane["right"][:, 0].min()))
    down = min(float((-plane["top"][:, 1]).min()), float(plane["bottom"][:, 1].min()))
    if min(across, down) <= 0:
        raise ValueError(f"a {camera.NAME} camera of {width}×{height} px has no pinhole inside its image")
    aspect = float(camera.parameter("fx") / camera.parameter("fy"))
    focal = max(width / 2 / across, height / 2 / down * aspect)
    return Pinhole.make(
        width, height, fx=focal, fy=focal / aspect, cx=width / 2, cy=height / 2, dtype=camera.dtype
    )


def _undistort(camera: Camera, pixels: Float[Tensor, "pixel 2"]) -> Float[Tensor, "pixel 2"]:
    rays, valid = camera.unproject(pixels)
    if not bool((valid & (rays[:, 2] > 0)).all()):
        raise ValueError(f"a {camera.NAME} camera sees 180° or more: no pinhole has its border")
    return rays[:, :2] / rays[:, 2:]
