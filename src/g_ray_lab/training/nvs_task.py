"""Novel-view synthesis as a task: LVSM, a stream of scenes, an objective that is passed in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.models.lvsm import LVSM
from g_ray.models.lvsm_config import LVSMConfig
from g_ray_lab.sources.nvs_batch import NVSBatch, NVSSource
from g_ray_lab.training.task import Task

MAX_SHOWN = 2
"""Scenes in a picture."""


@dataclass(kw_only=True)
class NVSTask(Task):
    """`objective(truth, predicted, perceptual=…, weight=…)` gives `.mse`, `.perceptual` and `.total` per scene."""

    config: LVSMConfig
    data: NVSSource
    objective: Callable[..., Any]
    perceptual: nn.Module | None
    weight: float
    batch_size: int

    def build_model(self) -> LVSM:
        return LVSM(self.config)

    def make_batch(self, step: int, rank: int, world: int) -> NVSBatch:
        return self.data.make_batch(step, rank)

    def compute_loss(self, model: nn.Module, batch: NVSBatch) -> tuple[Tensor, dict[str, Tensor]]:
        terms = self._compute_terms(batch, model(batch.context_images, batch.contexts, batch.targets))
        logged = {"mse": terms.mse.mean(), "psnr": -10 * terms.mse.detach().log10().mean()}
        if self.perceptual is not None:
            logged["lpips"] = terms.perceptual.mean()
        return terms.total.mean(), logged

    def _compute_terms(self, batch: NVSBatch, predicted: Tensor) -> Any:
        """Compute the loss in fp32 even under autocast: squares of small errors underflow in fp16."""
        truth = batch.target_images
        perceptual = None if self.perceptual is None else self.perceptual.to(truth.device)
        with torch.autocast(truth.device.type, enabled=False):
            return self.objective(truth, predicted.float(), perceptual=perceptual, weight=self.weight)

    def describe_batch(self, batch: NVSBatch) -> str:
        return ", ".join(batch.names)

    def list_redrawn(self, batch: NVSBatch) -> tuple[str, ...]:
        return batch.redrawn

    def _get_held_out(self, model: nn.Module) -> NVSBatch:
        """Return the held-out batch, rendered in full precision although the engine validates under autocast."""
        with torch.autocast("cpu", enabled=False):
            return self.data.make_held_out().to(next(model.parameters()).device)

    def validate(self, model: nn.Module) -> float:
        batch = self._get_held_out(model)
        return float(self.compute_loss(model, batch)[0])

    def render_samples(self, model: nn.Module) -> Float[Tensor, "n 3 h w"] | None:
        """Return for each scene the contexts, the true and the predicted targets."""
        batch = self._get_held_out(model)
        if batch.context_images.shape[-2:] != batch.target_images.shape[-2:]:
            return None
        predicted = model(batch.context_images, batch.contexts, batch.targets).to(batch.target_images)
        rows = torch.cat([batch.context_images, batch.target_images, predicted], 1)
        return rows[:MAX_SHOWN].flatten(0, 1)
