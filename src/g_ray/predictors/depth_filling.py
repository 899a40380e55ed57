"""Fill pixels that stereo leaves empty: by a network's depth at the scale of the measured ones, or unconfirmed ones."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.stereo import DepthMap

MIN_SHARED = 50
"""Pixels with both depths without which a view is not filled."""
ROUNDS = 10
SHRINK = 0.1
"""Confidence of filled pixels, as a share of the median of the view."""


def fill_views(
    views: Sequence[ReconstructedView | None],
    predicted: Sequence[ReconstructedView],
    usable: Sequence[Bool[Tensor, "h w"]],
) -> list[ReconstructedView | None]:
    """Fill the views; `filled` of a view marks the pixels whose depth is the network's."""
    return [
        None if view is None else _fill_view(view, other, pixels)
        for view, other, pixels in zip(views, predicted, usable, strict=True)
    ]


def _fill_view(
    view: ReconstructedView, predicted: ReconstructedView, usable: Bool[Tensor, "h w"]
) -> ReconstructedView:
    size = (view.camera.height, view.camera.width)
    inverse = torch.where(predicted.valid, 1 / predicted.ray_depth.clamp_min(1e-9), 0.0)
    # Networks see fewer pixels than stereo; inverse depth is smooth on planes, so it is what is interpolated.
    guess = torch.nn.functional.interpolate(inverse[None, None], size, mode="bilinear", align_corners=False)[
        0, 0
    ]
    known = torch.nn.functional.interpolate(predicted.valid[None, None].float(), size)[0, 0] > 0
    both = view.valid & known & (guess > 0)
    if int(both.sum()) < MIN_SHARED:
        return view
    scale, shift = fit_inverse_depth(guess[both], 1 / view.ray_depth[both])
    aligned = scale * guess + shift
    nearest = 1 / view.ray_depth[view.valid].min()
    filled = usable & known & ~view.valid & (aligned > 0) & (aligned < nearest)
    confidence = SHRINK * view.confidence[view.valid].median()
    return replace(
        view,
        ray_depth=torch.where(filled, 1 / aligned.clamp_min(1e-9), view.ray_depth),
        confidence=torch.where(filled, confidence, view.confidence),
        valid=view.valid | filled,
        filled=filled,
    )


def add_unconfirmed(view: ReconstructedView, depth: DepthMap) -> ReconstructedView:
    """Fill pixels by the distances that only the sweep network supports."""
    if depth.candidates is None:
        return view
    candidates = depth.candidates.cpu()
    filled = ~view.valid & (candidates > 0)
    return replace(
        view,
        ray_depth=torch.where(filled, candidates, view.ray_depth),
        valid=view.valid | filled,
        filled=filled,
    )


def fit_inverse_depth(
    source: Float[Tensor, "n"], target: Float[Tensor, "n"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Fit target ≈ scale · source + shift robustly: iteratively reweighted least squares for the sum of |residuals|."""
    source, target = source.double(), target.double()
    weight = torch.ones_like(source)
    for _ in range(ROUNDS):
        total = weight.sum()
        mean, goal = (weight * source).sum() / total, (weight * target).sum() / total
        variance = (weight * (source - mean) ** 2).sum()
        scale = (weight * (source - mean) * (target - goal)).sum() / variance.clamp_min(1e-30)
        # A network that contradicts stereo in its order of depths gives one distance, not a mirrored scene.
        scale = scale.clamp_min(0)
        shift = goal - scale * mean
        residual = (scale * source + shift - target).abs()
        weight = 1 / residual.clamp_min(residual.median().clamp_min(1e-12) * 0.1)
    return scale.float(), shift.float()
