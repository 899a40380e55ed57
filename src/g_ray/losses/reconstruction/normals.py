"""Normal-based gradient loss: neighbouring points must span the right surface, at several scales."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

SMALLEST_NORMAL = 1e-8
"""Triangles with less than (half) this area have no direction; it also bounds the gradient of those a little above."""

ENOUGH = 10
"""Fewer normals than this are no surface."""


def multi_scale_normal_loss(
    truth: Float[Tensor, "*view h w 3"],
    predicted: Float[Tensor, "*view h w 3"],
    valid: Bool[Tensor, "*view h w"],
    *,
    scales: int,
) -> Float[Tensor, ""]:
    """Mean of the loss on all pixels, on every second, on every fourth, … of each row and column."""
    steps = [(..., slice(None, None, 2**scale), slice(None, None, 2**scale)) for scale in range(scales)]
    losses = [
        normal_loss(truth[(*at, slice(None))], predicted[(*at, slice(None))], valid[at]) for at in steps
    ]
    return torch.stack(losses).mean()


def normal_loss(
    truth: Float[Tensor, "*view h w 3"],
    predicted: Float[Tensor, "*view h w 3"],
    valid: Bool[Tensor, "*view h w"],
) -> Float[Tensor, ""]:
    """Mean of 1 − cos between true and predicted normals whose three pixels are valid."""
    usable = corners_valid(valid)
    cosine = torch.nn.functional.cosine_similarity(
        corner_normals(truth), corner_normals(predicted), dim=-1, eps=SMALLEST_NORMAL
    )
    count = usable.sum()
    mean = torch.where(usable, 1 - cosine, 0).sum() / count.clamp(min=1)
    return mean * (count >= ENOUGH)


def corner_normals(points: Float[Tensor, "*view h w 3"]) -> Float[Tensor, "4 *view rows columns 3"]:
    """Cross products at the four corners of every 2×2 block: the way down times the way right, along both sides.

    These are the normals between each pixel's four pairs of adjacent neighbours, counted block by block.
    """
    right, down = points.diff(dim=-2), points.diff(dim=-3)
    ways_down = (down[..., :-1, :], down[..., 1:, :])
    ways_right = (right[..., :-1, :, :], right[..., 1:, :, :])
    return torch.stack([torch.linalg.cross(d, r) for d in ways_down for r in ways_right])


def corners_valid(valid: Bool[Tensor, "*view h w"]) -> Bool[Tensor, "4 *view rows columns"]:
    """Whether the corner and both its neighbours are valid: all of a block but the pixel across."""
    a, b = valid[..., :-1, :-1], valid[..., :-1, 1:]
    c, d = valid[..., 1:, :-1], valid[..., 1:, 1:]
    # In the order of `corner_normals`: left side and top, left and bottom, right and top, right and bottom.
    return torch.stack([a & b & c, a & c & d, a & b & d, b & c & d])
