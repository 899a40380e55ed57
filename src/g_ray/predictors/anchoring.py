"""Use what a network cannot take: known poses, and matches of the photographs, with the true lenses.

A network's poses and depth are moved to the known poses by a similarity. Points that are triangulated from matches then
scale the depth of every view, so that depth and poses fit each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity, fit_similarity_to_poses
from g_ray.predictors.predictor import Progress, SceneInput
from g_ray.sfm import SfMOptions, SparseScene, reconstruct_cameras, refine_poses, triangulate
from g_ray.sfm.features import needs_crops
from g_ray.sfm.pairs import estimate_pair_count
from g_ray.sfm.sfm_options import WORKING_SIZE

MIN_POINTS = 10
"""Triangulated points of a view without which its depth keeps its scale."""
REACH = 0.1
"""How far a point corrects the depth around it: standard deviation of a Gaussian, as a share of the long side."""
PRIOR_POINTS = 1.0
"""Points nearby that count as much as the network."""
MAX_CORRECTION = math.log(2)
"""A point that asks for more than twice or half the depth is wrong, or of something thin: it asks for this much."""

# CPU seconds, measured on photographs of several sizes (docs: benchmarks).
FEATURE_SECONDS = 1.6
"""To extract features from a photograph with a long side of 1600 px."""
WIDE_FACTOR, RAY_MAP_FACTOR = 2.5, 2.9
"""How much longer it takes where the lens is so wide that crops are drawn, and where it is a ray map."""
PAIR_SECONDS = 0.12
"""To match two photographs with about 8,000 features each."""


def estimate_matching(cameras: Sequence[Camera], options: SfMOptions) -> tuple[int, float]:
    """Estimate how many pairs are matched, and the CPU seconds of features and matches."""
    pairs = estimate_pair_count(len(cameras), options)
    different = {id(camera): camera for camera in cameras}
    factors = {key: _compare_with_plain(camera) for key, camera in different.items()}
    scale = sum(
        factors[id(camera)] * count_pixels(camera, WORKING_SIZE) / (1600 * 1200) for camera in cameras
    )
    return round(pairs), FEATURE_SECONDS * scale + PAIR_SECONDS * pairs


def _compare_with_plain(camera: Camera) -> float:
    """Return how much longer features take than in an image without crops."""
    if not needs_crops(camera):
        return 1.0
    return RAY_MAP_FACTOR if isinstance(camera, RayMapCamera) else WIDE_FACTOR


def count_pixels(camera: Camera, long_side: int) -> float:
    """Return the pixels of a photograph that is made smaller to a long side, if it is larger."""
    scale = min(1.0, long_side / max(camera.width, camera.height))
    return camera.width * camera.height * scale**2


@dataclass(frozen=True, eq=False)
class Anchored:
    """Views with other poses and scales than the network gave."""

    views: list[ReconstructedView | None]
    reasons: list[str | None]
    sparse: SparseScene | None = None
    notes: tuple[str, ...] = ()
    figures: dict[str, Any] = field(default_factory=dict)


def keep_given_poses(
    views: Sequence[ReconstructedView],
    scene: SceneInput,
    *,
    placed: bool,
    options: SfMOptions,
    work: Path | None,
    progress: Progress,
) -> Anchored:
    """Move views to the known poses, which stay as they are; views without one follow by a similarity.

    `placed` is true if the views have poses from the peer. Depth is scaled to points that the known poses triangulate.
    """
    known = [view.pose for view in scene.views]
    rows = [index for index, pose in enumerate(known) if pose is not None]
    if placed:
        ours = Pose(torch.stack([views[index].pose.world_from_cam.double() for index in rows]))
        given = Pose(torch.stack([_get(known[index]).world_from_cam.double() for index in rows]))
        similarity = fit_similarity_to_poses(ours, given)
        views = [view.transform(similarity) for view in views]
    sparse = triangulate(scene.views, **_list_options(options, work, progress))
    moved: list[ReconstructedView | None] = []
    reasons: list[str | None] = []
    for view, pose, found in zip(views, known, sparse.poses, strict=True):
        # A view without a known pose is best placed by matches, otherwise by the peer.
        best = pose or found or (view.pose if placed else None)
        moved.append(None if best is None else replace(view, pose=best.to(view.pose.dtype)))
        reasons.append(None if best is not None else "it has no pose, and no matches to find one")
    scaled, notes = scale_to_points(moved, sparse)
    return Anchored(scaled, reasons, sparse, (*sparse.notes, *notes), _collect_figures(sparse))


def refine_views(
    views: Sequence[ReconstructedView],
    scene: SceneInput,
    *,
    options: SfMOptions,
    work: Path | None,
    progress: Progress,
) -> Anchored:
    """Adjust a peer's poses by bundle adjustment with the true lenses, if held-out tracks improve; scale its depth."""
    posed = [replace(given, pose=view.pose) for given, view in zip(scene.views, views, strict=True)]
    refinement = refine_poses(posed, **_list_options(options, work, progress))
    outcome = "kept" if refinement.kept else "not kept"
    note = (
        f"refinement {outcome}: reprojection error of {refinement.held_out} held-out tracks "
        f"{refinement.before_px:.2f} px before, {refinement.after_px:.2f} px after"
    )
    sparse = refinement.scene
    figures = {
        "held_out_px_before": refinement.before_px,
        "held_out_px_after": refinement.after_px,
        **_collect_figures(sparse),
    }
    moved: list[ReconstructedView | None] = [
        replace(view, pose=_get(pose).to(view.pose.dtype)) if refinement.kept else view
        for view, pose in zip(views, sparse.poses, strict=True)
    ]
    scaled, notes = scale_to_points(moved, sparse)
    return Anchored(scaled, [None] * len(scaled), sparse, (note, *sparse.notes, *notes), figures)


