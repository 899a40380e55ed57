"""Depth maps of all views of a scene."""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import as_completed
from dataclasses import replace

import torch

from g_ray.media.view import View
from g_ray.runtime.interruptible import open_thread_pool
from g_ray.stereo.consistency import check_consistency
from g_ray.stereo.depth_map import DepthMap, SparsePoints
from g_ray.stereo.expected_error import Uncertainty
from g_ray.stereo.learned_depth import LearnedStereo
from g_ray.stereo.sources import choose_range, choose_sources
from g_ray.stereo.stereo_options import DEFAULTS, StereoOptions
from g_ray.stereo.sweep import sweep_view
from g_ray.stereo.sweep_network import TOLERANCE, SweepNetwork

ROUGH_SIDE, ROUGH_POINTS = 128, 500
"""Long side of the images of a first pass, and points that it keeps per view, where no points are given."""
MIN_ROUGH_SHARE = 0.02
"""Share of the pixels of a first pass that must agree for its points to count: of noise, some agree by chance."""
SURE = 0.65
"""Confidence of the network from which its depth holds if other views agree; below, more of the sky is filled."""
MIN_KEPT, UNCONFIRMED = 0.3, 0.1
"""Confidence of the network from which a depth that no view confirms is kept as a candidate, and what is left of it."""


def estimate_depths(
    views: Sequence[View],
    points: SparsePoints | None = None,
    options: StereoOptions = DEFAULTS,
    progress: Callable[[int], None] | None = None,
    finished: MutableMapping[int, DepthMap] | None = None,
    at_once: int = 1,
    uncertainty: Uncertainty | None = None,
    network: SweepNetwork | None = None,
) -> list[DepthMap]:
    """Estimate a depth map for every view, each checked against the others.

    Views larger than `options.choose_long_side` says are reduced first; a depth map has the size of the reduced view. A
    view without sources gets an empty depth map. Without points and a range, a first pass over small images finds out
    where the scene lies. `progress` is called with the number of views done. Depth maps in
    `finished`, by the index of their view, are not computed again, and new ones are put there. On a CPU, `at_once`
    views are swept at the same time, on one core each. `uncertainty` of poses and features decides on the errors to
    expect; without it poses count as exact. Estimates of a `network` are checked, and the rest become `candidates`.
    """
    if len(views) < 2:
        raise ValueError(f"{len(views)} views: stereo needs at least two views of the same scene")
    views = [view.limit_size(options.choose_long_side(view.camera)) for view in views]
    if points is None and (options.near is None or options.far is None):
        points = find_rough_points(views, options, at_once)
    sources = choose_sources(views, points, options, uncertainty)
    return _estimate(views, points, sources, options, at_once, progress, finished, uncertainty, network)


def _estimate(
    views: Sequence[View],
    points: SparsePoints | None,
    sources: Sequence[Sequence[int]],
    options: StereoOptions,
    at_once: int,
    progress: Callable[[int], None] | None = None,
    finished: MutableMapping[int, DepthMap] | None = None,
    uncertainty: Uncertainty | None = None,
    network: SweepNetwork | None = None,
) -> list[DepthMap]:
    learned = None if network is None else LearnedStereo.prepare(network, views)

    def sweep(index: int) -> DepthMap:
        if not sources[index]:
            return _make_empty(views[index])
        view, others = views[index], [views[j] for j in sources[index]]
        near, far = choose_range(views, points, index, options)
        start = None if learned is None else learned.estimate(index, sources[index], near, far, view.size)
        return sweep_view(view, others, near, far, options, start)

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
    if network is None:
        return check_consistency(views, ordered, sources, options, uncertainty=uncertainty)
    loose = replace(options, max_depth_error=max(options.max_depth_error, TOLERANCE))
    checked = check_consistency(views, ordered, sources, loose, uncertainty=uncertainty, learned=True)
    return [_keep_unconfirmed(*maps) for maps in zip(ordered, checked, strict=True)]


def _keep_unconfirmed(found: DepthMap, checked: DepthMap) -> DepthMap:
    """Keep what only the network supports, or what it is not sure of, as candidates with a low confidence."""
    merged = found.merge_candidates()
    sure = checked.valid & (found.confidence >= SURE)
    kept = merged.valid & ~sure & (checked.valid | (found.confidence >= MIN_KEPT))
    confidence = torch.where(kept, UNCONFIRMED * found.confidence, torch.where(sure, checked.confidence, 0.0))
    error = checked.expected_error
    return DepthMap(
        torch.where(sure, checked.ray_depth, 0.0),
        confidence,
        sure,
        candidates=torch.where(kept, merged.ray_depth, 0.0),
        expected_error=None if error is None else torch.where(sure, error, 0.0),
    )


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
    try:
        with open_thread_pool(
            min(at_once, len(indices)), initializer=torch.set_num_threads, initargs=(1,)
        ) as pool:
            futures = {pool.submit(sweep, index): index for index in indices}
            for future in as_completed(futures):
                yield futures[future], future.result()
    finally:
        # Also the default of threads to come, which the pool's threads have set to 1.
        torch.set_num_threads(threads)


def find_rough_points(
    views: Sequence[View], options: StereoOptions = DEFAULTS, at_once: int = 1
) -> SparsePoints | None:
    """Find points by a first pass over small images and all distances; they limit the range and choose the sources.

    None if views agree on too few pixels for a range.
    """
    small = [view.limit_size(ROUGH_SIDE) for view in views]
    depths = _estimate(small, None, choose_sources(small, None, options), options, at_once)
    found = []
    for view, depth in zip(small, depths, strict=True):
        rays = view.camera.to(torch.float32).unproject_grid()[0][depth.valid]
        local = rays * depth.ray_depth[depth.valid][:, None]
        points = local @ view.get_pose().rotation.to(local).mT + view.get_pose().translation.to(local)
        found.append(points[:: max(1, len(points) // ROUGH_POINTS)])
    agreeing = sum(int(depth.valid.sum()) for depth in depths)
    enough = agreeing >= MIN_ROUGH_SHARE * sum(depth.valid.numel() for depth in depths)
    return SparsePoints(torch.cat(found)) if enough else None


def _make_empty(view: View) -> DepthMap:
    zero = torch.zeros(view.size, device=view.device)
    return DepthMap(zero, zero, torch.zeros(view.size, dtype=torch.bool, device=view.device))
