"""Depth maps of all views of a scene."""

from collections.abc import Callable, MutableMapping, Sequence

import torch

from g_ray.stereo.consistency import check_consistency
from g_ray.stereo.options import DEFAULTS, StereoOptions
from g_ray.stereo.sources import choose_range, choose_sources
from g_ray.stereo.sweep import sweep_view
from g_ray.stereo.view import DepthMap, SparsePoints, StereoView

ROUGH_SIDE, ROUGH_POINTS = 128, 500
"""Long side of the images of a first pass, and points that it keeps per view, where no points are given."""


def estimate_depths(
    views: Sequence[StereoView],
    points: SparsePoints | None = None,
    options: StereoOptions = DEFAULTS,
    progress: Callable[[int], None] | None = None,
    finished: MutableMapping[int, DepthMap] | None = None,
) -> list[DepthMap]:
    """Estimate a depth map for every view, each checked against the others.

    Views larger than `options.long_side` are reduced first (`StereoView.limit_size`); a depth map has the size of
    the reduced view. A view without sources gets an empty depth map. Without points and a range, a first pass over
    small images finds out where the scene lies. `progress` is called with the number of views done. Depth maps in
    `finished`, by the index of their view, are not computed again, and new ones are put there.
    """
    if len(views) < 2:
        raise ValueError(f"{len(views)} views: stereo needs at least two views of the same scene")
    views = [view.limit_size(options.long_side) for view in views]
    if points is None and (options.near is None or options.far is None):
        points = _find_rough_points(views, options)
    sources = choose_sources(views, points, options)
    return _estimate(views, points, sources, options, progress, finished)


def _estimate(
    views: Sequence[StereoView],
    points: SparsePoints | None,
    sources: Sequence[Sequence[int]],
    options: StereoOptions,
    progress: Callable[[int], None] | None = None,
    finished: MutableMapping[int, DepthMap] | None = None,
) -> list[DepthMap]:
    depths = []
    for index, view in enumerate(views):
        depth = None if finished is None else finished.get(index)
        if depth is None:
            depth = _make_empty(view)
            if sources[index]:
                near, far = choose_range(views, points, index, options)
                depth = sweep_view(view, [views[j] for j in sources[index]], near, far, options)
            if finished is not None:
                finished[index] = depth
        depths.append(depth)
        if progress is not None:
            progress(index + 1)
    return check_consistency(views, depths, sources, options)


def _find_rough_points(views: Sequence[StereoView], options: StereoOptions) -> SparsePoints | None:
    """Points of a first pass over small images and a wide range, which then limit the range and choose the sources."""
    small = [view.limit_size(ROUGH_SIDE) for view in views]
    depths = _estimate(small, None, choose_sources(small, None, options), options)
    found = []
    for view, depth in zip(small, depths, strict=True):
        rays = view.camera.to(torch.float32).unproject_grid()[0][depth.valid]
        local = rays * depth.ray_depth[depth.valid][:, None]
        points = local @ view.pose.rotation.to(local).mT + view.pose.translation.to(local)
        found.append(points[:: max(1, len(points) // ROUGH_POINTS)])
    positions = torch.cat(found)
    return SparsePoints(positions) if len(positions) else None


def _make_empty(view: StereoView) -> DepthMap:
    zero = torch.zeros(view.size, device=view.device)
    return DepthMap(zero, zero, torch.zeros(view.size, dtype=torch.bool, device=view.device))
