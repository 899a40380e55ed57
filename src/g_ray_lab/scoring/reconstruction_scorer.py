"""Score reconstruction with six metrics: on rooms of the test split, and on photographs with depth.

`RoomsScorer` renders the same rooms through several kinds of lens. `PhotosScorer` uses real photographs as they are
and re-projected into fisheye images. `FoldersScorer` has a setting for each kind of test folder, and photographs.
`LensScorer` has lenses from 60° to the whole sphere.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor, nn

from g_ray.reconstruction.set_metrics import DepthName, ReconstructionScores, SetGeometry, score_sets
from g_ray_lab.scoring.scored_runs import BatchScores, Scorer, join_shares
from g_ray_lab.scoring.set_prediction import stand_still
from g_ray_lab.scoring.store import WHOLE, Shard, hash_key, split_range
from g_ray_lab.sources.batches import ReconstructionBatch
from g_ray_lab.sources.random_lenses import draw_contained_fisheyes, reproject_batch
from g_ray_lab.sources.reconstruction_settings import RoomsViews, ScenesViews
from g_ray_lab.sources.rooms_reconstruction import LensedRooms, LensName, LensRange, RoomsReconstruction
from g_ray_lab.sources.scenes_reconstruction import ScenesReconstruction
from g_ray_lab.training.recipe import to_plain

Predict = Callable[[ReconstructionBatch], SetGeometry]
Rooms = TypeVar("Rooms", bound=RoomsViews)

STANDING = "standing"
"""Name of the row without training: what calibration alone gives."""
VIEWS = 4  # per test set, or fewer if training has fewer
ZOOM_MAX = 3.0
LENSES: dict[str, tuple[LensName, float]] = {
    "pinhole": ("pinhole", 1.0),
    "zoom": ("pinhole", ZOOM_MAX),
    "mixed": ("mixed", 1.0),
    "fisheye": ("fisheye", 1.0),
}
"""Columns of the ablation: lens and largest zoom. Rooms and camera paths are the same in all of them."""
UPSAMPLING = 8
"""Photographs are read this many times larger than the network's images before they are re-projected, because a
re-projected image can be no sharper than its source."""


def make_test_views(trained: Rooms) -> Rooms:
    """Return the settings of test sets: as in training, but square images, four views at most and true colors."""
    views = (min(VIEWS, trained.views[1]),) * 2
    return replace(trained, height=trained.width, aspect=(1.0, 1.0), views=views, color=False)


def make_scenes_views(
    folders: tuple[Path, ...],
    side: int,
    views: int,
    *,
    zoom_max: float = 1.0,
    stored_shape: bool = False,
    frames: tuple[float, float] | None = None,
) -> ScenesViews:
    """Return the settings of test sets from scene folders; `frames` is a range of frames of a single scene."""
    settings = ScenesViews(
        side,
        side,
        views=(views, views),
        folders=folders,
        zoom_max=zoom_max,
        off_center=0.0,
        color=False,
        stored_shape=stored_shape,
    )
    # One scene at least is never drawn.
    return replace(settings, hold_out=0.01) if frames is None else replace(settings, frames=frames)


class SetsScorer(Scorer):
    """Score sets of views with known points and poses, under several settings."""

    sets: int
    at_once: int
    """Sets of a batch."""

    @abstractmethod
    def make_batches(self, setting: str) -> Iterator[ReconstructionBatch]:
        """Yield all test sets under a setting, always in the same order."""

    def choose_depth(self, setting: str) -> DepthName:
        """Return the kind of depth that is compared under a setting."""
        return "ray"

    def select_pixels(self, batch: ReconstructionBatch, setting: str) -> Bool[Tensor, "set view h w"] | None:
        """Return the pixels that are scored under a setting; None for all of them."""
        return None

    def score_share(self, network: nn.Module, shard: Shard = WHOLE) -> BatchScores:
        return {setting: self._score(make_predictor(network), setting, shard) for setting in self.settings}

    def score_network(self, network: nn.Module, setting: str) -> dict[str, list[float]]:
        """Return one value per set for each metric, under one setting."""
        return join_shares([{setting: self._score(make_predictor(network), setting, WHOLE)}])[setting]

    def score_reference_shares(self, shard: Shard = WHOLE) -> dict[str, BatchScores]:
        """Score `standing`: true rays at constant depth from static cameras, i.e. what calibration alone gives."""
        return {STANDING: {setting: self._score(predict_static, setting, shard) for setting in self.settings}}

    def _score(self, predict: Predict, setting: str, shard: Shard) -> list[dict[str, list[float]]]:
        count = ceil(self.sets / self.at_once)
        own = [position for position in range(count) if shard.takes(position)]
        parts = [
            score_batch(batch, predict(batch), self.choose_depth(setting), self.select_pixels(batch, setting))
            for position, batch in zip(range(max(own, default=-1) + 1), self.make_batches(setting))  # noqa: B905
            if position in own
        ]
        return [{metric: values.tolist() for metric, values in part.rows().items()} for part in parts]


@dataclass(frozen=True)
class RoomsScorer(SetsScorer):
    """Score the first `sets` rooms of the test split; depth is z for pinholes, and along the ray with fisheyes."""

    rooms: RoomsReconstruction
    sets: int = 128
    at_once: int = 16

    @staticmethod
    def from_training(rooms: object, sets: int) -> "RoomsScorer":
        """Make test rooms with the settings of a training source."""
        assert isinstance(rooms, RoomsReconstruction)
        return RoomsScorer(replace(rooms, settings=make_test_views(rooms.settings), split="test"), sets)

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(LENSES)

    @property
    def key(self) -> dict[str, str]:
        return {"protocol": hash_key(to_plain(asdict(self)))}

    def describe(self) -> dict[str, Any]:
        return {
            "protocol": to_plain(asdict(self)),
            "protocol_digest": self.key["protocol"],
            "depth": {setting: self.choose_depth(setting) for setting in self.settings},
        }

    def make_batches(self, setting: str) -> Iterator[ReconstructionBatch]:
        rooms = self.rooms.with_lens(*LENSES[setting])
        yield from map(rooms.make_sets, split_range(self.sets, self.at_once))

    def choose_depth(self, setting: str) -> DepthName:
        return "z" if setting in ("pinhole", "zoom") else "ray"


@dataclass(frozen=True)
class PhotosScorer(SetsScorer):
    """Score sets of overlapping views from the last part of a scene's frames; depth is along the ray.

    `frames` is the range of frames as shares of the scene: training may use the others.
    """

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
        return {"protocol": hash_key(settings)}

    def describe(self) -> dict[str, Any]:
        described = {**to_plain(asdict(self)), "folder": self.folder.name}
        return {"protocol": described, "protocol_digest": self.key["protocol"], "depth": "ray"}

    def make_batches(self, setting: str) -> Iterator[ReconstructionBatch]:
        source = self._make_source(self.side if setting == "pinhole" else UPSAMPLING * self.side)
        random = np.random.default_rng(0)
        for numbers in split_range(self.sets, self.at_once):
            batch = source.make_sets(numbers)
            if setting == "fisheye":
                batch = reproject_batch(batch, draw_contained_fisheyes(batch, self.side, self.side, random))
            yield batch

    def _make_source(self, side: int) -> ScenesReconstruction:
        settings = make_scenes_views((self.folder,), side, self.views, frames=self.frames)
        return ScenesReconstruction(settings, patch=self.patch)


@dataclass(frozen=True)
class FoldersScorer(SetsScorer):
    """Score sets of overlapping views from scene folders, in their stored shapes, and optionally from photographs.

    Settings are the names of `folders`, and `photos` and `photos_fisheye` for `photos`. Depth is along the ray.
    """

    folders: Mapping[str, tuple[Path, ...]]
    side: int
    patch: int
    photos: PhotosScorer | None = None
    sets: int = 48
    views: int = 4
    at_once: int = 8

    @property
    def settings(self) -> tuple[str, ...]:
        return (*self.folders, *(() if self.photos is None else ("photos", "photos_fisheye")))

    @property
    def key(self) -> dict[str, str]:
        numbers = {"side": self.side, "sets": self.sets, "views": self.views}
        files = {
            name: sorted(
                (path.name, path.stat().st_size) for folder in group for path in folder.rglob("*.json")
            )
            for name, group in self.folders.items()
        }
        photos = None if self.photos is None else self.photos.key
        return {"protocol": hash_key([numbers, files, photos])}

    def describe(self) -> dict[str, Any]:
        names = {name: [folder.name for folder in group] for name, group in self.folders.items()}
        return {
            "protocol": {"folders": names, "side": self.side, "sets": self.sets, "views": self.views},
            "photos": None if self.photos is None else self.photos.describe(),
            "protocol_digest": self.key["protocol"],
            "depth": "ray",
        }

    def make_batches(self, setting: str) -> Iterator[ReconstructionBatch]:
        if setting not in self.folders:
            assert self.photos is not None
            yield from self.photos.make_batches("fisheye" if setting == "photos_fisheye" else "pinhole")
            return
        settings = make_scenes_views(self.folders[setting], self.side, self.views, stored_shape=True)
        source = ScenesReconstruction(settings, patch=self.patch)
        yield from map(source.make_sets, split_range(self.sets, self.at_once))


def make_predictor(network: nn.Module) -> Predict:
    """Return a function that predicts on the network's device and moves results back to the device of the batch."""
    device = next(network.parameters()).device

    @torch.no_grad()
    def predict(batch: ReconstructionBatch) -> SetGeometry:
        there = batch.to(device)
        predicted = network(there.images, there.views).to(batch.images)
        return SetGeometry(predicted.world_points, predicted.camera_points, predicted.rays, predicted.poses)

    return predict


