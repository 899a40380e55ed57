"""Coordinates: the numbers that a rotary encoding multiplies with its frequencies."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import pi

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import CENTER, Samples, Tokens
from g_ray.runtime.device import disable_autocast


@dataclass(frozen=True)
class Axis:
    """One coordinate axis. A periodic one (azimuth) takes only frequencies that close over its period.

    `jump` is the height of the axis' branch cut, for hosts that form intervals on it. The paper's θx and θy
    have one at ±π although they keep its frequencies, which do not close over it.
    """

    name: str
    unit: str
    period: float | None = None
    jump: float | None = None


def make_angle_axis(name: str, *, periodic: bool = False) -> Axis:
    """Make an axis of angles in (−π, π]."""
    return Axis(name, "rad", period=2 * pi if periodic else None, jump=2 * pi)


@dataclass(frozen=True)
class Coordinates:
    """Positions of the samples of every token, zero (so: unrotated) for special tokens."""

    values: Float[Tensor, "batch token sample axis"]
    valid: Bool[Tensor, "batch token sample"]
    axes: tuple[Axis, ...]


class Coordinate(ABC):
    """Positions of tokens in one kind of coordinates. Stateless; `COORDINATES` lists them by name."""

    axes: tuple[Axis, ...]

    @abstractmethod
    def compute_for_tokens(
        self, tokens: Tokens, rays: RayMap, samples: Samples
    ) -> Float[Tensor, "batch token sample axis"]:
        """Compute values for every token; those of special tokens are overwritten by zeros."""

    def __call__(self, tokens: Tokens, samples: Samples = CENTER) -> Coordinates:
        """Compute where each sample of each token is, in float32 or better, also under autocast."""
        rays = tokens.rays(samples)
        is_patch = tokens.layout.get_patch_mask(tokens.device)
        with disable_autocast(rays.directions):
            values = self.compute_for_tokens(tokens, rays, samples)
        return Coordinates(values.masked_fill(~is_patch[None, :, None, None], 0.0), rays.valid, self.axes)


@dataclass(frozen=True)
class RayCoordinate(Coordinate):
    """A coordinate that depends on the ray alone: the same ray has the same value through every lens."""

    axes: tuple[Axis, ...]
    compute_for_directions: Callable[[Float[Tensor, "*shape 3"]], Float[Tensor, "*shape axis"]]

    def compute_for_tokens(
        self, tokens: Tokens, rays: RayMap, samples: Samples
    ) -> Float[Tensor, "batch token sample axis"]:
        return self.compute_for_directions(rays.directions)


# Ray angles: where a token looks, in radians.


def tangent(directions: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape 2"]:
    """Compute θx = atan2(rx, rz), θy = atan2(ry, rz): horizontal and vertical ray angle (paper, eq:thetax, eq:thetay).

    Exact and smooth in front of the camera. At 90° from the axis the pair is discontinuous (a ray to the
    right has θy = 0 just before and θy = π just behind), so beyond it `equidistant` or `spherical` is better.
    """
    x, y, z = directions.unbind(-1)
    return torch.stack([_safe_atan2(x, z), _safe_atan2(y, z)], -1)


def equidistant(directions: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape 2"]:
    """Compute (ψ cos φ, ψ sin φ): polar angle ψ from the axis, spread along the azimuth φ of the image plane.

    Continuous everywhere but straight behind the camera.
    """
    x, y, z = directions.unbind(-1)
    radius_squared = x * x + y * y
    off_axis = radius_squared > torch.finfo(directions.dtype).tiny
    radius = torch.where(off_axis, radius_squared, 1.0).sqrt()
    # ψ/r → 1/z on the axis, where r = 0 has no gradient of its own.
    stretch = torch.where(
        off_axis, torch.atan2(radius, z) / radius, 1.0 / torch.where(off_axis, 1.0, z.abs() + 1e-30)
    )
    return torch.stack([x * stretch, y * stretch], -1)


def spherical(directions: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape 2"]:
    """Compute the azimuth atan2(rx, rz), of period 2π, and the elevation atan2(ry, √(rx² + rz²)).

    Continuous over the whole panorama once the azimuth takes integer frequencies, except at the two poles.
    """
    x, y, z = directions.unbind(-1)
    horizontal_squared = x * x + z * z
    off_pole = horizontal_squared > torch.finfo(directions.dtype).tiny
    horizontal = torch.where(off_pole, torch.where(off_pole, horizontal_squared, 1.0).sqrt(), 0.0)
    return torch.stack([_safe_atan2(x, z), torch.atan2(y, horizontal)], -1)


def _safe_atan2(y: Tensor, x: Tensor) -> Tensor:
    """Compute atan2 such that its gradient at (0, 0), a ray along the other axis, is zero instead of NaN."""
    # Replacing x before atan2 keeps NaN out of backward; `where` on the result would multiply it by zero, which is NaN.
    degenerate = (x == 0) & (y == 0)
    return torch.atan2(y, torch.where(degenerate, 1.0, x))


TANGENT = RayCoordinate((make_angle_axis("theta_x"), make_angle_axis("theta_y")), tangent)
EQUIDISTANT = RayCoordinate((Axis("psi_cos_phi", "rad"), Axis("psi_sin_phi", "rad")), equidistant)
# Elevation never wraps, but takes the azimuth's whole frequencies: with unequal banks one axis drowns the other.
SPHERICAL = RayCoordinate(
    (make_angle_axis("azimuth", periodic=True), make_angle_axis("elevation", periodic=True)), spherical
)


# Image-plane coordinates: what the host encodings use, and what ray angles replace.


def project_directions(
    directions: Float[Tensor, "*shape 3"], intrinsics: Float[Tensor, "*#shape 3 3"]
) -> Float[Tensor, "*shape 2"]:
    """Compute the first two components of K'd / ‖K'd‖: RayRoPE's projected direction in (−1, 1).

    K' is the camera's central pinhole in units of the image (no skew), so the value depends on the lens.
    """
    x, y, z = directions.unbind(-1)
    # K'd without a matrix product: autocast and TF32 leave elementwise operations alone.
    across = intrinsics[..., 0, 0] * x + intrinsics[..., 0, 2] * z
    down = intrinsics[..., 1, 1] * y + intrinsics[..., 1, 2] * z
    length = (across.square() + down.square() + z.square()).sqrt() + 1e-6
    return torch.stack([across / length, down / length], -1)


class Grid(Coordinate):
    """Column and row of the patch: grid-index RoPE. The sample's place inside the patch does not matter.

    Counted from `start`: VGGT counts from 1, so that special tokens, at 0, stand outside of the grid.
    """

    axes = (Axis("column", "patch"), Axis("row", "patch"))

    def __init__(self, start: int = 0) -> None:
        self.start = start

    def compute_for_tokens(
        self, tokens: Tokens, rays: RayMap, samples: Samples
    ) -> Float[Tensor, "batch token sample axis"]:
        corner = ((float(self.start), float(self.start)),) * len(samples)
        return _expand_to_batch(
            rays, tokens.layout.compute_grid_positions(corner, normalized=False, device=tokens.device)
        )


class NormalizedGrid(Coordinate):
    """Position in units of the image, center 0: u/W − ½, v/H − ½."""

    axes = (Axis("u", "image"), Axis("v", "image"))

    def compute_for_tokens(
        self, tokens: Tokens, rays: RayMap, samples: Samples
    ) -> Float[Tensor, "batch token sample axis"]:
        return _expand_to_batch(
            rays, tokens.layout.compute_grid_positions(samples, normalized=True, device=tokens.device)
        )


class Projected(Coordinate):
    """The token's own ray through its own central pinhole, as RayRoPE projects it."""

    axes = (Axis("x", "projected"), Axis("y", "projected"))

    def compute_for_tokens(
        self, tokens: Tokens, rays: RayMap, samples: Samples
    ) -> Float[Tensor, "batch token sample axis"]:
        # Special tokens have no view (−1): any one serves, as their coordinate is set to zero afterwards.
        owner = tokens.layout.get_view_of_token(tokens.device).clamp(min=0)
        return project_directions(rays.directions, tokens.views.intrinsics()[:, owner, None])


