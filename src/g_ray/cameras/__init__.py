"""Camera models, one file each. A new model is a new line in CAMERAS; the conformance tests then include
it."""

from g_ray.cameras.base import Camera, pixel_centres
from g_ray.cameras.fov import FieldOfView
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole

CAMERAS: dict[str, type[Camera]] = {
    "pinhole": Pinhole,
    "opencv_fisheye": OpenCVFisheye,
}

__all__ = ["CAMERAS", "Camera", "FieldOfView", "OpenCVFisheye", "Pinhole", "pixel_centres"]
