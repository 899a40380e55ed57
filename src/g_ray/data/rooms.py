"""Procedural rooms: a furnished box, ray cast exactly for any camera, with depth and points as ground truth.

Every solid is a unit ball or a unit cube, stretched, turned about the vertical and moved. Rays are taken into
its own frame, where both intersections are two lines; the room itself is a cube seen from inside.
"""

from dataclasses import dataclass
from math import pi

import torch
from einops import reduce
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.data.textures import PATTERNS
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap

RAYS_AT_ONCE = 1 << 13
"""So many rays meet all solids in one go: the working set then stays in the cache (twice as fast)."""


@dataclass(frozen=True)
class Rendering:
    """What a camera sees. Zero where no ray exists (`valid` false)."""

    rgb: Float[Tensor, "*shape 3"]  # in [0, 1]
    ray_depth: Float[Tensor, "*shape"]  # distance along the unit ray, metres
    z_depth: Float[Tensor, "*shape"]  # its component along the optical axis; negative beyond 90°
    points: Float[Tensor, "*shape 3"]  # in the world
    valid: Bool[Tensor, "*shape"]


@dataclass(frozen=True)
class Solids:
    """Balls and cubes; solid 0 is the room. `solid_from_world` includes the stretch: each is a unit shape."""

    centre: Float[Tensor, "solid 3"]
    solid_from_world: Float[Tensor, "solid 3 3"]
    is_ball: Bool[Tensor, "solid"]

    def local(self, vectors: Float[Tensor, "ray 3"]) -> Float[Tensor, "3 solid ray"]:
        """Vectors in every solid's frame, component first: one matrix product and fast reductions."""
        rows = self.solid_from_world.transpose(0, 1).reshape(-1, 3)
        return (rows @ vectors.mT).reshape(3, len(self.centre), -1)


@dataclass(frozen=True)
class Materials:
    """A pattern between two colours for each surface: six faces of the room, then one per solid."""

    pattern: tuple[str, ...]
    colours: Float[Tensor, "surface 2 3"]
    size: Float[Tensor, "surface"]  # metres per unit of the pattern


