"""Whatever can be evaluated: every model behind `Predictor`, and the references beside them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from g_ray.media.view import View
from g_ray.models.checkpoint import find_file, list_shipped
from g_ray.models.inference import run_inference
from g_ray.predictors import MODELS, ModelSettings, make_predictor
from g_ray.predictors.network_predictor import NetworkPredictor
from g_ray.predictors.predictor import Predictor, SceneInput, check_priors
from g_ray.runtime.files import strip_paths
from g_ray.runtime.parts import hash_file
from g_ray_lab.datasets.evaluation_scene import EvaluationView
from g_ray_lab.scoring.running.references import ColmapModel, EvaluatedModel, StandingModel, TruthModel
from g_ray_lab.scoring.running.set_prediction import PredictedSet, PredictedView, convert_view

# Models


@dataclass(frozen=True, eq=False)
class PredictorModel(EvaluatedModel):
    """A model of `MODELS`. It gets images and calibration, and poses only if they are given."""

    predictor: Predictor
    poses: bool = False
    name: str = ""
    weights_sha256: str | None = None

    @property
    def title(self) -> str:
        details = []
        if isinstance(self.predictor, NetworkPredictor):
            details.append("placed by matches" if self.predictor.place_by == "matches" else "alone")
        if self.poses:
            details.append("with the true poses")
        return " ".join([self.name, *details])

    def describe(self) -> dict[str, Any]:
        settings = strip_paths(self.predictor.describe_settings())
        poses = "given" if self.poses else "found"
        return {"settings": settings, "poses": poses, "weights_sha256": self.weights_sha256}

    def predict(self, views: Sequence[EvaluationView]) -> PredictedSet:
        inputs = make_inputs(views, self.poses)
        check_priors(self.predictor, inputs)
        if (
            isinstance(self.predictor, NetworkPredictor)
            and self.predictor.place_by == "network"
            and self.predictor.count_at_once(inputs.views) >= len(views)
        ):
            return predict_heads(self.predictor, inputs)
        result = self.predictor.predict(inputs)
        predictions = tuple(
            None if one is None else convert_view(one, photo)
            for one, photo in zip(result.views, views, strict=True)
        )
        reasons = sorted({reason for reason in result.reasons if reason})
        return PredictedSet(predictions, (*result.notes, *reasons))


def make_inputs(views: Sequence[EvaluationView], poses: bool) -> SceneInput:
    """Return what a model is shown. Names begin with the place in the set: a repeated frame comes again."""
    return SceneInput(
        [
            View(
                f"{place:03d}-{view.name}",
                view.camera if view.camera.NAME == "ray_map" else view.camera.to(torch.float64),
                view.pose if poses else None,
                "dataset",
                view.image,
            )
            for place, view in enumerate(views)
        ]
    )


def predict_heads(predictor: NetworkPredictor, inputs: SceneInput) -> PredictedSet:
    """Run the reconstruction network and keep what its heads say, as the paper scores it.

    World points, camera points (and with them rays and depth) and poses are independent estimates; the tool for
    photographs puts depth on the calibrated rays instead, which would hide the error of rays.
    """
    inference = run_inference(
        predictor.model,
        [view.load_image() for view in inputs.views],
        [view.camera for view in inputs.views],
        size=predictor.size,
        query_chunk=predictor.query_chunk,
        precision=predictor.precision,
    ).to_original()
    views = []
    for one in inference.views:
        maps = one.maps.to("cpu", torch.float32)
        views.append(
            PredictedView(
                maps.poses.to(torch.float64), maps.ray_depth, one.valid.cpu(), maps.rays, maps.world_points
            )
        )
    return PredictedSet(tuple(views))


def hash_weights(weights: Any) -> str | None:
    """Hash the file of weights, by path or by the name of shipped ones; None for those of the hub, and for none."""
    if not isinstance(weights, str) or not (Path(weights).exists() or weights in list_shipped()):
        return None
    return hash_file(find_file(weights))


REFERENCES: dict[str, Callable[[], EvaluatedModel]] = {
    "truth": TruthModel,
    "standing": StandingModel,
    "colmap": ColmapModel,
}
"""Models that need no weights: the truth shows that a set-up is right, standing cameras what calibration alone gives,
and COLMAP what structure from motion knows without depth maps."""


def make_model(name: str | None, settings: ModelSettings, poses: bool = False) -> EvaluatedModel:
    """Make a model or a reference by its name; ValueError or OSError says what is wrong or must be installed."""
    if name in REFERENCES:
        if settings != ModelSettings() or poses:
            raise ValueError(f"--model {name} is a reference: leave out --poses and the settings of models")
        return REFERENCES[name]()
    if name is not None and name not in MODELS:
        raise ValueError(f"unknown model {name!r}: choose one of {', '.join((*MODELS, *REFERENCES))}")
    predictor = make_predictor(name, settings)
    if isinstance(predictor, NetworkPredictor) and settings.place_by is None:
        predictor = replace(predictor, place_by="network")  # tables are about networks, not about matches
    # Once per model: large files take a while, and rows are asked for the hash again and again.
    weights = hash_weights(predictor.describe_settings().get("weights"))
    return PredictorModel(predictor, poses, predictor.NAME, weights)
