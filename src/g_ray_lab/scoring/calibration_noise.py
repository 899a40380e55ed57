"""Sets of views under wrong calibrations (paper, tab:intrinsic_noise): only what a model is given changes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.ray_grid import pixel_centers
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.formats.calibration_source import View
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.models.dinov2 import DINOv2
from g_ray.models.frozen_features import FrozenFeatures
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.predictors.predictor import Predictor, SceneInput
from g_ray.predictors.stereo_predictor import StereoPredictor
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views
from g_ray.reconstruction.set_metrics import METRICS, ReconstructionScores, SetGeometry, score_sets
from g_ray_lab.scoring.averages import COVERAGE, SCORED, SetRow
from g_ray_lab.scoring.calibration_conditions import Perturbation
from g_ray_lab.scoring.evaluated_models import TrainedNetwork
from g_ray_lab.scoring.reconstruction_scorer import (
    ZOOM_MAX,
    make_predictor,
    make_scenes_views,
    predict_static,
    score_batch,
)
from g_ray_lab.scoring.scored_runs import ScoredRun, Scores, compute_changes, compute_differences, make_rows
from g_ray_lab.scoring.store import Store, split_range
from g_ray_lab.scoring.study import Progress
from g_ray_lab.sources.batches import ReconstructionBatch
from g_ray_lab.sources.reconstruction_settings import ReconstructionData, RoomsViews, ScenesViews
from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction
from g_ray_lab.sources.scenes_reconstruction import ScenesReconstruction
from g_ray_lab.training.recipe import to_plain

Predict = Callable[[ReconstructionBatch], SetGeometry]
PHOTO_ZOOM = 2.0
"""Largest zoom of photographs of one camera: views of a set must differ for their calibrations to be exchanged."""
FINER = 3
"""Stereo gets images that are larger by this factor than those of a network: it matches pixels."""
STEREO, CALIBRATION = "stereo", "calibration alone"
FEATURE_BYTES = 2 << 30


@dataclass(frozen=True)
class ConditionedSets(ABC):
    """Sets of overlapping views, and calibrations to be tried on each of them."""

    views: ReconstructionData
    patch: int
    conditions: Mapping[str, Perturbation]
    sets: int = 24
    at_once: int = 8

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the protocol as plain values."""

    @abstractmethod
    def build_source(self) -> ScenesReconstruction | RoomsReconstruction:
        """Build the stream of sets."""

    def make_batches(self) -> Iterator[ReconstructionBatch]:
        """Yield all sets, always the same."""
        yield from map(self.build_source().make_sets, split_range(self.sets, self.at_once))

    def score(self, predict: Predict) -> Scores:
        """Score predictions from each calibration: condition → metric → a value per set."""
        parts: dict[str, list[ReconstructionScores]] = {condition: [] for condition in self.conditions}
        for batch in self.make_batches():
            for condition, change in self.conditions.items():
                conditioned = replace(batch, views=Views(change(batch.views.cameras)))
                parts[condition].append(score_batch(batch, predict(conditioned), "ray"))
        return {
            condition: {
                metric: values.tolist()
                for metric, values in ReconstructionScores.concatenate(part).rows().items()
            }
            for condition, part in parts.items()
        }


@dataclass(frozen=True)
class ConditionedRooms(ConditionedSets):
    """Procedural rooms of the test split through pinholes of different fields of view, zoomed by up to ZOOM_MAX."""

    views: RoomsViews

    @staticmethod
    def from_side(
        side: int, patch: int, conditions: Mapping[str, Perturbation], *, views: int, sets: int
    ) -> "ConditionedRooms":
        """Take square images of this many pixels per side."""
        return ConditionedRooms(RoomsViews(side, side, views=(views, views)), patch, conditions, sets)

    def describe(self) -> dict[str, Any]:
        settings = {"rooms": to_plain(asdict(self.views)), "zoom_max": ZOOM_MAX, "patch": self.patch}
        return {**settings, "sets": self.sets, "conditions": list(self.conditions)}

    def build_source(self) -> RoomsReconstruction:
        return RoomsReconstruction(self.views, patch=self.patch, split="test", zoom_max=ZOOM_MAX)


