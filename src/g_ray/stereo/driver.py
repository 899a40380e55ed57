"""Depth maps of all views of a scene."""

from collections.abc import Callable, Sequence

import torch

from g_ray.stereo.consistency import check_consistency
from g_ray.stereo.options import DEFAULTS, StereoOptions
from g_ray.stereo.sources import choose_range, choose_sources
from g_ray.stereo.sweep import sweep_view
from g_ray.stereo.view import DepthMap, SparsePoints, StereoView


def estimate_depths(
    views: Sequence[StereoView],
    points: SparsePoints | None = None,
    options: StereoOptions = DEFAULTS,
    progress: Callable[[int], None] | None = None,
) -> list[DepthMap]:
    """Estimate a depth map for every view, each checked against the others.

    Views larger than `options.long_side` are reduced first (`StereoView.limit_size`); a depth map has the size of
    the reduced view. A view without sources gets an empty depth map. `progress` is called with the number of views
    done.
    """
    if len(views) < 2:
        raise ValueError(f"{len(views)} views: stereo needs at least two views of the same scene")
    views = [view.limit_size(options.long_side) for view in views]
    sources = choose_sources(views, points, options)
    depths = []
    for index, view in enumerate(views):
        if sources[index]:
            near, far = choose_range(views, points, index, options)
            depths.append(sweep_view(view, [views[j] for j in sources[index]], near, far, options))
        else:
            depths.append(_make_empty(view))
        if progress is not None:
            progress(index + 1)
    return check_consistency(views, depths, sources, options)


def _make_empty(view: StereoView) -> DepthMap:
    zero = torch.zeros(view.size, device=view.device)
    return DepthMap(zero, zero, torch.zeros(view.size, dtype=torch.bool, device=view.device))
