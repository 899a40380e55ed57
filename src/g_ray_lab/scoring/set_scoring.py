"""Score the prediction of a set by its protocol: SCORERS has a function for each way of alignment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.mesh.depth_fusion import DepthView
from g_ray.rays.ray_map import RayMap
from g_ray.reconstruction.set_metrics import SetGeometry, compute_depth, norm_inliers, score_sets
from g_ray_lab.datasets.evaluation_scene import (
    EvaluationFrame,
    EvaluationScene,
    EvaluationView,
    Framing,
)
from g_ray_lab.meshes.mesh_files import UnreadableMesh, read_meshes
from g_ray_lab.metrics.point_cloud import (
    ICP_LIMIT_DTU_MM,
    ICP_LIMIT_M,
    sample_triangles,
    score_pointmaps,
    score_scan,
)
from g_ray_lab.metrics.pose_metrics import score_pairs, score_trajectory
from g_ray_lab.metrics.tsdf import DA3_BENCH, align_views, score_fusion
from g_ray_lab.metrics.video_depth import score_video_depth
from g_ray_lab.scoring.averages import COVERAGE
from g_ray_lab.scoring.protocol import Alignment, Protocol
from g_ray_lab.scoring.set_prediction import PredictedSet, PredictedView

Metrics = dict[str, float]
ScoreSet = Callable[[Protocol, EvaluationScene, Sequence[EvaluationView], PredictedSet], Metrics]


def score_set(
    protocol: Protocol, scene: EvaluationScene, views: Sequence[EvaluationView], predicted: PredictedSet
) -> Metrics:
    """Return the metrics of a set by name; ValueError if it cannot be scored."""
    scores = SCORERS[protocol.alignment](protocol, scene, views, predicted)
    return {**scores, **predicted.figures, COVERAGE: measure_coverage(views, predicted)}


def measure_coverage(views: Sequence[EvaluationView], predicted: PredictedSet) -> float:
    """Return the share of pixels with true depth that have a prediction; of views if no depth is known."""
    known = sum(int(view.valid.sum()) for view in views)
    if not known:
        return len(predicted.placed) / len(views)
    pairs = zip(views, predicted.views, strict=True)
    return sum(int((view.valid & one.valid).sum()) for view, one in pairs if one is not None) / known


# Six metrics of heterogeneous sets


@dataclass(frozen=True, eq=False)
class SetTruth:
    """Points, rays and poses of one set, float32; the world is the first view's camera."""

    geometry: SetGeometry
    """[1, view, …]"""
    valid: Bool[Tensor, "1 view h w"]
    """Where depth is known."""
    known_rays: Bool[Tensor, "1 view h w"]
    """Where the lens has a ray."""


def build_truth(views: Sequence[EvaluationView]) -> SetTruth:
    """Stack views of one size; ValueError if sizes differ or a view has no pose."""
    sizes = {(view.camera.width, view.camera.height) for view in views}
    if len(sizes) != 1:
        raise ValueError(f"views of {len(sizes)} sizes: a set has one; use a protocol with a fixed size")
    poses = [view.pose for view in views]
    if any(pose is None for pose in poses):
        raise ValueError(f"view {views[0].name} has no pose: its dataset has depth alone")
    maps = [RayMap.from_camera(view.camera) for view in views]
    rays = torch.stack([one.directions for one in maps])[None]
    depth = torch.stack([view.ray_depth for view in views])[None]
    # Relative poses in float64: world coordinates may be large.
    world = torch.stack([pose.world_from_cam for pose in poses if pose is not None])[None]
    relative = Pose(world).relative_to_first().to(torch.float32)
    local = depth[..., None] * rays
    geometry = SetGeometry(transform_points(local, relative), local, rays, relative)
    valid = torch.stack([view.valid for view in views])[None]
    return SetTruth(geometry, valid, torch.stack([one.valid for one in maps])[None])


