"""Export a COLMAP model (colmap/sparse/0) with the true lenses at the original resolution.

Points and observations are the feature tracks of structure from motion where the reconstruction has them.
Otherwise they come from the depth maps.

A view whose camera COLMAP cannot express exactly is left out, and a note says so. Observations are projections of the
exported points: of a view's own points, and of other views' points where the view's depth agrees with them.
"""

from dataclasses import dataclass

import numpy as np
import torch

from g_ray.export.export_options import ExportOptions
from g_ray.export.points import PointCloud, subsample_indices
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.export.result import FeatureTracks, Reconstruction, make_image_name
from g_ray.formats.colmap.colmap_model import RawCamera, RawImage, write_model
from g_ray.formats.colmap.colmap_scene import make_raw_camera, make_raw_image

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
    strong = seen >= 2  # a point that one exported view observes is no point
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
    write_model(folder, by_number, images, tracks.positions[strong], tracks.colors[strong])


def _convert_cameras(reconstruction: Reconstruction) -> tuple[dict[int, RawCamera], list[str]]:
    """Convert the cameras of views, by the view's index; returns notes about those that COLMAP does not have."""
    lenses, notes = {}, []
    for number, view in enumerate(reconstruction.cameras()):
        try:
            lenses[number] = make_raw_camera(view.camera)
        except ValueError as error:
            notes.append(f"colmap/ leaves out {view.name}: {error}")
    return lenses, notes


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
