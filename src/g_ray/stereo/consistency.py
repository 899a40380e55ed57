"""Keep the depths that other views confirm."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.media.view import View
from g_ray.stereo.depth_map import DepthMap
from g_ray.stereo.stereo_options import DEFAULTS, StereoOptions
from g_ray.stereo.warp import Trajectories

MAX_REPROJECTION_PX = 1.5
"""Largest reprojection error of two depths that agree."""
CONFIRMATIONS = 2
"""Views that have to agree with a candidate: where texture is weak, or repeats, one may do so by chance."""
SHARE_LOGIT, NO_SHARE_LOGIT = 3.3, -1.6
"""How the log-odds of a depth change with the share of agreeing views among those that see its point."""


def check_consistency(
    views: Sequence[View],
    depths: Sequence[DepthMap],
    neighbors: Sequence[Sequence[int]],
    options: StereoOptions = DEFAULTS,
    max_reprojection_px: float = MAX_REPROJECTION_PX,
) -> list[DepthMap]:
    """Drop depths that fewer than `options.min_views` neighbors agree with, candidates that fewer than two do.

    A neighbor agrees if the point of a pixel falls onto one of its pixels whose own depth is close to the point's
    distance, and whose own point falls back within `max_reprojection_px`. Close means `max_depth_error`, relatively,
    or, but not for candidates, what one pixel is worth at the widest triangulation angle that the neighbors offer.
    """
    if not len(views) == len(depths) == len(neighbors):
        raise ValueError(
            f"{len(views)} views, {len(depths)} depth maps, {len(neighbors)} lists of neighbors: "
            "give one of each per view"
        )
    merged = [depth.merge_candidates() for depth in depths]
    return [
        _check_view(views, merged, index, neighbors[index], depths[index].valid, options, max_reprojection_px)
        for index in range(len(views))
    ]


def _check_view(
    views: Sequence[View],
    depths: Sequence[DepthMap],
    index: int,
    neighbors: Sequence[int],
    supported: Bool[Tensor, "h w"],
    options: StereoOptions,
    max_reprojection_px: float,
) -> DepthMap:
    """Return the depths of a view that hold, of depth maps that include their candidates."""
    view, depth = views[index], depths[index]
    agreeing, seeing, strictly = (torch.zeros_like(depth.ray_depth) for _ in range(3))
    if neighbors:
        rays = view.camera.to(torch.float32).unproject_grid()[0]
        meetings = [_Meeting.of(view, rays, depth, views[j], depths[j]) for j in neighbors]
        widest = torch.stack([meeting.sine for meeting in meetings]).amax(0)
        # At disparities of a few pixels one pixel is worth more than `max_depth_error`.
        tolerance = (measure_pixel_angles(rays) / widest.clamp_min(1e-6)).clamp(options.max_depth_error, 0.2)
        exact = torch.full_like(tolerance, options.max_depth_error)
        for meeting in meetings:
            agreeing += meeting.find_agreeing(tolerance, max_reprojection_px)
            strictly += meeting.find_agreeing(exact, max_reprojection_px)
            seeing += meeting.in_frame
    confirmed = strictly >= max(options.min_views, CONFIRMATIONS)
    held = supported & (agreeing >= min(options.min_views, max(1, len(neighbors))))
    valid = depth.valid & (held | confirmed)
    share = agreeing / seeing.clamp_min(1)
    confidence = torch.sigmoid(torch.logit(depth.confidence, 1e-6) + SHARE_LOGIT * share + NO_SHARE_LOGIT)
    return DepthMap(torch.where(valid, depth.ray_depth, 0.0), torch.where(valid, confidence, 0.0), valid)


@dataclass(frozen=True, eq=False)
class _Meeting:
    """The points of a view's depth map in another view, and what that view has there."""

    in_frame: Bool[Tensor, "h w"]
    known: Bool[Tensor, "h w"]  # in the frame, and the other view has a depth there
    sine: Float[Tensor, "h w"]  # of the triangulation angle
    difference: Float[Tensor, "h w"]  # of both distances, relative
    return_px: Float[Tensor, "h w"]

    @staticmethod
    def of(view: View, rays: Tensor, depth: DepthMap, other: View, theirs: DepthMap) -> "_Meeting":
        ways = Trajectories.between(view, other, rays)
        inverse = torch.where(depth.valid, 1 / depth.ray_depth.clamp_min(1e-12), 0.0)
        pixels, imaged = ways.project(inverse)
        seen = depth.valid & imaged & other.camera.contains(pixels)
        height, width = other.size
        column, row = pixels[..., 0].long().clamp(0, width - 1), pixels[..., 1].long().clamp(0, height - 1)
        distance = theirs.ray_depth[row, column]
        # The other camera sees the point along q, at the distance |q| / ρ.
        q = ways.bearings + inverse[..., None] * ways.shift
        length = q.norm(dim=-1)
        sine = torch.linalg.cross(q, ways.bearings).norm(dim=-1) / length.clamp_min(1e-12)
        expected = length * depth.ray_depth
        difference = (distance - expected).abs() / expected.clamp_min(1e-12)
        return_px = _measure_return(ways, q / length[..., None].clamp_min(1e-12), distance, rays)
        return _Meeting(seen, seen & theirs.valid[row, column], sine * seen, difference, return_px)

    def find_agreeing(self, tolerance: Float[Tensor, "h w"], reprojection_px: float) -> Bool[Tensor, "h w"]:
        return self.known & (self.difference <= tolerance) & (self.return_px <= reprojection_px)


def _measure_return(
    ways: Trajectories, bearings: Float[Tensor, "h w 3"], distance: Float[Tensor, "h w"], rays: Tensor
) -> Float[Tensor, "h w"]:
    """How far from a pixel the other view's point falls, in pixels.

    The other view's depth is taken along the ray to the point, so that only depth is compared. In the other frame
    the pixel's own ray starts at t and runs along R r; the angle to the returning point, divided by the angle of one
    pixel, needs no camera model.
    """
    offset = bearings * distance[..., None] - ways.shift
    cross = torch.linalg.cross(offset, ways.bearings).norm(dim=-1)
    return torch.atan2(cross, (offset * ways.bearings).sum(-1)) / measure_pixel_angles(rays)


def measure_pixel_angles(rays: Float[Tensor, "h w 3"]) -> Float[Tensor, "h w"]:
    """Angle between horizontally adjacent rays, in radians; the last column repeats."""
    across = (rays[:, 1:] - rays[:, :-1]).norm(dim=-1)
    return torch.cat([across, across[:, -1:]], 1).clamp_min(1e-6)
