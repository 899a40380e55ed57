"""Novel-view synthesis from a folder of rendered objects: images and cameras at one size, poses at one scale."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import UInt8
from torch import Tensor

from g_ray.cameras.pinhole import Pinhole
from g_ray.geometry.pose import Pose
from g_ray.rays.resample import resample
from g_ray.rays.views import Views
from g_ray_lab.datasets.objaverse import (
    DIRECTIONS,
    NAMES,
    NATIVE,
    find_objects,
    format_image_name,
    read_cameras,
    read_image,
)
from g_ray_lab.sources.batches import NVSBatch, NVSSource
from g_ray_lab.sources.clip_sampling import hash_to_unit
from g_ray_lab.sources.draws import check_draws, draw_all_readable, make_generator
from g_ray_lab.sources.nvs_settings import ObjectsData
from g_ray_lab.sources.object_index import (
    EVERY_VIEW,
    PROTOCOLS,
    TEST_SHARE,
    TargetKinds,
    assign_split,
    get_product,
    read_tested,
)
from g_ray_lab.sources.recent_cache import RecentCache

FARTHEST = 0.5
"""Distance of an object's farthest camera from its center, after scaling; as in released code."""


class ViewRequest(NamedTuple):
    """Views of one object by the names of their images."""

    uid: str
    contexts: tuple[str, ...]
    targets: tuple[str, ...]


class ObjectViews(NamedTuple):
    """The 24 cameras of an object in the order of NAMES."""

    native: Pinhole
    cameras: Pinhole
    poses: Pose


