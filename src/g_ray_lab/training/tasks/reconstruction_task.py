"""Multi-view reconstruction as a task: the network, a stream of sets of views, an objective that is passed in."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.models.frozen_features import FrozenFeatures
from g_ray.models.reconstruction_config import RANDOM_ENCODER, ReconstructionConfig, ReconstructionNetwork
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray_lab.sources.reconstruction_batch import ReconstructionBatch, ReconstructionSource
from g_ray_lab.training.task import Task


@dataclass(kw_only=True)
class ReconstructionTask(Task):
    """`objective(prediction, truth, weights)` gives `.total` and the terms to log by `.named_terms()`."""

    config: ReconstructionConfig
    data: ReconstructionSource
    objective: Callable[..., Any]
    weights: Any
    network: ReconstructionNetwork
    batch_size: int
    features: FrozenFeatures | None = None

    def __post_init__(self) -> None:
        network = self.network
        if network.trained_blocks and not network.freeze_encoder:
            raise ValueError("--model.trained-blocks is for frozen encoders: add --model.freeze-encoder")
        if network.freeze_encoder and not network.trained_blocks:
            self.features = FrozenFeatures()

    def use_cache(self, folder: Path, max_bytes: int) -> None:
        if self.features is None:
            super().use_cache(folder, max_bytes)
        self.features = FrozenFeatures(folder, max_bytes)

    def build_model(self) -> ReconstructionModel:
        model, network = ReconstructionModel(self.config), self.network
        if network.encoder not in (None, RANDOM_ENCODER):
            from g_ray.models.foreign_weights import load_encoder

            load_encoder(model, network.encoder)
        if network.freeze_encoder:
            model.freeze_encoder(self.features, network.trained_blocks)
        return model

    def make_batch(self, step: int, rank: int, world: int) -> ReconstructionBatch:
        return self.data.make_batch(step, rank)

    def compute_loss(self, model: nn.Module, batch: ReconstructionBatch) -> tuple[Tensor, dict[str, Tensor]]:
        terms = self.objective(model(batch.images, batch.views), batch, self.weights)
        logged = {name: value.detach() for name, value in terms.named_terms().items() if name != "total"}
        return terms.total, logged

    def describe_batch(self, batch: ReconstructionBatch) -> str:
        return ", ".join(batch.names)

    def list_redrawn(self, batch: ReconstructionBatch) -> tuple[str, ...]:
        return batch.redrawn

    def validate(self, model: nn.Module) -> float:
        return float(self.compute_loss(model, self._get_held_out(model))[0])

    def render_samples(self, model: nn.Module) -> Float[Tensor, "n 3 h w"]:
        """Return the images of the first set, then its true and predicted ray depth, where near is bright."""
        batch = self._get_held_out(model)
        predicted = model(batch.images, batch.views).ray_depth[0].to(batch.ray_depth)
        truth = batch.ray_depth[0]
        return torch.cat(
            [
                batch.images[0],
                _to_grayscale(truth, truth),
                _to_grayscale(_scale_to_truth(predicted, truth), truth),
            ]
        )

    def _get_held_out(self, model: nn.Module) -> ReconstructionBatch:
        """Return the held-out batch, rendered in full precision although the engine validates under autocast."""
        with torch.autocast("cpu", enabled=False):
            return self.data.make_held_out().to(next(model.parameters()).device)


def _scale_to_truth(depth: Float[Tensor, "view h w"], truth: Float[Tensor, "view h w"]) -> Tensor:
    """Scale a prediction, which is up to scale, to the median of the truth."""
    valid = truth > 0
    return depth * (truth[valid].median() / depth[valid].median())


def _to_grayscale(
    depth: Float[Tensor, "view h w"], truth: Float[Tensor, "view h w"]
) -> Float[Tensor, "view 3 h w"]:
    bright = (1 - depth / truth.max()).clamp(0, 1) * (truth > 0)
    return bright[:, None].expand(-1, 3, -1, -1)
