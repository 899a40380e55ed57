"""The room that miniatures show: boxes only, so that its mesh is exact, with photographs along a path."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import pi
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8, UInt16
from PIL import Image
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.demo.room import Room, make_random_room
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray.runtime.files import atomic_path, write_atomically

EYE_HEIGHT_M = -0.35
"""Above all furniture; y is down."""


@dataclass(frozen=True)
class MiniatureSize:
    """Size of a miniature. Datasets with a fixed image size ignore `width`."""

    scenes: int = 1
    frames: int = 6
    """Per scene and device; of rigs, instants."""
    width: int = 96
    seed: int = 0
    fine: bool = False
    """Textures and shadows for stereo, instead of smooth colors for networks of a few dozen pixels."""

    def make_room(self, scene: int) -> Room:
        """Make the room of a scene."""
        return make_box_room(self.seed + 1000 * scene, fine=self.fine)


@dataclass(frozen=True, eq=False)
class Shot:
    """A photograph of a room with exact depth."""

    camera: Camera
    pose: Pose
    pixels: UInt8[np.ndarray, "h w 3"]
    z_depth: Float[np.ndarray, "h w"]
    ray_depth: Float[np.ndarray, "h w"]
    """Both depths are 0 where the lens has no ray."""


def make_box_room(seed: int, *, fine: bool = False) -> Room:
    """Make a random room in which every ball is a box: triangles describe it exactly."""
    room = make_random_room(seed, coarse=not fine)
    return replace(room, solids=replace(room.solids, is_ball=torch.zeros_like(room.solids.is_ball)))


def make_path(count: int, *, start_rad: float = 0.0, step_rad: float = 0.15, radius_m: float = 1.7) -> Pose:
    """Make poses [count] on an arc around the middle of a room, looking at it: neighbors overlap."""
    angle = start_rad + step_rad * torch.arange(count, dtype=torch.float64)
    height = EYE_HEIGHT_M + 0.15 * torch.sin(2 * pi * torch.arange(count, dtype=torch.float64) / 5)
    eyes = torch.stack([radius_m * angle.sin(), height, radius_m * angle.cos()], -1)
    return Pose.look_at(eyes, (0.1, 0.3, 0.0))


def take_shot(room: Room, camera: Camera, pose: Pose, antialias: int = 1) -> Shot:
    """Photograph a room."""
    rendering = room.render(camera.to(torch.float32), pose.to(torch.float32), antialias)
    pixels = (255 * rendering.rgb).round().byte().numpy()
    return Shot(camera, pose, pixels, rendering.z_depth.numpy(), rendering.ray_depth.numpy())


def take_shots(room: Room, cameras: Camera | Sequence[Camera], poses: Pose) -> list[Shot]:
    """Photograph a room from every pose, with one camera or with one for each."""
    count = poses.batch_shape[0]
    lenses = [cameras] * count if isinstance(cameras, Camera) else list(cameras)
    return [take_shot(room, lens, poses[i]) for i, lens in enumerate(lenses)]


def measure_depth(room: Room, camera: Camera, pose: Pose) -> Float[np.ndarray, "h w"]:
    """Measure z-depth as a depth camera without colors does."""
    rays = RayMap.from_camera(camera.to(torch.float32))
    directions = pose.to(torch.float32).rotate(rays.directions).reshape(-1, 3)
    distance, _ = room.cast(pose.translation.float().expand_as(directions), directions)
    return (distance.reshape(rays.shape) * rays.directions[..., 2] * rays.valid).numpy()


def scan_room(
    room: Room,
    position: Float[Tensor, "3"],
    azimuths: int = 600,
    elevations_deg: tuple[float, float] = (-25.0, 25.0),
) -> Float[np.ndarray, "point 3"]:
    """Measure points as a spinning LiDAR with 64 channels at a position does."""
    around = torch.arange(azimuths, dtype=torch.float64) * (2 * pi / azimuths)
    down = torch.linspace(*elevations_deg, 64, dtype=torch.float64) * (pi / 180)
    azimuth, elevation = torch.meshgrid(around, down, indexing="ij")
    directions = torch.stack(
        [elevation.cos() * azimuth.sin(), elevation.sin(), elevation.cos() * azimuth.cos()], -1
    ).reshape(-1, 3)
    distance, _ = room.cast(position.float().expand_as(directions), directions.float())
    return (position + distance[:, None].double() * directions).numpy()


def make_mesh(room: Room) -> tuple[Float[np.ndarray, "vertex 3"], Int[np.ndarray, "face 3"]]:
    """Make the triangles of a room of boxes, in float64."""
    corners = torch.tensor(list(product((-1.0, 1.0), repeat=3)), dtype=torch.float64)
    stretch = torch.linalg.inv(room.solids.solid_from_world.double())
    vertices = room.solids.center.double()[:, None] + (stretch[:, None] @ corners[..., None])[..., 0]
    # Corner 4 x + 2 y + z; two triangles per side of the cube.
    sides = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = np.array([triangle for a, b, c, d in sides for triangle in ((a, b, c), (a, c, d))])
    offsets = 8 * np.arange(len(vertices))
    return vertices.reshape(-1, 3).numpy(), (offsets[:, None, None] + faces).reshape(-1, 3)


# Files that several datasets share


def write_image(path: Path, pixels: UInt8[np.ndarray, "h w *channel"] | UInt16[np.ndarray, "h w"]) -> None:
    """Write a PNG, or a JPEG with little loss; OpenCV's and COLMAP's tools read either."""
    kind = "png" if path.suffix.lower() == ".png" else "jpeg"
    with atomic_path(path) as scratch:
        Image.fromarray(pixels).save(scratch, format=kind, quality=97, subsampling=0)


def write_png_depth(
    path: Path, depth: Float[np.ndarray, "h w"], per_meter: float | int, nothing: int = 0
) -> None:
    """Write depth as 16-bit PNG; pixels without depth get `nothing`."""
    stored = np.where(depth > 0, (depth * per_meter).round().clip(1, 65534), nothing).astype(np.uint16)
    write_image(path, stored)


def write_mesh_ply(path: Path, room: Room) -> None:
    """Write the triangles of a room as binary PLY, as scans are distributed."""
    vertices, faces = make_mesh(room)
    head = (
        f"ply\nformat binary_little_endian 1.0\nelement vertex {len(vertices)}\nproperty float x\nproperty float y\n"
        f"property float z\nelement face {len(faces)}\nproperty list uchar int vertex_indices\nend_header\n"
    )
    table = np.empty(len(faces), np.dtype([("count", "u1"), ("index", "<i4", 3)]))
    table["count"], table["index"] = 3, faces
    write_atomically(path, head.encode() + vertices.astype("<f4").tobytes() + table.tobytes())
