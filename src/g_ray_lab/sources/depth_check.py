"""Check depth against poses and pictures: points of one view must lie where another view sees them.

Files do not state what their numbers mean: camera axes, direction of poses, z-depth or depth along the ray, the unit.
Each possible meaning is a reading; the points of a view are moved into another one under it, and depth and color that
are measured there are compared with the expected ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log10

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose
from g_ray.media.depth import Convention, is_usable
from g_ray_lab.sources.axes_check import DECLARED, READINGS, is_clear_lead

UNSEEN = 0.3
"""Error of a point that another view does not see, and the largest of one that it sees: |ln| of two depths."""
COLOR = 0.2
"""Error of a point whose color is as different as black and white."""
MARGIN = 0.03
"""How much less one reading must err than another to win a point."""
AGREE = 0.1
"""Points that err by less agree."""
FACTORS = tuple(10 ** (k / 8) for k in range(-32, 33) if k)
"""What stored depth may have to be multiplied by."""
FINER = tuple(10 ** (k / 64) for k in range(-7, 8))
"""What that is then multiplied by."""
FEW = 8
"""Pairs that are enough to look for the factor."""


@dataclass(frozen=True)
class SampledDepth:
    """Points of a view, on a grid of pixels, and what it takes to look points of other views up in it."""

    camera: Camera
    pose: Pose
    convention: Convention
    depth: Float[Tensor, "h w"]  # as declared; of the photograph's shape, if not of its size
    colors: Float[Tensor, "rows columns 3"]
    bearings: Float[Tensor, "point 3"]
    point_depth: Float[Tensor, "point"]
    point_colors: Float[Tensor, "point 3"]

    @staticmethod
    def make(
        camera: Camera,
        pose: Pose,
        convention: Convention,
        depth: Float[Tensor, "h w"],
        colors: Float[Tensor, "3 rows columns"],
        points: int = 400,
    ) -> "SampledDepth":
        camera = camera.to(torch.float32)
        step = (camera.width * camera.height / points) ** 0.5
        u, v = (torch.arange(step / 2, size, step) for size in (camera.width, camera.height))
        pixels = torch.cartesian_prod(u, v)
        bearings, valid = camera.unproject(pixels)
        at = _look_up(depth, pixels, camera)
        good = valid & is_usable(at) & (bearings[..., 2] > 0.05)
        image = colors.movedim(0, -1)
        pixels = pixels[good]
        return SampledDepth(
            camera,
            pose.to(torch.float32),
            convention,
            depth,
            image,
            bearings[good],
            at[good],
            _look_up(image, pixels, camera),
        )


@dataclass(frozen=True)
class Reading:
    """What poses and depth may mean; the declared meaning is the one without changes."""

    poses: str = DECLARED
    turned_depth: bool = False  # z-depth is depth along the ray, or the other way round
    factor: float = 1.0

    @property
    def changes(self) -> int:
        return (self.poses != DECLARED) + self.turned_depth + (self.factor != 1)

    def describe(self, convention: Convention) -> str:
        """Describe the change in words, relative to the declared reading."""
        meant = (
            "along the ray instead of z-depth" if convention == "z" else "z-depth instead of along the ray"
        )
        parts = [
            self.poses if self.poses != DECLARED else "",
            f"depth {meant}" if self.turned_depth else "",
            f"depth times about {_format_factor(self.factor)}" if self.factor != 1 else "",
        ]
        return " and ".join(part for part in parts if part) or DECLARED


@dataclass(frozen=True)
class DepthReport:
    """How the declared reading does, and the one that does clearly better, if any."""

    points: int
    visible: float  # share of points that land where another view has depth
    agreeing: float  # share of those that agree with it
    better: Reading | None
    agreeing_better: float  # the same under that reading

    def verdict(self, convention: Convention) -> str:
        share = f"{self.agreeing:.0%} of the points that two views see agree as declared"
        if self.better is None:
            return share
        return f"{share}, but {self.agreeing_better:.0%} with {self.better.describe(convention)}"


def check_depth(pairs: Sequence[tuple[SampledDepth, SampledDepth]]) -> DepthReport:
    """Compare readings on pairs of views that overlap. A few pairs with some motion between them tell more than one."""
    if not pairs:
        raise ValueError("no pair of views with depth to check: give at least one")
    declared = Reading()
    plain = [Reading(poses, turned) for poses in READINGS for turned in (False, True)]
    errors = {reading: _compute_errors(pairs, reading) for reading in plain}
    for reading in plain:
        scaled = _find_best_factor(pairs, reading)
        errors[scaled] = _compute_errors(pairs, scaled)
    best = _find_simplest_lead(errors, declared)
    agreeing, visible = _measure_agreement(errors[declared])
    return DepthReport(
        points=len(errors[declared]),
        visible=visible,
        agreeing=agreeing,
        better=None if best == declared else best,
        agreeing_better=_measure_agreement(errors[best])[0],
    )


def _find_simplest_lead(errors: dict[Reading, Tensor], declared: Reading) -> Reading:
    """Return the declared reading, or one that is clearly better; one with more changes must be better again."""

    def is_better(reading: Reading) -> bool:
        other, than = errors[reading], errors[current]
        return is_clear_lead(int((other + MARGIN < than).sum()), int((than + MARGIN < other).sum()))

    current = declared
    for changes in (1, 2, 3):
        clear = [reading for reading in errors if reading.changes == changes and is_better(reading)]
        if clear:
            current = min(clear, key=lambda reading: float(errors[reading].mean()))
    return current


def _measure_agreement(errors: Float[Tensor, "point"]) -> tuple[float, float]:
    """Share of visible points that agree, and share of visible ones."""
    visible = errors < UNSEEN
    return float((errors < AGREE).sum() / visible.sum().clamp(min=1)), float(visible.float().mean())


def _find_best_factor(pairs: Sequence[tuple[SampledDepth, SampledDepth]], reading: Reading) -> Reading:
    """Return the same reading with another unit of depth."""
    few, factor = pairs[:: -(-len(pairs) // FEW)], 1.0
    for factors in (FACTORS, FINER):
        tried = [factor * each for each in factors]
        errors = _compute_all_errors(few, reading, torch.tensor(tried)).mean(-1)
        factor = tried[int(errors.argmin())]
    return replace(reading, factor=factor)


def _compute_errors(
    pairs: Sequence[tuple[SampledDepth, SampledDepth]], reading: Reading
) -> Float[Tensor, "point"]:
    return _compute_all_errors(pairs, reading, torch.tensor([reading.factor]))[0]


def _compute_all_errors(
    pairs: Sequence[tuple[SampledDepth, SampledDepth]],
    reading: Reading,
    factors: Float[Tensor, "factor"],
) -> Float[Tensor, "factor point"]:
    """Compute the errors of the points of both views of all pairs, for several units at a time."""
    both = [*pairs, *((second, first) for first, second in pairs)]
    return torch.cat([_compute_moved_errors(first, second, reading, factors) for first, second in both], -1)


def _compute_moved_errors(
    view: SampledDepth, other: SampledDepth, reading: Reading, factors: Float[Tensor, "factor"]
) -> Float[Tensor, "factor point"]:
    """Compute the errors of one view's points in another view. Depth keeps its unit; poses are converted."""
    is_z_depth = (view.convention == "z") != reading.turned_depth
    along = view.point_depth / view.bearings[..., 2] if is_z_depth else view.point_depth
    local = along[..., None] * view.bearings
    read = READINGS[reading.poses]
    there_from_here = read(other.pose).inverse() @ read(view.pose)
    there = local @ there_from_here.rotation.mT + there_from_here.translation / factors[:, None, None]
    pixels, imaged = other.camera.project(there)
    is_z_depth = (other.convention == "z") != reading.turned_depth
    expected = there[..., 2] if is_z_depth else torch.linalg.vector_norm(there, dim=-1)
    stored_depth = _look_up(other.depth, pixels, other.camera)
    visible = imaged & other.camera.contains(pixels) & is_usable(stored_depth) & (expected > 0)
    off = (expected.clamp(min=1e-9).log() - stored_depth.clamp(min=1e-9).log()).abs()
    color = (_look_up(other.colors, pixels, other.camera) - view.point_colors).abs().mean(-1)
    return torch.where(visible, (off + COLOR * color).clamp(max=UNSEEN), UNSEEN).nan_to_num(UNSEEN)


def _look_up(table: Tensor, pixels: Float[Tensor, "*n 2"], camera: Camera) -> Tensor:
    """Nearest entry of a table that covers the camera's image, at any resolution."""
    u, v = pixels.nan_to_num(0).unbind(-1)
    rows, columns = table.shape[:2]
    return table[
        (v * (rows / camera.height)).long().clamp(0, rows - 1),
        (u * (columns / camera.width)).long().clamp(0, columns - 1),
    ]


def _format_factor(factor: float) -> str:
    """Round to the nearest power of ten if it is close, else to two digits."""
    power = log10(factor)
    return f"{10 ** round(power):g}" if abs(power - round(power)) < 0.06 else f"{factor:.2g}"
