"""What an NVS table is scored on: frozen test scenes, seen under several settings."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from g_ray.data.nvs import NVSBatch
from g_ray.data.rooms_nvs import RoomsNVS
from g_ray.metrics.lpips import LPIPS
from g_ray.metrics.scenes import SceneScores, score_scenes

Predict = Callable[[NVSBatch], Tensor]


@dataclass(frozen=True)
class NVSProtocol(ABC):
    """The same scenes for every method and seed; `settings` are the columns of the table."""

    @property
    @abstractmethod
    def settings(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def ordered(self) -> bool:
        """Whether the settings are steps along one axis, to be drawn as curves."""
        return True

    @property
    def shown(self) -> str:
        """The setting whose predictions go on a contact sheet."""
        return self.settings[-1]

    @abstractmethod
    def batches(self, setting: str) -> Iterator[NVSBatch]:
        """All test scenes under a setting, always in the same order."""

    @property
    def digest(self) -> str:
        """Changes with anything that changes a test image."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True, default=str).encode()).hexdigest()[:16]

    @torch.no_grad()
    def score(self, predict: Predict, setting: str, lpips: LPIPS | None) -> SceneScores:
        """One value per scene and metric."""
        parts = [score_scenes(b.target_images, predict(b), lpips=lpips) for b in self.batches(setting)]
        return SceneScores.joined(parts)


@dataclass(frozen=True)
class FovProtocol(NVSProtocol):
    """On rooms that no training run sees, with two contexts and one target.

    The first context keeps its native field of view, the others are zoomed by z ~ U[1, z_max].
    """

    width: int
    height: int
    scenes: int
    zooms: tuple[float, ...] = (1.0, 1.5, 2.0, 2.5)
    fov_deg: tuple[float, float] = (60.0, 80.0)
    seed: int = 0
    at_once: int = 32

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(f"z{zoom:.1f}" for zoom in self.zooms)

    def batches(self, setting: str) -> Iterator[NVSBatch]:
        """The same rooms and poses for every z_max; only the zoom differs. Training draws from another split."""
        rooms = RoomsNVS(
            seed=self.seed,
            split="test",
            width=self.width,
            height=self.height,
            fov_deg=self.fov_deg,
            zoom_max=dict(zip(self.settings, self.zooms, strict=True))[setting],
        )
        for first in range(0, self.scenes, self.at_once):
            yield rooms.scenes(range(first, min(first + self.at_once, self.scenes)))
