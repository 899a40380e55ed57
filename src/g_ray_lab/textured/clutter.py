"""Small things in a room: objects that stand on furniture and on the floor, books, rugs, and pictures on the walls."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

import numpy as np
from jaxtyping import Float

from g_ray_lab.meshes.mesh_files import Mesh, join_triangles
from g_ray_lab.meshes.textured_scene import build_ray_scene, measure_distances
from g_ray_lab.textured.furniture import Candidate, Covers, Piece, cover_plain_parts
from g_ray_lab.textured.materials import MaterialSource, draw_book_spines, draw_rug
from g_ray_lab.textured.panels import UP, Surface, make_box, make_picture, place_mesh
from g_ray_lab.textured.patterns import Material, Random, draw_color, to_bytes
from g_ray_lab.textured.plan import Box, FloorPlan, Wall, fits

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
