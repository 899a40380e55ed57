"""Coordinates: the numbers that a rotary encoding multiplies with its frequencies."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import pi

from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.precision import disable_autocast
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import CENTER, Samples, Tokens


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
    """An axis of angles in (−π, π]."""
    return Axis(name, "rad", period=2 * pi if periodic else None, jump=2 * pi)


@dataclass(frozen=True)
class Coordinates:
    """Positions of the samples of every token, zero (so: unrotated) for special tokens."""

    values: Float[Tensor, "batch token sample axis"]
    valid: Bool[Tensor, "batch token sample"]
    axes: tuple[Axis, ...]


class Coordinate(ABC):
    """A way to say where a token is. Stateless; `COORDINATES` lists them by name."""

    axes: tuple[Axis, ...]

    @abstractmethod
    def compute_for_tokens(
        self, tokens: Tokens, rays: RayMap, samples: Samples
    ) -> Float[Tensor, "batch token sample axis"]:
        """Values for every token; those of special tokens are overwritten by zeros."""

    def __call__(self, tokens: Tokens, samples: Samples = CENTER) -> Coordinates:
        """Where each sample of each token is, in float32 or better whatever autocast says."""
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
