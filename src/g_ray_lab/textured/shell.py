"""The shell of a room: floor, ceiling, walls, doors and windows, and what is seen outside."""

from collections.abc import Sequence
from dataclasses import replace
from math import pi

import numpy as np

from g_ray_lab.meshes.mesh_files import Mesh
from g_ray_lab.textured.materials import MaterialSource, draw_view
from g_ray_lab.textured.panels import (
    CELL,
    UP,
    Surface,
    make_box,
    make_panel,
    make_picture,
    place_mesh,
    space_evenly,
)
from g_ray_lab.textured.patterns import (
    WHITE,
    Material,
    Random,
    draw_bricks,
    draw_color,
    draw_concrete,
    make_noise,
    to_bytes,
)
from g_ray_lab.textured.plan import FloorPlan, Opening, Wall


def build_shell(
    plan: FloorPlan, walls: Sequence[Wall], openings: Sequence[Opening], source: MaterialSource
) -> list[Surface]:
    """Build floor, ceiling and walls, and what is in and behind their openings."""
    random = source.random
    surfaces = _build_floors(plan, source)
    one_material = source.draw_wall()
    accent = source.draw_wall() if random.random() < 0.4 else one_material
    accented = int(random.integers(len(walls)))
    wood = source.draw_cover(soft=False).material
    wainscot = float(random.uniform(0.8, 1.3)) if random.random() < 0.2 else None
    lower = source.draw_wall() if wainscot else one_material
    for number, wall in enumerate(walls):
        own = [opening for opening in openings if opening.wall == wall]
        material = accent if number == accented else one_material
        surfaces += _build_wall(plan, wall, own, material, (wainscot, lower), random)
        surfaces += _build_skirting(wall, own, wood)
        for opening in own:
            surfaces += build_reveal(opening, material)
            if opening.is_door:
                surfaces += build_door(opening, source)
            else:
                surfaces += build_window(opening, plan, source)
    if any(not opening.is_door for opening in openings):
        surfaces += _build_surroundings(source)
    return surfaces


def _build_surroundings(source: MaterialSource) -> list[Surface]:
    """Build the ground outside and the sky around it, for looks through windows beyond what stands before them."""
    far, low = 40.0, -float(source.random.uniform(0.3, 6.0))
    steps = (np.array([-far, far]), np.array([-far, far]))
    ground = make_panel((0, 0, low), (1, 0, 0), (0, 1, 0), steps, draw_concrete(source.random))
    dome = make_box((-far, -far, low - 1), (far, far, far), WHITE, cell=far)
    sky = replace(dome, faces=dome.faces[:, ::-1].copy(), sky=True)
    return [Surface(ground, glows=True), Surface(sky, glows=True)]


def _build_floors(plan: FloorPlan, source: MaterialSource) -> list[Surface]:
    floor, ceiling = source.draw_floor(), source.draw_ceiling()
    corners = np.array(plan.rectangles)
    xs = space_evenly(corners[:, 0].min(), corners[:, 2].max(), CELL, corners[:, [0, 2]].ravel().tolist())
    ys = space_evenly(corners[:, 1].min(), corners[:, 3].max(), CELL, corners[:, [1, 3]].ravel().tolist())
    middle = np.stack(np.meshgrid((xs[1:] + xs[:-1]) / 2, (ys[1:] + ys[:-1]) / 2), -1)
    keep = (plan.measure_distance(middle.reshape(-1, 2)) > 0).reshape(middle.shape[:2])
    zero, turned = np.zeros(3), source.random.random() < 0.5
    low = make_panel(zero, (1, 0, 0), (0, 1, 0), (xs, ys), floor, keep)
    if turned and low.uv is not None:  # boards run along the other wall
        low = replace(low, uv=low.uv[:, ::-1].copy())
    high = make_panel(
        (0, 0, plan.height), (0, 1, 0), (1, 0, 0), (ys, xs), ceiling, np.ascontiguousarray(keep.T)
    )
    return [Surface(_weather(low, source.random)), Surface(_weather(high, source.random))]


def _build_wall(
    plan: FloorPlan,
    wall: Wall,
    openings: Sequence[Opening],
    material: Material,
    wainscot: tuple[float | None, Material],
    random: Random,
) -> list[Surface]:
    """Build a wall with holes, seen from inside; the lower part may be of another material."""
    stops = [value for o in openings for value in (wall.length - o.left, wall.length - o.right)]
    across = space_evenly(0.0, wall.length, CELL, stops)
    border, lower = wainscot
    parts = [(0.0, plan.height, material)]
    if border is not None:
        parts = [(0.0, border, lower), (border, plan.height, material)]
    surfaces = []
    for low, high, cover in parts:
        rows = space_evenly(low, high, CELL, [value for o in openings for value in (o.low, o.high)])
        s, t = (across[1:] + across[:-1]) / 2, (rows[1:] + rows[:-1]) / 2
        keep = np.ones((len(t), len(s)), bool)
        for o in openings:
            inside = (s > wall.length - o.right) & (s < wall.length - o.left)
            keep &= ~(((t > o.low) & (t < o.high))[:, None] & inside)
        if not keep.any():
            continue
        # From the end of the wall backwards, so that its front faces the room.
        corner, along = (*wall.locate(wall.length, 0.0), 0.0), (-wall.along[0], -wall.along[1], 0.0)
        shift = (float(random.uniform()), 0.0)
        panel = make_panel(corner, along, UP, (across, rows), cover, keep, shift)
        surfaces.append(Surface(_weather(panel, random)))
    return surfaces


