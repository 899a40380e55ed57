"""Light of a room, computed once and stored at the vertices: area lights and sun with soft shadows, and ambient light.

At a point with normal n, a small piece of a lamp with radiance L in direction d adds max(0, n·d) · L · solid angle if
no surface is between. The sum over lamps is kept as a vector for each color, Σ L · solid angle · d, so that it is
traced once for all vertices of a small cell of space, and n may differ between them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from embreex.rtcore_scene import EmbreeScene
from jaxtyping import Bool, Float, Int

from g_ray_lab.meshes.mesh_files import Mesh, cross_edges, join_triangles
from g_ray_lab.meshes.textured_scene import build_ray_scene, measure_distances, spread_over_sphere
from g_ray_lab.textured.panels import Surface
from g_ray_lab.textured.patterns import Random

CELL = 0.06  # meters; vertices within such a cube that face the same way share what is traced
LIFT = 0.012  # meters above its surface from where a ray starts
PULL = 0.04  # meters into its triangle, at most
NEAR = 0.12  # distances to lamps below this count as this: they would burn out
OPEN = 1.2  # meters of free space that make a direction open
OUTSIDE = 50.0  # meters; rays longer than this have left the room
DIRECTIONS = 18  # of rays for ambient light, over the whole sphere
SAMPLES = 4  # pieces of a lamp
MAX_LIGHT = 4.0
"""Limit that light approaches; cameras choose an exposure between it and the dark."""
BOUNCE = 0.3  # of the light that surfaces receive comes back as ambient light


@dataclass(frozen=True, eq=False)
class AreaLight:
    """A parallelogram that shines to the side of its normal: a lamp, or a window under the sky."""

    center: Float[np.ndarray, "3"]
    halves: Float[np.ndarray, "2 3"]  # vectors from the center to the middles of two sides
    normal: Float[np.ndarray, "3"]
    radiance: Float[np.ndarray, "3"]  # linear RGB

    @property
    def area(self) -> float:
        return float(4 * np.linalg.norm(np.cross(self.halves[0], self.halves[1])))


@dataclass(frozen=True, eq=False)
class Sun:
    """Parallel light; it enters through what is open."""

    direction: Float[np.ndarray, "3"]  # towards it, a unit vector
    irradiance: Float[np.ndarray, "3"]


@dataclass(frozen=True, eq=False)
class Lighting:
    """All light of a room."""

    lamps: tuple[AreaLight, ...]
    sun: Sun | None
    ambient: Float[np.ndarray, "3"]
    """Light that reaches a point from everywhere, beyond what surfaces reflect."""
    level: float
    """Mean light of all surfaces after exposure."""


def convert_temperature(kelvin: float) -> Float[np.ndarray, "3"]:
    """Convert the temperature of a black body to linear RGB of mean 1 (fits of its chromaticity, 2000–12000 K)."""
    t = kelvin / 1000
    red = 1.0 if t < 6.5 else (t / 6.5) ** -0.55
    warm = 0.30 + 0.70 * (1 - np.exp(-(t - 1) / 2.0)) / (1 - np.exp(-5.5 / 2.0))
    green = warm if t < 6.5 else (t / 6.5) ** -0.25
    blue = max(0.02, (t - 1.4) / 5.1) if t < 6.5 else 1.0
    color = np.array([red, green, blue])
    return color / color.mean()


def light_surfaces(surfaces: Sequence[Surface], lighting: Lighting, random: Random) -> tuple[Mesh, ...]:
    """Multiply the tints of all surfaces that do not glow by the light they receive."""
    lit = [surface.mesh for surface in surfaces if not surface.glows]
    vertices, faces = join_triangles(lit)
    vertices = vertices.astype(np.float64)
    normals = _compute_vertex_normals(vertices, faces)
    scene = build_ray_scene(vertices, faces)
    first, cell = _share_cells(vertices, normals)
    places, facing = _pull_inward(vertices, faces)[first], normals[first]
    openness = _measure_openness(scene, places, facing)
    # Files do not always define which side of a triangle is outside: it is the side with more space.
    inside = openness[:, 1] > openness[:, 0] + 0.05
    facing = np.where(inside[:, None], -facing, facing)
    normals = np.where(inside[cell, None], -normals, normals)
    vector = trace_direct_light(scene, places, facing, lighting, random)
    direct = np.einsum("vk,vck->vc", normals, vector[cell]).clip(0)
    light = _expose(direct, openness.max(-1)[cell], _weigh_vertices(vertices, faces), lighting)
    flip = inside[cell]
    ends = np.cumsum([0, *(len(mesh.vertices) for mesh in lit)])
    stored = iter([(light[a:b], flip[a:b]) for a, b in pairwise(ends)])
    return tuple(
        surface.mesh if surface.glows else _store_light(surface.mesh, *next(stored)) for surface in surfaces
    )


def _store_light(mesh: Mesh, light: Float[np.ndarray, "vertex 3"], flip: Bool[np.ndarray, "vertex"]) -> Mesh:
    """Multiply tints by light, and turn triangles so that their front is the side that was lit."""
    turned = flip[mesh.faces].sum(-1) >= 2
    faces = np.where(turned[:, None], mesh.faces[:, ::-1], mesh.faces)
    return replace(mesh, faces=faces, tint=(mesh.tint * light).astype(np.float32))


def _expose(
    direct: Float[np.ndarray, "vertex 3"],
    openness: Float[np.ndarray, "vertex"],
    weight: Float[np.ndarray, "vertex"],
    lighting: Lighting,
) -> Float[np.ndarray, "vertex 3"]:
    """Add ambient light to direct light and scale the sum to the wanted level, with highlights compressed."""
    bounced = BOUNCE * np.average(direct, axis=0, weights=weight)
    # Corners are lit by the walls next to them: ambient light never fades to nothing.
    light = direct + (0.25 + 0.75 * openness[:, None]) * (bounced + lighting.ambient)
    light = light * (lighting.level / max(float(np.average(light.mean(-1), weights=weight)), 1e-9))
    return MAX_LIGHT * -np.expm1(-light / MAX_LIGHT)


def _sum_at_vertices(
    values: Float[np.ndarray, "face channel"], faces: Int[np.ndarray, "face 3"], count: int
) -> Float[np.ndarray, "vertex channel"]:
    """Add the values of the triangles around each vertex."""
    corners = faces.ravel()
    return np.stack([np.bincount(corners, np.repeat(one, 3), minlength=count) for one in values.T], -1)


def _compute_vertex_normals(
    vertices: Float[np.ndarray, "vertex 3"], faces: Int[np.ndarray, "face 3"]
) -> Float[np.ndarray, "vertex 3"]:
    """Average the normals of the triangles around each vertex, weighted by area."""
    total = _sum_at_vertices(cross_edges(vertices, faces), faces, len(vertices))
    return total / np.maximum(np.linalg.norm(total, axis=-1, keepdims=True), 1e-12)


def _pull_inward(
    vertices: Float[np.ndarray, "vertex 3"], faces: Int[np.ndarray, "face 3"]
) -> Float[np.ndarray, "vertex 3"]:
    """Move vertices a little into their triangles: where two surfaces meet, rays from the very edge are all blocked."""
    count = np.maximum(np.bincount(faces.ravel(), minlength=len(vertices)), 1)
    middles = _sum_at_vertices(vertices[faces].mean(1), faces, len(vertices)) / count[:, None]
    towards = middles - vertices
    length = np.maximum(np.linalg.norm(towards, axis=-1, keepdims=True), 1e-9)
    return vertices + towards * np.minimum(PULL / length, 0.5)


def _weigh_vertices(
    vertices: Float[np.ndarray, "vertex 3"], faces: Int[np.ndarray, "face 3"]
) -> Float[np.ndarray, "vertex"]:
    """Area that belongs to each vertex, so that dense models count no more than large walls."""
    area = np.linalg.norm(cross_edges(vertices, faces), axis=-1, keepdims=True)
    return _sum_at_vertices(area, faces, len(vertices))[:, 0] + 1e-12


def _share_cells(
    vertices: Float[np.ndarray, "vertex 3"], normals: Float[np.ndarray, "vertex 3"]
) -> tuple[Int[np.ndarray, "cell"], Int[np.ndarray, "vertex"]]:
    """Group vertices by place and by the axis they mostly face: one vertex of each group, and the group of each."""
    place = np.floor(vertices / CELL).astype(np.int64)
    place -= place.min(0)
    axis = np.abs(normals).argmax(-1)
    direction = 2 * axis + (np.take_along_axis(normals, axis[:, None], 1)[:, 0] < 0)
    sides = place.max(0) + 1
    key = ((place[:, 0] * sides[1] + place[:, 1]) * sides[2] + place[:, 2]) * 6 + direction
    _, first, cell = np.unique(key, return_index=True, return_inverse=True)
    return first, cell


def _measure_openness(
    scene: EmbreeScene, places: Float[np.ndarray, "cell 3"], normals: Float[np.ndarray, "cell 3"]
) -> Float[np.ndarray, "cell 2"]:
    """Measure how far one sees on average, from 0 to 1, on the side of the normal and on the other.

    Rays that leave the room count as blocked: behind its walls is no open space. Directions are the same for all
    cells: random ones would speckle the walls.
    """
    total, weights = np.zeros((len(places), 2)), np.zeros((len(places), 2))
    for direction in spread_over_sphere(DIRECTIONS, start=0.5):
        slope = normals @ direction
        side = (slope < 0).astype(int)
        away = np.where(side == 0, LIFT, -LIFT)
        distance = measure_distances(scene, places + away[:, None] * normals, direction)
        rows = np.arange(len(places))
        seen = np.where(distance < OUTSIDE, np.sqrt(np.minimum(distance / OPEN, 1.0)), 0.0)
        total[rows, side] += np.abs(slope) * seen
        weights[rows, side] += np.abs(slope)
    return total / np.maximum(weights, 1e-9)


def trace_direct_light(
    scene: EmbreeScene,
    places: Float[np.ndarray, "cell 3"],
    normals: Float[np.ndarray, "cell 3"],
    lighting: Lighting,
    random: Random,
) -> Float[np.ndarray, "cell 3 3"]:
    """Sum the direct light at each cell: for each color, a vector towards where it comes from."""
    origins = places + LIFT * normals
    total = np.zeros((len(places), 3, 3))
    for lamp in lighting.lamps:
        for u, v in _stratify(random, SAMPLES):
            towards = lamp.center + u * lamp.halves[0] + v * lamp.halves[1] - origins
            distance = np.linalg.norm(towards, axis=-1)
            towards /= np.maximum(distance, 1e-9)[:, None]
            emitted = (-(towards @ lamp.normal)).clip(0) * lamp.area / SAMPLES
            amount = emitted / np.maximum(distance, NEAR) ** 2
            amount *= _is_visible(
                scene, origins, towards, distance - LIFT, amount * _facing(normals, towards) > 0
            )
            total += amount[:, None, None] * lamp.radiance[:, None] * towards[:, None]
    if lighting.sun is not None:
        towards = np.broadcast_to(lighting.sun.direction, origins.shape)
        far = np.full(len(origins), 100.0)
        seen = _is_visible(scene, origins, towards, far, _facing(normals, towards) > 0)
        total += seen[:, None, None] * lighting.sun.irradiance[:, None] * towards[:, None]
    return total


def _facing(normals: np.ndarray, towards: np.ndarray) -> Float[np.ndarray, "cell"]:
    return np.einsum("rk,rk->r", normals, towards)


def _stratify(random: Random, count: int) -> Float[np.ndarray, "sample 2"]:
    """Draw one place in each quarter of the square [−1, 1]² (for a count of 4)."""
    side = round(count**0.5)
    cells = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2)
    return (cells + random.uniform(0, 1, (len(cells), 2))) * 2 / side - 1


def _is_visible(
    scene: EmbreeScene,
    origins: Float[np.ndarray, "ray 3"],
    towards: Float[np.ndarray, "ray 3"],
    distance: Float[np.ndarray, "ray"],
    matters: np.ndarray,
) -> Float[np.ndarray, "ray"]:
    """Return 1 where nothing is in between, 0 elsewhere and where it does not matter."""
    rays = np.flatnonzero(matters)
    visible = np.zeros(len(origins))
    if len(rays):
        hit = scene.run(
            origins[rays].astype(np.float32),
            np.ascontiguousarray(towards[rays], np.float32),
            distance[rays].astype(np.float32),
            query="OCCLUDED",
        )
        visible[rays] = hit == -1  # 0 is a hit
    return visible