def place_by_matches(
    views: Sequence[ReconstructedView],
    scene: SceneInput,
    *,
    placed: bool,
    options: SfMOptions,
    work: Path | None,
    progress: Progress,
) -> Anchored:
    """Place depth maps by structure from motion; the world gets the unit of the depth maps.

    `placed` is true if the views have poses from the network: photographs that matching cannot place then use those.
    """
    sparse = reconstruct_cameras(
        scene.views,
        guess_poses=(lambda: [view.pose for view in views]) if placed else None,
        **_list_options(options, work, progress),
    )
    posed: list[ReconstructedView | None] = [
        None
        if pose is None
        else replace(view, pose=pose.to(view.pose.dtype), pose_guessed=index in sparse.guessed)
        for index, (view, pose) in enumerate(zip(views, sparse.poses, strict=True))
    ]
    # Matches do not determine the scale of the world: it is chosen such that the depth maps keep their unit.
    factors = [factor for factor in measure_factors(posed, sparse) if factor is not None]
    if factors:
        similarity = Similarity.from_scale(1 / float(torch.tensor(factors).double().median()))
        sparse = transform_scene(sparse, similarity)
        posed = [
            None if view is None else replace(view, pose=similarity.transform_pose(view.pose))
            for view in posed
        ]
    scaled, notes = scale_to_points(posed, sparse)
    if placed:
        scaled = [None if view is None else bend_to_points(view, sparse, i) for i, view in enumerate(scaled)]
    return Anchored(scaled, list(sparse.reasons), sparse, (*sparse.notes, *notes), _collect_figures(sparse))


# Depth that fits the points


def measure_factors(views: Sequence[ReconstructedView | None], sparse: SparseScene) -> list[float | None]:
    """Measure by how much the depth of each view must grow to meet its triangulated points: a median of ratios."""
    factors: list[float | None] = []
    for index, view in enumerate(views):
        ratio = torch.empty(0) if view is None else compare_with_points(view, sparse, index)[0]
        factors.append(float(ratio.median()) if len(ratio) >= MIN_POINTS else None)
    return factors


def compare_with_points(
    view: ReconstructedView, sparse: SparseScene, index: int
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n 2"]]:
    """Return distance over depth for the triangulated points that a view sees, and their pixels in the photograph."""
    rows = sparse.tracks.view == index
    pixels = sparse.tracks.pixel[rows].float()
    center = view.pose.translation.double()
    distance = torch.linalg.vector_norm(sparse.points[sparse.tracks.point[rows]] - center, dim=-1)
    depth, _, valid = view.sample(pixels)
    return (distance.float() / depth.clamp(min=1e-12))[valid], pixels[valid]


def bend_to_points(view: ReconstructedView, sparse: SparseScene, index: int) -> ReconstructedView:
    """Correct the depth around triangulated points, smoothly; far from them it stays as it is.

    The logarithm of the correction is a mean of those of the points, weighted by a Gaussian of their distance in the
    photograph, with `PRIOR_POINTS` more that ask for none.
    """
    ratio, pixels = compare_with_points(view, sparse, index)
    if len(ratio) < MIN_POINTS:
        return view
    wanted = ratio.log().clamp(-MAX_CORRECTION, MAX_CORRECTION)
    height, width = view.ray_depth.shape
    photo = view.original_camera
    reach = REACH * max(photo.width, photo.height)
    # The Gaussian is a product of one in x and one in y, so that its sums over points are matrix products.
    x = (torch.arange(width) + 0.5) * photo.width / width
    y = (torch.arange(height) + 0.5) * photo.height / height
    in_x = torch.exp(-((x[:, None] - pixels[:, 0]) ** 2) / (2 * reach**2))
    in_y = torch.exp(-((y[:, None] - pixels[:, 1]) ** 2) / (2 * reach**2))
    correction = (in_y * wanted) @ in_x.T / (in_y @ in_x.T + PRIOR_POINTS)
    return replace(view, ray_depth=view.ray_depth * correction.exp())


def scale_to_points(
    views: Sequence[ReconstructedView | None], sparse: SparseScene
) -> tuple[list[ReconstructedView | None], list[str]]:
    """Scale the depth of every view to its triangulated points; views without enough take the median factor."""
    factors = measure_factors(views, sparse)
    known = [factor for factor in factors if factor is not None]
    if not known:
        return list(views), ["no view has enough triangulated points: depth keeps the scale of the model"]
    common = float(torch.tensor(known).median())
    scaled = [
        None if view is None else replace(view, ray_depth=view.ray_depth * (factor or common))
        for view, factor in zip(views, factors, strict=True)
    ]
    missing = sum(view is not None and factor is None for view, factor in zip(views, factors, strict=True))
    notes = [f"{missing} views have too few matches: their depth takes the median scale"] if missing else []
    return scaled, notes


def transform_scene(sparse: SparseScene, similarity: Similarity) -> SparseScene:
    """Move poses and points to another world."""
    poses = tuple(None if pose is None else similarity.transform_pose(pose) for pose in sparse.poses)
    return replace(sparse, poses=poses, points=similarity.apply(sparse.points))


def _collect_figures(sparse: SparseScene) -> dict[str, Any]:
    sides = torch.tensor([float(max(camera.width, camera.height)) for camera in sparse.cameras])
    return {**sparse.compute_statistics(), "long_side_px": float(sides.median())}


def _list_options(options: SfMOptions, work: Path | None, progress: Progress) -> dict[str, Any]:
    return {
        "options": options,
        "work_folder": None if work is None else work / "sfm",
        "report": progress,
    }


def _get(pose: Pose | None) -> Pose:
    assert pose is not None
    return pose
