"""Multi-view stereo along the rays of any calibrated lens, in plain torch.

    options = StereoOptions()
    views = [StereoView(image, camera, pose, mask).limit_size(options.long_side), …]   # any camera models and sizes
    points = SparsePoints(positions, visible)                                          # or None
    depths = estimate_depths(views, points, options)
    cloud = fuse_points(views, depths, choose_sources(views, points, options), options)

Names are imported when first used, so that the options can be shown without importing torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from g_ray.stereo.consistency import check_consistency as check_consistency
    from g_ray.stereo.driver import estimate_depths as estimate_depths
    from g_ray.stereo.fusion import FusedPoints as FusedPoints
    from g_ray.stereo.fusion import fuse_points as fuse_points
    from g_ray.stereo.options import StereoOptions as StereoOptions
    from g_ray.stereo.sources import choose_range as choose_range
    from g_ray.stereo.sources import choose_sources as choose_sources
    from g_ray.stereo.sweep import sweep_view as sweep_view
    from g_ray.stereo.view import DepthMap as DepthMap
    from g_ray.stereo.view import SparsePoints as SparsePoints
    from g_ray.stereo.view import StereoView as StereoView

_HOME = {
    "DepthMap": "view",
    "FusedPoints": "fusion",
    "SparsePoints": "view",
    "StereoOptions": "options",
    "StereoView": "view",
    "check_consistency": "consistency",
    "choose_range": "sources",
    "choose_sources": "sources",
    "estimate_depths": "driver",
    "fuse_points": "fusion",
    "sweep_view": "sweep",
}

__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]

if not TYPE_CHECKING:  # a module-level __getattr__ would make every wrong name look right to a type checker

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'g_ray.stereo' has no attribute {name!r}")
        return getattr(import_module(f"g_ray.stereo.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
