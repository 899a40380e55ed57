"""Camera models, one file each. A new model is a file, its import and a line in CAMERAS; the conformance tests, the
files of cameras and the tables of the documentation then include it."""

from g_ray.cameras.camera import Camera as Camera
from g_ray.cameras.division import Division as Division
from g_ray.cameras.double_sphere import DoubleSphere as DoubleSphere
from g_ray.cameras.equirectangular import Equirectangular as Equirectangular
from g_ray.cameras.eucm import EUCM as EUCM
from g_ray.cameras.field_of_view import FieldOfView as FieldOfView
from g_ray.cameras.fisheye624 import Fisheye624 as Fisheye624
from g_ray.cameras.fov import FOV as FOV
from g_ray.cameras.ocam import OCam as OCam
from g_ray.cameras.opencv import OpenCV as OpenCV
from g_ray.cameras.opencv_fisheye import OpenCVFisheye as OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole as Pinhole
from g_ray.cameras.ray_grid import pixel_centers as pixel_centers
from g_ray.cameras.ray_map_camera import RayMapCamera as RayMapCamera
from g_ray.cameras.thin_prism_fisheye import ThinPrismFisheye as ThinPrismFisheye
from g_ray.cameras.ucm import UCM as UCM

CAMERAS: dict[str, type[Camera]] = {
    "pinhole": Pinhole,
    "opencv": OpenCV,
    "opencv_fisheye": OpenCVFisheye,
    "thin_prism_fisheye": ThinPrismFisheye,
    "fisheye624": Fisheye624,
    "ucm": UCM,
    "eucm": EUCM,
    "double_sphere": DoubleSphere,
    "ocam": OCam,
    "fov": FOV,
    "division": Division,
    "equirectangular": Equirectangular,
    "ray_map": RayMapCamera,
}