class Time(Coordinate):
    """Time of the view that a token belongs to; without times, the number of the frame."""

    axes = (Axis("time", "frame"),)

    def compute_for_tokens(
        self, tokens: Tokens, rays: RayMap, samples: Samples
    ) -> Float[Tensor, "batch token sample axis"]:
        owner = tokens.layout.get_view_of_token(tokens.device).clamp(min=0)
        times = tokens.views.get_times()[..., owner, None, None].to(rays.dtype)
        return times.expand(*rays.shape, 1)


def _expand_to_batch(
    rays: RayMap, positions: Float[Tensor, "token sample axis"]
) -> Float[Tensor, "batch token sample axis"]:
    return positions.to(rays.dtype).expand(rays.shape[0], -1, -1, -1)


# The registry: a new coordinate is a class or a function above, and a line here.


COORDINATES: dict[str, Coordinate] = {
    "tangent": TANGENT,
    "equidistant": EQUIDISTANT,
    "spherical": SPHERICAL,
    "grid": Grid(),
    "grid_from_one": Grid(start=1),
    "normalized_grid": NormalizedGrid(),
    "projected": Projected(),
    "time": Time(),
}


def get_coordinate(name: str) -> Coordinate:
    """Look up the coordinate of that name; the paper's is `tangent`."""
    if name not in COORDINATES:
        raise ValueError(f"unknown coordinate {name!r}: choose one of {', '.join(COORDINATES)}")
    return COORDINATES[name]


