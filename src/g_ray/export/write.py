"""All files of a result, in an order that never lets half a folder look finished."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from g_ray.export.colmap import write_colmap
from g_ray.export.exr import check_exr, write_exr
from g_ray.export.frusta import build_frustum, choose_frustum_size
from g_ray.export.glb import write_glb, write_ply
from g_ray.export.nerfstudio import write_transforms
from g_ray.export.options import ExportOptions
from g_ray.export.points import PointCloud, collect_points
from g_ray.export.result import (
    RESULT,
    Result,
    ResultView,
    finish_result,
    get_depth_path,
    read_result,
    write_views,
)
from g_ray.formats.images import PhotoLike
from g_ray.runtime.files import atomic_path

Page = Callable[[Result, PointCloud], object]
"""Writes one more file from a result and its points, e.g. `g_ray.viewer.reconstruction_report.write_report`."""


def write_result(
    result: Result,
    images: Iterable[PhotoLike],
    options: ExportOptions | None = None,
    page: Page | None = None,
) -> Result:
    """Photographs, depth and cameras of the views, everything made from them, a page, and result.json at last."""
    write_views(result.folder, result.views, images)
    return write_exports(result, options, page)


def write_exports(result: Result, options: ExportOptions | None = None, page: Page | None = None) -> Result:
    """The same for a folder that has its views already, e.g. once more with other options."""
    options = options or ExportOptions()
    if options.depth_exr:
        check_exr()
    (result.folder / RESULT).unlink(missing_ok=True)
    cloud = collect_points(result, options)
    notes = write_scene(result, cloud, options)
    result = replace(result, notes=tuple(dict.fromkeys([*result.notes, *notes])))
    if page is not None:
        page(result, cloud)
    finish_result(result)
    return read_result(result.folder)


def write_scene(result: Result, cloud: PointCloud, options: ExportOptions) -> list[str]:
    """points.ply, scene.glb, colmap/, transforms.json and further depth files; returns notes."""
    write_ply(result.folder / "points.ply", cloud)
    size = choose_frustum_size(result, cloud)
    lines = [
        (named.name, build_frustum(named.camera, pose, size).segments().numpy(force=True))
        for named, pose in zip(result.cameras(), result.poses(), strict=True)
    ]
    write_glb(result.folder / "scene.glb", cloud, lines)
    if options.depth_exr or options.depth_npy:
        for view in result.views:
            _write_depth(result.folder, view, options)
    return [*write_colmap(result, cloud, options), *write_transforms(result, options)]


def _write_depth(folder: Path, view: ResultView, options: ExportOptions) -> None:
    if options.depth_exr:
        write_exr(get_depth_path(folder, view.name, ".exr"), view)
    if options.depth_npy:
        with atomic_path(get_depth_path(folder, view.name, ".npy")) as scratch:
            np.save(scratch, view.z_depth().float().numpy(force=True))
