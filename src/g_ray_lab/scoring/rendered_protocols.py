"""Protocols of view synthesis that render their scenes: rooms, scanned objects, and rooms along real camera paths."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

from g_ray_lab.scoring.nvs_scorer import NVSProtocol, ZoomsProtocol
from g_ray_lab.sources.arc_views import ArcNVS, RoomsNVS
from g_ray_lab.sources.batches import NVSBatch
from g_ray_lab.sources.nvs_settings import ObjectArcsData, PathsData, PoseFrame, RoomsData
from g_ray_lab.sources.path_rooms import PathRoomsNVS


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
        from g_ray_lab.sources.object_arcs import (
            ObjectArcsNVS,  # embree, which tests in rooms do not need
        )

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

    def make_batches(self, setting: str) -> Iterator[NVSBatch]:
        settings = PathsData(self.width, self.height, zoom_max=self.get_zoom(setting))
        rooms = PathRoomsNVS(settings, self.seed, split="test")
        yield from map(rooms.make_scenes, self.split_scenes(self.scenes, self.at_once))
