"""Field of view as an angle swept by rays, which may exceed 180°. (The FOV camera model is in `fov`.)"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

if TYPE_CHECKING:
    from g_ray.cameras.camera import Camera

# Samples per line and search. Each search for the end of the valid rays looks between two samples of the one before,
# so four of them place it to 1 / 256⁴ of the line, below the rounding of float32.
_SAMPLES = 257
_ZOOMS = 4


@dataclass(frozen=True, eq=False)
class FieldOfView:
    """Angles in degrees, from image edge to image edge or to where valid rays end."""

    horizontal_deg: Float[Tensor, "*batch"]
    vertical_deg: Float[Tensor, "*batch"]
    diagonal_deg: Float[Tensor, "*batch"]


@torch.no_grad()
def compute_field_of_view(camera: "Camera") -> FieldOfView:
    """Sweep along the middle row, the middle column and the diagonal from the top left to the bottom right.

    The angle is the length of the path that the ray traces on the unit sphere: for a line through the
    principal point this is the angle between the two ends, counted on beyond 180°.
    """
    # Endpoints alone would not do: 200° and 160° have the same angle between the first and the last ray.
    first, last = _find_valid_interval(camera)
    bearings, valid = _cast_rays(camera, _interpolate(first, last, _SAMPLES))
    chord = torch.linalg.vector_norm(bearings[..., 1:, :] - bearings[..., :-1, :], dim=-1)
    # Rounding may flip the validity of the outermost samples, which are limits of valid ones.
    usable = valid[..., 1:] | valid[..., :-1]
    # From the chord, not from acos of the dot product, which loses half of the digits for small angles.
    angles = 2 * torch.asin((chord / 2).clamp(max=1)) * usable
    return FieldOfView(*torch.rad2deg(angles.sum(-1)).unbind(-1))


def _find_valid_interval(camera: "Camera") -> tuple[Float[Tensor, "*batch 3"], Float[Tensor, "*batch 3"]]:
    """Find the fractions of each line at which valid rays begin and end; zero length where there are none.

    Validity has no derivative to follow, so both ends are searched from outside in.
    """
    zero = torch.zeros(*camera.batch_shape, 3, dtype=camera.dtype, device=camera.device)
    outside, inside = torch.stack([zero, zero + 1], -1), torch.stack([zero + 1, zero], -1)
    for _ in range(_ZOOMS):
        at = _interpolate(outside, inside, _SAMPLES)
        _, valid = _cast_rays(camera, at.flatten(-2))
        # argmax finds the first valid sample on the way in; the one before it is the next outside.
        index = valid.unflatten(-1, (2, _SAMPLES)).to(torch.uint8).argmax(-1, keepdim=True)
        outside, inside = (at.gather(-1, i)[..., 0] for i in ((index - 1).clamp_min(0), index))
    return inside[..., 0], inside[..., 1]


def _interpolate(
    start: Float[Tensor, "*shape"], end: Float[Tensor, "*shape"], n: int
) -> Float[Tensor, "*shape n"]:
    return start[..., None] + (end - start)[..., None] * torch.linspace(
        0, 1, n, dtype=start.dtype, device=start.device
    )


def _cast_rays(
    camera: "Camera", at: Float[Tensor, "*batch 3 n"]
) -> tuple[Float[Tensor, "*batch 3 n 3"], Bool[Tensor, "*batch 3 n"]]:
    """Cast rays at fractions of the row, the column and the diagonal."""
    w, h = float(camera.width), float(camera.height)
    starts, ends = ((0.0, h / 2), (w / 2, 0.0), (0.0, 0.0)), ((w, h / 2), (w / 2, h), (w, h))
    a, b = (torch.tensor(x, dtype=camera.dtype, device=camera.device)[:, None, :] for x in (starts, ends))
    return camera.unproject(a + (b - a) * at[..., None])
