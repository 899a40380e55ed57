"""Reconstruct photographs with cameras, in four steps: inputs, prediction in chunks, alignment and assembly, writing.

1. Inputs: every photograph with its camera becomes a `CalibratedView` (`g_ray.pipelines.inputs`).
2. A predictor runs over overlapping chunks of views (`g_ray.pipelines.predictors`, `g_ray.pipelines.chunks`).
3. Chunks are joined by the views that they share, and the scene is brought to what is known of it
   (`g_ray.pipelines.alignment`); views return to the photographs' own pixels.
4. `Reconstruction.save` writes the files (`g_ray.export`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from g_ray.cameras.base import Camera
from g_ray.export.reconstruction import ReconstructedView, Reconstruction, Unit
from g_ray.formats.calibration import CalibratedView
from g_ray.formats.photos import Image
from g_ray.geometry.pose import Pose
from g_ray.models.framing import restore_maps
from g_ray.models.reconstruction import ReconstructionModel
from g_ray.pipelines.alignment import align_to_poses, join_chunks, scale_to_distance
from g_ray.pipelines.chunks import OVERLAP, PartialResults, predict_chunks, split_into_chunks
from g_ray.pipelines.inputs import KnownGeometry
from g_ray.pipelines.predictors import WEIGHTS, NetworkPredictor, Predictor, load_network
from g_ray.pipelines.scoring import score_views
from g_ray.viewer.reconstruction_report import write_report

__all__ = ["WEIGHTS", "KnownGeometry", "Reconstruction", "load_network", "reconstruct", "reconstruct_views"]


def reconstruct(
    images: Sequence[Image],
    cameras: Sequence[Camera],
    *,
    weights: str | Path | ReconstructionModel = WEIGHTS,
    names: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    known: KnownGeometry | None = None,
    size: int | None = None,
    at_once: int | None = None,
    precision: str = "fp32",
    query_chunk: int | None = None,
    device: str = "auto",
    work: PartialResults | None = None,
    progress: Callable[[int, int], None] = lambda done, chunks: None,
) -> Reconstruction:
    """Reconstruct a scene from images in [0, 1] (or objects with `load()`), with one camera each of any model and size.

    `at_once` views go through the network together; more are taken in chunks that overlap by three views and are
    joined by similarities. `size` is the long side of the network's input, by default that of its training. With
    `work`, finished chunks are kept on disk and used again.
    """
    if len(images) != len(cameras) or len(images) < 2:
        raise ValueError(
            f"{len(images)} images and {len(cameras)} cameras: give two or more views, each with its camera"
        )
    names = names or [f"view{number:03d}.png" for number in range(len(images))]
    sources = sources or ["given"] * len(images)
    views = [
        CalibratedView(name, camera, None, source, image)
        for name, camera, source, image in zip(names, cameras, sources, images, strict=True)
    ]
    model = load_network(weights, device)
    predict = NetworkPredictor(model, size or model.config.long_side, precision, query_chunk)
    return reconstruct_views(views, predict, known=known, at_once=at_once, work=work, progress=progress)


def reconstruct_views(
    views: Sequence[CalibratedView],
    predict: Predictor,
    *,
    known: KnownGeometry | None = None,
    at_once: int | None = None,
    work: PartialResults | None = None,
    progress: Callable[[int, int], None] = lambda done, chunks: None,
) -> Reconstruction:
    """Reconstruct views of one scene with any predictor; poses that are known are in `known`, not in the views."""
    names = [view.name for view in views]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two views are named {twice!r}: give every view its own name")
    overlap = min(OVERLAP, (at_once or OVERLAP + 1) - 1)
    chunks = split_into_chunks(len(views), at_once or len(views), overlap)
    predicted, notes = join_chunks(predict_chunks(predict, views, chunks, work, progress))
    known = known or KnownGeometry()
    aligned, unit, metrics = _align_to_known(predicted, known)
    poses = known.poses or [None] * len(views)
    restored = tuple(
        _restore_view(view, source, pose) for view, source, pose in zip(aligned, views, poses, strict=True)
    )
    if known.truth:
        metrics |= score_views(restored, known.truth)
    return Reconstruction(restored, None, unit, metrics, notes=tuple(notes), page=write_report)


def _align_to_known(
    views: Sequence[ReconstructedView], known: KnownGeometry
) -> tuple[Sequence[ReconstructedView], Unit, dict[str, Any]]:
    """Bring views to the world and the unit that are known; returns them with the unit and the agreement."""
    metrics: dict[str, Any] = {}
    unit: Unit = "unknown"
    if sum(pose is not None for pose in known.poses) >= 2:
        alignment = align_to_poses([view.pose for view in views], known.poses)
        views = [view.transform(alignment.similarity) for view in views]
        metrics = alignment.to_metrics()
        unit = "metre" if known.metric else "unknown"
    elif known.metric:
        raise ValueError("poses in metres were announced, but fewer than two views have a known pose")
    if known.distance is not None:
        if metrics:
            raise ValueError(
                "known poses fix the scale already: leave out the known distance, or the alignment"
            )
        one, other, length = known.distance
        scale = scale_to_distance(views[one].pose, views[other].pose, length)
        views, unit = [view.transform(scale) for view in views], "metre"
    return views, unit, metrics


def _restore_view(
    view: ReconstructedView, source: CalibratedView, true_pose: Pose | None
) -> ReconstructedView:
    """Return a predicted view at the pixels of its photograph."""
    camera = source.camera
    maps = torch.stack([view.ray_depth, view.confidence], -1)
    height, width = view.valid.shape
    values, valid = restore_maps(
        maps, view.valid, camera.width, camera.height, (0.0, 0.0, float(width), float(height))
    )
    valid = valid & camera.unproject_grid()[1]
    depth, confidence = (values * valid[..., None]).unbind(-1)
    return replace(
        view,
        camera=camera,
        ray_depth=depth,
        confidence=confidence,
        valid=valid,
        calibration=source.source or "unknown",
        true_pose=true_pose,
    )
