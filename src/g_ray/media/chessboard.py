"""Find the inner corners of a chessboard in a photograph through any lens.

1. Corners are saddles of the blurred brightness: the determinant of its second derivatives has a deep minimum there.
2. On a circle around a corner brightness changes sides four times, and opposite points are alike. The changes are the
   directions of the two edges; which side of an edge is dark tells neighbors from corners across a square.
3. A grid grows from a corner along its edges. Each step starts from the one before, so that lines may bend as they do
   through a fisheye.
"""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from g_ray.media.photos import fit_size
from g_ray.rays.resample import resample_image

SIZES = (1600, 800)
"""Long sides at which a board is looked for, until it is found; a photograph is not enlarged."""
BLUR_PX, REFINED_BLUR_PX = 1.5, 0.7
MAX_CORNERS = 3000
"""Strongest saddles that are looked at; large pictures of gravel have more."""
WEAKEST = 0.02
"""Share of the strongest saddles below which a saddle is no corner."""
RADIUS_PX = 5.0
"""Radius of the circle around a corner."""
SAMPLES = 48
"""Points on the circle."""
ALIKE = 0.7
"""Correlation of the circle with itself, turned by 180°."""
STRAIGHT_RAD = 0.45
"""Angle by which a neighbor may be off the direction of an edge."""
OFF_STEP = 0.35
"""Share of a step by which the next corner may be off where the last step leads."""
REFINE = 0.4
REFINE_PX = 6.0
"""Half of the window in which a corner is refined: this share of the smallest square, and at most so many pixels."""


@dataclass(frozen=True)
class BoardSize:
    """A chessboard: inner corners along both sides, and the side of a square in meters."""

    columns: int
    rows: int
    square_m: float

    @staticmethod
    def parse(text: str) -> "BoardSize":
        """Parse "7x5:0.03": 7 by 5 inner corners, squares of 3 cm."""
        corners, _, square = text.partition(":")
        try:
            columns, rows = (int(part) for part in corners.split("x"))
            board = BoardSize(columns, rows, float(square))
        except ValueError:
            board = BoardSize(0, 0, 0.0)
        if min(board.columns, board.rows) < 2 or board.columns * board.rows < 6:
            raise ValueError(
                f"--board {text}: give inner corners along both sides and meters of a square's side, e.g. 7x5:0.03"
            )
        if not 0 < board.square_m < math.inf:
            raise ValueError(f"--board {text}: a square of {square} m; give a length above 0")
        return board

    def list_points(self) -> Float[Tensor, "corner 3"]:
        """Return the corners in meters, row by row, with z = 0."""
        row, column = torch.meshgrid(torch.arange(self.rows), torch.arange(self.columns), indexing="ij")
        flat = torch.stack([column, row, torch.zeros_like(row)], -1)
        return flat.reshape(-1, 3).double() * self.square_m

    def list_labelings(self) -> list[Int[Tensor, "corner"]]:
        """List the orders of the corners that turn the board into itself, as it looks from its front."""
        grid = torch.arange(self.rows * self.columns).reshape(self.rows, self.columns)
        turns = (0, 1, 2, 3) if self.rows == self.columns else (0, 2)
        return [torch.rot90(grid, turn).flatten() for turn in turns]


@dataclass(frozen=True, eq=False)
class _Corners:
    """Candidates for corners of squares."""

    at: Float[np.ndarray, "n 2"]
    edges: Float[np.ndarray, "n 2"]
    """Angles of both edges in [0, π): turning forward by less than 90° from the first leads into the dark."""


