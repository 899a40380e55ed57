"""What reconstruction minimises: poses, and points in the first view's frame and in every camera's own."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from g_ray.geometry.precision import disable_autocast, promote_to_float32
from g_ray.losses.reconstruction.camera import ENOUGH, CameraTerms, camera_loss
from g_ray.losses.reconstruction.points import PointTerms, pointmap_loss
from g_ray.losses.reconstruction.truth import Truth, normalize_truth


@runtime_checkable
class Prediction(Protocol):
    """What a network has to give. Poses are world_from_cam with the first view as the world."""

    @property
    def world_points(self) -> Float[Tensor, "set view h w 3"]: ...
    @property
    def world_confidence(self) -> Float[Tensor, "set view h w"]: ...
    @property
    def camera_points(self) -> Float[Tensor, "set view h w 3"]: ...
    @property
    def camera_confidence(self) -> Float[Tensor, "set view h w"]: ...
    @property
    def translation(self) -> Float[Tensor, "set view 3"]: ...
    @property
    def quaternion(self) -> Float[Tensor, "set view 4"]: ...


@dataclass(frozen=True)
class ReconstructionWeights:
    """Constants of the appendix, and of VGGT where the paper follows it."""

    camera: float = 5.0
    camera_points: float = 1.0
    world_points: float = 1.0
    gamma: float = 1.0
    """Of confidence times error."""
    alpha: float = 0.2
    """Of the logarithm that keeps confidences from falling to nothing."""
    quantile: float = 0.98
    """Pixels with an error above it are left out."""
    normal_scales: int = 3
    """Normals between pixels 1, 2, 4, … apart."""


PAPER = ReconstructionWeights()


@dataclass(frozen=True)
class ReconstructionLoss:
    """Every term on its own, and what is minimised."""

    camera: CameraTerms
    camera_points: PointTerms
    world_points: PointTerms
    total: Float[Tensor, ""]

    def named_terms(self) -> dict[str, Float[Tensor, ""]]:
        """Terms before their weights, for a log: translation, rotation, world_confidence, …, total."""
        parts = {"": self.camera, "camera_": self.camera_points, "world_": self.world_points}
        terms = {
            f"{prefix}{name}": value for prefix, part in parts.items() for name, value in vars(part).items()
        }
        return {**terms, "total": self.total}


def reconstruction_loss(
    prediction: Prediction, truth: Truth, weights: ReconstructionWeights = PAPER
) -> ReconstructionLoss:
    """λ_camera L_camera + λ_points (L_camera points + L_world points), in float32 whatever autocast says."""
    known = normalize_truth(truth)
    with disable_autocast(known.world_points):
        camera = camera_loss(
            promote_to_float32(prediction.translation),
            promote_to_float32(prediction.quaternion),
            known.poses,
            usable=known.valid[:, 0].sum((-2, -1)) > ENOUGH,
        )
        settings = {
            "gamma": weights.gamma,
            "alpha": weights.alpha,
            "quantile": weights.quantile,
            "scales": weights.normal_scales,
        }
        in_camera, in_world = (
            pointmap_loss(
                points, promote_to_float32(guess), promote_to_float32(sure), known.valid, **settings
            )
            for points, guess, sure in (
                (known.camera_points, prediction.camera_points, prediction.camera_confidence),
                (known.world_points, prediction.world_points, prediction.world_confidence),
            )
        )
        total = (
            weights.camera * camera.total
            + weights.camera_points * in_camera.total
            + weights.world_points * in_world.total
        )
    return ReconstructionLoss(camera, in_camera, in_world, total)
