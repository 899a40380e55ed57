"""Export a COLMAP model (colmap/sparse/0) with the true lenses at the original resolution.

A view whose camera COLMAP cannot express exactly is left out, and a note says so. Observations are projections of the
exported points: of a view's own points, and of other views' points where the view's depth agrees with them.
"""

from dataclasses import dataclass

import numpy as np
import torch

from g_ray.export.options import ExportOptions
from g_ray.export.points import PointCloud, subsample_indices
from g_ray.export.reconstruction import ReconstructedView, Reconstruction, make_image_name
from g_ray.formats.colmap import make_raw_camera, make_raw_image
from g_ray.formats.colmap_model import RawCamera, RawImage, write_model

AGREEMENT = 0.02
"""A view observes another view's point if its depth there is the point's distance up to this share."""


def write_colmap(reconstruction: Reconstruction, cloud: PointCloud, options: ExportOptions) -> list[str]:
    """Write cameras, images and points; returns notes about what is left out."""
    lenses, notes = _convert_cameras(reconstruction)
    if not lenses:
        return [*notes, "colmap/ is not written: no view's camera is one that COLMAP has"]
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
    pixels, projects = view.camera.to(torch.float64).project(points)
    column, row = (pixels[:, 0].floor().long(), pixels[:, 1].floor().long())
    inside = (column >= 0) & (column < view.camera.width) & (row >= 0) & (row < view.camera.height)
    ahead = (points[:, 2] > 0) | backwards
    candidates = torch.nonzero(projects & inside & ahead)[:, 0]
    at = row[candidates], column[candidates]
    distance, depth = points[candidates].norm(dim=1), view.ray_depth[at].double()
    own = torch.from_numpy(cloud.view == number)[candidates]
    agrees = view.valid[at] & ((depth - distance).abs() < AGREEMENT * distance)
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