def find_chessboard(image: Float[Tensor, "3 h w"], board: BoardSize) -> Float[Tensor, "corner 2"] | None:
    """Return the board's corners, row by row, in pixels from the top-left corner; None where it is not seen as a whole.

    Which of the corners is the first is arbitrary: a board looks the same in other orders (`list_labelings`).
    """
    gray = image.mean(0, keepdim=True)
    for size in SIZES:
        if size < SIZES[0] and max(gray.shape[1:]) <= size:
            break
        gray = resample_image(gray, *fit_size(gray.shape[2], gray.shape[1], size))
        values = gray[0].numpy()
        found = _find_in(_blur(values, BLUR_PX), board)
        if found is not None:
            refined = _refine(_blur(values, REFINED_BLUR_PX), found)
            scale = np.array([image.shape[2] / gray.shape[2], image.shape[1] / gray.shape[1]])
            return torch.from_numpy(refined * scale)
    return None


def _blur(gray: Float[np.ndarray, "h w"], deviation: float) -> Float[np.ndarray, "h w"]:
    reach = math.ceil(3 * deviation)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2).astype(np.float32)
    kernel /= kernel.sum()
    for _ in range(2):  # along columns, and along rows after turning
        padded = np.pad(gray, ((reach, reach), (0, 0)), mode="edge")
        gray = np.zeros_like(gray)
        for start, weight in enumerate(kernel):
            gray += weight * padded[start : start + len(gray)]
        gray = np.ascontiguousarray(gray.T)
    return gray


def _find_in(gray: Float[np.ndarray, "h w"], board: BoardSize) -> Float[np.ndarray, "corner 2"] | None:
    corners = _describe_corners(gray, _find_saddles(gray))
    tried: set[int] = set()
    for seed in range(len(corners.at)):
        if seed in tried:
            continue
        grid = _grow(corners, seed)
        tried |= set(grid.values())
        found = _cut_board(grid, board)
        if found is not None:
            return _order_clockwise(corners.at[found])
    return None


def _find_saddles(gray: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "n 2"]:
    """Find saddles of the brightness, strongest first, between pixels; centers of pixels are at +0.5."""
    dy, dx = np.gradient(gray)
    (dyy, dxy), dxx = np.gradient(dy), np.gradient(dx, axis=1)
    strength = dxy * dxy - dxx * dyy
    margin = math.ceil(RADIUS_PX) + 2
    strength[:margin] = strength[-margin:] = 0
    strength[:, :margin] = strength[:, -margin:] = 0
    rows, columns = np.nonzero((strength == _spread_maximum(strength)) & (strength > 0))
    values = strength[rows, columns]
    order = np.argsort(-values)[:MAX_CORNERS]
    order = order[values[order] > WEAKEST * np.median(values[order[:20]])] if len(order) else order
    rows, columns = rows[order], columns[order]
    # The saddle itself: where the slope of the quadratic through the pixel vanishes.
    gx, gy = dx[rows, columns], dy[rows, columns]
    xx, xy, yy = dxx[rows, columns], dxy[rows, columns], dyy[rows, columns]
    determinant = xx * yy - xy * xy
    shift = np.stack([(xy * gy - yy * gx) / determinant, (xy * gx - xx * gy) / determinant], 1)
    return np.stack([columns, rows], 1) + 0.5 + shift.clip(-1, 1)


def _spread_maximum(values: Float[np.ndarray, "h w"], reach: int = 2) -> Float[np.ndarray, "h w"]:
    for _ in range(2):
        padded = np.pad(values, ((reach, reach), (0, 0)), mode="edge")
        values = np.maximum.reduce([padded[start : start + len(values)] for start in range(2 * reach + 1)]).T
    return values


