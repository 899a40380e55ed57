"""Procedural rooms: every seed is a furnished room of its own."""

from math import pi

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.demo.room import Materials, Room, Solids
from g_ray.demo.textures import PATTERNS

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
