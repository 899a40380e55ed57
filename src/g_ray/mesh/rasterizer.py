"""Draw triangles: which pixels they cover, and the distance along rays of any lens to the first of them."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose
from g_ray.mesh.surface_mesh import SurfaceMesh

CANDIDATES = 1 << 21
"""Pixels of bounding boxes that are tried at once."""
WIDEST = 0.3
"""Triangles that cover more of the image's width are skipped: they cross the back of a panorama."""
INSIDE = -1e-6


@dataclass(frozen=True, eq=False)
class Covered:
    """Pixels whose center lies in a triangle; one pixel may lie in many."""

    pixel: Int[Tensor, "n"]
    """row · width + column"""
    face: Int[Tensor, "n"]
    weights: Float[Tensor, "n 3"]
    """Barycentric, of the triangle's corners."""


def rasterize(corners: Float[Tensor, "face 3 2"], width: int, height: int) -> Iterator[Covered]:
    """Yield the pixels that triangles cover, in parts; corners are u, v from the top-left corner."""
    low = (corners.amin(1) - 0.5).ceil().clamp_min(0).long()
    limit = torch.tensor([width - 1, height - 1])
    high = torch.minimum((corners.amax(1) - 0.5).floor().long(), limit)
    extent = (high - low + 1).clamp_min(0)
    count = extent.prod(1)
    faces = count.nonzero()[:, 0]
    end = count[faces].cumsum(0)
    start = 0
    while start < len(faces):
        before = int(end[start - 1]) if start else 0
        stop = max(start + 1, int(torch.searchsorted(end, before + CANDIDATES)))
        part = faces[start:stop]
        yield _cover(corners, part, low[part], extent[part], width)
        start = stop


def _cover(corners: Tensor, faces: Tensor, low: Tensor, extent: Tensor, width: int) -> Covered:
    """Test all pixels of the bounding boxes of some faces."""
    count = extent.prod(1)
    which = torch.repeat_interleave(torch.arange(len(faces)), count)
    number = torch.arange(len(which)) - (count.cumsum(0) - count)[which]
    across = extent[which, 0]
    row = low[which, 1] + number // across
    column = low[which, 0] + number % across
    a, b, c = corners[faces].unbind(1)
    (x1, y1), (x2, y2) = (b - a).unbind(-1), (c - a).unbind(-1)
    area = x1 * y2 - x2 * y1
    scale = torch.where(area.abs() > 1e-12, 1 / area, 0.0)[which]
    x, y = column + 0.5 - a[which, 0], row + 0.5 - a[which, 1]
    second = (x * y2[which] - y * x2[which]) * scale
    third = (y * x1[which] - x * y1[which]) * scale
    inside = (second >= INSIDE) & (third >= INSIDE) & (second + third <= 1 - INSIDE) & (scale != 0)
    second, third = second[inside], third[inside]
    weights = torch.stack([1 - second - third, second, third], -1)
    return Covered((row * width + column)[inside], faces[which[inside]], weights)


@dataclass(frozen=True, eq=False)
class DepthBuffer:
    """What a camera sees of a mesh at every pixel."""

    distance: Float[Tensor, "h w"]
    """Along the ray; infinite where there is nothing."""
    face: Int[Tensor, "h w"]
    """−1 where there is nothing."""
    weights: Float[Tensor, "h w 3"]


def render_depth(mesh: SurfaceMesh, camera: Camera, pose: Pose) -> DepthBuffer:
    """Render the first triangle at every pixel. Edges are drawn straight: triangles should be small (a few degrees)."""
    camera = camera.to(torch.float32)
    local = move_to_camera(torch.from_numpy(mesh.vertices), pose)
    pixels, imaged = camera.project(local)
    faces = torch.from_numpy(mesh.faces).long()
    corners = pixels[faces]
    width, height = camera.width, camera.height
    drawable = imaged[faces].all(1) & (corners[..., 0].amax(1) - corners[..., 0].amin(1) < WIDEST * width)
    faces, corners, number = faces[drawable], corners[drawable], drawable.nonzero()[:, 0]
    distance = torch.full((height * width,), torch.inf)
    face = torch.full((height * width,), -1)
    weights = torch.zeros(height * width, 3)
    for part in rasterize(corners, width, height):
        points = (local[faces[part.face]] * part.weights[..., None]).sum(1)
        along = points.norm(dim=-1)
        distance.scatter_reduce_(0, part.pixel, along, "amin")
        first = along == distance[part.pixel]
        face[part.pixel[first]] = number[part.face[first]]
        weights[part.pixel[first]] = part.weights[first]
    shape = (height, width)
    return DepthBuffer(distance.reshape(shape), face.reshape(shape), weights.reshape(*shape, 3))


def move_to_camera(points: Float[Tensor, "n 3"], pose: Pose) -> Float[Tensor, "n 3"]:
    """Return world points in a camera's frame, float32; differences are taken in float64."""
    pose = pose.to(torch.float64)
    return ((points.double() - pose.translation) @ pose.rotation).float()


def sample_map(
    values: Float[Tensor, "channel h w"], places: Float[Tensor, "n 2"]
) -> Float[Tensor, "n channel"]:
    """Interpolate maps at places in [0, 1]² from their top-left corner; at the border the last pixel repeats."""
    grid = (2 * places - 1)[None, None]
    sampled = torch.nn.functional.grid_sample(
        values[None], grid.to(values), padding_mode="border", align_corners=False
    )
    return sampled[0, :, 0].mT