@dataclass(frozen=True)
class Room:
    """World frame: y down, origin in the middle of the room, metres."""

    solids: Solids
    materials: Materials
    half_size: Float[Tensor, "3"]
    lamps: Float[Tensor, "lamp 3"]

    def cast(
        self, origins: Float[Tensor, "ray 3"], directions: Float[Tensor, "ray 3"]
    ) -> tuple[Float[Tensor, "ray"], Int[Tensor, "ray"]]:
        """Distance to the first surface along each ray, and the index of its solid."""
        chunks = zip(origins.split(RAYS_AT_ONCE), directions.split(RAYS_AT_ONCE), strict=True)
        distances, indices = zip(*(self._cast(o, d) for o, d in chunks), strict=True)
        return torch.cat(distances), torch.cat(indices)

    def _cast(self, origins: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        offset = torch.einsum("sij,sj->is", self.solids.solid_from_world, self.solids.centre)
        start, step = self.solids.local(origins) - offset[..., None], self.solids.local(directions)
        enter, leave = _meet_cube(start, step)
        distance = torch.where(self.solids.is_ball[:, None], _meet_ball(start, step), enter)
        distance[0] = leave[0]
        nearest = distance.min(0)
        return nearest.values, nearest.indices

    def normals(
        self, points: Float[Tensor, "ray 3"], solid: Int[Tensor, "ray"]
    ) -> tuple[Float[Tensor, "ray 3"], Int[Tensor, "ray"]]:
        """Unit normals that point to the viewer, and the index of the surface (see `Materials`)."""
        matrix = self.solids.solid_from_world[solid]
        local = (matrix @ (points - self.solids.centre[solid])[..., None])[..., 0]
        axis = local.abs().argmax(-1)
        on_axis = torch.nn.functional.one_hot(axis, 3) * local.sign()
        # A gradient goes back to the world with the transposed matrix.
        gradient = torch.where(self.solids.is_ball[solid, None], local, on_axis)
        outward = torch.nn.functional.normalize((matrix.mT @ gradient[..., None])[..., 0], dim=-1)
        face = 2 * axis + (on_axis.sum(-1) > 0)
        return torch.where(solid[:, None] == 0, -outward, outward), torch.where(solid == 0, face, 5 + solid)

    def colour(self, points: Float[Tensor, "ray 3"], solid: Int[Tensor, "ray"]) -> Float[Tensor, "ray 3"]:
        """Texture times light, for the eye (gamma 2.2)."""
        normal, surface = self.normals(points, solid)
        linear = self._albedo(points, surface) * self._light(points, normal)[:, None]
        return linear.clamp(0, 1) ** (1 / 2.2)

    def _albedo(self, points: Tensor, surface: Tensor) -> Tensor:
        scaled = points / self.materials.size[surface, None] + 0.37  # no pattern border lies in a surface
        blend = torch.zeros_like(points[:, 0])
        for name in dict.fromkeys(self.materials.pattern):
            here = torch.tensor([pattern == name for pattern in self.materials.pattern], device=points.device)
            chosen = here[surface]
            blend[chosen] = PATTERNS[name](scaled[chosen])
        first, second = self.materials.colours[surface].unbind(1)
        return torch.lerp(first, second, blend[:, None])

    def _light(self, points: Tensor, normal: Tensor) -> Tensor:
        """Lamps with shadows, a sky of ambient light, and the darkening that corners have."""
        total = torch.zeros_like(points[:, 0])
        for lamp in self.lamps:
            offset = lamp - points
            reach = offset.norm(dim=-1)
            towards = offset / reach[:, None]
            free = self.cast(points + 1e-3 * normal, towards)[0] > reach - 1e-2
            total = total + free * (normal * towards).sum(-1).clamp(min=0) / (1 + (reach / 3) ** 2)
        to_walls = (self.half_size - points.abs()).clamp(min=0)
        # On a wall the smallest distance is 0; the second leads to the next wall.
        corner = to_walls.sort(-1).values[:, 1]
        ambient = 0.38 + 0.04 * normal[:, 1]
        return (ambient + 1.5 * total / len(self.lamps)) * (1 - 0.35 * torch.exp(-4 * corner))

    def render(self, camera: Camera, pose: Pose, antialias: int = 1) -> Rendering:
        """Depth and points at the pixel centres; colour averaged over `antialias`² rays per pixel."""
        rays = RayMap.of_camera(camera)
        distance, points, solid = self._look(rays, pose)
        if antialias == 1:
            rgb = self.colour(points.reshape(-1, 3), solid.reshape(-1)).reshape(points.shape)
        else:
            rgb = self._smooth_colour(camera, pose, antialias)
        return Rendering(
            rgb=rgb * rays.valid[..., None],
            ray_depth=distance * rays.valid,
            z_depth=distance * rays.directions[..., 2] * rays.valid,
            points=points * rays.valid[..., None],
            valid=rays.valid,
        )

    def _look(self, rays: RayMap, pose: Pose) -> tuple[Tensor, Tensor, Tensor]:
        world = rays.in_world(pose)
        assert world.origins is not None
        distance, solid = self.cast(world.origins.reshape(-1, 3), world.directions.reshape(-1, 3))
        distance = distance.reshape(rays.shape)
        return distance, world.origins + distance[..., None] * world.directions, solid.reshape(rays.shape)

    def _smooth_colour(self, camera: Camera, pose: Pose, antialias: int) -> Tensor:
        rays = RayMap.of_camera(camera.resize(antialias * camera.width, antialias * camera.height))
        _, points, solid = self._look(rays, pose)
        rgb = self.colour(points.reshape(-1, 3), solid.reshape(-1)).reshape(points.shape)
        weight = rays.valid[..., None].to(rgb)
        cells = "... (h a) (w b) c -> ... h w c"
        total, count = (
            reduce(values, cells, "sum", a=antialias, b=antialias) for values in (rgb * weight, weight)
        )
        return total / count.clamp(min=1)


def random_room(seed: int, solids: int = 7, dtype: torch.dtype = torch.float32) -> Room:
    """A room of its own size, colours, furniture and light for every seed."""
    if solids < 0:
        raise ValueError(f"a room cannot hold {solids} solids; give 0 or more")
    draw = _Draw(seed)
    half = draw.uniform((2.6, 1.35, 2.6), (3.4, 1.6, 3.4))
    is_ball = torch.rand(solids, generator=draw.generator) < 0.45
    size = draw.uniform((0.22, 0.25, 0.22), (0.48, 0.65, 0.48), solids)
    size = torch.where(is_ball[:, None], size[:, :1].expand(-1, 3), size)
    centre = _places(draw, half, solids)
    centre[:, 1] = half[1] - size[:, 1]  # everything stands on the floor
    turn = torch.rand(solids, generator=draw.generator, dtype=torch.float64) * pi / 2
    frames = torch.cat([torch.eye(3, dtype=torch.float64)[None], _about_vertical(turn)])
    stretch = torch.cat([half[None], size])
    return Room(
        solids=Solids(
            centre=torch.cat([torch.zeros(1, 3, dtype=torch.float64), centre]).to(dtype),
            solid_from_world=(frames.mT / stretch[..., None]).to(dtype),
            is_ball=torch.cat([torch.zeros(1, dtype=torch.bool), is_ball]),
        ),
        materials=_materials(draw, solids, dtype),
        half_size=half.to(dtype),
        lamps=_lamps(draw, half).to(dtype),
    )


def _meet_ball(start: Float[Tensor, "3 *shape"], step: Float[Tensor, "3 *shape"]) -> Float[Tensor, "*shape"]:
    """First positive t with |start + t·step| = 1, else ∞."""
    a, b, c = (step * step).sum(0), (start * step).sum(0), (start * start).sum(0) - 1
    square = b * b - a * c
    distance = (-b - square.clamp(min=0).sqrt()) / a
    return torch.where((square >= 0) & (distance > 0), distance, torch.inf)


def _meet_cube(
    start: Float[Tensor, "3 *shape"], step: Float[Tensor, "3 *shape"]
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """Where start + t·step enters (else ∞) and leaves the cube [−1, 1]³."""
    tiny = 1e-30  # a ray along a face: far away instead of 0/0
    inverse = 1 / torch.where(step.abs() < tiny, tiny, step)
    centre, reach = -start * inverse, inverse.abs()
    enter, leave = (centre - reach).amax(0), (centre + reach).amin(0)
    return torch.where((enter <= leave) & (enter > 0), enter, torch.inf), leave


class _Draw:
    """Seeded numbers in float64, the same on every machine and for every dtype."""

    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)

    def uniform(self, low: tuple[float, ...], high: tuple[float, ...], *shape: int) -> Tensor:
        floor, ceiling = torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64)
        unit = torch.rand(*shape, len(low), generator=self.generator, dtype=torch.float64)
        return floor + unit * (ceiling - floor)

    def choice(self, options: tuple[str, ...]) -> str:
        return options[int(torch.randint(len(options), (), generator=self.generator))]


