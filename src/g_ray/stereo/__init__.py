"""Multi-view stereo along the rays of any calibrated lens, in plain torch.

    options = StereoOptions()
    views = [View(name, camera, pose, image=image, mask=mask), …]   # any camera models and sizes
    views = [view.limit_size(options.long_side) for view in views]
    points = SparsePoints(positions, visible)                       # or None
    depths = estimate_depths(views, points, options)
    cloud = fuse_points(views, depths, choose_sources(views, points, options), options)

Names are imported when first used, so that the options can be shown without importing torch.
"""

from typing import TYPE_CHECKING

from g_ray.runtime import make_getattr

if TYPE_CHECKING:
    from g_ray.stereo.consistency import FusedPoints as FusedPoints
    from g_ray.stereo.consistency import check_consistency as check_consistency
    from g_ray.stereo.consistency import fuse_points as fuse_points
    from g_ray.stereo.depth_map import DepthMap as DepthMap
    from g_ray.stereo.depth_map import SparsePoints as SparsePoints
    from g_ray.stereo.expected_error import Uncertainty as Uncertainty
    from g_ray.stereo.sources import choose_range as choose_range
    from g_ray.stereo.sources import choose_sources as choose_sources
    from g_ray.stereo.stereo_driver import estimate_depths as estimate_depths
    from g_ray.stereo.stereo_driver import find_rough_points as find_rough_points
    from g_ray.stereo.stereo_options import StereoOptions as StereoOptions
    from g_ray.stereo.sweep import sweep_view as sweep_view
    from g_ray.stereo.sweep_network import SweepNetwork as SweepNetwork

_HOME = {
    "DepthMap": "g_ray.stereo.depth_map",
    "FusedPoints": "g_ray.stereo.consistency",
    "SparsePoints": "g_ray.stereo.depth_map",
    "StereoOptions": "g_ray.stereo.stereo_options",
    "SweepNetwork": "g_ray.stereo.sweep_network",
    "Uncertainty": "g_ray.stereo.expected_error",
    "check_consistency": "g_ray.stereo.consistency",
    "choose_range": "g_ray.stereo.sources",
    "choose_sources": "g_ray.stereo.sources",
    "estimate_depths": "g_ray.stereo.stereo_driver",
    "find_rough_points": "g_ray.stereo.stereo_driver",
    "fuse_points": "g_ray.stereo.consistency",
    "sweep_view": "g_ray.stereo.sweep",
}

__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]

if not TYPE_CHECKING:
    __getattr__ = make_getattr(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
