"""Keep the depths that other views confirm."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.geometry.pointmap import estimate_normals
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.stereo.depth_map import DepthMap
from g_ray.stereo.expected_error import (
    SourceErrors,
    Uncertainty,
    assume_exact,
    combine_errors,
    measure_pixel_angles,
)
from g_ray.stereo.stereo_options import DEFAULTS, StereoOptions
from g_ray.stereo.warp import Trajectories, accelerate

MAX_REPROJECTION_PX = 1.5
"""Largest reprojection error of two depths that agree."""
MAX_TOLERANCE = 0.2
"""Largest relative difference of two depths that agree, however little parallax there is."""
CONFIRMATIONS = 2
"""Views that have to agree with a candidate: where texture is weak, or repeats, one may do so by chance."""
SHARE_LOGIT, NO_SHARE_LOGIT = 3.3, -1.6
"""How the log-odds of a depth change with the share of agreeing views among those that see its point."""
DOUBTFUL_SHARE = 0.25
"""Expected error that halves the confidence, as a share of the largest one that is kept."""


def check_consistency(
    views: Sequence[View],
    depths: Sequence[DepthMap],
    neighbors: Sequence[Sequence[int]],
    options: StereoOptions = DEFAULTS,
    max_reprojection_px: float = MAX_REPROJECTION_PX,
    uncertainty: Uncertainty | None = None,
    learned: bool = False,
) -> list[DepthMap]:
    """Drop depths that fewer than `options.min_views` neighbors agree with, candidates that fewer than two do.

    A neighbor agrees if the point of a pixel falls onto one of its pixels whose own depth is close to the point's
    distance, and whose own point falls back within `max_reprojection_px`. Close means `options.max_depth_error`,
    relatively, or, but not for candidates, what one pixel is worth at the widest triangulation angle that the
    neighbors offer. Depths that hold get the error to expect of them (`g_ray.stereo.expected_error`); where that is
    above `options.max_expected_error` the views agree, but cannot know: these are dropped, too. `learned` depths are
    those of the sweep network.
    """
    if not len(views) == len(depths) == len(neighbors):
        raise ValueError(
            f"{len(views)} views, {len(depths)} depth maps, {len(neighbors)} lists of neighbors: "
            "give one of each per view"
        )
    merged = [depth.merge_candidates() for depth in depths]
    uncertainty = uncertainty or assume_exact(len(views))
    return [
        _check_view(
            views,
            merged,
            index,
            neighbors[index],
            depths[index].valid,
            options,
            max_reprojection_px,
            uncertainty,
            learned,
        )
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
    uncertainty: Uncertainty,
    learned: bool,
) -> DepthMap:
    """Return the depths of a view that hold, of depth maps that include their candidates."""
    view, depth = views[index], depths[index]
    agreeing, seeing, strictly = (torch.zeros_like(depth.ray_depth) for _ in range(3))
    error = torch.ones_like(depth.ray_depth)
    if neighbors:
        rays = view.camera.to(torch.float32).unproject_grid()[0]
        meetings = [_Meeting.of(view, rays, depth, views[j], depths[j]) for j in neighbors]
        widest = torch.stack([meeting.sine for meeting in meetings]).amax(0)
        # At disparities of a few pixels one pixel is worth more than `max_depth_error`.
        most = max(options.max_depth_error, min(options.max_expected_error, MAX_TOLERANCE))
        loose = (measure_pixel_angles(rays) / widest.clamp_min(1e-6)).clamp(options.max_depth_error, most)
        exact = torch.full_like(loose, options.max_depth_error)
        agree = [meeting.find_agreeing(loose, max_reprojection_px) for meeting in meetings]
        for meeting, agrees in zip(meetings, agree, strict=True):
            agreeing += agrees
            strictly += meeting.find_agreeing(exact, max_reprojection_px)
            seeing += meeting.in_frame
        inverse = torch.where(depth.valid, 1 / depth.ray_depth.clamp_min(1e-12), 0.0)
        sources = [
            SourceErrors.measure(
                meeting.ways,
                inverse,
                meeting.pixel_angle,
                uncertainty.noise_px[j],
                uncertainty.draw_motions(view, index, views[j], j),
            )
            for j, meeting in zip(neighbors, meetings, strict=True)
        ]
        error = combine_errors(sources, agree, depth.confidence, learned)
    confirmed = strictly >= max(options.min_views, CONFIRMATIONS)
    held = supported & (agreeing >= min(options.min_views, max(1, len(neighbors))))
    valid = depth.valid & (held | confirmed) & (error <= options.max_expected_error)
    share = agreeing / seeing.clamp_min(1)
    doubtful = DOUBTFUL_SHARE * options.max_expected_error
    odds = torch.logit(depth.confidence, 1e-6) + SHARE_LOGIT * share + NO_SHARE_LOGIT
    confidence = torch.sigmoid(odds) / (1 + (error / doubtful).square())
    parts = (torch.where(valid, part, 0.0) for part in (depth.ray_depth, confidence, error))
    ray_depth, confidence, error = parts
    return DepthMap(ray_depth, confidence, valid, expected_error=error)


@dataclass(frozen=True, eq=False)
class _Meeting:
    """The points of a view's depth map in another view, and what that view has there."""

    in_frame: Bool[Tensor, "h w"]
    known: Bool[Tensor, "h w"]  # in the frame, and the other view has a depth there
    ways: Trajectories
    sine: Float[Tensor, "h w"]  # of the triangulation angle
    pixel_angle: Float[Tensor, "h w"]  # of the other view, where the point falls
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
        angles = measure_pixel_angles(other.camera.to(torch.float32).unproject_grid()[0])
        expected = length * depth.ray_depth
        difference = (distance - expected).abs() / expected.clamp_min(1e-12)
        return_px = _measure_return(ways, q / length[..., None].clamp_min(1e-12), distance, rays)
        known = seen & theirs.valid[row, column]
        return _Meeting(seen, known, ways, sine * seen, angles[row, column], difference, return_px)

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