@dataclass(frozen=True)
class ConditionedFolders(ConditionedSets):
    """Sets from scene folders."""

    views: ScenesViews

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
    ) -> "ConditionedFolders":
        """Take images as they are stored, e.g. of test scenes whose fields of view differ.

        Above a zoom of 1 squares are cut out, each with its own zoom: PHOTO_ZOOM for photographs of one camera.
        """
        settings = make_scenes_views(folders, side, views, zoom_max=zoom_max, stored_shape=zoom_max == 1.0)
        return ConditionedFolders(settings, patch, conditions, sets)

    def describe(self) -> dict[str, Any]:
        """Name folders, and the files that define their cameras."""
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

    def build_source(self) -> ScenesReconstruction:
        return ScenesReconstruction(self.views, patch=self.patch)


def measure_noise(
    name: str,
    sets: ConditionedSets,
    networks: Sequence[TrainedNetwork],
    pairs: Sequence[tuple[str, str]],
    stereo_sets: int,
    out: Path,
    store: Store,
    progress: Progress,
) -> tuple[dict[str, Any], list[ScoredRun]]:
    """Score networks under all calibrations of a test, and for scale the calibrations themselves and stereo.

    Returns the test's part of result.json and the scores of every set, whose settings are TEST/CONDITION.
    """
    protocol, runs = sets.describe(), []
    for network in networks:
        progress(f"{name}: {network.name}")
        scores = store.measure(
            f"{name}-{network.name}",
            {"weights": network.digest, **protocol},
            lambda network=network: sets.score(make_predictor(load_with_features(network, out))),
        )
        runs.append(ScoredRun.from_scores(network.method, network.seed, scores))
    progress(f"{name}: {CALIBRATION}")
    alone = store.measure(f"{name}-calibration", protocol, lambda: sets.score(predict_static))
    references = [ScoredRun.from_scores(CALIBRATION, 0, alone)]
    some = replace(sets, sets=stereo_sets)
    stereo = [measure_stereo(name, some, store, progress)] if stereo_sets else []
    summary = {
        "rows": make_rows(runs),
        "references": [*make_rows(references), *make_rows(stereo)],
        "differences": compute_differences(runs, pairs),
        "changes": list_condition_changes([*runs, *stereo]),
    }
    named = [
        replace(run, rows={f"{name}/{condition}": rows for condition, rows in run.rows.items()})
        for run in (*runs, *references, *stereo)
    ]
    return summary, named


def list_condition_changes(runs: Sequence[ScoredRun]) -> list[dict[str, Any]]:
    """Return the changes from the first condition, which all rows share and need not name."""
    return [{name: value for name, value in row.items() if name != "from"} for row in compute_changes(runs)]


def load_with_features(network: TrainedNetwork, out: Path) -> ReconstructionModel:
    """Load a network whose encoder sees every image once: calibrations change nothing before the trunk."""
    model = network.load()
    if isinstance(model.encoder, DINOv2):
        model.freeze_encoder(FrozenFeatures(out / "features", FEATURE_BYTES))
    return model


def measure_stereo(name: str, sets: ConditionedSets, store: Store, progress: Progress) -> ScoredRun:
    """Score the stereo model under all calibrations."""
    predictor = StereoPredictor()
    rows: dict[str, list[SetRow]] = {condition: [] for condition in sets.conditions}
    for number in range(sets.sets):
        # A result for each set: an interrupted run loses a minute, and more sets can be added to finished ones.
        until = replace(sets, sets=number + 1)
        found = store.measure(
            f"{name}-stereo-{number}",
            {**until.describe(), "first": number, "finer": FINER, **predictor.describe_settings()},
            lambda until=until, number=number: {
                condition: [asdict(row) for row in rows]
                for condition, rows in score_predictor(until, predictor, FINER, progress, number).items()
            },
        )
        for condition, answers in found.items():
            rows[condition] += [SetRow(**answer) for answer in answers]
    return ScoredRun(STEREO, 0, rows)


