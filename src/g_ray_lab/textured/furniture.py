"""Choose furniture for a room and find places for it: against walls, around tables, in the middle."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import pi

import numpy as np

from g_ray_lab.meshes.mesh_files import Mesh
from g_ray_lab.textured.assets import RoomAssets
from g_ray_lab.textured.materials import DETAIL_LIGHT, Cover
from g_ray_lab.textured.panels import make_box, map_material, place_mesh
from g_ray_lab.textured.patterns import Random
from g_ray_lab.textured.plan import Box, FloorPlan, Wall, fits
from g_ray_lab.textured.sweethome3d import FurnitureEntry

INDOORS = {"Bathroom", "Bedroom", "Kitchen", "Living room", "Office", "Miscellaneous", "Lights"}
THEMES = {
    "living room": ("Living room", "Lights", "Miscellaneous"),
    "bedroom": ("Bedroom", "Lights"),
    "kitchen": ("Kitchen",),
    "bathroom": ("Bathroom",),
    "office": ("Office", "Living room", "Lights"),
    "storage": ("Miscellaneous", "Living room", "Bedroom", "Kitchen", "Office"),
}
UNFIT = re.compile(
    r"door|window|plug|switch|socket|swimming|container|fork|truck|boat|fence|garden|hedge|camping|trampoline|"
    r"crossing|railing|curtain|contemporary living|shower head|football goal|net|chimney|parking|"
    r"column|tent|rails|palm|tree|sign|treadmill|glass table",
    re.I,
)
SEATS = re.compile(r"chair|stool|seat", re.I)
TABLES = re.compile(r"table|desk|island|bench", re.I)
WALL_SIDE = re.compile(
    r"wardrobe|bookcase|shelv|cupboard|dresser|cabinet|fridge|refrigerator|bed|sofa|couch|piano|oven|cooker|stove|"
    r"washing|dryer|radiator|vanity|washbasin|toilet|bidet|bath|tv|television|fireplace|heater|freezer|dishwasher|"
    r"white board|sink|lower|drawers|desk|lavatory|urinal|aquarium|screen|locker",
    re.I,
)
SOFT = re.compile(r"sofa|couch|bed|armchair|puff|futon|mattress|cushion|seat|chair", re.I)
MAX_TRIANGLES = 180_000  # of all furniture of a room


@dataclass(frozen=True, eq=False)
class Piece:
    """Something in a room: meshes in their place, and the box around them."""

    name: str
    parts: tuple[Mesh, ...]
    box: Box
    top: float | None
    """Height on which things can stand; None if on none."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """Furniture that is not placed yet: it faces −y, stands at z = 0 and is centered above the origin."""

    name: str
    size: tuple[float, float, float]
    elevation: float
    top: float | None
    load: Callable[[], tuple[Mesh, ...] | None]
    against_wall: bool

    @property
    def is_seat(self) -> bool:
        return bool(SEATS.search(self.name))


Covers = Callable[[bool], Cover]
"""Draws a material for plain surfaces: a fabric for soft furniture, wood or paint for the rest."""


# What there is


def list_candidates(assets: RoomAssets, theme: str, plan: FloorPlan) -> list[Candidate]:
    """List the furniture of a theme that stands on the floor or hangs, and fits under the ceiling."""
    categories = THEMES[theme]
    fitting = [
        entry
        for entry in assets.furniture
        if entry.category in categories
        and not entry.door_or_window
        and not UNFIT.search(entry.name)
        and max(entry.width, entry.depth) < 3.2
        and entry.height + entry.elevation < plan.height - 0.03
        and (entry.height > 0.3 or entry.width * entry.depth > 0.25)
        and entry.height > 0.08
    ]
    return [_make_candidate(assets, entry) for entry in fitting]


def _make_candidate(assets: RoomAssets, entry: FurnitureEntry) -> Candidate:
    return Candidate(
        name=entry.name,
        size=entry.size,
        elevation=entry.elevation,
        top=entry.top,
        load=lambda: assets.load_furniture(entry),
        against_wall=bool(WALL_SIDE.search(entry.name)) or entry.height > 1.3 or entry.elevation > 0.3,
    )


def list_small_things(assets: RoomAssets) -> list[Candidate]:
    """List what stands on tables and shelves: small models of the libraries, and scanned objects."""
    small = [
        _make_candidate(assets, entry)
        for entry in assets.furniture
        if entry.category in INDOORS
        and not UNFIT.search(entry.name)
        and entry.elevation == 0
        and 0.05 < entry.height < 0.6
        and max(entry.width, entry.depth) < 0.5
    ]
    scans = [
        Candidate(path.stem, (0.0, 0.0, 0.0), 0.0, None, lambda path=path: assets.load_object(path), False)
        for path in assets.objects
    ]
    return small + scans


def draw_box_furniture(random: Random, covers: Covers) -> Candidate:
    """Make a cupboard, shelf, table, bench or crate out of boxes: for rooms without a library, and shelves in all."""
    kind = str(random.choice(["shelf", "table", "cupboard", "crate", "bench"]))
    width, depth, height = (
        random.uniform(low, high)
        for low, high in {
            "shelf": ((0.6, 1.6), (0.25, 0.4), (0.8, 2.1)),
            "table": ((0.7, 1.9), (0.6, 1.0), (0.45, 0.8)),
            "cupboard": ((0.6, 2.0), (0.4, 0.65), (0.7, 2.2)),
            "crate": ((0.3, 0.7), (0.3, 0.7), (0.25, 0.6)),
            "bench": ((0.9, 1.9), (0.35, 0.8), (0.35, 0.5)),
        }[kind]
    )
    material = covers(kind == "bench" and random.random() < 0.5).material
    boards = _list_boards(kind, width, depth, height, random)
    parts = tuple(make_box(low, high, material, shift=float(random.uniform())) for low, high in boards)
    name = f"box {kind}"
    return Candidate(name, (width, depth, height), 0.0, height, lambda: parts, kind in ("shelf", "cupboard"))


Corners = tuple[tuple[float, float, float], tuple[float, float, float]]


def _list_boards(kind: str, width: float, depth: float, height: float, random: Random) -> list[Corners]:
    """List the boxes of a piece; shelves are open to the front."""
    w, d, thick = width / 2, depth / 2, 0.03
    if kind == "table":
        leg = 0.06
        legs: list[Corners] = [
            ((x - leg / 2, y - leg / 2, 0.0), (x + leg / 2, y + leg / 2, height - thick))
            for x in (-w + leg, w - leg)
            for y in (-d + leg, d - leg)
        ]
        return [((-w, -d, height - thick), (w, d, height)), *legs]
    if kind == "shelf":
        levels = np.linspace(0.05, height - thick, max(int(height / random.uniform(0.28, 0.45)), 2))
        boards: list[Corners] = [((-w, -d, float(z)), (w, d, float(z) + thick)) for z in levels]
        sides: list[Corners] = [
            ((-w, -d, 0.0), (-w + thick, d, height)),
            ((w - thick, -d, 0.0), (w, d, height)),
        ]
        return [*boards, *sides, ((-w, d - 0.01, 0.0), (w, d, height))]
    return [((-w, -d, 0.0), (w, d, height))]


# Where it goes


def furnish(
    candidates: Sequence[Candidate],
    count: int,
    plan: FloorPlan,
    walls: Sequence[Wall],
    blocked: Sequence[Box],
    covers: Covers,
    random: Random,
) -> list[Piece]:
    """Place up to `count` pieces, large ones first, none where another or a door stands.

    Chairs come in groups around a table, if there is one; a piece that finds no place in a few tries is left out.
    """
    pieces: list[Piece] = []
    triangles = 0
    # Twice as many as wanted are tried, because large pieces often find no place.
    chosen = [candidates[i] for i in random.choice(len(candidates), 2 * count)] if candidates else []
    for candidate in sorted(chosen, key=lambda piece: -piece.size[0] * piece.size[1]):
        taken = [*blocked, *(piece.box for piece in pieces)]
        tables = [piece for piece in pieces if TABLES.search(piece.name) and piece.box.high < 1.0]
        if len(pieces) >= count or triangles > MAX_TRIANGLES:
            break
        parts = candidate.load()
        if parts is None:
            continue
        for _ in range(int(random.integers(1, 5)) if candidate.is_seat and tables else 1):
            box = _find_place(candidate, plan, walls, tables, taken, random)
            if box is None:
                break
            piece = place_piece(candidate, cover_plain_parts(parts, candidate.name, covers, random), box)
            pieces.append(piece)
            taken.append(box)
            triangles += sum(len(part.faces) for part in parts)
    return pieces


def _find_place(
    candidate: Candidate,
    plan: FloorPlan,
    walls: Sequence[Wall],
    tables: Sequence[Piece],
    taken: Sequence[Box],
    random: Random,
) -> Box | None:
    for _ in range(14):
        if candidate.is_seat and tables and random.random() < 0.8:
            box = _draw_at_table(candidate, tables[int(random.integers(len(tables)))], random)
        elif candidate.against_wall:
            box = _draw_at_wall(candidate, walls[int(random.integers(len(walls)))], random)
        else:
            box = _draw_anywhere(candidate, plan, random)
        if box is not None and fits(box, plan, taken):
            return box
    return None


def _make_box_at(candidate: Candidate, center: tuple[float, float], yaw_rad: float) -> Box:
    width, depth, height = candidate.size
    low = candidate.elevation
    return Box(center, (width, depth), low, low + height, yaw_rad)


def _draw_at_wall(candidate: Candidate, wall: Wall, random: Random) -> Box | None:
    """Put the back of a piece to a wall."""
    width, depth, _ = candidate.size
    if wall.length < width + 0.05:
        return None
    gap = 0.002 if candidate.elevation > 0.3 else 0.025 + 0.05 * random.random() ** 3
    center = wall.locate(random.uniform(width / 2, wall.length - width / 2), depth / 2 + gap)
    # A piece faces −y; its back, +y, turns to the wall, against the inward normal.
    yaw = float(np.arctan2(-wall.inward[1], -wall.inward[0]) - pi / 2)
    return _make_box_at(candidate, center, yaw)


def _draw_at_table(candidate: Candidate, table: Piece, random: Random) -> Box:
    """Put a chair to a side of a table, facing it, a little under its top."""
    side = int(random.integers(4))
    yaw = table.box.yaw_rad + side * pi / 2
    half = table.box.size[side % 2 == 0] / 2
    reach = half + candidate.size[1] / 2 + random.uniform(0.02, 0.15)
    along = random.uniform(-0.35, 0.35) * table.box.size[side % 2 == 1]
    # Rows of the rotation by yaw: local x runs along the side, local −y away from the table.
    cos, sin = np.cos(yaw), np.sin(yaw)
    x, y = along, reach
    center = (table.box.center[0] + cos * x - sin * y, table.box.center[1] + sin * x + cos * y)
    return _make_box_at(candidate, center, float(yaw + random.normal(0, 0.15)))


def _draw_anywhere(candidate: Candidate, plan: FloorPlan, random: Random) -> Box:
    x0, y0, x1, y1 = plan.rectangles[int(random.integers(len(plan.rectangles)))]
    yaw = float(random.integers(4)) * pi / 2 + float(
        random.normal(0, 0.08) if random.random() < 0.6 else random.uniform(-pi, pi)
    )
    return _make_box_at(candidate, (float(random.uniform(x0, x1)), float(random.uniform(y0, y1))), yaw)


def place_piece(candidate: Candidate, parts: Sequence[Mesh], box: Box) -> Piece:
    """Move the meshes of a candidate into a box of its size."""
    moved = tuple(place_mesh(part, (*box.center, box.low), box.yaw_rad) for part in parts)
    top = None if candidate.top is None else box.low + candidate.top
    return Piece(candidate.name, moved, box, top)


# How it looks


def cover_plain_parts(parts: Sequence[Mesh], name: str, covers: Covers, random: Random) -> tuple[Mesh, ...]:
    """Give surfaces without a texture one: half keep their color, with the grain of a material, half take its color.

    Real surfaces are never of one color, and plain ones show nothing that could be matched.
    """
    if all(part.texture is not None for part in parts):
        return tuple(parts)
    cover = covers(bool(SOFT.search(name)))
    result = []
    for part in parts:
        if part.texture is not None:
            result.append(part)
        elif random.random() < 0.5:
            result.append(map_material(part, cover.material, np.ones_like(part.tint)))
        else:
            result.append(map_material(part, cover.detail, (part.tint / DETAIL_LIGHT).clip(0.03, 1.6)))
    return tuple(result)
