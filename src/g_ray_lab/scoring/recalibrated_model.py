"""Models that are given other calibrations than the true ones: wrong on purpose, guessed, or estimated from the images.

Images and truth stay. A model that puts its depth on the rays it is given is scored with these (paper,
tab:intrinsic_noise, tab:estimated_k and G-ray + AnyCalib in tab:recon_main).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from PIL import Image

from g_ray.calibration.estimators import ESTIMATORS
from g_ray.calibration.estimators.estimator import Estimator
from g_ray.cameras.camera import Camera
from g_ray.cameras.pinhole import Pinhole
from g_ray.media.photos import Photo
from g_ray.rays.ray_map import RayMap
from g_ray.reconstruction.set_metrics import ray_error_deg
from g_ray_lab.datasets.evaluation_scene import EvaluationView
from g_ray_lab.scoring.calibration_conditions import CONDITIONS, CORRECT, Perturbation
from g_ray_lab.scoring.evaluated_models import EvaluatedModel
from g_ray_lab.scoring.set_prediction import PredictedSet, PredictedView

Recalibrate = Callable[[Sequence[EvaluationView]], list[Camera]]
"""From views with true cameras to the cameras that a model is given."""
TRUTH, GUESS = "truth", "guess"
SOURCES = (TRUTH, GUESS, *ESTIMATORS)
"""Where a calibration is from: the dataset's own, a guess from the size of the image, or an estimator."""
GUESSED_FOCAL = 1.2
"""In units of the long side: COLMAP's first guess for photographs without EXIF."""
RAY_GRID = 64
"""Long side in pixels of the grid on which rays are compared."""
ACCURACY = {"given_rays_deg": "rays_deg", "focal_rel": "focal_rel", "center_px": "center_px"}
"""Metrics of the given cameras in the rows of a run, and their names in `score_camera`."""


@dataclass(frozen=True, eq=False)
class RecalibratedModel(EvaluatedModel):
    """A model that is given the cameras of one of `make_recalibration`."""

    model: EvaluatedModel
    source: str
    recalibrate: Recalibrate
    name: str

    @property
    def title(self) -> str:
        return f"{self.model.title}, calibration: {self.source}"

    def describe(self) -> dict[str, Any]:
        return {**self.model.describe(), "calibration": self.source}

    def predict(self, views: Sequence[EvaluationView]) -> PredictedSet:
        cameras = self.recalibrate(views)
        given = [replace(view, camera=camera) for view, camera in zip(views, cameras, strict=True)]
        predicted = self.model.predict(given)
        kept = tuple(map(_keep_rays, predicted.views, given))
        scores = [score_camera(view.camera, camera) for view, camera in zip(views, cameras, strict=True)]
        figures = {name: sum(one[own] for one in scores) / len(scores) for name, own in ACCURACY.items()}
        return replace(predicted, views=kept, figures={**predicted.figures, **figures})


def _keep_rays(predicted: PredictedView | None, given: EvaluationView) -> PredictedView | None:
    """Return a prediction with the rays it was made with: without any it would be scored with the true ones."""
    if predicted is None or predicted.rays is not None:
        return predicted
    return replace(predicted, rays=RayMap.from_camera(given.camera).directions.float())


def recalibrate_model(model: EvaluatedModel, source: str | None) -> EvaluatedModel:
    """Return the model with calibrations of a source; as it is without one, or with the true ones."""
    if source in (None, TRUTH, CORRECT):
        return model
    return RecalibratedModel(model, source, make_recalibration(source), model.name)


def make_recalibration(source: str) -> Recalibrate:
    """Return a condition of CONDITIONS, a guess, or an estimator by its name; ValueError if there is none."""
    if source in CONDITIONS:
        return partial(_perturb, CONDITIONS[source])
    if source == GUESS:
        return _guess_cameras
    if source in ESTIMATORS:
        estimator = ESTIMATORS[source]()
        getattr(estimator, "network", None)  # loaded now: a missing package ends the run, not every set
        return partial(estimate_views, estimator)
    raise ValueError(f"unknown calibration {source!r}: choose among {', '.join((*SOURCES, *CONDITIONS))}")


def _guess_cameras(views: Sequence[EvaluationView]) -> list[Camera]:
    return [guess_camera(view.camera.width, view.camera.height).to(torch.float32) for view in views]


def _perturb(change: Perturbation, views: Sequence[EvaluationView]) -> list[Camera]:
    return change([view.camera for view in views])


def estimate_views(estimator: Estimator, views: Sequence[EvaluationView]) -> list[Camera]:
    """Estimate a camera for each view from its pixels; views of pinholes and of other lenses apart, as published.

    The kind of projection is known to the estimator, where it can use it (the paper: four coefficients of
    Kannala-Brandt for the fisheye, a pinhole otherwise), but nothing else of the camera.
    """
    cameras: dict[int, Camera] = {}
    with TemporaryDirectory() as folder:
        for is_pinhole in (False, True):
            chosen = [i for i, view in enumerate(views) if (view.camera.NAME == "pinhole") == is_pinhole]
            estimator.fisheye, estimator.pinhole = not is_pinhole, is_pinhole and estimator.HAS_PINHOLE
            photos = [_write_photo(Path(folder), i, views[i]) for i in chosen]
            found = {view.name: view.camera for view in estimator.estimate(photos, _ignore)} if photos else {}
            for i, photo in zip(chosen, photos, strict=True):
                if photo.name not in found:
                    raise ValueError(f"estimate:{estimator.NAME} found no camera of {views[i].name}")
                cameras[i] = found[photo.name].to(torch.float32)
    return [cameras[i] for i in range(len(views))]


def _ignore(line: str) -> None:
    """A photograph that is left out is refused by `estimate_views`."""


def _write_photo(folder: Path, number: int, view: EvaluationView) -> Photo:
    path = folder / f"{number:03d}.png"
    pixels = (255 * view.image).round().byte().movedim(0, -1).numpy(force=True)
    Image.fromarray(pixels).save(path, compress_level=1)
    return Photo.from_file(path, path.name, upright=False)


def guess_camera(width: int, height: int) -> Camera:
    """Return a pinhole with a focal length of GUESSED_FOCAL long sides and its principal point in the middle."""
    focal = GUESSED_FOCAL * max(width, height)
    return Pinhole.make(width, height, fx=focal, fy=focal, cx=width / 2, cy=height / 2, dtype=torch.float64)


def score_camera(true: Camera, estimated: Camera, long_side: int | None = None) -> dict[str, float]:
    """Return the mean angle between rays, the mean relative error of fx and fy, and the principal point's in pixels.

    Pixels are those of images with a long side of `long_side`, the network's input, or of the images themselves.
    """
    true, estimated = true.to(torch.float64), estimated.to(torch.float64)
    longest = max(true.width, true.height)
    scale = RAY_GRID / longest
    size = (max(1, round(scale * true.width)), max(1, round(scale * true.height)))
    (rays, valid), (guessed, known) = (camera.resize(*size).unproject_grid() for camera in (true, estimated))
    matrix, other = true.central_intrinsics(), estimated.central_intrinsics()
    focal = [float((other[axis, axis] - matrix[axis, axis]).abs() / matrix[axis, axis]) for axis in (0, 1)]
    return {
        "rays_deg": float(ray_error_deg(rays, guessed, valid & known)),
        "focal_rel": sum(focal) / 2,
        "center_px": float((other[:2, 2] - matrix[:2, 2]).norm()) * (long_side or longest) / longest,
    }
