"""Draw viewing frusta as lines along the rays of the image's border, so that the frustum of a fisheye is curved."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.export.points import PointCloud
from g_ray.export.result import Reconstruction
from g_ray.geometry.pose import Pose

PER_SIDE = 12
"""Samples along each side of the image."""
FLAT_DEG = 60.0
"""Cameras whose border is nearer to the axis than this are drawn with a flat image, as is usual."""
INWARD = 65
"""Steps from the border to the middle, in search of valid rays."""
SIZE = 0.12
"""Size of a frustum, in median depths of the scene."""


@dataclass(frozen=True)
class Frustum:
    """Line strips in the world. The outline is closed, and its corners are connected with the center."""

    center: Float[Tensor, "3"]
    outline: Float[Tensor, "n 3"]
    corners: tuple[int, ...]
    """Indices into the outline: top left, top right, bottom right, bottom left."""
    ribs: tuple[Float[Tensor, "m 3"], ...]
    """Middle row and middle column of a wide camera, which show how it bends."""

    def segments(self) -> Float[Tensor, "s 2 3"]:
        """Return all lines as pairs of ends."""
        closed = torch.stack([self.outline, self.outline.roll(-1, 0)], 1)
        spokes = torch.stack([self.center.expand(4, 3), self.outline[list(self.corners)]], 1)
        ribs = [torch.stack([rib[:-1], rib[1:]], 1) for rib in self.ribs]
        return torch.cat([closed, spokes, *ribs])


def build_frustum(camera: Camera, pose: Pose, size: float) -> Frustum:
    """Build a frustum; `size` is the distance of its image: along the axis if it is flat, along rays if curved."""
    camera, pose = camera.to(torch.float64), pose.to(torch.float64)
    outline = _find_outermost_rays(camera, _make_border(camera))
    flat = bool((outline[:, 2] > np.cos(np.deg2rad(FLAT_DEG))).all())
    ribs = () if flat else tuple(_find_outermost_rays(camera, line) for line in _make_middle_lines(camera))
    scale = size / outline[:, 2:] if flat else size

    def place_rays(rays: Tensor) -> Tensor:
        return rays @ pose.rotation.mT + pose.translation

    corners = tuple(PER_SIDE * side for side in range(4))
    return Frustum(
        pose.translation, place_rays(outline * scale), corners, tuple(place_rays(rib * size) for rib in ribs)
    )


def choose_frustum_size(reconstruction: Reconstruction, cloud: PointCloud) -> float:
    """Choose the size of frusta: a share of the median distance of points from their camera."""
    return SIZE * measure_distance(reconstruction, cloud)


def measure_distance(reconstruction: Reconstruction, cloud: PointCloud) -> float:
    """Return the median distance of points from their camera; without points, the extent of the cameras."""
    centers = np.stack([pose.translation.double().numpy(force=True) for pose in reconstruction.poses()])
    if not len(cloud):
        return float(np.linalg.norm(np.ptp(centers, axis=0))) or 1.0
    return float(np.median(np.linalg.norm(cloud.positions - centers[cloud.view], axis=1)))


def _make_border(camera: Camera) -> Float[Tensor, "n 2"]:
    """Return pixels along the border, clockwise from the top left corner."""
    at = torch.arange(PER_SIDE, dtype=torch.float64) / PER_SIDE
    zero, one = torch.zeros_like(at), torch.ones_like(at)
    u = torch.cat([at, one, 1 - at, zero]) * camera.width
    v = torch.cat([zero, at, one, 1 - at]) * camera.height
    return torch.stack([u, v], -1)


def _make_middle_lines(camera: Camera) -> tuple[Float[Tensor, "n 2"], Float[Tensor, "n 2"]]:
    at = torch.linspace(0, 1, 4 * PER_SIDE + 1, dtype=torch.float64)
    half = torch.full_like(at, 0.5)
    size = at.new_tensor([camera.width, camera.height])
    return torch.stack([at, half], -1) * size, torch.stack([half, at], -1) * size


def _find_outermost_rays(camera: Camera, pixels: Float[Tensor, "n 2"]) -> Float[Tensor, "n 3"]:
    """Return rays of pixels; where a pixel has none, that of the first valid pixel on the way to the middle."""
    middle = pixels.new_tensor([camera.width / 2, camera.height / 2])
    inward = torch.linspace(0, 1, INWARD, dtype=pixels.dtype)[:, None, None]
    rays, valid = camera.unproject(pixels + (middle - pixels) * inward)
    first = valid.to(torch.uint8).argmax(0)
    return rays[first, torch.arange(len(pixels))]
