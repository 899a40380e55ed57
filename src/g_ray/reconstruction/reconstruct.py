"""Reconstruct photographs with cameras, in four steps: inputs, prediction, alignment and assembly, writing.

1. Inputs: every photograph with its camera is a `View` (`g_ray.reconstruction.inputs`).
2. A model predicts poses and depth (`g_ray.predictors`).
3. The scene is brought to what is known of it (`g_ray.reconstruction.alignment`), scored and judged
   (`g_ray.reconstruction.verdict`).
4. `Reconstruction.save` writes the files (`g_ray.export`).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from g_ray.cameras.camera import Camera
from g_ray.export.result import FeatureTracks, Reconstruction, group_reasons
from g_ray.geometry.similarity import Similarity
from g_ray.media.photos import Photo
from g_ray.media.view import Image, Mask, View
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.predictors import ModelSettings, choose_model, make_predictor
from g_ray.predictors.model_settings import WEIGHTS, PlaceBy, Precision
from g_ray.predictors.network_predictor import NetworkPredictor, load_network
from g_ray.predictors.predictor import Predictor, Progress, SceneInput, ScenePrediction, check_priors
from g_ray.reconstruction.inputs import KnownGeometry
from g_ray.reconstruction.score import score_views
from g_ray.reconstruction.verdict import judge
from g_ray.reconstruction.world import find_world
from g_ray.sfm.rig import Rig
from g_ray.sfm.sparse_scene import SparseScene
from g_ray.viewer.reconstruction_report import write_report

__all__ = ["WEIGHTS", "KnownGeometry", "Reconstruction", "load_network", "reconstruct", "reconstruct_views"]


def reconstruct(
    images: Sequence[Image],
    cameras: Sequence[Camera],
    *,
    model: str | Predictor | None = None,
    weights: str | Path | ReconstructionModel | None = None,
    names: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    masks: Sequence[Mask | None] | None = None,
    rig: Rig | None = None,
    known: KnownGeometry | None = None,
    size: int | None = None,
    at_once: int | None = None,
    precision: Precision = "fp32",
    query_chunk: int | None = None,
    device: str = "auto",
    refine: bool = False,
    place_by: PlaceBy | None = None,
    work: Path | None = None,
    progress: Progress = lambda stage, share: None,
) -> Reconstruction:
    """Reconstruct a scene from images in [0, 1] (or objects with `load()`), with one camera each of any model and size.

    `model` is a name of `MODELS` or a predictor; with `weights` it is the network that they belong to. Poses in `known`
    are kept by models that use poses, and the scene is aligned to them otherwise. `size` is the long side at which
    depth is estimated. With a `work` folder finished parts are kept there, and an interrupted run resumes.
    """
    if len(images) != len(cameras) or not images:
        raise ValueError(f"{len(images)} images and {len(cameras)} cameras: give views, each with its camera")
    names = names or [f"view{number:03d}.png" for number in range(len(images))]
    sources = sources or ["given"] * len(images)
    masks = masks or [None] * len(images)
    views = [
        View(name, camera, None, source, image, mask)
        for name, camera, source, image, mask in zip(names, cameras, sources, images, masks, strict=True)
    ]
    if model is None or isinstance(model, str):
        settings = ModelSettings(
            size=size,
            device=device,
            refine=refine,
            place_by=place_by,
            weights=None if weights is None or isinstance(weights, ReconstructionModel) else str(weights),
            precision=precision,
            at_once=at_once,
        )
        model = _make_predictor(model, weights, settings, query_chunk)
    return reconstruct_views(SceneInput(views, rig), model, known=known, work=work, progress=progress)


def _make_predictor(
    name: str | None,
    weights: str | Path | ReconstructionModel | None,
    settings: ModelSettings,
    query_chunk: int | None,
) -> Predictor:
    """Make a model by its name; unlike on the command line, our network may be loaded already or have a chunk size."""
    is_loaded = isinstance(weights, ReconstructionModel)
    name = name or ("network" if is_loaded else choose_model(settings))
    if name != "network":
        if is_loaded or query_chunk is not None:
            raise ValueError(f"model {name!r} is not our network: leave out its weights and query_chunk")
        return make_predictor(name, settings)
    settings = settings.adapt_to(name)
    network = load_network(weights or WEIGHTS, settings.device, settings.precision)
    return replace(
        NetworkPredictor.from_settings(settings, network), query_chunk=query_chunk, weights="given"
    )


def reconstruct_views(
    scene: SceneInput,
    predictor: Predictor,
    *,
    known: KnownGeometry | None = None,
    work: Path | None = None,
    progress: Progress = lambda stage, share: None,
) -> Reconstruction:
    """Reconstruct views of one scene with any model; poses that are known are in `known`, not in the views."""
    known = known or KnownGeometry()
    scene = attach_poses(scene, known, predictor)
    return assemble(scene, predictor.predict(scene, work, progress), known, predictor)


def attach_poses(scene: SceneInput, known: KnownGeometry, predictor: Predictor) -> SceneInput:
    """Return the views with the poses that the model keeps; ValueError for a prior that it would ignore."""
    keeps = known.keep_poses and "poses" in predictor.USES and known.count_poses() >= 2
    poses = known.poses if keeps else [None] * len(scene.views)
    scene = replace(
        scene, views=[replace(view, pose=pose) for view, pose in zip(scene.views, poses, strict=True)]
    )
    check_priors(predictor, scene)
    return scene


def assemble(
    scene: SceneInput, prediction: ScenePrediction, known: KnownGeometry, predictor: Predictor
) -> Reconstruction:
    """Bring a prediction to what is known, score and judge it."""
    placed = [index for index, view in enumerate(prediction.views) if view is not None]
    known = known.select(placed)
    views = [view for view in prediction.views if view is not None]
    world = find_world(views, prediction, known)
    poses = [pose and world.moved_poses.transform_pose(pose) for pose in known.poses or [None] * len(views)]
    assembled = tuple(
        replace(
            view.transform(world.similarity),
            calibration=given.source or "unknown",
            true_pose=pose,
            photo=given.image if isinstance(given.image, Photo) else None,
        )
        for given, view, pose in zip([scene.views[index] for index in placed], views, poses, strict=True)
    )
    metrics: dict[str, Any] = {} if world.alignment is None else world.alignment.to_metrics()
    if world.gps is not None:
        metrics |= world.gps.to_metrics()
    if known.truth:
        metrics |= score_views(assembled, known.truth)
    reasons = zip([view.name for view in scene.views], prediction.reasons, strict=True)
    left_out = [
        f"left out: {names}: {reason}"
        for names, reason in group_reasons([(name, reason) for name, reason in reasons if reason is not None])
    ]
    return Reconstruction(
        assembled,
        None,
        world.unit,
        metrics,
        notes=(*left_out, *prediction.notes, *world.notes),
        quality=judge(scene, prediction, assembled, world, predictor),
        tracks=_collect_tracks(prediction, placed, world.similarity),
        cloud=None if prediction.cloud is None else _renumber(prediction, placed).transform(world.similarity),
        origin=world.origin if known.georeference else None,
        page=write_report,
    )


def _collect_tracks(
    prediction: ScenePrediction, placed: Sequence[int], similarity: Similarity
) -> FeatureTracks | None:
    """Return feature tracks in the final world, numbered as the placed views."""
    sparse = prediction.sparse
    if sparse is None or not len(sparse.points):
        return None
    number = _number_placed(prediction, placed)
    tracks = FeatureTracks(
        sparse.points.numpy(force=True),
        sparse.colors.numpy(force=True),
        number[sparse.tracks.view.numpy(force=True)],
        sparse.tracks.point.numpy(force=True),
        sparse.tracks.pixel.numpy(force=True),
        _average_errors(sparse),
    )
    return tracks.transform(similarity)


def _average_errors(sparse: SparseScene) -> Float[np.ndarray, "point"]:
    """Return the mean reprojection error of every point, over the views that image it."""
    errors, point = sparse.compute_errors_px().numpy(force=True), sparse.tracks.point.numpy(force=True)
    finite = np.isfinite(errors)
    total = np.bincount(point[finite], errors[finite], len(sparse.points))
    return total / np.maximum(1, np.bincount(point[finite], minlength=len(sparse.points)))


def _renumber(prediction: ScenePrediction, placed: Sequence[int]) -> Any:
    """Return the cloud with views numbered among those that were placed."""
    cloud = prediction.cloud
    assert cloud is not None
    return replace(cloud, view=_number_placed(prediction, placed)[cloud.view])


def _number_placed(prediction: ScenePrediction, placed: Sequence[int]) -> Int[np.ndarray, "view"]:
    """Return for every view its number among those that were placed, or −1."""
    numbers = np.full(len(prediction.views), -1)
    numbers[list(placed)] = np.arange(len(placed))
    return numbers
