"""Sources of true depth: stored maps, maps of another lens in the same place, LiDAR points, meshes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.media.depth import Convention, DepthFile, resize_depth
from g_ray.media.view import check_depth_size
from g_ray.rays.ray_map import RayMap
from g_ray_lab.datasets.evaluation_scene import DepthSource, EvaluationFrame, Framing
from g_ray_lab.datasets.image_sources import turn_pixels
from g_ray_lab.meshes.mesh_files import read_meshes

if TYPE_CHECKING:
    from g_ray_lab.meshes.textured_scene import MeshScene


@dataclass(frozen=True)
class StoredDepth(DepthSource):
    """A depth map of the frame itself, looked up at the nearest pixel and turned with its image."""

    file: DepthFile
    turns: int = 0
    limits: tuple[float, float] = (0.0, float("inf"))
    """Depths outside are none."""

    @property
    def convention(self) -> Convention:  # type: ignore[override]
        return self.file.convention

    def sample(self, frame: EvaluationFrame, framing: Framing) -> Float[Tensor, "h w"]:
        depth = turn_pixels(self.file.read(), self.turns)
        check_depth_size(self.file.path, depth, frame.camera)
        size = (frame.camera.width, frame.camera.height)
        near = resize_depth(depth, size, framing.width, framing.height, framing.box)
        low, high = self.limits
        return torch.where((near > low) & (near < high), near, 0)

    def list_files(self) -> tuple[Path, ...]:
        return (self.file.path,)


@dataclass(frozen=True, eq=False)
class WarpedDepth(DepthSource):
    """A map of z-depth through another lens in the same place: each ray takes the nearest stored pixel on it.

    Both cameras have one frame of reference, so that z is the same for both.
    """

    file: DepthFile
    source_camera: Camera
    turns: int = 0
    """Of the frame's camera against the one of the map, clockwise."""
    convention: Convention = field(default="z", init=False)

    def sample(self, frame: EvaluationFrame, framing: Framing) -> Float[Tensor, "h w"]:
        depth = self.file.read()
        size = (self.source_camera.height, self.source_camera.width)
        if tuple(depth.shape) != size:
            raise OSError(
                f"{self.file.path} is {depth.shape[1]}×{depth.shape[0]} px, but its camera takes {size[1]}×{size[0]}"
            )
        rays = RayMap.from_camera(framing.apply(frame.camera))
        directions = turn_back(rays.directions, self.turns)
        pixels, imaged = self.source_camera.project(directions.to(self.source_camera.dtype))
        inside = imaged & rays.valid & self.source_camera.contains(pixels)
        u, v = pixels.floor().long().unbind(-1)
        near = depth[v.clamp(0, size[0] - 1), u.clamp(0, size[1] - 1)]
        return torch.where(inside, near, 0)

    def list_files(self) -> tuple[Path, ...]:
        return (self.file.path,)


def turn_back(directions: Float[Tensor, "*shape 3"], turns: int) -> Float[Tensor, "*shape 3"]:
    """Express rays of a camera that was turned clockwise by quarter turns in the frame before: x = y′, y = −x′."""
    for _ in range(turns % 4):
        x, y, z = directions.unbind(-1)
        directions = torch.stack([y, -x, z], -1)
    return directions


# LiDAR


@dataclass(frozen=True)
class OcclusionWindow:
    """A LiDAR sees points that a camera beside it does not: a point is hidden if another one in the square window
    around it is nearer by more than a share of its z-depth."""

    radius: float = 8 / 1920
    """In widths of the native image."""
    margin: float = 0.05


class SweepReader:
    """Reads sweeps of a LiDAR and keeps the last one: the cameras of a rig follow each other at one instant."""

    def __init__(self, read: Callable[[Path], Float[np.ndarray, "point 3"]]) -> None:
        self._read = read
        self._last: tuple[Path, Float[Tensor, "point 3"]] | None = None

    def load(self, path: Path) -> Float[Tensor, "point 3"]:
        """Return points in the world, float64."""
        if self._last is None or self._last[0] != path:
            self._last = path, torch.from_numpy(self._read(path)).double()
        return self._last[1]


