"""Depth maps of all views of a scene."""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

import torch

from g_ray.media.view import View
from g_ray.stereo.consistency import check_consistency
from g_ray.stereo.depth_map import DepthMap, SparsePoints
from g_ray.stereo.expected_error import Uncertainty
from g_ray.stereo.sources import choose_range, choose_sources
from g_ray.stereo.stereo_options import DEFAULTS, StereoOptions
from g_ray.stereo.sweep import sweep_view

ROUGH_SIDE, ROUGH_POINTS = 128, 500
"""Long side of the images of a first pass, and points that it keeps per view, where no points are given."""


def estimate_depths(
    views: Sequence[View],
    points: SparsePoints | None = None,
    options: StereoOptions = DEFAULTS,
    progress: Callable[[int], None] | None = None,
    finished: MutableMapping[int, DepthMap] | None = None,
    at_once: int = 1,
    uncertainty: Uncertainty | None = None,
) -> list[DepthMap]:
    """Estimate a depth map for every view, each checked against the others.

    Views larger than `options.long_side` are reduced first (`View.limit_size`); a depth map has the size of
    the reduced view. A view without sources gets an empty depth map. Without points and a range, a first pass over
    small images finds out where the scene lies. `progress` is called with the number of views done. Depth maps in
    `finished`, by the index of their view, are not computed again, and new ones are put there. On a CPU, `at_once`
    views are swept at the same time, on one core each. `uncertainty` of poses and features decides on the errors to
    expect; without it poses count as exact.
    """
    if len(views) < 2:
        raise ValueError(f"{len(views)} views: stereo needs at least two views of the same scene")
    views = [view.limit_size(options.long_side) for view in views]
    if points is None and (options.near is None or options.far is None):
        points = _find_rough_points(views, options, at_once)
    sources = choose_sources(views, points, options, uncertainty)
    return _estimate(views, points, sources, options, at_once, progress, finished, uncertainty)


def _estimate(
    views: Sequence[View],
    points: SparsePoints | None,
    sources: Sequence[Sequence[int]],
    options: StereoOptions,
    at_once: int,
    progress: Callable[[int], None] | None = None,
    finished: MutableMapping[int, DepthMap] | None = None,
    uncertainty: Uncertainty | None = None,
) -> list[DepthMap]:
    def sweep(index: int) -> DepthMap:
        if not sources[index]:
            return _make_empty(views[index])
        near, far = choose_range(views, points, index, options)
        return sweep_view(views[index], [views[j] for j in sources[index]], near, far, options)

    # Stored maps are unchecked: consistency depends on the maps of all views, so it is computed at the end.
    depths = {}
    if finished is not None:
        stored = ((index, finished.get(index)) for index in range(len(views)))
        depths = {index: depth for index, depth in stored if depth is not None}
    missing = [index for index in range(len(views)) if index not in depths]
    for index, depth in _sweep_at_once(sweep, missing, 1 if views[0].device.type != "cpu" else at_once):
        depths[index] = depth
        if finished is not None:
            finished[index] = depth
        if progress is not None:
            progress(len(depths))
    ordered = [depths[index] for index in range(len(views))]
    return check_consistency(views, ordered, sources, options, uncertainty=uncertainty)


def _sweep_at_once(
    sweep: Callable[[int], DepthMap], indices: Sequence[int], at_once: int
) -> Iterator[tuple[int, DepthMap]]:
    """Sweep views, several at a time, and yield each as it is done.

    A sweep is some ten thousand operations on blocks that fit the cache. Threads that share each of them have to wait
    for one another as often, on a busy machine for longer than they compute; threads with a view each never do.
    """
    if min(at_once, len(indices)) < 2:
        yield from ((index, sweep(index)) for index in indices)
        return
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(min(at_once, len(indices)), initializer=torch.set_num_threads, initargs=(1,))
    try:
        futures = {pool.submit(sweep, index): index for index in indices}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)
        # Also the default of threads to come, which the pool's threads have set to 1.
        torch.set_num_threads(threads)


def _find_rough_points(views: Sequence[View], options: StereoOptions, at_once: int) -> SparsePoints | None:
    """Points of a first pass over small images and a wide range, which then limit the range and choose the sources."""
    small = [view.limit_size(ROUGH_SIDE) for view in views]
    depths = _estimate(small, None, choose_sources(small, None, options), options, at_once)
    found = []
    for view, depth in zip(small, depths, strict=True):
        rays = view.camera.to(torch.float32).unproject_grid()[0][depth.valid]
        local = rays * depth.ray_depth[depth.valid][:, None]
        points = local @ view.get_pose().rotation.to(local).mT + view.get_pose().translation.to(local)
        found.append(points[:: max(1, len(points) // ROUGH_POINTS)])
    positions = torch.cat(found)
    return SparsePoints(positions) if len(positions) else None


def _make_empty(view: View) -> DepthMap:
    zero = torch.zeros(view.size, device=view.device)
    return DepthMap(zero, zero, torch.zeros(view.size, dtype=torch.bool, device=view.device))
