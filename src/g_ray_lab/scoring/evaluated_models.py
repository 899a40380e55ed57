"""Models that can be evaluated: every model behind `Predictor`; references without weights; networks of a study."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import pi
from pathlib import Path
from typing import Any

import torch

from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity
from g_ray.media.view import View
from g_ray.models.inference import run_inference
from g_ray.models.reconstruction_config import RECONSTRUCTION_METHODS
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.weights import find_file, list_shipped, load_reconstruction
from g_ray.predictors import MODELS, ModelSettings, make_predictor
from g_ray.predictors.network_predictor import NetworkPredictor
from g_ray.predictors.predictor import Predictor, SceneInput, check_priors
from g_ray.rays.ray_map import RayMap
from g_ray.runtime.files import strip_paths
from g_ray.sfm import SfMOptions, SparseScene, reconstruct_cameras
from g_ray_lab.datasets.evaluation_scene import EvaluationView
from g_ray_lab.scoring.set_prediction import PredictedSet, PredictedView, convert_view, stand_still
from g_ray_lab.scoring.store import hash_file, hash_key
from g_ray_lab.training.run_files import WEIGHTS


class EvaluatedModel(ABC):
    """Predicts sets of views. What it is shown of an `EvaluationView` is its business: references may use the truth."""

    name: str

    @property
    def title(self) -> str:
        """The name for people, with how it is used where there are several ways."""
        return self.name

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return everything that decides its predictions, as plain values; results of another model have another."""

    @abstractmethod
    def predict(self, views: Sequence[EvaluationView]) -> PredictedSet:
        """Predict a set; ValueError in one line if it cannot be predicted."""

    def digest(self) -> str:
        """Hash what decides the predictions."""
        return hash_key({"name": self.name, **self.describe()}, default=str)


@dataclass(frozen=True, eq=False)
class TruthModel(EvaluatedModel):
    """The truth, in another world and at another scale: every error must come out as zero, or as what is added here."""

    name: str = "truth"
    scale: float = 0.4
    depth_factor: float = 1.0
    """Multiplies depth but not the positions of cameras."""
    turn_deg: float = 0.0
    """Turns every second camera about its own vertical axis."""

    def describe(self) -> dict[str, Any]:
        return {"scale": self.scale, "depth_factor": self.depth_factor, "turn_deg": self.turn_deg}

    def predict(self, views: Sequence[EvaluationView]) -> PredictedSet:
        return PredictedSet(tuple(self._predict_view(place, view) for place, view in enumerate(views)))

    def _predict_view(self, place: int, view: EvaluationView) -> PredictedView:
        pose = self._get_world().transform_pose(view.pose or Pose.identity(dtype=torch.float64))
        if place % 2:
            pose = pose @ _turn(self.turn_deg)
        depth = view.ray_depth * (self.scale * self.depth_factor)
        return PredictedView(pose, depth, view.valid & (view.ray_depth > 0))

    def _get_world(self) -> Similarity:
        """Return the similarity from the dataset's world to that of the prediction."""
        shift = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
        return Similarity(torch.tensor(self.scale).double(), _turn(40.0).rotation, shift)


def _turn(angle_deg: float) -> Pose:
    """Return a rotation about the vertical axis of a camera."""
    angle = torch.tensor(angle_deg * pi / 180, dtype=torch.float64)
    turn = torch.eye(4, dtype=torch.float64)
    turn[0, 0] = turn[2, 2] = angle.cos()
    turn[0, 2], turn[2, 0] = angle.sin(), -angle.sin()
    return Pose(turn)


@dataclass(frozen=True, eq=False)
class StandingModel(EvaluatedModel):
    """Depth of 1 along the calibrated rays and cameras that do not move: what calibration alone gives."""

    name: str = "standing"

    def describe(self) -> dict[str, Any]:
        return {}

    def predict(self, views: Sequence[EvaluationView]) -> PredictedSet:
        return PredictedSet(tuple(self._predict_view(RayMap.from_camera(view.camera)) for view in views))

    def _predict_view(self, rays: RayMap) -> PredictedView:
        still = stand_still(rays.directions[None, None])
        depth = still.camera_points.norm(dim=-1)[0, 0]
        return PredictedView(still.poses[0, 0].to(torch.float64), depth, rays.valid)