# Fusion


MIN_WEIGHT = 1e-3
"""Smallest weight of a depth in an average, whatever its confidence."""
MIN_ERROR = 1e-3
"""Smallest expected error that weights of depths tell apart."""
LIFTED = 32
"""Views whose points are kept in memory."""


@dataclass(frozen=True, eq=False)
class FusedPoints:
    """Points that several views agree on."""

    positions: Float[Tensor, "point 3"]
    normals: Float[Tensor, "point 3"]  # unit, towards the views
    colors: Float[Tensor, "point 3"]  # in [0, 1]
    views: Int[Tensor, "point"]  # how many views agree
    view: Int[Tensor, "point"]  # index of the view whose pixel started the point
    pixels: Float[Tensor, "point 2"]  # center of that pixel


def fuse_points(
    views: Sequence[View],
    depths: Sequence[DepthMap],
    neighbors: Sequence[Sequence[int]],
    options: StereoOptions = DEFAULTS,
    min_views: int = 2,
) -> FusedPoints:
    """Average the depths that views agree on into points; every pixel takes part in one point at most.

    Views are visited in turn. A pixel that no earlier point has used gathers the agreeing pixels of its neighbors,
    weighted by confidence over the square of their expected error; `min_views` of them, itself included, make a point.
    """
    used = [torch.zeros_like(depth.valid) for depth in depths]
    # Neighbors are mostly taken one after another: keeping the points of some views is as fast as keeping all.
    lift = lru_cache(LIFTED)(lambda index: _lift(views[index], depths[index]))
    parts = [
        _fuse_view(views, depths, lift, used, index, neighbors[index], options, min_views)
        for index in range(len(views))
    ]
    if not parts:
        raise ValueError("fuse_points: no views")
    return FusedPoints(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _lift(view: View, depth: DepthMap) -> tuple[Tensor, Tensor]:
    """Points in the world and their normals, [h, w, 3] each."""
    rays, _ = view.camera.to(torch.float32).unproject_grid()
    local = rays * depth.ray_depth[..., None]
    normals = estimate_normals(local, depth.valid, torch.zeros(3, device=rays.device))
    pose = Pose(view.get_pose().world_from_cam.to(local))
    return local @ pose.rotation.mT + pose.translation, normals @ pose.rotation.mT


def _fuse_view(
    views: Sequence[View],
    depths: Sequence[DepthMap],
    lift: Callable[[int], tuple[Tensor, Tensor]],
    used: list[Tensor],
    index: int,
    neighbors: Sequence[int],
    options: StereoOptions,
    min_views: int,
) -> tuple[Tensor, ...]:
    """Fuse the pixels of one view that no earlier point has used; returns the fields of `FusedPoints`."""
    depth, view = depths[index], views[index]
    start = depth.valid & ~used[index]
    weight = _weigh(depth)[start]
    points, normals = (part[start] for part in lift(index))
    sums = [values * weight[:, None] for values in (points, normals, _list_colors(view)[start])]
    count = torch.ones_like(weight, dtype=torch.int64)
    claims = []
    for other in neighbors:
        row, column, agrees = _find_partners(views[other], depths[other], used[other], points, options)
        share = torch.where(agrees, _weigh(depths[other])[row, column], 0.0)[:, None]
        for total, values in zip(sums, (*lift(other), _list_colors(views[other])), strict=True):
            total += values[row, column] * share
        weight, count = weight + share[:, 0], count + agrees
        claims.append((other, row, column, agrees))
    # Pixels are claimed only now: points with too few views are dropped, and leave their pixels to later views.
    keep = count >= min_views
    used[index][start] = keep
    for other, row, column, agrees in claims:
        taken = agrees & keep
        used[other][row[taken], column[taken]] = True
    position, normal, color = (total[keep] / weight[keep, None] for total in sums)
    normal = torch.nn.functional.normalize(normal, dim=-1)
    pixels = start.nonzero()[keep].flip(-1) + 0.5
    return position, normal, color, count[keep], torch.full_like(count[keep], index), pixels


def _weigh(depth: DepthMap) -> Float[Tensor, "h w"]:
    """Weights of depths in an average."""
    weight = depth.confidence.clamp_min(MIN_WEIGHT)
    if depth.expected_error is None:
        return weight
    return weight / depth.expected_error.clamp_min(MIN_ERROR).square()


def _list_colors(view: View) -> Float[Tensor, "h w 3"]:
    return view.load_image().float().permute(1, 2, 0)


def _find_partners(
    other: View,
    depth: DepthMap,
    used: Bool[Tensor, "h w"],
    points: Float[Tensor, "point 3"],
    options: StereoOptions,
) -> tuple[Int[Tensor, "point"], Int[Tensor, "point"], Bool[Tensor, "point"]]:
    """Row and column of each point in another view, and whether the depth there agrees and is still free for it."""
    local = other.get_pose().to(torch.float64).inverse().apply(points.double())
    pixels, imaged = accelerate(other.camera.to(torch.float32)).project(local.float())
    height, width = other.size
    seen = imaged & other.camera.contains(pixels)
    column, row = pixels[..., 0].long().clamp(0, width - 1), pixels[..., 1].long().clamp(0, height - 1)
    distance = local.norm(dim=-1).float()
    close = (depth.ray_depth[row, column] - distance).abs() <= options.max_depth_error * distance
    agrees = seen & close & depth.valid[row, column] & ~used[row, column]
    # If several points fall on one pixel, the first takes it.
    order = torch.arange(len(points), device=points.device)
    place = row * width + column
    first = torch.full((height * width,), len(points), device=points.device)
    first.scatter_reduce_(0, place[agrees], order[agrees], "amin")
    return row, column, agrees & (first[place] == order)
