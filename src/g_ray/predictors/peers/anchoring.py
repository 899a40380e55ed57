"""Use what a peer cannot take: known poses, and matches of the photographs, with the true lenses.

A peer's poses and depth are moved to the known poses by a similarity. Points that are triangulated from matches then
scale the depth of every view, so that depth and poses fit each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from g_ray.export.reconstruction import ReconstructedView
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity, fit_similarity_to_poses
from g_ray.predictors.base import Progress, SceneInput
from g_ray.sfm import SfMOptions, SparseScene, reconstruct_cameras, refine_poses, triangulate

MIN_POINTS = 10
"""Triangulated points of a view without which its depth keeps its scale."""


@dataclass(frozen=True, eq=False)
class Anchored:
    """Views with other poses and scales than the peer gave."""

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

    `placed` says whether the views have poses of the peer. Depth is scaled to points that the known poses triangulate.
    """
    known = [view.pose for view in scene.views]
    rows = [index for index, pose in enumerate(known) if pose is not None]
    if placed:
        ours = Pose(torch.stack([views[index].pose.world_from_cam.double() for index in rows]))
        given = Pose(torch.stack([_get(known[index]).world_from_cam.double() for index in rows]))
        similarity = fit_similarity_to_poses(ours, given)
        views = [view.transform(similarity) for view in views]
    sparse = triangulate(*_list_inputs(scene), known, **_list_options(scene, options, work, progress))
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
    refinement = refine_poses(
        *_list_inputs(scene), [view.pose for view in views], **_list_options(scene, options, work, progress)
    )
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


def place_single_views(
    views: Sequence[ReconstructedView],
    scene: SceneInput,
    *,
    options: SfMOptions,
    work: Path | None,
    progress: Progress,
) -> Anchored:
    """Place depth maps of single photographs by structure from motion; the world gets the unit of the depth maps."""
    sparse = reconstruct_cameras(*_list_inputs(scene), **_list_options(scene, options, work, progress))
    posed: list[ReconstructedView | None] = [
        None if pose is None else replace(view, pose=pose.to(view.pose.dtype))
        for view, pose in zip(views, sparse.poses, strict=True)
    ]
    factors = [factor for factor in measure_factors(posed, sparse) if factor is not None]
    if factors:
        similarity = Similarity.from_scale(1 / float(torch.tensor(factors).double().median()))
        sparse = transform_scene(sparse, similarity)
        posed = [
            None if view is None else replace(view, pose=similarity.transform_pose(view.pose))
            for view in posed
        ]
    scaled, notes = scale_to_points(posed, sparse)
    return Anchored(scaled, list(sparse.reasons), sparse, (*sparse.notes, *notes), _collect_figures(sparse))


# One scale per view


def measure_factors(views: Sequence[ReconstructedView | None], sparse: SparseScene) -> list[float | None]:
    """Measure by how much the depth of each view must grow to meet its triangulated points: a median of ratios."""
    factors: list[float | None] = []
    for index, view in enumerate(views):
        rows = sparse.tracks.view == index
        if view is None or int(rows.sum()) < MIN_POINTS:
            factors.append(None)
            continue
        center = view.pose.translation.double()
        distance = torch.linalg.vector_norm(sparse.points[sparse.tracks.point[rows]] - center, dim=-1)
        depth, _, valid = view.sample(sparse.tracks.pixel[rows].float())
        ratio = (distance.float() / depth.clamp(min=1e-12))[valid]
        factors.append(float(ratio.median()) if len(ratio) >= MIN_POINTS else None)
    return factors


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


def _list_inputs(scene: SceneInput) -> tuple[list[Any], list[Any]]:
    return [view.get_photo() for view in scene.views], [view.camera for view in scene.views]


def _list_options(
    scene: SceneInput, options: SfMOptions, work: Path | None, progress: Progress
) -> dict[str, Any]:
    return {
        "names": [view.name for view in scene.views],
        "masks": [view.load_mask() for view in scene.views],
        "options": options,
        "work_folder": None if work is None else work / "sfm",
        "report": progress,
    }


def _get(pose: Pose | None) -> Pose:
    assert pose is not None
    return pose
