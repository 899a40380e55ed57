"""The protocol of the RealEstate10K table: pixelSplat's evaluation index at 256×144, with frozen random zooms."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray_lab.datasets.re10k import Axes, Clips, EvaluationIndex, IndexedClip, open_clips, read_index
from g_ray_lab.scoring.nvs_protocols import ZoomsProtocol
from g_ray_lab.scoring.store import hash_key
from g_ray_lab.sources.batches import NVSBatch, compute_zoom_factors
from g_ray_lab.sources.clip_sampling import hash_to_unit
from g_ray_lab.sources.re10k_nvs import ClipFrames, load_scenes


@dataclass(frozen=True)
class RE10KProtocol(ZoomsProtocol):
    """Test clips on disk that are in the index; views except the first context are zoomed by z ~ U[1, z_max].

    The zoom of a frame depends only on its clip, role, number and the seed: it is the same for every method, and for
    any subset of clips on disk.
    """

    root: str
    index: str
    axes: Axes = "opencv"
    split: str = "test"
    width: int = 256
    height: int = 144
    seed: int = 0
    at_once: int = 4

    @cached_property
    def clips(self) -> Clips:
        return open_clips(Path(self.root), self.split, self.axes)

    @cached_property
    def scenes(self) -> EvaluationIndex:
        """The indexed scenes that are on disk, with a count of those that are missing."""
        available = read_index(Path(self.index)).select_available(self.clips.keys)
        if not available.scenes:
            raise ValueError(
                f"no clip of {self.index} is in {Path(self.root) / self.split}: give the index of this split"
            )
        return available

    @property
    def digest(self) -> str:
        """Hash of the scored frames and all settings, but not of any path."""
        settings = {
            name: value
            for name, value in self.describe_settings().items()
            if name not in ("root", "index", "at_once")
        }
        settings["scenes"] = self.scenes.digest
        return hash_key(settings)

    def make_batches(self, setting: str) -> Iterator[NVSBatch]:
        """Yield all scenes under a setting; a batch holds scenes with equal numbers of views."""
        zoom_max = self.get_zoom(setting)
        for position, batch in enumerate(self._group_scenes()):
            if self.shard.takes(position):
                frames = [self._make_clip_frames(scene, zoom_max) for scene in batch]
                yield load_scenes(frames, self.width, self.height)

    def _group_scenes(self) -> Iterator[list[IndexedClip]]:
        """Yield the scenes of every batch: neighbors with equal numbers of views."""
        scenes = self.scenes.scenes[: self.limit]
        for _, alike in groupby(scenes, key=lambda scene: (len(scene.context), len(scene.target))):
            group = list(alike)
            for first in range(0, len(group), self.at_once):
                yield group[first : first + self.at_once]

    def _make_clip_frames(self, scene: IndexedClip, zoom_max: float) -> ClipFrames:
        zoom = compute_zoom_factors(hash_to_units(scene, self.seed), zoom_max)
        return ClipFrames(
            self.clips.get_clip(scene.key), [*scene.context, *scene.target], len(scene.context), zoom
        )


def hash_to_units(scene: IndexedClip, seed: int) -> Float[Tensor, "view"]:
    """Return numbers in [0, 1) for contexts, then targets, by hash: independent of any library's random generator."""
    roles = [("context", n) for n in scene.context] + [("target", n) for n in scene.target]
    texts = [f"{seed} {scene.key} {role} {number}" for role, number in roles]
    return torch.tensor([hash_to_unit(text) for text in texts], dtype=torch.float64)
