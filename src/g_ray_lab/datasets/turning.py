"""Cameras of photographs that were stored sideways, turned upright with them."""

from collections.abc import Callable

import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.pinhole import Pinhole
from g_ray.cameras.thin_prism_fisheye import ThinPrismFisheye
from g_ray.geometry.pose import Pose

Values = dict[str, float]

# A quarter turn clockwise maps pixel (u, v) of a W×H image to (H − v, u), and the camera's axes to x′ = −y, y′ = x.
# Radial terms stay; tangential and thin-prism terms go with the axes: p1′ = p2, p2′ = −p1, s_x′ = −s_y, s_y′ = s_x.
_DISTORTION: dict[type[Camera], Callable[[Values], Values]] = {
    Pinhole: lambda old: {},
    OpenCV: lambda old: {
        "p1": old["p2"],
        "p2": -old["p1"],
        "s1": -old["s3"],
        "s2": -old["s4"],
        "s3": old["s1"],
        "s4": old["s2"],
    },
    ThinPrismFisheye: lambda old: {
        "p1": old["p2"],
        "p2": -old["p1"],
        "sx1": -old["sy1"],
        "sy1": old["sx1"],
    },
}


def turn_camera(camera: Camera, turns: int) -> Camera:
    """Return the camera of an image that is turned clockwise by quarter turns; ValueError for an unknown lens."""
    if type(camera) not in _DISTORTION:
        raise ValueError(
            f"camera model {camera.NAME} cannot be turned; known are pinhole, opencv, thin_prism_fisheye"
        )
    if isinstance(camera, Pinhole) and turns % 2 and bool((camera.parameter("skew") != 0).any()):
        raise ValueError("a pinhole with skew has none that is turned by a quarter")
    for _ in range(turns % 4):
        old = dict(zip(camera.PARAMETERS, camera.params.tolist(), strict=True))
        affine = {"fx": old["fy"], "fy": old["fx"], "cx": camera.height - old["cy"], "cy": old["cx"]}
        new = {**old, **affine, **_DISTORTION[type(camera)](old)}
        camera = type(camera).make(camera.height, camera.width, dtype=camera.dtype, **new)
    return camera


def turn_pose(pose: Pose, turns: int) -> Pose:
    """Return the pose of a camera that is turned clockwise by quarter turns about its optical axis."""
    old_from_new = torch.tensor([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=pose.dtype)
    turn = torch.linalg.matrix_power(old_from_new, turns % 4)
    return Pose.from_parts(pose.rotation @ turn, pose.translation)
