"""Known lengths in photographs: between two points that somebody picked, or the squares of a chessboard."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.geometry.metric_scale import MetricScale, student_quantile
from g_ray.geometry.similarity import Similarity, fit_similarity
from g_ray.media.chessboard import BoardSize, find_chessboard
from g_ray.media.view import View
from g_ray.stereo.expected_error import MEDIAN_OF_DEVIATION

PICK_PX = 1.0
"""Standard deviation of a pixel that somebody picked."""
CORNER_PX = 0.3
"""Least standard deviation of where a corner of a board is seen from a pose."""
MAX_MISS = 0.005
"""Share of a photograph's long side by which a point may miss the pixel where it was picked or found."""
MAX_BENT = 0.03
"""Share of the board's diagonal by which corners may be off (RMS) a board of squares."""


@dataclass(frozen=True)
class PickedPoint:
    """A point at one pixel, where the photograph's depth puts it, or at pixels of two photographs, where rays meet."""

    pixels: tuple[tuple[int, float, float], ...]
    """Number of the view, and the pixel from the top-left corner."""


End = int | PickedPoint
"""The camera of a view, or a point."""


def list_views(end: End) -> list[int]:
    """List the views that an end needs."""
    return [end] if isinstance(end, int) else [view for view, _, _ in end.pixels]


def renumber_end(end: End, views: Sequence[int]) -> End | None:
    """Return an end for some of the views; None if one that it needs is not among them."""
    if not set(list_views(end)) <= set(views):
        return None
    number = list(views).index
    if isinstance(end, int):
        return number(end)
    return PickedPoint(tuple((number(view), x, y) for view, x, y in end.pixels))


def parse_end(text: str, names: Sequence[str]) -> End:
    """Parse "a.jpg" (its camera), "a.jpg:120,340" (a point of it) or "a.jpg:120,340+b.jpg:80,300" (seen by both)."""
    if text in names:
        return names.index(text)
    pixels = []
    for part in text.split("+"):
        match = re.fullmatch(r"(.+):([\d.]+),([\d.]+)", part)
        if match is None or match[1] not in names:
            name = part if match is None else match[1]
            raise ValueError(
                f"--distance names {name}, which is none of the photographs; give a.jpg, a.jpg:x,y or "
                "a.jpg:x,y+b.jpg:x,y"
            )
        try:
            pixels.append((names.index(match[1]), float(match[2]), float(match[3])))
        except ValueError:
            raise ValueError(f"--distance {text}: {match[2]},{match[3]} is no pixel") from None
    if len(pixels) > 2 or len({view for view, _, _ in pixels}) < len(pixels):
        raise ValueError(
            f"--distance {text}: give a point by a pixel of one photograph, or of two different ones"
        )
    return PickedPoint(tuple(pixels))


class _Located(NamedTuple):
    point: Float[Tensor, "3"]
    covariance: Float[Tensor, "3 3"]


def measure_length(one: End, other: End, views: Sequence[ReconstructedView]) -> tuple[float, float]:
    """Return the distance of two ends in the unit of the world, and its relative standard deviation.

    That of a camera's place is taken as 0. ValueError where a point cannot be located.
    """
    first, second = _locate(one, views), _locate(other, views)
    line = second.point - first.point
    length = float(line.norm())
    if length == 0:
        return 0.0, math.inf
    return length, math.sqrt(float(line @ (first.covariance + second.covariance) @ line)) / length**2


def scale_to_length(one: End, other: End, metres: float, views: Sequence[ReconstructedView]) -> MetricScale:
    """Return the scale that makes the distance of two ends as long as it is known to be."""
    length, deviation = measure_length(one, other, views)
    if not metres > 0 or not length > 0:
        raise ValueError(f"a distance of {metres} between ends that are {length:g} apart gives no scale")
    if isinstance(one, int) and isinstance(other, int):
        return MetricScale("the known distance", metres / length)
    reach = 1 + 1.96 * deviation
    return MetricScale("the known distance", metres / length, 1 / reach, reach)


def _locate(end: End, views: Sequence[ReconstructedView]) -> _Located:
    if isinstance(end, int):
        return _Located(views[end].pose.translation.double(), torch.zeros(3, 3, dtype=torch.float64))
    if len(end.pixels) == 1:
        return _locate_by_depth(*end.pixels[0], views)
    sights = [
        _Sight.make(views[view], torch.tensor([[x, y]], dtype=torch.float64)) for view, x, y in end.pixels
    ]
    point = intersect_rays(sights)
    names = " and ".join(views[view].name for view, _, _ in end.pixels)
    missed = max(float(sight.measure_miss_px(point).max()) / sight.long_side for sight in sights)
    if not missed <= MAX_MISS:
        raise ValueError(
            f"the pixels picked in {names} are not of one point: their rays miss each other by "
            f"{100 * missed:.2g} % of a photograph"
        )
    information = sum((sight.weigh(point)[0] for sight in sights), torch.zeros(3, 3, dtype=torch.float64))
    return _Located(point[0], torch.linalg.inv(information))


