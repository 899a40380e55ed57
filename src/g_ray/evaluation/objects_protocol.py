"""The protocol of the Objaverse tables: the paper's six ways to choose targets, read from frozen index files.

They are defined in the paper's appendix "Objaverse Target-View Definitions".
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from g_ray.data.nvs import NVSBatch
from g_ray.data.objects.index import PROTOCOLS, ObjectIndex, read_index
from g_ray.data.objects.nvs import RenderedObjects, ViewRequest
from g_ray.evaluation.nvs import NVSProtocol


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
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def make_batches(self, setting: str) -> Iterator[NVSBatch]:
        """Yield all test objects under a setting. Each image is read once, so none is cached."""
        objects = RenderedObjects(self.root, self.width, self.height, cache_mb=0)
        entries = self.indices[setting].entries.items()
        requests = [ViewRequest(uid, entry.contexts, entry.targets) for uid, entry in entries]
        for first in range(0, len(requests), self.at_once):
            yield objects.make_batch(requests[first : first + self.at_once])
