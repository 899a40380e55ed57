"""Score models that take whole photographs, such as stereo, set by set; a set without an answer is counted as such.

Several networks of a row are seeds of one method: means are over them, intervals as in other tables.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.pixels import pixel_centers
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.predictors.predictor import Predictor, SceneInput
from g_ray.rays.ray_map import RayMap
from g_ray.reconstruction.set_metrics import METRICS, SetGeometry, score_sets
from g_ray_lab.scoring.analysis.conditioned_sets import ConditionedSets, compute_changes
from g_ray_lab.scoring.study import ScoredRun, compute_differences, make_rows
from g_ray_lab.sources.reconstruction_batch import ReconstructionBatch


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


def predict_all(predictor: Predictor, views: Sequence[View]) -> list[ReconstructedView]:
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
    first: int = 0,
) -> dict[str, list[PredictedSet]]:
    """Score a model that sees images `finer` times larger, on the sets from number `first` on: condition → results.

    Only pixels that it answers are scored; a set with a view that it cannot place has no scores.
    """
    side = finer * sets.views.width
    large = replace(sets, views=replace(sets.views, width=side, height=side), patch=finer * sets.patch)
    results: dict[str, list[PredictedSet]] = {condition: [] for condition in sets.conditions}
    # The shape of the images is that of the first set of a batch, so that batches are made whole.
    for number, small, big, index in _iterate_sets(sets, large):
        if number < first:
            continue
        for condition, change in sets.conditions.items():
            progress(f"{predictor.NAME}: set {number + 1} of {sets.sets}, {condition}")
            cameras = change([camera[index] for camera in big.views.cameras])
            results[condition].append(_score_set(predictor, small, big, index, cameras))
    return results


def _iterate_sets(
    small: ConditionedSets, large: ConditionedSets
) -> Iterator[tuple[int, ReconstructionBatch, ReconstructionBatch, int]]:
    """Yield the number of every set, the batches that it is in at both sizes, and its place in them."""
    number = 0
    for pair in zip(small.make_batches(), large.make_batches(), strict=True):
        for index in range(len(pair[0])):
            yield number, *pair, index
            number += 1


def _score_set(
    predictor: Predictor,
    small: ReconstructionBatch,
    large: ReconstructionBatch,
    index: int,
    cameras: list[Camera],
) -> PredictedSet:
    views = [
        View(f"{view:02d}.png", camera.to(torch.float64), image=large.images[index, view])
        for view, camera in enumerate(cameras)
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
    has_depth = torch.stack([one[2].unflatten(0, (height, width)) for one in sampled])
    rays = [
        RayMap.from_camera(camera.to(torch.float64).resize(width, height)).directions for camera in cameras
    ]
    poses = Pose(torch.stack([view.pose.world_from_cam.double() for view in placed])[None])
    return _score_geometry(small, index, torch.stack(rays), depth, has_depth, poses)


def _score_geometry(
    batch: ReconstructionBatch,
    index: int,
    rays: Float[Tensor, "view h w 3"],
    depth: Float[Tensor, "view h w"],
    has_depth: Bool[Tensor, "view h w"],
    poses: Pose,
) -> PredictedSet:
    known = batch.valid[index]
    valid = known & has_depth
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


# Rows of a table.


@dataclass(frozen=True)
class PredictedRun:
    """What one model answered: condition → PredictedSet of every set, as plain values."""

    method: str
    seed: int
    results: Mapping[str, list[dict[str, Any]]]


def select_answered(runs: Sequence[PredictedRun], conditions: Sequence[str]) -> list[ScoredRun]:
    """Return the scores of the sets that all runs answer under all conditions: only these can be compared.

    The list is empty if there is no such set.
    """
    groups = [[run.results[condition] for condition in conditions] for run in runs]
    common = [
        number
        for number in range(len(groups[0][0]))
        if all(group[number]["reason"] is None for results in groups for group in results)
    ]
    if not common:
        return []
    return [
        ScoredRun(
            run.method,
            run.seed,
            0,
            0.0,
            {
                condition: {
                    metric: [group[number]["scores"][metric] for number in common] for metric in METRICS
                }
                for condition, group in zip(conditions, results, strict=True)
            },
        )
        for run, results in zip(runs, groups, strict=True)
    ]


def summarize_predictions(runs: Sequence[PredictedRun]) -> list[dict[str, Any]]:
    """Return a row per method and condition as `make_rows` does, over the sets with scores; without any, no metrics."""
    return [
        _summarize([run for run in runs if run.method == method], condition)
        for method in dict.fromkeys(run.method for run in runs)
        for condition in runs[0].results
    ]


def _summarize(runs: Sequence[PredictedRun], condition: str) -> dict[str, Any]:
    scored = select_answered(runs, [condition])
    row = make_rows(scored)[0] if scored else {"setting": condition, "metrics": {}}
    results = [one for run in runs for one in run.results[condition]]
    answered = [one["coverage"] for one in results if one["reason"] is None]
    return {
        **row,
        "method": runs[0].method,
        "answered": len(answered),
        "sets": len(results),
        "coverage": sum(answered) / max(1, len(answered)),
        "reasons": [one["reason"] for one in results if one["reason"] is not None],
    }


def compare_conditions(runs: Sequence[PredictedRun]) -> list[dict[str, Any]]:
    """Return what each condition changes against the first one, over the sets that are answered under both."""
    rows = []
    for method in dict.fromkeys(run.method for run in runs):
        own = [run for run in runs if run.method == method]
        first, *others = own[0].results
        for condition in others:
            scored = select_answered(own, [first, condition])
            answered = sum(len(run.scores[first][METRICS[0]]) for run in scored)
            rows += [{**row, "answered": answered} for row in compute_changes(scored)]
    return rows


def compare_methods(runs: Sequence[PredictedRun], pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the differences of pairs of methods under each condition, over the sets that both answer."""
    rows = []
    for pair in pairs:
        both = [run for run in runs if run.method in pair]
        for condition in runs[0].results:
            rows += compute_differences(select_answered(both, [condition]), [pair])
    return rows
