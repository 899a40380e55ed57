"""Write all files of a reconstruction, in an order that never lets an incomplete folder look finished."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch
from jaxtyping import Bool
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.export.export_options import ExportOptions
from g_ray.export.frusta import build_frustum, choose_frustum_size
from g_ray.export.georeference import write_georeference
from g_ray.export.mesh_export import write_mesh
from g_ray.export.points import PointCloud, add_filled_points, collect_points, subsample_indices
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.export.result import (
    FeatureTracks,
    Page,
    Reconstruction,
    finish_reconstruction,
    group_reasons,
    read_reconstruction,
    write_views,
)
from g_ray.export.result_paths import get_depth_path, make_image_name
from g_ray.formats.colmap.colmap_model import RawCamera, RawImage, write_model
from g_ray.formats.colmap.colmap_scene import make_raw_camera, make_raw_image
from g_ray.formats.frames import camera_to_frame, pose_to_frame
from g_ray.formats.nerfstudio import TRANSFORMS, write_nerfstudio
from g_ray.media.depth import check_exr_available, write_exr
from g_ray.media.scene_files import write_glb, write_ply
from g_ray.media.view import Image, MaskFile, View
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
        cloud = add_filled_points(cloud, reconstruction, options)
    notes = write_scene(reconstruction, cloud, options)
    reconstruction = replace(reconstruction, notes=tuple(dict.fromkeys([*reconstruction.notes, *notes])))
    if page is not None:
        page(reconstruction, cloud)
    finish_reconstruction(reconstruction)
    return read_reconstruction(folder)


def write_scene(reconstruction: Reconstruction, cloud: PointCloud, options: ExportOptions) -> list[str]:
    """Write points.ply, scene.glb, masks/, colmap/, transforms.json and further depth files; returns notes."""
    folder = reconstruction.saved_folder
    write_ply(folder / POINTS, cloud.positions, cloud.colors, cloud.confidence, cloud.normals, cloud.filled)
    cloud = cloud.select_measured()  # other formats have no mark for points that are guesses
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
        *_write_place(reconstruction),
        *write_mesh(reconstruction, cloud, options, find_masks(reconstruction)),
    ]


def _write_place(reconstruction: Reconstruction) -> list[str]:
    if reconstruction.origin is None:
        return []
    folder, cameras = reconstruction.saved_folder, reconstruction.cameras()
    return write_georeference(folder, reconstruction.origin, cameras)


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
    frames, reasons = [], []
    for view in reconstruction.cameras():
        try:
            frames.append(_make_frame(reconstruction.saved_folder, view, options))
        except ValueError as error:
            reasons.append((view.name, str(error)))
    notes = [f"{TRANSFORMS} leaves out {names}: {reason}" for names, reason in group_reasons(reasons)]
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


# Masks
#
# OUT/masks/NAME.png, of the photograph's size: 0 where a pixel has no ray or is masked out, 255 elsewhere. The names
# are COLMAP's (images/a.jpg has masks/a.jpg.png); transforms.json names them as `mask_path`.


MASKS = "masks"
STRIDE = 16
"""Pixels between those that are tried first: most lenses have a ray everywhere, and photographs are large."""
ROWS = 64
"""Rows whose rays are computed at once."""


def get_mask_path(folder: Path, name: str) -> Path:
    """Return where the mask of a photograph is, if it has one."""
    return folder / MASKS / f"{make_image_name(name)}.png"


def find_masks(reconstruction: Reconstruction) -> list[MaskFile | None]:
    """Find the masks of all views; None: a view has none."""
    masks = []
    for view in reconstruction.cameras():
        path = get_mask_path(reconstruction.saved_folder, view.name)
        masks.append(MaskFile(path, view.camera.width, view.camera.height) if path.is_file() else None)
    return masks


def write_masks(folder: Path, views: Sequence[View]) -> None:
    """Write the masks of views that have pixels without a ray, or a mask; masks that are there already are kept."""
    rays: dict[int, Bool[Tensor, "h w"] | None] = {}
    for view in views:
        path = get_mask_path(folder, view.name)
        if path.is_file():
            continue
        if id(view.camera) not in rays:
            rays[id(view.camera)] = find_rays(view.camera)
        parts = [part for part in (rays[id(view.camera)], view.load_mask()) if part is not None]
        if parts:
            used = torch.stack([part.cpu() for part in parts]).all(0)
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as scratch:
                PIL.Image.fromarray(used.numpy().astype(np.uint8) * 255).save(scratch, format="PNG")


def find_rays(camera: Camera) -> Bool[Tensor, "h w"] | None:
    """Return which pixels have a ray; None if all have."""
    width, height = camera.width, camera.height
    columns = torch.arange(width, dtype=camera.dtype, device=camera.device) + 0.5
    rows = torch.arange(height, dtype=camera.dtype, device=camera.device) + 0.5
    coarse = torch.cartesian_prod(_thin(columns), _thin(rows))
    if bool(camera.unproject(coarse)[1].all()):
        return None
    parts = []
    for block in rows.split(ROWS):
        v, u = torch.meshgrid(block, columns, indexing="ij")
        parts.append(camera.unproject(torch.stack([u, v], -1))[1])
    valid = torch.cat(parts)
    return None if bool(valid.all()) else valid


def _thin(values: Tensor) -> Tensor:
    """Every few values, the first and the last among them: corners are the farthest from the center."""
    return torch.cat([values[::STRIDE], values[-1:]])


# COLMAP
#
# Points and observations are the feature tracks of structure from motion where the reconstruction has them. Otherwise
# they come from the depth maps.
#
# A view whose camera COLMAP cannot express exactly is left out, with a note. Observations are projections of
# the exported points: of a view's own points, and of other views' points where the view's depth agrees with them.


AGREEMENT = 0.02
"""A view observes another view's point if its depth there is the point's distance up to this share."""


def write_colmap(reconstruction: Reconstruction, cloud: PointCloud, options: ExportOptions) -> list[str]:
    """Write cameras, images and points; returns notes about what is left out."""
    lenses, notes = _convert_cameras(reconstruction)
    if not lenses:
        return [*notes, "colmap/ is not written: no view's camera is one that COLMAP has"]
    if reconstruction.tracks is not None:
        _write_tracks(reconstruction, reconstruction.tracks, lenses, options.max_tracks)
        return notes
    cloud = cloud[np.nonzero(np.isin(cloud.view, list(lenses)))[0]]
    cloud = cloud[subsample_indices(len(cloud), options.max_tracks)]
    cameras: dict[RawCamera, int] = {}
    features = []
    for number, lens in lenses.items():
        cameras.setdefault(lens, len(cameras) + 1)
        view = reconstruction.views[number]
        features.append(
            (view, cameras[lens], _find_observations(view, number, cloud, lens.model == "EQUIRECTANGULAR"))
        )
    kept, images = _build_images(features, len(cloud))
    folder = reconstruction.saved_folder / "colmap" / "sparse" / "0"
    by_number = {number: lens for lens, number in cameras.items()}
    write_model(folder, by_number, images, cloud.positions[kept], cloud.colors[kept])
    return notes


def _write_tracks(
    reconstruction: Reconstruction, tracks: FeatureTracks, lenses: dict[int, RawCamera], limit: int
) -> None:
    """Write the features that were detected, and the points that were triangulated from them."""
    keep = np.isin(tracks.view, list(lenses))
    seen = np.bincount(tracks.point[keep], minlength=len(tracks.positions))
    strong = seen >= 2  # a point needs observations in two exported views
    kept = np.nonzero(strong)[0]
    strong[np.delete(kept, subsample_indices(len(kept), limit))] = False
    keep &= strong[tracks.point]
    numbers = np.cumsum(strong)  # from 1
    cameras: dict[RawCamera, int] = {}
    images = []
    views = reconstruction.cameras()
    for index, lens in lenses.items():
        cameras.setdefault(lens, len(cameras) + 1)
        mine = keep & (tracks.view == index)
        pose = views[index].pose
        assert pose is not None
        images.append(
            make_raw_image(
                make_image_name(views[index].name),
                cameras[lens],
                pose,
                tracks.pixels[mine],
                numbers[tracks.point[mine]],
            )
        )
    folder = reconstruction.saved_folder / "colmap" / "sparse" / "0"
    by_number = {number: lens for lens, number in cameras.items()}
    errors_px = None if tracks.errors_px is None else tracks.errors_px[strong]
    write_model(folder, by_number, images, tracks.positions[strong], tracks.colors[strong], errors_px)


def _convert_cameras(reconstruction: Reconstruction) -> tuple[dict[int, RawCamera], list[str]]:
    """Convert the cameras of views, by the view's index; returns notes about those that COLMAP does not have."""
    lenses, reasons = {}, []
    for number, view in enumerate(reconstruction.cameras()):
        try:
            lenses[number] = make_raw_camera(view.camera)
        except ValueError as error:
            reasons.append((view.name, str(error)))
    return lenses, [f"colmap/ leaves out {names}: {reason}" for names, reason in group_reasons(reasons)]


