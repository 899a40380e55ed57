"""The field-of-view protocol of the paper's NVS tables, on rooms that no training run sees."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from g_ray.data.nvs import NVSBatch, RoomsNVS
from g_ray.metrics.lpips import LPIPS
from g_ray.metrics.scenes import SceneScores, score_scenes

Predict = Callable[[NVSBatch], Tensor]


@dataclass(frozen=True)
class FovProtocol:
    """Two contexts, one target: the first context at its native field of view, the others zoomed by z ~ U[1, z_max]."""

    width: int
    height: int
    scenes: int
    zooms: tuple[float, ...] = (1.0, 1.5, 2.0, 2.5)
    fov_deg: tuple[float, float] = (60.0, 80.0)
    seed: int = 0
    at_once: int = 32

    @property
    def settings(self) -> dict[str, float]:
        """Columns of the table: name to z_max."""
        return {f"z{zoom:.1f}": zoom for zoom in self.zooms}

    @property
    def digest(self) -> str:
        """Changes with anything that changes a test image."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def batches(self, zoom: float) -> Iterator[NVSBatch]:
        """The same rooms and poses for every z_max; only the zoom differs. Training draws from another split."""
        rooms = RoomsNVS(
            seed=self.seed,
            split="test",
            width=self.width,
            height=self.height,
            fov_deg=self.fov_deg,
            zoom_max=zoom,
        )
        for first in range(0, self.scenes, self.at_once):
            yield rooms.scenes(range(first, min(first + self.at_once, self.scenes)))

    @torch.no_grad()
    def score(self, predict: Predict, zoom: float, lpips: LPIPS | None) -> SceneScores:
        """One value per scene and metric."""
        parts = [score_scenes(b.target_images, predict(b), lpips=lpips) for b in self.batches(zoom)]
        return SceneScores.joined(parts)
