"""A furnished box, ray cast exactly for any camera, with depth and points as ground truth.

Every solid is a unit ball or a unit cube, stretched, turned about the vertical and moved. Rays are taken into
its own frame, where both intersections are two lines; the room itself is a cube seen from inside. Rooms with
equally many solids can be stacked and rendered together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.demo.textures import PATTERNS
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap

RAYS_AT_ONCE = 1 << 13
"""So many rays meet all solids in one go: the working set then stays in the cache (twice as fast)."""


@dataclass(frozen=True)
class Rendering:
    """What a camera sees. Zero where no ray exists (`valid` false)."""

    rgb: Float[Tensor, "*shape 3"]  # in [0, 1]
    ray_depth: Float[Tensor, "*shape"]  # distance along the unit ray, meters
    z_depth: Float[Tensor, "*shape"]  # its component along the optical axis; negative beyond 90°
    points: Float[Tensor, "*shape 3"]  # in the world
    valid: Bool[Tensor, "*shape"]


@dataclass(frozen=True)
class Solids:
    """Balls and cubes; solid 0 is the room. `solid_from_world` includes the stretch: each is a unit shape."""

    center: Float[Tensor, "*scene solid 3"]
    solid_from_world: Float[Tensor, "*scene solid 3 3"]
    is_ball: Bool[Tensor, "*scene solid"]

    def expand_views(self) -> "Solids":
        """With an axis for the views of a scene, which all show the same solids."""
        return Solids(
            self.center[..., None, :, :],
            self.solid_from_world[..., None, :, :, :],
            self.is_ball[..., None, :],
        )

    def intersect(
        self, origins: Float[Tensor, "*scene #ray 3"], directions: Float[Tensor, "*scene ray 3"]
    ) -> tuple[Float[Tensor, "*scene ray"], Int[Tensor, "*scene ray"]]:
        """Distance to the first surface along each ray, and the index of its solid."""
        offset = torch.einsum("...sij,...sj->...is", self.solid_from_world, self.center)
        start, step = self._to_local(origins) - offset[..., None], self._to_local(directions)
        enter, leave = _intersect_cube(start, step)
        distance = torch.where(self.is_ball[..., None], _intersect_ball(start, step), enter)
        distance[..., 0, :] = leave[..., 0, :]
        nearest = distance.min(-2)
        return nearest.values, nearest.indices

    def _to_local(self, vectors: Float[Tensor, "*scene ray 3"]) -> Float[Tensor, "*scene 3 solid ray"]:
        """Vectors in every solid's frame, component first: one matrix product and fast reductions."""
        rows = self.solid_from_world.transpose(-3, -2).flatten(-3, -2)
        return (rows @ vectors.mT).unflatten(-2, (3, -1))


@dataclass(frozen=True)
class Materials:
    """A pattern between two colors for each surface: six faces of the room, then one per solid."""

    pattern: Int[Tensor, "*scene surface"]  # which of PATTERNS
    colors: Float[Tensor, "*scene surface 2 3"]
    size: Float[Tensor, "*scene surface"]  # meters per unit of the pattern
    shift: Float[Tensor, "*scene surface 3"]  # where the pattern begins, in its units