@dataclass(frozen=True, eq=False)
class _Observations:
    """Points that one view observes, and where."""

    points: np.ndarray
    """Indices into the cloud."""
    pixels: np.ndarray


def _find_observations(
    view: ReconstructedView, number: int, cloud: PointCloud, backwards: bool
) -> _Observations:
    """Find the points that a view observes: its own at their pixels, and others that project to where its depth agrees.

    COLMAP's lenses, other than panoramas, see nothing behind the image plane.
    """
    pose = view.pose.to(torch.float64).inverse()
    points = torch.from_numpy(cloud.positions) @ pose.rotation.mT + pose.translation
    camera = view.original_camera.to(torch.float64)
    pixels, projects = camera.project(points)
    ahead = (points[:, 2] > 0) | backwards
    candidates = torch.nonzero(projects & camera.contains(pixels) & ahead)[:, 0]
    distance = points[candidates].norm(dim=1)
    depth, _, valid = view.sample(pixels[candidates])
    own = torch.from_numpy(cloud.view == number)[candidates]
    agrees = valid & ((depth - distance).abs() < AGREEMENT * distance)
    indices = candidates[own | agrees].numpy(force=True)
    where = pixels[indices].numpy(force=True)
    mine = cloud.view[indices] == number
    where[mine] = cloud.pixels[indices[mine]]
    return _Observations(indices, where)


def _build_images(
    features: list[tuple[ReconstructedView, int, _Observations]], count: int
) -> tuple[np.ndarray, list[RawImage]]:
    """Return the indices of points that any view observes, and images that refer to them by number."""
    used = np.zeros(count, dtype=bool)
    for _, _, observations in features:
        used[observations.points] = True
    numbers = np.cumsum(used)  # from 1
    images = [
        make_raw_image(
            make_image_name(view.name), camera, view.pose, observations.pixels, numbers[observations.points]
        )
        for view, camera, observations in features
    ]
    return np.nonzero(used)[0], images
