"""G-ray: any camera becomes rays, rays become angles, angles become rotary phases.

Names are imported when first used, so that `import g_ray` (and `g-ray --help`) does not import torch.
"""

from typing import TYPE_CHECKING

from g_ray.runtime import make_getattr

__version__ = "0.1.0"

if TYPE_CHECKING:
    from g_ray.cameras import CAMERAS as CAMERAS
    from g_ray.cameras import EUCM as EUCM
    from g_ray.cameras import UCM as UCM
    from g_ray.cameras import Camera as Camera
    from g_ray.cameras import DoubleSphere as DoubleSphere
    from g_ray.cameras import Equirectangular as Equirectangular
    from g_ray.cameras import Fisheye624 as Fisheye624
    from g_ray.cameras import OpenCV as OpenCV
    from g_ray.cameras import OpenCVFisheye as OpenCVFisheye
    from g_ray.cameras import Pinhole as Pinhole
    from g_ray.cameras import RayMapCamera as RayMapCamera
    from g_ray.cameras import ThinPrismFisheye as ThinPrismFisheye
    from g_ray.coordinates import COORDINATES as COORDINATES
    from g_ray.coordinates import compute_position_ids as compute_position_ids
    from g_ray.coordinates import match_offset as match_offset
    from g_ray.coordinates import match_scale as match_scale
    from g_ray.coordinates import tangent as tangent
    from g_ray.encodings import ENCODINGS as ENCODINGS
    from g_ray.encodings import encoding as encoding
    from g_ray.formats import read_scene as read_scene
    from g_ray.geometry.pose import Pose as Pose
    from g_ray.geometry.pose import normalize_poses as normalize_poses
    from g_ray.hosts import HOSTS as HOSTS
    from g_ray.hosts import adapt as adapt
    from g_ray.nn.attention import attention as attention
    from g_ray.rays.ray_map import RayMap as RayMap
    from g_ray.rays.views import Views as Views
    from g_ray.reconstruction.reconstruct import Reconstruction as Reconstruction
    from g_ray.reconstruction.reconstruct import reconstruct as reconstruct

_HOME = {
    "CAMERAS": "g_ray.cameras",
    "COORDINATES": "g_ray.coordinates",
    "Camera": "g_ray.cameras",
    "DoubleSphere": "g_ray.cameras",
    "ENCODINGS": "g_ray.encodings",
    "EUCM": "g_ray.cameras",
    "Equirectangular": "g_ray.cameras",
    "Fisheye624": "g_ray.cameras",
    "HOSTS": "g_ray.hosts",
    "OpenCV": "g_ray.cameras",
    "OpenCVFisheye": "g_ray.cameras",
    "Pinhole": "g_ray.cameras",
    "Pose": "g_ray.geometry.pose",
    "RayMap": "g_ray.rays.ray_map",
    "RayMapCamera": "g_ray.cameras",
    "Reconstruction": "g_ray.reconstruction.reconstruct",
    "ThinPrismFisheye": "g_ray.cameras",
    "UCM": "g_ray.cameras",
    "Views": "g_ray.rays.views",
    "adapt": "g_ray.hosts",
    "attention": "g_ray.nn.attention",
    "compute_position_ids": "g_ray.coordinates",
    "encoding": "g_ray.encodings",
    "match_offset": "g_ray.coordinates",
    "match_scale": "g_ray.coordinates",
    "normalize_poses": "g_ray.geometry.pose",
    "read_scene": "g_ray.formats",
    "reconstruct": "g_ray.reconstruction.reconstruct",
    "tangent": "g_ray.coordinates",
}

__all__ = ["__version__", *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]

if not TYPE_CHECKING:
    __getattr__ = make_getattr(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
