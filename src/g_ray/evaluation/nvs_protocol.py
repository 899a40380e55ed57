"""What an NVS table is scored on: frozen test scenes, seen under several settings."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from g_ray.data.nvs import NVSBatch
from g_ray.data.rooms.nvs import RoomsNVS
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
    def is_ordered(self) -> bool:
        """Whether the settings are steps along one axis, to be drawn as curves."""
        return True

    @property
    def shown_setting(self) -> str:
        """The setting whose predictions go on a contact sheet."""
        return self.settings[-1]

    @abstractmethod
    def make_batches(self, setting: str) -> Iterator[NVSBatch]:
        """All test scenes under a setting, always in the same order."""

    @property
    def digest(self) -> str:
        """Changes with anything that changes a test image."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True, default=str).encode()).hexdigest()[:16]

    @torch.no_grad()
    def score(self, predict: Predict, setting: str, lpips: LPIPS | None) -> SceneScores:
        """One value per scene and metric."""
        parts = [score_scenes(b.target_images, predict(b), lpips=lpips) for b in self.make_batches(setting)]
        return SceneScores.concatenate(parts)


@dataclass(frozen=True)
class RoomsProtocol(NVSProtocol):
    """On rooms that no training run sees, with two contexts and one target; only zooms differ between settings."""

    width: int
    height: int
    scenes: int
    fov_deg: tuple[float, float] = (60.0, 80.0)
    seed: int = 0
    at_once: int = 32

    def make_batches(self, setting: str) -> Iterator[NVSBatch]:
        """The same rooms and poses for every setting. Training draws from another split."""
        native = RoomsNVS(
            seed=self.seed, split="test", width=self.width, height=self.height, fov_deg=self.fov_deg
        )
        rooms = self.apply_zoom(native, setting)
        for first in range(0, self.scenes, self.at_once):
            yield rooms.make_scenes(range(first, min(first + self.at_once, self.scenes)))

    @abstractmethod
    def apply_zoom(self, native: RoomsNVS, setting: str) -> RoomsNVS:
        """The rooms as a setting sees them."""


@dataclass(frozen=True)
class FovProtocol(RoomsProtocol):
    """The first context keeps its native field of view, the others are zoomed by z ~ U[1, z_max]: the paper's."""

    zooms: tuple[float, ...] = (1.0, 1.5, 2.0, 2.5)

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(f"z{zoom:.1f}" for zoom in self.zooms)

    def apply_zoom(self, native: RoomsNVS, setting: str) -> RoomsNVS:
        return replace(native, zoom_max=dict(zip(self.settings, self.zooms, strict=True))[setting])


@dataclass(frozen=True)
class WhoZoomsProtocol(RoomsProtocol):
    """One zoom for the second context, for the target, or for both: fields of view that differ or change together."""

    zoom: float = 2.5

    @property
    def settings(self) -> tuple[str, ...]:
        return ("none", "context", "target", "both")

    @property
    def is_ordered(self) -> bool:
        return False

    @property
    def shown_setting(self) -> str:
        return "target"

    def apply_zoom(self, native: RoomsNVS, setting: str) -> RoomsNVS:
        context, target = setting in ("context", "both"), setting in ("target", "both")
        return replace(native, zooms=(1.0, self.zoom if context else 1.0, self.zoom if target else 1.0))