def score_geometry(
    protocol: Protocol, scene: EvaluationScene, views: Sequence[EvaluationView], predicted: PredictedSet
) -> Metrics:
    """Compute the six metrics of the main table.

    Errors are means over the pixels that have a prediction. Inliers are shares of all pixels with true depth: one
    without a prediction, or in a view that was not placed, is none. Models that predict every pixel are scored as
    published.
    """
    placed, predictions = predicted.select_placed(views)
    truth = build_truth(placed)
    geometry = stack_geometry(placed, predictions)
    covered = truth.valid & torch.stack([one.valid for one in predictions])[None]
    if not bool(covered.any()):
        raise ValueError("no pixel with true depth has a prediction")
    known_rays = truth.known_rays & torch.stack([one.valid for one in predictions])[None]
    scores = score_sets(truth.geometry, geometry, covered, depth_kind=protocol.depth, known_rays=known_rays)
    metrics = {name: float(values) for name, values in scores.rows().items()}
    true_geometry, predicted_geometry = (
        one.to_first_view().normalize(covered) for one in (truth.geometry, geometry)
    )
    total = sum(bool(view.valid.any()) for view in views)
    weights = covered.sum((-2, -1)) / truth.valid.sum((-2, -1)).clamp(min=1)
    for name, true_maps, predicted_maps in (
        ("points_inlier", true_geometry.world_points, predicted_geometry.world_points),
        (
            "depth_inlier",
            compute_depth(true_geometry.camera_points, protocol.depth),
            compute_depth(predicted_geometry.camera_points, protocol.depth),
        ),
    ):
        shares = norm_inliers(true_maps, predicted_maps, covered).nan_to_num(0.0) * weights
        metrics[name] = float(shares.sum()) / total
    return metrics


def stack_geometry(views: Sequence[EvaluationView], predictions: Sequence[PredictedView]) -> SetGeometry:
    """Stack predictions of views of one size; the world is the first view's camera, as for the truth."""
    pairs = list(zip(views, predictions, strict=True))
    rays = torch.stack([one.get_rays(view) for view, one in pairs])[None]
    local = torch.stack([one.get_camera_points(view) for view, one in pairs])[None]
    world = torch.stack([one.get_world_points(view) for view, one in pairs])[None]
    usable = torch.stack([one.valid for one in predictions])[None, ..., None]
    # Pixels without a prediction are masked out of every mean, and must be finite.
    local, world = (torch.where(usable, maps, 0).float() for maps in (local, world))
    return SetGeometry(world, local, torch.where(usable, rays, _FORWARD).float(), _stack_poses(predictions))


_FORWARD = torch.tensor([0.0, 0.0, 1.0])


def _stack_poses(predictions: Sequence[PredictedView]) -> Pose:
    return Pose(torch.stack([one.pose.world_from_cam for one in predictions])[None].float())


# Trajectories and video depth


def score_poses(
    protocol: Protocol, scene: EvaluationScene, views: Sequence[EvaluationView], predicted: PredictedSet
) -> Metrics:
    """Compute ATE and RPE of the views that were placed."""
    return score_trajectory(*_stack_both_poses(views, predicted)).rows()


def _stack_both_poses(views: Sequence[EvaluationView], predicted: PredictedSet) -> tuple[Pose, Pose]:
    """Return the true and the predicted poses [view] of the views that were placed, float64."""
    placed, predictions = predicted.select_placed(views)
    true = [view.pose for view in placed]
    if any(pose is None for pose in true):
        raise ValueError("the dataset has no poses to score")
    return (
        Pose(torch.stack([pose.world_from_cam.double() for pose in true if pose is not None])),
        Pose(torch.stack([one.pose.world_from_cam.double() for one in predictions])),
    )


def score_depth_video(
    protocol: Protocol, scene: EvaluationScene, views: Sequence[EvaluationView], predicted: PredictedSet
) -> Metrics:
    """Compute errors of z-depth after one scale for the sequence; after scale and shift they end in `_shift`.

    As published, predictions are enlarged to the size of the truth: a truth that is shrunk has other pixels.
    """
    parts = [
        _enlarge_depth(scene[view.name], view, one)
        for view, one in zip(*predicted.select_placed(views), strict=True)
    ]
    truth, guess, valid = (torch.stack(maps) for maps in zip(*parts, strict=True))
    limit = protocol.depth_range[1]
    scaled, shifted = (
        score_video_depth(truth, guess, valid, alignment=alignment, max_depth=limit).rows()
        for alignment in ("scale", "scale & shift")
    )
    return {**scaled, **{f"{name}_shift": shifted[name] for name in ("abs_rel", "delta_1.25")}}


