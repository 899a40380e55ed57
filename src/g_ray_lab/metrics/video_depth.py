"""Metrics of video depth, as published for Sintel and KITTI: one alignment for a whole sequence, then errors of pixels.

How prediction and truth are aligned changes the numbers more than most differences between models, so results name it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

RATIO = 1.25
MIN_LOG_DEPTH = 1e-5
"""Smallest aligned depth in logarithms and ratios; a shift can make depths negative."""
MIN_SCALE = 1e-3
SCALE_STEPS = 10
ADAM_STEPS, ADAM_RATE = 1000, 1e-4
ADAM_BETAS, ADAM_SLACK = (0.9, 0.999), 1e-8
MAX_DOUBLINGS = 40

Pixels = Float[Tensor, "pixel"]
Fit = tuple[float, float]
"""Factor and offset: truth ≈ factor · predicted + offset."""


@dataclass(frozen=True)
class VideoDepthScores:
    """Means over the valid pixels of a sequence; lengths are in the unit of the truth."""

    abs_rel: float
    """|d̂ − d| / d"""
    sq_rel: float
    """(d̂ − d)² / d"""
    rmse: float
    log_rmse: float
    delta: float
    """Share of pixels with max(d̂/d, d/d̂) < 1.25."""
    valid_pixels: int
    """Sequences are averaged with these as weights."""
    scale: float
    shift: float

    def rows(self) -> dict[str, float]:
        """Return the metrics and the weight by name, without the alignment."""
        return {
            "abs_rel": self.abs_rel,
            "sq_rel": self.sq_rel,
            "rmse": self.rmse,
            "log_rmse": self.log_rmse,
            "delta_1.25": self.delta,
            "valid_pixels": float(self.valid_pixels),
        }


@torch.no_grad()
def score_video_depth(
    truth: Float[Tensor, "view h w"],
    predicted: Float[Tensor, "view h w"],
    valid: Bool[Tensor, "view h w"],
    *,
    alignment: str = "scale",
    max_depth: float = math.inf,
) -> VideoDepthScores:
    """Align the depth of a sequence to the truth by one fit of ALIGNMENTS, and compare valid pixels.

    Truth at `max_depth` or beyond is not scored, and aligned depths are cut off there (Sintel: 70; KITTI: none).
    ValueError if no pixel is left, and for predictions that are not finite or not above 0 on average.
    """
    if alignment not in ALIGNMENTS:
        raise ValueError(f"unknown alignment {alignment!r}: choose one of {', '.join(ALIGNMENTS)}")
    used = valid & (truth > 0) & (truth < max_depth)
    true, guess = truth[used].double(), predicted[used].double()
    if not len(true):
        raise ValueError(f"no valid pixel with a true depth between 0 and {max_depth:g}")
    if not bool(guess.isfinite().all()):
        raise ValueError(f"{int((~guess.isfinite()).sum())} of {len(guess)} predicted depths are not finite")
    if not float(guess.mean()) > 0 or not float(guess.median()) > 0:
        raise ValueError("predicted depths are not above 0 on average: no scale aligns them")
    scale, shift = ALIGNMENTS[alignment](guess, true)
    return _compare(true, (scale * guess + shift).clamp(max=max_depth), scale, shift)


def _compare(truth: Pixels, aligned: Pixels, scale: float, shift: float) -> VideoDepthScores:
    error = aligned - truth
    positive = aligned.clamp(min=MIN_LOG_DEPTH)
    ratio = torch.maximum(positive / truth, truth / positive)
    return VideoDepthScores(
        abs_rel=(error.abs() / truth).mean().item(),
        sq_rel=(error.square() / truth).mean().item(),
        rmse=math.sqrt(error.square().mean().item()),
        log_rmse=math.sqrt((positive.log() - truth.log()).square().mean().item()),
        delta=(ratio < RATIO).double().mean().item(),
        valid_pixels=len(truth),
        scale=scale,
        shift=shift,
    )


# Alignments: (predicted, truth) → factor and offset.


def fit_nothing(predicted: Pixels, truth: Pixels) -> Fit:
    """Compare depth as it is, for metric predictions."""
    return 1.0, 0.0


def fit_median(predicted: Pixels, truth: Pixels) -> Fit:
    """Divide the medians."""
    return (truth.median() / predicted.median()).item(), 0.0


def fit_scale(predicted: Pixels, truth: Pixels) -> Fit:
    """Minimize Σ |s p − d| over s as published: ten steps of reweighted least squares from the ratio of the means."""
    scale = truth.mean() / predicted.mean()
    for _ in range(SCALE_STEPS):
        weighted = predicted / ((scale * predicted - truth).abs() + 1e-8)
        scale = (weighted * truth).sum() / (weighted * predicted).sum()
    return max(scale.item(), MIN_SCALE), 0.0


def fit_scale_and_shift(predicted: Pixels, truth: Pixels) -> Fit:
    """Reduce Σ |s p + t − d| as published: a thousand steps of Adam from the ratio of the medians and t = 0.

    A step moves s and t by 1e-4 at most, so neither gets farther than 0.1 from its start: the result depends on the
    unit of the prediction and is in general no minimum. `fit_least_absolute` finds the minimum.
    """
    # Adam is written out: the gradient is two sums of signs, and autograd would take three times as long.
    values = [fit_median(predicted, truth)[0], 0.0]
    first, second = [0.0, 0.0], [0.0, 0.0]
    previous = None
    residual, sign = torch.empty_like(truth), torch.empty_like(truth)
    for step in range(1, ADAM_STEPS + 1):
        # Without new memory in any of the thousand steps: a sequence has millions of pixels.
        torch.mul(predicted, values[0], out=residual).add_(values[1]).sub_(truth)
        torch.sign(residual, out=sign)
        loss = torch.dot(sign, residual).item()
        gradient = [torch.dot(sign, predicted).item(), sign.sum().item()]
        for i in range(2):
            first[i] = ADAM_BETAS[0] * first[i] + (1 - ADAM_BETAS[0]) * gradient[i]
            second[i] = ADAM_BETAS[1] * second[i] + (1 - ADAM_BETAS[1]) * gradient[i] ** 2
            mean, square = first[i] / (1 - ADAM_BETAS[0] ** step), second[i] / (1 - ADAM_BETAS[1] ** step)
            values[i] -= ADAM_RATE * mean / (math.sqrt(square) + ADAM_SLACK)
        if previous is not None and abs(previous - loss) < 1e-6:
            break
        previous = loss
    return values[0], values[1]


def fit_least_absolute(predicted: Pixels, truth: Pixels) -> Fit:
    """Minimize Σ |s p + t − d| over s and t.

    For a given factor the best offset is a median: the sum is a convex function of the factor alone. Its minimum
    is bracketed and found by golden sections.
    """

    def best_shift(scale: float) -> float:
        return (truth - scale * predicted).median().item()

    def cost(scale: float) -> float:
        return (scale * predicted + best_shift(scale) - truth).abs().sum().item()

    low, high = _bracket(cost, fit_median(predicted, truth)[0])
    golden = (math.sqrt(5) - 1) / 2
    inner, outer = high - golden * (high - low), low + golden * (high - low)
    costs = cost(inner), cost(outer)
    while high - low > 1e-9 * max(abs(low), abs(high)):
        if costs[0] <= costs[1]:
            high, outer = outer, inner
            inner = high - golden * (high - low)
            costs = cost(inner), costs[0]
        else:
            low, inner = inner, outer
            outer = low + golden * (high - low)
            costs = costs[1], cost(outer)
    scale = (low + high) / 2
    return scale, best_shift(scale)


def _bracket(cost: Callable[[float], float], middle: float) -> tuple[float, float]:
    """Return two values with the minimum of a convex function between them, by doubling steps from the middle."""
    ends = []
    for direction in (-1, 1):
        step = abs(middle) or 1.0
        end = middle + direction * step
        # Where all predictions are equal, every factor costs the same but for rounding: stop after some doublings.
        for _ in range(MAX_DOUBLINGS):
            if cost(end) >= cost(end - direction * step / 2):
                break
            end, step = end + direction * step, 2 * step
        ends.append(end)
    return ends[0], ends[1]


ALIGNMENTS: dict[str, Callable[[Pixels, Pixels], Fit]] = {
    "none": fit_nothing,
    "median": fit_median,
    "scale": fit_scale,
    "scale & shift": fit_scale_and_shift,
    "least absolute": fit_least_absolute,
}
"""`scale` and `scale & shift` are those of the published tables."""
