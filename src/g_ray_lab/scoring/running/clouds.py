"""Score predictions as point clouds and as fused surfaces."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray_lab.datasets.evaluation_scene import EvaluationScene, EvaluationView
from g_ray_lab.meshes.mesh_files import UnreadableMesh, read_meshes
from g_ray_lab.metrics.fusion_score import DA3_BENCH, align_views, score_fusion
from g_ray_lab.metrics.point_cloud import (
    ICP_LIMIT_DTU_MM,
    ICP_LIMIT_M,
    sample_triangles,
    score_pointmaps,
    score_scan,
)
from g_ray_lab.metrics.pose_metrics import score_pairs
from g_ray_lab.metrics.tsdf import DepthView
from g_ray_lab.scoring.protocols.protocol import Protocol
from g_ray_lab.scoring.running.set_prediction import PredictedSet, PredictedView

Points = Float[np.ndarray, "point 3"]


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
    predicted_points = np.concatenate(
        [
            one.get_world_points(view)[mask].double().numpy()
            for (view, one), mask in zip(pairs, both, strict=True)
        ]
    )
    limit = ICP_LIMIT_DTU_MM if scene.unit == "mm" else ICP_LIMIT_M
    return score_pointmaps(matched, predicted_points, icp_limit=limit, surface=truth).rows()


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

    Without a true surface in the dataset, or with fewer than three views, only poses are scored. DTU's surface is a
    scan, with which all points of the object are compared.
    """
    placed, predictions = predicted.select_placed(views)
    poses = Pose(torch.stack([_get_pose(view).world_from_cam.double() for view in placed]))
    predicted_poses = Pose(torch.stack([one.pose.world_from_cam.double() for one in predictions]))
    pairs = score_pairs(poses, predicted_poses, "da3-bench")
    scores = {name: pairs[name] for name in ("auc_3", "auc_30")}
    if scene.surface is None or len(predictions) < 3:
        return scores
    if scene.volume is not None:
        depth = [
            _make_depth_view(view, one, one.valid & _load_mask(protocol, scene, view))
            for view, one in zip(placed, predictions, strict=True)
        ]
        points = torch.cat([view.list_points() for view in align_views(depth, poses)]).double().numpy()
        return {**scores, **score_scan(points, read_cloud(scene.surface), scene.volume.load())}
    depth = [
        _make_depth_view(view, one, one.valid & view.valid)
        for view, one in zip(placed, predictions, strict=True)
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


def _load_mask(protocol: Protocol, scene: EvaluationScene, view: EvaluationView) -> Bool[Tensor, "h w"]:
    """Return which pixels of a view show the object; all if the dataset does not say."""
    frame = scene[view.name]
    if frame.mask is None:
        return torch.ones_like(view.valid)
    return frame.mask.sample(frame.camera, protocol.size.frame(frame.camera))


def read_triangles(path: Path) -> Float[np.ndarray, "triangle 3 3"]:
    """Read the triangles of a mesh, float64; OSError if it is none."""
    try:
        meshes = read_meshes(path, up="z")
    except UnreadableMesh as error:
        raise OSError(f"{error}; download it again") from None
    return np.concatenate([mesh.vertices.astype(np.float64)[mesh.faces] for mesh in meshes])


def read_cloud(path: Path) -> Points:
    """Read the points of a PLY file, float64; OSError if it is none."""
    import trimesh

    try:
        return np.asarray(trimesh.load(path, process=False).vertices, dtype=np.float64)  # type: ignore[union-attr]
    except (ValueError, AttributeError, IndexError, KeyError) as error:
        raise OSError(f"{path}: no points can be read ({error!r})") from None
