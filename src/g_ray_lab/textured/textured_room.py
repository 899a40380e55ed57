"""Textured rooms: every seed one room with furniture, small things and light, as far as the assets go."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import pi

import numpy as np
from jaxtyping import Float

from g_ray_lab.meshes.mesh_files import Mesh
from g_ray_lab.textured.assets import RoomAssets
from g_ray_lab.textured.clutter import (
    hang_pictures,
    lay_rugs,
    load_things,
    stand_on_floor,
    stand_on_furniture,
)
from g_ray_lab.textured.furniture import (
    THEMES,
    Candidate,
    Piece,
    draw_box_furniture,
    furnish,
    list_candidates,
    list_small_things,
)
from g_ray_lab.textured.light import AreaLight, Lighting, Sun, convert_temperature, light_surfaces
from g_ray_lab.textured.materials import MaterialSource
from g_ray_lab.textured.panels import Surface, make_box
from g_ray_lab.textured.patterns import WHITE, Random
from g_ray_lab.textured.plan import (
    Box,
    FloorPlan,
    Opening,
    RoomSpace,
    draw_openings,
    draw_plan,
    list_door_boxes,
    list_walls,
)
from g_ray_lab.textured.shell import build_shell

BOX_FURNITURE = 6  # pieces made of boxes that are offered in addition to those of the libraries
LAMP = 3.0  # brightness of lamps, where a white wall in full light has 1


@dataclass(frozen=True, eq=False)
class TexturedRoom:
    """A room ready to be rendered: the tints of its meshes hold its light. Meters, z up, floor at z = 0."""

    meshes: tuple[Mesh, ...]
    space: RoomSpace
    theme: str
    pieces: tuple[Piece, ...]
    """All that stands, lies or hangs in it, without its light."""


def make_textured_room(seed: int, assets: RoomAssets) -> TexturedRoom:
    """Make the room of a seed; the same assets give the same room."""
    random = np.random.default_rng((seed, 0x700))
    source = MaterialSource(assets, random)
    plan = draw_plan(random)
    walls, theme = list_walls(plan), str(random.choice(list(THEMES)))
    openings = draw_openings(plan, walls, random)
    shell = build_shell(plan, walls, openings, source)
    lamps = _draw_lamps(plan, random)
    pieces = _fill_room(plan, openings, [box for _, _, box in lamps], theme, source)
    surfaces = [
        *shell,
        *lay_rugs(plan, random),
        *(surface for surface, _, _ in lamps),
        *(Surface(part) for piece in pieces for part in piece.parts),
    ]
    lighting = _draw_lighting([lamp for _, lamp, _ in lamps], openings, random)
    boxes = (*(piece.box for piece in pieces), *(box for _, _, box in lamps))
    return TexturedRoom(
        light_surfaces(surfaces, lighting, random), RoomSpace(plan, boxes), theme, tuple(pieces)
    )


# Things


def _fill_room(
    plan: FloorPlan, openings: Sequence[Opening], lamps: Sequence[Box], theme: str, source: MaterialSource
) -> list[Piece]:
    """Place furniture, things on it and on the floor, and pictures; from an empty room to a full one."""
    random, assets, walls = source.random, source.assets, list_walls(plan)
    clutter = float(random.beta(2.0, 1.0))
    blocked = [*list_door_boxes(openings), *lamps]
    candidates = _list_furniture(assets, theme, plan, source)
    count = round(clutter * (3 + 0.9 * plan.area))
    pieces = furnish(candidates, min(count, 26), plan, walls, blocked, source.draw_cover, random)
    things = load_things(
        list_small_things(assets), int(clutter * random.integers(8, 48)), source.draw_cover, random
    )
    on_floor = int(len(things) * random.uniform(0.1, 0.4))
    pieces += stand_on_furniture(things[on_floor:], pieces, plan, random)
    taken = [*blocked, *(piece.box for piece in pieces)]
    pieces += stand_on_floor(things[:on_floor], taken, plan, random)
    taken = [*blocked, *(piece.box for piece in pieces)]
    return pieces + hang_pictures(walls, taken, plan, int(random.integers(0, 4 + int(plan.area / 4))), source)


def _list_furniture(
    assets: RoomAssets, theme: str, plan: FloorPlan, source: MaterialSource
) -> list[Candidate]:
    """List the furniture to choose from: that of the libraries, and some made of boxes."""
    candidates = list_candidates(assets, theme, plan)
    share = BOX_FURNITURE if candidates else 3 * BOX_FURNITURE
    boxes = [draw_box_furniture(source.random, source.draw_cover) for _ in range(share)]
    return candidates + [candidate for candidate in boxes if candidate.size[2] < plan.height]


# Light


def _draw_lamps(plan: FloorPlan, random: Random) -> list[tuple[Surface, AreaLight, Box]]:
    """Draw one to four flat lamps under the ceiling, each with its light and the box it takes."""
    lamps = []
    for _ in range(int(random.integers(1, 5))):
        x0, y0, x1, y1 = plan.rectangles[int(random.integers(len(plan.rectangles)))]
        width, depth = (float(value) for value in random.uniform(0.15, 0.9, 2))
        x = float(random.uniform(x0 + width / 2 + 0.1, x1 - width / 2 - 0.1))
        y = float(random.uniform(y0 + depth / 2 + 0.1, y1 - depth / 2 - 0.1))
        low, high = plan.height - float(random.uniform(0.04, 0.12)), plan.height
        color = convert_temperature(float(random.uniform(2500, 6500)))
        box = make_box((x - width / 2, y - depth / 2, low), (x + width / 2, y + depth / 2, high), WHITE)
        tint = (box.tint * (LAMP * color / color.max())).astype(np.float32)
        light = AreaLight(
            center=np.array([x, y, low - 0.02]),
            halves=np.array([[width / 2, 0.0, 0.0], [0.0, depth / 2, 0.0]]),
            normal=np.array([0.0, 0.0, -1.0]),
            radiance=color * random.uniform(0.5, 1.5) / (width * depth),
        )
        surface = Surface(replace(box, tint=tint), glows=True)
        lamps.append((surface, light, Box((x, y), (width, depth), low, high)))
    return lamps


def _draw_lighting(lamps: Sequence[AreaLight], openings: Sequence[Opening], random: Random) -> Lighting:
    """Draw the hour: daylight through the windows with lamps off, dim or on, or lamps alone."""
    windows = [opening for opening in openings if not opening.is_door]
    sky = convert_temperature(float(random.uniform(5000, 9000)))
    day = float(random.uniform(0.5, 2.0)) if windows and random.random() < 0.75 else 0.0
    on = float(random.choice([0.0, 0.3, 1.0])) if day else 1.0
    lights = [_make_window_light(window, sky * day) for window in windows] if day else []
    lit = [replace(lamp, radiance=lamp.radiance * on) for lamp in lamps if on]
    sun = _draw_sun(windows, random) if day and random.random() < 0.45 else None
    return Lighting(
        lamps=(*lights, *lit),
        sun=sun,
        ambient=sky * float(random.uniform(0.01, 0.06)),
        level=float(random.uniform(0.4, 0.85)),
    )


def _make_window_light(window: Opening, radiance: Float[np.ndarray, "3"]) -> AreaLight:
    wall = window.wall
    x, y = wall.locate((window.left + window.right) / 2, 0.01)
    across = [side * (window.right - window.left) / 2 for side in wall.along]
    return AreaLight(
        center=np.array([x, y, (window.low + window.high) / 2]),
        halves=np.array([[*across, 0], [0, 0, (window.high - window.low) / 2]]),
        normal=np.array([*wall.inward, 0.0]),
        radiance=radiance,
    )


def _draw_sun(windows: Sequence[Opening], random: Random) -> Sun:
    """Draw a sun that shines into one of the windows."""
    wall = windows[int(random.integers(len(windows)))].wall
    turn, rise = random.uniform(-1.0, 1.0), random.uniform(0.25, 0.95)
    yaw = np.arctan2(-wall.inward[1], -wall.inward[0]) + turn
    direction = np.array([np.cos(yaw) * np.cos(rise), np.sin(yaw) * np.cos(rise), np.sin(rise)])
    color = convert_temperature(float(random.uniform(4000, 6000)))
    return Sun(direction, color * random.uniform(1.0, 4.0) * pi / 4)