class RenderedObjects:
    """Reads views of objects below `root`, at one size, and remembers what it read last.

    All 24 cameras of an object count for its scale, so that it is the same whichever views are loaded; released
    code takes those of an index entry. The world stays the object's: poses are not made relative to a context.
    """

    def __init__(self, root: Path, width: int, height: int, cache_mb: int = 256) -> None:
        self.root, self.width, self.height = root, width, height
        self._cameras: RecentCache[ObjectViews] = RecentCache(10_000)
        self._images: RecentCache[Tensor] = RecentCache(cache_mb * 2**20 // (3 * width * height))

    def make_batch(self, requests: Sequence[ViewRequest]) -> NVSBatch:
        """One scene per entry, all with the same numbers of contexts and targets."""
        known = len(requests[0].contexts)
        named = [(uid, (*contexts, *targets)) for uid, contexts, targets in requests]
        images = torch.stack(
            [torch.stack([self.get_image(uid, name) for name in names]) for uid, names in named]
        )
        views = self._make_views([(uid, [NAMES.index(name) for name in names]) for uid, names in named])
        folders = tuple(str(self.root / uid) for uid, _ in named)
        return NVSBatch.split(images.to(torch.float32) / 255, views, known, folders)

    def get_image(self, uid: str, name: str) -> UInt8[Tensor, "3 h w"]:
        return self._images((uid, name), partial(self._read_image, uid, name))

    def get_cameras(self, uid: str) -> ObjectViews:
        """Return the cameras of the files and those of the resized images, with scaled poses."""
        return self._cameras(uid, partial(self._read_cameras, uid))

    def _make_views(self, selection: list[tuple[str, list[int]]]) -> Views:
        selected = [(self.get_cameras(uid), indices) for uid, indices in selection]
        params = torch.stack([views.cameras.params[indices] for views, indices in selected])
        matrices = torch.stack([views.poses.world_from_cam[indices] for views, indices in selected])
        cameras = [Pinhole(params[:, view], self.width, self.height) for view in range(params.shape[1])]
        return Views(cameras, Pose(matrices))

    def _read_cameras(self, uid: str) -> ObjectViews:
        read = read_cameras(self.root / uid)
        native = read.cameras.to(torch.float32)
        scaled = read.poses.scale_translation(FARTHEST / read.poses.translation.norm(dim=-1).max())
        return ObjectViews(native, native.resize(self.width, self.height), scaled.to(torch.float32))

    def _read_image(self, uid: str, name: str) -> UInt8[Tensor, "3 h w"]:
        """At another size, the eight bits that a file of that size would hold."""
        path = self.root / uid / "views" / name
        image, camera = read_image(path), self.get_cameras(uid).native[NAMES.index(name)]
        if image.shape[1:] != (camera.height, camera.width):
            size = f"{image.shape[2]}×{image.shape[1]} px"
            raise ValueError(f"{path}: {size}, but its camera takes {camera.width}×{camera.height}")
        if image.shape[1:] == (self.height, self.width):
            return image
        levels, _ = resample(image.to(torch.float32), camera, self.width, self.height)
        return levels.round().clamp(0, 255).to(torch.uint8)


# Batches, each a function of (seed, step, rank).


HELD_OUT_SHARE = 0.02
"""Share of all objects that are neither trained on nor tested on."""

TARGETS: dict[str, TargetKinds] = {"all": EVERY_VIEW, **PROTOCOLS}
"""Targets of a training step: every view but the two that are given, or a protocol's targets."""


@dataclass(frozen=True)
class ObjectsNVS(NVSSource):
    """Two native views of an object are given, another of its 24 is the target; all three are drawn for every sample.

    A sample is a function of (seed, rank, number): `make_batch(step)` holds numbers step · batch and following, for any
    batch size. The objects of the test protocols are never among them.
    """

    settings: ObjectsData
    seed: int = 0

    def __post_init__(self) -> None:
        settings = self.settings
        if settings.targets not in TARGETS:
            raise ValueError(f"unknown targets {settings.targets!r}: choose one of {', '.join(TARGETS)}")
        check_draws(self.seed, batch=settings.batch, width=settings.width, height=settings.height)
        if not self.training_names:
            raise ValueError(
                f"{settings.root} has {len(self._names)} objects to train on: "
                "render at least 2 in addition to those for testing"
            )

    @cached_property
    def _names(self) -> list[str]:
        """Objects that are not for testing, in an order that belongs to their products."""
        names = find_objects(self.settings.root)
        if self.settings.index is None:
            names = [uid for uid in names if assign_split(uid) == "train"]
        else:
            tested = read_tested(self.settings.index)
            names = [uid for uid in names if uid not in tested]
        return sorted(names, key=lambda uid: (hash_to_unit(get_product(uid)), uid))

    @cached_property
    def held_out_names(self) -> list[str]:
        """Objects for validation: the products next to those for testing, at least one."""
        first = hash_to_unit(get_product(self._names[0])) if self._names else 0.0
        # Nothing is below TEST_SHARE, unless an index lists the objects for testing.
        limit = max(HELD_OUT_SHARE + (TEST_SHARE if self.settings.index is None else 0.0), first)
        return [uid for uid in self._names if hash_to_unit(get_product(uid)) <= limit]

    @cached_property
    def training_names(self) -> list[str]:
        return self._names[len(self.held_out_names) :]

    @cached_property
    def objects(self) -> RenderedObjects:
        settings = self.settings
        return RenderedObjects(settings.root, settings.width, settings.height, settings.cache_mb)

    def make_batch(self, step: int, rank: int = 0) -> NVSBatch:
        numbers = range(step * self.settings.batch, (step + 1) * self.settings.batch)
        requests, redrawn = draw_all_readable(partial(self._draw_loaded, rank), numbers, self.objects.root)
        return replace(self.objects.make_batch(requests), redrawn=redrawn)

    def make_held_out(self) -> NVSBatch:
        return self.objects.make_batch(
            [self._draw(self.held_out_names, 0, n) for n in range(self.settings.batch)]
        )

    def _draw_loaded(self, rank: int, number: int, attempt: int) -> ViewRequest:
        """Draw views of a training object and read them; the batch then takes them from the cache."""
        request = self._draw(self.training_names, rank, number, attempt)
        self.objects.get_cameras(request.uid)
        for name in (*request.contexts, *request.targets):
            self.objects.get_image(request.uid, name)
        return request

    def _draw(self, objects: list[str], rank: int, number: int, attempt: int = 0) -> ViewRequest:
        random = make_generator(attempt, self.seed, rank, number)
        uid = objects[random.integers(len(objects))]
        first, second = map(int, random.choice(DIRECTIONS, 2, replace=False))
        targets = TARGETS[self.settings.targets].list_names((first, second))
        contexts = (format_image_name(first, NATIVE), format_image_name(second, NATIVE))
        return ViewRequest(uid, contexts, (targets[random.integers(len(targets))],))