def _locate_by_depth(number: int, x: float, y: float, views: Sequence[ReconstructedView]) -> _Located:
    view = views[number]
    pixel = torch.tensor([[x, y]], dtype=torch.float64)
    sight = _Sight.make(view, pixel)
    depth, _, valid = view.sample(pixel)
    if not bool(valid):
        raise ValueError(
            f"{view.name} has no depth at {x:g},{y:g}: pick another point, or pick it in a second photograph too "
            f"({view.name}:x,y+b.jpg:x,y)"
        )
    distance = float(depth)
    error = 0.0
    if view.expected_error is not None:
        grid = view.camera
        row = min(int(y * grid.height / view.original_camera.height), grid.height - 1)
        column = min(int(x * grid.width / view.original_camera.width), grid.width - 1)
        error = float(view.expected_error[row, column]) / MEDIAN_OF_DEVIATION
    ray = sight.directions[0]
    along = torch.outer(ray, ray)
    aside = (PICK_PX * float(sight.pixel_rad[0])) ** 2 * (torch.eye(3).double() - along)
    return _Located(sight.center + distance * ray, distance**2 * (error**2 * along + aside))


@dataclass(frozen=True, eq=False)
class _Sight:
    """Where a view sees points: their rays in the world."""

    view: ReconstructedView
    pixels: Float[Tensor, "point 2"]
    center: Float[Tensor, "3"]
    directions: Float[Tensor, "point 3"]
    pixel_rad: Float[Tensor, "point"]
    """Angle of a pixel."""

    @staticmethod
    def make(view: ReconstructedView, pixels: Float[Tensor, "point 2"]) -> "_Sight":
        camera, pose = view.original_camera.to(torch.float64), view.pose.to(torch.float64)
        rays, valid = camera.unproject(pixels)
        size = torch.tensor([camera.width, camera.height])
        if not bool((valid & (pixels >= 0).all(-1) & (pixels <= size).all(-1)).all()):
            raise ValueError(f"{view.name} has no ray at a pixel that was picked: it is outside of the image")
        aside = camera.unproject(pixels + torch.tensor([0.5, 0.5], dtype=torch.float64))[0]
        angle = (aside - rays).norm(dim=-1) * 2**0.5
        return _Sight(view, pixels, pose.translation, pose.rotate(rays), angle)

    @property
    def long_side(self) -> int:
        return max(self.view.original_camera.width, self.view.original_camera.height)

    def weigh(self, points: Float[Tensor, "point 3"]) -> Float[Tensor, "point 3 3"]:
        """Return what the rays tell about points across them: 1 / (distance · angle of a pixel)²."""
        distance = (points - self.center).norm(dim=-1)
        across = torch.eye(3).double() - self.directions[:, :, None] * self.directions[:, None]
        return across / (PICK_PX * self.pixel_rad * distance).square()[:, None, None]

    def measure_miss_px(self, points: Float[Tensor, "point 3"]) -> Float[Tensor, "point"]:
        """Return how far points are imaged from their pixels; ∞ where they are not imaged."""
        camera, pose = self.view.original_camera.to(torch.float64), self.view.pose.to(torch.float64)
        imaged, valid = camera.project(pose.inverse().apply(points))
        return torch.where(valid, (imaged - self.pixels).norm(dim=-1), math.inf)

    def reorder(self, order: Int[Tensor, "point"]) -> "_Sight":
        """Return the sight with its points in another order."""
        return replace(
            self,
            pixels=self.pixels[order],
            directions=self.directions[order],
            pixel_rad=self.pixel_rad[order],
        )


def intersect_rays(sights: Sequence[_Sight]) -> Float[Tensor, "point 3"]:
    """Return the points nearest to the rays of all views, in angle after a first pass in distance."""
    points = None
    for _ in range(3):
        total, target = torch.zeros(1, 3, 3).double(), torch.zeros(1, 3).double()
        for sight in sights:
            across = torch.eye(3).double() - sight.directions[:, :, None] * sight.directions[:, None]
            across = across if points is None else sight.weigh(points)
            total, target = total + across, target + across @ sight.center
        points = torch.linalg.solve(total, target)
    assert points is not None
    return points


# A chessboard of known squares


@dataclass(frozen=True, eq=False)
class KnownBoard:
    """A chessboard, and where the photographs show it."""

    size: BoardSize
    corners: Sequence[Float[Tensor, "corner 2"] | None]
    """Pixels of each photograph, row by row; None where it does not show the board as a whole."""

    def count_views(self) -> int:
        return sum(corners is not None for corners in self.corners)

    def select(self, views: Sequence[int]) -> "KnownBoard":
        """Return where some of the photographs show it."""
        return replace(self, corners=[self.corners[view] for view in views])