# Models that take whole photographs; a set without an answer is a row without scores


def predict_all(predictor: Predictor, views: Sequence[View]) -> list[ReconstructedView]:
    """Predict a set of views; raise ValueError if one of them is left out."""
    placed = [view for view in predictor.predict(SceneInput(views)).views if view is not None]
    if len(placed) < len(views):
        raise ValueError(f"{len(views) - len(placed)} of {len(views)} views not placed")
    return placed


def make_answer(number: int, views: int, score: Callable[[], dict[str, float]]) -> SetRow:
    """Return the row of a set; a ValueError of its prediction or scoring becomes the message."""
    try:
        return SetRow("", "", str(number), str(number), views, SCORED, metrics=score())
    except ValueError as error:
        message = " ".join(str(error).split())[:120]
        return SetRow("", "", str(number), str(number), views, "failed", message)


def score_predictor(
    sets: ConditionedSets,
    predictor: Predictor,
    finer: int,
    progress: Progress = lambda line: None,
    first: int = 0,
) -> dict[str, list[SetRow]]:
    """Score a model that sees images `finer` times larger, on the sets from number `first` on: condition → rows.

    Only pixels that it answers are scored; a set with a view that it cannot place has no scores.
    """
    side = finer * sets.views.width
    large = replace(sets, views=replace(sets.views, width=side, height=side), patch=finer * sets.patch)
    rows: dict[str, list[SetRow]] = {condition: [] for condition in sets.conditions}
    number = 0
    # The shape of the images is that of the first set of a batch, so that batches are made whole.
    for small, big in zip(sets.make_batches(), large.make_batches(), strict=True):
        for index in range(len(small)):
            for condition, change in sets.conditions.items() if number >= first else ():
                progress(f"{predictor.NAME}: set {number + 1} of {sets.sets}, {condition}")
                cameras = change([camera[index] for camera in big.views.cameras])
                answer = partial(_score_answer, predictor, small, big, index, cameras)
                rows[condition].append(make_answer(number, len(cameras), answer))
            number += 1
    return rows


def _score_answer(
    predictor: Predictor,
    small: ReconstructionBatch,
    large: ReconstructionBatch,
    index: int,
    cameras: list[Camera],
) -> dict[str, float]:
    """Predict from the larger images, and score at the pixels of the smaller ones."""
    views = [
        View(f"{view:02d}.png", camera.to(torch.float64), image=large.images[index, view])
        for view, camera in enumerate(cameras)
    ]
    placed = predict_all(predictor, views)
    width, height = small.images.shape[-1], small.images.shape[-2]
    pixels = pixel_centers(width, height, dtype=torch.float64).flatten(0, 1)
    sampled = [view.sample(pixels * (large.images.shape[-1] / width)) for view in placed]
    depth = torch.stack([one[0].double().unflatten(0, (height, width)) for one in sampled])
    has_depth = torch.stack([one[2].unflatten(0, (height, width)) for one in sampled])
    valid = small.valid[index] & has_depth
    if not bool(valid.flatten(1).any(1).all()):
        raise ValueError("a view without any depth")
    rays = torch.stack(
        [RayMap.from_camera(camera.to(torch.float64).resize(width, height)).directions for camera in cameras]
    )
    points = (rays * depth[..., None])[None]
    poses = Pose(torch.stack([view.pose.world_from_cam.double() for view in placed])[None])
    predicted = SetGeometry(transform_points(points, poses), points, rays[None], poses)
    one, known = slice(index, index + 1), small.rays()
    truth = SetGeometry(
        small.world_points[one], small.camera_points[one], known.directions[one], small.poses[one]
    )
    scores = score_sets(truth, predicted, valid[None], depth_kind="ray", known_rays=known.valid[one]).rows()
    coverage = float(valid.sum() / small.valid[index].sum().clamp(min=1))
    return {**{metric: float(scores[metric][0]) for metric in METRICS}, COVERAGE: coverage}