def _describe_corners(gray: Float[np.ndarray, "h w"], at: Float[np.ndarray, "n 2"]) -> _Corners:
    """Keep the candidates whose circle is a chessboard's, with the directions of their edges."""
    angle = 2 * math.pi * np.arange(SAMPLES) / SAMPLES
    circle = RADIUS_PX * np.stack([np.cos(angle), np.sin(angle)], 1)
    values = _sample(gray, at[:, None] + circle)
    values = values - values.mean(1, keepdims=True)
    turned = np.roll(values, SAMPLES // 2, axis=1)
    energy = np.maximum((values * values).sum(1), 1e-12)
    alike = (values * turned).sum(1) / energy >= ALIKE
    both = values + turned
    dark = both < 0
    into_dark = dark & ~np.roll(dark, 1, axis=1)
    out_of_dark = ~dark & np.roll(dark, 1, axis=1)
    good = alike & (into_dark.sum(1) == 2) & (out_of_dark.sum(1) == 2)
    edges = [
        _interpolate_crossing(both[good], crossing[good].argmax(1)) % math.pi
        for crossing in (into_dark, out_of_dark)
    ]
    return _Corners(at[good], np.stack(edges, 1))


def _interpolate_crossing(values: Float[np.ndarray, "n k"], after: Int[np.ndarray, "n"]) -> np.ndarray:
    """Return the angle at which values on the circle change their sign before sample `after`."""
    rows = np.arange(len(values))
    one, other = values[rows, after - 1], values[rows, after]
    return (after - 1 + one / np.where(one == other, 1, one - other)) * 2 * math.pi / SAMPLES


def _sample(gray: Float[np.ndarray, "h w"], at: Float[np.ndarray, "*n 2"]) -> Float[np.ndarray, "*n"]:
    """Interpolate brightness linearly."""
    height, width = gray.shape
    x, y = (at[..., 0] - 0.5).clip(0, width - 1.001), (at[..., 1] - 0.5).clip(0, height - 1.001)
    column, row = x.astype(int), y.astype(int)
    x, y = x - column, y - row
    above = gray[row, column] * (1 - x) + gray[row, column + 1] * x
    below = gray[row + 1, column] * (1 - x) + gray[row + 1, column + 1] * x
    return above * (1 - y) + below * y


# The grid. A step is one of +x, +y, −x, −y; corners of even and odd places have their edges the other way round.


def _grow(corners: _Corners, seed: int) -> dict[tuple[int, int], int]:
    """Collect the corners that edges connect with a seed, by column and row."""
    place_of = {seed: (0, 0)}
    grid = {(0, 0): seed}
    first, second = corners.edges[seed]
    if (second - first) % math.pi > math.pi / 2:  # so that x, y turn the same way in every grid
        second += math.pi
    axes = {seed: (first, second)}
    queue = deque([seed])
    while queue:
        corner = queue.popleft()
        column, row = place_of[corner]
        for turn in range(4):
            across, down = ((1, 0), (0, 1), (-1, 0), (0, -1))[turn]
            place = (column + across, row + down)
            if place in grid:
                continue
            angle = axes[corner][turn % 2] + (math.pi if turn >= 2 else 0.0)
            step = _predict_step(corners, grid, (column, row), (across, down))
            found = _step(corners, corner, angle, step) if step is not None or corner == seed else None
            if found is None or found in place_of:
                continue
            grid[place], place_of[found] = found, place
            axes[found] = _carry_axes(corners.edges[found], axes[corner])
            queue.append(found)
    return grid


def _predict_step(
    corners: _Corners, grid: dict[tuple[int, int], int], place: tuple[int, int], step: tuple[int, int]
) -> Float[np.ndarray, "2"] | None:
    """Return the last step in the same direction, or else a step of the next row beside it; None if there is none."""
    (column, row), (across, down) = place, step
    for side_x, side_y in ((-across, -down), (down, across), (-down, -across)):
        start = (column + side_x, row + side_y)
        end = (start[0] + across, start[1] + down)
        if start in grid and end in grid:
            return corners.at[grid[end]] - corners.at[grid[start]]
    return None


def _step(corners: _Corners, corner: int, angle: float, step: Float[np.ndarray, "2"] | None) -> int | None:
    """Return the next corner, which has dark and bright exchanged: where a step like others leads, or the nearest one
    along the edge."""
    offset = corners.at - corners.at[corner]
    good = _differ(corners.edges, corners.edges[corner][::-1]).max(1) < STRAIGHT_RAD
    if step is not None:
        off = np.hypot(*(offset - step).T)
        good &= off < OFF_STEP * np.hypot(*step)
    else:
        direction = np.arctan2(offset[:, 1], offset[:, 0])
        turned = np.abs((direction - angle + math.pi) % (2 * math.pi) - math.pi)
        off = np.hypot(*offset.T)
        good &= (off > RADIUS_PX) & (turned < STRAIGHT_RAD)
    good[corner] = False
    nearest = np.flatnonzero(good)
    return int(nearest[off[nearest].argmin()]) if len(nearest) else None


def _differ(one: Float[np.ndarray, "n 2"], other: Float[np.ndarray, "2"]) -> Float[np.ndarray, "n 2"]:
    """Return angles between lines."""
    return np.abs((one - other + math.pi / 2) % math.pi - math.pi / 2)


def _carry_axes(edges: Float[np.ndarray, "2"], axes: tuple[float, float]) -> tuple[float, float]:
    """Return the edges of a corner as directions of x and y, as those of its neighbor are."""
    found = []
    for axis in axes:
        edge = edges[_differ(edges[None], np.array([axis, axis]))[0].argmin()]
        turned = (edge - axis + math.pi / 2) % math.pi - math.pi / 2
        found.append(axis + turned)
    return found[0], found[1]


def _cut_board(grid: dict[tuple[int, int], int], board: BoardSize) -> Int[np.ndarray, "row column"] | None:
    """Return the candidates that form the board, if exactly one rectangle of its size is full."""
    places = np.array(list(grid))
    if len(places) < board.rows * board.columns:
        return None
    low = places.min(0)
    width, height = places.max(0) - low + 1
    numbers = np.full((height, width), -1)
    for (column, row), corner in grid.items():
        numbers[row - low[1], column - low[0]] = corner
    found = []
    for table in (numbers, np.rot90(numbers))[: 1 if board.rows == board.columns else 2]:
        if table.shape[0] >= board.rows and table.shape[1] >= board.columns:
            windows = np.lib.stride_tricks.sliding_window_view(table, (board.rows, board.columns))
            found += list(windows[(windows >= 0).all((2, 3))])
    return found[0] if len(found) == 1 else None


def _order_clockwise(at: Float[np.ndarray, "row column 2"]) -> Float[np.ndarray, "corner 2"]:
    """Return the corners row by row, so that rows follow columns clockwise: as on a board seen from its front."""
    across, down = at[0, -1] - at[0, 0], at[-1, 0] - at[0, 0]
    if across[0] * down[1] - across[1] * down[0] < 0:
        at = at[::-1]
    return at.reshape(-1, 2)


def _refine(gray: Float[np.ndarray, "h w"], at: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
    """Move corners to the point that the slopes of brightness around them are perpendicular to (Förstner)."""
    dy, dx = np.gradient(gray)
    square = np.sort(np.linalg.norm(at[:, None] - at, axis=-1), axis=1)[:, 1].min()
    reach = min(REFINE_PX, REFINE * square)
    side = np.linspace(-reach, reach, 2 * math.ceil(reach) + 1)
    window = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    weight = np.exp(-2 * (window**2).sum(1) / reach**2)
    found = at.copy()
    for _ in range(10):
        around = found[:, None] + window
        slope = np.stack([_sample(dx, around), _sample(dy, around)], -1)
        tensor = np.einsum("k,nki,nkj->nij", weight, slope, slope)
        moment = np.einsum("k,nki,nkj,kj->ni", weight, slope, slope, window)
        shift = np.linalg.solve(tensor + 1e-12 * np.eye(2), moment[..., None])[..., 0]
        found = found + shift.clip(-1, 1)
    return np.where(np.abs(found - at).max(1, keepdims=True) < reach, found, at)
