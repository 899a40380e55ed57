"""Field of view as an angle swept by rays, which may exceed 180°."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

if TYPE_CHECKING:
    from g_ray.cameras.base import Camera

_SAMPLES = 257
_BISECTIONS = 24


@dataclass(frozen=True, eq=False)
class FieldOfView:
    """Angles in degrees, from image edge to image edge or to where valid rays end."""

    horizontal_deg: Float[Tensor, "*batch"]
    vertical_deg: Float[Tensor, "*batch"]
    diagonal_deg: Float[Tensor, "*batch"]


def field_of_view(camera: "Camera") -> FieldOfView:
    """Sweep along the middle row, the middle column and the diagonal from the top left to the bottom right
    corner.

    The angle is the length of the path that the ray traces on the unit sphere: for a line through the
    principal point this is the angle between the two ends, counted on beyond 180°.
    """
    w, h = float(camera.width), float(camera.height)
    return FieldOfView(
        horizontal_deg=_swept_deg(camera, (0.0, h / 2), (w, h / 2)),
        vertical_deg=_swept_deg(camera, (w / 2, 0.0), (w / 2, h)),
        diagonal_deg=_swept_deg(camera, (0.0, 0.0), (w, h)),
    )


def _swept_deg(camera: "Camera", start: tuple[float, float], end: tuple[float, float]) -> Tensor:
    first, last, some = _valid_interval(camera, start, end)
    step = torch.linspace(0, 1, _SAMPLES, dtype=camera.dtype, device=camera.device)
    bearings, valid = _cast(camera, start, end, first[..., None] + (last - first)[..., None] * step)
    chord = torch.linalg.vector_norm(bearings[..., 1:, :] - bearings[..., :-1, :], dim=-1)
    # Rounding may flip the validity of the two outermost samples only: they are limits of valid ones.
    inner = valid[..., 1:] | valid[..., :-1]
    angles = 2 * torch.asin((chord / 2).clamp(max=1)) * inner
    return torch.rad2deg(angles.sum(-1)) * some


def _valid_interval(
    camera: "Camera", start: tuple[float, float], end: tuple[float, float]
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"], Bool[Tensor, "*batch"]]:
    """The fractions of the way at which valid rays begin and end, and whether there are any."""
    at = torch.linspace(0, 1, _SAMPLES, dtype=camera.dtype, device=camera.device)
    _, valid = _cast(camera, start, end, at.expand(*camera.batch_shape, _SAMPLES))
    number = torch.arange(_SAMPLES, device=camera.device)
    low = torch.where(valid, number, _SAMPLES - 1).amin(-1)
    high = torch.where(valid, number, 0).amax(-1)
    first = _boundary(camera, start, end, at[low], at[(low - 1).clamp_min(0)])
    last = _boundary(camera, start, end, at[high], at[(high + 1).clamp_max(_SAMPLES - 1)])
    return first, last, valid.any(-1)


def _boundary(
    camera: "Camera", start: tuple[float, float], end: tuple[float, float], inside: Tensor, outside: Tensor
) -> Tensor:
    """Bisect between a valid and an invalid (or absent) sample."""
    for _ in range(_BISECTIONS):
        middle = (inside + outside) / 2
        _, valid = _cast(camera, start, end, middle[..., None])
        inside = torch.where(valid[..., 0], middle, inside)
        outside = torch.where(valid[..., 0], outside, middle)
    return inside


@torch.no_grad()
def _cast(
    camera: "Camera", start: tuple[float, float], end: tuple[float, float], at: Float[Tensor, "*batch n"]
) -> tuple[Tensor, Tensor]:
    a, b = (torch.tensor(x, dtype=camera.dtype, device=camera.device) for x in (start, end))
    return camera.unproject(a + (b - a) * at[..., None])
