"""Protocols of view synthesis: the same test scenes for every method and seed, under several settings.

Here are those that render their scenes: rooms, scanned objects, and rooms along real camera paths.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import ceil
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray_lab.metrics.image_metrics import Distance, SceneScores, score_scenes
from g_ray_lab.metrics.lpips import LPIPS, SMALLEST
from g_ray_lab.scoring.scored_runs import GROUP
from g_ray_lab.scoring.store import WHOLE, Shard, hash_key, split_range
from g_ray_lab.sources.arc_views import ArcNVS, RoomsNVS
from g_ray_lab.sources.batches import NVSBatch
from g_ray_lab.sources.nvs_settings import ObjectArcsData, PathsData, PoseFrame, RoomsData
from g_ray_lab.sources.re10k_nvs import PathRoomsNVS

PAPER_SHEET = "z2.0"
"""Setting of the paper's qualitative figure on RealEstate10K."""

Images = Float[Tensor, "scene target 3 h w"]
Predict = Callable[[NVSBatch], Tensor]


@dataclass(frozen=True)
class NVSProtocol(ABC):
    """Test scenes that are the same for every method and seed; `settings` are the columns of the table."""

    shard: Shard = field(default=WHOLE, kw_only=True)
    """Share of the batches of every setting; all of them by default."""
    limit: int | None = field(default=None, kw_only=True)
    """Number of scenes, to try things out; all of them by default."""

    @property
    @abstractmethod
    def settings(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def is_ordered(self) -> bool:
        """Whether the settings are steps along one axis, and are to be drawn as curves."""
        return True

    @property
    def shown_setting(self) -> str:
        """The setting whose predictions are drawn as a contact sheet: the paper's z_max = 2.0 if it is one of them."""
        return PAPER_SHEET if PAPER_SHEET in self.settings else self.settings[-1]

    @abstractmethod
    def make_batches(self, setting: str) -> Iterator[NVSBatch]:
        """Yield all test scenes under a setting, always in the same order."""

    @property
    def digest(self) -> str:
        """Hash of everything that determines the test images; scores with another digest are not reused."""
        return hash_key(self.describe_settings(), default=str)

    def describe_settings(self) -> dict[str, Any]:
        """Return the fields that determine the test images; a share is no other protocol."""
        settings = asdict(self)
        settings.pop("shard")
        if self.limit is None:  # absent otherwise, so that scores stored before it existed are used
            settings.pop("limit")
        return settings

    def split_scenes(self, scenes: int, at_once: int) -> list[range]:
        """Return the scenes of each batch that belongs to this share."""
        count = scenes if self.limit is None else min(scenes, self.limit)
        batches = enumerate(split_range(count, at_once))
        return [batch for position, batch in batches if self.shard.takes(position)]

    def select(self, shard: Shard) -> "NVSProtocol":
        """Return the protocol with a share of its batches."""
        return self if shard == self.shard else replace(self, shard=shard)

    def limit_scenes(self, limit: int | None) -> "NVSProtocol":
        """Return the protocol with its first scenes only."""
        return self if limit == self.limit else replace(self, limit=limit)

    def score(self, predict: Predict, setting: str, lpips: LPIPS | None) -> SceneScores:
        """Return one value per scene and metric."""
        return SceneScores.concatenate(self.score_batches(predict, setting, lpips))

    @torch.no_grad()
    def score_batches(
        self, predict: Predict, setting: str, lpips: LPIPS | None, device: str | torch.device = "cpu"
    ) -> list[SceneScores]:
        """Return the scores of every batch; images are predicted and compared on the device."""
        distance = enlarge_for(lpips)
        batches = (batch.to(device) for batch in self.make_batches(setting))
        return [score_scenes(b.target_images, predict(b), lpips=distance) for b in batches]

    def score_settings(
        self, predict: Predict, lpips: LPIPS | None, device: str | torch.device = "cpu"
    ) -> dict[str, list[SceneScores]]:
        """Return the scores of every batch by setting. Protocols whose settings share images predict them once."""
        return {setting: self.score_batches(predict, setting, lpips, device) for setting in self.settings}


def enlarge_for(lpips: LPIPS | None) -> Distance | None:
    """Return LPIPS for images of any size."""
    return None if lpips is None else partial(measure_enlarged, lpips)


def measure_enlarged(lpips: Distance, truth: Images, predicted: Images) -> Float[Tensor, "scene target"]:
    """Return LPIPS of images that are repeated 2, 3, … times in both directions if they are too small for it."""
    factor = ceil(SMALLEST / min(truth.shape[-2:]))
    truth, predicted = (
        images.repeat_interleave(factor, -1).repeat_interleave(factor, -2) for images in (truth, predicted)
    )
    return lpips(truth, predicted)


@dataclass(frozen=True, kw_only=True)
class ZoomsProtocol(NVSProtocol):
    """The paper's protocol: the first context keeps its field of view, other views are zoomed by z ~ U[1, z_max]."""

    zooms: tuple[float, ...] = (1.0, 1.5, 2.0, 2.5)

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(f"z{zoom:.1f}" for zoom in self.zooms)

    def get_zoom(self, setting: str) -> float:
        """Return z_max of a setting."""
        return dict(zip(self.settings, self.zooms, strict=True))[setting]


@dataclass(frozen=True)
class RoomsProtocol(NVSProtocol):
    """Rooms of the test split, with two contexts and one target; settings differ in their zooms only."""

    width: int
    height: int
    scenes: int
    fov_deg: tuple[float, float] = (60.0, 80.0)
    seed: int = 0
    at_once: int = 32
    fov_px: int | None = None
    """Pixels that a field of view of `fov_deg` spans; None is the width, as in training."""
    pose_frame: PoseFrame = "first_context"

    def make_batches(self, setting: str) -> Iterator[NVSBatch]:
        """Yield the same rooms and poses for every setting; training draws from another split."""
        rooms = self.apply_zoom(self.build_source(), setting)
        for batch in self.split_scenes(self.scenes, self.at_once):
            yield rooms.make_scenes(batch)

    def build_source(self) -> ArcNVS:
        """Return the scenes without zoom."""
        settings = RoomsData(self.width, self.height, fov_deg=self.fov_deg, pose_frame=self.pose_frame)
        return RoomsNVS(settings, self.seed, split="test", fov_px=self.fov_px)

    @abstractmethod
    def apply_zoom(self, native: ArcNVS, setting: str) -> ArcNVS:
        """Return the scenes with the zooms of a setting."""


@dataclass(frozen=True)
class FovProtocol(ZoomsProtocol, RoomsProtocol):
    """The paper's protocol in rooms."""

    def apply_zoom(self, native: ArcNVS, setting: str) -> ArcNVS:
        return native.with_zoom(self.get_zoom(setting))

    def reshape(self, width: int, height: int, fov_px: int) -> "FovProtocol":
        """Return the same rooms in images of another shape, whose field of view spans `fov_px` pixels."""
        return replace(self, width=width, height=height, fov_px=fov_px)


@dataclass(frozen=True)
class ObjectFovProtocol(FovProtocol):
    """The paper's protocol around scanned objects, from where cameras stand in rooms."""

    def build_source(self) -> ArcNVS:
        from g_ray_lab.sources.objects_nvs import ObjectArcsNVS

        settings = ObjectArcsData(self.width, self.height, fov_deg=self.fov_deg, pose_frame=self.pose_frame)
        return ObjectArcsNVS(settings, self.seed, split="test", fov_px=self.fov_px)


@dataclass(frozen=True)
class WhoZoomsProtocol(RoomsProtocol):
    """One zoom for the second context, the target, or both: fields of view differ within a scene or change together."""

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

    def apply_zoom(self, native: ArcNVS, setting: str) -> ArcNVS:
        context, target = setting in ("context", "both"), setting in ("target", "both")
        return replace(native, zooms=(1.0, self.zoom if context else 1.0, self.zoom if target else 1.0))


@dataclass(frozen=True)
class PathsProtocol(ZoomsProtocol):
    """The paper's protocol along real camera paths: clips and rooms of the test split.

    Images that are wider than those of training show more to the sides, as in RealEstate10K: the lens of a clip is
    cropped to their shape, and a square crop keeps its full height.
    """

    width: int
    height: int
    scenes: int
    seed: int = 0
    at_once: int = 32
    axes: Literal["opencv", "blender"] = "opencv"

    def make_batches(self, setting: str) -> Iterator[NVSBatch]:
        settings = PathsData(self.width, self.height, zoom_max=self.get_zoom(setting), axes=self.axes)
        rooms = PathRoomsNVS(settings, self.seed, split="test")
        yield from map(rooms.make_scenes, self.split_scenes(self.scenes, self.at_once))


@dataclass(frozen=True)
class GroupedProtocol(NVSProtocol):
    """Protocols by the name of their group; the first one is the table of record, and the one that is drawn."""

    parts: Mapping[str, NVSProtocol]

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(
            f"{name}{GROUP}{setting}" for name, part in self.parts.items() for setting in part.settings
        )

    @property
    def shown_setting(self) -> str:
        name, part = next(iter(self.parts.items()))
        return f"{name}{GROUP}{part.shown_setting}"

    @property
    def digest(self) -> str:
        digests = {name: part.digest for name, part in self.parts.items()}
        return hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:16]

    def describe_settings(self) -> dict[str, Any]:
        parts = {name: part.describe_settings() for name, part in self.parts.items()}
        return {"parts": parts} if self.limit is None else {"parts": parts, "limit": self.limit}

    def select(self, shard: Shard) -> "GroupedProtocol":
        parts = {name: part.select(shard) for name, part in self.parts.items()}
        return GroupedProtocol(parts, shard=shard, limit=self.limit)

    def limit_scenes(self, limit: int | None) -> "GroupedProtocol":
        parts = {name: part.limit_scenes(limit) for name, part in self.parts.items()}
        return GroupedProtocol(parts, shard=self.shard, limit=limit)

    def make_batches(self, setting: str) -> Iterator[NVSBatch]:
        name, _, part = setting.partition(GROUP)
        return self.parts[name].make_batches(part)