def find_board(views: Sequence[View], text: str) -> KnownBoard:
    """Look for a board ("7x5:0.03") in photographs; ValueError if fewer than two show it."""
    size = BoardSize.parse(text)
    board = KnownBoard(size, [find_chessboard(view.load_image(), size) for view in views])
    seen = [view.name for view, corners in zip(views, board.corners, strict=True) if corners is not None]
    if len(seen) < 2:
        where = (
            f"one of {len(views)} photographs ({seen[0]})" if seen else f"none of {len(views)} photographs"
        )
        raise ValueError(
            f"--board {text} is seen in {where}: show all of it, sharp and without glare, in two or more, or leave "
            "it out"
        )
    return board


def scale_to_board(board: KnownBoard, views: Sequence[ReconstructedView]) -> MetricScale:
    """Return the scale that makes the squares of a board as large as they are; ValueError if it cannot be told."""
    sights = [
        _Sight.make(view, corners)
        for view, corners in zip(views, board.corners, strict=True)
        if corners is not None
    ]
    if len(sights) < 2:
        raise ValueError(
            f"the board is seen in {len(sights)} of the placed photographs and gives no scale: two can"
        )
    sights = _label_alike(sights, board.size)
    sights, missed = _drop_misfits(sights)
    points = intersect_rays(sights)
    fit = fit_similarity(board.size.list_points(), points)
    _check_flat(fit, points, board.size)
    reach = 1 + _find_interval(sights, board.size, missed, points)
    detail = f"seen by {len(sights)} photographs, corners off by {missed:.2g} px"
    return MetricScale("the board", 1 / float(fit.scale), 1 / reach, reach, detail)


def _label_alike(sights: Sequence[_Sight], size: BoardSize) -> list[_Sight]:
    """Choose the order of corners in each view by which their rays meet those of the view farthest from it."""
    labeled = [sights[0]]
    for sight in sights[1:]:
        partner = max(labeled, key=lambda other: float((other.center - sight.center).norm()))
        turned = [sight.reorder(order) for order in size.list_labelings()]
        labeled.append(min(turned, key=lambda one: _measure_misses([partner, one])))
    return labeled


def _measure_misses(sights: Sequence[_Sight]) -> float:
    points = intersect_rays(sights)
    return max(float(sight.measure_miss_px(points).median()) for sight in sights)


def _drop_misfits(sights: list[_Sight]) -> tuple[list[_Sight], float]:
    """Leave out views where the board is elsewhere; returns the others and how many pixels they are off (RMS).

    ValueError if no two agree.
    """
    while True:
        points = intersect_rays(sights)
        misses = [float(sight.measure_miss_px(points).square().mean().sqrt()) for sight in sights]
        shares = [miss / sight.long_side for miss, sight in zip(misses, sights, strict=True)]
        if max(shares) <= MAX_MISS:
            return sights, math.sqrt(sum(miss * miss for miss in misses) / len(misses))
        if len(sights) == 2:
            one, other = (sight.view.name for sight in sights)
            raise ValueError(
                f"the board is not at one place in {one} and {other} (corners off by {max(misses):.3g} px): it must "
                "not move, and its squares must be counted right"
            )
        # The view without which the others agree best.
        rest = [sights[:number] + sights[number + 1 :] for number in range(len(sights))]
        sights = min(rest, key=_measure_misses)


def _check_flat(fit: Similarity, points: Float[Tensor, "corner 3"], size: BoardSize) -> None:
    target = fit.apply(size.list_points())
    bent = (target - points).square().sum(-1).mean().sqrt() / (target[-1] - target[0]).norm()
    if float(bent) > MAX_BENT:
        raise ValueError(
            f"the board's corners are off by {100 * float(bent):.2g} % of its diagonal from {size.columns}×{size.rows} "
            "squares: poses or calibration are too wrong, or it was not seen from places far enough apart"
        )


def _find_interval(
    sights: Sequence[_Sight], size: BoardSize, missed_px: float, points: Float[Tensor, "corner 3"]
) -> float:
    """Return half of the 95 % interval of the scale, relative to it.

    A pose that turns the rays of a view by ε moves the board by ε over the angle of parallax. Of three or more views
    each is also left out in turn (jackknife), which shows what their poses are really off.
    """
    middle, count = points.mean(0), len(sights)
    rays = torch.stack([(middle - sight.center) / (middle - sight.center).norm() for sight in sights])
    parallax = float((rays - rays.mean(0)).square().sum(-1).mean().sqrt())
    angle = max(float(sight.pixel_rad.median()) for sight in sights) * max(missed_px, CORNER_PX)
    deviation = angle / parallax / math.sqrt(count)
    half = 1.96 * deviation
    if count == 2:
        return half
    target = size.list_points()
    rest = [[*sights[:number], *sights[number + 1 :]] for number in range(count)]
    scales = torch.stack([fit_similarity(target, intersect_rays(part)).scale.log() for part in rest])
    spread = (scales - scales.mean()).square().sum() * (count - 1) / count
    return max(half, student_quantile(count - 1.0) * math.sqrt(float(spread)))