def score_batch(
    batch: ReconstructionBatch,
    predicted: SetGeometry,
    depth: DepthName,
    pixels: Bool[Tensor, "set view h w"] | None = None,
) -> ReconstructionScores:
    """Score a prediction against the truth of its batch, on all pixels or on some."""
    rays = batch.rays()
    truth = SetGeometry(batch.world_points, batch.camera_points, rays.directions, batch.poses)
    valid, known = (mask if pixels is None else mask & pixels for mask in (batch.valid, rays.valid))
    return score_sets(truth, predicted, valid, depth_kind=depth, known_rays=known)


def predict_static(batch: ReconstructionBatch) -> SetGeometry:
    """Predict static cameras and constant depth along the rays that a model is given."""
    return stand_still(batch.rays().directions)


LENS_TESTS: dict[str, tuple[LensRange, ...]] = {
    "pinhole_60": (LensRange("pinhole", (60.0, 60.0)),),
    "pinhole_90": (LensRange("pinhole", (90.0, 90.0)),),
    "fisheye_120": (LensRange("fisheye", (120.0, 120.0)),),
    "fisheye_180": (LensRange("fisheye", (180.0, 180.0)),),
    "fisheye_220": (LensRange("fisheye", (220.0, 220.0)),),
    "panorama": (LensRange("panorama"),),
    "mixed": (
        LensRange("pinhole", (60.0, 90.0)),
        LensRange("fisheye", (180.0, 220.0)),
        LensRange("panorama"),
        LensRange("fisheye", (120.0, 180.0)),
    ),
}
"""Columns: lenses of the views, in turn. Rooms and camera paths are the same in all of them."""
BEHIND = {"fisheye_220_behind": "fisheye_220", "panorama_behind": "panorama"}
"""Columns that score only pixels more than 90° from the optical axis, where the paper's pair of angles jumps."""


