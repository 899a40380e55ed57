"""Compare true and estimated calibrations: as cameras, and by what is reconstructed with them (tab:estimated_k).

Models are predictors, whose points lie on the rays of the given cameras: the error of the rays is the calibration's.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from g_ray.calibration.estimators import ESTIMATORS
from g_ray.calibration.estimators.colmap_estimator import ColmapEstimator
from g_ray.cameras import CAMERAS
from g_ray.cameras.camera import Camera
from g_ray.cameras.pinhole import Pinhole
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.formats import read_scene
from g_ray.formats.posed_scene import PosedScene
from g_ray.media.photos import Photo
from g_ray.media.view import View
from g_ray.predictors.predictor import Predictor
from g_ray.reconstruction.score import read_truth, score_against_truth
from g_ray.reconstruction.set_metrics import ray_error_deg
from g_ray_lab.scoring.analysis.predicted_sets import PredictedSet, predict_all

TRUTH, GUESS = "truth", "guess"
SOURCES = (TRUTH, GUESS, *ESTIMATORS)
"""Where a calibration is from: the scene's own, a guess from the size of the image, or an estimator."""
GUESSED_FOCAL = 1.2
"""Of the long side: COLMAP's first guess for photographs without EXIF."""
COLMAP_SIDE = 800
"""Long side in pixels at which COLMAP finds features here."""
MAX_PHOTOS = 12
"""Photographs of a scene, from which all sets are taken and with which multi-view estimators calibrate."""
RAY_GRID = 64
"""Long side in pixels of the grid on which rays are compared."""


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


def guess_camera(width: int, height: int) -> Camera:
    """Return a pinhole with a focal length of GUESSED_FOCAL long sides and its principal point in the middle."""
    focal = GUESSED_FOCAL * max(width, height)
    return Pinhole.make(width, height, fx=focal, fy=focal, cx=width / 2, cy=height / 2, dtype=torch.float64)


def score_camera(true: Camera, estimated: Camera) -> dict[str, float]:
    """Return the mean angle between rays, the mean relative error of fx and fy, and the principal point's in pixels."""
    scale = RAY_GRID / max(true.width, true.height)
    size = (max(1, round(scale * true.width)), max(1, round(scale * true.height)))
    (rays, valid), (guessed, known) = (
        camera.to(torch.float64).resize(*size).unproject_grid() for camera in (true, estimated)
    )
    true_matrix, estimated_matrix = (
        camera.to(torch.float64).central_intrinsics() for camera in (true, estimated)
    )
    focal = [
        float((estimated_matrix[axis, axis] - true_matrix[axis, axis]).abs() / true_matrix[axis, axis])
        for axis in (0, 1)
    ]
    return {
        "rays_deg": float(ray_error_deg(rays, guessed, valid & known)),
        "focal_rel": sum(focal) / 2,
        "center_px": float((estimated_matrix[:2, 2] - true_matrix[:2, 2]).norm()),
    }


def score_calibration(scene: CalibrationScene, cameras: Sequence[Camera]) -> dict[str, float]:
    """Return the means of `score_camera` over the photographs."""
    rows = [score_camera(*pair) for pair in zip(scene.list_true_cameras(), cameras, strict=True)]
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def score_reconstructions(
    scene: CalibrationScene, cameras: Sequence[Camera], predictor: Predictor
) -> list[dict[str, Any]]:
    """Reconstruct every set with these cameras, and score it against true rays, depth and poses."""
    photos, true_cameras = scene.list_photos(), scene.list_true_cameras()
    truth = read_truth(scene.scene.folder, [photo.name for photo in photos], true_cameras)
    results = []
    for chosen in scene.list_sets():
        views = [View(photos[i].name, cameras[i], image=photos[i]) for i in chosen]
        result = _score_set(views, [truth[i] for i in chosen], predictor)
        results.append(asdict(result))
    return results


def _score_set(views: list[View], truth: list[View | None], predictor: Predictor) -> PredictedSet:
    try:
        placed = predict_all(predictor, views)
        scores, _ = score_against_truth(placed, truth)
    except ValueError as error:
        return PredictedSet.from_error(error)
    if not all(value == value for value in scores.values()):
        return PredictedSet({}, 0.0, "no depth where the truth is known")
    return PredictedSet(scores, _measure_coverage(placed, truth))


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


# Cameras as plain values, so that an estimate is made once.


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
