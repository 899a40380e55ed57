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
    usable = find_valid_corners(valid)
    ours, theirs = compute_corner_normals(truth), compute_corner_normals(predicted)
    cosine = _dot(ours, theirs) / (_norm(ours) * _norm(theirs))
    count = usable.sum()
    mean = torch.where(usable, 1 - cosine, 0).sum() / count.clamp(min=1)
    return mean * (count >= ENOUGH)


Vectors = tuple[Float[Tensor, "2 2 *view rows columns"], ...]
"""x, y, z apart: several times faster on a CPU than a last axis of three."""


def compute_corner_normals(points: Float[Tensor, "*view h w 3"]) -> Vectors:
    """Cross products at the four corners of every 2×2 block: the way down times the way right, along both sides.

    These are the normals between each pixel's four pairs of adjacent neighbours, counted block by block; the first
    axis tells the left from the right way down, the second the upper from the lower way right.
    """
    (dx, rx), (dy, ry), (dz, rz) = (_compute_steps(part.contiguous()) for part in points.unbind(-1))
    return dy * rz - dz * ry, dz * rx - dx * rz, dx * ry - dy * rx


def find_valid_corners(valid: Bool[Tensor, "*view h w"]) -> Bool[Tensor, "2 2 *view rows columns"]:
    """Whether the corner and both its neighbours are valid: all of a block but the pixel across."""
    a, b = valid[..., :-1, :-1], valid[..., :-1, 1:]
    c, d = valid[..., 1:, :-1], valid[..., 1:, 1:]
    return torch.stack([a & b & c, a & c & d, a & b & d, b & c & d]).unflatten(0, (2, 2))


def _compute_steps(part: Float[Tensor, "*view h w"]) -> tuple[Tensor, Tensor]:
    """Steps down on the left and right of every block [2, 1, …], and right at its top and bottom [1, 2, …]."""
    down, right = part.diff(dim=-2), part.diff(dim=-1)
    left_right = torch.stack([down[..., :-1], down[..., 1:]])
    top_bottom = torch.stack([right[..., :-1, :], right[..., 1:, :]])
    return left_right[:, None], top_bottom[None]


def _dot(first: Vectors, second: Vectors) -> Tensor:
    return sum((a * b for a, b in zip(first[1:], second[1:], strict=True)), first[0] * second[0])


def _norm(vectors: Vectors) -> Tensor:
    # Cut before the root, whose slope at 0 is infinite.
    return _dot(vectors, vectors).clamp(min=SMALLEST_NORMAL**2).sqrt()
