"""Score predictions as point clouds and as fused surfaces."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from g_ray.evaluation.datasets.scene import EvaluationScene, EvaluationView
from g_ray.evaluation.protocols.protocol import Protocol
from g_ray.evaluation.running.prediction import PredictedSet, PredictedView
from g_ray.formats.meshes import read_meshes
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.metrics.fusion import DA3_BENCH, align_views, score_fusion
from g_ray.metrics.neighbors import build_tree, find_nearest
from g_ray.metrics.point_cloud import ICP_LIMIT_DTU_MM, ICP_LIMIT_M, score_pointmaps
from g_ray.metrics.pose_auc import score_pairs
from g_ray.metrics.surface import sample_triangles, thin_out
from g_ray.metrics.tsdf import DepthView
from g_ray.rays.ray_map import RayMap

Points = Float[np.ndarray, "point 3"]
DTU_VOXEL_MM, DTU_OUTLIER_MM = 0.2, 20.0
"""DA3-BENCH's grid on DTU, and the distance from which points are cut off."""


def score_points(
    protocol: Protocol, scene: EvaluationScene, views: Sequence[EvaluationView], predicted: PredictedSet
) -> dict[str, float]:
    """Align points by all pixels that both know, then by ICP; compare them with all true points.

    A model without an answer for some pixels is thus scored in completeness, too.
    """
    pairs = [(view, one) for view, one in zip(views, predicted.views, strict=True) if one is not None]
    truth = np.concatenate([_list_true_points(view, view.valid) for view in views])
    both = [view.valid & one.valid for view, one in pairs]
    matched = np.concatenate(
        [_list_true_points(view, mask) for (view, _), mask in zip(pairs, both, strict=True)]
    )
    found = np.concatenate(
        [
            one.get_world_points(view)[mask].double().numpy()
            for (view, one), mask in zip(pairs, both, strict=True)
        ]
    )
    limit = ICP_LIMIT_DTU_MM if scene.unit == "mm" else ICP_LIMIT_M
    return score_pointmaps(matched, found, icp_limit=limit, surface=truth).rows()


def _list_true_points(view: EvaluationView, mask: torch.Tensor) -> Points:
    """Return the true points of some pixels in the dataset's world."""
    if view.pose is None:
        raise ValueError(f"view {view.name} has no pose: its dataset has depth alone")
    local = view.ray_depth[..., None].double() * RayMap.from_camera(view.camera).directions.double()
    return transform_points(local, view.pose.to(torch.float64))[mask].numpy()


# DA3-BENCH


def score_da3(
    protocol: Protocol, scene: EvaluationScene, views: Sequence[EvaluationView], predicted: PredictedSet
) -> dict[str, float]:
    """Compute the AUC of relative poses as DA3-BENCH does, and compare the fused surface with the true one.

    Without a true surface in the dataset, or with fewer than three views, only poses are scored.
    """
    shown, found = predicted.select_placed(views)
    poses = Pose(torch.stack([_get_pose(view).world_from_cam.double() for view in shown]))
    guesses = Pose(torch.stack([one.pose.world_from_cam.double() for one in found]))
    pairs = score_pairs(poses, guesses, "da3-bench")
    scores = {name: pairs[name] for name in ("auc_3", "auc_30")}
    if scene.surface is None or len(found) < 3:
        return scores
    if scene.unit == "mm":
        depth = [_make_depth_view(view, one, one.valid) for view, one in zip(shown, found, strict=True)]
        return {**scores, **_compare_with_scan(read_cloud(scene.surface), depth, poses)}
    depth = [
        _make_depth_view(view, one, one.valid & view.valid) for view, one in zip(shown, found, strict=True)
    ]
    settings = DA3_BENCH[protocol.dataset.removeprefix("da3-")]
    truth = sample_triangles(read_triangles(scene.surface), settings.samples)
    return {**scores, **score_fusion(truth, depth, poses, settings).rows()}


def _get_pose(view: EvaluationView) -> Pose:
    if view.pose is None:
        raise ValueError(f"view {view.name} has no pose to score")
    return view.pose


def _make_depth_view(view: EvaluationView, one: PredictedView, valid: torch.Tensor) -> DepthView:
    """Return predicted depth along the calibrated rays; lenses that a model found itself are not used for fusion."""
    depth = one.ray_depth
    return DepthView(
        view.camera, one.pose, depth, valid & (depth > 0) & RayMap.from_camera(view.camera).valid
    )


def _compare_with_scan(truth: Points, views: Sequence[DepthView], poses: Pose) -> dict[str, float]:
    """Compare all predicted points with a laser scan, in millimeters; nothing without a predicted point.

    DA3-BENCH keeps only points that four views agree on within 0.2 mm: its numbers are better than these.
    """
    points = torch.cat([view.list_points() for view in align_views(views, poses)]).numpy()
    if not len(points):
        return {}
    points, truth = (thin_out(cloud, DTU_VOXEL_MM) for cloud in (points, truth.astype(np.float64)))
    accuracy, completeness = (
        _average_without_outliers(find_nearest(build_tree(target), cloud)[0])
        for target, cloud in ((truth, points), (points, truth))
    )
    return {"acc": accuracy, "comp": completeness, "overall": (accuracy + completeness) / 2}


def _average_without_outliers(distances: Float[np.ndarray, "point"]) -> float:
    near = distances[distances < DTU_OUTLIER_MM]
    return float(near.mean()) if len(near) else DTU_OUTLIER_MM


def read_triangles(path: Path) -> Float[np.ndarray, "triangle 3 3"]:
    """Read the triangles of a mesh, float64."""
    return np.concatenate(
        [mesh.vertices.astype(np.float64)[mesh.faces] for mesh in read_meshes(path, up="z")]
    )


def read_cloud(path: Path) -> Points:
    """Read the points of a PLY file, float64; OSError if it is none."""
    import trimesh

    try:
        return np.asarray(trimesh.load(path, process=False).vertices, dtype=np.float64)  # type: ignore[union-attr]
    except (ValueError, AttributeError, IndexError, KeyError) as error:
        raise OSError(f"{path}: no points can be read ({error!r})") from None