def _weather(panel: Mesh, random: Random) -> Mesh:
    """Vary the brightness of a large surface slowly, so that no two places of a repeated material look the same."""
    waves, phase = random.normal(0, 1.6, (5, 3)), random.uniform(0, 2 * pi, 5)
    clouds = np.sin(panel.vertices @ waves.T + phase).sum(-1) / 5
    amount = (1 + random.uniform(0.05, 0.3) * clouds).astype(np.float32)
    return replace(panel, tint=panel.tint * amount[:, None])


def _build_skirting(wall: Wall, openings: Sequence[Opening], material: Material) -> list[Surface]:
    doors = sorted((o.left, o.right) for o in openings if o.is_door)
    edges = [0.0, *(value for door in doors for value in door), wall.length]
    high = 0.09
    return [
        make_wall_box(wall, (a, b), (0.0, 0.015), (0.0, high), material)
        for a, b in zip(edges[::2], edges[1::2], strict=True)
        if b - a > 0.05
    ]


# Doors and windows


def make_wall_box(
    wall: Wall,
    along: tuple[float, float],
    inward: tuple[float, float],
    z: tuple[float, float],
    material: Material,
) -> Surface:
    """Make a box in the coordinates of a wall."""
    box = make_box((along[0], inward[0], z[0]), (along[1], inward[1], z[1]), material)
    return Surface(place_mesh(box, (*wall.start, 0.0), wall.yaw_rad))


def build_reveal(opening: Opening, material: Material) -> list[Surface]:
    """Build the four sides of a hole in a wall."""
    wall, thick = opening.wall, 0.02
    a, b, low, high, depth = opening.left, opening.right, opening.low, opening.high, opening.depth
    sides = [
        make_wall_box(wall, (a - thick, a), (-depth, -0.001), (low, high), material),
        make_wall_box(wall, (b, b + thick), (-depth, -0.001), (low, high), material),
        make_wall_box(wall, (a, b), (-depth, -0.001), (high, high + thick), material),
    ]
    return [*sides, make_wall_box(wall, (a, b), (-depth, -0.001), (low - thick, low), material)]


def _build_frame(opening: Opening, material: Material, width: float, bars: tuple[int, int]) -> list[Surface]:
    """Build the frame of a window or door at the outer end of its hole, with bars between its panes."""
    wall, at = opening.wall, (-opening.depth, -opening.depth + 0.05)
    a, b, low, high = opening.left, opening.right, opening.low, opening.high
    upright = [a, *np.linspace(a, b, bars[0] + 2)[1:-1] - width / 2, b - width]
    level = [low, *np.linspace(low, high, bars[1] + 2)[1:-1] - width / 2, high - width]
    parts = [make_wall_box(wall, (float(x), float(x) + width), at, (low, high), material) for x in upright]
    return parts + [make_wall_box(wall, (a, b), at, (float(z), float(z) + width), material) for z in level]


def build_door(opening: Opening, source: MaterialSource) -> list[Surface]:
    """Close a door with a slab, or leave it open to a dim corridor; trim around it in both cases."""
    wall, wood = opening.wall, source.draw_cover(soft=False).material
    a, b, high, trim = opening.left, opening.right, opening.high, 0.07
    parts = [
        make_wall_box(wall, (a - trim, a), (0.0, 0.02), (0.0, high + trim), wood),
        make_wall_box(wall, (b, b + trim), (0.0, 0.02), (0.0, high + trim), wood),
        make_wall_box(wall, (a, b), (0.0, 0.02), (high, high + trim), wood),
    ]
    if source.random.random() < 0.35:
        return [*parts, *_build_corridor(opening, source)]
    back = -opening.depth
    parts.append(make_wall_box(wall, (a, b), (back, back + 0.04), (0.0, high), wood))
    panel = source.draw_cover(soft=False).material if source.random.random() < 0.3 else wood
    for low, top in ((0.15, 0.9), (1.05, high - 0.15)):
        inset = (back + 0.04, back + 0.055)
        parts.append(make_wall_box(wall, (a + 0.13, b - 0.13), inset, (low, top), panel))
    parts.append(make_wall_box(wall, (b - 0.11, b - 0.06), (back + 0.04, back + 0.1), (0.98, 1.02), panel))
    return parts