def compute_position_ids(
    tokens: Tokens, coordinate: str = "tangent", *, scale: float = 1.0, time: bool = False
) -> Float[Tensor, "batch token axis"]:
    """Compute positions for a network that multiplies them by its own frequencies: (time,) y, x, as Qwen-VL and Flux.

    With `scale=match_scale(tokens)` angles are in units of a patch, which the frequencies of a grid expect. They are
    fractions: a network that looks positions up in a table needs cosine and sine instead.
    """
    values = scale * get_coordinate(coordinate)(tokens).values[..., 0, :].flip(-1)
    if time:
        values = torch.cat([get_coordinate("time")(tokens).values[..., 0, :], values], -1)
    return values


def match_scale(tokens: Tokens, coordinate: str = "tangent") -> float:
    """Compute the α with which phases of a ray coordinate are closest to those of grid positions: patches per radian.

    Least squares over the patches of all views, α = Σ Δgrid Δangle / Σ Δangle², both relative to the view's mean. A
    network that was trained with grid positions sees nearly its own phases then, as far as the lens is a pinhole.
    """
    products = squares = 0.0
    for grid, angles in _list_patches(tokens, coordinate, "grid"):
        steps, turns = grid - grid.mean(0), angles - angles.mean(0)
        products += float((steps * turns).sum())
        squares += float(turns.square().sum())
    if squares == 0.0:
        raise ValueError(
            "match_scale: no view has two patches with rays, so no angle between patches is known"
        )
    return products / squares


def match_offset(
    tokens: Tokens, scale: float, coordinate: str = "tangent", *, grid: str = "grid"
) -> tuple[float, float]:
    """Compute the `offset` of ray angles that puts special tokens where they are in a grid, mean over views.

    The identity rotation of special tokens is the optical axis for ray angles, but the first patch of a `grid`, or
    the place before it (`grid_from_one`, as VGGT). Networks that were trained so know it by that place.
    """
    views = _list_patches(tokens, coordinate, grid)
    centers = torch.stack([place.mean(0) / scale - angles.mean(0) for place, angles in views]).mean(0)
    return float(centers[0]), float(centers[1])


def _list_patches(
    tokens: Tokens, coordinate: str, grid: str
) -> list[tuple[Float[Tensor, "patch 2"], Float[Tensor, "patch 2"]]]:
    """List grid positions and angles of the patches that have a ray, for every view of every scene."""
    angles, places = get_coordinate(coordinate)(tokens), get_coordinate(grid)(tokens)
    spans = [span for view, span in tokens.layout.find_runs() if view is not None]
    patches = []
    for scene in range(len(angles.values)):
        for span in spans:
            valid = angles.valid[scene, span, 0]
            pair = (part.values[scene, span, 0].double()[valid] for part in (places, angles))
            patches += [tuple(pair)] if bool(valid.any()) else []
    return patches
