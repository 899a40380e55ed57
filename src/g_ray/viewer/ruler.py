"""Measure how far two points of a result are apart, and how far off that may be.

A point that a view measures at distance d along the unit ray r is off by e d along the ray, with the relative error e
that its depth is expected to have, and by a d across it, with the angle a of a pixel:

    C = d² (e² r rᵀ + a² (1 − r rᵀ)),   var |p − q| = uᵀ (C_p + C_q) u,   u = (p − q) / |p − q|.

The page of a result computes the same in JavaScript.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from g_ray.export.points import PointCloud
from g_ray.export.result import Reconstruction
from g_ray.stereo.expected_error import MEDIAN_OF_DEVIATION

CODES_PER_DECADE = 64
"""Errors are stored as bytes: 10^(−byte / CODES_PER_DECADE), and 0 where they are not known."""
QUANTILE = 1.96
"""Half of a 95 % interval, in standard deviations."""

REACH_RAD = 0.006
"""Angle from a click within which points are picked."""


@dataclass(frozen=True)
class Length:
    """A distance with half of its 95 % interval."""

    value: float
    half: float | None
    """None: not known."""
    metric: bool

    def describe(self) -> str:
        """Return "1.24 ± 0.02 m (95 %)", or that it is relative."""
        digits = 3 if not self.half else max(0, 1 - math.floor(math.log10(self.half)))
        text = f"{self.value:.{digits}f}" if self.half else f"{self.value:.3g}"
        if self.half is not None:
            text += f" ± {self.half:.{digits}f}"
        unit = " m" if self.metric else " (relative: the scale is unknown)"
        return text + unit + (" (95 %)" if self.half is not None else ", accuracy unknown")


@dataclass(frozen=True, eq=False)
class Ruler:
    """Points that may be measured between."""

    positions: Float[np.ndarray, "point 3"]
    view: Int[np.ndarray, "point"]
    codes: UInt8[np.ndarray, "point"]
    """Expected relative errors of depth, as they are stored."""
    centers: Float[np.ndarray, "view 3"]
    pixel_rad: Float[np.ndarray, "view"]
    """Angle of a pixel of the depth maps."""
    scale_half: float
    """Half of the relative interval of the scale."""
    metric: bool

    @staticmethod
    def make(reconstruction: Reconstruction, cloud: PointCloud) -> "Ruler":
        """Look up the errors of points in the maps of the views that they come from."""
        codes = np.zeros(len(cloud), np.uint8)
        pixel_rad = []
        for number, view in enumerate(reconstruction.views):
            camera, original = view.camera, view.original_camera
            pixel_rad.append(math.radians(float(camera.fov().horizontal_deg)) / camera.width)
            mine = np.nonzero(cloud.view == number)[0]
            if view.expected_error is None or not len(mine):
                continue
            scale = [camera.width / original.width, camera.height / original.height]
            column, row = (cloud.pixels[mine] * scale).astype(int).T
            error = view.expected_error.numpy(force=True)[
                row.clip(0, camera.height - 1), column.clip(0, camera.width - 1)
            ]
            code = -CODES_PER_DECADE * np.log10(np.maximum(error, 1e-9))
            codes[mine] = np.where(error > 0, code.round().clip(1, 255), 0)
        centers = np.stack([pose.translation.double().numpy(force=True) for pose in reconstruction.poses()])
        return Ruler(
            cloud.positions,
            cloud.view,
            codes,
            centers,
            np.array(pixel_rad),
            _read_scale_half(reconstruction.quality),
            reconstruction.unit == "metre",
        )

    def measure(self, one: int, other: int) -> Length:
        """Measure between two points."""
        line = self.positions[other] - self.positions[one]
        length = float(np.linalg.norm(line))
        if length == 0 or not (self.codes[one] and self.codes[other]):
            return Length(length, None, self.metric)
        variance = sum(self._compute_variance(point, line / length) for point in (one, other))
        scale = self.scale_half / QUANTILE * length if self.metric else 0.0
        return Length(length, QUANTILE * math.sqrt(variance + scale**2), self.metric)

    def _compute_variance(self, point: int, line: Float[np.ndarray, "3"]) -> float:
        ray = self.positions[point] - self.centers[self.view[point]]
        distance = np.linalg.norm(ray)
        along = float(line @ ray / distance) ** 2
        error = 10 ** (-float(self.codes[point]) / CODES_PER_DECADE) / MEDIAN_OF_DEVIATION
        pixel = self.pixel_rad[self.view[point]]
        return float(distance**2 * (error**2 * along + pixel**2 * (1 - along)))

    def pick(
        self,
        origin: Float[np.ndarray, "3"],
        direction: Float[np.ndarray, "3"],
        shown: Bool[np.ndarray, "point"],
    ) -> int | None:
        """Return the shown point that a ray meets: nearest to the eye of those close to the ray, or None."""
        direction = direction / np.linalg.norm(direction)
        offset = self.positions - origin
        along = offset @ direction
        angle = np.linalg.norm(offset - along[:, None] * direction, axis=1) / np.maximum(along, 1e-12)
        near = np.nonzero((angle <= REACH_RAD) & (along > 0) & shown)[0]
        return int(near[along[near].argmin()]) if len(near) else None


def _read_scale_half(quality: dict[str, Any]) -> float:
    """Return half of the relative interval of the scale; 0 where it is not known."""
    scale = quality.get("scale") or {}
    low, high = scale.get("low"), scale.get("high")
    return 0.0 if low is None or high is None else max(float(high) - 1, 1 - float(low))