def _enlarge_depth(
    frame: EvaluationFrame, view: EvaluationView, one: PredictedView
) -> tuple[Float[Tensor, "h w"], Float[Tensor, "h w"], Bool[Tensor, "h w"]]:
    """Return true z-depth at its own size, predicted z-depth at that size, and where both are known."""
    size = (frame.camera.height, frame.camera.width)
    along, known = frame.load_depth(Framing.whole(frame.camera, size[1], size[0]))
    truth = along * RayMap.from_camera(frame.camera.to(torch.float32)).directions[..., 2]
    z = torch.where(one.valid, one.get_camera_points(view)[..., 2], 0)[None, None]
    valid, hole = one.valid[None, None].float(), F.max_pool2d(1.0 - one.valid[None, None].float(), 5, 1, 2)
    nearest, valid, hole = (
        F.interpolate(part, size, mode="nearest-exact")[0, 0] for part in (z, valid, hole)
    )
    cubic = F.interpolate(z, size, mode="bicubic", align_corners=False)[0, 0]
    # Next to pixels without a prediction a cubic would mix in their zeros.
    guess, valid = torch.where(hole > 0, nearest, cubic), valid > 0
    return truth, guess, known & valid & (guess > 0)


Points = Float[np.ndarray, "point 3"]


def score_points(
    protocol: Protocol, scene: EvaluationScene, views: Sequence[EvaluationView], predicted: PredictedSet
) -> dict[str, float]:
    """Align points by all pixels that both know, then by ICP; compare them with all true points.

    A model without an answer for some pixels is thus scored in completeness, too.
    """
    pairs = [(view, one) for view, one in zip(views, predicted.views, strict=True) if one is not None]
    truth = np.concatenate([_list_true_points(view, view.valid) for view in views])
    matched = np.concatenate([_list_true_points(view, view.valid & one.valid) for view, one in pairs])
    predicted_points = np.concatenate(
        [one.get_world_points(view)[view.valid & one.valid].double().numpy() for view, one in pairs]
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
    poses, predicted_poses = _stack_both_poses(views, predicted)
    areas = score_pairs(poses, predicted_poses, "da3-bench")
    scores = {name: areas[name] for name in ("auc_3", "auc_30")}
    if scene.surface is None or len(predictions) < 3:
        return scores
    pairs = list(zip(placed, predictions, strict=True))
    if scene.volume is not None:
        depth = [
            _make_depth_view(view, one, one.valid & _load_mask(protocol, scene, view)) for view, one in pairs
        ]
        points = torch.cat([view.list_points() for view in align_views(depth, poses)]).double().numpy()
        return {**scores, **score_scan(points, read_cloud(scene.surface), scene.volume.load())}
    depth = [_make_depth_view(view, one, one.valid & view.valid) for view, one in pairs]
    settings = DA3_BENCH[protocol.dataset.removeprefix("da3-")]
    truth = sample_triangles(read_triangles(scene.surface), settings.samples)
    return {**scores, **score_fusion(truth, depth, poses, settings).rows()}


def _make_depth_view(view: EvaluationView, one: PredictedView, valid: torch.Tensor) -> DepthView:
    """Return predicted depth along the calibrated rays; lenses that a model found itself are not used for fusion."""
    depth = one.ray_depth
    return DepthView(
        view.camera, one.pose, depth, valid & (depth > 0) & RayMap.from_camera(view.camera).valid
    )


def _load_mask(protocol: Protocol, scene: EvaluationScene, view: EvaluationView) -> Bool[Tensor, "h w"]:
    """Return which pixels of a view show the object; all if the dataset has no mask."""
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


SCORERS: dict[Alignment, ScoreSet] = {
    "mean distance": score_geometry,
    "sim3": score_poses,
    "scale": score_depth_video,
    "umeyama+icp": score_points,
    "ransac sim3+tsdf": score_da3,
}
