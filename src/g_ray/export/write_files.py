"""Write all files of a reconstruction, in an order that never lets an incomplete folder look finished."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from g_ray.export.export_options import ExportOptions
from g_ray.export.frusta import build_frustum, choose_frustum_size
from g_ray.export.points import PointCloud, collect_points, subsample_indices
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.export.result import (
    Page,
    Reconstruction,
    finish_reconstruction,
    get_depth_path,
    make_image_name,
    read_reconstruction,
    write_views,
)
from g_ray.export.write_colmap import write_colmap
from g_ray.export.write_masks import MASKS, get_mask_path, write_masks
from g_ray.formats.frames import camera_to_frame, pose_to_frame
from g_ray.formats.nerfstudio import TRANSFORMS, write_nerfstudio
from g_ray.media.depth import check_exr_available, write_exr
from g_ray.media.glb import write_glb
from g_ray.media.ply import write_ply
from g_ray.media.view import Image, View
from g_ray.runtime.files import atomic_path
from g_ray.runtime.out_folder import RESULT

POINTS = "points.ply"


def write_reconstruction(
    reconstruction: Reconstruction,
    images: Iterable[Image],
    options: ExportOptions | None = None,
    page: Page | None = None,
) -> Reconstruction:
    """Write photographs, depth and cameras, all exports made from them, the page, and at last result.json."""
    views = reconstruction.views
    if options is not None and options.depth_size == "full":
        views = (view.restore_size() for view in views)
    write_views(reconstruction.saved_folder, views, images)
    return write_exports(reconstruction, options, page)


def write_exports(
    reconstruction: Reconstruction, options: ExportOptions | None = None, page: Page | None = None
) -> Reconstruction:
    """Write the exports of a folder that has its views already, e.g. again with other options."""
    options = options or ExportOptions()
    folder = reconstruction.saved_folder
    if options.depth_exr:
        check_exr_available()
    (folder / RESULT).unlink(missing_ok=True)
    cloud = reconstruction.cloud
    if cloud is None or options.selects_pixels():
        cloud = collect_points(reconstruction, options)
    else:
        cloud = cloud[subsample_indices(len(cloud), options.max_points)]
    notes = write_scene(reconstruction, cloud, options)
    reconstruction = replace(reconstruction, notes=tuple(dict.fromkeys([*reconstruction.notes, *notes])))
    if page is not None:
        page(reconstruction, cloud)
    finish_reconstruction(reconstruction)
    return read_reconstruction(folder)


def write_scene(reconstruction: Reconstruction, cloud: PointCloud, options: ExportOptions) -> list[str]:
    """Write points.ply, scene.glb, masks/, colmap/, transforms.json and further depth files; returns notes."""
    folder = reconstruction.saved_folder
    write_ply(folder / POINTS, cloud.positions, cloud.colors, cloud.confidence, cloud.normals)
    size = choose_frustum_size(reconstruction, cloud)
    frusta = [
        (named.name, build_frustum(named.camera, pose, size).segments().numpy(force=True))
        for named, pose in zip(reconstruction.cameras(), reconstruction.poses(), strict=True)
    ]
    write_glb(folder / "scene.glb", cloud.positions, cloud.colors, frusta)
    if options.depth_exr or options.depth_npy:
        for view in reconstruction.views:
            _write_depth(folder, view, options)
    write_masks(folder, reconstruction.cameras())
    return [
        *write_colmap(reconstruction, cloud, options),
        *_write_transforms(reconstruction, options),
        *_describe_masks(reconstruction),
    ]


def _describe_masks(reconstruction: Reconstruction) -> list[str]:
    """Say that COLMAP and nerfstudio need the masks: their models have no image circle."""
    folder = reconstruction.saved_folder
    count = sum(get_mask_path(folder, view.name).is_file() for view in reconstruction.cameras())
    if not count:
        return []
    return [
        f"{MASKS}/ has {count} masks of pixels without a ray or masked out, which camera models of COLMAP and "
        f"nerfstudio do not know: {TRANSFORMS} names them, COLMAP takes them as --ImageReader.mask_path"
    ]


def _write_depth(folder: Path, view: ReconstructedView, options: ExportOptions) -> None:
    if options.depth_exr:
        channels = {"Z": view.z_depth(), "ray_depth": view.ray_depth, "confidence": view.confidence}
        write_exr(get_depth_path(folder, view.name, ".exr"), channels)
    if options.depth_npy:
        with atomic_path(get_depth_path(folder, view.name, ".npy")) as scratch:
            np.save(scratch, view.z_depth().float().numpy(force=True))


def _write_transforms(reconstruction: Reconstruction, options: ExportOptions) -> list[str]:
    """Write transforms.json with the views whose cameras nerfstudio has; returns notes about the others."""
    frames, notes = [], []
    for view in reconstruction.cameras():
        try:
            frames.append(_make_frame(reconstruction.saved_folder, view, options))
        except ValueError as error:
            notes.append(f"{TRANSFORMS} leaves out {view.name}: {error}")
    per_model = write_nerfstudio(reconstruction.saved_folder, frames, ply_file_path=POINTS)
    if not frames:
        notes.append(f"{TRANSFORMS} is not written: no view's camera is one that nerfstudio has")
    if per_model:
        notes.append(
            f"nerfstudio takes one camera model per file: give it {', '.join(per_model)} instead of {TRANSFORMS}"
        )
    return notes


def _make_frame(folder: Path, view: View, options: ExportOptions) -> dict[str, Any]:
    assert view.pose is not None
    frame = {
        "file_path": f"images/{make_image_name(view.name)}",
        **pose_to_frame(view.pose),
        **camera_to_frame(view.camera),
    }
    mask = get_mask_path(folder, view.name)
    if mask.is_file():
        frame["mask_path"] = mask.relative_to(folder).as_posix()
    if options.depth_npy:
        path = get_depth_path(folder, view.name, ".npy")
        frame["depth_file_path"] = path.relative_to(folder).as_posix()
    return frame
