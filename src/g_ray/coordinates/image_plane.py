"""Image-plane coordinates: what the host encodings use, and what ray angles replace."""

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.coordinates.base import Axis, Coordinate
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Samples, Tokens


def project_directions(
    directions: Float[Tensor, "*shape 3"], intrinsics: Float[Tensor, "*#shape 3 3"]
) -> Float[Tensor, "*shape 2"]:
    """First two components of K'd / ‖K'd‖: RayRoPE's projected direction in (−1, 1).

    K' is the camera's central pinhole in units of the image (no skew), so the value depends on the lens.
    """
    x, y, z = directions.unbind(-1)
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
    """Position in units of the image, centre 0: u/W − ½, v/H − ½."""

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
        owner = tokens.layout.get_view_of_token(tokens.device).clamp(min=0)
        return project_directions(rays.directions, tokens.views.intrinsics()[:, owner, None])


def _expand_to_batch(
    rays: RayMap, positions: Float[Tensor, "token sample axis"]
) -> Float[Tensor, "batch token sample axis"]:
    return positions.to(rays.dtype).expand(rays.shape[0], -1, -1, -1)
