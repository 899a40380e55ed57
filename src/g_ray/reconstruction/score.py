"""Score a reconstruction with known depth: of depth maps, or of the points of a COLMAP model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from g_ray.cameras.camera import Camera
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.formats import read_scene
from g_ray.formats.colmap.colmap_model import ColmapModel, RawImage, read_model
from g_ray.formats.colmap.colmap_scene import convert_pose, find_model
from g_ray.formats.posed_scene import PosedScene
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.reconstruction.set_metrics import SetGeometry, score_sets


def read_truth(folder: Path, names: Sequence[str], cameras: Sequence[Camera]) -> list[View | None]:
    """Read the true depth and pose of photographs from a scene folder; None for those that it does not have.

    `depth` of a view is the distance along each pixel's ray, 0 where it is not known. Depth maps are taken where the
    scene has them, the points of its COLMAP model otherwise.
    """
    scene = read_scene(Path(folder), check=False)
    model = None if scene.depth else _read_model_with_points(scene)
    true_views = [_read_view(scene, model, name, camera) for name, camera in zip(names, cameras, strict=True)]
    if sum(view is not None for view in true_views) < 2:
        raise ValueError(
            f"{folder} knows the depth of fewer than two of the photographs: nothing to score with"
        )
    return true_views


def _read_view(scene: PosedScene, model: ColmapModel | None, name: str, camera: Camera) -> View | None:
    try:
        index = scene.find_index(name)
    except ValueError:
        return None
    known = scene.cameras[index]
    if (known.width, known.height) != (camera.width, camera.height):
        raise ValueError(
            f"{name} is {camera.width}×{camera.height} px, but {scene.folder} knows it at "
            f"{known.width}×{known.height}: score photographs of the scene's own size"
        )
    if model is not None:
        image = next(image for image in model.images if image.name == scene.names[index])
        return _project_points(model, image, camera)
    view = replace(scene.views[index], camera=camera)
    return None if view.depth is None else replace(view, depth=view.load_ray_depth())


def _project_points(model: ColmapModel, image: RawImage, camera: Camera) -> View | None:
    """Return the distance of an image's points from its camera, at the pixels of their features."""
    assert model.points is not None
    where = convert_pose(Path(image.name), image)
    visible = [
        (int(y), int(x), model.points[int(number)].position)
        for (x, y), number in zip(image.pixels, image.point_ids, strict=True)
        if int(number) in model.points and 0 <= x < camera.width and 0 <= y < camera.height
    ]
    rows, columns = (
        torch.tensor([feature[axis] for feature in visible], dtype=torch.long) for axis in (0, 1)
    )
    points = torch.tensor([feature[2] for feature in visible], dtype=torch.float64).reshape(-1, 3)
    depth = torch.zeros(camera.height, camera.width)
    depth[rows, columns] = (points - where.translation).norm(dim=-1).float()
    return View(image.name, camera, where, depth=depth) if bool((depth > 0).any()) else None


def _read_model_with_points(scene: PosedScene) -> ColmapModel:
    place = find_model(scene.folder) if scene.kind == "COLMAP" else None
    if place is None:
        raise ValueError(f"{scene.folder} ({scene.kind}) has no depth maps to score with")
    if not any(place.glob("points3D.*")):
        raise ValueError(f"{place} has neither depth maps nor points3D: nothing to score with")
    return read_model(place, points=True)


# Metrics
#
# Those of the paper, over the pixels whose depth is known, without rays: these come from the calibration.


MAX_PIXELS = 20_000
"""Pixels of a view that are scored, evenly spread: more would not change a score."""
SCORES = {
    "points_rel": "points (relative error)",
    "depth_rel": "depth along the ray (relative error)",
    "points_inlier": "points within 3 %",
    "pose_ate": "poses (ATE, in units of the mean distance of points)",
    "depth_inlier": "depth within 3 %",
}


def score_views(views: Sequence[ReconstructedView], truth: Sequence[View | None]) -> dict[str, float]:
    """Compute the paper's metrics over the views whose depth is known, keyed by display names."""
    scores, pixels = score_against_truth(views, truth)
    named = {f"{title}, against truth": scores[name] for name, title in SCORES.items()}
    return {**named, "pixels with known depth": float(pixels)}


def score_against_truth(
    views: Sequence[ReconstructedView], truth: Sequence[View | None]
) -> tuple[dict[str, float], int]:
    """Compute the six metrics of the paper and the number of pixels that they are over.

    True points lie on the rays of the true views' cameras, which may differ from those of the reconstruction.
    """
    pairs = [(view, true) for view, true in zip(views, truth, strict=True) if true is not None]
    samples = [_sample_pixels(view, true) for view, true in pairs]
    true_rays, rays, true_depth, estimated_depth = (
        pad_sequence(list(parts), batch_first=True) for parts in zip(*samples, strict=True)
    )
    valid = true_depth > 0  # views with fewer pixels are padded with zeros
    exact = _make_geometry(true_rays, true_depth, [true.get_pose() for _, true in pairs])
    predicted = _make_geometry(rays, estimated_depth, [view.pose for view, _ in pairs])
    known = valid[None, :, None]
    scores = score_sets(exact, predicted, known, depth_kind="ray", known_rays=known).rows()
    return {name: float(values) for name, values in scores.items()}, int(valid.sum())


def _sample_pixels(view: ReconstructedView, true: View) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return true rays, assumed rays, true depth and estimated depth of pixels where both depths are known."""
    true_depth = true.load_ray_depth()
    rows, columns = (true_depth > 0).nonzero(as_tuple=True)
    pixels = torch.stack([columns, rows], -1).double() + 0.5
    depth, _, valid = view.sample(pixels)
    both = valid.nonzero()[:, 0]
    chosen = both[:: max(1, -(-len(both) // MAX_PIXELS))]
    true_rays, rays = (
        camera.to(torch.float64).unproject(pixels[chosen])[0]
        for camera in (true.camera, view.original_camera)
    )
    return true_rays, rays, true_depth.double()[rows[chosen], columns[chosen]], depth.double()[chosen]


def _make_geometry(
    rays: Float[Tensor, "view pixel 3"], depth: Float[Tensor, "view pixel"], poses: Sequence[Pose]
) -> SetGeometry:
    camera_points = (rays * depth[..., None])[None, :, None]
    stacked = Pose(torch.stack([pose.world_from_cam.double() for pose in poses])[None])
    return SetGeometry(transform_points(camera_points, stacked), camera_points, rays[None, :, None], stacked)
