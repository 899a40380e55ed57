"""Novel-view synthesis, scored: PSNR, SSIM and, where its weights are, LPIPS."""

from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from g_ray.data.nvs import NVSBatch
from g_ray.evaluation.nvs_protocol import NVSProtocol, Predict
from g_ray.evaluation.nvs_references import REFERENCES
from g_ray.evaluation.scorer import Scorer
from g_ray.evaluation.study import ScoredRun
from g_ray.metrics.lpips import LPIPS, load_lpips
from g_ray.training.recipe import to_plain


@dataclass(frozen=True)
class NVSScorer(Scorer):
    """`lpips=None` leaves that metric out."""

    protocol: NVSProtocol
    lpips: Path | None = None

    @property
    def settings(self) -> tuple[str, ...]:
        return self.protocol.settings

    @property
    def key(self) -> dict[str, str]:
        return {"protocol": self.protocol.digest, "lpips": str(self.lpips is not None)}

    def describe(self) -> dict[str, Any]:
        return {
            "protocol": to_plain(asdict(self.protocol)),
            "protocol_digest": self.protocol.digest,
            "ssim": "as torchmetrics",
        }

    def score_network(self, network: nn.Module, setting: str) -> dict[str, list[float]]:
        return self._score_predictions(make_predictor(network), setting)

    def score_references(self) -> list[ScoredRun]:
        return [
            ScoredRun(
                name,
                0,
                0,
                0.0,
                {setting: self._score_predictions(predict, setting) for setting in self.settings},
            )
            for name, predict in REFERENCES.items()
        ]

    def _score_predictions(self, predict: Predict, setting: str) -> dict[str, list[float]]:
        scores = self.protocol.score(
            predict, setting, None if self.lpips is None else _load_lpips(self.lpips)
        )
        return {metric: values.tolist() for metric, values in scores.rows().items()}


@cache
def _load_lpips(lpips: Path) -> LPIPS:
    return load_lpips(lpips)


def make_predictor(network: nn.Module) -> Predict:
    """Images of a batch on the network's device, back where the batch is."""
    device = next(network.parameters()).device

    def predict(batch: NVSBatch) -> torch.Tensor:
        there = batch.to(device)
        return network(there.context_images, there.contexts, there.targets).to(batch.target_images)

    return predict
