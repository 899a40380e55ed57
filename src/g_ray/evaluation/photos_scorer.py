"""Reconstruction from real photographs with depth, scored: as they are, and re-projected into fisheye images."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from g_ray.data.reconstruction import ReconstructionBatch
from g_ray.data.reproject import draw_contained_fisheyes, reproject_batch
from g_ray.data.scenes.reconstruction import ScenesReconstruction
from g_ray.evaluation.reconstruction_scorer import SetsScorer
from g_ray.training.recipe import to_plain

UPSAMPLING = 8
"""Photographs are re-projected from images so many times as large as what the network sees."""


@dataclass(frozen=True)
class PhotosScorer(SetsScorer):
    """Sets of overlapping views from the last part of a scene's frames; depth along the ray."""

    folder: Path
    side: int
    patch: int
    frames: tuple[float, float] = (0.6, 1.0)
    sets: int = 48
    views: int = 4
    at_once: int = 8

    @property
    def settings(self) -> tuple[str, ...]:
        return ("pinhole", "fisheye")

    @property
    def key(self) -> dict[str, str]:
        settings = {name: value for name, value in to_plain(asdict(self)).items() if name != "folder"}
        settings["files"] = sorted((path.name, path.stat().st_size) for path in self.folder.iterdir())
        return {"protocol": hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]}

    def describe(self) -> dict[str, Any]:
        described = {**to_plain(asdict(self)), "folder": self.folder.name}
        return {"protocol": described, "protocol_digest": self.key["protocol"], "depth": "ray"}

    def make_batches(self, setting: str) -> Iterator[ReconstructionBatch]:
        source = self._make_source(self.side if setting == "pinhole" else UPSAMPLING * self.side)
        random = np.random.default_rng(0)
        for first in range(0, self.sets, self.at_once):
            batch = source.make_sets(range(first, min(first + self.at_once, self.sets)))
            if setting == "fisheye":
                batch = reproject_batch(batch, draw_contained_fisheyes(batch, self.side, self.side, random))
            yield batch

    def _make_source(self, side: int) -> ScenesReconstruction:
        return ScenesReconstruction(
            (self.folder,),
            views=(self.views, self.views),
            width=side,
            height=side,
            aspect=(1.0, 1.0),
            patch=self.patch,
            zoom_max=1.0,
            off_centre=0.0,
            frames=self.frames,
        )
