"""Compare true and estimated calibrations: as cameras, and by what is reconstructed with them (tab:estimated_k).

Models are predictors, whose points lie on the rays of the given cameras: the error of the rays is the calibration's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from g_ray.calibration.estimators import ESTIMATORS
from g_ray.calibration.estimators.colmap_estimator import ColmapEstimator
from g_ray.cameras import CAMERAS
from g_ray.cameras.camera import Camera
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.formats import read_scene
from g_ray.formats.posed_scene import PosedScene
from g_ray.media.photos import Photo
from g_ray.media.view import View
from g_ray.predictors.network_predictor import NetworkPredictor
from g_ray.predictors.predictor import Predictor
from g_ray.predictors.stereo_predictor import StereoPredictor
from g_ray.reconstruction.score import read_truth, score_against_truth
from g_ray_lab.scoring.averages import COVERAGE, SetRow
from g_ray_lab.scoring.calibration_noise import STEREO, list_condition_changes, make_answer, predict_all
from g_ray_lab.scoring.evaluated_models import TrainedNetwork
from g_ray_lab.scoring.recalibrated_model import GUESS, TRUTH, guess_camera, score_camera
from g_ray_lab.scoring.scored_runs import ScoredRun, compute_differences, make_rows
from g_ray_lab.scoring.store import Store
from g_ray_lab.scoring.study import Progress

COLMAP_SIDE = 800
"""Long side in pixels at which COLMAP finds features here."""
MAX_PHOTOS = 12
"""Photographs of a scene, from which all sets are taken and with which multi-view estimators calibrate."""


@dataclass(frozen=True, eq=False)
class CalibrationScene:
    """Photographs of a scene folder with true cameras, and sets of neighbors among them."""

    scene: PosedScene
    chosen: tuple[int, ...]
    views: int
    sets: int

    @staticmethod
    def read(folder: Path, views: int, sets: int) -> "CalibrationScene":
        """Read a folder and choose up to MAX_PHOTOS evenly strided photographs from its beginning."""
        scene = read_scene(folder, check=False)
        if len(scene) < views:
            raise ValueError(f"{folder}: {len(scene)} photographs, but sets of {views}: give fewer --views")
        stride = max(1, len(scene) // 33)  # neighbors in a video are too close for parallax
        chosen = tuple(range(0, len(scene), stride))[:MAX_PHOTOS]
        return CalibrationScene(scene, chosen, views, min(sets, len(chosen) - views + 1))

    def list_photos(self) -> list[Photo]:
        """Return the photographs as stored: scene folders ignore EXIF orientation."""
        return [
            Photo.from_file(self.scene.images[index], self.scene.names[index], upright=False)
            for index in self.chosen
        ]

    def list_true_cameras(self) -> list[Camera]:
        return [self.scene.cameras[index] for index in self.chosen]

    def list_sets(self) -> list[list[int]]:
        """Return the numbers of consecutive photographs that form each set."""
        last = len(self.chosen) - self.views
        starts = [round(number * last / max(1, self.sets - 1)) for number in range(self.sets)]
        return [list(range(start, start + self.views)) for start in starts]

    def describe(self) -> dict[str, Any]:
        names = [self.scene.names[index] for index in self.chosen]
        return {"folder": self.scene.folder.name, "photos": names, "sets": self.list_sets()}


def estimate_cameras(scene: CalibrationScene, source: str, report: Callable[[str], None]) -> list[Camera]:
    """Return a camera per photograph. OSError if an estimator is not installed, ValueError if it finds none."""
    if source == TRUTH:
        return scene.list_true_cameras()
    photos = scene.list_photos()
    if source == GUESS:
        return [guess_camera(photo.width, photo.height) for photo in photos]
    estimator = ColmapEstimator(longer=COLMAP_SIDE) if source == "colmap" else ESTIMATORS[source]()
    cameras = {view.name: view.camera for view in estimator.estimate(photos, report)}
    missing = [photo.name for photo in photos if photo.name not in cameras]
    if missing:
        raise ValueError(f"estimate:{source} found no camera of {len(missing)} of {len(photos)} photographs")
    return [cameras[photo.name] for photo in photos]


def score_calibration(
    scene: CalibrationScene, cameras: Sequence[Camera], long_side: int | None = None
) -> dict[str, float]:
    """Return the means of `score_camera` over the photographs, in pixels of a network's input."""
    pairs = zip(scene.list_true_cameras(), cameras, strict=True)
    rows = [score_camera(true, estimated, long_side) for true, estimated in pairs]
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def score_reconstructions(
    scene: CalibrationScene, cameras: Sequence[Camera], predictor: Predictor
) -> list[SetRow]:
    """Reconstruct every set with these cameras, and score it against true rays, depth and poses."""
    photos = scene.list_photos()
    truth = read_truth(scene.scene.folder, [photo.name for photo in photos], scene.list_true_cameras())
    rows = []
    for number, chosen in enumerate(scene.list_sets()):
        views = [View(photos[i].name, cameras[i], image=photos[i]) for i in chosen]
        known = [truth[i] for i in chosen]
        rows.append(make_answer(number, len(chosen), partial(_score_set, predictor, views, known)))
    return rows


