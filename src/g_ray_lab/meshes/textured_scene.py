"""Textured meshes for rays of any camera, with embree: color, depth, normals, and where a surface is seen at all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from embreex.mesh_construction import TriangleMesh
from embreex.rtcore_scene import EmbreeScene
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray_lab.meshes.mesh_files import Mesh, cross_edges, join_triangles, linear_to_srgb_bytes
from g_ray_lab.meshes.texel_table import PaintTable

LEVELS = 10
"""Reduced copies of textures with prefiltering: 512 px down to one."""
STEEPEST = 0.1
"""Cosine between ray and normal, below which surfaces are filtered no more strongly."""

EXTRA = ((0.25, -0.375), (-0.375, -0.25), (0.375, 0.25), (-0.25, 0.375))
"""Places of further rays at edges, across and down from the center in pixels: a rotated grid."""
EDGE_DEPTH, EDGE_COSINE = 0.05, 0.9
"""Neighboring pixels see different surfaces if depths differ by this share, or if normals differ by this cosine."""


def build_ray_scene(vertices: Float[np.ndarray, "vertex 3"], faces: Int[np.ndarray, "face 3"]) -> EmbreeScene:
    """Prepare triangles for rays, none of which slips between two of them."""
    scene = EmbreeScene(robust=True)
    TriangleMesh(scene, vertices.astype(np.float32), faces.astype(np.int32))
    return scene


def measure_distances(
    scene: EmbreeScene, origins: Float[np.ndarray, "ray 3"], direction: Float[np.ndarray, "3"]
) -> Float[np.ndarray, "ray"]:
    """Return the distance to the first triangle along parallel rays; a very large one where there is none."""
    directions = np.broadcast_to(direction, origins.shape).astype(np.float32)
    return scene.run(origins.astype(np.float32), directions, query="DISTANCE")


def spread_over_sphere(count: int, start: float = 0.0) -> Float[np.ndarray, "ray 3"]:
    """Return directions of equal density on a Fibonacci spiral, turned by `start` of its steps."""
    height = 1 - (2 * np.arange(count) + 1) / count
    around = np.pi * (1 + 5**0.5) * (np.arange(count) + start)
    level = np.sqrt(1 - height**2)
    return np.stack([np.cos(around) * level, np.sin(around) * level, height], -1)


SUN = np.array([0.36, -0.48, 0.80], np.float32)  # towards it, a unit vector; z is up
AMBIENT, DIFFUSE = 0.7, 0.3


@dataclass(frozen=True, eq=False)
class MeshRendering:
    """What a camera sees of an object. Depths are zero where it sees none of it."""

    rgb: UInt8[Tensor, "*batch 3 h w"]  # sRGB; white background; black where the lens has no ray
    ray_depth: Float[Tensor, "*batch h w"]  # distance along the unit ray through the pixel's center
    z_depth: Float[Tensor, "*batch h w"]  # its component along the optical axis; negative beyond 90°
    mask: Bool[Tensor, "*batch h w"]  # whether that ray meets the object


@dataclass(frozen=True, eq=False)
class SurfaceView:
    """What a camera sees of a scene, in linear light. Where no surface is seen, depth and normal are zero."""

    light: Float[Tensor, "*batch h w 3"]
    ray_depth: Float[Tensor, "*batch h w"]
    """Distance along the unit ray through the pixel's center."""
    normals: Float[Tensor, "*batch h w 3"]
    """Unit normals of the triangles in the world, towards the camera."""
    valid: Bool[Tensor, "*batch h w"]
    """Whether that ray meets a surface; the sky is none."""
    sky: Float[Tensor, "*batch h w"]
    """Share of the pixel that is sky; its light is not part of `light`."""
    back_share: float = 0.0
    """Share of the pixels with the back of a triangle, from where its corners turn clockwise."""


@dataclass(frozen=True, eq=False)
class Hits:
    """Which rays meet the object, and where."""

    ray: Int[np.ndarray, "hit"]  # its number among the rays that were cast
    distance: Float[np.ndarray, "hit"]
    face: Int[np.ndarray, "hit"]
    weights: Float[np.ndarray, "hit 3"]  # barycentric, of the triangle's three corners

    def select(self, rays: Bool[np.ndarray, "ray"]) -> "Hits":
        """Keep the hits of some of the rays."""
        return self if rays.all() else self._keep(rays.take(self.ray))

    def drop(self, faces: Bool[np.ndarray, "face"]) -> "Hits":
        """Drop the hits on some of the faces."""
        return self._keep(~faces.take(self.face)) if faces.any() else self

    def _keep(self, kept: Bool[np.ndarray, "hit"]) -> "Hits":
        return Hits(self.ray[kept], self.distance[kept], self.face[kept], self.weights[kept])


