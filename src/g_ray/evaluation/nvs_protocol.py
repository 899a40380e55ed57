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

TEST_SEED = 900_000
"""Rooms of the test; training seeds stay far below."""


@dataclass(frozen=True)
class FovProtocol:
    """Two contexts, one target: the first context at its native field of view, the others zoomed by z ~ U[1, z_max]."""

    width: int
    height: int
    scenes: int
    zooms: tuple[float, ...] = (1.0, 1.5, 2.0, 2.5)
    fov_deg: tuple[float, float] = (60.0, 80.0)
    seed: int = TEST_SEED
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
        """The same scenes and poses for every z_max; only the zoom differs."""
        rooms = RoomsNVS(
            width=self.width,
            height=self.height,
            batch=min(self.at_once, self.scenes),
            fov_deg=self.fov_deg,
            zoom_max=zoom,
            seed=self.seed,
        )
        for index in range(-(-self.scenes // rooms.batch_size)):
            yield rooms.batch(index, 0)

    @torch.no_grad()
    def score(self, predict: Predict, zoom: float, lpips: LPIPS | None) -> SceneScores:
        """One value per scene and metric."""
        parts = [score_scenes(b.target_images, predict(b), lpips=lpips) for b in self.batches(zoom)]
        joined = SceneScores.joined(parts)
        return SceneScores(*(None if part is None else part[: self.scenes] for part in vars(joined).values()))