def _score_set(
    predictor: Predictor,
    views: list[View],
    truth: list[View | None],
) -> dict[str, float]:
    placed = predict_all(predictor, views)
    scores, _ = score_against_truth(placed, truth)
    if not all(value == value for value in scores.values()):
        raise ValueError("no depth where the truth is known")
    return {**scores, COVERAGE: _measure_coverage(placed, truth)}


def _measure_coverage(views: Sequence[ReconstructedView], truth: Sequence[View | None]) -> float:
    """Return the share of the pixels with known depth that have a prediction."""
    known = predicted = 0
    for view, true in zip(views, truth, strict=True):
        if true is None:
            continue
        rows, columns = (true.load_ray_depth() > 0).nonzero(as_tuple=True)
        step = max(1, len(rows) // 5000)
        pixels = torch.stack([columns[::step], rows[::step]], -1).double() + 0.5
        known, predicted = known + len(pixels), predicted + int(view.sample(pixels)[2].sum())
    return predicted / max(1, known)


# Results that are stored: cameras as plain values, and rows by the source of their cameras


def camera_to_values(camera: Camera) -> dict[str, Any]:
    return {
        "model": camera.NAME,
        "parameters": dict(zip(camera.PARAMETERS, camera.params.tolist(), strict=True)),
        "width": camera.width,
        "height": camera.height,
    }


def camera_from_values(values: dict[str, Any]) -> Camera:
    model = CAMERAS[values["model"]]
    return model.make(values["width"], values["height"], **values["parameters"], dtype=torch.float64)


def estimate_all(
    scene: CalibrationScene,
    sources: Sequence[str],
    store: Store,
    progress: Progress,
    long_side: int | None = None,
) -> tuple[dict[str, list[Camera]], list[dict[str, Any]]]:
    """Return the cameras of every source that has an answer, and a row with scores or the reason for every source."""
    folder = scene.scene.folder.name
    cameras, rows = {}, []
    for source in sources:
        progress(f"{folder}: calibration by {source}")
        row = {"scene": folder, "source": source, "scores": {}, "reason": None}
        try:
            stored = store.measure(
                f"{folder}-{source}",
                {**scene.describe(), "source": source, "side": COLMAP_SIDE},
                lambda source=source: [
                    camera_to_values(camera) for camera in estimate_cameras(scene, source, progress)
                ],
            )
            cameras[source] = [camera_from_values(values) for values in stored]
            row["scores"] = score_calibration(scene, cameras[source], long_side)
        except OSError as error:
            # The package of an estimator is missing; installing it and running the command again adds its row.
            row["reason"] = f"not available ({' '.join(str(error).split())[:60]} …)"
        except ValueError as error:
            row["reason"] = " ".join(str(error).split())[:120]
        rows.append(row)
    return cameras, rows


def reconstruct_all(
    scene: CalibrationScene,
    cameras: Mapping[str, list[Camera]],
    model: tuple[str, int],
    key: Mapping[str, Any],
    make: Callable[[], Predictor],
    store: Store,
    progress: Progress,
) -> ScoredRun:
    """Score a model (name and seed) with the cameras of each source; it is made when it is first needed."""
    folder, make_once, rows = scene.scene.folder.name, cache(make), {}
    method, seed = model
    name = method if method == STEREO else f"{method}-seed{seed}"
    for source, lenses in cameras.items():
        progress(f"{folder}: {name} with the calibration of {source}")
        found = store.measure(
            f"{folder}-{source}-{name}",
            {**scene.describe(), **key, "cameras": [camera_to_values(camera) for camera in lenses]},
            lambda lenses=lenses: [asdict(row) for row in score_reconstructions(scene, lenses, make_once())],
        )
        rows[source] = [SetRow(**values) for values in found]
    return ScoredRun(method, seed, rows)


def measure_estimated(
    scene: CalibrationScene,
    cameras: Mapping[str, list[Camera]],
    networks: Sequence[TrainedNetwork],
    pairs: Sequence[tuple[str, str]],
    with_stereo: bool,
    store: Store,
    progress: Progress,
) -> dict[str, Any]:
    """Reconstruct the sets of a scene with all calibrations: a row per network, and stereo as a reference."""

    def make_network(network: TrainedNetwork) -> Predictor:
        model = network.load()
        return NetworkPredictor(model, model.config.long_side)

    given = (scene, cameras)
    runs = [
        reconstruct_all(
            *given,
            (network.method, network.seed),
            {"weights": network.digest},
            partial(make_network, network),
            store,
            progress,
        )
        for network in networks
    ]
    stereo = []
    if with_stereo:
        key = StereoPredictor().describe_settings()
        stereo = [reconstruct_all(*given, (STEREO, 0), key, StereoPredictor, store, progress)]
    return {
        "rows": make_rows(runs),
        "references": make_rows(stereo),
        "differences": compute_differences(runs, pairs),
        "changes": list_condition_changes([*runs, *stereo]),
    }
