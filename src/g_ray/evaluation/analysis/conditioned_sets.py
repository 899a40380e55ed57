"""Score reconstruction under several calibrations of the same images against one truth."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.cameras.pixels import pixel_centers
from g_ray.data.reconstruction import ReconstructionBatch
from g_ray.data.reconstruction_settings import ScenesViews
from g_ray.data.scenes.reconstruction import ScenesReconstruction
from g_ray.evaluation.analysis.perturbations import Perturbation
from g_ray.evaluation.reconstruction import predict_static, score_batch
from g_ray.evaluation.study import ScoredRun, Scores, make_rows
from g_ray.export.view import ReconstructedView
from g_ray.formats.calibration import CalibratedView
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.metrics.intervals import compute_run_interval
from g_ray.metrics.reconstruction import METRICS, ReconstructionScores, SetGeometry, score_sets
from g_ray.predictors.base import Predictor, SceneInput
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views

Predict = Callable[[ReconstructionBatch], SetGeometry]
PHOTO_ZOOM = 2.0
"""Largest zoom of photographs of one camera: views of a set must differ for their calibrations to be exchanged."""


@dataclass(frozen=True)
class ConditionedSets:
    """Sets of overlapping views from scene folders, and calibrations to be tried on each of them."""

    views: ScenesViews
    patch: int
    conditions: Mapping[str, Perturbation]
    sets: int = 24
    at_once: int = 8

    @staticmethod
    def from_folders(
        folders: tuple[Path, ...],
        side: int,
        patch: int,
        conditions: Mapping[str, Perturbation],
        *,
        views: int,
        sets: int,
        zoom_max: float = 1.0,
    ) -> "ConditionedSets":
        """Take images as they are stored, e.g. of test scenes whose fields of view differ.

        Above a zoom of 1 squares are cut out, each with its own zoom: PHOTO_ZOOM for photographs of one camera.
        """
        settings = ScenesViews(
            side,
            side,
            views=(views, views),
            folders=folders,
            zoom_max=zoom_max,
            off_center=0.0,
            hold_out=0.01,  # one scene at least is never drawn
            color=False,
            stored_shape=zoom_max == 1.0,
        )
        return ConditionedSets(settings, patch, conditions, sets)

    def describe(self) -> dict[str, Any]:
        """Return the protocol as plain values; folders by their names and the files that define their cameras."""
        files = {
            folder.name: sorted(
                [str(path.relative_to(folder)), path.stat().st_size]
                for path in folder.rglob("*")
                if path.suffix in (".json", ".txt")
            )
            for folder in self.views.folders
        }
        numbers = {"side": self.views.width, "views": self.views.views[1], "zoom_max": self.views.zoom_max}
        return {**numbers, "sets": self.sets, "conditions": list(self.conditions), "folders": files}

    def make_batches(self) -> Iterator[ReconstructionBatch]:
        """Yield all sets, always the same."""
        source = ScenesReconstruction(self.views, patch=self.patch)
        for first in range(0, self.sets, self.at_once):
            yield source.make_sets(range(first, min(first + self.at_once, self.sets)))

    def score(self, predict: Predict) -> Scores:
        """Score predictions from each calibration: condition → metric → a value per set."""
        parts: dict[str, list[ReconstructionScores]] = {condition: [] for condition in self.conditions}
        for batch in self.make_batches():
            for condition, change in self.conditions.items():
                told = replace(batch, views=Views(change(batch.views.cameras)))
                parts[condition].append(score_batch(batch, predict(told), "ray"))
        joined = {
            condition: ReconstructionScores.concatenate(part).rows() for condition, part in parts.items()
        }
        return {
            condition: {metric: values.tolist() for metric, values in rows.items()}
            for condition, rows in joined.items()
        }

    def score_calibration(self) -> Scores:
        """Score the calibrations themselves: their rays, one distance, cameras that do not move."""
        return self.score(predict_static)


def compute_changes(runs: Sequence[ScoredRun]) -> list[dict[str, Any]]:
    """Return what each condition changes against the first one, paired by seed and set: a row per method and condition.

    Sets differ far more from each other than conditions do, so that intervals of single cells hide most changes.
    """
    rows = []
    for method in dict.fromkeys(run.method for run in runs):
        mine = [run.scores for run in runs if run.method == method]
        first, *others = mine[0]
        for condition in others:
            metrics = {}
            for metric in mine[0][condition]:
                values, base = (
                    torch.tensor([scores[name][metric] for scores in mine]) for name in (condition, first)
                )
                metrics[metric] = asdict(compute_run_interval(values - base))
            rows.append({"method": method, "setting": condition, "metrics": metrics})
    return rows


# Models that take whole photographs, such as stereo.


@dataclass(frozen=True)
class PredictedSet:
    """Scores of one set, or why there are none."""

    scores: dict[str, float]
    coverage: float
    """Share of the pixels with known depth that have a prediction."""
    reason: str | None = None

    @staticmethod
    def from_error(error: ValueError) -> "PredictedSet":
        return PredictedSet({}, 0.0, " ".join(str(error).split())[:120])


def predict_all(predictor: Predictor, views: Sequence[CalibratedView]) -> list[ReconstructedView]:
    """Predict a set of views; raise ValueError if one of them is left out."""
    placed = [view for view in predictor.predict(SceneInput(views)).views if view is not None]
    if len(placed) < len(views):
        raise ValueError(f"{len(views) - len(placed)} of {len(views)} views not placed")
    return placed


def score_predictor(
    sets: ConditionedSets,
    predictor: Predictor,
    finer: int,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, list[PredictedSet]]:
    """Score a model that sees images `finer` times larger: condition → one result per set.

    Only pixels that it answers are scored; a set with a view that it cannot place has no scores.
    """
    side = finer * sets.views.width
    large = replace(sets, views=replace(sets.views, width=side, height=side), patch=finer * sets.patch)
    results: dict[str, list[PredictedSet]] = {condition: [] for condition in sets.conditions}
    for small_batch, large_batch in zip(sets.make_batches(), large.make_batches(), strict=True):
        for index in range(len(small_batch)):
            for condition, change in sets.conditions.items():
                progress(f"{predictor.NAME}: set {len(results[condition]) + 1} of {sets.sets}, {condition}")
                told = change([camera[index] for camera in large_batch.views.cameras])
                results[condition].append(_score_set(predictor, small_batch, large_batch, index, told))
    return results


def _score_set(
    predictor: Predictor,
    small: ReconstructionBatch,
    large: ReconstructionBatch,
    index: int,
    told: list[Camera],
) -> PredictedSet:
    views = [
        CalibratedView(f"{view:02d}.png", camera.to(torch.float64), photo=large.images[index, view])
        for view, camera in enumerate(told)
    ]
    try:
        placed = predict_all(predictor, views)
    except ValueError as error:
        return PredictedSet.from_error(error)
    width, height = small.images.shape[-1], small.images.shape[-2]
    pixels = pixel_centers(width, height, dtype=torch.float64).flatten(0, 1) * (
        large.images.shape[-1] / width
    )
    sampled = [view.sample(pixels) for view in placed]
    depth = torch.stack([one[0].double().unflatten(0, (height, width)) for one in sampled])
    answered = torch.stack([one[2].unflatten(0, (height, width)) for one in sampled])
    rays = [RayMap.from_camera(camera.to(torch.float64).resize(width, height)).directions for camera in told]
    poses = Pose(torch.stack([view.pose.world_from_cam.double() for view in placed])[None])
    return _score_geometry(small, index, torch.stack(rays), depth, answered, poses)


def _score_geometry(
    batch: ReconstructionBatch,
    index: int,
    rays: Float[Tensor, "view h w 3"],
    depth: Float[Tensor, "view h w"],
    answered: Bool[Tensor, "view h w"],
    poses: Pose,
) -> PredictedSet:
    known = batch.valid[index]
    valid = known & answered
    coverage = float(valid.sum() / known.sum().clamp(min=1))
    if not bool(valid.flatten(1).any(1).all()):
        return PredictedSet({}, coverage, "a view without any depth")
    points = (rays * depth[..., None])[None]
    predicted = SetGeometry(transform_points(points, poses), points, rays[None], poses)
    directions = batch.rays()
    one = slice(index, index + 1)
    truth = SetGeometry(
        batch.world_points[one], batch.camera_points[one], directions.directions[one], batch.poses[one]
    )
    scores = score_sets(
        truth, predicted, valid[None], depth_kind="ray", known_rays=directions.valid[one]
    ).rows()
    return PredictedSet({metric: float(scores[metric][0]) for metric in METRICS}, coverage)


def summarize_predictions(method: str, found: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return a row per condition as `make_rows` does, over the sets with scores; without any, without metrics."""
    rows = []
    for condition, results in found.items():
        answered = [one for one in results if one["reason"] is None]
        scores = {condition: {metric: [one["scores"][metric] for one in answered] for metric in METRICS}}
        row = (
            make_rows([ScoredRun(method, 0, 0, 0.0, scores)])[0]
            if answered
            else {"method": method, "setting": condition, "metrics": {}}
        )
        coverage = sum(one["coverage"] for one in answered) / max(1, len(answered))
        reasons = [one["reason"] for one in results if one["reason"] is not None]
        rows.append(
            {**row, "answered": len(answered), "sets": len(results), "coverage": coverage, "reasons": reasons}
        )
    return rows
