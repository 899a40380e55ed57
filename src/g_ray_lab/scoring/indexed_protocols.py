"""Protocols that read index files: RealEstate10K at 256×144 with frozen random zooms, and rendered objects."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from g_ray_lab.datasets.re10k import Axes, Clips, open_clips
from g_ray_lab.datasets.re10k_index import EvaluationIndex, IndexedClip, read_clip_index
from g_ray_lab.metrics.image_metrics import SceneScores, score_images
from g_ray_lab.metrics.lpips import LPIPS
from g_ray_lab.scoring.nvs_protocols import NVSProtocol, Predict, ZoomsProtocol, enlarge_for
from g_ray_lab.scoring.store import Shard, hash_key
from g_ray_lab.sources.batches import NVSBatch, compute_zoom_factors
from g_ray_lab.sources.draws import hash_to_unit
from g_ray_lab.sources.object_index import PROTOCOLS, ObjectIndex, read_index
from g_ray_lab.sources.objects_nvs import RenderedObjects, ViewRequest
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
        available = read_clip_index(Path(self.index)).select_available(self.clips.keys)
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


# The protocol of the Objaverse tables: the paper's six ways to choose targets, read from frozen index files
#
# They are defined in the paper's appendix "Objaverse Target-View Definitions".


@dataclass(frozen=True)
class ObjectsProtocol(NVSProtocol):
    """Rendered objects below `root`, with the contexts and targets that the files in `index` list."""

    root: Path
    index: Path
    width: int
    height: int
    at_once: int = 8

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(PROTOCOLS)

    @property
    def is_ordered(self) -> bool:
        return False

    @property
    def shown_setting(self) -> str:
        """The hardest setting: a new viewpoint and another field of view at once."""
        return "novel_fov"

    def check(self) -> None:
        """Raise ValueError early for index files that are missing, changed, or made for other objects."""
        _ = self.indices

    @cached_property
    def indices(self) -> dict[str, ObjectIndex]:
        """The index of each setting, validated against the objects on first use."""
        return {name: read_index(self.index, name, self.root) for name in PROTOCOLS}

    @cached_property
    def digest(self) -> str:
        """Hash of the index files, the image size and the file sizes of all test images, but not of any path."""
        sizes = [
            (self.root / uid / "views" / name).stat().st_size
            for index in self.indices.values()
            for uid, entry in index.entries.items()
            for name in (*entry.contexts, *entry.targets)
        ]
        content = [self.width, self.height, [index.digest for index in self.indices.values()], sizes]
        content += [] if self.limit is None else [self.limit]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def select(self, shard: Shard) -> "ObjectsProtocol":
        selected = replace(self, shard=shard)
        # Validating all objects again would take minutes.
        object.__setattr__(selected, "indices", self.indices)
        return selected

    def make_batches(self, setting: str) -> Iterator[NVSBatch]:
        """Yield all test objects under a setting. Each image is read once, so none is cached."""
        entries = self.indices[setting].entries.items()
        yield from self._load([ViewRequest(uid, entry.contexts, entry.targets) for uid, entry in entries])

    @torch.no_grad()
    def score_settings(
        self, predict: Predict, lpips: LPIPS | None, device: str | torch.device = "cpu"
    ) -> dict[str, list[SceneScores]]:
        """Predict and compare every image once: the protocols ask for 40 targets of an object, which are 22 images."""
        requests = self._list_requests()
        positions = {setting: self._find_targets(setting, requests).to(device) for setting in self.settings}
        scores: dict[str, list[SceneScores]] = {setting: [] for setting in self.settings}
        distance = enlarge_for(lpips)
        batches = zip(self._split(requests), self._load(requests), strict=True)
        for rows, batch in ((rows, batch.to(device)) for rows, batch in batches):
            images = score_images(batch.target_images, predict(batch), lpips=distance)
            for setting, targets in positions.items():
                scores[setting].append(images.select(targets[rows.start : rows.stop]).pool())
        return scores

    def _list_requests(self) -> list[ViewRequest]:
        """List all objects with every target that any protocol asks for."""
        first, *others = (index.entries for index in self.indices.values())
        for entries in others:
            if {uid: e.contexts for uid, e in entries.items()} != {
                uid: e.contexts for uid, e in first.items()
            }:
                raise ValueError(
                    f"{self.index}: protocols with other objects or contexts; write the index again"
                )
        return [
            ViewRequest(
                uid,
                entry.contexts,
                tuple(
                    dict.fromkeys(
                        name for index in self.indices.values() for name in index.entries[uid].targets
                    )
                ),
            )
            for uid, entry in first.items()
        ]

    def _find_targets(self, setting: str, requests: list[ViewRequest]) -> Int[Tensor, "object target"]:
        """Find where the targets of a protocol stand among those that are predicted."""
        entries = self.indices[setting].entries
        return torch.tensor(
            [[targets.index(name) for name in entries[uid].targets] for uid, _, targets in requests]
        )

    def _split(self, requests: list[ViewRequest]) -> list[range]:
        return self.split_scenes(len(requests), self.at_once)

    def _load(self, requests: list[ViewRequest]) -> Iterator[NVSBatch]:
        objects = RenderedObjects(self.root, self.width, self.height, cache_mb=0)
        for rows in self._split(requests):
            yield objects.make_batch(requests[rows.start : rows.stop])