class MeshScene:
    """Meshes ready for rays. Surfaces are opaque and seen from both sides; nothing has to be watertight.

    With `light`, a surface returns albedo · (0.7 + 0.3 n·s), with n the triangle's normal on the side that is looked at
    and s a fixed direction (`SUN`). That depends on the surface alone, so that two cameras agree about every point.

    With `prefilter`, `view` reads textures at the resolution of a pixel's footprint, which one ray per pixel needs.
    """

    def __init__(self, parts: Sequence[Mesh], light: bool = True, prefilter: bool = False) -> None:
        vertices, faces = join_triangles(parts)
        self.vertices, self.faces = vertices.astype(np.float32), faces.astype(np.int32)
        normals = cross_edges(self.vertices.astype(np.float64), self.faces)
        area2 = np.linalg.norm(normals, axis=-1)
        # Triangles without area, which no ray meets, have neither normal nor texels.
        length = np.where(area2 > 0, area2, 1)
        self.normals = (normals / length[:, None]).astype(np.float32)
        self.light, self.prefilter = light, prefilter
        self.paint = PaintTable(parts, self.faces, LEVELS if prefilter else 1)
        self.sky = np.array([part.sky for part in parts])[self.paint.part]
        # Texels per unit of length on each face.
        self.density = np.sqrt(np.where(area2 > 0, self.paint.texels2 / (length / 2), 0)).astype(np.float32)
        self.scene = build_ray_scene(self.vertices, self.faces)

    def render_color(self, camera: Camera, pose: Pose, antialias: int = 1) -> UInt8[Tensor, "*batch 3 h w"]:
        """Color alone: the mean light of antialias² rays per pixel. Cameras and poses are [*batch]."""
        fine = camera.resize(antialias * camera.width, antialias * camera.height)
        images = np.empty((*camera.batch_shape, camera.height, camera.width, 3), np.uint8)
        for index, rays in _iterate_views(fine, pose):
            light = self._trace(rays).reshape(fine.height, fine.width, 3)
            images[index] = linear_to_srgb_bytes(_average_cells(light, antialias))
        return torch.from_numpy(images).movedim(-1, -3)

    def render(self, camera: Camera, pose: Pose, antialias: int = 1) -> MeshRendering:
        """Color as `render_color`; mask and depths at the pixel centers."""
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

    def view(self, camera: Camera, pose: Pose) -> SurfaceView:
        """Cast one ray per pixel, and EXTRA more where neighbors see different surfaces. Cameras and poses are
        [*batch]."""
        size = (camera.height, camera.width)
        views = [self._view_one(rays, size) for _, rays in _iterate_views(camera, pose)]
        light, depth, normals, sky = (np.stack(parts) for parts in zip(*(v[:4] for v in views), strict=True))
        light, depth, normals, sky = (
            torch.from_numpy(part.reshape(*camera.batch_shape, *part.shape[1:]))
            for part in (light, depth, normals, sky)
        )
        return SurfaceView(light, depth, normals, depth > 0, sky, float(np.mean([v[4] for v in views])))

    def _view_one(
        self, rays: "_Rays", size: tuple[int, int]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
        """Light, depth, normals and share of sky of one view, and how much of it is on the back of triangles."""
        hits = self.cast(rays.origin, rays.directions).select(rays.valid)
        solid = hits.drop(self.sky)
        steps = _measure_steps(rays.directions.reshape(*size, 3))
        angles = _measure_angles(steps)
        count = len(rays.directions)
        depth, normals = np.zeros(count, np.float32), np.zeros((count, 3), np.float32)
        depth[solid.ray] = solid.distance
        normals[solid.ray] = self.face_towards(solid, rays.directions)
        light, sky = self._gather(hits, rays.directions, angles, count)
        edges = np.flatnonzero(
            _find_edges(depth.reshape(size), normals.reshape(*size, 3)).ravel() & rays.valid
        )
        if self.prefilter and len(edges):
            for across, down in EXTRA:
                moved = across * steps[1].reshape(-1, 3)[edges] + down * steps[0].reshape(-1, 3)[edges]
                toward = rays.directions[edges] + moved
                toward /= np.linalg.norm(toward, axis=-1, keepdims=True)
                more = self._gather(self.cast(rays.origin, toward), toward, angles[edges], len(edges))
                light[edges] += more[0]
                sky[edges] += more[1]
            light[edges] /= 1 + len(EXTRA)
            sky[edges] /= 1 + len(EXTRA)
        back = self.measure_back_share(solid, rays.directions)
        color, facing = light.reshape(*size, 3), normals.reshape(*size, 3)
        return color, depth.reshape(size), facing, sky.reshape(size), back

    def _gather(
        self, hits: Hits, directions: np.ndarray, angles: np.ndarray, count: int
    ) -> tuple[Float[np.ndarray, "ray 3"], Float[np.ndarray, "ray"]]:
        """Light from surfaces along rays, and 1 where they end in the sky."""
        light, sky = np.zeros((count, 3), np.float32), np.zeros(count, np.float32)
        solid = hits.drop(self.sky)
        level = self._choose_levels(solid, directions, angles) if self.prefilter else None
        light[solid.ray] = self.shade(solid, directions, level)
        sky[hits.ray] = self.sky.take(hits.face)
        return light, sky

    def measure_back_share(self, hits: Hits, directions: Float[np.ndarray, "ray 3"]) -> float:
        """Share of the hits that are on the back of a triangle."""
        normals = self.normals.take(hits.face, axis=0)
        forward = np.einsum("rc,rc->r", normals, directions.take(hits.ray, axis=0))
        return float((forward > 0).mean()) if len(forward) else 0.0

    def face_towards(self, hits: Hits, directions: Float[np.ndarray, "ray 3"]) -> Float[np.ndarray, "hit 3"]:
        """Normals of the triangles that were hit, on the side that is looked at."""
        normals = self.normals.take(hits.face, axis=0)
        away = np.einsum("rc,rc->r", normals, directions.take(hits.ray, axis=0)) > 0
        return np.where(away[:, None], -normals, normals)

    def _choose_levels(
        self, hits: Hits, directions: Float[np.ndarray, "ray 3"], angles: Float[np.ndarray, "ray"]
    ) -> Int[np.ndarray, "hit"]:
        """Reduce textures until a texel is as large as the footprint of a pixel.

        The footprint is d·α wide and d·α / cos θ long, with α the angle between neighboring rays and θ that of
        incidence; its geometric mean is a compromise between blur across and aliasing along it.
        """
        normals, toward = self.normals.take(hits.face, axis=0), directions.take(hits.ray, axis=0)
        cosine = np.abs(np.einsum("rc,rc->r", normals, toward)).clip(STEEPEST)
        texels = self.density.take(hits.face) * hits.distance * angles.take(hits.ray) / np.sqrt(cosine)
        return np.rint(np.log2(texels.clip(1, 1 << (LEVELS - 1)))).astype(np.int64)

    def cast(self, origin: Float[np.ndarray, "3"], directions: Float[np.ndarray, "ray 3"]) -> Hits:
        """Find the first triangle along each ray."""
        origins = np.repeat(origin[None].astype(np.float32), len(directions), axis=0)
        result = self.scene.run(origins, np.ascontiguousarray(directions, np.float32), output=1)
        ray = np.flatnonzero(result["primID"] >= 0)
        u, v = result["u"][ray], result["v"][ray]
        return Hits(ray, result["tfar"][ray], result["primID"][ray], np.stack([1 - u - v, u, v], -1))

    def shade(
        self,
        hits: Hits,
        directions: Float[np.ndarray, "ray 3"],
        level: Int[np.ndarray, "hit"] | None = None,
    ) -> Float[np.ndarray, "hit 3"]:
        """Linear light that comes back along the rays that hit something."""
        corners = self.faces.take(hits.face, axis=0)
        color = self.paint.look_up_colors(hits.face, corners, hits.weights, level)
        if not self.light:
            return color
        slope = self.face_towards(hits, directions) @ SUN
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


def _measure_steps(directions: Float[np.ndarray, "h w 3"]) -> list[Float[np.ndarray, "h w 3"]]:
    """Change of the ray from one pixel to the next, downwards and across."""
    if min(directions.shape[:2]) < 2:
        return [np.zeros_like(directions)] * 2
    return [np.gradient(directions, axis=axis) for axis in (0, 1)]


def _measure_angles(steps: Sequence[Float[np.ndarray, "h w 3"]]) -> Float[np.ndarray, "pixel"]:
    """Angle that a pixel covers, in the mean of its two directions: the root of its solid angle."""
    down, across = steps
    down2, across2 = (np.einsum("hwc,hwc->hw", side, side) for side in (down, across))
    mixed = np.einsum("hwc,hwc->hw", down, across)
    return (down2 * across2 - mixed**2).clip(0).ravel() ** 0.25


def _find_edges(
    depth: Float[np.ndarray, "h w"], normals: Float[np.ndarray, "h w 3"]
) -> Bool[np.ndarray, "h w"]:
    """Pixels next to which another surface begins: depth jumps, or the surface turns."""
    edges = np.zeros(depth.shape, bool)
    for a, b in (
        ((slice(None), slice(1, None)), (slice(None), slice(-1))),
        ((slice(1, None),), (slice(-1),)),
    ):
        jump = np.abs(depth[a] - depth[b]) > EDGE_DEPTH * np.minimum(depth[a], depth[b])
        turn = np.einsum("hwc,hwc->hw", normals[a], normals[b]) < EDGE_COSINE
        differ = (jump | turn) & ((depth[a] > 0) | (depth[b] > 0))
        edges[a] |= differ
        edges[b] |= differ
    return edges