@dataclass(frozen=True)
class Room:
    """World frame: y down, origin in the middle of the room, meters. A stack of rooms has a leading scene axis."""

    solids: Solids
    materials: Materials
    half_size: Float[Tensor, "*scene 3"]
    lamps: Float[Tensor, "*scene lamp 3"]
    shadows: bool = True

    @staticmethod
    def stack(rooms: "Sequence[Room]") -> "Room":
        """Rooms with equally many solids and lamps, to be rendered together."""
        return Room(
            solids=_stack([room.solids for room in rooms]),
            materials=_stack([room.materials for room in rooms]),
            half_size=torch.stack([room.half_size for room in rooms]),
            lamps=torch.stack([room.lamps for room in rooms]),
            shadows=rooms[0].shadows,
        )

    def cast(
        self, origins: Float[Tensor, "*scene ray 3"], directions: Float[Tensor, "*scene ray 3"]
    ) -> tuple[Float[Tensor, "*scene ray"], Int[Tensor, "*scene ray"]]:
        """Distance to the first surface along each ray, and the index of its solid."""
        return _intersect_in_chunks(self.solids, origins, directions)

    def compute_normals(
        self, points: Float[Tensor, "*scene ray 3"], solid: Int[Tensor, "*scene ray"]
    ) -> tuple[Float[Tensor, "*scene ray 3"], Int[Tensor, "*scene ray"]]:
        """Unit normals that point to the viewer, and the index of the surface (see `Materials`)."""
        matrix = _pick(self.solids.solid_from_world, solid)
        offset = points - _pick(self.solids.center, solid)
        local = (matrix @ offset[..., None])[..., 0]
        axis = local.abs().argmax(-1)
        on_axis = torch.nn.functional.one_hot(axis, 3) * local.sign()
        # A gradient goes back to the world with the transposed matrix.
        gradient = torch.where(_pick(self.solids.is_ball, solid)[..., None], local, on_axis)
        outward = torch.nn.functional.normalize((matrix.mT @ gradient[..., None])[..., 0], dim=-1)
        face = 2 * axis + (on_axis.sum(-1) > 0)
        return torch.where(solid[..., None] == 0, -outward, outward), torch.where(solid == 0, face, 5 + solid)

    def compute_color(
        self, points: Float[Tensor, "*scene ray 3"], solid: Int[Tensor, "*scene ray"]
    ) -> Float[Tensor, "*scene ray 3"]:
        """Texture times light, for the eye (gamma 2.2)."""
        normal, surface = self.compute_normals(points, solid)
        linear = self._compute_albedo(points, surface) * self._compute_light(points, normal)[..., None]
        return linear.clamp(0, 1) ** (1 / 2.2)

    def _compute_albedo(self, points: Tensor, surface: Tensor) -> Tensor:
        materials = self.materials
        scaled = points / _pick(materials.size, surface)[..., None] + _pick(materials.shift, surface)
        pattern = _pick(materials.pattern, surface)
        blend = torch.zeros_like(points[..., 0])
        for index in materials.pattern.unique().tolist():
            chosen = (pattern == index).flatten().nonzero()[:, 0]
            values = list(PATTERNS.values())[index](scaled.flatten(0, -2).index_select(0, chosen))
            blend.view(-1).index_copy_(0, chosen, values)
        first, second = _pick(materials.colors, surface).unbind(-2)
        return torch.lerp(first, second, blend[..., None])

    def _compute_light(self, points: Tensor, normal: Tensor) -> Tensor:
        """Lamps, with shadows or without, a sky of ambient light, and the darkening that corners have."""
        total = torch.zeros_like(points[..., 0])
        for lamp in self.lamps.unbind(-2):
            offset = lamp[..., None, :] - points
            reach = offset.norm(dim=-1)
            towards = offset / reach[..., None]
            light = (normal * towards).sum(-1).clamp(min=0) / (1 + (reach / 3) ** 2)
            if self.shadows:
                light = light * (self.cast(points + 1e-3 * normal, towards)[0] > reach - 1e-2)
            total = total + light
        to_walls = (self.half_size[..., None, :] - points.abs()).clamp(min=0)
        # On a wall the smallest distance is 0; the second leads to the next wall.
        corner = to_walls.sort(-1).values[..., 1]
        ambient = 0.38 + 0.04 * normal[..., 1]
        return (ambient + 1.5 * total / self.lamps.shape[-2]) * (1 - 0.35 * torch.exp(-4 * corner))

    def render(self, camera: Camera, pose: Pose, antialias: int = 1) -> Rendering:
        """Render depth and points at the pixel centers, and color averaged over `antialias`² rays per pixel.

        Cameras and poses are [*scene, *view]: any number of views of each room at once.
        """
        pose = Pose(pose.world_from_cam.expand(*camera.batch_shape, 4, 4))
        rays = RayMap.from_camera(camera)
        distance, points, solid = self._trace(rays, pose)
        if antialias == 1:
            rgb = self._compute_view_colors(points, solid)
        else:
            rgb = self._compute_antialiased_color(camera, pose, antialias)
        return Rendering(
            rgb=rgb * rays.valid[..., None],
            ray_depth=distance * rays.valid,
            z_depth=distance * rays.directions[..., 2] * rays.valid,
            points=points * rays.valid[..., None],
            valid=rays.valid,
        )

    def _trace(self, rays: RayMap, pose: Pose) -> tuple[Tensor, Tensor, Tensor]:
        """Distance, point and solid of every pixel of every view; all rays of a view start at one point."""
        scene = self.half_size.shape[:-1]
        rotation, origins = (
            pose.rotation.reshape(*scene, -1, 3, 3),
            pose.translation.reshape(*scene, -1, 1, 3),
        )
        directions = rays.directions.reshape(*scene, -1, prod(rays.shape[-2:]), 3) @ rotation.mT
        distance, solid = _intersect_in_chunks(self.solids.expand_views(), origins, directions)
        points = origins + distance[..., None] * directions
        return distance.reshape(rays.shape), points.reshape(*rays.shape, 3), solid.reshape(rays.shape)

    def _compute_view_colors(self, points: Tensor, solid: Tensor) -> Tensor:
        scene = self.half_size.shape[:-1]
        return self.compute_color(points.reshape(*scene, -1, 3), solid.reshape(*scene, -1)).reshape(
            points.shape
        )

    def _compute_antialiased_color(self, camera: Camera, pose: Pose, antialias: int) -> Tensor:
        rays = RayMap.from_camera(camera.resize(antialias * camera.width, antialias * camera.height))
        _, points, solid = self._trace(rays, pose)
        rgb = self._compute_view_colors(points, solid)
        weight = rays.valid[..., None].to(rgb)
        total, count = (
            values.unflatten(-3, (-1, antialias)).unflatten(-2, (-1, antialias)).sum((-4, -2))
            for values in (rgb * weight, weight)
        )
        return total / count.clamp(min=1)


