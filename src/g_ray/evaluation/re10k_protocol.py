"""The paper's RealEstate10K table: pixelSplat's evaluation index at 256×144, under zooms that are frozen."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.data.clip_sampling import hash_to_unit
from g_ray.data.nvs import NVSBatch, compute_zoom_factors
from g_ray.data.re10k import ClipFrames, load_scenes
from g_ray.evaluation.nvs import NVSProtocol
from g_ray.formats.re10k import Axes, Clips, EvaluationIndex, IndexedScene, open_clips, read_index


@dataclass(frozen=True)
class RE10KProtocol(NVSProtocol):
    """Test clips on disk that the index names. The first context is native, all others zoomed by z ~ U[1, z_max].

    A frame's zoom depends on its clip, its role, its number and the seed alone: whichever clips are on disk, those that
    are look the same, and so do they for every method.
    """

    root: str
    index: str
    axes: Axes = "opencv"
    split: str = "test"
    width: int = 256
    height: int = 144
    zooms: tuple[float, ...] = (1.0, 1.5, 2.0, 2.5)
    seed: int = 0
    at_once: int = 4

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(f"z{zoom:.1f}" for zoom in self.zooms)

    @cached_property
    def clips(self) -> Clips:
        return open_clips(Path(self.root), self.split, self.axes)

    @cached_property
    def scenes(self) -> EvaluationIndex:
        """What is scored, and how much of the index is missing."""
        available = read_index(Path(self.index)).select_available(self.clips.keys)
        if not available.scenes:
            raise ValueError(
                f"no clip of {self.index} is in {Path(self.root) / self.split}: give the index of this split"
            )
        return available

    @property
    def digest(self) -> str:
        """Of the frames that are scored, not of where they lie."""
        settings = {
            name: value for name, value in asdict(self).items() if name not in ("root", "index", "at_once")
        }
        settings["scenes"] = self.scenes.digest
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]

    def make_batches(self, setting: str) -> Iterator[NVSBatch]:
        zoom_max = dict(zip(self.settings, self.zooms, strict=True))[setting]
        for _, alike in groupby(
            self.scenes.scenes, key=lambda scene: (len(scene.context), len(scene.target))
        ):
            scenes = list(alike)
            for first in range(0, len(scenes), self.at_once):
                chosen = scenes[first : first + self.at_once]
                yield load_scenes(
                    [self._make_clip_frames(s, zoom_max) for s in chosen], self.width, self.height
                )

    def _make_clip_frames(self, scene: IndexedScene, zoom_max: float) -> ClipFrames:
        zoom = compute_zoom_factors(hash_to_units(scene, self.seed), zoom_max)
        return ClipFrames(
            self.clips.get_clip(scene.key), [*scene.context, *scene.target], len(scene.context), zoom
        )


def hash_to_units(scene: IndexedScene, seed: int) -> Float[Tensor, "view"]:
    """Numbers in [0, 1) for contexts, then targets, by hash: the same in every version of every library."""
    roles = [("context", n) for n in scene.context] + [("target", n) for n in scene.target]
    texts = [f"{seed} {scene.key} {role} {number}" for role, number in roles]
    return torch.tensor([hash_to_unit(text) for text in texts], dtype=torch.float64)