@dataclass(frozen=True)
class LensScorer(SetsScorer):
    """Score the first `sets` rooms of the test split; depth is along the ray."""

    rooms: LensedRooms
    sets: int = 64
    at_once: int = 16

    @staticmethod
    def from_training(rooms: object, sets: int) -> "LensScorer":
        """Make test rooms with the settings of a training source."""
        assert isinstance(rooms, LensedRooms)
        return LensScorer(replace(rooms, settings=make_test_views(rooms.settings), split="test"), sets)

    @property
    def settings(self) -> tuple[str, ...]:
        return (*LENS_TESTS, *BEHIND)

    @property
    def key(self) -> dict[str, str]:
        return {"protocol": hash_key([to_plain(asdict(self)), self._list_tests()])}

    def describe(self) -> dict[str, Any]:
        return {
            "protocol": to_plain(asdict(self)),
            "protocol_digest": self.key["protocol"],
            "tests": self._list_tests(),
            "behind": BEHIND,
            "depth": "ray",
        }

    def make_batches(self, setting: str) -> Iterator[ReconstructionBatch]:
        rooms = self.rooms.with_lenses(*LENS_TESTS[BEHIND.get(setting, setting)])
        yield from map(rooms.make_sets, split_range(self.sets, self.at_once))

    def select_pixels(self, batch: ReconstructionBatch, setting: str) -> Bool[Tensor, "set view h w"] | None:
        return batch.rays().directions[..., 2] < 0 if setting in BEHIND else None

    def _list_tests(self) -> dict[str, Any]:
        return {name: [to_plain(asdict(lens)) for lens in lenses] for name, lenses in LENS_TESTS.items()}