def _intersect_in_chunks(solids: Solids, origins: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """Rays of all scenes, a piece of each at a time."""
    size = max(1, RAYS_AT_ONCE // prod(directions.shape[:-2]))
    pieces = directions.split(size, -2)
    starts = [origins] * len(pieces) if origins.shape[-2] == 1 else origins.split(size, -2)
    distances, indices = zip(
        *(solids.intersect(o, d) for o, d in zip(starts, pieces, strict=True)), strict=True
    )
    return torch.cat(distances, -1), torch.cat(indices, -1)


def _pick(table: Tensor, index: Int[Tensor, "*scene ray"]) -> Tensor:
    """Rows of a table [*scene, row, …], each ray its own from its scene's: [*scene, ray, …]."""
    scene = index.shape[:-1]
    rows, shape = table.shape[len(scene)], table.shape[len(scene) + 1 :]
    first = rows * torch.arange(prod(scene), device=index.device).reshape(*scene, 1)
    # Several times faster than table[index + first].
    picked = table.reshape(-1, prod(shape)).index_select(0, (index + first).flatten())
    return picked.reshape(*index.shape, *shape)


def _stack(parts: list) -> Any:
    return type(parts[0])(*(torch.stack([getattr(part, f.name) for part in parts]) for f in fields(parts[0])))


def _intersect_ball(
    start: Float[Tensor, "*scene 3 solid #ray"], step: Float[Tensor, "*scene 3 solid #ray"]
) -> Float[Tensor, "*scene solid ray"]:
    """First positive t with |start + t·step| = 1, else ∞."""
    a, b, c = (step * step).sum(-3), (start * step).sum(-3), (start * start).sum(-3) - 1
    square = b * b - a * c
    distance = (-b - square.clamp(min=0).sqrt()) / a
    return torch.where((square >= 0) & (distance > 0), distance, torch.inf)


def _intersect_cube(
    start: Float[Tensor, "*scene 3 solid #ray"], step: Float[Tensor, "*scene 3 solid #ray"]
) -> tuple[Float[Tensor, "*scene solid ray"], Float[Tensor, "*scene solid ray"]]:
    """Where start + t·step enters (else ∞) and leaves the cube [−1, 1]³."""
    tiny = 1e-30  # a ray along a face: far away instead of 0/0
    inverse = 1 / torch.where(step.abs() < tiny, tiny, step)
    center, reach = -start * inverse, inverse.abs()
    enter, leave = (center - reach).amax(-3), (center + reach).amin(-3)
    return torch.where((enter <= leave) & (enter > 0), enter, torch.inf), leave