def _places(draw: _Draw, half: Tensor, count: int) -> Tensor:
    """Spots on the floor, each the candidate farthest from those already taken."""
    taken = torch.zeros(0, 3, dtype=torch.float64)
    for _ in range(count):
        spots = draw.uniform((-1.0, 0.0, -1.0), (1.0, 0.0, 1.0), 24) * (half - 0.7)
        gap = torch.cdist(spots, taken).amin(-1) if len(taken) else spots.norm(dim=-1)
        taken = torch.cat([taken, spots[gap.argmax()][None]])
    return taken


def _about_vertical(angle_rad: Float[Tensor, "solid"]) -> Float[Tensor, "solid 3 3"]:
    cos, sin = angle_rad.cos(), angle_rad.sin()
    zero, one = torch.zeros_like(cos), torch.ones_like(cos)
    return torch.stack([cos, zero, sin, zero, one, zero, -sin, zero, cos], -1).reshape(-1, 3, 3)


def _lamps(draw: _Draw, half: Tensor) -> Float[Tensor, "lamp 3"]:
    """Four points of one lamp, so that shadows are soft. It hangs a little below the ceiling (y is down)."""
    corners = torch.tensor([[-1, 0, -1], [1, 0, -1], [-1, 0, 1], [1, 0, 1]], dtype=torch.float64)
    middle = draw.uniform((-0.8, 0.1, -0.8), (0.8, 0.15, 0.8))
    middle[1] -= half[1]
    return 0.35 * corners + middle


WALL_COLOURS = (
    ((0.80, 0.72, 0.58), (0.90, 0.84, 0.72)),  # sand
    ((0.36, 0.52, 0.58), (0.50, 0.66, 0.70)),  # sea
    ((0.62, 0.30, 0.22), (0.86, 0.80, 0.72)),  # brick and mortar
    ((0.46, 0.55, 0.40), (0.62, 0.70, 0.54)),  # sage
)
FLOOR = ((0.58, 0.38, 0.21), (0.24, 0.14, 0.07))
CEILING = ((0.93, 0.92, 0.89), (0.97, 0.96, 0.94))
THING_COLOURS = (
    ((0.93, 0.75, 0.16), (0.35, 0.20, 0.05)),
    ((0.12, 0.35, 0.66), (0.90, 0.92, 0.95)),
    ((0.80, 0.16, 0.14), (0.95, 0.88, 0.80)),
    ((0.10, 0.48, 0.34), (0.86, 0.93, 0.70)),
    ((0.42, 0.18, 0.50), (0.92, 0.78, 0.90)),
    ((0.92, 0.92, 0.90), (0.20, 0.21, 0.24)),
    ((0.94, 0.48, 0.12), (0.14, 0.16, 0.30)),
)


def _materials(draw: _Draw, solids: int, dtype: torch.dtype) -> Materials:
    walls = ("plain", "plain", "bricks", "stripes")
    turn = int(torch.randint(4, (), generator=draw.generator))
    order = [(turn + i) % 4 for i in range(4)]
    # Faces in the order −x, +x, −y (ceiling), +y (floor), −z, +z.
    faces = [*((walls[i], WALL_COLOURS[i], 0.8) for i in order)]
    faces[2:2] = [("plain", CEILING, 1.0), ("planks", FLOOR, 0.22)]
    start = int(torch.randint(len(THING_COLOURS), (), generator=draw.generator))
    for thing in range(solids):
        name = draw.choice(("checker", "marble", "stripes", "dots", "marble"))
        faces.append((name, THING_COLOURS[(start + thing) % len(THING_COLOURS)], 0.22))
    patterns, colours, sizes = zip(*faces, strict=True)
    return Materials(tuple(patterns), torch.tensor(colours, dtype=dtype), torch.tensor(sizes, dtype=dtype))
