"""Plans of rooms: shape, walls, doors and windows, and the free space around the boxes of what stands in them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from g_ray_lab.textured.patterns import Random


@dataclass(frozen=True)
class Box:
    """A box that stands upright: turned about the z axis only. Meters."""

    center: tuple[float, float]
    size: tuple[float, float]  # along its own x and y
    low: float
    high: float
    yaw_rad: float = 0.0

    def compute_corners(self) -> Float[np.ndarray, "4 2"]:
        """Corners of the footprint."""
        half = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * np.array(self.size) / 2
        cos, sin = np.cos(self.yaw_rad), np.sin(self.yaw_rad)
        return half @ np.array([[cos, sin], [-sin, cos]]) + np.array(self.center)

    def measure_distance(self, points: Float[np.ndarray, "point 3"]) -> Float[np.ndarray, "point"]:
        """Measure the distance to points outside; minus the distance to the nearest side for those inside."""
        cos, sin = np.cos(self.yaw_rad), np.sin(self.yaw_rad)
        local = (points[:, :2] - np.array(self.center)) @ np.array([[cos, -sin], [sin, cos]])
        beyond = np.concatenate(
            [
                np.abs(local) - np.array(self.size) / 2,
                np.abs(points[:, 2:] - (self.low + self.high) / 2) - (self.high - self.low) / 2,
            ],
            -1,
        )
        outside = np.linalg.norm(beyond.clip(0), axis=-1)
        return np.where(outside > 0, outside, beyond.max(-1))

    def overlaps(self, other: "Box", slack: float = 0.0) -> bool:
        """Tell whether two boxes share more than `slack` along every direction (separating axes)."""
        if min(self.high, other.high) - max(self.low, other.low) <= slack:
            return False
        mine, theirs = self.compute_corners(), other.compute_corners()
        for yaw in (self.yaw_rad, self.yaw_rad + np.pi / 2, other.yaw_rad, other.yaw_rad + np.pi / 2):
            axis = np.array([np.cos(yaw), np.sin(yaw)])
            a, b = mine @ axis, theirs @ axis
            if min(a.max(), b.max()) - max(a.min(), b.min()) <= slack:
                return False
        return True


Rectangle = tuple[float, float, float, float]
"""x from, y from, x to, y to."""


@dataclass(frozen=True)
class FloorPlan:
    """Rectangles whose union is the floor (one, or two that overlap for an L), and the height of the ceiling."""

    rectangles: tuple[Rectangle, ...]
    height: float

    def measure_distance(self, points: Float[np.ndarray, "point 2"]) -> Float[np.ndarray, "point"]:
        """Measure how far points are inside the walls, at least: negative outside."""
        return np.max([_measure_inside(points, rectangle) for rectangle in self.rectangles], axis=0)

    def contains_box(self, box: Box, margin: float = 0.0) -> bool:
        """Tell whether a box lies inside: its four corners in one rectangle, below the ceiling."""
        corners = box.compute_corners()
        inside = any((_measure_inside(corners, r) >= margin - 1e-9).all() for r in self.rectangles)
        return inside and box.high <= self.height + 1e-9

    @property
    def area(self) -> float:
        total = sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in self.rectangles)
        if len(self.rectangles) == 1:
            return total
        (a0, b0, a1, b1), (c0, d0, c1, d1) = self.rectangles
        return total - max(min(a1, c1) - max(a0, c0), 0) * max(min(b1, d1) - max(b0, d0), 0)


def _measure_inside(points: np.ndarray, rectangle: Rectangle) -> np.ndarray:
    x0, y0, x1, y1 = rectangle
    return np.min([points[:, 0] - x0, x1 - points[:, 0], points[:, 1] - y0, y1 - points[:, 1]], axis=0)


@dataclass(frozen=True)
class RoomSpace:
    """The free space of a room."""

    plan: FloorPlan
    boxes: tuple[Box, ...]

    def measure_clearance(self, points: Float[np.ndarray, "point 3"]) -> Float[np.ndarray, "point"]:
        """Measure how far points are from walls, floor, ceiling and all boxes, at least; negative inside them."""
        height = np.minimum(points[:, 2], self.plan.height - points[:, 2])
        nearest = np.minimum(self.plan.measure_distance(points[:, :2]), height)
        for box in self.boxes:
            nearest = np.minimum(nearest, box.measure_distance(points))
        return nearest

    def is_free(self, points: Float[np.ndarray, "point 3"], margin: float = 0.0) -> Bool[np.ndarray, "point"]:
        """Tell which points are at least `margin` away from everything."""
        return self.measure_clearance(points) >= margin

    def contains(self, point: Float[np.ndarray, "3"]) -> bool:
        """Tell whether a point is inside the walls and in no box."""
        return bool(self.is_free(point[None])[0])

    def draw_places(
        self, random: np.random.Generator, count: int, margin: float, heights: tuple[float, float]
    ) -> Float[np.ndarray, "place 3"]:
        """Draw free places; fewer than `count`, or none, in rooms that are full."""
        corners = np.array(self.plan.rectangles)
        low, high = corners[:, :2].min(0), corners[:, 2:].max(0)
        points = random.uniform([*low, heights[0]], [*high, heights[1]], (16 * count, 3))
        return points[self.is_free(points, margin)][:count]


def fits(box: Box, plan: FloorPlan, others: Sequence[Box], slack: float = 0.02) -> bool:
    """Tell whether a box is inside the walls and meets no other by more than `slack`."""
    return plan.contains_box(box) and not any(box.overlaps(other, slack) for other in others)


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
        """Return the point at distances in meters along the wall and away from it."""
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
