"""References of evaluations: what needs no weights, from the truth itself to cameras that do not move."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import pi
from typing import Any

import torch

from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity
from g_ray.media.view import View
from g_ray.rays.ray_map import RayMap
from g_ray.runtime.parts import hash_key
from g_ray.sfm import SfMOptions, SparseScene, reconstruct_cameras
from g_ray_lab.datasets.evaluation_scene import EvaluationView
from g_ray_lab.scoring.running.set_prediction import PredictedSet, PredictedView


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
        still = Pose.identity(dtype=torch.float64)
        return PredictedSet(
            tuple(
                PredictedView(still, torch.ones_like(view.ray_depth), RayMap.from_camera(view.camera).valid)
                for view in views
            )
        )


@dataclass(frozen=True, eq=False)
class ColmapModel(EvaluatedModel):
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
