"""Novel-view synthesis from rendered objects: batches that depend on nothing but (seed, step, rank)."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from g_ray.data.clip_sampling import hash_to_unit
from g_ray.data.nvs import NVSBatch, NVSSource
from g_ray.data.objects.index import EVERY_VIEW, PROTOCOLS, TEST_SHARE, TargetKinds, assign_split
from g_ray.data.objects.rendered import RenderedObjects, ViewRequest
from g_ray.formats.objaverse import DIRECTIONS, NATIVE, find_objects, format_image_name

HELD_OUT_SHARE = 0.02
"""Of all objects: neither trained on nor tested on."""

TARGETS: dict[str, TargetKinds] = {"all": EVERY_VIEW, **PROTOCOLS}
"""What a training step may ask for: every view but the two that are given, or a protocol's targets."""


@dataclass(frozen=True)
class ObjectsNVS(NVSSource):
    """Two native views of an object are given, another of its 24 is asked for; all three are drawn anew each time.

    A draw is known by (seed, rank, number): `make_batch(step)` holds numbers step · batch_size and following, whatever
    the batch size. The objects of the test protocols are never among them.
    """

    root: Path
    seed: int = 0
    batch_size: int = 16
    width: int = 48
    height: int = 48
    targets: str = "all"
    cache_mb: int = 256  # of decoded images, per process

    def __post_init__(self) -> None:
        if self.targets not in TARGETS:
            raise ValueError(f"unknown targets {self.targets!r}: choose one of {', '.join(TARGETS)}")
        if min(self.batch_size, self.width, self.height) < 1 or self.seed < 0:
            raise ValueError(
                f"{self.batch_size} objects of {self.width}×{self.height} px, seed {self.seed}: give positive "
                "numbers, and a seed of 0 or more"
            )
        if not self.training_names:
            raise ValueError(
                f"{self.root} has {len(self._names)} objects to train on: render at least 2 besides those for testing"
            )

    @cached_property
    def _names(self) -> list[str]:
        """Objects that are not for testing, in an order that belongs to their names."""
        return sorted((u for u in find_objects(self.root) if assign_split(u) == "train"), key=hash_to_unit)

    @cached_property
    def held_out_names(self) -> list[str]:
        """For pictures and a score while training goes on: those next to the test objects, at least one."""
        limit = TEST_SHARE + HELD_OUT_SHARE
        return [uid for uid in self._names if hash_to_unit(uid) < limit] or self._names[:1]

    @cached_property
    def training_names(self) -> list[str]:
        return self._names[len(self.held_out_names) :]

    @cached_property
    def objects(self) -> RenderedObjects:
        return RenderedObjects(self.root, self.width, self.height, self.cache_mb)

    def make_batch(self, step: int, rank: int = 0) -> NVSBatch:
        numbers = range(step * self.batch_size, (step + 1) * self.batch_size)
        return self.objects.make_batch([self._draw(self.training_names, rank, number) for number in numbers])

    def make_held_out(self) -> NVSBatch:
        return self.objects.make_batch(
            [self._draw(self.held_out_names, 0, n) for n in range(self.batch_size)]
        )

    def _draw(self, objects: list[str], rank: int, number: int) -> ViewRequest:
        random = np.random.default_rng((self.seed, rank, number))
        uid = objects[random.integers(len(objects))]
        first, second = map(int, random.choice(DIRECTIONS, 2, replace=False))
        targets = TARGETS[self.targets].list_names((first, second))
        contexts = (format_image_name(first, NATIVE), format_image_name(second, NATIVE))
        return ViewRequest(uid, contexts, (targets[random.integers(len(targets))],))