@dataclass(frozen=True, eq=False)
class ColmapReference(EvaluatedModel):
    """Poses by pycolmap with the given lenses, and depth at the features that it triangulates: few, but good pixels."""

    name: str = "colmap"

    def describe(self) -> dict[str, Any]:
        return {"sfm": asdict(SfMOptions())}

    def predict(self, views: Sequence[EvaluationView]) -> PredictedSet:
        scene = reconstruct_cameras(
            [
                View(f"{place:03d}-{view.name}", view.camera.to(torch.float64), image=view.image)
                for place, view in enumerate(views)
            ]
        )
        predictions = tuple(self._read_view(scene, place, view) for place, view in enumerate(views))
        return PredictedSet(predictions, scene.notes)

    def _read_view(self, scene: SparseScene, place: int, view: EvaluationView) -> PredictedView | None:
        pose = scene.poses[place]
        if pose is None:
            return None
        own = scene.tracks.view == place
        column, row = scene.tracks.pixel[own].floor().long().unbind(-1)
        distance = (scene.points[scene.tracks.point[own]] - pose.translation).norm(dim=-1)
        depth = torch.zeros_like(view.ray_depth)
        # Where two features share a pixel, the last one counts.
        depth[row.clamp(0, depth.shape[0] - 1), column.clamp(0, depth.shape[1] - 1)] = distance.float()
        return PredictedView(pose, depth, depth > 0)


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
    """Run the reconstruction network and keep the outputs of its heads, as the paper scores it.

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
    "colmap": ColmapReference,
}
"""Models that need no weights: the truth shows that a set-up is right, standing cameras what calibration alone gives,
and COLMAP what structure from motion knows without depth maps."""


def make_model(name: str | None, settings: ModelSettings, poses: bool = False) -> EvaluatedModel:
    """Make a model or a reference by its name; ValueError or OSError names what is wrong or must be installed."""
    if name in REFERENCES:
        if settings != ModelSettings() or poses:
            raise ValueError(f"--model {name} is a reference: leave out --poses and the settings of models")
        return REFERENCES[name]()
    if name is not None and name not in MODELS:
        raise ValueError(f"unknown model {name!r}: choose one of {', '.join((*MODELS, *REFERENCES))}")
    predictor = make_predictor(name, settings)
    if isinstance(predictor, NetworkPredictor) and settings.place_by is None:
        predictor = replace(predictor, place_by="network")  # tables are about networks, not about matches
    # Once per model: large files take a while, and every row has the hash in its key.
    weights = hash_weights(predictor.describe_settings().get("weights"))
    return PredictorModel(predictor, poses, predictor.NAME, weights)


# The finished reconstruction networks of a study, row by row


@dataclass(frozen=True)
class TrainedNetwork:
    """Weights of one row and seed."""

    method: str
    seed: int
    weights: Path

    @property
    def name(self) -> str:
        return f"{self.method}-seed{self.seed}"

    @property
    def digest(self) -> str:
        """A digest of the weights, for keys of results that depend on them."""
        return hash_file(self.weights)

    def load(self) -> ReconstructionModel:
        """Load the network, prepared for inference."""
        return load_reconstruction(self.weights)


def find_networks(
    source: Path, methods: Sequence[str] = (), seeds: int | None = None
) -> list[TrainedNetwork]:
    """Return the finished networks of a study (`source`/runs/ROW-seedN) in the order of RECONSTRUCTION_METHODS.

    Where `source` is a file of weights or the name of shipped ones, it is the only network. `methods` selects rows;
    `seeds` the networks with seeds below it, which every row must then have.
    """
    runs = source / "runs"
    if not runs.is_dir():
        weights = find_file(source)
        networks = [TrainedNetwork(load_reconstruction(weights).config.method, 0, weights)]
    else:
        matches = ((path, re.fullmatch(r"(\w+)-seed(\d+)", path.name)) for path in runs.iterdir())
        networks = [
            TrainedNetwork(match[1], int(match[2]), path / WEIGHTS)
            for path, match in matches
            if match is not None and match[1] in RECONSTRUCTION_METHODS and (path / WEIGHTS).is_file()
        ]
        order = list(RECONSTRUCTION_METHODS)
        networks.sort(key=lambda network: (order.index(network.method), network.seed))
    return _limit_seeds(_select_methods(networks, methods, source), seeds, source)


def _limit_seeds(networks: list[TrainedNetwork], seeds: int | None, source: Path) -> list[TrainedNetwork]:
    """Keep the networks with the first seeds; a row that lacks one would be compared with unequal means."""
    if seeds is None:
        return networks
    if seeds < 1:
        raise ValueError(f"--seeds {seeds}: give at least 1")
    names = [network.name for network in networks]
    wanted = {f"{network.method}-seed{seed}" for network in networks for seed in range(seeds)}
    missing = sorted(wanted.difference(names))
    if missing:
        raise ValueError(
            f"--networks {source}: --seeds {seeds}, but not finished: {', '.join(missing)}; give fewer --seeds"
        )
    return [network for network in networks if network.name in wanted]


def _select_methods(
    networks: list[TrainedNetwork], methods: Sequence[str], source: Path
) -> list[TrainedNetwork]:
    known = {network.method for network in networks}
    missing = [method for method in methods if method not in known]
    if missing or not networks:
        have = ", ".join(dict.fromkeys(network.method for network in networks)) or "none"
        raise ValueError(
            f"--networks {source}: no finished network of {', '.join(missing) or 'any row'} (it has: {have}); "
            "give the --out of a finished study"
        )
    return [network for network in networks if not methods or network.method in methods]
