"""Plans of rooms: their shape, walls, and where doors and windows are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from g_ray_lab.textured.free_space import Box, FloorPlan
from g_ray_lab.textured.noise import Random

OUTER_WALLS = 4
"""Walls with nothing of the room behind them; `list_walls` puts the two of an L's inner corner after them."""


@dataclass(frozen=True)
class Wall:
    """A wall as seen from above: from `start` along `along`, the room on the left (`inward`)."""

    start: tuple[float, float]
    along: tuple[float, float]
    length: float

    @property
    def inward(self) -> tuple[float, float]:
        return -self.along[1], self.along[0]

    def locate(self, along: float, inward: float) -> tuple[float, float]:
        """Point at so many meters along the wall, and away from it."""
        (x, y), (u, v), (n, m) = self.start, self.along, self.inward
        return x + along * u + inward * n, y + along * v + inward * m

    @property
    def yaw_rad(self) -> float:
        """Angle from the x axis to the direction of the wall."""
        return float(np.arctan2(self.along[1], self.along[0]))


@dataclass(frozen=True)
class Opening:
    """A hole in a wall: from `left` to `right` along it, from `low` to `high`."""

    wall: Wall
    left: float
    right: float
    low: float
    high: float
    is_door: bool
    depth: float
    """Thickness of the wall."""


def draw_plan(random: Random) -> FloorPlan:
    """Draw a box or an L of 2.5 to 10 m."""
    width, depth = np.exp(random.uniform(np.log(2.5), np.log(8.0), 2))
    if random.random() < 0.12:
        width = random.uniform(7.0, 10.0)
    height = float(random.uniform(2.3, 3.2))
    x, y = float(width) / 2, float(depth) / 2
    if min(width, depth) < 3.6 or random.random() < 0.65:
        return FloorPlan(((-x, -y, x, y),), height)
    # Both arms of the L keep at least 1.8 m.
    cut_x, cut_y = float(random.uniform(1.8, width - 1.2)), float(random.uniform(1.8, depth - 1.2))
    return FloorPlan(((-x, -y, x, -y + cut_y), (-x, -y, -x + cut_x, y)), height)


def list_walls(plan: FloorPlan) -> list[Wall]:
    """List the walls counterclockwise, so that the room is on the left of each; outer walls first."""
    x0, y0, x1, y1 = plan.rectangles[0]
    corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    if len(plan.rectangles) == 2:
        _, _, notch_x, top = plan.rectangles[1]
        corners = [(notch_x, top), (x0, top), (x0, y0), (x1, y0), (x1, y1), (notch_x, y1)]
    following = [*corners[1:], corners[0]]
    walls = []
    for (ax, ay), (bx, by) in zip(corners, following, strict=True):
        length = float(np.hypot(bx - ax, by - ay))
        walls.append(Wall((ax, ay), ((bx - ax) / length, (by - ay) / length), length))
    return walls


def draw_openings(plan: FloorPlan, walls: Sequence[Wall], random: Random) -> list[Opening]:
    """Draw one or two doors and up to four windows, apart from each other."""
    openings: list[Opening] = []
    wanted = [True] * int(random.integers(1, 3)) + [False] * int(random.integers(0, 5))
    for is_door in wanted:
        wall = walls[int(random.integers(OUTER_WALLS))]
        width = random.uniform(0.75, 1.0) if is_door else random.uniform(0.6, min(2.4, wall.length - 0.5))
        low = 0.0 if is_door else float(random.uniform(0.3, 1.1))
        high = float(
            min(random.uniform(1.95, 2.15) if is_door else random.uniform(1.8, 2.3), plan.height - 0.1)
        )
        if wall.length < width + 0.3:
            continue
        left = float(random.uniform(0.12, wall.length - width - 0.12))
        others = [other for other in openings if other.wall == wall]
        if all(left > other.right + 0.25 or left + width < other.left - 0.25 for other in others):
            depth = float(random.uniform(0.08, 0.3))
            openings.append(Opening(wall, left, left + float(width), low, high, is_door, depth))
    return openings


def list_door_boxes(openings: Sequence[Opening]) -> list[Box]:
    """List the space that furniture leaves free: in front of doors, and tall things away from windows."""
    boxes = []
    for opening in openings:
        reach, high = (0.75, 2.2) if opening.is_door else (0.35, 2.4)
        center = opening.wall.locate((opening.left + opening.right) / 2, reach / 2)
        low = 0.0 if opening.is_door else max(opening.low, 0.9)
        boxes.append(Box(center, (opening.right - opening.left, reach), low, high, opening.wall.yaw_rad))
    return boxes
