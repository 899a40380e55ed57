"""Novel-view synthesis and multi-view reconstruction as tasks: a network, a stream of batches and a loss."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.models.lvsm_config import LVSMConfig
from g_ray.models.reconstruction_config import RANDOM_ENCODER, ReconstructionConfig, ReconstructionNetwork
from g_ray_lab.losses import ReconstructionWeights
from g_ray_lab.sources.batches import BatchSource, NVSBatch, ReconstructionBatch
from g_ray_lab.training.task import Task

if TYPE_CHECKING:
    from g_ray.models.frozen_features import FrozenFeatures
    from g_ray.models.lvsm import LVSM
    from g_ray.models.reconstruction_network import ReconstructionModel

MAX_SHOWN = 2
"""Scenes in a picture."""


@dataclass(kw_only=True)
class ViewTask(Task):
    """A task on batches of views, which name what they show and what had to be drawn again."""

    data: BatchSource[Any]
    batch_size: int

    def make_batch(self, step: int, rank: int, world: int) -> Any:
        return self.data.make_batch(step, rank)

    def describe_batch(self, batch: Any) -> str:
        return ", ".join(batch.names)

    def list_redrawn(self, batch: Any) -> tuple[str, ...]:
        return batch.redrawn

    def validate(self, model: nn.Module) -> float:
        return float(self.compute_loss(model, self._get_held_out(model))[0])

    def _get_held_out(self, model: nn.Module) -> Any:
        """Return the held-out batch, rendered in full precision although the engine validates under autocast."""
        with torch.autocast("cpu", enabled=False):
            return self.data.make_held_out().to(next(model.parameters()).device)


@dataclass(kw_only=True)
class NVSTask(ViewTask):
    """LVSM learns to render targets: squared error + `weight` · LPIPS (`perceptual`)."""

    config: LVSMConfig
    perceptual: nn.Module | None
    weight: float

    def build_model(self) -> "LVSM":
        from g_ray.models.lvsm import LVSM

        return LVSM(self.config)

    def compute_loss(self, model: nn.Module, batch: NVSBatch) -> tuple[Tensor, dict[str, Tensor]]:
        from g_ray_lab.losses.view_losses import nvs_loss

        predicted, truth = model(batch.context_images, batch.contexts, batch.targets), batch.target_images
        perceptual = None if self.perceptual is None else self.perceptual.to(truth.device)
        # In fp32 even under autocast: squares of small errors underflow in fp16.
        with torch.autocast(truth.device.type, enabled=False):
            terms = nvs_loss(truth, predicted.float(), perceptual=perceptual, weight=self.weight)
        logged = {"mse": terms.mse.mean(), "psnr": -10 * terms.mse.detach().log10().mean()}
        if perceptual is not None:
            logged["lpips"] = terms.perceptual.mean()
        return terms.total.mean(), logged

    def render_samples(self, model: nn.Module) -> Float[Tensor, "n 3 h w"] | None:
        """Return for each scene the contexts, the true and the predicted targets."""
        batch = self._get_held_out(model)
        if batch.context_images.shape[-2:] != batch.target_images.shape[-2:]:
            return None
        predicted = model(batch.context_images, batch.contexts, batch.targets).to(batch.target_images)
        rows = torch.cat([batch.context_images, batch.target_images, predicted], 1)
        return rows[:MAX_SHOWN].flatten(0, 1)


@dataclass(kw_only=True)
class ReconstructionTask(ViewTask):
    """The reconstruction network learns points, depths and poses; features of a frozen encoder may be cached."""

    config: ReconstructionConfig
    network: ReconstructionNetwork
    weights: ReconstructionWeights
    features: "FrozenFeatures | None" = None

    def __post_init__(self) -> None:
        from g_ray.models.frozen_features import FrozenFeatures

        network = self.network
        if network.trained_blocks and not network.freeze_encoder:
            raise ValueError("--model.trained-blocks is for frozen encoders: add --model.freeze-encoder")
        if network.freeze_encoder and not network.trained_blocks:
            self.features = FrozenFeatures()

    def use_cache(self, folder: Path, max_bytes: int) -> None:
        from g_ray.models.frozen_features import FrozenFeatures

        if self.features is None:
            super().use_cache(folder, max_bytes)
        self.features = FrozenFeatures(folder, max_bytes)

    def build_model(self) -> "ReconstructionModel":
        from g_ray.models.reconstruction_network import ReconstructionModel

        model, network = ReconstructionModel(self.config), self.network
        if network.encoder not in (None, RANDOM_ENCODER):
            from g_ray.models.foreign_weights import load_encoder

            load_encoder(model, network.encoder)
        if network.freeze_encoder:
            model.freeze_encoder(self.features, network.trained_blocks)
        return model

    def compute_loss(self, model: nn.Module, batch: ReconstructionBatch) -> tuple[Tensor, dict[str, Tensor]]:
        from g_ray_lab.losses.view_losses import reconstruction_loss

        terms = reconstruction_loss(model(batch.images, batch.views), batch, self.weights)
        logged = {name: value.detach() for name, value in terms.named_terms().items() if name != "total"}
        return terms.total, logged

    def render_samples(self, model: nn.Module) -> Float[Tensor, "n 3 h w"]:
        """Return the images of the first set, then its true and predicted ray depth, where near is bright."""
        batch = self._get_held_out(model)
        truth = batch.ray_depth[0]
        predicted = model(batch.images, batch.views).ray_depth[0].to(truth)
        valid = truth > 0
        scaled = predicted * (truth[valid].median() / predicted[valid].median())  # predictions have no unit
        bright = [(1 - depth / truth.max()).clamp(0, 1) * valid for depth in (truth, scaled)]
        return torch.cat([batch.images[0], *(depth[:, None].expand(-1, 3, -1, -1) for depth in bright)])
