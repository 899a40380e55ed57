"""A furnished box, ray cast exactly for any camera, with depth and points as ground truth.

Every solid is a unit ball or a unit cube, stretched, turned about the vertical and moved. Rays are taken into
its own frame, where both intersections are two lines; the room itself is a cube seen from inside. Rooms with
equally many solids can be stacked and rendered together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import pi, prod
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.demo.textures import PATTERNS
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap

RAYS_AT_ONCE = 1 << 13
"""Rays that are intersected with all solids at once: the working set stays in the cache (twice as fast)."""


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
        self, origins: Float[Tensor, "*scene #ray 3"], directions: Float[Tensor, "*scene ray 3"]
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


FACES = 6


def make_random_room(
    seed: int, solids: int = 7, dtype: torch.dtype = torch.float32, *, coarse: bool = False
) -> Room:
    """Make a room with random size, colors, furniture and light for every seed.

    `coarse` rooms are for images of a few dozen pixels: smooth waves of any colors that such an image can still
    resolve, and one lamp without shadows, which are most of the cost.
    """
    if solids < 0:
        raise ValueError(f"a room cannot hold {solids} solids; give 0 or more")
    draw = _RoomSampler(seed)
    half = draw.draw_uniform((2.6, 1.35, 2.6), (3.4, 1.6, 3.4))
    is_ball = torch.rand(solids, generator=draw.generator) < 0.45
    size = draw.draw_uniform((0.22, 0.25, 0.22), (0.48, 0.65, 0.48), solids)
    size = torch.where(is_ball[:, None], size[:, :1].expand(-1, 3), size)
    center = _draw_positions(draw, half, solids)
    center[:, 1] = half[1] - size[:, 1]  # everything stands on the floor
    turn = torch.rand(solids, generator=draw.generator, dtype=torch.float64) * pi / 2
    frames = torch.cat([torch.eye(3, dtype=torch.float64)[None], _rotate_about_vertical(turn)])
    stretch = torch.cat([half[None], size])
    materials = (_draw_wave_materials if coarse else _draw_materials)(draw, solids, dtype)
    lamps = _draw_lamps(draw, half).to(dtype)
    return Room(
        solids=Solids(
            center=torch.cat([torch.zeros(1, 3, dtype=torch.float64), center]).to(dtype),
            solid_from_world=(frames.mT / stretch[..., None]).to(dtype),
            is_ball=torch.cat([torch.zeros(1, dtype=torch.bool), is_ball]),
        ),
        materials=materials,
        half_size=half.to(dtype),
        lamps=lamps.mean(0, keepdim=True) if coarse else lamps,
        shadows=not coarse,
    )


class _RoomSampler:
    """Seeded numbers in float64, the same on every machine and for every dtype."""

    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)

    def draw_uniform(self, low: tuple[float, ...], high: tuple[float, ...], *shape: int) -> Tensor:
        floor, ceiling = torch.tensor([low, high], dtype=torch.float64)
        unit = torch.rand(*shape, len(low), generator=self.generator, dtype=torch.float64)
        return floor + unit * (ceiling - floor)

    def choose(self, options: tuple[str, ...]) -> str:
        return options[int(torch.randint(len(options), (), generator=self.generator))]


def _draw_positions(draw: _RoomSampler, half: Tensor, count: int) -> Tensor:
    """Spots on the floor, each the candidate farthest from those already taken."""
    taken = torch.zeros(0, 3, dtype=torch.float64)
    for _ in range(count):
        spots = draw.draw_uniform((-1.0, 0.0, -1.0), (1.0, 0.0, 1.0), 24) * (half - 0.7)
        gap = torch.cdist(spots, taken).amin(-1) if len(taken) else spots.norm(dim=-1)
        taken = torch.cat([taken, spots[gap.argmax()][None]])
    return taken


def _rotate_about_vertical(angle_rad: Float[Tensor, "solid"]) -> Float[Tensor, "solid 3 3"]:
    cos, sin = angle_rad.cos(), angle_rad.sin()
    zero, one = torch.zeros_like(cos), torch.ones_like(cos)
    return torch.stack([cos, zero, sin, zero, one, zero, -sin, zero, cos], -1).reshape(-1, 3, 3)


def _draw_lamps(draw: _RoomSampler, half: Tensor) -> Float[Tensor, "lamp 3"]:
    """Four points of one lamp, so that shadows are soft. It hangs a little below the ceiling (y is down)."""
    corners = torch.tensor([[-1, 0, -1], [1, 0, -1], [-1, 0, 1], [1, 0, 1]], dtype=torch.float64)
    middle = draw.draw_uniform((-0.8, 0.1, -0.8), (0.8, 0.15, 0.8))
    middle[1] -= half[1]
    return 0.35 * corners + middle


WALL_COLORS = (
    ((0.80, 0.72, 0.58), (0.90, 0.84, 0.72)),  # sand
    ((0.36, 0.52, 0.58), (0.50, 0.66, 0.70)),  # sea
    ((0.62, 0.30, 0.22), (0.86, 0.80, 0.72)),  # brick and mortar
    ((0.46, 0.55, 0.40), (0.62, 0.70, 0.54)),  # sage
)
FLOOR = ((0.58, 0.38, 0.21), (0.24, 0.14, 0.07))
CEILING = ((0.93, 0.92, 0.89), (0.97, 0.96, 0.94))
OBJECT_COLORS = (
    ((0.93, 0.75, 0.16), (0.35, 0.20, 0.05)),
    ((0.12, 0.35, 0.66), (0.90, 0.92, 0.95)),
    ((0.80, 0.16, 0.14), (0.95, 0.88, 0.80)),
    ((0.10, 0.48, 0.34), (0.86, 0.93, 0.70)),
    ((0.42, 0.18, 0.50), (0.92, 0.78, 0.90)),
    ((0.92, 0.92, 0.90), (0.20, 0.21, 0.24)),
    ((0.94, 0.48, 0.12), (0.14, 0.16, 0.30)),
)


def _draw_materials(draw: _RoomSampler, solids: int, dtype: torch.dtype) -> Materials:
    walls = ("plain", "plain", "bricks", "stripes")
    turn = int(torch.randint(4, (), generator=draw.generator))
    order = [(turn + i) % 4 for i in range(4)]
    # Faces in the order −x, +x, −y (ceiling), +y (floor), −z, +z.
    faces = [*((walls[i], WALL_COLORS[i], 0.8) for i in order)]
    faces[2:2] = [("plain", CEILING, 1.0), ("planks", FLOOR, 0.22)]
    start = int(torch.randint(len(OBJECT_COLORS), (), generator=draw.generator))
    for thing in range(solids):
        name = draw.choose(("checker", "marble", "stripes", "dots", "marble"))
        faces.append((name, OBJECT_COLORS[(start + thing) % len(OBJECT_COLORS)], 0.22))
    patterns, colors, sizes = zip(*faces, strict=True)
    return Materials(
        pattern=torch.tensor([list(PATTERNS).index(name) for name in patterns]),
        colors=torch.tensor(colors, dtype=dtype),
        size=torch.tensor(sizes, dtype=dtype),
        shift=torch.full((len(faces), 3), 0.37, dtype=dtype),  # no pattern border lies in a surface
    )


def _draw_wave_materials(draw: _RoomSampler, solids: int, dtype: torch.dtype) -> Materials:
    count = FACES + solids
    size = torch.cat([draw.draw_uniform((3.0,), (6.0,), FACES), draw.draw_uniform((1.9,), (3.8,), solids)])[
        :, 0
    ]
    return Materials(
        pattern=torch.full((count,), list(PATTERNS).index("waves")),
        colors=draw.draw_uniform((0.02,) * 3, (0.98,) * 3, count, 2).to(dtype),
        size=size.to(dtype),
        shift=draw.draw_uniform((0.0,) * 3, (1.0,) * 3, count).to(dtype),
    )
