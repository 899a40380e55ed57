"""Where there is room inside a room: oriented boxes around all that stands in it, and distances to them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float


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
        self,
        random: np.random.Generator,
        count: int,
        margin: float,
        heights: tuple[float, float],
    ) -> Float[np.ndarray, "place 3"]:
        """Draw free places; fewer than `count`, or none, in rooms that are full."""
        corners = np.array(self.plan.rectangles)
        low, high = corners[:, :2].min(0), corners[:, 2:].max(0)
        points = random.uniform([*low, heights[0]], [*high, heights[1]], (16 * count, 3))
        return points[self.is_free(points, margin)][:count]


def fits(box: Box, plan: FloorPlan, others: Sequence[Box], slack: float = 0.02) -> bool:
    """Tell whether a box is inside the walls and meets no other by more than `slack`."""
    return plan.contains_box(box) and not any(box.overlaps(other, slack) for other in others)