def _build_corridor(opening: Opening, source: MaterialSource) -> list[Surface]:
    """Build the closed space behind an open door."""
    wall, random = opening.wall, source.random
    middle, half = (opening.left + opening.right) / 2, float(random.uniform(0.7, 1.4))
    deep, high = opening.depth + float(random.uniform(1.0, 3.0)), opening.high + 0.3
    paper, floor, thick = source.draw_wall(), source.draw_floor(), 0.02
    a, b, near = middle - half, middle + half, -opening.depth - 0.02
    return [
        make_wall_box(wall, (a, b), (-deep - thick, -deep), (0.0, high), paper),
        make_wall_box(wall, (a - thick, a), (-deep, near), (0.0, high), paper),
        make_wall_box(wall, (b, b + thick), (-deep, near), (0.0, high), paper),
        make_wall_box(wall, (a, b), (-deep, near), (-thick, 0.0), floor),
        make_wall_box(wall, (a, b), (-deep, near), (high, high + thick), paper),
    ]


def build_window(opening: Opening, plan: FloorPlan, source: MaterialSource) -> list[Surface]:
    """Build a window: frame, the world outside or a blind, and curtains."""
    random, wall = source.random, opening.wall
    white = Material(to_bytes(np.full((4, 4, 3), random.uniform(0.5, 0.95), np.float32)), 1.0)
    frame = white if random.random() < 0.6 else source.draw_cover(soft=False).material
    surfaces = _build_frame(opening, frame, 0.05, (int(random.integers(0, 4)), int(random.integers(0, 3))))
    surfaces += [_build_outside(opening, random)]
    if random.random() < 0.5:
        surfaces += _build_curtains(opening, plan, source)
    sill = (opening.left - 0.05, opening.right + 0.05)
    surfaces.append(make_wall_box(wall, sill, (0.0, 0.06), (opening.low - 0.03, opening.low), frame))
    return surfaces


def _build_outside(opening: Opening, random: Random) -> Surface:
    """Build the view from a window: a bright blind in its plane, or a facade or landscape some meters away."""
    wall, brightness = opening.wall, float(random.uniform(0.8, 2.5))
    along = (-wall.along[0], -wall.along[1], 0.0)
    if random.random() < 0.3:
        corner = (*wall.locate(opening.right, -opening.depth + 0.01), opening.low)
        size = (opening.right - opening.left, opening.high - opening.low)
        return Surface(make_picture(corner, along, UP, size, _draw_blind(random), brightness), glows=True)
    far = float(random.uniform(3.0, 12.0))
    corner = (*wall.locate((opening.left + opening.right) / 2 + 2 * far, -far), -far)
    if random.random() < 0.4:
        steps = (np.array([0, 4 * far]), np.array([0, 3 * far]))
        panel = make_panel(corner, along, UP, steps, replace(draw_bricks(random), meters=3.0))
        return Surface(replace(panel, tint=panel.tint * np.float32(brightness)), glows=True)
    image = draw_view(random, 512)
    return Surface(make_picture(corner, along, UP, (4 * far, 3 * far), image, brightness, far), glows=True)


def _draw_blind(random: Random) -> np.ndarray:
    """Draw a blind with slats, or a light cloth."""
    light = draw_color(random, saturation=(0.0, 0.25), value=(0.75, 1.0))
    rows = np.arange(128)[:, None]
    slats = 0.85 + 0.15 * np.sin(rows * pi / 4) if random.random() < 0.5 else np.ones((128, 1))
    folds = 1 + 0.05 * make_noise(random, 128, 1.2)
    return to_bytes((light * (slats * folds)[..., None]).astype(np.float32))


def _build_curtains(opening: Opening, plan: FloorPlan, source: MaterialSource) -> list[Surface]:
    """Hang two folded sheets at the sides of a window."""
    random, wall, fabric = source.random, opening.wall, source.draw_cover(soft=True).material
    width = float(random.uniform(0.25, 0.5))
    top = min(opening.high + 0.15, plan.height - 0.02)
    low = float(random.choice([0.02, max(opening.low - 0.15, 0.02)]))
    sheets = []
    for left in (opening.left - 0.8 * width, opening.right - 0.2 * width):
        if left < 0.02 or left + width > wall.length - 0.02:
            continue
        steps = (space_evenly(0.0, width, 0.02), space_evenly(low, top, CELL))
        corner, along = (*wall.locate(left + width, 0.09), 0.0), (-wall.along[0], -wall.along[1], 0.0)
        sheet = make_panel(corner, along, UP, steps, fabric)
        place = np.tile(steps[0], len(steps[1]))
        wave = 0.035 * np.sin(place * 2 * pi / 0.11 + random.uniform(0, 6))
        inward = np.array([*wall.inward, 0.0])
        sheets.append(Surface(replace(sheet, vertices=sheet.vertices + wave[:, None] * inward)))
    return sheets
