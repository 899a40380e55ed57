"""The protocol of the Objaverse tables: the paper's six ways to choose targets, read from frozen index files.

They are defined in the paper's appendix "Objaverse Target-View Definitions".
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from g_ray_lab.metrics.image_metrics import SceneScores, score_images
from g_ray_lab.metrics.lpips import LPIPS
from g_ray_lab.scoring.nvs_protocols import NVSProtocol, Predict, enlarge_for
from g_ray_lab.scoring.store import Shard
from g_ray_lab.sources.batches import NVSBatch
from g_ray_lab.sources.object_index import PROTOCOLS, ObjectIndex, read_index
from g_ray_lab.sources.objects_nvs import RenderedObjects, ViewRequest


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
