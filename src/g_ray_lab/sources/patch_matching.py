"""Match points of two images: corners and the patches around them, in plain torch."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

RADIUS = 7
"""Pixels from the middle of a patch to its edge."""
LIKENESS = 0.8
"""Normalized correlation that a match needs."""
DISTINCT = 0.7
"""Squared distance to the best patch, in units of that to the next best, that a match may have."""


def match_images(
    first: Float[Tensor, "3 h w"], second: Float[Tensor, "3 height width"], corners: int = 800
) -> Float[Tensor, "2 match 2"]:
    """Pixels of both images (corner origin) that look the same: each the other's best, and better than its next best.

    For views of similar direction and scale, such as frames of a video.
    """
    (places, patches), (others, like) = (
        _extract_patches(image.mean(0), corners) for image in (first, second)
    )
    if len(places) < 2 or len(others) < 2:
        return first.new_empty(2, 0, 2)
    likeness = patches @ like.mT
    best, partner = likeness.topk(2, 1)
    mutual = likeness.argmax(0)[partner[:, 0]] == torch.arange(len(places))
    # Unit vectors are √(2 − 2 cos) apart. A rival that is nearly as near makes a match doubtful.
    distinct = 1 - best[:, 0] < DISTINCT * (1 - best[:, 1])
    good = mutual & distinct & (best[:, 0] > LIKENESS)
    return torch.stack([places[good], others[partner[good, 0]]])


def _extract_patches(
    luminance: Float[Tensor, "h w"], corners: int
) -> tuple[Float[Tensor, "corner 2"], Float[Tensor, "corner pixel"]]:
    """Corners and the patches around them, free of brightness and contrast: products are correlations."""
    places = _find_corners(luminance, corners)
    column, row = places.floor().long().unbind(-1)
    offset = torch.arange(-RADIUS, RADIUS + 1)
    patches = luminance[(row[:, None] + offset)[:, :, None], (column[:, None] + offset)[:, None]].flatten(1)
    return places, F.normalize(patches - patches.mean(1, keepdim=True), dim=1)


def _find_corners(luminance: Float[Tensor, "h w"], count: int) -> Float[Tensor, "corner 2"]:
    """Detect corners (Shi and Tomasi 1994), strongest first, none next to a stronger one."""
    image = luminance[None, None]
    dx, dy = image[..., 1:-1, 2:] - image[..., 1:-1, :-2], image[..., 2:, 1:-1] - image[..., :-2, 1:-1]
    xx, yy, xy = (F.avg_pool2d(product, 5, 1) for product in (dx * dx, dy * dy, dx * dy))
    strength = (xx + yy) / 2 - (((xx - yy) / 2) ** 2 + xy**2).sqrt()
    strength = F.pad(strength, (3,) * 4)[0, 0]
    peak = strength == F.max_pool2d(strength[None, None], 7, 1, 3)[0, 0]
    border = torch.zeros_like(peak)
    border[RADIUS:-RADIUS, RADIUS:-RADIUS] = True
    row, column = (peak & border & (strength > 1e-6)).nonzero(as_tuple=True)
    strongest = strength[row, column].argsort(descending=True)[:count]
    return torch.stack([column, row], -1)[strongest] + 0.5
