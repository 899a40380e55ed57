"""Mei's unified sphere model with radial-tangential distortion, as Kalibr (omni), cv2.omnidir, CamOdoCal and KITTI-360
have it.

A point on the unit sphere is moved by ξ along the axis, (x, y) / (z + ξ), distorted by k1 k2 p1 p2 as in OpenCV, and
scaled by γ: u = γx x' + cx. Without distortion it is the UCM with α = ξ / (1 + ξ) and f = γ / (1 + ξ).
"""

from collections.abc import Callable, Sequence

import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.distortion import PlanarDistortion
from g_ray.cameras.ray_grid import pixel_centers
from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.cameras.ucm import UCM

MAX_TABLE = 1 << 28
"""Pixels of the largest image for which a ray per pixel is computed."""


def make_mei_builder(
    affine: dict[str, float], xi: float, distortion: Sequence[float]
) -> Callable[[int, int], Camera]:
    """Return a function that makes the camera for a width and a height.

    `affine` has γx, γy as fx, fy, and cx, cy with our pixel convention; `distortion` is k1 k2 p1 p2, or empty.
    """
    if not -1 < xi <= 100:
        raise ValueError(f"xi = {xi:g} is no unified camera: it must be above -1 (0: perspective)")
    if xi >= 0 and not any(distortion):
        values = {
            **affine,
            "fx": affine["fx"] / (1 + xi),
            "fy": affine["fy"] / (1 + xi),
            "alpha": xi / (1 + xi),
        }
        return lambda width, height: UCM.make(width, height, dtype=torch.float64, **values)
    return lambda width, height: _tabulate_rays(width, height, affine, xi, distortion)


def _tabulate_rays(
    width: int, height: int, affine: dict[str, float], xi: float, distortion: Sequence[float]
) -> Camera:
    """Compute one ray per pixel: no camera here has ξ below 0, or both ξ and distortion."""
    if width * height > MAX_TABLE:
        raise ValueError(
            f"a ray for each pixel of {width}×{height} needs too much memory: use smaller photographs"
        )
    fx, fy, cx, cy = (affine[name] for name in ("fx", "fy", "cx", "cy"))
    if min(fx, fy) <= 0:
        raise ValueError(f"focal lengths {fx:g} and {fy:g} must be positive")
    pixels = pixel_centers(width, height, dtype=torch.float64)
    plane = (pixels - pixels.new_tensor([cx, cy])) / pixels.new_tensor([fx, fy])
    k1, k2, p1, p2 = distortion or (0.0, 0.0, 0.0, 0.0)
    zero = torch.zeros(4, dtype=torch.float64)
    model = PlanarDistortion(zero.new_tensor([k1, k2]), zero[:1], zero.new_tensor([p1, p2]), zero)
    flat, valid = model.invert(plane, model.compute_limit())
    square = flat.square().sum(-1)
    inside = 1 + (1 - xi * xi) * square
    factor = (xi + inside.clamp_min(0).sqrt()) / (square + 1)
    rays = torch.cat([flat * factor[..., None], (factor - xi)[..., None]], -1)
    return RayMapCamera.from_rays(rays.float(), valid & (inside >= 0))