def choose_wide_height(side: int, patch: int) -> int:
    """Return the height of tests in whole patches that is nearest to 9/16 of the width: 24 px of 42 in patches of 6."""
    return max(1, round(side * 9 / 16 / patch)) * patch


def make_shapes(square: FovProtocol, patch: int, *, factors: bool = True) -> GroupedProtocol:
    """Return the paper's change of shape between training and test, in rooms, for networks trained on square images.

    RealEstate10K is trained on square crops of 256×256 and tested at 256×144 with the vertical field of view of
    training: the focal length is 0.5625 of the trained one in pixels, so that in units of the image fx/W shrinks while
    fy/H stays. `factors` adds one change at a time: `aspect` cuts off rows and keeps the focal length, `fov` shortens
    the focal length and stays square.
    """
    side, height = square.height, choose_wide_height(square.height, patch)
    if square.width != side:
        raise ValueError(f"{square.width}×{side} px: the change of shape starts from square images")
    parts: dict[str, NVSProtocol] = {
        "wide": square.reshape(side, height, fov_px=height),
        "square": square,
    }
    if factors:
        parts["aspect"] = square.reshape(side, height, fov_px=side)
        parts["fov"] = square.reshape(side, side, fov_px=height)
    return GroupedProtocol(parts)


def make_path_shapes(
    side: int, patch: int, scenes: int, axes: Literal["opencv", "blender"] = "opencv"
) -> GroupedProtocol:
    """Return tests along real camera paths, wide and square; the lens is cropped to each shape."""
    PathsData(side, side).find_file()  # fails now if there is none, not after training
    square = PathsProtocol(side, side, scenes, axes=axes)
    return GroupedProtocol(
        {"wide": replace(square, height=choose_wide_height(side, patch)), "square": square}
    )


def make_object_shapes(rooms: FovProtocol, patch: int) -> GroupedProtocol:
    """Return tests on scanned objects, wide and square, with the cameras of tests in rooms."""
    ObjectArcsData(rooms.width, rooms.height).find_meshes()  # fails now if there are none
    objects = ObjectFovProtocol(rooms.width, rooms.height, rooms.scenes, rooms.fov_deg)
    return make_shapes(objects, patch, factors=False)


def replace_frames(protocol: NVSProtocol) -> NVSProtocol:
    """Return the tests in rooms with poses in the frame of the room."""
    assert isinstance(protocol, GroupedProtocol)
    parts = {
        name: replace(part, pose_frame="room")
        for name, part in protocol.parts.items()
        if isinstance(part, FovProtocol)
    }
    return GroupedProtocol(parts)
