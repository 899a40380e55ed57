"""Textured rooms: every seed one room with furniture, small things and light, as far as the assets go."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import pi

import numpy as np
from jaxtyping import Float

from g_ray_lab.meshes.mesh_files import Mesh, join_triangles
from g_ray_lab.meshes.textured_scene import build_ray_scene, measure_distances
from g_ray_lab.textured.assets import RoomAssets
from g_ray_lab.textured.furniture import (
    THEMES,
    Candidate,
    Covers,
    Piece,
    cover_plain_parts,
    draw_box_furniture,
    furnish,
    list_candidates,
    list_small_things,
)
from g_ray_lab.textured.light import AreaLight, Lighting, Sun, convert_temperature, light_surfaces
from g_ray_lab.textured.materials import MaterialSource, draw_book_spines, draw_rug
from g_ray_lab.textured.panels import UP, Surface, make_box, make_picture, place_mesh
from g_ray_lab.textured.patterns import WHITE, Material, Random, draw_color, to_bytes
from g_ray_lab.textured.plan import (
    Box,
    FloorPlan,
    Opening,
    RoomSpace,
    Wall,
    draw_openings,
    draw_plan,
    fits,
    list_door_boxes,
    list_walls,
)
from g_ray_lab.textured.shell import build_shell

# Small things in a room: objects that stand on furniture and on the floor, books, rugs, and pictures on the walls

LEVEL = 0.012  # meters by which a support may be uneven below a thing
TRIES = 6  # places tried for each thing


@dataclass(frozen=True, eq=False)
class Thing:
    """A small object around the z axis, standing on z = 0."""

    name: str
    parts: tuple[Mesh, ...]
    size: tuple[float, float, float]


def load_things(candidates: Sequence[Candidate], count: int, covers: Covers, random: Random) -> list[Thing]:
    """Load random small things, with rows of books among them."""
    things = []
    for _ in range(count):
        if not candidates or random.random() < 0.15:
            things.append(make_books(random))
            continue
        candidate = candidates[int(random.integers(len(candidates)))]
        parts = candidate.load()
        if parts is not None:
            things.append(
                _measure_thing(candidate.name, cover_plain_parts(parts, candidate.name, covers, random))
            )
    return [thing for thing in things if max(thing.size) < 0.8]


def _measure_thing(name: str, parts: tuple[Mesh, ...]) -> Thing:
    points = np.concatenate([part.vertices for part in parts])
    width, depth, height = np.maximum(points.max(0) - points.min(0), 0.005)
    return Thing(name, parts, (float(width), float(depth), float(height)))


def make_books(random: Random) -> Thing:
    """Make a row of books, spines to −y."""
    width, depth, height = (float(random.uniform(*r)) for r in ((0.12, 0.5), (0.13, 0.2), (0.18, 0.28)))
    w, d = width / 2, depth / 2
    paper = Material(to_bytes(np.full((4, 4, 3), random.uniform(0.4, 0.85), np.float32)), 1.0)
    block = make_box((-w, -d + 0.004, 0), (w, d, 0.92 * height), paper)
    spines = make_picture(
        (-w, -d, 0), (1, 0, 0), UP, (width, height), draw_book_spines(random, max(int(700 * width), 64))
    )
    return Thing("books", (block, spines), (width, depth, height))


def _place_thing(thing: Thing, position: tuple[float, float, float], yaw_rad: float) -> Piece:
    moved = tuple(place_mesh(part, position, yaw_rad) for part in thing.parts)
    x, y, z = position
    box = Box((x, y), thing.size[:2], z, z + thing.size[2], yaw_rad)
    return Piece(thing.name, moved, box, None)


# On furniture


def stand_on_furniture(
    things: Sequence[Thing], pieces: Sequence[Piece], plan: FloorPlan, random: Random
) -> list[Piece]:
    """Stand things on whatever is level below them and has space above: tops, shelves, seats.

    From random heights inside and just above a piece, rays go down and up at the corners and the middle of a thing.
    """
    hosts = [piece for piece in pieces if piece.box.low < 0.5 and min(piece.box.size) > 0.2]
    if not things or not hosts:
        return []
    scene = build_ray_scene(*join_triangles([part for piece in pieces for part in piece.parts]))
    areas = np.array([piece.box.size[0] * piece.box.size[1] for piece in hosts])
    chosen = random.choice(len(hosts), (len(things), TRIES), p=areas / areas.sum())
    drops = [
        _draw_drop(things[i], hosts[chosen[i, j]], random) for i in range(len(things)) for j in range(TRIES)
    ]
    feet = np.concatenate([drop[1] for drop in drops])
    down = measure_distances(scene, feet, -UP).reshape(-1, 5)
    above = measure_distances(scene, feet, UP).reshape(-1, 5)
    placed: list[Piece] = []
    for i, thing in enumerate(things):
        for j in range(TRIES):
            row = i * TRIES + j
            yaw, points = drops[row]
            ground = float(points[0, 2] - down[row].min())
            room = float(down[row].min() + above[row].min())
            level = np.ptp(down[row]) < LEVEL and 0.15 < ground < 1.9 and room > thing.size[2] + 0.01
            if not level:
                continue
            piece = _place_thing(thing, (float(points[0, 0]), float(points[0, 1]), ground + 0.001), yaw)
            if fits(piece.box, plan, [other.box for other in placed], 0.005):
                placed.append(piece)
                break
    return placed


def _draw_drop(thing: Thing, host: Piece, random: Random) -> tuple[float, Float[np.ndarray, "5 3"]]:
    """Draw a place inside the footprint of a piece: the yaw there, and five points at one height."""
    box = host.box
    local = random.uniform(-0.5, 0.5, 2) * (np.array(box.size) - 0.5 * min(thing.size[:2]))
    cos, sin = np.cos(box.yaw_rad), np.sin(box.yaw_rad)
    x = box.center[0] + cos * local[0] - sin * local[1]
    y = box.center[1] + sin * local[0] + cos * local[1]
    top = box.high + 0.02
    z = top if random.random() < 0.5 else float(random.uniform(box.low + 0.1, top))
    # Books show their spines to the front; other things stand as they like.
    yaw = box.yaw_rad + (0.0 if thing.name == "books" else float(random.uniform(-pi, pi)))
    corners = Box((x, y), thing.size[:2], 0.0, 1.0, yaw).compute_corners()
    points = np.concatenate([[[x, y]], corners])
    return yaw, np.concatenate([points, np.full((5, 1), z)], -1)


# On the floor


def stand_on_floor(
    things: Sequence[Thing], taken: Sequence[Box], plan: FloorPlan, random: Random
) -> list[Piece]:
    """Stand things on the floor where nothing else is."""
    placed: list[Piece] = []
    for thing in things:
        for _ in range(TRIES):
            x0, y0, x1, y1 = plan.rectangles[int(random.integers(len(plan.rectangles)))]
            x, y = float(random.uniform(x0, x1)), float(random.uniform(y0, y1))
            piece = _place_thing(thing, (x, y, 0.002), float(random.uniform(-pi, pi)))
            if fits(piece.box, plan, [*taken, *(other.box for other in placed)], 0.0):
                placed.append(piece)
                break
    return placed


def lay_rugs(plan: FloorPlan, random: Random) -> list[Surface]:
    """Lay up to two rugs on the floor."""
    rugs = []
    for number in range(int(random.integers(0, 3))):
        x0, y0, x1, y1 = plan.rectangles[int(random.integers(len(plan.rectangles)))]
        width = float(random.uniform(0.6, min(2.2, 0.7 * min(x1 - x0, y1 - y0))))
        size = (width, float(min(width * random.uniform(1.0, 1.6), 0.85 * max(x1 - x0, y1 - y0))))
        turned = (y1 - y0) < (x1 - x0)
        extent = size[::-1] if turned else size
        corner = (
            float(random.uniform(x0 + 0.1, max(x1 - extent[0] - 0.1, x0 + 0.11))),
            float(random.uniform(y0 + 0.1, max(y1 - extent[1] - 0.1, y0 + 0.11))),
            0.006 + 0.004 * number,
        )
        image = draw_rug(random, int(256 * size[1] / size[0]))
        along, up = ((0, 1, 0), (-1, 0, 0)) if turned else ((1, 0, 0), (0, 1, 0))
        start = (corner[0] + extent[0], corner[1], corner[2]) if turned else corner
        rugs.append(Surface(make_picture(start, along, up, size, image)))
    return rugs


# On the walls


def hang_pictures(
    walls: Sequence[Wall], taken: Sequence[Box], plan: FloorPlan, count: int, source: MaterialSource
) -> list[Piece]:
    """Hang pictures and posters where no furniture, door or window is."""
    random = source.random
    hung: list[Piece] = []
    for _ in range(count):
        wall = walls[int(random.integers(len(walls)))]
        width, height = (float(value) for value in random.uniform(0.2, 1.0, 2))
        if wall.length < width + 0.2:
            continue
        at = float(random.uniform(width / 2 + 0.05, wall.length - width / 2 - 0.05))
        low = float(random.uniform(0.7, max(plan.height - height - 0.15, 0.71)))
        thick = 0.025
        place = wall.locate(at, thick / 2 + 0.001)
        box = Box(place, (width, thick), low, low + height, wall.yaw_rad)
        if not fits(box, plan, [*taken, *(piece.box for piece in hung)], 0.0):
            continue
        hung.append(Piece("picture", _make_framed(width, height, thick, box, source), box, None))
    return hung


def _make_framed(
    width: float, height: float, thick: float, box: Box, source: MaterialSource
) -> tuple[Mesh, ...]:
    """Make a picture in its frame: a box on the wall, and the image on its front (local +y faces the room)."""
    random = source.random
    color = draw_color(random, saturation=(0.0, 0.6), value=(0.1, 0.9))
    frame = Material(to_bytes(np.broadcast_to(color, (4, 4, 3)).astype(np.float32)), 1.0)
    rim = float(random.uniform(0.0, 0.05))
    back = make_box((-width / 2, -thick / 2, 0), (width / 2, thick / 2, height), frame)
    image = make_picture(
        (width / 2 - rim, thick / 2 + 0.002, rim),
        (-1, 0, 0),
        UP,
        (width - 2 * rim, height - 2 * rim),
        source.draw_picture(),
    )
    return tuple(place_mesh(part, (*box.center, box.low), box.yaw_rad) for part in (back, image))


# The room

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
