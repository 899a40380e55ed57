"""Camera models, one file each. A new model is a new line in CAMERAS; the conformance tests then include
it."""

from g_ray.cameras.base import Camera, pixel_centers
from g_ray.cameras.double_sphere import DoubleSphere
from g_ray.cameras.equirectangular import Equirectangular
from g_ray.cameras.eucm import EUCM
from g_ray.cameras.field_of_view import FieldOfView
from g_ray.cameras.fisheye624 import Fisheye624
from g_ray.cameras.opencv import OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.cameras.thin_prism_fisheye import ThinPrismFisheye
from g_ray.cameras.ucm import UCM

CAMERAS: dict[str, type[Camera]] = {
    "pinhole": Pinhole,
    "opencv": OpenCV,
    "opencv_fisheye": OpenCVFisheye,
    "thin_prism_fisheye": ThinPrismFisheye,
    "fisheye624": Fisheye624,
    "ucm": UCM,
    "eucm": EUCM,
    "double_sphere": DoubleSphere,
    "equirectangular": Equirectangular,
    "ray_map": RayMapCamera,
}

__all__ = [
    "CAMERAS",
    "EUCM",
    "UCM",
    "Camera",
    "DoubleSphere",
    "Equirectangular",
    "FieldOfView",
    "Fisheye624",
    "OpenCV",
    "OpenCVFisheye",
    "Pinhole",
    "RayMapCamera",
    "ThinPrismFisheye",
    "pixel_centers",
]
