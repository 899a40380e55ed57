"""The shell of a room: floor, ceiling, walls with their openings, skirting, and the surroundings."""

from collections.abc import Sequence
from dataclasses import replace
from math import pi

import numpy as np

from g_ray_lab.meshes.mesh_files import Mesh
from g_ray_lab.textured.free_space import FloorPlan
from g_ray_lab.textured.materials import MaterialSource
from g_ray_lab.textured.noise import Random
from g_ray_lab.textured.openings import build_door, build_reveal, build_window, make_wall_box
from g_ray_lab.textured.panels import CELL, UP, Surface, make_box, make_panel, space_evenly
from g_ray_lab.textured.patterns import WHITE, Material, draw_concrete
from g_ray_lab.textured.plan import Opening, Wall


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
