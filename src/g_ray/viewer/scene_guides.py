"""A grid below a scene with a scale bar on it."""

import math

import numpy as np
import viser
import viser.transforms as tf
from jaxtyping import Float

from g_ray.export.result import Unit
from g_ray.viewer.viewpoint import make_upright_basis

CELL = 0.3
"""Of the grid, about, in median depths of the points."""
CELLS = 40
"""Along a side of the grid, at most."""
LINES, SECTIONS, BAR = (150, 155, 165), (120, 125, 135), (255, 79, 154)
"""Visible on white and on black."""


def round_length(length: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten that is no longer than `length`."""
    power = 10.0 ** math.floor(math.log10(length))
    return max(step * power for step in (1, 2, 5) if step * power <= length * (1 + 1e-9))


def format_length(length: float, unit: Unit) -> str:
    """Format a length: in meters only if the scale is known."""
    if unit == "metre":
        return f"{length:g} m"
    return f"{length:g} unit" if length == 1 else f"{length:g} units"


class SceneGuides:
    """Grid and scale bar. A cell of the grid is as long as the bar."""

    def __init__(
        self,
        server: viser.ViserServer,
        points: Float[np.ndarray, "n 3"],
        centers: Float[np.ndarray, "view 3"],
        up: Float[np.ndarray, "3"],
        depth: float,
        unit: Unit,
    ) -> None:
        self.length = round_length(CELL * depth)
        basis = make_upright_basis(up)
        # x and y of the grid are horizontal, z is up: right, forward, −down.
        axes = np.stack([basis[:, 0], basis[:, 2], up], 1)
        inside = points @ axes
        low, high = np.quantile(inside, (0.02, 0.98), axis=0)
        # Cameras are few and matter all: the grid reaches below each of them.
        low[:2], high[:2] = (
            np.minimum(low, (centers @ axes).min(0))[:2],
            np.maximum(high, (centers @ axes).max(0))[:2],
        )
        cells = np.clip(np.ceil((high - low)[:2] / self.length) + 1, 4, CELLS)
        middle = np.round((low + high) / 2 / self.length) * self.length
        middle[2] = low[2]
        width, height = (cells * self.length).tolist()
        self.grid = server.scene.add_grid(
            "/guides/grid",
            width,
            height,
            cell_size=self.length,
            section_size=5 * self.length,
            cell_color=LINES,
            section_color=SECTIONS,
            fade_distance=200 * depth,
            shadow_opacity=0.0,
            wxyz=tf.SO3.from_matrix(axes).wxyz,
            position=axes @ middle,
        )
        # On the floor below the cameras: in front of the first viewpoint, and not behind their photographs.
        place = np.median(centers @ axes, axis=0)
        place[2] = low[2]
        self._add_bar(server, place, axes, unit)

    def _add_bar(
        self,
        server: viser.ViserServer,
        middle: Float[np.ndarray, "3"],
        axes: Float[np.ndarray, "3 3"],
        unit: Unit,
    ) -> None:
        """Add a bar with a tick at each end and its length below; `middle` is in the axes of the grid."""
        ends = [axes @ (middle + side * self.length * np.array([0.5, 0, 0])) for side in (-1, 1)]
        tick = 0.1 * self.length * axes[:, 1]
        lines = [ends, *((end - tick, end + tick) for end in ends)]
        self.bar = server.scene.add_line_segments(
            "/guides/bar", np.array(lines, np.float32), BAR, thickness=4.0, thickness_units="screen"
        )
        self.label = server.scene.add_label(
            "/guides/length",
            format_length(self.length, unit),
            position=(ends[0] + ends[1]) / 2,
            anchor="top-center",
        )

    def show(self, visible: bool) -> None:
        for part in (self.grid, self.bar, self.label):
            part.visible = visible