@dataclass(frozen=True, eq=False)
class PointsDepth(DepthSource):
    """z-depth of points in the world, the nearest in every pixel; sparse."""

    path: Path
    reader: SweepReader
    window: OcclusionWindow
    convention: Convention = field(default="z", init=False)

    def sample(self, frame: EvaluationFrame, framing: Framing) -> Float[Tensor, "h w"]:
        local = frame.get_pose().inverse().apply(self.reader.load(self.path))
        visible = find_unhidden(frame.camera, local, self.window)
        return splat_depth(framing.apply(frame.camera), local[visible])

    def list_files(self) -> tuple[Path, ...]:
        return (self.path,)


def splat_depth(camera: Camera, points: Float[Tensor, "point 3"]) -> Float[Tensor, "h w"]:
    """Return z of the nearest camera-frame point in every pixel, 0 in pixels without any."""
    place, keep = _locate_points(camera, points)
    nearest = points.new_full((camera.height * camera.width,), torch.inf)
    nearest.scatter_reduce_(0, place[keep], points[keep, 2], "amin")
    return torch.where(torch.isfinite(nearest), nearest, 0).reshape(camera.height, camera.width)


def find_unhidden(
    camera: Camera, points: Float[Tensor, "point 3"], window: OcclusionWindow
) -> Bool[Tensor, "point"]:
    """Return which points are imaged and have no much nearer one in the window around them."""
    place, keep = _locate_points(camera, points)
    nearest = splat_depth(camera, points)
    # A maximum filter of −z, rows then columns, is the minimum of z over the square window.
    inverted = torch.where(nearest > 0, -nearest, -torch.inf)[None, None].float()
    pad = max(1, round(window.radius * camera.width))
    size = 2 * pad + 1
    for kernel, padding in (((1, size), (0, pad)), ((size, 1), (pad, 0))):
        inverted = torch.nn.functional.max_pool2d(inverted, kernel, 1, padding)
    front = -inverted.flatten()[place.clamp(0, inverted.numel() - 1)]
    return keep & (points[:, 2] <= (1 + window.margin) * front)


def _locate_points(camera: Camera, points: Tensor) -> tuple[Tensor, Tensor]:
    """Return the flat pixel index of points, and which of them lie in front of the camera and in its image."""
    pixels, imaged = camera.project(points)
    column, row = pixels.floor().long().unbind(-1)
    inside = (column >= 0) & (column < camera.width) & (row >= 0) & (row < camera.height)
    return row * camera.width + column, imaged & inside & (points[:, 2] > 0)


# Meshes


class MeshSurface:
    """A mesh on disk, prepared for rays when it is first cast at; the frames of a scene share it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def scene(self) -> "MeshScene":
        try:
            from g_ray_lab.meshes.textured_scene import MeshScene
        except ImportError:
            raise ValueError(
                f"{self.path}: casting at meshes needs embree; pip install 'g-ray[render]'"
            ) from None
        if not self.path.is_file():
            raise OSError(f"{self.path}: no such mesh; download the scans of the scene")
        return MeshScene(read_meshes(self.path, up="z"), light=False)


@dataclass(frozen=True, eq=False)
class MeshDepth(DepthSource):
    """Distance to the first triangle of a mesh along the true ray of every pixel, for any lens."""

    surface: MeshSurface
    convention: Convention = field(default="ray", init=False)

    def sample(self, frame: EvaluationFrame, framing: Framing) -> Float[Tensor, "h w"]:
        rays = RayMap.from_camera(framing.apply(frame.camera))
        pose = frame.get_pose().to(torch.float64)
        directions = pose.rotate(rays.directions.double()).reshape(-1, 3)
        hits = self.surface.scene.cast(pose.translation.numpy(), directions.float().numpy())
        depth = torch.zeros(rays.valid.numel())
        depth[torch.from_numpy(hits.ray)] = torch.from_numpy(hits.distance)
        return depth.reshape(rays.shape) * rays.valid

    def list_files(self) -> tuple[Path, ...]:
        return (self.surface.path,)
