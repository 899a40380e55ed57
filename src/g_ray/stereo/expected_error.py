"""Predict how far a depth is typically off, relative to itself, from the parallax that it was measured by.

A source sees the point of a pixel along q = R r + ρ t (`g_ray.stereo.warp`). An error of δ radians there moves the
depth d by

    δd / d = δ |q| / sin α,   sin α = |q × R r| / |q|,

so that the same pixel error that costs 0.3 % at a triangulation angle of 20° costs half of the depth at 0.1°. δ has two
parts. One is the matching error of the pixel: a multiple of the features' reprojection error, which shows how well
this lens and these photographs can be measured at all, larger where the sweep was less sure. The other is that of the
poses: with the relative pose changed by the rotation ω and the shift v, the depth changes by

    δd / d = (ω · (R r × g) + ρ v · g) / (ρ g · g),   g = t less its part along q,

over sets of poses that the features allow (`g_ray.sfm.pose_uncertainty`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.stereo.warp import Trajectories

MATCH_PX, MATCH_FACTOR, MATCH_POWER = 0.18, 11.5, 1.75
"""Matching error of an average pixel: at least MATCH_PX, and MATCH_FACTOR · e ^ MATCH_POWER for a reprojection error
of e pixels. Measured: 0.14 to 0.2 px at e = 0.05 to 0.12 in rendered rooms; 0.5, 1.5 and 1.9 px at 0.15, 0.33 and 0.4
in a kitchen, whose lens is known only roughly: large reprojection errors are systematic, and move depth by more than
their size."""
SURENESS = (2.4, 1.85)
"""The matching error is this offset less this slope × the confidence of the sweep, times the average."""
CLAIM = 0.03
"""The confidence of the sweep network is the probability of an error below this (`g_ray.stereo.sweep_network`)."""
MEDIAN_OF_DEVIATION = 0.67
"""Median of the absolute value of a normal variable with deviation 1."""
MAX_ERROR = 1.0
"""Errors beyond the depth itself are not told apart."""


def predict_match_px(noise_px: float) -> float:
    """Predict the matching error of an average pixel from the reprojection error of features."""
    return max(MATCH_PX, MATCH_FACTOR * noise_px**MATCH_POWER)


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """What is known of the precision of views."""

    noise_px: Sequence[float]
    """Median reprojection error of features in each view, in pixels of the stereo images."""
    poses: Float[Tensor, "sample view 4 4"] | None = None
    """Sets of poses, world_from_cam, that may be the true ones; None: the poses are exact."""

    def draw_motions(
        self, view: View, index: int, other: View, source: int
    ) -> Float[Tensor, "sample 6"] | None:
        """Return rotations ω and shifts v that change the relative pose of two views to those of the samples."""
        if self.poses is None:
            return None
        given = _read_pose(other).inverse() @ _read_pose(view)
        drawn = Pose(self.poses[:, source]).inverse() @ Pose(self.poses[:, index])
        twist = drawn.rotation @ given.rotation.mT
        skew = (twist - twist.mT) / 2
        turn = torch.stack([skew[:, 2, 1], skew[:, 0, 2], skew[:, 1, 0]], -1)
        return torch.cat([turn, drawn.translation - given.translation], -1)


def _read_pose(view: View) -> Pose:
    return view.get_pose().to("cpu").to(torch.float64)


ASSUMED_NOISE_PX = 0.15
"""Reprojection error where there are no features to tell."""


def assume_exact(count: int) -> Uncertainty:
    """Return the uncertainty of views with exact poses and a good lens."""
    return Uncertainty([ASSUMED_NOISE_PX] * count)


def measure_pixel_angles(rays: Float[Tensor, "h w 3"]) -> Float[Tensor, "h w"]:
    """Angle between horizontally adjacent rays, in radians; the last column repeats."""
    across = (rays[:, 1:] - rays[:, :-1]).norm(dim=-1)
    return torch.cat([across, across[:, -1:]], 1).clamp_min(1e-6)


@dataclass(frozen=True, eq=False)
class SourceErrors:
    """Relative errors of the depths of a view as one source alone would measure them."""

    matching: Float[Tensor, "h w"]
    """Of an average pixel."""
    motion: Float[Tensor, "h w sample"] | None
    """Change of depth with each sample of the poses."""

    @staticmethod
    def measure(
        ways: Trajectories,
        inverse: Float[Tensor, "h w"],
        pixel_angle: Float[Tensor, "h w"],
        noise_px: float,
        motions: Float[Tensor, "sample 6"] | None,
    ) -> "SourceErrors":
        q = ways.bearings + inverse[..., None] * ways.shift
        length = q.norm(dim=-1).clamp_min(1e-12)
        sine = torch.linalg.cross(q, ways.bearings).norm(dim=-1) / length
        error = predict_match_px(noise_px) * pixel_angle
        matching = error * length / sine.clamp_min(1e-9)
        if motions is None:
            return SourceErrors(matching, None)
        along = (q * ways.shift).sum(-1, keepdim=True) / length[..., None].square()
        g = ways.shift - along * q
        slope = torch.cat([torch.linalg.cross(ways.bearings, g), inverse[..., None] * g], -1)
        slope = slope / (inverse * g.square().sum(-1)).clamp_min(1e-12)[..., None]
        return SourceErrors(matching, slope @ motions.to(slope).mT)


def combine_errors(
    sources: Sequence[SourceErrors],
    used: Sequence[Tensor],
    confidence: Float[Tensor, "h w"],
    learned: bool = False,
) -> Float[Tensor, "h w"]:
    """Return the median absolute error to expect of each depth, with the sources `used` at each pixel.

    The best source decides on matching: errors of several are not independent where the picture itself misleads. A
    `learned` depth rests on more than the patch of its pixel: its error is at most what the network itself claims.
    """
    weights = [
        torch.where(use, part.matching.square().reciprocal(), 0.0)
        for part, use in zip(sources, used, strict=True)
    ]
    total = torch.stack(weights).sum(0)
    best = torch.stack(weights).amax(0).clamp_min(1e-12).rsqrt()
    offset, slope = SURENESS
    matching = best * (offset - slope * confidence)
    if learned:
        # With exponentially distributed errors e, P(e < CLAIM) = confidence and the median is where P = ½.
        odds = -torch.log1p(-confidence.clamp(1e-3, 1 - 1e-3))
        matching = torch.minimum(matching, CLAIM * math.log(2) / odds)
    square = matching.square()
    moved = [
        part.motion * weight[..., None]
        for part, weight in zip(sources, weights, strict=True)
        if part.motion is not None
    ]
    if moved:
        change = torch.stack(moved).sum(0) / total.clamp_min(1e-12)[..., None]
        square = square + (MEDIAN_OF_DEVIATION * change).square().mean(-1)
    return torch.where(total > 0, square.sqrt(), MAX_ERROR).clamp_max(MAX_ERROR)
