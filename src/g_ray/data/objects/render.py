"""Render textured meshes for any camera: ray casting with embree, colors from flat texture tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from embreex.mesh_construction import TriangleMesh
from embreex.rtcore_scene import EmbreeScene
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.formats.meshes import LINEAR_OF_BYTE, Mesh, linear_to_srgb_bytes
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap

WHITE = np.full((1, 1, 3), 255, np.uint8)


class PaintTable:
    """Tints and uv of all vertices, and all textures behind each other in one table of texels.

    A mesh without a texture has one white texel: an object may have hundreds of materials, and none is a special
    case or a step of a loop.
    """

    def __init__(self, parts: Sequence[Mesh]) -> None:
        textures = [WHITE if part.texture is None else part.texture for part in parts]
        ends = list(accumulate(image.shape[0] * image.shape[1] for image in textures))
        self.texels = np.concatenate([image.reshape(-1, 3) for image in textures])
        self.first = np.array([0, *ends[:-1]])  # texel of each part
        self.size = np.array([(image.shape[1], image.shape[0]) for image in textures])  # width, height
        self.repeat = np.array([part.repeat for part in parts])
        self.part = np.repeat(np.arange(len(parts)), [len(part.faces) for part in parts])  # of each face
        self.tint = np.concatenate([part.tint for part in parts]).astype(np.float32)
        uv = [np.zeros((len(part.vertices), 2)) if part.uv is None else part.uv for part in parts]
        self.uv = np.concatenate(uv).astype(np.float32)

    def look_up_colors(
        self,
        face: Int[np.ndarray, "hit"],
        corners: Int[np.ndarray, "hit 3"],
        weights: Float[np.ndarray, "hit 3"],
    ) -> Float[np.ndarray, "hit 3"]:
        """Linear light of white light, at places in triangles given by their three vertices and barycentric weights."""
        return _interpolate(self.tint, corners, weights) * self._sample_texture(
            self.part[face], _interpolate(self.uv, corners, weights)
        )

    def _sample_texture(
        self, part: Int[np.ndarray, "hit"], uv: Float[np.ndarray, "hit 2"]
    ) -> Float[np.ndarray, "hit 3"]:
        """Bilinear between texel centres: uv (0, 0) is the lower left corner of the image, its rows run downwards."""
        size, repeat, first = self.size[part], self.repeat[part], self.first[part]
        uv = np.where(repeat[:, None], uv - np.floor(uv), uv.clip(0, 1))
        place = np.stack([uv[:, 0], 1 - uv[:, 1]], -1) * size - 0.5
        low = np.floor(place).astype(np.int64)
        share = (place - low).astype(np.float32)
        total = np.zeros((len(uv), 3), np.float32)
        for right in (0, 1):
            column = _wrap_or_clamp(low[:, 0] + right, size[:, 0], repeat)
            across = share[:, 0] if right else 1 - share[:, 0]
            for below in (0, 1):
                row = _wrap_or_clamp(low[:, 1] + below, size[:, 1], repeat)
                amount = across * (share[:, 1] if below else 1 - share[:, 1])
                texel = self.texels.take(first + row * size[:, 0] + column, axis=0)
                total += amount[:, None] * LINEAR_OF_BYTE[texel]
        return total


def _wrap_or_clamp(index: np.ndarray, size: np.ndarray, repeat: np.ndarray) -> np.ndarray:
    """Move an index that is one step outside the texture inside: wrap around, or clamp to the border."""
    around = np.where(index < 0, index + size, np.where(index >= size, index - size, index))
    return np.where(repeat, around, index.clip(0, size - 1))


def _interpolate(table: np.ndarray, corners: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return sum(weights[:, i : i + 1] * table.take(corners[:, i], axis=0) for i in range(3))  # type: ignore[return-value]


# Ray casting of textured meshes for any camera, with embree.


SUN = np.array([0.36, -0.48, 0.80], np.float32)  # towards it, a unit vector; z is up
AMBIENT, DIFFUSE = 0.7, 0.3


@dataclass(frozen=True, eq=False)
class MeshRendering:
    """What a camera sees of an object. Depths are zero where it sees none of it."""

    rgb: UInt8[Tensor, "*batch 3 h w"]  # sRGB; white background; black where the lens has no ray
    ray_depth: Float[Tensor, "*batch h w"]  # distance along the unit ray through the pixel's centre
    z_depth: Float[Tensor, "*batch h w"]  # its component along the optical axis; negative beyond 90°
    mask: Bool[Tensor, "*batch h w"]  # whether that ray meets the object


@dataclass(frozen=True, eq=False)
class Hits:
    """Which rays meet the object, and where."""

    ray: Int[np.ndarray, "hit"]  # its number among the rays that were cast
    distance: Float[np.ndarray, "hit"]
    face: Int[np.ndarray, "hit"]
    weights: Float[np.ndarray, "hit 3"]  # barycentric, of the triangle's three corners


class MeshScene:
    """Meshes ready for rays. Surfaces are opaque and seen from both sides; nothing has to be watertight.

    Light, if asked for, is albedo · (0.7 + 0.3 n·s) with n the triangle's normal on the side that is looked at and s
    a fixed direction (`SUN`). It depends on the surface alone, so that two cameras agree about every point.
    """

    def __init__(self, parts: Sequence[Mesh], light: bool = True) -> None:
        first = accumulate([0, *(len(part.vertices) for part in parts[:-1])])
        self.vertices = np.concatenate([part.vertices for part in parts]).astype(np.float32)
        self.faces = np.concatenate([p.faces + at for p, at in zip(parts, first, strict=True)]).astype(
            np.int32
        )
        self.normals = _compute_normals(self.vertices[self.faces].astype(np.float64)).astype(np.float32)
        self.paint, self.light = PaintTable(parts), light
        self.scene = EmbreeScene(robust=True)  # no ray slips between two triangles
        TriangleMesh(self.scene, self.vertices, self.faces)

    def render_color(self, camera: Camera, pose: Pose, antialias: int = 1) -> UInt8[Tensor, "*batch 3 h w"]:
        """Colour alone: the mean light of antialias² rays per pixel. Cameras and poses are [*batch]."""
        fine = camera.resize(antialias * camera.width, antialias * camera.height)
        images = np.empty((*camera.batch_shape, camera.height, camera.width, 3), np.uint8)
        for index, rays in _iterate_views(fine, pose):
            light = self._trace(rays).reshape(fine.height, fine.width, 3)
            images[index] = linear_to_srgb_bytes(_average_cells(light, antialias))
        return torch.from_numpy(images).movedim(-1, -3)

    def render(self, camera: Camera, pose: Pose, antialias: int = 1) -> MeshRendering:
        """Color as `render_color`; mask and depths at the pixel centres."""
        depth = torch.zeros(*camera.batch_shape, camera.height, camera.width, dtype=camera.dtype)
        for index, rays in _iterate_views(camera, pose):
            hits = self.cast(rays.origin, rays.directions)
            depth[index].view(-1)[torch.from_numpy(hits.ray)] = torch.from_numpy(hits.distance).to(depth)
        local = RayMap.from_camera(camera)
        depth = depth * local.valid
        return MeshRendering(
            rgb=self.render_color(camera, pose, antialias),
            ray_depth=depth,
            z_depth=depth * local.directions[..., 2],
            mask=depth > 0,
        )

    def cast(self, origin: Float[np.ndarray, "3"], directions: Float[np.ndarray, "ray 3"]) -> Hits:
        """Find the first triangle along each ray."""
        origins = np.repeat(origin[None].astype(np.float32), len(directions), axis=0)
        result = self.scene.run(origins, np.ascontiguousarray(directions, np.float32), output=1)
        ray = np.flatnonzero(result["primID"] >= 0)
        u, v = result["u"][ray], result["v"][ray]
        return Hits(ray, result["tfar"][ray], result["primID"][ray], np.stack([1 - u - v, u, v], -1))

    def shade(self, hits: Hits, directions: Float[np.ndarray, "ray 3"]) -> Float[np.ndarray, "hit 3"]:
        """Linear light that comes back along the rays that hit something."""
        color = self.paint.look_up_colors(hits.face, self.faces.take(hits.face, axis=0), hits.weights)
        if not self.light:
            return color
        normals = self.normals.take(hits.face, axis=0)
        away = np.einsum("rc,rc->r", normals, directions.take(hits.ray, axis=0)) > 0
        slope = np.where(away, -1, 1).astype(np.float32) * (normals @ SUN)
        return color * (AMBIENT + DIFFUSE * slope)[:, None]

    def _trace(self, rays: "_Rays") -> Float[np.ndarray, "ray 3"]:
        hits = self.cast(rays.origin, rays.directions)
        light = np.ones_like(rays.directions)
        light[hits.ray] = self.shade(hits, rays.directions)
        light[~rays.valid] = 0
        return light


@dataclass(frozen=True, eq=False)
class _Rays:
    """The rays of one view in the world, which all start at one point."""

    origin: Float[np.ndarray, "3"]
    directions: Float[np.ndarray, "ray 3"]
    valid: Bool[np.ndarray, "ray"]


def _iterate_views(camera: Camera, pose: Pose) -> Iterator[tuple[tuple[int, ...], _Rays]]:
    """One view after the other; single precision is what embree computes in."""
    for index in np.ndindex(*camera.batch_shape):
        local = RayMap.from_camera(camera[index])
        directions = local.directions.reshape(-1, 3) @ pose.rotation[index].to(local.dtype).mT
        origin = pose.translation[index].numpy()
        yield index, _Rays(origin, directions.float().numpy(), local.valid.flatten().numpy())


def _average_cells(light: Float[np.ndarray, "h w 3"], side: int) -> Float[np.ndarray, "h2 w2 3"]:
    """Strided views add up several times faster than a mean over two inner axes."""
    total = light[::side, ::side].copy()
    for i, j in list(np.ndindex(side, side))[1:]:
        total += light[i::side, j::side]
    return total / np.float32(side * side)


def _compute_normals(corners: Float[np.ndarray, "face 3 3"]) -> Float[np.ndarray, "face 3"]:
    """Unit normals; zero for triangles without area, which no ray meets."""
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normals, axis=-1, keepdims=True)
    return normals / np.where(length > 0, length, 1)
